"""Fast paths of the divergence: closed forms of the rate for particular processes and predictions.

Each equals `divergence(process.reverse(x_t, x0, t), prediction)` and is tested against it.

    Gaussian x any kind    a weight times the squared error of that kind:
                           x0: -SNR'/2    eps: g^2/(2 sigma^2)    score: g^2/2
                           v: -SNR'/2 sigma^2/(alpha^2 + sigma^2)^2          u: 2/g^2
    Masking x Posterior    -alpha'/(1 - alpha) times the cross-entropy of the masked coordinates   (eq:mlm-ELBO)
    Uniform x Posterior    one pass over the logits, streamed over row chunks; nothing of size K x K

Score entropy in its three printed forms leaves out terms without the network (so none of them bounds anything):

    divergence = rate form + sum_y [R0 log R0 - R0] = ratio form + sum_y [R0 log(R0/R_t(x_t, y)) - R0]
"""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unnoise.generators import divergence
from unnoise.laws import LOG_ZERO, sum_coordinates
from unnoise.predictions import (
    Clean,
    ContinuousPrediction,
    FinitePrediction,
    Flow,
    Noise,
    Posterior,
    Prediction,
    ProductPrediction,
    Score,
    Velocity,
)
from unnoise.processes import FiniteProcess, Gaussian, Masking, Process, Product, Uniform
from unnoise.schedules import Schedule
from unnoise.shapes import Float, Tree

CHUNK = 2**20  # logits held at once by the streamed uniform bound: 4 MiB of float32, about a core's share of cache


def squared_error_weight(kind: type[ContinuousPrediction], schedule: Schedule, t: Tensor) -> Tensor:
    """The bound's weight on the squared error of a kind."""
    g2, alpha, sigma = schedule.diffusion(t), schedule.alpha(t), schedule.sigma(t)
    if kind is Score:
        return 0.5 * g2
    if kind is Noise:
        return 0.5 * g2 / sigma.square()
    if kind is Flow:
        return 2 / g2
    half_snr_slope = 0.5 * g2 * (alpha / sigma.square()).square()  # -SNR'/2
    if kind is Clean:
        return half_snr_slope
    if kind is Velocity:
        return half_snr_slope * (sigma / (alpha.square() + sigma.square())).square()
    raise TypeError(f"{kind.__name__} has no continuous-time squared error")


def squared_error_terms(prediction: ContinuousPrediction, x0: Tensor) -> Float[Tensor, "batch *shape"]:
    """The bound's rate of each coordinate."""
    process, kind = prediction.process, type(prediction)
    weight = squared_error_weight(kind, process.schedule, prediction.t)
    target = kind.target(process, x0, prediction.x_t, prediction.t)
    return process.coefficient(weight, prediction.x_t) * (target - prediction.value).square()


def squared_error(prediction: ContinuousPrediction, x0: Tensor) -> Float[Tensor, "batch"]:
    return sum_coordinates(squared_error_terms(prediction, x0))


def masked_cross_entropy(prediction: Posterior, x0: Tensor) -> Float[Tensor, "batch"]:
    """-alpha'/(1 - alpha) sum over masked k of -log theta(x_0^k); visits the masked rows only."""
    process, t = prediction.process, prediction.t
    assert isinstance(process, Masking)
    masked = process.movable(prediction.x_t)
    hazard = process.coefficient(-process.schedule.d_alpha(t) / process.schedule.beta(t), x0, torch.float64)
    loss = -prediction.log_prob(x0, masked)
    weighted = hazard.expand(x0.shape)[masked] * loss
    row = torch.arange(x0.shape[0], device=x0.device).reshape(-1, *[1] * (x0.ndim - 1)).expand(x0.shape)[masked]
    return torch.zeros(x0.shape[0], dtype=weighted.dtype, device=x0.device).index_add(0, row, weighted)


