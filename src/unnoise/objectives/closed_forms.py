"""Fast paths of the divergence: closed forms of the rate for particular processes and predictions.

Each equals `divergence(process.reverse(x_t, x0, t), prediction)` and is tested against it.

    Gaussian x any kind    a weight times the squared error of that kind (eq:elbo-score-matching):
                           x0: -SNR'/2    eps: g^2/(2 sigma^2)    score: g^2/2
                           v: -SNR'/2 sigma^2/(alpha^2 + sigma^2)^2          u: 2/g^2
                           target a x_0 + b eps: g^2/2 (alpha/(sigma D))^2 with D = alpha b - sigma a
                           (correlated noise: of the whitened error L^-1 e, so that e . C^-1 e counts)
    Masking x Posterior    -alpha'/(1 - alpha) times the cross-entropy of the masked coordinates   (eq:mlm-ELBO)
    Uniform, Interpolation, Mixture x Posterior      one pass over the logits, streamed over row chunks; nothing K x K
    Thinning x Remaining   -alpha' [m - r + r log(r/m)] with r = (x_0 - x_t)/(1 - alpha) and m = exp(value)

A form is registered for a class of processes and a kind of predictions, `@closed_form.register(MyProcess, MyKind)`.  It
serves that very kind, and a subclass of the process as long as this redefines nothing of it (an `__init__` may be new): a
process with a kernel of its own is compared by its generators, never by a formula for another.

Score entropy in its three printed forms leaves out terms without the network (so none of them bounds anything):

    divergence = rate form + sum_y [R0 log R0 - R0] = ratio form + sum_y [R0 log(R0/R_t(x_t, y)) - R0]
"""

from collections.abc import Callable
from functools import cache
from typing import Any, Literal, TypeVar, cast

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unnoise.checks import constant_in_graphs
from unnoise.generators import divergence
from unnoise.kernels.head import head_terms
from unnoise.laws import LOG_ZERO, TINY, finite_or_inf, log_coefficient, log_of, sum_coordinates
from unnoise.objectives.rank_one_rows import divergence_of_rows, noise_rows, rank_one_rows
from unnoise.predictions import (
    Clean,
    ContinuousPrediction,
    FinitePrediction,
    Flow,
    Noise,
    Posterior,
    Prediction,
    ProductPrediction,
    Remaining,
    Score,
    Velocity,
)
from unnoise.predictions.linear_heads import SMALL_HEAD, chosen_log_prob, streamed_weights
from unnoise.processes import (
    FiniteProcess,
    Gaussian,
    Interpolation,
    Masking,
    Mixture,
    Process,
    RankOne,
    Thinning,
    Uniform,
)
from unnoise.schedules import Schedule
from unnoise.shapes import AnyState, Float

Form = TypeVar("Form", bound=Callable[..., Tensor])

CHUNK = 2**20  # logits held at once by the streamed uniform bound: 4 MiB of float32, about a core's share of cache
BETA = 1e-30  # below this beta counts as this


class ClosedForms:
    """Rates by formula, (prediction, x0) -> nats per row, by class of process and kind."""

    def __init__(self) -> None:
        self._forms: dict[tuple[type, type], Callable[..., Tensor]] = {}

    def register(self, process: type[Process], kind: type[Prediction]) -> Callable[[Form], Form]:
        def put(form: Form) -> Form:
            self._forms[process, kind] = form
            return form

        return put

    def of(self, process: type[Process], kind: type[Prediction]) -> Callable[..., Tensor] | None:
        """The form of a process and a kind, also of a process that it extends without redefining anything."""
        bases = _unchanged(cast(Any, process))
        return next((self._forms[base, kind] for base in bases if (base, kind) in self._forms), None)


NEUTRAL = {
    "__init__",
    "__module__",
    "__doc__",
    "__qualname__",
    "__annotations__",
    "__firstlineno__",
    "__static_attributes__",
}


@constant_in_graphs  # classes are not looked into while a graph is traced
def _unchanged(cls: Any) -> list[type]:
    """A class, and its bases up to the first of which something is redefined: names that are new change nothing."""
    return _known_unchanged(cls)


@cache
def _known_unchanged(cls: Any) -> list[type]:
    found, own = [cls], set(vars(cls)) - NEUTRAL
    for base in cls.__mro__[1:]:
        if own & {name for part in base.__mro__ for name in vars(part)}:
            return found
        found.append(base)
        own |= set(vars(base)) - NEUTRAL
    return found


closed_form = ClosedForms()


def squared_error_weight(kind: type[ContinuousPrediction], schedule: Schedule, t: Tensor) -> Tensor:
    """The bound's weight on the squared error of a kind: its own, or what follows from its coefficients."""
    return kind.squared_error_weight(schedule, t)


