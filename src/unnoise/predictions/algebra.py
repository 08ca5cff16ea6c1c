"""Predictions form an algebra: combined with weights, tilted, moved to another time, given another value.

**combine([p, q], [w, v])** is the prediction of the law proportional to q_p^w q_q^v at time t, as far as numbers at one
state tell: scores add with their weights, and so do logarithms of ratios.

Numbers.  A value of the kind a x_0 + b eps is (a/alpha) x_t + B (C score) with B free of the data, so for sum_i w_i score_i

    value = sum_i w_i value_i + (1 - W) (a/alpha) x_t,       W = sum_i w_i.

Where W = 1 this is the same linear combination in every kind.  Elsewhere it is that of the scores, and a plain combination
of the values would mean another law in each kind.  Where alpha = 0 the last term does not exist (all scores are those of
the noise, and their sum is the score of none): there the values are combined in the kind given.

Categories.  Log-linear: log-probabilities (`Posterior`), ratios, logits of a kernel.  A rate is a ratio times the forward
rate and a raw posterior a leave-one-out one times the evidence, both of which count once whatever W is:

    log rate = sum_i w_i log rate_i + (1 - W) log R_t,       log raw = sum_i w_i log raw_i + (1 - W) log q(x_t^k | a).

What one of them holds for impossible stays so.

Counts.  Log-linear in ratios, and where W = 1 in intensities: a geometric mean of Poisson laws is the Poisson law of the
geometric mean.  Elsewhere intensities are combined by way of their ratios, where that conversion exists.

Scores on closed spaces add, in any units.

Energies add as functions.  Products are combined leaf by leaf.

**tilt(p, by)** is the prediction of q_t h, for a factor h of the state:

    numbers      by = grad log h(x_t):                      score + by; on closed spaces likewise
    categories   by = log h of every value:                 logits + by; ratios and rates + by(y) - by(x_t)
    counts       by = (log h(x_t - 1)/h(x_t), log h(x_t + 1)/h(x_t)):   log-ratios + by
    energies     by = a function of (states, rows):         energy + by
    products     by = a dict by leaf; leaves that are not named stay as they are

Both are open functions of the class of a prediction: `combine_leaf.register(MyKind)`, `tilt.register(MyKind)`.
A conversion that does not exist raises `InexactConversion`.
"""

from collections.abc import Mapping, Sequence
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import may_read
from unnoise.laws import LOG_ZERO, TINY
from unnoise.predictions.base import Prediction, check_shape, refuse
from unnoise.predictions.continuous import ContinuousPrediction, Score
from unnoise.predictions.counts import CountPrediction, CountRatio, Remaining
from unnoise.predictions.energy import Energy
from unnoise.predictions.finite import FinitePrediction, Posterior, Rates, Ratio, RawPosterior
from unnoise.predictions.heat import HeatPrediction
from unnoise.predictions.product import ProductPrediction
from unnoise.shapes import Tree
from unnoise.tree import leaves

Weight = float | Tensor  # a number, or one per row
CLOSE = 1e-9  # to 1, of weights whose sum is meant to be
BY = "the `by` of a tilt"


def combine(predictions: Sequence[Prediction], weights: Any) -> Prediction:
    """The predictions of one state and time with weights, in the kind of the first; the others are converted to it.

    `weights` has a number (or a tensor with one per row) for each; on a product it may be a dict of such lists by leaf.
    """
    if not predictions:
        raise ValueError("there are no predictions to combine: pass at least one")
    if not all(prediction.joint for prediction in predictions):
        predictions = [prediction.by_leaf() for prediction in predictions]
    first = predictions[0]
    for other in predictions[1:]:
        _check_same(first, other)
    if isinstance(first, ProductPrediction):
        return _combine_product(first, predictions, weights)
    if isinstance(weights, Mapping) or len(weights) != len(predictions):
        count = f"weights by leaf {sorted(weights)}" if isinstance(weights, Mapping) else f"{len(weights)} weights"
        raise ValueError(f"{count} for {len(predictions)} predictions of {type(first.process).__name__}: pass one for each")
    return combine_leaf(first, predictions, list(weights))


def _combine_product(first: ProductPrediction, predictions: Sequence[Any], weights: Any) -> ProductPrediction:
    if isinstance(weights, Mapping) and sorted(weights) != sorted(first.leaves):
        raise ValueError(f"weights by leaf name {sorted(weights)}; the leaves are {sorted(first.leaves)}")
    combined = {
        name: combine([p.leaves[name] for p in predictions], weights[name] if isinstance(weights, Mapping) else weights)
        for name in first.leaves
    }
    return ProductPrediction(combined, first.process, first.x_t, first.t)


