"""Weightings of the bound's integrand.  Only `Bound` gives a bound; the others trade it for what trains well.

Gaussian weightings are named by the squared error that they weigh uniformly in t (up to a factor free of t):

    Simple       |eps - eps_model|^2                       X0   |x_0 - x_model|^2         V   |v - v_model|^2
    MinSNR       min(SNR, gamma) |x_0 - x_model|^2
    EDMWeighting (s^2 + d^2)/(s d)^2 |x_0 - x_model|^2,  s = sigma/alpha, d the data's standard deviation
    SigmoidWeighting  sigmoid(bias - log SNR) (-d log SNR/dt)/2 |eps - eps_model|^2
    Balanced     (b + late) |v - v_model|^2 / e, where b |v - v_model|^2 is the bound's own integrand and e is about what
                 |v - v_model|^2 is at this time, as a constant: its mean over the other rows nearest in time, or for a
                 row that is alone 1 per coordinate, about what |v|^2 is

They are no bounds and are meant plainly: where the noise is correlated, eps is that noise, and |.|^2 is the sum of squares
of the data's own coordinates; only `Bound` whitens the error first.

`Balanced` is for images.  Their bound is mostly about the last bits of pixels, at hardly any noise, and their looks are not:
a training on the bound leaves few of its updates to what makes them look right, and one on a plain error knows nothing of
the last bits.  Here a relative error counts alike at all times, but for b, which still grows like 1/t at little noise, and
`late`, which is even over time.  A row's own error is no part of e: to divide by it would favour data that are easily
guessed, and what is learned would not be the mean of x_0.

`CrossEntropy` is the plain cross-entropy of the coordinates that can move.  On a product a Gaussian weighting concerns the
numbers, `CrossEntropy` the categories, and the other leaves keep the bound; `LeafWeightings(age=Simple(), ...)` names them.

Weightings add and scale:  `Bound() + 0.01 * CrossEntropy()`  is  `Sum(Bound(), 0.01 * CrossEntropy())`.  What has a share c
of the bound in it has c times the bound's other terms, too.

On a chain the bound is a sum of KLs over the steps t_i -> t_{i-1}, and any other weighting the sum

    sum_i (t_i - t_{i-1}) rate(x_{t_i}, t_i),

which tends to the integral as the steps become short.
"""

from abc import ABC, abstractmethod
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import instance_of
from unnoise.codes import Codewords
from unnoise.generators import divergence
from unnoise.laws import sum_coordinates
from unnoise.objectives.batches import gathered, rank
from unnoise.objectives.closed_forms import rate, squared_error_weight, visits_all
from unnoise.objectives.times import redefined
from unnoise.predictions import (
    Clean,
    ContinuousPrediction,
    FinitePrediction,
    Posterior,
    Prediction,
    ProductPrediction,
    RawPosterior,
)
from unnoise.predictions.linear_heads import chosen_log_prob
from unnoise.processes import Process
from unnoise.processes.finite import at
from unnoise.schedules import Schedule
from unnoise.schedules.base import one_per_time
from unnoise.shapes import AnyState, Float

SMALLEST = 1e-6  # of a squared error that another is relative to
LAST = 1 - 1e-12  # where a chain stands at t = 1 and alpha = 0, weights are the limits that 0/0 has there
NEIGHBOURS = 8  # rows on either side whose error is taken for usual


