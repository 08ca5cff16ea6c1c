"""A noised corner of the simplex, softened: z = argmax w and the weights softmax(w/tau), w = a e_x + s eps.

With a^2 + s^2 = 1 and mu = a/s, so s = 1/sqrt(1 + mu^2).  Either all K entries are drawn (`dense`), or the true one and
the k largest of the others (`sparse`), by order statistics: of n = K - 1 uniform numbers the largest has log U_1 =
log(u_1)/n, the next log U_2 = log U_1 + log(u_2)/(n - 1), and so on, and eps is the normal quantile of each, taken in the
upper tail.  Which tokens they belong to is a random sequence of distinct ids other than x: a random set (Floyd's) in
random order.  The order counts: z is the first of them, and Floyd's own sequence is no fair one.

z is x where the true entry is the largest, and nowhere else.  That it is among the k largest happens more often (at K = 27,
k = 2 and mu = 2 with .666 for .510), and a z drawn so has another alpha than the loss has.

The n - k entries that are not drawn lie below c, the least of those that are, and independently of all else.  In the
softmax stands their expectation, s' = s/tau,

    (n - k) E[e^(s' v) | v < c] = (n - k) exp(s'^2/2) Phi(c - s')/Phi(c),

dealt out evenly among their tokens.  At tau = 0 all weight is on z, in both.
"""

from dataclasses import dataclass
from math import log

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Float, Int

COLDEST = 1e-6  # a temperature below this is 0


@dataclass(frozen=True)
class Softened:
    """The token z, and the mixture that a network is shown (see `networks.mixtures`)."""

    z: Int[Tensor, "batch *shape"]
    mixture: AnyState


def _spread(value: Tensor, x: Tensor) -> Tensor:
    """One number per row, to go with its coordinates."""
    return value.double().reshape(-1, *[1] * (x.ndim - 1))


def dense(
    x: Int[Tensor, "batch *shape"], mu: Float[Tensor, "batch"], tau: Tensor, size: int, noise: NoiseSource
) -> Softened:
    """By all entries."""
    eps = noise.at("entries").normal((*x.shape[1:], size))
    v = eps.scatter_add(-1, x.unsqueeze(-1), _spread(mu, x).expand(x.shape).unsqueeze(-1))
    z = v.argmax(-1)
    heat = _spread((1 + mu.double().square()).sqrt() * tau.clamp_min(COLDEST), x).unsqueeze(-1)
    hard = torch.zeros_like(v).scatter(-1, z.unsqueeze(-1), 1.0)
    return Softened(z, torch.where(tau < COLDEST, hard, (v / heat).softmax(-1)))


def sparse(
    x: Int[Tensor, "batch *shape"], mu: Float[Tensor, "batch"], tau: Tensor, size: int, top: int, noise: NoiseSource
) -> Softened:
    """By the true entry and the `top` largest of the others."""
    largest = upper_normals(size - 1, top, tuple(x.shape[1:]), noise.at("largest"))
    ids = distinct_others(x, size, top, noise.at("ids"))
    own = _spread(mu, x) + noise.at("own").normal(tuple(x.shape[1:]))
    z = torch.where(own > largest[..., 0], x, ids[..., 0])
    scale = _spread(1 / ((1 + mu.double().square()).sqrt() * tau.clamp_min(COLDEST)), x)
    left, c = size - 1 - top, largest[..., -1]
    logits = scale.unsqueeze(-1) * torch.cat([own.unsqueeze(-1), largest], -1)
    tokens = torch.cat([x.unsqueeze(-1), ids], -1)
    parts = [logits]
    if left:
        tail = log(left) + scale.square() / 2 + torch.special.log_ndtr(c - scale) - torch.special.log_ndtr(c)
        parts.append(tail.unsqueeze(-1))
    share = torch.cat(parts, -1).softmax(-1)
    weights, rest = share[..., : top + 1], share[..., top + 1 :].sum(-1) / max(left, 1)
    cold = tau < COLDEST
    weights = torch.where(cold, (tokens == z.unsqueeze(-1)).double(), weights)
    return Softened(z, {"ids": tokens, "weights": weights, "rest": torch.where(cold, 0.0, rest)})


def upper_normals(count: int, top: int, shape: tuple[int, ...], noise: NoiseSource) -> Float[Tensor, "rows *shape {top}"]:
    """The `top` largest of `count` independent standard normal numbers, largest first."""
    if not 1 <= top <= count:
        raise ValueError(f"top = {top}: of the {count} tokens that a token may turn into, draw at least 1 and at most all")
    left = torch.arange(count, count - top, -1, dtype=torch.float64, device=noise.rows.device)
    log_u = (noise.uniform((*shape, top)).log() / left).cumsum(-1)
    above = -torch.expm1(log_u)  # 1 - U
    return torch.where(above < 0.5, -torch.special.ndtri(above), torch.special.ndtri(log_u.exp()))


def distinct_others(x: Int[Tensor, "batch *shape"], size: int, top: int, noise: NoiseSource) -> Tensor:
    """`top` distinct tokens other than x, every sequence as likely as any other."""
    shape, others = tuple(x.shape[1:]), size - 1
    u = noise.at("which").uniform((*shape, top))
    chosen = torch.full((*x.shape, top), -1, dtype=torch.int64, device=x.device)
    for i in range(top):  # Floyd's: of the first m + 1 numbers one at random, or m if that is there already
        m = others - top + i
        draw = (u[..., i] * (m + 1)).long().clamp_max(m)
        chosen[..., i] = torch.where((chosen == draw.unsqueeze(-1)).any(-1), m, draw)
    order = noise.at("order").uniform((*shape, top)).argsort(-1)
    chosen = chosen.gather(-1, order)
    return chosen + (chosen >= x.unsqueeze(-1)).long()