def uniform_divergence(prediction: Posterior, x0: Tensor) -> Float[Tensor, "batch"]:
    """The full divergence under uniform noise in one pass per row chunk.

    With c = 1 + K alpha/beta and h(y) = m(y) K/beta = 1 + (c - 1) theta_y, and r = -alpha'/(alpha K) the rate into x_t from
    each y, R0/r is 1/c for all y if x_t = x_0, else c at y = x_0 and 1 elsewhere, and R_model/r = h(y)/h(x_t).
    """
    process, t, x_t = prediction.process, prediction.t, prediction.x_t
    assert isinstance(process, Uniform)
    k = process.sizes(x0.device).double()
    alpha, beta, slope = (
        process.coefficient(c, x0, torch.float64)
        for c in (process.schedule.alpha(t), process.schedule.beta(t), -process.schedule.d_alpha(t))
    )
    odds, rate = (k * alpha / beta).expand(x0.shape).flatten(), (slope / alpha / k).expand(x0.shape).flatten()
    k = k.expand(x0.shape).flatten()
    valid = process.space.valid(x0.device)
    rows_of_valid = None if valid is None else valid.expand(*x0.shape, valid.shape[-1]).reshape(-1, valid.shape[-1])
    features = prediction.features.flatten(0, x0.ndim - 1)
    head = prediction.head
    chunk = max(1, (CHUNK if x0.device.type == "cpu" else 64 * CHUNK) // process.space.size)
    out = []
    for i in range(0, len(features), chunk):
        part = slice(i, i + chunk)
        arguments = (
            features[part],
            head,
            x_t.flatten()[part],
            x0.flatten()[part],
            odds[part],
            k[part],
            None if rows_of_valid is None else rows_of_valid[part],
        )
        streamed = torch.is_grad_enabled() and len(features) > chunk
        value = checkpoint(_uniform_rows, *arguments, use_reentrant=False) if streamed else _uniform_rows(*arguments)
        out.append(value)
    return sum_coordinates((torch.cat(out) * rate).reshape(x0.shape))


def _uniform_rows(features, head, x_t, x0, odds, k, valid) -> Tensor:
    """Divergence / r for each row of a chunk, in float64 from one pass over its logits."""
    logits = features if head is None else head(features)
    logits = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    if valid is not None:
        logits = torch.where(valid, logits, LOG_ZERO)
    theta = logits.softmax(-1)
    at_x, at_x0 = (theta.gather(-1, i.unsqueeze(-1)).squeeze(-1).double() for i in (x_t, x0))
    scaled = theta * odds.to(theta.dtype).unsqueeze(-1)
    if torch.is_grad_enabled() and scaled.requires_grad:
        log_h = scaled.log1p().sum(-1, dtype=torch.float64)
    else:
        log_h = scaled.log1p_().sum(-1).double()
    h_x = 1 + odds * at_x
    log_x, log_x0 = h_x.log(), (odds * at_x0).log1p()
    model = (k + odds - h_x) / h_x  # sum over y != x_t of h(y)/h(x_t), as sum_y h(y) = K + odds
    c = 1 + odds
    moved = model - (k - 2) - c + c * c.log() - (log_h - log_x - log_x0 + c * log_x0 - (k - 2 + c) * log_x)
    stayed = model - (k - 1) / c * (1 + c.log()) - (log_h - log_x - (k - 1) * log_x) / c
    return torch.where(x_t == x0, stayed, moved)


CLOSED_FORMS: dict[tuple[type, type], Callable[..., Tensor]] = {
    **{(Gaussian, kind): squared_error for kind in (Clean, Noise, Score, Velocity, Flow)},
    (Masking, Posterior): masked_cross_entropy,
    (Uniform, Posterior): uniform_divergence,
}


def rate(prediction: Prediction, process: Process, x0: Tree, fast: bool = True) -> Float[Tensor, "batch"]:
    """The bound's integrand: the closed form where there is one, else the divergence of the generators."""
    if isinstance(prediction, ProductPrediction) and isinstance(process, Product):
        leaves = process.leaves
        parts = [rate(leaf, leaves[name], x0[name], fast) for name, leaf in prediction.leaves.items()]
        return torch.stack(parts).sum(0)
    closed = CLOSED_FORMS.get((type(process), type(prediction))) if fast else None
    if closed is not None:
        return closed(prediction, x0)
    return divergence(process.reverse(prediction.x_t, x0, prediction.t), prediction)


Form = Literal["rate", "ratio", "posterior"]


def _score_entropy_parts(process: FiniteProcess, prediction: FinitePrediction, x0: Tensor):
    log_true = process.reverse(prediction.x_t, x0, prediction.t).local().log_rates
    into = process.log_rates_into(prediction.x_t, prediction.t)
    return log_true, into, into > LOG_ZERO / 2


def score_entropy(prediction: FinitePrediction, x0: Tensor, form: Form = "rate") -> Float[Tensor, "batch"]:
    """Denoising score entropy as printed: the rate form (eq:seq-elbo), or the ratio and posterior forms."""
    log_true, into, moves = _score_entropy_parts(prediction.process, prediction, x0)
    log_model = prediction.local().log_rates
    assert log_model is not None
    weighted = log_model if form == "rate" else torch.where(moves, log_model - into, 0.0)
    return sum_coordinates((log_model.exp() - log_true.exp() * weighted).sum(-1))


def score_entropy_constant(prediction: FinitePrediction, x0: Tensor, form: Form = "rate") -> Float[Tensor, "batch"]:
    """What the divergence has and the printed score entropy lacks; free of the network."""
    log_true, into, moves = _score_entropy_parts(prediction.process, prediction, x0)
    weighted = log_true if form == "rate" else torch.where(moves, log_true - into, 0.0)
    return sum_coordinates((log_true.exp() * (weighted - 1)).sum(-1))
