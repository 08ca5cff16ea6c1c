"""A trained model's denoiser as what is asked of its samples, by the words of a command: guidance towards what is given,
rules of how sequences are written, on columns, a reward; and the figures of what was drawn so.

Rules and rewards of one's own are shown data as it is written (`Format.seen`): texts as strings, tables as frames, arrays.

`guide` leads from the model's law of the rest, p(x), to that given what is given, p(x | y): conditions that the network is
told, and columns that are masked or may stand at time 0, of which the model knows both laws already.  By itself it is
classifier-free guidance, whose law nobody wrote down; where samples are chosen among particles, their law is
p(x | y)^g p(x)^(1 - g) (times what else is asked).
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from math import isfinite
from typing import Any

import torch

from unnoise.data.base import Format
from unnoise.denoiser import AnyDenoiser
from unnoise.guidance import targets
from unnoise.guidance.automata import regular
from unnoise.guidance.classifier_free import ClassifierFree
from unnoise.guidance.given import Unconditional
from unnoise.guidance.grammars import grammar
from unnoise.guidance.hidden import Hidden, WithoutKnown
from unnoise.guidance.languages import Language
from unnoise.guidance.ruled import satisfying
from unnoise.guidance.twists import Twist
from unnoise.samplers import Info, Particles, Sampler
from unnoise.samplers.particles import ParticleRecord
from unnoise.shapes import Tree
from unnoise.training.drawing import draw
from unnoise.training.known_parts import KnownParts
from unnoise.training.telling import Telling
from unnoise.tree import rows

PARTICLES = 16


class CutShort(RuntimeError):
    """A reward failed in a later batch; `samples` are those of the batches before, or the file that they are in."""

    def __init__(self, message: str, samples: Any = None):
        super().__init__(message)
        self.samples = samples


@dataclass(frozen=True)
class Steering:
    """What samples are to be like."""

    regex: str | None = None
    grammar: str | None = None  # the text of a grammar
    reward: Callable[[Any], Any] | None = None
    strength: float = 1.0
    particles: int | None = None
    where: str | None = None  # a rule on columns
    attempts: int | None = None  # at most so many rows are drawn for it
    guide: float | None = None  # how far to go towards what is given: 1 as ever, more beyond it

    @property
    def any(self) -> bool:
        return self.regex is not None or self.grammar is not None or self.reward is not None

    @property
    def weighs(self) -> bool:
        """Whether each sample is chosen among particles."""
        return self.any or (self.guide is not None and self.particles is not None)

    def check(self) -> None:
        if self.particles is not None and self.particles < 1:
            raise ValueError(f"particles = {self.particles}: a sample is chosen among one at least")
        if self.particles is not None and not self.weighs:
            raise ValueError(
                "particles are weighed by a rule, a reward or guidance: name one (regex, grammar, reward, guide), or leave "
                "them out"
            )
        if self.guide is not None and not isfinite(self.guide):
            raise ValueError(f"guide = {self.guide}: it must be a number, such as 2")
        if self.strength != 1.0 and self.reward is None:
            raise ValueError(f"strength = {self.strength:g} is that of a reward: name one, or leave it out")
        if self.attempts is not None and self.where is None:
            raise ValueError(f"attempts = {self.attempts}: rows are drawn again where a rule says so: name one (where)")
        if self.attempts is not None and self.attempts < 1:
            raise ValueError(f"attempts = {self.attempts}: at least one row is drawn")

    def guided(self, denoiser: AnyDenoiser, format: Format, given: dict[str, str], telling: Telling | None) -> AnyDenoiser:
        """The denoiser led towards what is given, and away from what it draws without; itself where nothing is asked."""
        if self.guide is None:
            return denoiser
        own, rest = ({}, given) if telling is None else telling.split(given)
        if telling is None and not rest:
            raise ValueError(
                f"guide = {self.guide:g} leads towards what is given: give something, such as --given column=value"
            )
        if telling is not None and not telling.drop:
            raise ValueError(
                f"guide = {self.guide:g} leads away from what is drawn without conditions, which this model was trained "
                f"with drop = 0 never to draw: train with --drop 0.1"
            )
        hidden = Hidden(denoiser.process, KnownParts(format.given(rest)).fixed) if rest else None
        if not self.weighs:
            return ClassifierFree(denoiser, self.guide, hidden=hidden)
        other = denoiser if telling is None else Unconditional(denoiser)
        return targets.geometric(denoiser, other if hidden is None else WithoutKnown(other, hidden), self.guide)

    def target(self, denoiser: AnyDenoiser, format: Format) -> AnyDenoiser:
        """The denoiser with all that is asked for; itself where nothing is."""
        for rule in self._rules(denoiser, format):
            denoiser = targets.restricted(denoiser, rule)
        if self.reward is not None:
            denoiser = targets.rewarded(denoiser, self._of_data(self.reward, format), self.strength)
        return denoiser

    def sampler(self, proposal: Sampler | None = None) -> Particles:
        return Particles(self.particles or PARTICLES, proposal=proposal, strict=False)

    def _rules(self, denoiser: AnyDenoiser, format: Format) -> list[Twist | Callable[[Any], Any]]:
        found: list[Language] = []
        if self.regex is not None or self.grammar is not None:
            spelling = format.spelling()
        if self.regex is not None:
            found.append(regular(spelling.rule(self.regex), spelling.alphabet, end=spelling.end))
        if self.grammar is not None:
            found.append(grammar(spelling.rule(self.grammar), spelling.alphabet, end=spelling.end))
        leads = denoiser.process.base.absorbing
        return [rule if leads else rule.accepts for rule in found]

    def _of_data(self, reward: Callable[[Any], Any], format: Format) -> Callable[[Tree], Any]:
        def of_states(x0: Any) -> Any:
            return torch.as_tensor(reward(format.seen(x0)), dtype=torch.float64)

        return of_states


def named(name: str, what: str = "--reward") -> Callable[[Any], Any]:
    """A function of one's own, as module:function; modules of the current folder too."""
    module, colon, function = name.partition(":")
    if not colon or not module or not function:
        raise ValueError(f"{what} {name!r}: write it as module:function, such as my_rewards:length")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found: Any = import_module(module)
    except ImportError as error:
        raise ValueError(f"{what} {name}: {error}: run from the folder that holds the module") from error
    for part in function.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise ValueError(f"{what} {name}: {module} has no function {function!r}")
    return found


