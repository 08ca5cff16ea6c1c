"""Problems on which the error of a sampler can be computed: Gaussian data, tables, and products of both.

Numbers.  With C_t = alpha^2 C + sigma^2 I, whose eigenvectors do not depend on time, the reverse SDE of stochasticity eta
takes a deviation from the mean alpha_t m, along an axis with eigenvalues c_t, from time b to time a by the factor

    K = (alpha_b/alpha_a)^(eta^2) (c_a/c_b)^((1 + eta^2)/2)

and leaves the marginal law as it is.  eta = 0 is the probability flow.  A law starts away from the mean where eta is known:
at the mean D = m would hide errors of the drift.

Categories.  The law of a table at any time is known, so the error is the total variation from it (its sum, twice the usual).

Products.  Two leaves of numbers are one normal law.  For a number whose mean and variance depend on a category errors are
those of a few expectations.
"""

from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import states
from unnoise.noise import NoiseSource
from unnoise.oracles import Oracle, conditional_gaussian, table
from unnoise.predictions import Clean, Prediction, ProductPrediction
from unnoise.predictions.variance import Variance
from unnoise.processes import FiniteProcess, Gaussian, Masking, Product, RateMatrix, Uniform
from unnoise.processes.rate_matrices import nearest_neighbour
from unnoise.samplers import Problem, Sampler
from unnoise.schedules import Cosine, LinearBeta, Schedule
from unnoise.verify.law_matrices import marginal_matrix
from unnoise.verify.sampler_laws import expectations, finite_law, integrals, moments

M = torch.tensor([0.7, -0.3], dtype=torch.float64)
C = torch.tensor([[0.5, 0.2], [0.2, 0.3]], dtype=torch.float64)
EYE = torch.eye(2, dtype=torch.float64)
STEADY, COSINE = LinearBeta(2.0, 2.0), Cosine()
PEAKED = torch.tensor([0.19, 0.05, 0.12, 0.21, 0.07, 0.04, 0.03, 0.16, 0.13], dtype=torch.float64)
MILD = torch.tensor([11, 9, 10, 12, 10, 8, 9, 11, 10], dtype=torch.float64) / 90  # no rate is halved by another coordinate


class Setting(ABC):
    """A problem with an exact answer."""

    process: str
    prediction: str
    quantity = "order in law"
    panel: str
    denoiser: AnyDenoiser  # the exact one

    @abstractmethod
    def error(self, sampler: Sampler, steps: int) -> float:
        """After so many even steps."""


def even(high: float, low: float, steps: int) -> Tensor:
    return torch.linspace(high, low, steps + 1, dtype=torch.float64)


def noised(schedule: Schedule, t: float | Tensor) -> tuple[Tensor, Tensor]:
    """Mean and covariance of x_t."""
    alpha, sigma = schedule.alpha(t), schedule.sigma(t)
    return alpha * M, alpha**2 * C + sigma**2 * EYE


class PosteriorMean(AnyDenoiser):
    """The posterior mean of Gaussian data, E[x_0 | x_t] = m + A (x_t - alpha m), by a matrix per time."""

    def __init__(self, process: Gaussian, variance: Variance | None = None):
        super().__init__()
        self.process = self.gaussian = process
        self.variance = variance

    def forward(self, x_t: Tensor, t: Tensor, /, **condition) -> Clean:
        if t.ndim and bool((t != t[0]).any()):  # rows with times of their own
            value = torch.cat([self.mean(x_t[i : i + 1], t[i]) for i in range(len(x_t))])
        else:
            value = self.mean(x_t, t.reshape(-1)[0])
        return Clean(value, self.gaussian, x_t, t, self.variance)

    def mean(self, x_t: Tensor, t: Tensor) -> Tensor:
        mean, gain = posterior_mean(self.gaussian.schedule, float(t))
        return M + (x_t - mean) @ gain


@lru_cache(8192)
def posterior_mean(schedule: Schedule, t: float) -> tuple[Tensor, Tensor]:
    """alpha m and A^T; many methods ask at the same times."""
    mean, covariance = noised(schedule, t)
    return mean, torch.linalg.solve(covariance, schedule.alpha(t) * C)


class Numbers(Setting):
    """Normal data in two coordinates."""

    prediction, panel, low, high = "Clean", "law, numbers", 0.05, 0.95

    def __init__(self, eta: float | None = None, variance: Variance | None = None, schedule: Schedule | None = None):
        self.gaussian = Gaussian((2,), schedule or COSINE)
        self.process = f"Gaussian/{type(self.gaussian.schedule).__name__}"
        self.denoiser, self.eta = PosteriorMean(self.gaussian, variance), eta

    def factor(self, eta: float) -> Tensor:
        schedule = self.gaussian.schedule
        (values_b, axes), (values_a, _) = (torch.linalg.eigh(noised(schedule, t)[1]) for t in (self.high, self.low))
        fall = schedule.alpha(self.high) / schedule.alpha(self.low)
        return axes @ torch.diag(fall ** (eta**2) * (values_a / values_b) ** ((1 + eta**2) / 2)) @ axes.T

    def error(self, sampler, steps):
        schedule = self.gaussian.schedule
        (mean, covariance), (last_mean, last_covariance) = (noised(schedule, t) for t in (self.high, self.low))
        if self.eta is not None:
            away = torch.tensor([0.5, -1.0], dtype=torch.float64)
            mean, last_mean = mean + away, last_mean + self.factor(self.eta) @ away
        found = moments(sampler, self.denoiser, even(self.high, self.low, steps), mean, covariance)
        gaps = found[0] - last_mean, found[1] - last_covariance
        return float(sum(gap.square().sum() for gap in gaps) ** 0.5)


