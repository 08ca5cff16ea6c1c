"""The forward equation of numbers on a grid of one or two dimensions, with jumps: laws stay laws.

    dp/dt = L* p = -div J + (jumps),      J = (b - 1/2 a') p - 1/2 a p'                               (eq:KFE-continuous-sp)

Cells of width h exchange mass through their walls by the flux of Scharfetter and Gummel, which is exact for a constant drift
and diffusion between two centres,

    J_{i+1/2} = D/h [B(-P) p_i - B(P) p_{i+1}],     D = a/2,    P = h (b - a'/2)/D,     B(z) = z/(e^z - 1),

whatever the ratio of drift to diffusion.  Both coefficients are positive: the grid's equation is the master equation of a
chain that jumps between cells, so no law gets a negative entry and none loses mass (nothing passes the outer walls).  The
error is O(h^2) where the law is smooth and vanishes towards the walls.  Jumps to anywhere go to the cell that they fall in,
by the kernel's density at its centre; those that would leave the grid are not made.

`rates(t)` is the chain's matrix; `solve` carries a law from one time to another with rates frozen at the middle of each step
(order 2), by uniformization.
"""

from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite, prod

import torch
from torch import Tensor

from unnoise.checks import whole
from unnoise.generators.kronecker import uniformised
from unnoise.generators.path_estimates import InTime
from unnoise.shapes import Float
from unnoise.spaces import Local

SMALL = 1e-3  # |z| below which B(z) is its series


