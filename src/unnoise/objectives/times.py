"""Where the bound's integral over time is visited, and with what weight.

A rule returns visits (x_t, t, weight) such that  sum_n weight_n * rate(x_t_n, t_n)  estimates

    int_low^1 E_{x_t ~ q(. | x_0)} rate(x_t, t) dt.

    UniformTimes independent uniform times
    Stratified   one time per stratum of the global batch: same mean, less variance
    Importance   stratified and graded towards 0, where the integrand of continuous data grows like 1/t
    MaskedCount  masking: the number n of masked coordinates first.  With beta = 1 - alpha uniform and
                 n ~ 1 + Binomial(d - 1, beta) (so n is uniform on 1 ... d, and beta given n is Beta(n, d - n + 1)), a
                 random n-subset masked and weight d/n on the summed cross-entropy.  Unbiased for any schedule, with
                 finite variance; uniform t under the linear schedule has none.
    MixedTimes   products with masked leaves (see `mixed_times`)
    Quadrature   Gauss-Legendre nodes, graded towards 0: for exact values on small spaces
    Grid         every step of a chain
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.objectives.batches import rank, world
from unnoise.processes import Masking, Process
from unnoise.shapes import Float, Tree
from unnoise.tree import first_leaf


@dataclass
class Visits:
    """Times and weights [visits, batch]; x_t [visits * batch, ...] where the rule draws the state as well."""

    t: Float[Tensor, "visits batch"]
    weight: Float[Tensor, "visits batch"]
    x_t: Tree | None = None


class Times(ABC):
    draws_state = False  # whether the rule draws x_t together with t

    @abstractmethod
    def visit(self, process: Process, x0: Tree, low: float, noise: NoiseSource) -> Visits: ...


def rows_and_device(x0: Tree) -> tuple[int, torch.device]:
    leaf = first_leaf(x0)
    return leaf.shape[0], leaf.device


def positions(rows: int, device: torch.device) -> tuple[Float[Tensor, "rows"], int]:
    """The places of these rows in the global batch (all workers' rows together), and its size."""
    return torch.arange(rows, device=device, dtype=torch.float64) + rank() * rows, rows * world()


def strata(rows: int, noise: NoiseSource) -> Float[Tensor, "rows"]:
    """One uniform number per row, one in each stratum of the global batch."""
    position, total = positions(rows, noise.rows.device)
    return (noise.at("strata").shared_uniform() + position / total) % 1.0


def graded(u: Tensor, low: float, power: float) -> tuple[Tensor, Tensor]:
    """t = (low^(1/p) + u (1 - low^(1/p)))^p and dt/du."""
    base = low ** (1 / power)
    t = (base + u * (1 - base)) ** power
    return t, graded_slope(t, low, power)


def graded_slope(t: Tensor, low: float, power: float) -> Tensor:
    return power * t ** (1 - 1 / power) * (1 - low ** (1 / power))


class UniformTimes(Times):
    def __init__(self, draws: int = 1):
        self.draws = draws

    def visit(self, process, x0, low, noise):
        rows, _ = rows_and_device(x0)
        t = low + (1 - low) * noise.at("time").uniform((self.draws,)).T
        return Visits(t, torch.full_like(t, (1 - low) / self.draws))


class Importance(Times):
    """Stratified over the global batch with density proportional to t^(1/power - 1)."""

    def __init__(self, draws: int = 1, power: float = 4.0):
        if not power >= 1:
            raise ValueError(f"power = {power}: grading towards 0 needs a power of at least 1")
        self.draws, self.power = draws, power

    def visit(self, process, x0, low, noise):
        rows, _ = rows_and_device(x0)
        u = torch.stack([strata(rows, noise.at("draw", i)) for i in range(self.draws)])
        t, slope = graded(u, low, self.power)
        return Visits(t, slope / self.draws)


class Stratified(Importance):
    """Stratified uniform times."""

    def __init__(self, draws: int = 1):
        super().__init__(draws, power=1.0)


class MaskedCount(Times):
    draws_state = True

    def __init__(self, draws: int = 1):
        self.draws = draws

    def visit(self, process, x0, low, noise):
        if not isinstance(process, Masking) or process.schedule.shape:
            raise TypeError("count-based times belong to Masking with one schedule for all coordinates: use Importance()")
        rows, _ = rows_and_device(x0)
        d = process.space.dimension
        beta_low = process.schedule.beta(low)
        parts = [self._draw(process, x0, d, beta_low, rows, noise.at("count", i)) for i in range(self.draws)]
        t, weight, x_t = zip(*parts, strict=True)
        return Visits(torch.stack(t), torch.stack(weight) / self.draws, torch.cat(x_t))

    def _draw(self, process: Masking, x0: Tensor, d: int, beta_low: Tensor, rows: int, noise: NoiseSource):
        beta = beta_low + (1 - beta_low) * strata(rows, noise)
        # n - 1 ~ Binomial(d - 1, beta): of d coordinates in random order the first is masked for certain, and each of
        # the others with probability beta
        key = noise.at("order").uniform((d,))
        coin = noise.at("coin").uniform((d,)) < beta.unsqueeze(-1)
        masked = coin.scatter(-1, key.argmin(-1, keepdim=True), True)
        n = masked.sum(-1)
        t = process.schedule.time_of_beta(beta)
        hazard = -process.schedule.d_alpha(t) / beta  # the rate multiplies the cross-entropy by this; divide it out
        x_t = torch.where(masked.reshape(x0.shape), process.mask, x0)
        return t, (1 - beta_low) * d / n / hazard, x_t


class Quadrature(Times):
    """`late` > 1 grades towards 1 as well, for rates that are unbounded there: 2 for (1 - t)^(-1/2)."""

    def __init__(self, nodes: int = 64, power: float = 4.0, late: float = 1.0):
        self.nodes, self.power, self.late = nodes, power, late

    def visit(self, process, x0, low, noise):
        rows, device = rows_and_device(x0)
        points, weights = np.polynomial.legendre.leggauss(self.nodes)
        u, w = (torch.as_tensor(a, dtype=torch.float64, device=device) for a in ((points + 1) / 2, weights / 2))
        rest, bend = graded(1 - u, 0.0, self.late)
        t, slope = graded(1 - rest, low, self.power)
        return Visits(t.unsqueeze(1).expand(-1, rows), (w * bend * slope).unsqueeze(1).expand(-1, rows))


class Grid(Times):
    """Every step of a chain."""

    def visit(self, process, x0, low, noise):
        raise TypeError("Grid() visits the steps of a chain: build the denoiser on Chain(process, T)")
