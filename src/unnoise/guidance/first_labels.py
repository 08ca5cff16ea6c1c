"""The labels that a rule speaks of, drawn before all else from their joint law given what the rule says of them.

Under masking the law of some labels is that of each given those before it, all else being noise,

    p(x_1, ..., x_k)  =  prod_l p(x_l | x_1, ..., x_{l-1}),

and each factor is one call of the network, told that all else stands at t = 1: as `--given` tells it of labels.  So the
probability of every combination that the rule allows is known, one of them is drawn for each row, and the others follow
given it.  The sum of these probabilities is that of the rule, as far as it speaks of labels alone.  The combinations are
listed, and at most COMBINATIONS of them: columns beyond that are left to what comes after.

For the exact denoiser this is the law of the rows that satisfy the rule.  A network is told of noise at t = 1 in place of
numbers, of which its labels should not depend: each combination has the mean of its probabilities beside NOISES of them, and
the deviation of these is the error that is told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

import numpy as np
import torch
from torch import Tensor

from unnoise.data.base import Format
from unnoise.data.table_cells import CATEGORIES
from unnoise.denoiser import AnyDenoiser
from unnoise.guidance.allowed import Allowed
from unnoise.guidance.rules import ColumnRule
from unnoise.noise import NoiseSource
from unnoise.samplers.finish import part_of
from unnoise.samplers.reveal import reveal_logits
from unnoise.shapes import AnyState, Bool, Float, Int
from unnoise.training.drawing import prior_in_gaps
from unnoise.training.known_parts import DrawnLabels, KnownParts

COMBINATIONS = 1024
NOISES = 8
ROWS = 1024  # in one call


@dataclass(frozen=True, eq=False)
class Combinations:
    """The labels of some coordinates that a rule allows together."""

    places: list[int]
    states: Int[np.ndarray, "combinations places"]

    @classmethod
    def of(cls, rule: ColumnRule, left: Mapping[str, Allowed], given: Mapping[str, str]) -> "Combinations":
        """Of the columns with labels that the rule excludes; an error where it excludes them all together."""
        joint = [part for part in rule.parts if len(part.names) > 1 and all(map(_listed, _columns(rule, part.names)))]
        spoken = {name for part in joint for name in part.names} | {
            name for name, own in left.items() if not own.states.all()
        }
        options = {c.name: _options(c, left) for c in _columns(rule, spoken - set(given)) if c.place is not None}
        known = {name: rule.columns[name].values([str(text)]) for name, text in given.items() if name in rule.names}
        chosen, states = list[str](), np.zeros((1, 0), dtype=np.int64)
        for name, own in sorted(options.items(), key=lambda pair: len(pair[1])):
            wider = np.column_stack([states.repeat(len(own), 0), np.tile(own, len(states))])
            values = {other: rule.columns[other].states[wider[:, i]] for i, other in enumerate([*chosen, name])}
            values |= {other: value.repeat(len(wider)) for other, value in known.items()}
            for part in joint:
                if part.names <= set(values):
                    keep = part.on(values)
                    wider, values = wider[keep], {other: value[keep] for other, value in values.items()}
            if not len(wider):
                raise rule.condition.spot.error(f"no values of {', '.join([*chosen, name])} satisfy this together")
            if len(wider) <= COMBINATIONS:
                chosen, states = [*chosen, name], wider
        return cls([rule.columns[name].place for name in chosen], states)  # type: ignore[misc]


def _columns(rule: ColumnRule, names):
    return [rule.columns[name] for name in sorted(names)]


def _listed(column) -> bool:
    """Whether its label says its value."""
    return column.known.scores is None


def _options(column, left: Mapping[str, Allowed]) -> np.ndarray:
    return np.flatnonzero(left[column.name].states) if column.name in left else np.arange(column.known.size)


@dataclass(frozen=True, eq=False)
class FirstLabels(DrawnLabels):
    """Combinations with their probabilities."""

    places: list[int]
    states: Int[Tensor, "combinations places"]
    share: Float[Tensor, "combinations"]  # of each among them
    fixed: Bool[Tensor, "coordinates"]
    log_probability: float  # of all together, and its error
    error: float
    calls: int
    rows: int
    leaf: str = CATEGORIES

    def drawn(self, noise: NoiseSource) -> Int[Tensor, "rows coordinates"]:
        u = noise.at("labels").uniform()
        which = torch.searchsorted(self.share.cumsum(0).to(u), u).clamp_max(len(self.share) - 1)
        found = torch.zeros(len(u), len(self.fixed), dtype=torch.int64, device=u.device)
        found[:, self.places] = self.states.to(u.device)[which]
        return found


def first_labels(
    denoiser: AnyDenoiser, format: Format, combinations: Combinations, given: dict[str, str], seed: int
) -> FirstLabels:
    """The probabilities of combinations, by the denoiser."""
    known = KnownParts(format.given(given) if given else {})
    noises = NOISES if len(denoiser.process.leaves) > 1 else 1
    noise = NoiseSource(seed, torch.arange(noises, device=denoiser.device)).at("labels")
    begin = prior_in_gaps(denoiser, known.values(noise), known.fixed, noise)
    log_p = torch.zeros(len(combinations.states), noises, dtype=torch.float64, device=denoiser.device)
    calls = list[int]()
    for l, place in enumerate(combinations.places):
        before, which = np.unique(combinations.states[:, :l], axis=0, return_inverse=True)
        law = _law(denoiser, begin, known, combinations.places[:l], torch.as_tensor(before), place, calls)
        own = torch.as_tensor(combinations.states[:, l], device=law.device)
        log_p = log_p + law[torch.as_tensor(which.reshape(-1), device=law.device), :, own]
    each = log_p.logsumexp(0)  # of all together, beside each noise
    log_z = float(each.logsumexp(0)) - log(noises)
    error = float((each - log_z).exp().std()) / noises**0.5 if noises > 1 else 0.0
    fixed = torch.zeros(denoiser.process.leaves[CATEGORIES].space.dimension, dtype=torch.bool)
    fixed[combinations.places] = True
    share = log_p.logsumexp(1).softmax(0).cpu()
    return FirstLabels(
        combinations.places, torch.as_tensor(combinations.states), share, fixed, log_z, error, len(calls), sum(calls)
    )


def _law(
    denoiser: AnyDenoiser,
    begin: AnyState,
    known: KnownParts,
    places: list[int],
    before: Int[Tensor, "some places"],
    place: int,
    calls: list[int],
) -> Float[Tensor, "some noises size"]:
    """log p of a label given those before it, beside each of the noises."""
    noises, laws = len(begin[CATEGORIES]), []
    for part in before.split(max(1, ROWS // noises)):
        x = {name: leaf.repeat(len(part), *[1] * (leaf.ndim - 1)) for name, leaf in begin.items()}
        x[CATEGORIES][:, places] = part.repeat_interleave(noises, 0).to(x[CATEGORIES])
        rows, width = len(x[CATEGORIES]), x[CATEGORIES].shape[1]
        clock = torch.ones(rows, dtype=torch.float64, device=denoiser.device)
        held = [name for name in known.leaves if name != CATEGORIES]
        times = {name: torch.zeros_like(clock) if name in held else clock for name in x} if held else clock
        with torch.no_grad():
            said = part_of(denoiser(x, times), (CATEGORIES,))
        logits = reveal_logits(said, torch.arange(rows, device=clock.device) * width + place)
        laws.append(logits.double().log_softmax(-1).reshape(len(part), noises, -1))
        calls.append(rows)
    return torch.cat(laws)