class Weighting(ABC):
    """Turns a prediction into the integrand that training minimises."""

    is_bound = False  # whether it is the bound, and nothing else
    bound_share = 0.0  # how much of the bound is in it, with its other terms
    even = False  # whether it is about as large at all times, so that these are drawn evenly

    def __init_subclass__(cls, **options: Any) -> None:
        """A rate of its own makes another weighting of the bound: no bound, and no share of it, unless it says so."""
        super().__init_subclass__(**options)
        own = redefined(cls, Weighting)
        for name in ("rate", "step"):  # they follow from the leaf's
            if "leaf_rate" in own and name not in own:
                setattr(cls, name, vars(Weighting)[name])
        if own & {"rate", "step", "leaf_rate", "concerns"}:
            cls.is_bound = cls.is_bound if "is_bound" in own else False
            cls.bound_share = cls.bound_share if "bound_share" in own else 0.0

    def rate(
        self, prediction: Prediction, process: Process, x0: AnyState, fast: bool = True, free: Tensor | None = None
    ) -> Float[Tensor, "batch"]:
        """`free`: the rows that are asked for, if not all; what the others get is finite and means nothing."""
        prediction = prediction.by_leaf()
        if isinstance(prediction, ProductPrediction):
            leaves = process.leaves
            parts = [self.rate(leaf, leaves[name], x0[name], fast, free) for name, leaf in prediction.leaves.items()]
            return torch.stack(parts).sum(0)
        if not self.concerns(prediction):
            return rate(prediction, process, x0, fast)
        return self.leaf_rate(prediction, process, x0, fast, free)

    def step(
        self, prediction: Prediction, process: Process, x0: AnyState, s: Float[Tensor, "batch"], fast: bool = True
    ) -> Float[Tensor, "batch"]:
        """What a step of a chain to the time s counts: its length times the rate where it starts."""
        prediction = prediction.by_leaf()
        if isinstance(prediction, ProductPrediction):
            leaves = process.leaves
            parts = [self.step(leaf, leaves[name], x0[name], s, fast) for name, leaf in prediction.leaves.items()]
            return torch.stack(parts).sum(0)
        if not self.concerns(prediction):
            return _step_kl(prediction, process, x0, s)
        return (prediction.t - s) * self.leaf_rate(prediction, process, x0, fast)  # type: ignore[operator]  # a leaf's time

    def concerns(self, prediction: Prediction) -> bool:
        """Whether it weighs a leaf with this prediction; if not, the leaf keeps the bound."""
        return True

    @abstractmethod
    def leaf_rate(
        self, prediction: Prediction, process: Process, x0: Tensor, fast: bool, free: Tensor | None = None
    ) -> Tensor:
        """The integrand of a leaf."""

    def __add__(self, other: "Weighting") -> "Sum":
        return Sum(self, other)

    def __mul__(self, factor: Any) -> "Scaled":
        return Scaled(self, factor)

    __rmul__ = __mul__


def _step_kl(prediction: Prediction, process: Process, x0: AnyState, s: Tensor) -> Tensor:
    return divergence(process.reverse(prediction.x_t, x0, prediction.t), prediction, s)


class Bound(Weighting):
    """Weight one: the loss is the bound."""

    is_bound = True
    bound_share = 1.0

    def leaf_rate(self, prediction, process, x0, fast, free=None):
        return rate(prediction, process, x0, fast)

    def step(self, prediction, process, x0, s, fast=True):
        return _step_kl(prediction, process, x0, s)


class Scaled(Weighting):
    """A factor times a weighting: `0.01 * CrossEntropy()`."""

    def __init__(self, weighting: Any, factor: Any):
        if not isinstance(weighting, Weighting):
            raise TypeError(f"{weighting!r} is no weighting: pass one, such as weightings.CrossEntropy()")
        if not isinstance(factor, int | float) or not 0 <= factor < float("inf"):
            raise ValueError(f"the factor {factor!r} of a weighting is not a number from 0 on: what is minimised would fall")
        self.weighting, self.factor = weighting, float(factor)
        self.is_bound = weighting.is_bound and self.factor == 1
        self.bound_share, self.even = self.factor * weighting.bound_share, weighting.even

    def rate(self, prediction, process, x0, fast=True, free=None):
        return self.factor * self.weighting.rate(prediction, process, x0, fast, free)

    def step(self, prediction, process, x0, s, fast=True):
        return self.factor * self.weighting.step(prediction, process, x0, s, fast)

    def leaf_rate(self, prediction, process, x0, fast, free=None):
        return self.rate(prediction, process, x0, fast, free)


