"""Heat kernels of spheres S^d of radius 1: functions of the angle w between x and m, and of the variance v.

    d = 1   the wrapped normal law of w
    d = 2   sum_l (2 l + 1)/(4 pi) e^{-l (l + 1) v/2} P_l(cos w)
          = sqrt(2) e^{v/8} (2 pi v)^{-3/2} int_w^pi sum_k (-1)^k (f + 2 pi k) e^{-(f + 2 pi k)^2/2v}/sqrt(cos w - cos f) df
    d = 3   sum_l (l + 1)^2/(2 pi^2) e^{-l (l + 2) v/2} sin((l + 1) w)/((l + 1) sin w)
          = e^{v/2}/(2 pi v sin w) sum_k (w + 2 pi k) N(w + 2 pi k; 0, v)
    d > 3   sum_l (2 l + d - 1)/(d - 1) e^{-l (l + d - 1) v/2} C_l(cos w)/|S^d|,    C_l of Gegenbauer, of the order (d - 1)/2
          = sum_M q_M(v) (d)_M/(d/2)_M cos^{2M}(w/2)/|S^d|

The first form of each, of waves, is used from v = 1 on, where nothing cancels, and the second, of the ways round, below: it
has full relative precision however far in the tail.  The integral has a root at its lower end.  With f^2 = w^2 + s^2 and

    cos w - cos f = s^2/2 A,    A = sinc((f + w)/2) sinc((f - w)/2),    f df = s ds

it is sqrt(2) e^{-w^2/2v} int_0^S e^{-s^2/2v} R(f)/sqrt(A) ds, R(f) the images over the first of them: smooth, and by Gauss's
nodes on the part that counts.  For d > 3 (1 - cos w)/2 is a Wright-Fisher diffusion with alpha = (d/2, d/2) that starts from
0, and M its ancestral lines (`ancestry`): all terms are positive.  Slopes in w are the derivatives of these very sums.

**Draws.**  The angle has the density |S^{d-1}| sin^{d-1} w h_v(w), and the direction is uniform.  On the globe its
distribution function is inverted (`angle_draws`).  For d = 1 and 3 it is summed by Simpson's rule on 128 intervals of the
part that counts, and inverted by a cubic in the one that u falls into: right to 1e-6 of probability.  For d > 3 M is drawn,
and then (1 - cos w)/2 from Beta(d/2, d/2 + M).
"""

from functools import cache
from math import lgamma, log, pi

import numpy as np
import torch
from torch import Tensor

from unnoise.ancestry import draw_lines, log_lines, most_lines
from unnoise.angle_draws import inverted, share_on_globe
from unnoise.checks import may_read
from unnoise.gamma_laws import Dirichlet
from unnoise.heat_laws import SMALLEST, TURN, HeatLaw, log_wrapped
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.shapes import Float

SWITCH = 1.0  # the variance from which waves are used
TERMS = 11  # waves: those left out are e^-66 and less
REACH = 8.7  # standard deviations of the angle that count
MOST = 3  # the largest dimension with images of its own
NODES = 48  # of the integral
HELD = 2**13  # angles that are worked out at once: their images stay in the cache
LINES = 2**20  # terms of sums over ancestral lines that are
CELLS = 64  # of a distribution function, two intervals each
EVEN = 0.1  # below it even functions are summed as series
TINY = 1e-12  # angles closer than this to 0 or pi count as this


def log_volume(d: int) -> float:
    """log of the area of S^d."""
    return log(2) + (d + 1) / 2 * log(pi) - lgamma((d + 1) / 2)


