"""Laws of counts 0, 1, 2, ...: units that survive, units that arrive.

Every forward kernel, bridge and model kernel of `Thinning` but one is

    Thinned:   base + Binomial(n, keep) + Poisson(mean)        n units of which each survives with probability keep
    q(x)       = sum_j C(n, j) keep^j (1 - keep)^(n - j)  e^-mean mean^(x - base - j)/(x - base - j)!

and the one that is not (the bridge under immigration) is `Tabulated` over 0 ... M.  All is float64 whatever dtype the times
have: a difference of log-factorials would leave few digits in float32.  `keep` and `lose` = 1 - keep are given
separately, so neither is a difference of nearly equal numbers.

Sums over a law's values stop where less than 1e-17 of its mass is left.  X - E X is a sum of independent terms that exceed
their means by at most 1, so by Bernstein's inequality each tail beyond D has mass at most exp(-D^2/(2 (Var X + D/3))):

    D = L/3 + sqrt(L^2/9 + 2 L Var X),    e^-L = 4e-18.

Draws invert a distribution function in float64, states ordered outwards from the mode, each row by itself: what is drawn
for a row does not depend on its batch.  Whether any unit is lost (arrives) comes before how many, so that rare events have
their right probability.  How far a sum or a search runs is read off the counts: on an accelerator the host waits for them.
"""

from abc import abstractmethod
from math import ceil, sqrt

import torch
from torch import Tensor

from unnoise.laws import LOG_ZERO, Law, draw_categories, finite_or_inf, log_of, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.shapes import Float, Int

NEGLIGIBLE = 1e-17  # mass that counts as none
_L = 40.0  # e^-40 = 4e-18 for each of the two tails
_FARTHEST = 10_000_000  # steps from the mode that a draw agrees to take
_TERMS = 2**22  # terms of a sum over survivors that are held at once


def spread(variance: Tensor | float) -> int:
    """D: how far from its mean a count of this variance strays with probability above 1e-17 (the largest of a batch)."""
    largest = float(variance.detach().max()) if isinstance(variance, Tensor) else variance
    if not largest < _FARTHEST**2 / (2 * _L):
        raise ValueError(f"a count of variance {largest:g} is out of reach: the network's output is too large")
    return ceil(_L / 3 + sqrt(_L**2 / 9 + 2 * _L * largest))


class CountLaw(Law):
    """Independent counts, one per coordinate."""

    @abstractmethod
    def log_terms(self, x: Int[Tensor, "batch *shape nodes"]) -> Float[Tensor, "batch *shape nodes"]:
        """log q of each coordinate at any number of values; LOG_ZERO where there is no mass, as at negative ones."""

    @abstractmethod
    def nodes(self) -> Int[Tensor, "batch *shape nodes"]:
        """Values of each coordinate that hold all but 1e-17 of its mass."""

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return finite_or_inf(sum_coordinates(self.each(x)))

    def each(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.log_terms(x.unsqueeze(-1)).squeeze(-1)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, CountLaw):
            raise TypeError(f"the divergence of a law of counts from a {type(other).__name__} has no closed form here")
        nodes = self.nodes()
        log_p, log_q = self.log_terms(nodes), other.log_terms(nodes)
        p, impossible = log_p.exp(), log_q < LOG_ZERO / 2
        terms = p * (log_p - torch.where(impossible, 0.0, log_q))
        infinite = (impossible & (p > NEGLIGIBLE)).any(-1)
        return sum_coordinates(torch.where(infinite, torch.inf, torch.where(impossible, 0.0, terms).sum(-1)))


