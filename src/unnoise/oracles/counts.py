"""Mixtures of counts: components of independent Poisson or binomial coordinates, whose noised laws are known.

A Poisson component of rate m stays Poisson, of mean a = alpha m + mu with mu = lam (1 - alpha), and given x_t its lost units
are Poisson of mean (1 - alpha) m whatever x_t is.  A binomial component of N trials and success probability p is, without
immigration, Binomial(N, p alpha), and each of the N - x_t trials that do not show was a unit with probability
p (1 - alpha)/(1 - p alpha).  So with w_c(x) the posterior weights of the components at x, the intensity m of
`predictions.counts` is

    Poisson    m(x) = sum_c w_c(x) m_c,                binomial    m(x) = sum_c w_c(x) (N_c - x) p_c/(1 - p_c alpha).

m(x - 1) is the same sum with the weights of x - 1 in that coordinate.
"""

from abc import abstractmethod

import torch
from torch import Tensor

from unnoise.count_laws import Thinned
from unnoise.laws import LOG_ZERO, log_of
from unnoise.noise import NoiseSource
from unnoise.oracles.components import Components, Leaf
from unnoise.predictions import CountPrediction, Intensity, Kinds, Remaining
from unnoise.processes import Process, Thinning
from unnoise.shapes import Clock, Float, Int

_PURE_DEATH = "binomial data has a known noised law under pure death only; use immigration = 0, or Poisson data"


class CountLeaf(Leaf):
    """Components of independent counts."""

    shape: tuple[int, ...]

    @abstractmethod
    def log_terms(self, x: Tensor, alpha: Tensor, beta: Tensor, lam: float) -> Float[Tensor, "batch components d"]:
        """log q_c of each coordinate of x [batch, 1, d], noised by (alpha, 1 - alpha)."""

    @abstractmethod
    def log_intensity(self, x: Tensor, alpha: Tensor, beta: Tensor) -> Float[Tensor, "batch components d"]:
        """log m_c(x)."""

    def _noise(self, process: Thinning, x_t: Tensor, t: Clock) -> tuple[Tensor, Tensor, Tensor]:
        """x_t, alpha and 1 - alpha with an axis for the components."""
        alpha, beta = (c.reshape(len(x_t), 1, -1) for c in process.survival(x_t, None, t))
        return x_t.reshape(len(x_t), 1, -1), alpha, beta

    def log_evidence(self, process, x_t, t):
        return self.log_terms(*self._noise(process, x_t, t), process.immigration).sum(-1)

    def log_prob(self, x0):
        one = torch.ones(len(x0), 1, 1, dtype=torch.float64)
        return self.log_terms(x0.reshape(len(x0), 1, -1), one, 0 * one, 0.0).sum(-1)

    def predict(self, process, x_t, t, log_others) -> CountPrediction:
        x, alpha, beta = self._noise(process, x_t, t)
        each = self.log_terms(x, alpha, beta, process.immigration)
        here = _average(log_others.unsqueeze(-1) + each.sum(-1, keepdim=True), self.log_intensity(x, alpha, beta))
        if process.pure_death:
            return Remaining(here.reshape(x_t.shape), process, x_t, t)
        down = (x - 1).clamp_min(0)
        moved = log_others.unsqueeze(-1) + _all_but_one(each) + self.log_terms(down, alpha, beta, process.immigration)
        below = _average(moved, self.log_intensity(down, alpha, beta))
        return Intensity(torch.stack([below, here], -1).reshape(*x_t.shape, 2), process, x_t, t)


def _average(log_weights: Tensor, log_values: Tensor) -> Float[Tensor, "batch d"]:
    """log of the weighted mean over the components, clear of LOG_ZERO's multiples."""
    return (log_weights.log_softmax(1) + log_values).logsumexp(1).clamp_min(LOG_ZERO)


def _all_but_one(each: Float[Tensor, "batch components d"]) -> Float[Tensor, "batch components d"]:
    """The sum over the other coordinates, without subtracting."""
    before, after = each.cumsum(-1).roll(1, -1), each.flip(-1).cumsum(-1).roll(1, -1)
    before[..., 0], after[..., 0] = 0, 0
    return before + after.flip(-1)