class FlowTrajectories(Numbers):
    """Trajectories of the probability flow from a few points."""

    quantity, panel = "order of the flow", "flow"

    def error(self, sampler, steps):
        schedule = self.gaussian.schedule
        away = torch.tensor([[1.0, 0.3], [-0.4, 1.2], [0.8, -0.9]], dtype=torch.float64) * schedule.sigma(self.high)
        x, exact = noised(schedule, self.high)[0] + away, noised(schedule, self.low)[0] + away @ self.factor(0.0)
        problem = Problem(self.denoiser, even(self.high, self.low, steps), NoiseSource(0, len(x)), {})
        last = sampler.run(problem, x, lambda i, y: None)
        return float((last - exact).square().mean().sqrt())


class MemoisedOracle(AnyDenoiser):
    """An oracle on a small space, asked once for every state and then looked up; all rows are at one time."""

    def __init__(self, oracle: Oracle):
        super().__init__()
        self.oracle, self.process = oracle, oracle.process
        self.points = cast(Tensor, states(cast(FiniteProcess, oracle.process).state_space))
        size, width = int(self.points.max()) + 1, self.points.shape[1]
        self.scale = size ** torch.arange(width)
        self.place = torch.zeros(size**width, dtype=torch.long)
        self.place[(self.points * self.scale).sum(1)] = torch.arange(len(self.points))
        self.known: dict[float, Any] = {}  # many methods ask at the same times

    def forward(self, x_t: Tensor, t: Tensor, /, **condition):
        at = float(t.reshape(-1)[0])
        told = self.known[at] if at in self.known else self.known.setdefault(at, self.oracle(self.points, at))
        return type(told)(told.value[self.place[(x_t * self.scale).sum(1)]], told.process, x_t, t)


class Categories(Setting):
    """Two coordinates of three categories, by a table."""

    prediction, panel, high, low = "Posterior", "law, categories", 0.8, 0.3

    def __init__(self, name: str, law: Tensor = PEAKED, whole: bool = False):
        process: FiniteProcess
        if name == "Masking":
            process, self.process = Masking(3, (2,)), "Masking/Linear"
        elif name == "Uniform":
            process, self.process = Uniform(3, (2,), STEADY), "Uniform/LinearBeta"
        else:
            process, self.process = RateMatrix(nearest_neighbour(3), (2,), STEADY), "RateMatrix/LinearBeta"
        self.oracle, self.whole = table(process, law), whole
        self.denoiser = MemoisedOracle(self.oracle)

    def marginal(self, t: float) -> Tensor:
        process, data = self.oracle.process, states(self.oracle.process.space)
        return marginal_matrix(process, data, states(process.state_space), t) @ self.oracle.log_prob(data).exp()

    def error(self, sampler, steps):
        law = finite_law(sampler, self.denoiser, even(self.high, self.low, steps), self.marginal(self.high), self.whole)
        return float((law - self.marginal(self.low)).abs().sum())


class JointNormal(AnyDenoiser):
    """The posterior mean of two leaves of numbers with one normal law."""

    def __init__(self) -> None:
        super().__init__()
        self.leaf = Gaussian((1,), COSINE)
        self.process = self.product = Product(a=self.leaf, b=self.leaf)
        self.whole = PosteriorMean(Gaussian((2,), COSINE))

    def forward(self, x_t: dict[str, Any], t: Tensor, /, **condition):
        value = self.whole.mean(torch.cat([x_t["a"], x_t["b"]], 1), t.reshape(-1)[0])
        leaves: dict[str, Prediction] = {
            name: Clean(value[:, k : k + 1], self.leaf, x_t[name], t) for k, name in enumerate("ab")
        }
        return ProductPrediction(leaves, self.product, x_t, t)


class TwoNumbers(Setting):
    process, prediction, panel, high, low = "Product(a, b)/Cosine", "Clean", "law, products", 0.9, 0.1

    def __init__(self) -> None:
        self.denoiser = JointNormal()

    def error(self, sampler, steps):
        (mean, covariance), last = (noised(COSINE, t) for t in (self.high, self.low))
        times = even(self.high, self.low, steps)
        found = moments(sampler, self.denoiser, times, mean, covariance, {"a": 1, "b": 1})
        return max(float((f - e).abs().max()) for f, e in zip(found, last, strict=True))


class NumberAndCategory(Setting):
    """A number whose mean and variance depend on a category, with rates that stay near each other."""

    process, prediction, panel, high, low = "Product(x, c)/LinearBeta", "-", "law, products", 0.75, 0.35

    def __init__(self) -> None:
        product = Product(x=Gaussian((1,), STEADY), c=Uniform(2, (1,), STEADY))
        means = torch.tensor([[-0.4], [0.4]], dtype=torch.float64)
        variances = torch.tensor([[[0.6]], [[0.8]]], dtype=torch.float64)
        self.denoiser = self.oracle = conditional_gaussian(product, torch.tensor([0.45, 0.55]), means, variances)
        self.tests = [
            lambda x, c: np.cos(x + 0.3),
            lambda x, c: x * (c == 1),
            lambda x, c: 1.0 * (c == 1) + 0 * x,
            lambda x, c: x**2,
        ]

    def error(self, sampler, steps):
        found = expectations(sampler, self.oracle, even(self.high, self.low, steps), self.tests)
        exact = integrals(self.oracle, self.low, lambda line: np.stack([[f(line, c) for c in (0, 1)] for f in self.tests]))
        return float(np.abs(found - exact).max())