class Sum(Weighting):
    """Several weightings added: `Sum(Bound(), 0.01 * CrossEntropy())`."""

    def __init__(self, *parts: Any):
        odd = [part for part in parts if not isinstance(part, Weighting)]
        if odd or not parts:
            what = f"{odd[0]!r} is no weighting" if odd else "a sum of nothing"
            raise TypeError(f"{what}: pass weightings, as in Sum(Bound(), 0.01 * CrossEntropy())")
        self.parts = parts
        self.is_bound = len(parts) == 1 and parts[0].is_bound
        self.bound_share, self.even = sum(part.bound_share for part in parts), all(part.even for part in parts)

    def rate(self, prediction, process, x0, fast=True, free=None):
        prediction = prediction.by_leaf()
        return reduce(add, [part.rate(prediction, process, x0, fast, free) for part in self.parts])

    def step(self, prediction, process, x0, s, fast=True):
        prediction = prediction.by_leaf()
        return reduce(add, [part.step(prediction, process, x0, s, fast) for part in self.parts])

    def leaf_rate(self, prediction, process, x0, fast, free=None):
        return self.rate(prediction, process, x0, fast, free)


class GaussianWeighting(Weighting):
    @abstractmethod
    def on_clean(self, schedule: Schedule, t: Tensor) -> Tensor:
        """The weight on |x_0 - x_model|^2, at each time: all that a weighting of one's own has to say."""

    def concerns(self, prediction):
        return isinstance(prediction, ContinuousPrediction)

    def leaf_rate(self, prediction, process, x0, fast, free=None):
        t, kind = prediction.t.clamp_max(LAST), type(prediction)
        own = self.on_clean(process.schedule, t)
        try:
            weight = process.coefficient(own, x0)
            if kind.tied_to_grid:
                return sum_coordinates(weight * (x0 - prediction.to(Clean).value).square())
            # |x_0 - x_model|^2 = |error|^2 / P^2 without dividing by alpha
            scale = squared_error_weight(kind, process.schedule, t) / squared_error_weight(Clean, process.schedule, t)
            return sum_coordinates(weight * process.coefficient(scale, x0) * prediction.error(x0).square())
        except (RuntimeError, AttributeError):
            one_per_time(own, t, f"{type(self).__name__}.on_clean", process.schedule.shape)  # which tells what is wrong
            raise


class Simple(GaussianWeighting):
    def on_clean(self, schedule, t):
        return schedule.log_snr(t).exp()


class X0(GaussianWeighting):
    def on_clean(self, schedule, t):
        return torch.ones_like(schedule.alpha(t))


class V(GaussianWeighting):
    def on_clean(self, schedule, t):
        sigma2 = schedule.sigma(t).square()
        return (schedule.alpha(t).square() + sigma2).square() / sigma2


class MinSNR(GaussianWeighting):
    def __init__(self, gamma: float = 5.0):
        self.gamma = gamma

    def on_clean(self, schedule, t):
        return schedule.log_snr(t).exp().clamp_max(self.gamma)


class EDMWeighting(GaussianWeighting):
    def __init__(self, data_std: float = 0.5):
        self.data_std = data_std

    def on_clean(self, schedule, t):
        return 1 / self.data_std**2 + schedule.log_snr(t).exp()


class SigmoidWeighting(GaussianWeighting):
    def __init__(self, bias: float = 0.0):
        self.bias = bias

    def on_clean(self, schedule, t):
        log_snr = schedule.log_snr(t)
        return torch.sigmoid(self.bias - log_snr) * squared_error_weight(Clean, schedule, t)


class Balanced(Weighting):
    def __init__(self, late: float = 8.0):
        self.late = late

    def concerns(self, prediction):
        return isinstance(prediction, ContinuousPrediction)

    def leaf_rate(self, prediction, process, x0, fast, free=None):
        own = rate(prediction.at(prediction.t.clamp_max(LAST)), process, x0, fast)
        error = V().leaf_rate(prediction, process, x0, fast)
        usual_error = usual(prediction.t, error.detach(), float(process.space.dimension), free)
        return (own + self.late * error) / usual_error.clamp_min(SMALLEST)


