"""Times for mixed states: one time serves numbers and masked coordinates, which want different ones.

The rates of m numbers grow like 1/t: they want times close to 0.  There D masked leaves' coordinates are hardly ever masked,
and then count 1/beta: they want even times, and to be masked.  So a share r of the rows draws t evenly and masks one
coordinate, any of the D, for certain; the others draw t as `Importance` does, with density g, and mask as the process does.
If that has probability p(S) for the set S of masked coordinates, the former has p(S) (1/D) sum_{j in S} 1/beta_j, since any
j in S may be the one.  Either is weighted by the density of the two together,

    weight = 1 / ((1 - r) g(t) + r (1/(1 - low)) (1/D) sum_{j in S} 1/beta_j).

So numbers count at most 1/((1 - r) g), and the masked coordinates, -alpha'/beta_j each, D max|alpha'|/r in all.  Their
integrals are about 1 per masked coordinate and log(1/low) per number, hence r = D/(D + m log(1/low)).  Coordinates may have
schedules of their own.
"""

from collections.abc import Callable, Sequence
from math import log, sqrt

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.objectives.times import (
    Importance,
    MaskedCount,
    Times,
    Visits,
    graded,
    graded_slope,
    positions,
    rows_and_device,
    strata,
)
from unnoise.processes import Masking, Process, Product
from unnoise.shapes import Tree

GOLDEN = (sqrt(5) - 1) / 2


class MixedTimes(Importance):
    draws_state = True

    def __init__(self, draws: int = 1, power: float = 16.0):
        super().__init__(draws, power)

    def visit(self, process, x0, low, noise, observed: dict[str, Tensor] | None = None):
        """`observed`: which rows know a leaf of the product; it is not noised there, and not masked."""
        draws = [self._draw(process, x0, low, noise.at("draw", i), observed or {}) for i in range(self.draws)]
        t, weight, x_t = zip(*draws, strict=True)
        return Visits(torch.stack(t), torch.stack(weight) / self.draws, joined(x_t))

    def _draw(self, process: Process, x0: Tree, low: float, noise: NoiseSource, observed: dict[str, Tensor]):
        (rows, device), leaves = rows_and_device(x0), _leaves(process)
        nothing = torch.zeros(rows, dtype=torch.bool, device=device)
        free = [~observed.get(top, nothing).unsqueeze(1).expand(-1, leaf.space.dimension) for top, leaf in leaves]
        masks = [isinstance(leaf, Masking) for _, leaf in leaves]
        if not any(masks):
            raise TypeError("MixedTimes() times belong to masking and to products with a masked leaf: use Importance()")
        may = torch.cat([part for part, own in zip(free, masks, strict=True) if own], 1)  # [rows, D] may be masked
        count = may.sum(1).double()
        numbers = sum((part.sum(1) for part, own in zip(free, masks, strict=True) if not own), torch.zeros_like(count))
        share = count / (count + numbers * log(1 / max(low, 1e-4))).clamp_min(1)
        # dealt out over the global batch as strata are, but in another order, so that each kind has its share of all times
        turn = (noise.at("turn").shared_uniform() + positions(rows, device)[0] * GOLDEN) % 1.0 < share
        u = strata(rows, noise)
        t = torch.where(turn, graded(u, low, 1.0)[0], graded(u, low, self.power)[0])
        rank = (noise.at("which").uniform() * count).long().unsqueeze(1)
        widths = [leaf.space.dimension for _, leaf in leaves if isinstance(leaf, Masking)]
        certain = iter((may & (may.cumsum(1) - 1 == rank) & turn.unsqueeze(1)).split(widths, 1))
        x_t = process.marginal(x0, t).draw(noise.at("state"))
        for name, seen in observed.items():
            x_t[name] = chosen(seen, x0[name], x_t[name])
        inverse = torch.zeros_like(t)  # sum over S of 1/beta

        def masked(leaf: Process, state: Tensor) -> Tensor:
            nonlocal inverse
            if not isinstance(leaf, Masking):
                return state
            state = torch.where(next(certain).reshape(state.shape), leaf.mask, state)
            beta = leaf.schedule.beta(t).reshape(rows, -1).clamp_min(1e-300)
            inverse = inverse + ((state == leaf.mask).reshape(rows, -1) / beta).sum(1)
            return state

        x_t = _mapped(masked, process, x_t)
        even = inverse / count.clamp_min(1) / (1 - low)
        return t, 1 / ((1 - share) / graded_slope(t, low, self.power) + share * even), x_t


def _leaves(process: Process, top: str = "") -> list[tuple[str, Process]]:
    """The leaves of a tree, each with the name at its top."""
    if isinstance(process, Product):
        return [part for name, leaf in process.leaves.items() for part in _leaves(leaf, top or name)]
    return [(top, process)]


def _mapped(function: Callable[[Process, Tensor], Tensor], process: Process, x: Tree) -> Tree:
    """A function of every leaf's process and state, in the order of `_leaves`."""
    if isinstance(process, Product):
        return {name: _mapped(function, leaf, x[name]) for name, leaf in process.leaves.items()}
    return function(process, x)


def chosen(seen: Tensor, clean: Tree, noised: Tree) -> Tree:
    """Rows that are seen as they are, the others noised."""
    if isinstance(clean, dict):
        return {name: chosen(seen, leaf, noised[name]) for name, leaf in clean.items()}
    return torch.where(seen.reshape(-1, *[1] * (clean.ndim - 1)), clean, noised)


def joined(trees: Sequence[Tree]) -> Tree:
    first = trees[0]
    if isinstance(first, dict):
        return {name: joined([tree[name] for tree in trees]) for name in first}
    return torch.cat(list(trees))


def default_times(process: Process) -> Times:
    if isinstance(process, Masking) and not process.schedule.shape:
        return MaskedCount()
    return MixedTimes() if any(isinstance(leaf, Masking) for _, leaf in _leaves(process)) else Importance()