def _check_same(first: Prediction, other: Prediction) -> None:
    if other.process is not first.process:
        raise ValueError(
            f"a prediction of {type(first.process).__name__} and one of {type(other.process).__name__} that is another "
            f"process: combine predictions of one process object"
        )
    for name, mine, others in (("x_t", first.x_t, other.x_t), ("t", first.t, other.t)):
        for a, b in zip(leaves(mine), leaves(others), strict=True):
            if a is not b and (a.shape != b.shape or (may_read(a) and not torch.equal(a, b))):
                raise ValueError(f"predictions at different {name} are of different laws: ask them at one state and time")


def _rows(weight: Weight, value: Tensor) -> Weight:
    """A weight, shaped to multiply a value."""
    if not isinstance(weight, Tensor) or not weight.ndim:
        return weight
    return weight.reshape(-1, *[1] * (value.ndim - 1)).to(value.dtype)


def _rest(weights: Sequence[Weight]) -> Weight:
    """1 - W, and 0 where W is 1 but for rounding."""
    rest = 1 - sum(weights)
    if isinstance(rest, Tensor):
        return torch.where(rest.abs() < CLOSE, 0.0, rest)
    return 0.0 if abs(rest) < CLOSE else rest


def _none(rest: Weight) -> bool:
    """Whether there is nothing left, as is known without looking at a tensor."""
    return not isinstance(rest, Tensor) and rest == 0


def _sum(values: Sequence[Tensor], weights: Sequence[Weight]) -> Tensor:
    terms = [_rows(weight, value) * value for value, weight in zip(values, weights, strict=True)]
    return torch.stack(torch.broadcast_tensors(*terms)).sum(0)  # type: ignore[arg-type]


def _log_sum(values: Sequence[Tensor], weights: Sequence[Weight]) -> Tensor:
    """The same of logarithms; what one of them holds for impossible stays so."""
    impossible = torch.stack([value <= LOG_ZERO / 2 for value in values]).any(0)
    return torch.where(impossible, LOG_ZERO, _sum([v.clamp_min(LOG_ZERO / 2) for v in values], weights))


@singledispatch
def combine_leaf(first: Prediction, predictions: Sequence[Prediction], weights: list[Weight]) -> Prediction:
    """`combine` on a leaf."""
    name = type(first).__name__
    raise TypeError(f"it is not known how {name}s are combined: write unnoise.predictions.combine_leaf.register({name})")


@combine_leaf.register(ContinuousPrediction)
def _(first: ContinuousPrediction, predictions, weights):
    values, rest = [_like(first, p).value for p in predictions], _rest(weights)
    value = _sum(values, weights)
    if not _none(rest):
        alpha = first.process.schedule.alpha(first.t)
        on_x_t = torch.where(alpha > TINY, first.coefficients()[0] / alpha.clamp_min(TINY), 0.0)
        linear = _rows(rest, value) * first.process.coefficient(on_x_t, first.x_t) * first.x_t
        value = value + first.from_linear(first.process, linear)
    return first.with_value(value)


@combine_leaf.register(FinitePrediction)
def _(first: FinitePrediction, predictions, weights):
    return first.with_value(_log_sum([_like(first, p).value for p in predictions], weights))


@combine_leaf.register(Posterior)
def _(first: Posterior, predictions, weights):
    laws = [_like(first, p) for p in predictions]
    return first.with_value(_log_sum([p._log_softmax(p.logits) for p in laws], weights))


@combine_leaf.register(RawPosterior)
def _(first: RawPosterior, predictions, weights):
    laws, rest = [_like(first, p) for p in predictions], _rest(weights)
    value = _log_sum([p._log_softmax(p.value) for p in laws], weights)
    if not _none(rest):
        evidence = first.process.log_evidence(first.x_t, None, first.t)[..., : value.shape[-1]]
        value = torch.where(evidence > LOG_ZERO / 2, value + _rows(rest, value) * evidence, LOG_ZERO)
    return first.with_value(value)


@combine_leaf.register(Rates)
def _(first: Rates, predictions, weights):
    values, rest = [first.process.widen(_like(first, p).value) for p in predictions], _rest(weights)
    value = _log_sum(values, weights)
    if not _none(rest):
        into = first.process.log_rates_into(first.x_t, first.t)
        value = torch.where(into > LOG_ZERO / 2, value + _rows(rest, value) * into, LOG_ZERO)
    return first.with_value(value)


@combine_leaf.register(Ratio)
def _(first: Ratio, predictions, weights):
    return first.with_value(_log_sum([first.process.widen(_like(first, p).value) for p in predictions], weights))