def drawn(
    denoiser: AnyDenoiser, format: Format, n: int, steering: Steering, sampler: Sampler | None = None, **options: Any
) -> tuple[Tree, Info]:
    """n samples as they are wished for, fewer where a group of particles had no survivor or where a rule let too few
    through; options are those of `draw`, and `sampler` proposes.  Where a reward fails in a later batch, what was drawn
    before is kept, and `info.failure` says why there is no more."""
    steering.check()
    options = {"keep": steering.reward is not None, **options}
    if steering.where is None:
        return _weighed(denoiser, format, n, steering, sampler, **options)
    draw_some = partial(_weighed, steering=steering, sampler=sampler)
    plain, shown = not steering.any and steering.guide is None, steering.reward is not None
    return satisfying(draw_some, denoiser, format, n, steering.where, steering.attempts, plain, shown, **options)


def _weighed(
    denoiser: AnyDenoiser, format: Format, n: int, steering: Steering, sampler: Sampler | None = None, **options: Any
) -> tuple[Tree, Info]:
    """Without a rule on columns."""
    denoiser = steering.guided(denoiser, format, options.get("given") or {}, options.get("telling"))
    if not steering.weighs:
        return draw(denoiser, format, n, sampler, **options)
    x, info = draw(steering.target(denoiser, format), format, n, steering.sampler(sampler), **options)
    return rows(x, info.particles.alive.cpu().nonzero().squeeze(1)), info


def figures(info: Info) -> dict[str, float | int | str | None]:
    """Of a run of particles, of one that a rule let through, of both: a number that is not known is None."""
    found: dict[str, float | int | str | None] = {}
    log_z, variance = 0.0, 0.0
    if info.particles is not None:
        record: ParticleRecord = info.particles
        (log_z, error), (groups, particles) = record.estimate(), record.log_weight.shape
        variance = error**2
        found = {"particles": particles, "acceptance": int(record.alive.sum()) / groups}
        found |= {"effective": float(record.effective.mean()), "least_effective": float(record.effective.min())}
    if info.rejection is not None:
        share, error = info.rejection.estimate()
        log_z, variance = log_z + share, variance + error**2
        found |= {"acceptance": info.rejection.acceptance, "rows_drawn": info.rejection.drawn + info.rejection.before}
        found |= {"rule_by": info.rejection.way}
    if info.computed:
        found["computed"] = ", ".join(info.computed)
    if found:
        found["log_normaliser"] = log_z if isfinite(log_z) else None
        found["log_normaliser_error"] = variance**0.5 if isfinite(variance) else None
    return found


def words(found: dict[str, Any]) -> str:
    """The same for people."""
    told = [_of_rule(found)] if "rows_drawn" in found else []
    return "\n".join([*told, _of_particles(found)] if "particles" in found else told)


def _of_rule(found: dict[str, Any]) -> str:
    how = f"by {found['rule_by']}: {found['acceptance']:.3g} of the rows satisfied the rule, {found['rows_drawn']:,} in all"
    how += f"; computed from others: {found['computed']}" if "computed" in found else ""
    if "particles" in found or found["log_normaliser"] is None:
        return how
    return f"{how}; log of the rule's probability {found['log_normaliser']:.4g} ± {found['log_normaliser_error']:.2g}"


def _of_particles(found: dict[str, Any]) -> str:
    told = f"particles were worth {found['effective']:.1f} of {found['particles']} on the way"
    if found["log_normaliser"] is None:
        return told
    error = "" if found["log_normaliser_error"] is None else f" ± {found['log_normaliser_error']:.2g}"
    return f"{told}; log of the normaliser {found['log_normaliser']:.4g}{error}"
