"""Factors of numbers that look ahead by a normal law.

Given x_t the data is taken for normal around the prediction's mean m = E[x_0 | x_t] with a variance r_t^2.  Then

    h_t  =  E[h(x_0)],        m'  =  E[x_0 h(x_0)] / E[h(x_0)]  =  m + r_t^2 grad_m log h_t,

the first being the factor on the way and m' the prediction that leads to it, without a further call or gradient of the
network.  Data is not normal, and whatever is said too much or too little is taken back by the weights of later steps.

Unless told, r_t^2 = v sigma^2 / (sigma^2 + v alpha^2): that of independent normal data of variance v.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unnoise.guidance.twists import LeafTwist
from unnoise.predictions import Clean, Prediction
from unnoise.processes import Process
from unnoise.shapes import Float

SpreadOfTime = Callable[[Tensor], Tensor]


def variance_ahead(law: Clean, variance: float | SpreadOfTime) -> Tensor:
    """r_t^2, float64, shaped to multiply x: one for each row, or for each coordinate where schedules are theirs."""
    schedule, t, rows = law.process.schedule, law.t, (-1, *[1] * (law.x_t.ndim - 1))
    if callable(variance):
        own = torch.as_tensor(variance(t), dtype=torch.float64, device=t.device).expand(t.shape)
        if not bool((own >= 0).all()):
            raise ValueError(f"the variance is {float(own.min()):g} at a time: it is a number of at least 0")
        return own.reshape(rows)
    alpha, sigma = schedule.alpha(t).square(), schedule.sigma(t).square()
    own = variance * sigma / (sigma + variance * alpha)
    return own if schedule.shape else own.reshape(rows)


def valid_variance(variance: float | SpreadOfTime | None) -> float | SpreadOfTime:
    if variance is None:
        return 1.0
    if callable(variance):
        return variance
    if not 0 < variance < float("inf"):
        raise ValueError(f"variance = {variance}: pass that of the data, a number above 0, or a function of time")
    return float(variance)


def not_numbers(process: Process, name: str) -> str | None:
    """Why nothing is known ahead of a leaf; None where it is one of numbers."""
    if Clean.misfit(process) is None:
        return None
    return f"the {name} speaks of numbers under Gaussian noise, and {type(process).__name__} is something else"


class NormalAhead(LeafTwist):
    """`variance` is that of the data, 1 unless given, or a function of time that says r_t^2."""

    def __init__(self, leaf: str | tuple[str, ...] | None = None, variance: float | SpreadOfTime | None = None):
        super().__init__(() if leaf is None else leaf)
        self.variance = valid_variance(variance)

    @abstractmethod
    def expected(
        self, mean: Float[Tensor, "batch *shape"], variance: Tensor
    ) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch *shape"]]:
        """(log E[h(x_0)] for x_0 ~ N(mean, variance), its gradient by the mean), float64; or near them."""

    def refuse_leaf(self, process: Process) -> str | None:
        return not_numbers(process, self.name)

    def led(self, prediction: Any) -> tuple[Tensor, Prediction]:
        own = prediction.by_leaf()
        law = own.to(Clean)
        mean, variance = law.value.double(), variance_ahead(law, self.variance)
        log_h, slope = self.expected(mean, variance)
        return log_h, moved(own, mean + variance * slope)


def moved(prediction: Any, clean: Tensor) -> Prediction:
    """The prediction with another estimate of x_0, in its own kind."""
    law = prediction.to(Clean)
    options = {"s": prediction.s} if prediction.tied_to_grid else {}
    return law.with_value(clean.to(law.value.dtype)).to(type(prediction), **options)