class PoissonLeaf(CountLeaf):
    """Independent Poisson coordinates of the given rates in each component."""

    def __init__(self, rates: Float[Tensor, "components *shape"]):
        if not bool((rates >= 0).all() and rates.isfinite().all()):
            raise ValueError(f"a Poisson rate is {float(rates.min()):g}: rates are finite and not negative")
        self.shape = tuple(rates.shape[1:])
        self.rates = rates.double().reshape(len(rates), -1)

    def log_terms(self, x, alpha, beta, lam):
        mean = alpha * self.rates + lam * beta
        return x * log_of(mean) - mean - torch.lgamma(x.double() + 1)

    def log_intensity(self, x, alpha, beta):
        return log_of(self.rates).expand(len(x), -1, -1)

    def draw(self, component: Int[Tensor, "batch"], noise: NoiseSource) -> Tensor:
        mean = self.rates[component].reshape(-1, *self.shape)
        return Thinned(torch.zeros_like(mean, dtype=torch.int64), mean=mean).draw(noise)


class BinomialLeaf(CountLeaf):
    """Independent binomial coordinates: counts of at most `trials`, under pure death."""

    def __init__(self, trials: int | Tensor, probs: Float[Tensor, "components *shape"]):
        trials = torch.as_tensor(trials)
        if trials.dtype.is_floating_point or int(trials.min()) < 0:
            raise ValueError(f"trials = {trials.tolist()}: pass whole numbers, 0 or more")
        if not bool(((probs >= 0) & (probs <= 1)).all()):
            raise ValueError(f"probs reach from {float(probs.min()):g} to {float(probs.max()):g}: keep them in [0, 1]")
        self.shape = tuple(probs.shape[1:])
        self.trials = trials.expand(probs.shape).reshape(len(probs), -1)
        self.probs = probs.double().reshape(len(probs), -1)

    def log_terms(self, x, alpha, beta, lam):
        if lam:
            raise ValueError(f"immigration = {lam:g}: {_PURE_DEATH}")
        seen, hidden = alpha * self.probs, (1 - self.probs) + beta * self.probs
        size = len(x), *self.probs.shape
        law = Thinned(torch.zeros(size, dtype=torch.int64), self.trials.expand(size), seen, hidden)
        return law.log_terms(x.expand(size).unsqueeze(-1)).squeeze(-1)

    def log_intensity(self, x, alpha, beta):
        hidden = (1 - self.probs) + beta * self.probs
        return log_of((self.trials - x).clamp_min(0).double()) + log_of(self.probs) - log_of(hidden)

    def draw(self, component: Int[Tensor, "batch"], noise: NoiseSource) -> Tensor:
        trials, probs = (v[component].reshape(-1, *self.shape) for v in (self.trials, self.probs))
        return Thinned(torch.zeros_like(trials), trials, probs, 1 - probs).draw(noise)


def poisson_mixture(process: Process, weights: Tensor, rates: Tensor, predicts: Kinds = None) -> Components:
    """A mixture of independent Poisson counts: rates [components, *shape]."""
    _fits(process, rates, "rates")
    return Components(process, weights, PoissonLeaf(rates), predicts)


def binomial_mixture(
    process: Process, weights: Tensor, trials: int | Tensor, probs: Tensor, predicts: Kinds = None
) -> Components:
    """A mixture of independent binomial counts: probs [components, *shape], trials one number or an array like probs."""
    _fits(process, probs, "probs")
    thinning = process.base
    if isinstance(thinning, Thinning) and not thinning.pure_death:
        raise ValueError(f"immigration = {thinning.immigration:g}: {_PURE_DEATH}")
    return Components(process, weights, BinomialLeaf(trials, probs), predicts)


def _fits(process: Process, array: Tensor, name: str) -> None:
    base = process.base
    if not isinstance(base, Thinning):
        raise TypeError(f"{type(base).__name__} does not noise counts: pass Thinning(...)")
    if tuple(array.shape[1:]) != base.space.shape:
        expected = ", ".join(["components", *map(str, base.space.shape)])
        raise ValueError(f"{name} has shape {tuple(array.shape)}; expected ({expected})")