class FokkerPlanck:
    """A generator on one or two numbers as a chain on cells."""

    def __init__(self, generator: InTime, low: Sequence[float | int], high: Sequence[float | int], cells: Sequence[int]):
        if not len(low) == len(high) == len(cells) or len(cells) not in (1, 2):
            raise ValueError(f"low, high and cells have {len(low)}, {len(high)}, {len(cells)} entries: give one or two each")
        ends = all(isfinite(a) and isfinite(b) and a < b for a, b in zip(low, high, strict=True))
        if not ends or any(not isinstance(n, int) or n < 2 for n in cells):
            raise ValueError(
                f"cells {list(cells)} from {list(low)} to {list(high)}: low < high, both finite, and two cells at least"
            )
        self.generator, self.cells = generator, list(cells)
        self.widths = [(b - a) / n for a, b, n in zip(low, high, cells, strict=True)]
        edges = [a + w * torch.arange(n + 1, dtype=torch.float64) for a, w, n in zip(low, self.widths, cells, strict=True)]
        self.edges, self.centres = edges, [(e[1:] + e[:-1]) / 2 for e in edges]

    @property
    def volume(self) -> float:
        return prod(self.widths)

    @property
    def points(self) -> Float[Tensor, "cells d"]:
        """The centres of all cells, the last coordinate running fastest."""
        return torch.cartesian_prod(*self.centres).reshape(-1, len(self.cells))

    def law_of(self, log_density: Callable[[Tensor], Tensor]) -> Float[Tensor, "cells"]:
        """Masses of a density by its values at the centres, summing to 1."""
        return log_density(self._states(self.points)).double().softmax(0)

    def density(self, law: Float[Tensor, "cells"]) -> Float[Tensor, "cells"]:
        return law / self.volume

    def rates(self, t: float) -> Tensor:
        """The chain's rate matrix at a time, sparse: [to, from], columns sum to 0."""
        count = prod(self.cells)
        where, rate = zip(*[self._walls(t, k) for k in range(len(self.cells))], self._jumps(t), strict=True)
        (to, source), values = torch.cat(where, 1), torch.cat(rate)
        if bool((values < 0).any()) or not bool(values.isfinite().all()):
            raise ValueError(
                f"the generator at t = {t:g} has a diffusion or a rate that is negative or not finite on the grid"
            )
        leave = torch.zeros(count, dtype=torch.float64).index_add(0, source, values)
        every = torch.arange(count)
        index = torch.stack([torch.cat([to, every]), torch.cat([source, every])])
        return torch.sparse_coo_tensor(index, torch.cat([values, -leave]), (count, count), check_invariants=True).coalesce()

    def solve(self, law: Float[Tensor, "cells"], start: float, end: float, steps: int) -> Float[Tensor, "cells"]:
        """The law at `end` of what has this law at `start`."""
        if tuple(law.shape) != (prod(self.cells),) or not bool(law.isfinite().all()) or bool((law < 0).any()):
            what = f"shape {tuple(law.shape)}, least entry {float(law.min()):g}" if law.numel() else "no entries"
            raise ValueError(f"a law with {what}: give a mass >= 0 for each of {prod(self.cells)} cells, as law_of does")
        h = (end - start) / whole(steps, "steps")
        for i in range(steps):
            matrix = self.rates(start + (i + 0.5) * h)
            fastest = float(-_diagonal(matrix).min())
            law = uniformised(partial(_product, matrix), fastest, law, abs(h))
        return law

    # the chain

    def _states(self, points: Float[Tensor, "n d"]) -> Tensor:
        """As states of the generator's space: of one number, a row may be a number or an array of one."""
        space = self.generator(0.5).space
        shape = getattr(space, "shape", None)
        if shape is None or space.dimension != len(self.cells) or space.reference != "Lebesgue measure":
            raise TypeError(f"the grid has {len(self.cells)} axes of numbers, and the generator moves on {space}")
        return points.reshape(len(points), *shape)

    def _entry(self, part: Tensor | None, points: Tensor, k: int) -> Tensor:
        """Coordinate k of a drift or a diffusion at these points."""
        if part is None:
            return torch.zeros(len(points), dtype=torch.float64)
        return torch.broadcast_to(part.double(), self._states(points).shape).reshape(points.shape)[:, k]

    def _at(self, points: Tensor, t: float) -> Local:
        local: Local = self.generator(t).local(self._states(points))  # type: ignore[assignment]
        if local.covariance is not None:
            raise ValueError("the noise is correlated: a grid along the axes takes a diagonal diffusion; whiten the state")
        return local

    def _walls(self, t: float, k: int) -> tuple[Tensor, Tensor]:
        """(to, from) and rates through the inner walls of axis k, both ways."""
        axes = [centres if j != k else self.edges[k][1:-1] for j, centres in enumerate(self.centres)]
        walls = torch.cartesian_prod(*axes).reshape(-1, len(axes))
        local, h = self._at(walls, t), self.widths[k]
        drift = self._entry(local.drift, walls, k)
        spread, slope = self._diffusion(walls, t, k)
        if not bool((spread >= 0).all()):
            least = float(spread.min())
            raise ValueError(
                f"the generator at t = {t:g} has a diffusion, {least:g}, that is negative or not finite on the grid"
            )
        forward, back = exchange(drift - 0.5 * slope, 0.5 * spread, h)
        place = torch.arange(prod(self.cells)).reshape(self.cells)
        left = place.narrow(k, 0, self.cells[k] - 1).flatten()
        right = place.narrow(k, 1, self.cells[k] - 1).flatten()
        return torch.stack([torch.cat([right, left]), torch.cat([left, right])]), torch.cat([forward, back])

    def _diffusion(self, walls: Tensor, t: float, k: int) -> tuple[Tensor, Tensor]:
        """a_k at the walls, and its derivative along the axis, from both sides."""
        step = torch.zeros(walls.shape[1], dtype=torch.float64)
        step[k] = 0.5 * self.widths[k]
        here, right, left = (self._entry(self._at(p, t).diffusion, p, k) for p in (walls, walls + step, walls - step))
        return here, (right - left) / self.widths[k]

    def _jumps(self, t: float) -> tuple[Tensor, Tensor]:
        """From every cell to every other."""
        points = self.points
        jumps, count = self._at(points, t).jumps, len(points)
        if jumps is None:
            return torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0, dtype=torch.float64)
        source, to = (~torch.eye(count, dtype=torch.bool)).nonzero().T
        states = self._states(points)
        return torch.stack([to, source]), jumps.log_rate(states[source], states[to]).double().exp() * self.volume


def exchange(drift: Tensor, spread: Tensor, h: float) -> tuple[Tensor, Tensor]:
    """Rates through a wall along the axis and against it, for a drift and a D at the wall."""
    still = spread <= 0
    peclet = h * drift / torch.where(still, 1.0, spread)
    forward, back = (spread / h**2 * bernoulli(z) for z in (-peclet, peclet))
    along, against = drift.clamp_min(0) / h, (-drift).clamp_min(0) / h  # without diffusion: with the wind
    return torch.where(still, along, forward), torch.where(still, against, back)


def bernoulli(z: Tensor) -> Tensor:
    """z/(e^z - 1), positive everywhere."""
    near = z.abs() < SMALL
    far = torch.where(near, 1.0, z)
    return torch.where(near, 1 - z / 2 + z.square() / 12, far / torch.expm1(far))


def _product(matrix: Tensor, p: Tensor) -> Tensor:
    return torch.sparse.mm(matrix, p.unsqueeze(1)).squeeze(1)


def _diagonal(matrix: Tensor) -> Tensor:
    index, values = matrix.indices(), matrix.values()
    return values[index[0] == index[1]]
