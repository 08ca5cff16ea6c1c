"""A problem on which the error of a sampler with reveals of its own for each row can be computed.

A number whose law depends on two masked columns.  Once it is known in which cell of the grid each column is revealed, in
which order, and as what, the flow of the number is a function of where it starts.  So rows are laid out for all of that:

    starts     Gauss and Hermite nodes for each component of the law at the first time, at which both columns are masked
    times      every cell of the grid for the one column; for the other twice, before and after the middle of the cell, where
               the first has its time: so that either comes first as often where both lie in one cell
    values     every pair of them, forced by a denoiser that says they are certain and keeps their true probabilities, each
               as of the last call before it is revealed

Weights multiply, and expectations are sums: nothing is drawn.
"""

from itertools import product
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.oracles import conditional_gaussian
from unnoise.predictions import Posterior, Prediction, ProductPrediction
from unnoise.processes import Gaussian, Masking, Product
from unnoise.samplers import Problem, Sampler
from unnoise.schedules import Linear, LinearBeta
from unnoise.shapes import Float, Int
from unnoise.verify.order_settings import Setting, even

NODES, REACH, POINTS = 8, 7.0, 2001
CERTAIN = 1e4  # a logit beside which others are nothing
MASK = 2


class ForcedValues(AnyDenoiser):
    """A denoiser whose columns come out as told; `weight` holds how probable each was when it was last masked."""

    def __init__(self, inner: AnyDenoiser, values: Int[Tensor, "rows columns"]):
        super().__init__()
        self.inner, self.process, self.values = inner, inner.process, values
        self.weight = torch.ones(values.shape, dtype=torch.float64)

    def forward(self, x_t: dict[str, Any], t: Tensor, /, **condition):
        said = cast(ProductPrediction, self.inner(x_t, t))
        c, wanted = cast(Tensor, x_t["c"]), self.values.unsqueeze(-1)
        probs = cast(Posterior, said.leaves["c"]).clean().gather(-1, wanted).squeeze(-1)
        self.weight = torch.where(c == MASK, probs, self.weight)
        forced = torch.zeros(*c.shape, MASK, dtype=torch.float64).scatter(-1, wanted, CERTAIN)
        leaves: dict[str, Prediction] = {**said.leaves, "c": Posterior(forced, self.process.leaves["c"], c, t)}  # type: ignore
        return ProductPrediction(leaves, self.process, x_t, t)


class GivenLevels(NoiseSource):
    """Noise that hands out levels of alpha at which columns are revealed; other uniform numbers decide nothing."""

    def __init__(self, levels: Float[Tensor, "rows columns"], labels: tuple = ()):
        self.levels, self.labels, self.rows = levels, labels, torch.arange(len(levels))

    def at(self, *labels: int | str) -> "GivenLevels":
        return GivenLevels(self.levels, self.labels + labels)

    def uniform(self, shape: tuple[int, ...] = ()) -> Tensor:
        return self.levels if self.labels[-1] == "reveal" else torch.full_like(self.levels, 0.5)


def cells(times: Float[Tensor, "times"], parts: int) -> tuple[Tensor, Tensor]:
    """Levels within the cells of times that are rounded alike, at the middles of so many parts, and the share of each.

    alpha = 1 - t, and what lies above that of the last time is never revealed: one part more.
    """
    edges = 1 - torch.cat([times[:1], (times[1:] + times[:-1]) / 2, times[-1:]])
    size = (edges[1:] - edges[:-1]) / parts
    inside = edges[:-1].unsqueeze(1) + size.unsqueeze(1) * (torch.arange(parts) + 0.5)
    never = edges[-1:]
    levels = torch.cat([inside.flatten(), (1 + never) / 2])
    return levels, torch.cat([size.repeat_interleave(parts), 1 - never])


class NumberAndColumns(Setting):
    """A number, and two masked columns of two categories."""

    process, prediction, panel, high, low = "Product(x, c)/masked", "-", "law, products", 1.0, 0.2

    def __init__(self) -> None:
        schedule = LinearBeta(2.0, 2.0)
        tree = Product(x=Gaussian((1,), schedule), c=Masking(2, (2,), Linear()))
        self.probs = torch.tensor([0.35, 0.1, 0.15, 0.4], dtype=torch.float64)
        self.means = torch.tensor([[-1.0], [0.2], [-0.1], [0.9]], dtype=torch.float64)
        self.variances = torch.tensor([0.3, 0.4, 0.35, 0.25], dtype=torch.float64)
        self.oracle = conditional_gaussian(tree, self.probs, self.means, self.variances.reshape(-1, 1, 1))
        self.denoiser, alpha, sigma = self.oracle, float(schedule.alpha(1.0)), float(schedule.sigma(1.0))
        z, w = (torch.as_tensor(part) for part in np.polynomial.hermite_e.hermegauss(NODES))
        spread = (alpha**2 * self.variances + sigma**2).sqrt()
        self.starts = (alpha * self.means + spread.unsqueeze(1) * z).flatten()
        self.start_weights = (self.probs.unsqueeze(1) * w / w.sum()).flatten()

    def tests(self, x: Tensor, c: Int[Tensor, "rows columns"]) -> Float[Tensor, "tests rows"]:
        one, both = (c[:, 0] == 1).double(), (c[:, 0] == c[:, 1]).double()
        return torch.stack([torch.cos(x + 0.3), x.square(), x * one, x * both, one, both, x * (c[:, 1] == 0)])

    def exact(self) -> Float[Tensor, "tests"]:
        """At the last time, by a sum over a line."""
        line = torch.linspace(-REACH, REACH, POINTS, dtype=torch.float64)
        total = torch.zeros(7, dtype=torch.float64)
        for pair in product(range(MASK + 1), repeat=2):
            c = torch.tensor(pair).expand(len(line), 2)
            density = self.oracle.log_marginal({"x": line.unsqueeze(1), "c": c}, self.low).exp()
            total += (self.tests(line, c) * density).sum(1) * float(line[1] - line[0])
        return total

    def error(self, sampler, steps):
        return float((self.found(sampler, steps) - self.exact()).abs().max())

    def found(self, sampler: Sampler, steps: int) -> Float[Tensor, "tests"]:
        """Expectations of the last state."""
        times = even(self.high, self.low, steps)
        (one, one_weight), (two, two_weight) = cells(times, 2), cells(times, 1)
        axes = [torch.arange(len(part)) for part in (self.starts, one, two)] + [torch.arange(2)] * 2
        start, first, second, a, b = (axis.flatten() for axis in torch.meshgrid(*axes, indexing="ij"))
        denoiser = ForcedValues(self.denoiser, torch.stack([a, b], 1))
        noise = GivenLevels(torch.stack([one[first], two[second]], 1))
        x = {"x": self.starts[start].unsqueeze(1), "c": torch.full((len(start), 2), MASK)}
        last = cast(dict[str, Tensor], sampler.run(Problem(denoiser, times, noise, {}), x, lambda i, y: None))
        weight = self.start_weights[start] * one_weight[first] * two_weight[second] * denoiser.weight.prod(1)
        return (self.tests(last["x"].flatten(), last["c"]) * weight).sum(1)
