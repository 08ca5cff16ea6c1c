"""A trained model's denoiser as what is asked of its samples, by the words of a command: rules of how sequences are written,
a reward; and the figures of a run of particles.

Rules and rewards of one's own are shown data as it is written (`Format.seen`): texts as strings, tables as frames, arrays.
"""

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from math import isfinite
from typing import Any

import torch

from unnoise.data.base import Format
from unnoise.denoiser import AnyDenoiser
from unnoise.guidance import targets
from unnoise.guidance.automata import regular
from unnoise.guidance.grammars import grammar
from unnoise.guidance.languages import Language
from unnoise.guidance.twists import Twist
from unnoise.samplers import Info, Particles, Sampler
from unnoise.samplers.particles import ParticleRecord
from unnoise.shapes import Tree
from unnoise.training.drawing import draw
from unnoise.tree import rows

PARTICLES = 16


@dataclass(frozen=True)
class Steering:
    """What samples are to be like."""

    regex: str | None = None
    grammar: str | None = None  # the text of a grammar
    reward: Callable[[Any], Any] | None = None
    strength: float = 1.0
    particles: int | None = None

    @property
    def any(self) -> bool:
        return self.regex is not None or self.grammar is not None or self.reward is not None

    def check(self) -> None:
        if self.particles is not None and self.particles < 1:
            raise ValueError(f"particles = {self.particles}: a sample is chosen among one at least")
        if self.particles is not None and not self.any:
            raise ValueError(
                "particles are weighed by a rule or a reward: name one (regex, grammar, reward), or leave them out"
            )
        if self.strength != 1.0 and self.reward is None:
            raise ValueError(f"strength = {self.strength:g} is that of a reward: name one, or leave it out")

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
    """n samples as they are wished for, fewer where a group of particles had no survivor; options are those of `draw`, and
    `sampler` proposes."""
    steering.check()
    if not steering.any:
        return draw(denoiser, format, n, sampler, **options)
    x, info = draw(steering.target(denoiser, format), format, n, steering.sampler(sampler), **options)
    return rows(x, info.particles.alive.cpu().nonzero().squeeze(1)), info


def figures(record: ParticleRecord) -> dict[str, float | int | None]:
    """Of a run of particles: a number that is not known is None."""
    (log_z, error), (groups, particles) = record.estimate(), record.log_weight.shape
    return {
        "particles": particles,
        "acceptance": int(record.alive.sum()) / groups,
        "effective": float(record.effective.mean()),
        "least_effective": float(record.effective.min()),
        "log_normaliser": log_z if isfinite(log_z) else None,
        "log_normaliser_error": error if isfinite(error) else None,
    }


def words(found: dict[str, Any]) -> str:
    """The same for people."""
    told = f"particles were worth {found['effective']:.1f} of {found['particles']} on the way"
    if found["log_normaliser"] is None:
        return told
    error = "" if found["log_normaliser_error"] is None else f" ± {found['log_normaliser_error']:.2g}"
    return f"{told}; log of the normaliser {found['log_normaliser']:.4g}{error}"