@combine_leaf.register(CountPrediction)
def _(first: CountPrediction, predictions, weights):
    if any(isinstance(weight, Tensor) and weight.ndim for weight in weights):
        raise TypeError(f"weights for each row on a {type(first).__name__}: counts are combined with plain numbers")
    nothing_left = bool((first.process.survival(first.x_t, None, first.t)[0] <= TINY).all()) if may_read(first.t) else False
    if type(first) is CountRatio or _none(_rest([float(weight) for weight in weights])) or nothing_left:
        return first.with_value(_log_sum([_like(first, p).value for p in predictions], weights))
    return combine_leaf(first.to(CountRatio), predictions, weights).to(type(first))


@combine_leaf.register(HeatPrediction)
def _(first: HeatPrediction, predictions, weights):
    return first.with_value(_sum([_like(first, p).value for p in predictions], weights))


@combine_leaf.register(Energy)
def _(first: Energy, predictions, weights):
    def total(x: Tree, rows: Tensor | None) -> Tensor:
        own = [w[rows] if isinstance(w, Tensor) and w.ndim and rows is not None else w for w in weights]
        return _sum([p.function(x, rows) for p in predictions], own)

    return Energy(total, first.process, first.x_t, first.t, first.variance)


def _like(first: Any, other: Prediction) -> Any:
    """The other prediction as the kind of the first."""
    if type(other) is type(first):
        return other
    return other.to(type(first), **({"s": first.s} if first.tied_to_grid else {}))


@singledispatch
def tilt(prediction: Prediction, by: Any) -> Any:
    """The prediction of the law q_t h: see above what `by` is in each space."""
    name = type(prediction).__name__
    raise TypeError(f"it is not known how a {name} is tilted: write unnoise.predictions.tilt.register({name})")


@tilt.register(ContinuousPrediction)
def _(prediction: ContinuousPrediction, by):
    """value + B C by, B = -sigma D/alpha: -sigma for the noise, 1 for the score, sigma^2/alpha for x_0."""
    check_shape(by, prediction.shapes(prediction.process, prediction.x_t), BY, spread=True)
    process, t = prediction.process, prediction.t
    alpha = process.schedule.alpha(t).clamp_min(TINY)
    factor = -process.schedule.sigma(t) * prediction.determinant() / alpha
    if may_read(factor) and not bool((factor.abs() < 1e100).all()):
        raise refuse(prediction, Score, "alpha_t = 0 here, where a score says nothing of x_0: tilt a Noise, or at t < 1")
    c_by = Score.to_linear(process, by)
    return prediction.with_value(
        prediction.value + prediction.from_linear(process, process.coefficient(factor, prediction.x_t) * c_by)
    )


@tilt.register(FinitePrediction)
def _(prediction: FinitePrediction, by):
    check_shape(by, [tuple(prediction.value.shape)], BY, spread=True)
    return prediction.with_value(prediction.value + by)


@tilt.register(Ratio)
@tilt.register(Rates)
def _(prediction: Any, by):
    process, x_t = prediction.process, prediction.x_t
    check_shape(by, prediction.shapes(process, x_t), BY, spread=True)
    missing = process.state_space.size - by.shape[-1]
    by = torch.nn.functional.pad(by, (0, missing)).expand(*x_t.shape, -1)  # h = 1 of the states that noise adds
    return prediction.with_value(process.widen(prediction.value) + by - by.gather(-1, x_t.unsqueeze(-1)))


@tilt.register(CountPrediction)
def _(prediction: CountPrediction, by):
    check_shape(by, [(*prediction.x_t.shape, 2)], BY, spread=True)
    if isinstance(prediction, Remaining):
        return prediction.with_value(prediction.value + by[..., 1])
    if isinstance(prediction, CountRatio) or prediction.process.pure_death:
        return prediction.with_value(prediction.value + by)
    return tilt(prediction.to(CountRatio), by).to(type(prediction))


@tilt.register(HeatPrediction)
def _(prediction: HeatPrediction, by):
    """The score of q_t h is the sum of both."""
    check_shape(by, prediction.shapes(prediction.process, prediction.x_t), BY, spread=True)
    return prediction.of_score(prediction.score() + by, prediction.process, prediction.x_t, prediction.t)


@tilt.register(Energy)
def _(prediction: Energy, by):
    if not callable(by):
        raise TypeError(f"an Energy is tilted by a function of (states, rows), not a {type(by).__name__}")

    def total(x: Tree, rows: Tensor | None) -> Tensor:
        return prediction.function(x, rows) + by(x, rows)

    return Energy(total, prediction.process, prediction.x_t, prediction.t, prediction.variance)


@tilt.register(ProductPrediction)
def _(prediction: ProductPrediction, by):
    unknown = [name for name in by if name not in prediction.leaves]
    if unknown:
        raise ValueError(f"there is no leaf {unknown} to tilt; the leaves are {list(prediction.leaves)}")
    tilted = {name: tilt(leaf, by[name]) if name in by else leaf for name, leaf in prediction.leaves.items()}
    return ProductPrediction(tilted, prediction.process, prediction.x_t, prediction.t)
