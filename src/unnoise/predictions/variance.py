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

Much of this is known before any state is: `table` says it for all steps of a run at once, and `from_table` makes a step's
standard deviation of it.  What is known is the deviation itself where it follows from the times alone, the logarithms of
both ends where a network chooses between them, and nothing where Var(x_0 | x_t) looks at the state.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.processes import Gaussian


class Variance(ABC):
    def __init_subclass__(cls, **options: Any) -> None:
        """A class with a variance of its own does not have the table of the one that it extends."""
        super().__init_subclass__(**options)
        if "of" in vars(cls) and "table" not in vars(cls):
            cls.table = Variance.__dict__["table"]  # type: ignore[method-assign]

    @abstractmethod
    def of(self, process: Gaussian, x_t: Tensor, s: Tensor, t: Tensor, extra: Tensor | None) -> Tensor:
        """The kernel's variance for each row; `extra` is the network's second output."""

    def table(self, process: Gaussian, s: Tensor, t: Tensor) -> tuple[Tensor, ...] | None:
        """What is known of steps from t to s before there are states, float64 [steps] or [steps, *shape]; None: nothing."""
        return None

    def from_table(self, known: tuple[Any, ...], extra: Tensor | None) -> Any:
        """A step's standard deviation, a number or a tensor, by what is known of it."""
        return known[0]


class PosteriorVariance(Variance):
    def of(self, process, x_t, s, t, extra):
        return process.coefficient(process.posterior_coefficients(s, t)[2], x_t)

    def table(self, process, s, t):
        return (process.posterior_coefficients(s, t)[2].sqrt(),)


class ForwardVariance(Variance):
    def of(self, process, x_t, s, t, extra):
        return process.coefficient(process.schedule.step_variance(s, t), x_t)

    def table(self, process, s, t):
        return (process.schedule.step_variance(s, t).sqrt(),)


class LearnedVariance(Variance):
    def of(self, process, x_t, s, t, extra):
        self._check(extra)
        low, high = (kind.of(process, x_t, s, t, None).log() for kind in (PosteriorVariance(), ForwardVariance()))
        return (extra * high + (1 - extra) * low).exp()

    def table(self, process, s, t):
        low, high = PosteriorVariance().table(process, s, t), ForwardVariance().table(process, s, t)
        return low[0].log(), high[0].log()

    def from_table(self, known, extra):
        self._check(extra)
        low, high = known
        return (extra * high + (1 - extra) * low).exp()

    @staticmethod
    def _check(extra: Tensor | None) -> None:
        if extra is None:
            raise ValueError("a learned variance needs a network that returns a pair (prediction, v)")


class OptimalVariance(Variance):
    def __init__(self, clean_variance: Callable[[Tensor, Tensor], Tensor]):
        self.clean_variance = clean_variance

    def of(self, process, x_t, s, t, extra):
        _, on_x0, variance = (process.coefficient(c, x_t) for c in process.posterior_coefficients(s, t))
        return variance + on_x0.square() * self.clean_variance(x_t, t)

    def table(self, process, s, t):
        if not isinstance(self.clean_variance, VarianceOfTime):
            return None
        _, on_x0, variance = process.posterior_coefficients(s, t)
        inner = self.clean_variance.at(t)
        return ((variance + on_x0.square() * inner.reshape(-1, *[1] * (variance.ndim - 1))).sqrt(),)


@dataclass(frozen=True, eq=False)
class VarianceOfTime:
    """A clean variance that depends on time alone, linear between the times it was measured at."""

    times: Tensor
    values: Tensor

    def at(self, t: Tensor) -> Tensor:
        where, what = self.times.to(t.device), self.values.to(t.device)
        i = torch.bucketize(t.contiguous(), where).clamp(1, len(where) - 1)
        share = ((t - where[i - 1]) / (where[i] - where[i - 1])).clamp(0, 1)
        return what[i - 1] + share * (what[i] - what[i - 1])

    def __call__(self, x_t: Tensor, t: Tensor) -> Tensor:
        return self.at(t).reshape(-1, *[1] * (x_t.ndim - 1)).to(x_t.dtype)


def fitted(times: Tensor, values: Tensor) -> VarianceOfTime:
    """The clean variance that was measured at these times."""
    return VarianceOfTime(times.double(), values.double())
