"""The variance of the model's Gaussian kernel p(x_s | x_t) in discrete time.

    PosteriorVariance   sigma_{s|t}^2, the variance of q(x_s | x_t, x_0): the paper's choice
    ForwardVariance     sigma_{t|s}^2, the variance of q(x_t | x_s)
    LearnedVariance     the network returns a pair (prediction, v); log variance = v log Forward + (1 - v) log Posterior
    OptimalVariance     sigma_{s|t}^2 + c^2 Var(x_0 | x_t), c the posterior mean's factor on x_0: by the law of total
                        variance this is the variance that the exact reverse kernel has, so no other Gaussian is nearer to
                        it.  The inner variance is a function of (x_t, t): exact from an oracle, or measured on data per
                        grid time (`unnoise.fit_variance`).

Where the noise is correlated a variance is that of a whitened coordinate L^-1 x: v of `LearnedVariance` belongs to it, and
Var(x_0 | x_t) of `OptimalVariance` is the diagonal of L^-1 Cov(x_0 | x_t) L^-T.

As steps shrink all of them tend to g^2 dt, and the bound no longer depends on the choice.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from unnoise.processes import Gaussian


class Variance(ABC):
    @abstractmethod
    def of(self, process: Gaussian, x_t: Tensor, s: Tensor, t: Tensor, extra: Tensor | None) -> Tensor:
        """The kernel's variance for each row; `extra` is the network's second output."""


class PosteriorVariance(Variance):
    def of(self, process, x_t, s, t, extra):
        return process.coefficient(process.posterior_coefficients(s, t)[2], x_t)


class ForwardVariance(Variance):
    def of(self, process, x_t, s, t, extra):
        return process.coefficient(process.schedule.step_variance(s, t), x_t)


class LearnedVariance(Variance):
    def of(self, process, x_t, s, t, extra):
        if extra is None:
            raise ValueError("a learned variance needs a network that returns a pair (prediction, v)")
        low, high = (kind.of(process, x_t, s, t, None).log() for kind in (PosteriorVariance(), ForwardVariance()))
        return (extra * high + (1 - extra) * low).exp()


class OptimalVariance(Variance):
    def __init__(self, clean_variance: Callable[[Tensor, Tensor], Tensor]):
        self.clean_variance = clean_variance

    def of(self, process, x_t, s, t, extra):
        _, on_x0, variance = (process.coefficient(c, x_t) for c in process.posterior_coefficients(s, t))
        return variance + on_x0.square() * self.clean_variance(x_t, t)


def fitted(times: Tensor, values: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """A clean variance that depends on time alone, linear between the times it was measured at."""
    times, values = times.double(), values.double()

    def clean_variance(x_t: Tensor, t: Tensor) -> Tensor:
        where, what = times.to(t.device), values.to(t.device)
        i = torch.bucketize(t, where).clamp(1, len(where) - 1)
        share = ((t - where[i - 1]) / (where[i] - where[i - 1])).clamp(0, 1)
        value = what[i - 1] + share * (what[i] - what[i - 1])
        return value.reshape(-1, *[1] * (x_t.ndim - 1)).to(x_t.dtype)

    return clean_variance