def squared_error_terms(prediction: ContinuousPrediction, x0: Tensor) -> Float[Tensor, "batch *shape"]:
    """The bound's rate of each coordinate (each whitened one, where the noise is correlated)."""
    process = prediction.process
    weight = squared_error_weight(type(prediction), process.schedule, prediction.t)
    return process.coefficient(weight, prediction.x_t) * process.whiten(prediction.error(x0)).square()


@closed_form.register(Gaussian, Clean)
@closed_form.register(Gaussian, Noise)
@closed_form.register(Gaussian, Score)
@closed_form.register(Gaussian, Velocity)
@closed_form.register(Gaussian, Flow)
def squared_error(prediction: ContinuousPrediction, x0: Tensor) -> Float[Tensor, "batch"]:
    """The bound's rate (eq:elbo-score-matching), which the truth minimises (eq:score-regression-apx)."""
    return sum_coordinates(squared_error_terms(prediction, x0))


def visits_all(x0: Tensor, size: int) -> bool:
    """Whether the head visits all coordinates; a traced graph has no shape for a list of some."""
    return torch.compiler.is_compiling() or (x0.device.type != "cpu" and size <= SMALL_HEAD)


@closed_form.register(Masking, Posterior)
def masked_cross_entropy(prediction: Posterior, x0: Tensor) -> Float[Tensor, "batch"]:
    """-alpha'/(1 - alpha) sum over masked k of -log theta(x_0^k).

    The head visits the masked coordinates only.  On an accelerator to pick them makes the host wait for the network, so
    there a small head visits all, and a large linear one leaves the others out by itself (`kernels.head`).
    """
    process, t = cast(Masking, prediction.process), prediction.t
    masked = process.movable(prediction.x_t)
    hazard = process.coefficient(-process.schedule.d_alpha(t) / process.schedule.beta(t), x0, torch.float64)
    streamed = chosen_log_prob(prediction, x0, masked)
    if streamed is not None:
        return sum_coordinates(torch.where(masked, hazard, 0.0) * -streamed)
    if visits_all(x0, process.space.size):
        return sum_coordinates(hazard * torch.where(masked, -prediction.log_prob(x0), 0.0))
    loss = -prediction.log_prob(x0, masked)
    weighted = hazard.expand(x0.shape)[masked] * loss
    row = torch.arange(x0.shape[0], device=x0.device).reshape(-1, *[1] * (x0.ndim - 1)).expand(x0.shape)[masked]
    return torch.zeros(x0.shape[0], dtype=weighted.dtype, device=x0.device).index_add(0, row, weighted)


