"""Cases of drawn laws: a data law, a process, a sampler, how many steps, and what the draws are compared with.

A case draws `rows` samples, DRAWS unless told, and gives one p-value, of the null hypothesis that they have the law of the
data (or, where the run ends at t > 0, of x_t).  Categories, counts and binned mixed states: Pearson's chi-square.  Numbers:
Kolmogorov-Smirnov by the Dvoretzky-Kiefer-Wolfowitz inequality with Massart's constant, p <= 2 exp(-2 n D^2), for each
coordinate and some projections; the smallest p, times how many they are.

A method with steps has a law of its own.  `gap`, computed by `sampled_gaps`, is how far that is from what the draws are
compared with, in units of what this many draws can see, and is below 1 in every case:

    chi-square                sum n (p - q)^2/q: the noncentrality
    Kolmogorov-Smirnov        3 sqrt(n) sup|F - F*|

What is left of it is allowed for, so that the level holds: the p-value is that of a noncentral chi-square law, or of the
statistic less the gap, since sup|F_n - F*| <= sup|F_n - F| + sup|F - F*|.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from math import exp, sqrt
from typing import Any

import torch
from sampled_gaps import affine_law, flow_gap, forced_law, line_law, remasked_law
from torch import Tensor

import unnoise as un
from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import code
from unnoise.noise import NoiseSource
from unnoise.samplers import Remasking, Sampler, sample
from unnoise.samplers.run_grid import grid_of
from unnoise.verify.finite_kernels import dense

DRAWS = 50_000
UNIT = 3 * sqrt(DRAWS)  # of gaps between distribution functions


def chi_square(counts: Tensor, law: Tensor, gap: float) -> float:
    """The p-value; cells that expect fewer than 10 are one, and what cannot be must not be seen."""
    law, rows = law / law.sum(), int(counts.sum())
    if float(counts[law < 1e-15].sum()) > 0:
        return 0.0
    few = rows * law < 10
    counts, law = (torch.cat([v[~few], v[few].sum().reshape(1)]) for v in (counts.double(), law))
    counts, expected = counts[law > 0], rows * law[law > 0]
    return upper(((counts - expected).square() / expected).sum(), len(expected) - 1, gap)


def upper(statistic: Tensor, freedom: int, gap: float = 0.0) -> float:
    """P(noncentral chi-square >= statistic): a Poisson mixture of chi-squares."""
    k = torch.arange(60, dtype=torch.float64)
    weight = torch.exp(torch.special.xlogy(k, torch.tensor(gap / 2).double()) - gap / 2 - torch.lgamma(k + 1))
    return float((weight * torch.special.gammaincc(freedom / 2 + k, (statistic / 2).expand_as(k))).sum())


def kolmogorov_smirnov(columns: list[Tensor], gap: float) -> float:
    """The p-value of all columns being uniform on (0, 1), up to the gap."""
    worst = 0.0
    for u in columns:
        u, grid = u.double().sort().values, torch.arange(len(u), dtype=torch.float64) / len(u)
        worst = max(worst, float((u - grid).max()), float((grid + 1 / len(u) - u).max()))
    return min(1.0, len(columns) * 2 * exp(-2 * len(u) * max(0.0, worst - gap / UNIT) ** 2))


def noncentrality(found: Tensor, law: Tensor, rows: int = DRAWS) -> float:
    assert float(found[law < 1e-15].sum()) < 1e-12, "the method leaves states that cannot be"
    return float(rows * ((found - law).square() / law)[law >= 1e-15].sum())


@dataclass
class Case:
    """One run of one sampler."""

    oracle: Any
    sampler: Sampler
    steps: int | None = 1
    start: float = 1.0
    end: float | None = None
    prior: bool = True  # is the law at `start`; otherwise the run starts from noised data
    grid: Any = None
    rows: int = DRAWS

    @property
    def process(self):
        return self.denoiser.process.base

    @property
    def denoiser(self) -> AnyDenoiser:
        return self.oracle

    @property
    def last(self) -> float:
        return self.end or 0.0

    @property
    def times(self) -> Tensor:
        return grid_of(self.denoiser, self.steps, self.grid, self.start, self.end)

    def draw(self, seed: int = 0, sampler: Sampler | None = None, denoiser: AnyDenoiser | None = None):
        """Samples, by this method and denoiser if no other is given."""
        ends = {} if self.start == 1.0 and self.end is None else {"start": self.start, "end": self.end}
        if self.prior:
            given = {"n": self.rows}
        else:
            noise = NoiseSource(seed + 1000, self.rows)
            x0 = self.oracle.draw(noise.at("data"))
            given = {"x": self.process.marginal(x0, self.start).draw(noise.at("noised"))}
        method = sampler or self.sampler
        more = {"steps": self.steps, "grid": self.grid, "seed": seed, **given, **ends}
        return sample(denoiser or self.denoiser, sampler=method, **more)[0]


class Few(AnyDenoiser):
    """An oracle on few states, asked once for each of them where all rows are at one time."""

    def __init__(self, oracle):
        super().__init__()
        self.oracle, self.process, self.points = oracle, oracle.process, oracle.process.state_space.states()

    def forward(self, x_t, t, **condition):
        t = torch.as_tensor(t, dtype=torch.float64)
        if t.ndim and not bool((t == t[0]).all()):
            return self.oracle(x_t, t)
        told = self.oracle(self.points, t.flatten()[0])
        return type(told)(told.value[code(self.process.state_space, x_t)], told.process, x_t, t)


@dataclass
class Table(Case):
    """Categories with any law: every state is a cell."""

    exact: bool = False  # so the gap must be 0
    like: Sampler | None = None  # a method with the same law by `make test`, where this one's draws cannot be forced
    draws: int = 1

    @cached_property
    def denoiser(self) -> AnyDenoiser:
        return Few(self.oracle)

    def target(self, t: float) -> Tensor:
        """q_t over all states."""
        data, points = self.process.space.states(), self.process.state_space.states()
        return dense(lambda x: self.process.marginal(x, t), data, points) @ self.oracle.log_prob(data).exp()

    def counts(self, x: Tensor) -> Tensor:
        return code(self.process.state_space, x).bincount(minlength=self.process.state_space.count).double()

    def p_value(self, x: Tensor) -> float:
        return chi_square(self.counts(x), self.target(self.last), self.gap)

    @cached_property
    def gap(self) -> float:
        if self.sampler.exact:
            return 0.0
        points = self.process.state_space.states()
        law = self.target(self.start)
        if self.prior:
            law = self.process.prior(len(points)).log_prob(points).exp()
        if isinstance(self.sampler, Remasking):
            found = remasked_law(self.sampler, self.denoiser, self.times, law, points)
        else:
            found = forced_law(self.like or self.sampler, self.denoiser, self.times, law, points, self.draws)
        gap = noncentrality(found, self.target(self.last), self.rows)
        assert not self.exact or gap < 1e-10
        return gap


@dataclass
class Number(Case):
    """Numbers: by coordinates and projections of normal data, or by the distribution function of a mixture in 1-D."""

    DIRECTIONS = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6], [0.55, -0.83], [-0.21, 0.98]], dtype=torch.float64)
    variance: Any = None

    @cached_property
    def denoiser(self) -> AnyDenoiser:
        return Affine(self.oracle, self.variance) if self.normal else self.oracle

    @property
    def normal(self) -> bool:
        return len(self.oracle.leaves.means) == 1

    def moments(self, t: float) -> tuple[Tensor, Tensor]:
        alpha, sigma, leaf = self.process.schedule.alpha(t), self.process.schedule.sigma(t), self.oracle.leaves
        covariance = leaf.axes @ torch.diag_embed(leaf.values) @ leaf.axes.mT
        return alpha * leaf.means, alpha**2 * covariance + sigma**2 * torch.eye(len(leaf.means[0]), dtype=torch.float64)

    def along(self, x: Tensor, mean: Tensor, covariance: Tensor) -> list[Tensor]:
        """Distribution functions of the projections, at those of x."""
        return [torch.special.ndtr(((x - mean) @ v) / (v @ covariance @ v).sqrt()) for v in self.DIRECTIONS[:, : x.shape[1]]]

    def distribution(self, t: float) -> Callable[[Tensor], Tensor]:
        means, covariances = self.moments(t)
        weights = self.oracle.log_weights.exp()
        return lambda x: (weights * torch.special.ndtr((x - means.T) / covariances.flatten().sqrt())).sum(1, keepdim=True)

    def p_value(self, x: Tensor) -> float:
        if not self.normal:
            return kolmogorov_smirnov([self.distribution(self.last)(x).flatten()], self.gap)
        means, covariances = self.moments(self.last)
        return kolmogorov_smirnov(self.along(x, means[0], covariances[0]), self.gap)

    @cached_property
    def gap(self) -> float:
        start, end = self.moments(self.start), self.moments(self.last)
        if not self.normal:
            return UNIT * self._mixture_gap()
        mean, covariance = affine_law(self.sampler, self.denoiser, self.times, start[0][0], start[1][0])
        worst = 0.0
        for v in self.DIRECTIONS:
            (m, s), (m_, s_) = (((v @ a), (v @ b @ v).sqrt()) for a, b in ((mean, covariance), (end[0][0], end[1][0])))
            x = m_ + s_ * torch.linspace(-4, 4, 801, dtype=torch.float64)
            worst = max(worst, float((torch.special.ndtr((x - m) / s) - torch.special.ndtr((x - m_) / s_)).abs().max()))
        return UNIT * worst

    def _mixture_gap(self) -> float:
        if not self.sampler.draws:
            first, last = self.distribution(self.start), self.distribution(self.last)
            return flow_gap(self.sampler, self.denoiser, self.times, first, last)
        nodes = torch.linspace(-6, 6, 601, dtype=torch.float64)
        laws = [torch.diff(self.distribution(t)(nodes.unsqueeze(1) - 0.01), dim=0) for t in (self.start, self.last)]
        laws = [torch.cat([law, torch.zeros(1, 1, dtype=torch.float64)]) for law in laws]
        found = line_law(self.sampler, self.denoiser, self.times, laws[0], nodes, product_state=False)
        return float((found.cumsum(0) - laws[1].cumsum(0)).abs().max())


class Affine(AnyDenoiser):
    """The oracle of normal data, whose velocity is affine in x: asked at d + 1 points where all rows are at one time."""

    def __init__(self, oracle, variance=None):
        super().__init__()
        self.oracle, self.process, self.variance = oracle.predicting(un.Velocity), oracle.process, variance
        d = oracle.process.space.shape[0]
        self.points = torch.cat([torch.zeros(1, d), torch.eye(d)]).double()

    def forward(self, x_t, t, **condition):
        t = torch.as_tensor(t, dtype=torch.float64)
        if t.ndim and not bool((t == t[0]).all()):
            return self.oracle(x_t, t)
        told = self.oracle(self.points, t.flatten()[0]).value
        return un.Velocity(told[0] + x_t @ (told[1:] - told[0]), self.process, x_t, t, self.variance)


@dataclass
class Counted(Case):
    """One count: its values are the cells, those above MOST one more."""

    MOST = 24
    draws: int = 1

    def target(self, t: float) -> Tensor:
        x = torch.arange(self.MOST + 1).unsqueeze(1)
        law = self.oracle.log_marginal(x, t).exp() if t else self.oracle.log_prob(x).exp()
        assert float(law.sum()) > 1 - 1e-7
        return law

    def p_value(self, x: Tensor) -> float:
        return chi_square(
            x.flatten().clamp_max(self.MOST).bincount(minlength=self.MOST + 1), self.target(self.last), self.gap
        )

    @cached_property
    def gap(self) -> float:
        points = torch.arange(self.MOST + 1).unsqueeze(1)
        law = self.process.prior(len(points)).log_prob(points).exp() if self.prior else self.target(self.start)
        found = forced_law(self.sampler, self.denoiser, self.times, law, points, self.draws)
        target, enough = self.target(self.last), self.rows * self.target(self.last) >= 10  # as the statistic pools them
        pooled = [torch.cat([v[enough], v[~enough].sum().reshape(1)]) for v in (found, target)]
        return noncentrality(*pooled, self.rows)


@dataclass
class Mixed(Case):
    """A number and a category: binned at the eighths of the number's law."""

    @cached_property
    def cells(self) -> tuple[Tensor, Tensor, Tensor]:
        """Nodes on the line, edges half-way between some of them, and the masses [nodes, categories] at the last time."""
        nodes = torch.linspace(-5, 5, 201, dtype=torch.float64)
        law = self.masses(nodes, self.last)
        below = law.sum(1).cumsum(0)
        places = torch.searchsorted(below, torch.arange(1, 8, dtype=torch.float64) / 8)
        return nodes, nodes[places] + 0.025, law

    def masses(self, nodes: Tensor, t: float) -> Tensor:
        kinds = [torch.full((len(nodes), 1), c) for c in range(2)]
        return torch.stack([self.oracle.log_marginal({"x": nodes.unsqueeze(1), "c": c}, t).exp() for c in kinds], 1) * 0.05

    def binned(self, law: Tensor) -> Tensor:
        nodes, edges, _ = self.cells
        bins = torch.bucketize(nodes, edges)
        return torch.zeros(8, 2, dtype=torch.float64).index_add(0, bins, law).flatten()

    def p_value(self, x: dict) -> float:
        cell = 2 * torch.bucketize(x["x"].flatten(), self.cells[1]) + x["c"].flatten()
        return chi_square(cell.bincount(minlength=16), self.binned(self.cells[2]), self.gap)

    @cached_property
    def gap(self) -> float:
        nodes, _, law = self.cells
        found = line_law(self.sampler, self.oracle, self.times, self.masses(nodes, self.start), nodes, product_state=True)
        return noncentrality(self.binned(found), self.binned(law), self.rows)
