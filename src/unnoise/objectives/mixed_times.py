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

from math import log, sqrt
from typing import cast

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.objectives.leaves import leaves_of
from unnoise.objectives.times import JointTimes, graded, graded_slope, positions, rows_and_device, strata
from unnoise.processes import Masking, Process
from unnoise.shapes import Float, Tree
from unnoise.tree import Path, choose, pick, replace

GOLDEN = (sqrt(5) - 1) / 2


class MixedTimes(JointTimes):
    def __init__(self, draws: int = 1, power: float = 16.0):
        self.draws, self.power = draws, power

    def draw_joint(
        self, process: Process, x0: Tree, low: float, noise: NoiseSource, known: dict[str, Tensor]
    ) -> tuple[Float[Tensor, "batch"], Tree]:
        rows, device = rows_and_device(x0)
        may, count, share = self._masks(process, rows, device, low, known)
        # dealt out over the global batch as strata are, but in another order, so that each kind has its share of all times
        turn = (noise.at("turn").shared_uniform() + positions(rows, device)[0] * GOLDEN) % 1.0 < share
        u = strata(rows, noise)
        t = torch.where(turn, graded(u, low, 1.0), graded(u, low, self.power))
        rank = (noise.at("which").uniform() * count).long().unsqueeze(1)
        masked = masked_leaves(process)
        certain = (may & (may.cumsum(1) - 1 == rank) & turn.unsqueeze(1)).split([m.space.dimension for _, m in masked], 1)
        x_t = process.marginal(x0, t).draw(noise.at("state"))
        for name, rows_that_know in known.items():
            x_t[name] = choose(rows_that_know, x0[name], x_t[name])  # type: ignore[index, assignment]
        for (path, leaf), here in zip(masked, certain, strict=True):
            state = pick(x_t, path)
            x_t = replace(x_t, path, torch.where(here.reshape(state.shape), leaf.mask, state))
        return t, x_t

    def density_ratio(
        self, process: Process, x_t: Tree, t: Float[Tensor, "batch"], low: float, known: dict[str, Tensor]
    ) -> Float[Tensor, "batch"]:
        """(1 - r) g(t) + r/(1 - low) (1/D) sum_{j in S} 1/beta_j."""
        rows = len(t)
        _, count, share = self._masks(process, rows, t.device, low, known)
        inverse = torch.zeros_like(t)  # sum over S of 1/beta
        for path, leaf in masked_leaves(process):
            beta = leaf.schedule.beta(t).reshape(rows, -1).clamp_min(1e-300)
            inverse = inverse + ((pick(x_t, path) == leaf.mask).reshape(rows, -1) / beta).sum(1)
        even = inverse / count.clamp_min(1) / (1 - low)
        return (1 - share) / graded_slope(t, low, self.power) + share * even

    def _masks(
        self, process: Process, rows: int, device: torch.device, low: float, known: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Which coordinates of masked leaves may be masked [rows, D], how many, and the share r."""
        nothing = torch.zeros(rows, dtype=torch.bool, device=device)
        free = [
            (leaf.absorbing, ~known.get(path[0] if path else "", nothing).unsqueeze(1).expand(-1, leaf.space.dimension))
            for path, leaf in leaves_of(process)
        ]
        if not any(absorbing for absorbing, _ in free):
            raise TypeError("MixedTimes() times belong to masking and to products with a masked leaf: use Importance()")
        may = torch.cat([part for absorbing, part in free if absorbing], 1)
        count = may.sum(1).double()
        numbers = sum((part.sum(1) for absorbing, part in free if not absorbing), torch.zeros_like(count))
        return may, count, count / (count + numbers * log(1 / max(low, 1e-4))).clamp_min(1)


def masked_leaves(process: Process) -> list[tuple[Path, Masking]]:
    return [(path, cast(Masking, leaf)) for path, leaf in leaves_of(process) if leaf.absorbing]