def usual(
    t: Float[Tensor, "batch"],
    error: Float[Tensor, "batch"],
    alone: float,
    free: Tensor | None = None,
    reach: int = NEIGHBOURS,
) -> Float[Tensor, "batch"]:
    """For each row the mean error of the `reach` rows just before it in time and as many after, itself left out, among the
    free rows of all processes together.  `alone` is for a row that has no such others."""
    rows = len(t)
    free = torch.ones_like(t) if free is None else free
    t, error, free = (gathered(value.double()) for value in (t, error, free))
    order = torch.where(free > 0, t, torch.inf).argsort()  # the free rows first
    error = torch.where(free > 0, error, 0.0)[order]
    sums = torch.cat([error.new_zeros(1), error.cumsum(0)])
    place = torch.arange(len(t), device=t.device)
    first, last = (place - reach).clamp_min(0), (place + reach + 1).minimum(free.sum().long())
    others = last - first - 1
    mean = torch.where(others > 0, (sums[last] - sums[first] - error) / others.clamp_min(1), alone)
    found = torch.empty_like(mean).scatter(0, order, mean)
    start = rank() * rows
    return found[start : start + rows]


class CrossEntropy(Weighting):
    """-log p(x_0^k | x_t) summed over the coordinates that can move.

    It is the law given all of x_t that is fitted: leave-one-out logits get their evidence first, or they would learn to
    contain it.  Under masking the evidence is constant.  Where vectors stand for categories (`codes.codebook`) it is
    -log p(x^k | z_t), which fits learned vectors too: it has them apart.
    """

    even = True

    def concerns(self, prediction):
        return isinstance(prediction, FinitePrediction | Codewords)

    def leaf_rate(self, prediction, process, x0, fast, free=None):
        if isinstance(prediction, Codewords):
            return sum_coordinates(prediction.nll(x0))
        moves = process.movable(prediction.x_t)
        if process.absorbing:
            posterior = prediction.to(Posterior)
            streamed = chosen_log_prob(posterior, x0, moves)
            if streamed is not None:
                return sum_coordinates(-streamed)
            if not visits_all(x0, process.space.size):
                own = -posterior.log_prob(x0, moves)
                return sum_coordinates(torch.zeros(x0.shape, dtype=own.dtype, device=x0.device).masked_scatter(moves, own))
            loss = -posterior.log_prob(x0)
        elif isinstance(prediction, Posterior):
            loss = -prediction.log_prob_given_all(x0)
        else:
            loss = -at(prediction.to(RawPosterior).log_probs(), x0).squeeze(-1)
        return sum_coordinates(torch.where(moves, loss, 0.0))


class LeafWeightings(Weighting):
    """A weighting per leaf of a product; leaves not named keep the bound."""

    def __init__(self, /, **leaves: Weighting):
        self.leaves = {name: instance_of(leaf, Weighting, name, "un.weightings.Simple()") for name, leaf in leaves.items()}

    def _each(self, prediction: Prediction) -> list[tuple[str, Prediction, Weighting]]:
        prediction = prediction.by_leaf()
        if not isinstance(prediction, ProductPrediction):
            raise TypeError("LeafWeightings(...) weighs the leaves of a product")
        unknown = [name for name in self.leaves if name not in prediction.leaves]
        if unknown:
            raise ValueError(f"LeafWeightings(...) weighs {unknown}; the leaves are {list(prediction.leaves)}")
        bound = Bound()
        return [(name, leaf, self.leaves.get(name, bound)) for name, leaf in prediction.leaves.items()]

    def rate(self, prediction, process, x0, fast=True, free=None):
        leaves = process.leaves
        parts = [own.rate(leaf, leaves[name], x0[name], fast, free) for name, leaf, own in self._each(prediction)]
        return torch.stack(parts).sum(0)

    def step(self, prediction, process, x0, s, fast=True):
        leaves = process.leaves
        parts = [own.step(leaf, leaves[name], x0[name], s, fast) for name, leaf, own in self._each(prediction)]
        return torch.stack(parts).sum(0)

    def leaf_rate(self, prediction, process, x0, fast, free=None):
        raise TypeError("LeafWeightings(...) weighs the leaves of a product")