class Thinned(CountLaw):
    """base + Binomial(n, keep) + Poisson(mean); without `n` nothing is thinned, without `mean` nothing arrives."""

    def __init__(
        self,
        base: Int[Tensor, "batch *shape"],
        n: Int[Tensor, "batch *shape"] | None = None,
        keep: Tensor | None = None,
        lose: Tensor | None = None,
        mean: Tensor | None = None,
    ):
        self.base, self.n, self.keep, self.lose = base, n, keep, lose
        self.mean = None if mean is None else mean.double().expand(base.shape)
        if n is not None:
            assert keep is not None and lose is not None
            self.keep, self.lose = keep.double().expand(base.shape), lose.double().expand(base.shape)

    def _survivors(self, k: Tensor) -> Tensor:
        """log Binomial(k; n, keep), with a last axis of values."""
        assert self.n is not None and self.keep is not None and self.lose is not None
        n = self.n.double().unsqueeze(-1)
        inside = (k >= 0) & (k <= n)
        j = torch.where(inside, k, 0).double()
        paths = torch.lgamma(n + 1) - torch.lgamma(j + 1) - torch.lgamma(n - j + 1)
        log = paths + j * log_of(self.keep).unsqueeze(-1) + (n - j) * log_of(self.lose).unsqueeze(-1)
        return torch.where(inside, log, LOG_ZERO)

    def _arrivals(self, k: Tensor) -> Tensor:
        """log Poisson(k; mean), with a last axis of values."""
        assert self.mean is not None
        j, mean = k.clamp_min(0).double(), self.mean.unsqueeze(-1)
        return torch.where(k >= 0, j * log_of(mean) - mean - torch.lgamma(j + 1), LOG_ZERO)

    def log_terms(self, x: Int[Tensor, "batch *shape nodes"]) -> Float[Tensor, "batch *shape nodes"]:
        y = x - self.base.unsqueeze(-1)
        if self.n is None:
            return torch.where(y == 0, 0.0, LOG_ZERO).double() if self.mean is None else self._arrivals(y)
        if self.mean is None:
            return self._survivors(y)
        return self._convolved(y)

    def _convolved(self, y: Int[Tensor, "batch *shape nodes"]) -> Float[Tensor, "batch *shape nodes"]:
        """log of the sum over the number j of survivors; coordinates with as many terms, min(n, y) + 1, go together."""
        assert self.n is not None and self.keep is not None and self.lose is not None and self.mean is not None
        rows, n = y.flatten(0, -2), self.n.flatten()
        count = torch.minimum(n, rows.amax(-1)).clamp_min(0) + 1
        largest = int(torch.maximum(n, rows.amax(-1)).clamp_min(0).max())
        factorial = torch.lgamma(torch.arange(largest + 1, device=y.device).double() + 1)  # looked up, not computed
        order = count.argsort(stable=True)
        rows, n = rows[order], n[order, None]
        mean, keep, lose = (c.flatten()[order, None] for c in (self.mean, self.keep, self.lose))
        log_keep, log_lose, log_mean = log_of(keep), log_of(lose), log_of(mean)
        out, start = [], 0
        for terms, group in zip(*(v.tolist() for v in count[order].unique_consecutive(return_counts=True)), strict=True):
            j, many = torch.arange(terms, device=y.device), max(1, _TERMS // (terms * y.shape[-1]))
            for first in range(start, start + group, many):
                i = slice(first, min(first + many, start + group))
                survive = factorial[n[i]] - factorial[j] - factorial[n[i] - j] + j * log_keep[i] + (n[i] - j) * log_lose[i]
                came = rows[i, None] - j.unsqueeze(-1)  # [coordinates, terms, nodes]
                arrive = came * log_mean[i].unsqueeze(-1) - mean[i].unsqueeze(-1) - factorial[came.clamp_min(0)]
                log_terms = torch.where(came >= 0, survive.unsqueeze(-1) + arrive, LOG_ZERO)
                out.append(log_terms.logsumexp(1))
            start += group
        return torch.cat(out)[order.argsort()].reshape(y.shape)

    def _moments(self) -> tuple[Tensor, Tensor]:
        """Mean and variance of each coordinate's part beyond `base`."""
        centre = torch.zeros_like(self.base, dtype=torch.float64)
        variance = centre
        if self.n is not None:
            assert self.keep is not None and self.lose is not None
            centre = centre + self.n * self.keep
            variance = variance + self.n * self.keep * self.lose
        if self.mean is not None:
            centre, variance = centre + self.mean, variance + self.mean
        return centre, variance

    @property
    def expected(self) -> Float[Tensor, "batch *shape"]:
        """The mean of each coordinate."""
        return self.base + self._moments()[0]

    def nodes(self) -> Int[Tensor, "batch *shape nodes"]:
        centre, variance = self._moments()
        reach = spread(variance)
        low = (centre.detach().floor().long() - reach).clamp_min(0)
        width = 2 * reach + 2
        if self.mean is None:  # at most n survive
            width = min(width, 1 if self.n is None else int(self.n.max()) + 1)
        return (self.base + low).unsqueeze(-1) + torch.arange(width, device=low.device)

    def draw(self, noise: NoiseSource) -> Tensor:
        x = self.base
        if self.n is not None:
            x = x + self.n - self._draw_lost(noise.at("lost"))
        if self.mean is not None:
            x = x + self._draw_arrivals(noise.at("arrivals"))
        return x

    def _draw_lost(self, noise: NoiseSource) -> Int[Tensor, "batch *shape"]:
        """How many of n are lost: Binomial(n, lose), whose ratios are q(k + 1)/q(k) = (n - k)/(k + 1) lose/keep."""
        assert self.n is not None and self.keep is not None and self.lose is not None
        n, keep, lose = self.n.double(), self.keep.detach(), self.lose.detach()
        log_keep = torch.where(lose < 0.5, torch.log1p(-lose.clamp_max(0.5)), log_of(keep))
        mode = ((n + 1) * lose).floor().clamp_max(n).clamp_min(1)
        at_mode = self._survivors((self.n - mode.long()).clamp_min(0).unsqueeze(-1)).squeeze(-1).detach().exp()
        reach = spread(n * keep * lose)
        return positive_count(noise, -torch.expm1(n * log_keep), mode, at_mode, lose / keep, n, reach)

    def _draw_arrivals(self, noise: NoiseSource) -> Int[Tensor, "batch *shape"]:
        """Poisson(mean), whose ratios are q(k + 1)/q(k) = mean/(k + 1)."""
        assert self.mean is not None
        mean = self.mean.detach()
        reach, mode = spread(mean), mean.floor().clamp_min(1)
        at_mode = self._arrivals(mode.long().unsqueeze(-1)).squeeze(-1).detach().exp()
        return positive_count(noise, -torch.expm1(-mean), mode, at_mode, mean, None, reach)


def positive_count(
    noise: NoiseSource,
    some: Float[Tensor, "batch *shape"],
    mode: Float[Tensor, "batch *shape"],
    at_mode: Float[Tensor, "batch *shape"],
    odds: Float[Tensor, "batch *shape"],
    n: Float[Tensor, "batch *shape"] | None,
    reach: int,
) -> Int[Tensor, "batch *shape"]:
    """Zero, or with probability `some` a count k >= 1 with law q(k)/some.

    q is known at its mode and by its ratios q(k + 1)/q(k) = (n - k)/(k + 1) odds (without n: odds/(k + 1)); its distribution
    function is inverted in the order mode, mode + 1, mode - 1, ...  Only what is still looked for is carried along.
    """
    shape = tuple(mode.shape[1:])
    whether = noise.at("whether").uniform(shape) < some
    u = (noise.at("how many").uniform(shape) * some).flatten()
    answer = torch.where(whether, mode, 0.0).flatten()
    sought = (whether.flatten() & (u >= at_mode.flatten())).nonzero().squeeze(-1)
    total, high, u, odds = (v.flatten()[sought] for v in (at_mode, mode, u, odds))
    n = None if n is None else n.flatten()[sought]
    low, q_high, q_low = high, total, total

    def ratio(k: Tensor) -> Tensor:
        """q(k + 1)/q(k)."""
        return odds / (k + 1) if n is None else (n - k).clamp_min(0) / (k + 1) * odds

    for _ in range(reach + 2):
        if not len(sought):
            break
        q_high, high = q_high * ratio(high), high + 1
        found_high = u < total + q_high
        q_low, low = torch.where(low > 1, q_low / ratio(low - 1), 0.0), (low - 1).clamp_min(0)
        total = total + q_high + q_low
        found = found_high | (u < total)
        answer[sought[found]] = torch.where(found_high, high, low)[found]
        left = ~found
        sought, total, u, odds, high, low, q_high, q_low = (
            v[left] for v in (sought, total, u, odds, high, low, q_high, q_low)
        )
        n = None if n is None else n[left]
    return answer.long().reshape(mode.shape)


class Tabulated(CountLaw):
    """Log-probabilities over 0 ... M in the last axis; nothing beyond."""

    def __init__(self, log_probs: Float[Tensor, "batch *shape size"]):
        self.log_probs = log_probs

    @property
    def probs(self) -> Float[Tensor, "batch *shape size"]:
        return self.log_probs.exp()

    def log_terms(self, x: Int[Tensor, "batch *shape nodes"]) -> Float[Tensor, "batch *shape nodes"]:
        last = self.log_probs.shape[-1] - 1
        return torch.where((x >= 0) & (x <= last), self.log_probs.gather(-1, x.clamp(0, last)), LOG_ZERO)

    def nodes(self) -> Int[Tensor, "batch *shape nodes"]:
        return torch.arange(self.log_probs.shape[-1], device=self.log_probs.device).expand(self.log_probs.shape)

    def draw(self, noise: NoiseSource) -> Tensor:
        return draw_categories(self.log_probs, noise)