@closed_form.register(Uniform, Posterior)
@closed_form.register(Interpolation, Posterior)
@closed_form.register(Mixture, Posterior)
def rank_one_divergence(prediction: Posterior, x0: Tensor) -> Float[Tensor, "batch"]:
    """The full divergence under rank-one noise, in one pass over the logits per row chunk.

    With p the noise law at t, o = alpha/beta, H(y) = p_y + o theta_y and G(y) = p_y + o [y = x_0], x = x_t and g = G(x), the
    rate into x from each y is r_x, and R_model = r_x H(y)/H(x), R0 = r_x G(y)/g.  Both sum to r_x (1 + o)/H(x) or /g, so

        divergence/r_x = (1 + o - H_x)/H_x + (1 + o - g)/g [log(H_x/g) - 1] + 1/g sum_{y != x} G log(G/H),

    and of the last sum only S = sum_y p_y log(1 + o theta_y/p_y) runs over all y.  A beta that rounds to 0 stands for a tiny
    one: x_t = x_0 there, and the divergence is that of o -> infinity.

    A large linear head under uniform noise gives theta at x_t and x_0 and K S = sum_y log(1 + o K theta_y) by itself, with
    their gradients (`kernels.head`).
    """
    process, t, x_t = cast(RankOne, prediction.process), prediction.t, prediction.x_t
    size = process.space.size
    alpha, beta = (process.coefficient(c, x0, torch.float64) for c in (process.schedule.alpha(t), process.schedule.beta(t)))
    beta = beta.clamp_min(BETA)
    odds = (alpha / beta).expand(x0.shape).flatten()
    p_x, p_x0 = ((process.log_fresh_at(x, None, t, torch.float64).exp() / beta).flatten() for x in (x_t, x0))
    features, head = prediction.features.flatten(0, x0.ndim - 1), prediction.head
    rate = process.log_jumps_at(x_t, t, torch.float64).exp()
    law, row_of = noise_rows(process, prediction, x0, beta)
    held = CHUNK if x0.device.type == "cpu" else 64 * CHUNK
    weights = streamed_weights(prediction, held) if law is None else None
    if weights is not None:
        ends = torch.stack([x_t.flatten(), x0.flatten()], -1)
        log_theta, total = head_terms(features, *weights, ends, scale=odds * size)
        at_x, at_x0 = log_theta.double().exp().unbind(-1)
        values = divergence_of_rows(x_t.flatten() == x0.flatten(), at_x, at_x0, total.double() / size, odds, p_x, p_x0)
        return sum_coordinates(rate * torch.where(rate > 0, values.reshape(x0.shape), 0.0))
    valid = process.space.valid(x0.device)
    rows_of_valid = None if valid is None else valid.expand(*x0.shape, size).reshape(-1, size)
    chunk = max(1, held // size)
    out = []
    for i in range(0, len(features), chunk):
        part = slice(i, i + chunk)
        arguments = (
            features[part],
            head,
            x_t.flatten()[part],
            x0.flatten()[part],
            odds[part],
            p_x[part],
            p_x0[part],
            law if law is None or row_of is None else law[row_of[part]],
            None if rows_of_valid is None else rows_of_valid[part],
        )
        streamed = torch.is_grad_enabled() and len(features) > chunk
        out.append(checkpoint(rank_one_rows, *arguments, use_reentrant=False) if streamed else rank_one_rows(*arguments))
    return sum_coordinates(rate * torch.where(rate > 0, torch.cat(out).reshape(x0.shape), 0.0))


@closed_form.register(Thinning, Remaining)
def remaining_divergence(prediction: Remaining, x0: Tensor) -> Float[Tensor, "batch"]:
    """-alpha' [m - r + r log(r/m)]: what a Poisson law of mean m pays for the number r, per unit of signal lost."""
    process, t, x_t = prediction.process, prediction.t, prediction.x_t
    speed, beta = (process.coefficient(c, x_t) for c in (-process.schedule.d_alpha(t), process.schedule.beta(t)))
    left, value = (x0 - x_t).clamp_min(0).double(), prediction.value.double()
    r = left / beta.clamp_min(TINY)
    terms = speed * (value.exp() - r + r * (log_of(left) - log_coefficient(beta) - value))
    return finite_or_inf(sum_coordinates(terms), 1e20)


def rate(prediction: Prediction, process: Process, x0: AnyState, fast: bool = True) -> Float[Tensor, "batch"]:
    """The bound's integrand: the closed form where there is one, else the divergence of the generators."""
    prediction = prediction.by_leaf()
    if isinstance(prediction, ProductPrediction):
        leaves = process.leaves
        parts = [rate(leaf, leaves[name], x0[name], fast) for name, leaf in prediction.leaves.items()]
        return torch.stack(parts).sum(0)
    closed = closed_form.of(type(process), type(prediction)) if fast else None
    if fast and closed is None and _by_coefficients(process, prediction):
        closed = squared_error  # a kind of one's own
    if closed is not None:
        return closed(prediction, x0)
    return divergence(process.reverse(prediction.x_t, x0, prediction.t), prediction)


def _by_coefficients(process: Process, prediction: Prediction) -> bool:
    """Whether a kind is given by its two coefficients, under a process whose squared errors are known."""
    plain = isinstance(prediction, ContinuousPrediction) and not prediction.tied_to_grid
    return plain and closed_form.of(type(process), Clean) is squared_error


Printed = Literal["rate", "ratio", "posterior"]


def _score_entropy_parts(process: FiniteProcess, prediction: FinitePrediction, x0: Tensor):
    log_true = process.reverse(prediction.x_t, x0, prediction.t).local().log_rates  # type: ignore[union-attr]
    into = process.log_rates_into(prediction.x_t, prediction.t)
    return log_true, into, into > LOG_ZERO / 2


def score_entropy(prediction: FinitePrediction, x0: Tensor, form: Printed = "rate") -> Float[Tensor, "batch"]:
    """Denoising score entropy as printed: the rate form (eq:seq-elbo), or the ratio and posterior forms.

    It is summed over coordinates: eq:token-elbo, and eq:token-posterior-ELBO where the model says a posterior.
    """
    log_true, into, moves = _score_entropy_parts(prediction.process, prediction, x0)
    log_model = cast(Tensor, prediction.local().log_rates)
    weighted = log_model if form == "rate" else torch.where(moves, log_model - into, 0.0)
    return sum_coordinates((log_model.exp() - log_true.exp() * weighted).sum(-1))


def score_entropy_constant(prediction: FinitePrediction, x0: Tensor, form: Printed = "rate") -> Float[Tensor, "batch"]:
    """What the divergence has and the printed score entropy lacks; free of the network."""
    log_true, into, moves = _score_entropy_parts(prediction.process, prediction, x0)
    weighted = log_true if form == "rate" else torch.where(moves, log_true - into, 0.0)
    return sum_coordinates((log_true.exp() * (weighted - 1)).sum(-1))
