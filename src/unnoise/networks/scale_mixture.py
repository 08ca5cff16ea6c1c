"""A law fitted to rows of numbers in closed form: Gaussians of one shape and several scales, and its exact denoiser.

    x_0 ~ sum_k p_k N(m, s_k^2 C),    C = (1 - a) S + a diag(S),    S = U diag(l) U^T the scatter of the rows

Rows that are alike but louder or quieter (a hand at rest, and running) are such a mixture; with one scale it is the Gaussian
with the shrunk covariance.  Which of the two, and the shrinkage a, are those under which rows left out are likeliest; the
p_k are fitted to these rows too, since rows that a scatter was made of look small to it.

Under x_t = alpha x_0 + sigma eps, with d_k = alpha^2 s_k^2 l + sigma^2 and r = U^T (x_t - alpha m), the scales have
the weights w_k ~ p_k N(r; 0, d_k), and

    E[v | x_t] = -sigma m + U diag(sum_k w_k alpha sigma (1 - s_k^2 l)/d_k) r
    E[x_0 | x_t] = m + U diag(sum_k w_k alpha s_k^2 l/d_k) r.
"""

from dataclasses import dataclass
from math import log, pi

import torch
from torch import Tensor

from unnoise.shapes import Float

SCALES = 9
FOLDS = 5
SHRINKAGES = [10 ** (-k / 4) for k in range(25)]  # 1 ... 1e-6
ROUNDS = 50  # of the fit of the p_k
QUIETEST = 1e-3  # the least scale of a row


@dataclass(frozen=True)
class ScaleMixture:
    centre: Tensor  # m
    directions: Tensor  # U
    variances: Tensor  # l, shrunk
    scales: Tensor  # s_k
    log_weights: Tensor  # log p_k

    def nll(self, x: Float[Tensor, "rows size"]) -> Float[Tensor, "rows"]:
        q = ((x - self.centre) @ self.directions).square() / self.variances
        rest = self.variances.log().sum() + x.shape[1] * log(2 * pi)
        return -torch.logsumexp(self.log_weights + _log_laws(q.sum(1), rest, self.scales, x.shape[1]), 1)


@dataclass(frozen=True)
class _Scatter:
    """Mean, scales of coordinates and decomposed correlations of rows, each divided by its own scale if `even`."""

    mean: Tensor
    scale: Tensor
    e: Tensor
    vectors: Tensor

    @classmethod
    def of(cls, x: Tensor, even: bool) -> "_Scatter":
        weight = row_scales(x).pow(-2) if even else torch.ones_like(x[:, 0])
        mean = (weight.unsqueeze(1) * x).sum(0) / weight.sum()
        rows = (x - mean) * weight.sqrt().unsqueeze(1)
        scale = rows.square().mean(0).sqrt()
        scale = torch.where(scale > 1e-6, scale, 1.0)
        rows = rows / scale
        e, vectors = torch.linalg.eigh(rows.T @ rows / len(x))
        return cls(mean, scale, e.clamp_min(0.0), vectors)

    def rest(self, a: float) -> Tensor:
        return ((1 - a) * self.e + a).log().sum() + 2 * self.scale.log().sum() + len(self.e) * log(2 * pi)


def row_scales(x: Float[Tensor, "rows size"]) -> Float[Tensor, "rows"]:
    """How loud each row is, 1 on average."""
    spread = x.std(0, unbiased=False)
    z = (x - x.mean(0)) / torch.where(spread > 1e-6, spread, 1.0)
    return z.square().mean(1).sqrt().clamp_min(QUIETEST)


def fit_scale_mixture(x: Float[Tensor, "rows size"]) -> ScaleMixture:
    """Of rows in double precision."""
    loud = row_scales(x)
    spread = torch.logspace(float((loud.min() / 2).log10()), float((loud.max() * 2).log10()), SCALES, dtype=x.dtype)
    found = []
    for even, scales in ((False, torch.ones(SCALES, dtype=x.dtype)), (True, spread)):
        found += [(even, scales, a, *weighed) for a, weighed in _left_out(x, even, scales)]
    even, scales, a, log_weights, _ = min(found, key=lambda one: one[-1])
    scatter = _Scatter.of(x, even)
    covariance = (scatter.vectors * ((1 - a) * scatter.e + a)) @ scatter.vectors.T
    variances, directions = torch.linalg.eigh(covariance * scatter.scale * scatter.scale.unsqueeze(1))
    return ScaleMixture(scatter.mean, directions, variances.clamp_min(1e-12), scales, log_weights)


def shrunk_gaussian(x: Float[Tensor, "rows size"]) -> tuple[Tensor, Tensor]:
    """Mean and covariance (1 - a) S + a diag(S) of the rows, with the a under which rows left out are likeliest."""
    nats = {a: nats for a, (_, nats) in _left_out(x, False, torch.ones(1, dtype=x.dtype))}
    a, scatter = min(nats, key=lambda a: nats[a]), _Scatter.of(x, False)
    covariance = (scatter.vectors * ((1 - a) * scatter.e + a)) @ scatter.vectors.T
    return scatter.mean, covariance * scatter.scale * scatter.scale.unsqueeze(1)


def _left_out(x: Tensor, even: bool, scales: Tensor) -> list[tuple[float, tuple[Tensor, float]]]:
    """For every shrinkage: the weights of the scales that fit the rows left out best, and the nats of these rows."""
    part = torch.arange(len(x)) % min(FOLDS, len(x))
    laws = torch.zeros(len(SHRINKAGES), len(x), len(scales), dtype=x.dtype)
    for fold in part.unique():
        scatter = _Scatter.of(x[part != fold], even)
        r = (((x[part == fold] - scatter.mean) / scatter.scale) @ scatter.vectors).square()
        for i, a in enumerate(SHRINKAGES):
            q = (r / ((1 - a) * scatter.e + a)).sum(1)
            laws[i, part == fold] = _log_laws(q, scatter.rest(a), scales, x.shape[1])
    return [(a, _weights(law)) for a, law in zip(SHRINKAGES, laws, strict=True)]


def _log_laws(q: Tensor, rest: Tensor, scales: Tensor, size: int) -> Float[Tensor, "rows scales"]:
    return -0.5 * (q.unsqueeze(1) / scales.square() + rest) - size * scales.log()


def _weights(law: Float[Tensor, "rows scales"]) -> tuple[Tensor, float]:
    """Weights by expectation and maximisation, and the nats of the rows under them; a row more is spread over all scales."""
    count = law.shape[1]
    weights = torch.full_like(law[0], -log(count))
    for _ in range(ROUNDS):
        share = (law + weights).softmax(1).sum(0)
        weights = ((share + 1 / count) / (len(law) + 1)).log()
    return weights, float(-torch.logsumexp(law + weights, 1).sum())
