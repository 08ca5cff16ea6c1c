"""Gamma and Dirichlet laws, drawn from a keyed source of noise.

Marsaglia and Tsang: with d = a - 1/3, c = 1/sqrt(9 d) and a normal z,

    d v,  v = (1 + c z)^3,     is kept with probability  min(1, exp(z^2/2 + d - d v + d log v)),

at least 0.95 of the time for a >= 1, else drawn anew under the next key; below a = 1 it is Gamma(a + 1) U^{1/a}, in
logarithms.  A Dirichlet law is that of independent Gamma numbers over their sum; its density is of the first size - 1
coordinates.
"""

import torch
from torch import Tensor

from unnoise.laws import Law, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.shapes import Float

LEAST = 1e-30  # the smallest entry of a composition, and the smallest number drawn
MOST_TRIES = 64  # of a draw, each kept with probability 0.95 and more


def draw_log_gamma(shape: Float[Tensor, "batch *entries"], noise: NoiseSource) -> Float[Tensor, "batch *entries"]:
    """log of Gamma(shape, 1), float64, entry by entry."""
    a = shape.double()
    small, form = a < 1, tuple(a.shape[1:])
    raised = torch.where(small, a + 1, a)
    drawn = _tried(raised, noise)
    if bool(small.any()):
        drawn = torch.where(small, drawn + noise.at("small").uniform(form).log() / a.clamp_min(LEAST), drawn)
    return drawn


def _tried(a: Tensor, noise: NoiseSource) -> Tensor:
    form = tuple(a.shape[1:])
    d = a - 1 / 3
    kept = d.log()
    left = torch.arange(len(a), device=a.device)
    for attempt in range(MOST_TRIES):
        source, d_ = noise.of(left).at(attempt), d[left]
        z = source.at("z").normal(form)
        v = (1 + z / (9 * d_).sqrt()) ** 3
        log_v = v.clamp_min(1e-300).log()
        fits = (v > 0) & (source.at("u").uniform(form).log() < 0.5 * z.square() + d_ - d_ * v + d_ * log_v)
        if attempt == 0:
            kept, waiting = torch.where(fits, kept + log_v, kept), ~fits
        else:
            now = fits & waiting[left]
            kept[left] = torch.where(now, kept[left] + log_v, kept[left])
            waiting[left] = waiting[left] & ~fits
        left = (waiting.flatten(1).any(1) if a.ndim > 1 else waiting).nonzero()[:, 0]
        if not len(left):
            break
    return kept


class Dirichlet(Law):
    """Compositions [batch, size] with the parameters `alpha` [batch, size], as a density of the first size - 1 entries."""

    def __init__(self, alpha: Float[Tensor, "batch size"], like: Tensor):
        self.alpha, self.like = alpha.double(), like

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        total = torch.lgamma(self.alpha.sum(-1)) - torch.lgamma(self.alpha).sum(-1)
        return total + ((self.alpha - 1) * x.double().clamp_min(LEAST).log()).sum(-1)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, Dirichlet):
            raise TypeError(f"a Dirichlet law is compared with a {type(other).__name__}, which is none")
        a, b = self.alpha, other.alpha
        surplus = ((a - b) * (torch.digamma(a) - torch.digamma(a.sum(-1, keepdim=True)))).sum(-1)
        own = torch.lgamma(a.sum(-1)) - torch.lgamma(a).sum(-1)
        return own - torch.lgamma(b.sum(-1)) + torch.lgamma(b).sum(-1) + surplus

    def draw(self, noise: NoiseSource) -> Tensor:
        x = draw_log_gamma(self.alpha, noise).softmax(-1).clamp_min(LEAST)
        return x.to(self.like.dtype)


class GammaLaw(Law):
    """Independent numbers of the law Gamma(shape, scale)."""

    def __init__(self, shape: Tensor, scale: float | Tensor, like: Tensor):
        self.like = like
        self.shape = torch.as_tensor(shape, dtype=torch.float64, device=like.device).expand(like.shape)
        self.scale = torch.as_tensor(scale, dtype=torch.float64, device=like.device)

    def log_probs(self, x: Tensor) -> Float[Tensor, "batch *shape"]:
        z = x.double().clamp_min(LEAST) / self.scale
        return (self.shape - 1) * z.log() - z - torch.lgamma(self.shape) - self.scale.log()

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return sum_coordinates(self.each(x))

    def each(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.log_probs(x)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, GammaLaw):
            raise TypeError(f"a Gamma law is compared with a {type(other).__name__}, which is none")
        a, b, ratio = self.shape, other.shape, self.scale / other.scale
        value = (a - b) * torch.digamma(a) - torch.lgamma(a) + torch.lgamma(b) - b * ratio.log() + a * (ratio - 1)
        return sum_coordinates(value)

    def draw(self, noise: NoiseSource) -> Tensor:
        return (draw_log_gamma(self.shape, noise).exp() * self.scale).clamp_min(LEAST).to(self.like.dtype)