@cache
def gauss(count: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """Gauss's nodes and weights on [0, 1], brought to a device once."""
    x, w = np.polynomial.legendre.leggauss(count)
    with torch.inference_mode(False):
        return torch.as_tensor((x + 1) / 2, device=device), torch.as_tensor(w / 2, device=device)


def rule(count: int, like: Tensor) -> tuple[Tensor, Tensor]:
    return gauss(count, like.device)


def angle_between(x: Tensor, m: Tensor) -> Tensor:
    """w in [0, pi], accurate at both ends, differentiable between."""
    apart, together = ((x - m).square().sum(-1), (x + m).square().sum(-1))
    return 2 * torch.atan2(apart.clamp_min(TINY**2).sqrt(), together.clamp_min(TINY**2).sqrt())


def log_heat(w: Tensor, variance: Tensor, d: int) -> Tensor:
    """log h_v, float64, entry by entry; differentiable in both."""
    w, variance = torch.broadcast_tensors(w.double(), variance.double())
    if d == 1:
        return log_wrapped(w, variance)
    held = HELD
    if d > MOST and w.numel():
        held = min(HELD, max(1, LINES // most_lines(float(variance.detach().min()), float(d))))
    parts = zip(w.reshape(-1).split(held), variance.reshape(-1).split(held), strict=True)
    return torch.cat([_either(some, v, d) for some, v in parts]).reshape(w.shape)


def _either(w: Tensor, v: Tensor, d: int) -> Tensor:
    """By waves or images; only one of them is worked out where one will do and that can be told."""
    waves = _waves(w, v.clamp_min(SWITCH), d).log() - log_volume(d)
    if may_read(v) and bool((v >= SWITCH).all()):
        return waves
    few = v.clamp(SMALLEST, SWITCH)
    near = _by_lines(w, few, d) if d > MOST else _images_2(w, few) if d == 2 else _images_3(w, few)
    return torch.where(v < SWITCH, near, waves)


def _waves(w: Tensor, v: Tensor, d: int) -> Tensor:
    """h_v times the area: sum_l (2 l + d - 1)/(d - 1) e^{-l (l + d - 1) v/2} C_l(cos w), C_l = C_l^{(d-1)/2}."""
    c, order = torch.cos(w), (d - 1) / 2
    before, now = torch.ones_like(c), 2 * order * c
    total = before + (d + 1) / (d - 1) * torch.exp(-d * v / 2) * now
    for n in range(2, TERMS):
        before, now = now, (2 * (n + order - 1) * c * now - (n + 2 * order - 2) * before) / n
        total = total + (2 * n + d - 1) / (d - 1) * torch.exp(-n * (n + d - 1) * v / 2) * now
    return total


def _images_3(w: Tensor, v: Tensor) -> Tensor:
    """Over the first image, so that nothing underflows, and in pairs of images that cancel: from a pole g away (w, or pi - w
    beyond a quarter), those at c - g and -c - g are together -2 e^{-(c^2 + g^2)/2v} [c sinh(c g/v) - g cosh(c g/v)].
    """
    w = w.clamp(TINY, pi - TINY)
    near = (1 - _pairs(w, w, v, (2 * pi, 4 * pi))) / _sinc(w)
    far = _pairs(pi - w, w, v, (pi, 3 * pi, 5 * pi)) / _sinc(pi - w)
    total = torch.where(w < pi / 2, near, far)
    return v / 2 - log(2 * pi) - 1.5 * v.log() - 0.5 * log(2 * pi) - w.square() / (2 * v) + total.log()


def _pairs(gap: Tensor, w: Tensor, v: Tensor, centres: tuple[float, ...]) -> Tensor:
    """The sum of 2 e^{(w^2 - c^2 - g^2)/2v} [c sinh(c g/v)/g - cosh(c g/v)]."""
    c = torch.tensor(centres, dtype=torch.float64, device=w.device)
    gap, w, v = gap.unsqueeze(-1), w.unsqueeze(-1), v.unsqueeze(-1)
    both = torch.exp(-(c - gap - w) * (c - gap + w) / (2 * v)) * (1 + torch.exp(-2 * c * gap / v))
    return (both * (c.square() / v * _tanhc(c * gap / v) - 1)).sum(-1)


def _images_2(w: Tensor, v: Tensor) -> Tensor:
    """With g = pi - w, S^2 <= g (pi + w), and for m = (f + w)/2 beyond a quarter pi - m = g B/2, B = 1 + (pi + w)
    (1 - s^2/(g (pi + w)))/(pi + f): the root of g, which is in S and in A, is left out of both.
    """
    w = w.clamp(TINY, pi - TINY)
    place, weight = rule(NODES, w)
    gap = pi - w
    end = torch.minimum((pi + w).sqrt(), REACH * (v / gap).sqrt())
    w_, v_, gap_, wide = (part.unsqueeze(-1) for part in (w, v, gap, pi + w))
    part = end.unsqueeze(-1) * place
    s_squared = part.square() * gap_
    f = (w_.square() + s_squared).sqrt()
    m, beyond = (f + w_) / 2, 1 + (wide - part.square()) / (pi + f)
    first = torch.where(m < pi / 2, _sinc(m) / gap_, beyond / 2 * _sinc(gap_ * beyond / 2) / m)
    inner = torch.exp(-s_squared / (2 * v_)) / (first * _sinc(s_squared / (4 * m))).sqrt()
    ratio = sum(
        (-1) ** k * (1 + TURN * k / f) * torch.exp(-TURN * k * (f + pi * k) / v_) for k in range(-2, 2)
    )  # of all images to the first
    total = end * (weight * inner * ratio).sum(-1)
    return log(2) - 1.5 * log(2 * pi) - 1.5 * v.log() + v / 8 - w.square() / (2 * v) + total.log()


def _by_lines(w: Tensor, v: Tensor, d: int) -> Tensor:
    log_q = log_lines(v, float(d))
    m, whole, half = (
        torch.as_tensor(part, dtype=torch.float64, device=w.device) for part in (range(log_q.shape[1]), d, d / 2)
    )
    rising = torch.lgamma(whole + m) - torch.lgamma(whole) - torch.lgamma(half + m) + torch.lgamma(half)
    near = 2 * torch.sin((pi - w).clamp_min(TINY) / 2).log()  # of cos w/2, accurate at the other pole
    return (log_q + rising + m * near.unsqueeze(-1)).logsumexp(-1) - log_volume(d)


def _sinc(z: Tensor) -> Tensor:
    """sin z/z, with a slope that keeps its digits at 0."""
    small = z.abs() < EVEN
    safe = torch.where(small, 1.0, z)
    return torch.where(small, _even(z, (1 / 6, 1 / 20, 1 / 42, 1 / 72, 1 / 110)), torch.sin(safe) / safe)


def _tanhc(z: Tensor) -> Tensor:
    """tanh z/z, likewise."""
    small = z.abs() < EVEN
    safe = torch.where(small, 1.0, z)
    steps = (1 / 3, 2 / 5, 17 / 42, 62 / 153, 691 / 1705, 21844 * 155925 / (1382 * 6081075))
    return torch.where(small, _even(z, steps), torch.tanh(safe) / safe)


def _even(z: Tensor, steps: tuple[float, ...]) -> Tensor:
    """1 - a z^2 (1 - b z^2 (1 - ...))."""
    total, square = torch.ones_like(z), z.square()
    for step in reversed(steps):
        total = 1 - step * square * total
    return total


def heat_slope(w: Tensor, variance: Tensor, d: int) -> Tensor:
    """d/dw log h_v; differentiable again where w or v is."""
    with torch.inference_mode(False), torch.enable_grad():
        again = w.requires_grad or variance.requires_grad
        angle = w.double() if w.requires_grad else w.detach().clone().double().requires_grad_()
        value = log_heat(angle, variance.double(), d)
        slope = torch.autograd.grad(value.sum(), angle, create_graph=again)[0]
    return slope if again else slope.detach()


def log_angle_density(w: Tensor, variance: Tensor, d: int) -> Tensor:
    """Of the angle itself: log(|S^{d-1}| sin^{d-1} w h_v(w))."""
    ring = log_volume(d - 1) + (d - 1) * torch.sin(w).clamp_min(1e-300).log()
    return ring + log_heat(w, variance, d)


def furthest(variance: Tensor, d: int) -> Tensor:
    """The largest angle that counts."""
    return ((REACH + d / 2) * variance.sqrt()).clamp_max(pi)


def draw_angle(u: Tensor, variance: Tensor, d: int) -> Tensor:
    """The angle below which the share u of h_v lies."""
    if d != 2:
        return _drawn_by_cells(u, variance, d)
    v = variance.clamp_min(SMALLEST)
    high = furthest(v, d)
    start = torch.minimum((-2 * v * torch.log1p(-u)).sqrt(), 0.9 * high)  # as in a plane
    return inverted(u, v, start, high, share_on_globe)


def _drawn_by_cells(u: Tensor, variance: Tensor, d: int) -> Tensor:
    end = furthest(variance, d).unsqueeze(-1)
    grid = torch.linspace(0, 1, 2 * CELLS + 1, dtype=torch.float64, device=u.device)
    density = log_angle_density(end * grid, variance.unsqueeze(-1), d).exp()
    density = torch.where(density.isfinite(), density, 0.0)
    left, middle, right = density[..., :-1:2], density[..., 1::2], density[..., 2::2]
    width = end / CELLS
    mass = width / 6 * (left + 4 * middle + right)
    total = mass.cumsum(-1)
    wanted = (u * total[..., -1]).unsqueeze(-1)
    cell = torch.searchsorted(total.contiguous(), wanted.contiguous()).clamp_max(CELLS - 1)
    own, a, b, c = (part.gather(-1, cell) for part in (mass, left, middle, right))
    rest = wanted - (total.gather(-1, cell) - own)
    # the cell's cumulative cubic, a z + (4 b - 3 a - c) z^2/2 + (2 a - 4 b + 2 c) z^3/3, inverted by bisection
    low, high = torch.zeros_like(rest), torch.ones_like(rest)
    for _ in range(30):
        z = (low + high) / 2
        reached = width * z * (a + z * ((4 * b - 3 * a - c) / 2 + z * (2 * a - 4 * b + 2 * c) / 3))
        low, high = torch.where(reached < rest, z, low), torch.where(reached < rest, high, z)
    return (width * (cell + (low + high) / 2)).squeeze(-1)


class SphereLaw(HeatLaw):
    """The heat kernel around unit vectors `mean`; `variance` is [batch, 1]."""

    def __init__(self, mean: Float[Tensor, "batch entries"], variance: Tensor):
        self.mean, self.d = mean, mean.shape[-1] - 1
        if self.d < 1:
            raise ValueError(f"mean has the shape {tuple(mean.shape)}: points of a sphere are rows of two numbers or more")
        self.variance = variance.double().reshape(-1).expand(len(mean))

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return log_heat(angle_between(x.double(), self.mean.double()), self.variance, self.d)

    def score(self, x: Tensor) -> Tensor:
        here, mean = x.double(), self.mean.double()
        w = angle_between(here, mean)
        slope = heat_slope(w, self.variance, self.d) / torch.sin(w).clamp_min(TINY)
        return (slope.unsqueeze(-1) * (torch.cos(w).unsqueeze(-1) * here - mean)).to(x.dtype)

    def information(self) -> Float[Tensor, "batch"]:
        place, weight = rule(96, self.mean)
        end = furthest(self.variance, self.d).unsqueeze(-1)
        w, v = end * place, self.variance.unsqueeze(-1)
        terms = log_angle_density(w, v, self.d).exp() * (log_heat(w, v, self.d) + log_volume(self.d))
        return (end.squeeze(-1) * (weight * terms).sum(-1)).clamp_min(0)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, UniformOnSphere):
            raise TypeError(f"the divergence of a heat kernel on a sphere from a {type(other).__name__} is not known")
        return self.information()

    def draw(self, noise: NoiseSource) -> Tensor:
        mean = self.mean.double()
        w = self._angle(noise).unsqueeze(-1)
        z = noise.at("direction").normal((self.d + 1,))
        z = z - (z * mean).sum(-1, keepdim=True) * mean
        drawn = torch.cos(w) * mean + torch.sin(w) * z / z.norm(dim=-1, keepdim=True).clamp_min(TINY)
        return (drawn / drawn.norm(dim=-1, keepdim=True)).to(self.mean.dtype)

    def _angle(self, noise: NoiseSource) -> Float[Tensor, "batch"]:
        if self.d <= MOST:
            return draw_angle(noise.at("angle").uniform(), self.variance, self.d)
        lines = draw_lines(self.variance, float(self.d), noise.at("ancestry")).double()
        share = torch.stack([torch.full_like(lines, self.d / 2), self.d / 2 + lines], -1)
        return 2 * Dirichlet(share, share).draw(noise.at("angle"))[:, 0].clamp(0, 1).sqrt().asin()


class UniformOnSphere(Law):
    """The uniform law of a sphere, as a density of its area."""

    def __init__(self, like: Float[Tensor, "batch entries"]):
        self.like = like

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return torch.full((len(x),), -log_volume(self.like.shape[-1] - 1), dtype=torch.float64, device=x.device)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, UniformOnSphere):
            raise TypeError(f"the divergence of a uniform law on a sphere from a {type(other).__name__} is not known")
        return torch.zeros(len(self.like), dtype=torch.float64, device=self.like.device)

    def draw(self, noise: NoiseSource) -> Tensor:
        z = noise.normal(tuple(self.like.shape[1:]))
        return (z / z.norm(dim=-1, keepdim=True).clamp_min(TINY)).to(self.like)
