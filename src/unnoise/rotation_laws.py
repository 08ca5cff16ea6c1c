"""Heat kernels of rotations, the group SO(3): functions of the angle w of m^T x, and of the variance v.

A rotation by w about an axis has the length w.  As a density of the uniform law, which has the mass 1 in all,

    f_v(w) = sum_l (2 l + 1) e^{-l (l + 1) v/2} sin((l + 1/2) w)/sin(w/2)                                        waves
           = e^{v/8} sqrt(2 pi) v^{-3/2}/sin(w/2)  sum_k (-1)^k (w + 2 pi k) e^{-(w + 2 pi k)^2/2v}              images

The first form is used from v = 1 on, where the waves from l = 11 are e^-60 of it, and the second below, in which three
images leave out e^-39 and nothing cancels: it has full relative precision however far in the tail.  As sin((l + 1/2)
w)/sin(w/2) = 1 + 2 sum_{k <= l} cos k w, the waves are a sum of cosines.  The slope in w is the derivative of these sums.

**Draws.**  The angle has the density f_v(w) (1 - cos w)/pi on [0, pi], the axis is uniform.  The distribution function is

    F(w) = 1/pi sum_l (2 l + 1) e^{-l (l + 1) v/2} [sin(l w)/l - sin((l + 1) w)/(l + 1)],      sin(l w)/l = w at l = 0,

which is used from v = 0.11 on; below, less than e^-40 has gone further than pi, and one image is all,

    F(w) = c int_0^w y sin(y/2) e^{-y^2/2v} dy = c v [1/2 int_0^w cos(y/2) e^{-y^2/2v} dy - sin(w/2) e^{-w^2/2v}]

with c = e^{v/8} (2/pi)^{1/2} 2 v^{-3/2}.  The last integral is by the series of the cosine, whose terms are incomplete
moments of the normal law,

    v^{1/2} sum_j (-v/4)^j/(2j)! M_j(w/v^{1/2}),  M_0 = int_0^z e^{-s^2/2} ds,  M_j = (2j - 1) M_{j-1} - z^{2j-1} e^{-z^2/2}.

With the terms of each sin(l w) together, F = w/pi + sum_l b_l sin(l w).  It is inverted to rounding (`angle_draws`).
"""

from math import log, pi

import torch
from torch import Tensor

from unnoise.angle_draws import FADED, inverted, waves_needed
from unnoise.checks import may_read
from unnoise.heat_laws import SMALLEST, HeatLaw
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.rotation_matrices import TINY, angle_of, exponential, from_quaternions
from unnoise.shapes import Float
from unnoise.sphere_laws import rule

SWITCH = 1.0  # the variance from which waves are used
TERMS = 11  # waves of a density
ALONE = 0.11  # the variance below which one image is the whole distribution function
MOMENTS = 7  # of a distribution function below
REACH = 10.5  # standard deviations of the angle that count
NODES = 96  # of an integral over the angle


def log_heat(w: Tensor, variance: Tensor) -> Tensor:
    """log f_v, float64, entry by entry; differentiable in both."""
    w, v = torch.broadcast_tensors(w.double(), variance.double())
    waves = _waves(w, v.clamp_min(SWITCH)).log()
    if may_read(v) and bool((v >= SWITCH).all()):
        return waves
    return torch.where(v < SWITCH, _images(w, v.clamp(SMALLEST, SWITCH)), waves)


def _waves(w: Tensor, v: Tensor) -> Tensor:
    """Added from the last cosine on, each with the sum of all that hold it."""
    total, held = torch.zeros_like(w), torch.zeros_like(v)
    for n in range(TERMS - 1, 0, -1):
        held = held + (2 * n + 1) * torch.exp(-0.5 * n * (n + 1) * v)
        total = total + 2 * held * torch.cos(n * w)
    return 1 + held + total


def _images(w: Tensor, v: Tensor) -> Tensor:
    """Over the first image, so that nothing underflows."""
    w = w.clamp_min(TINY)
    total = w
    for k in (-1, 1):
        total = total - (w + 2 * pi * k) * torch.exp(-2 * pi * k * (w + pi * k) / v)
    return v / 8 + 0.5 * log(2 * pi) - 1.5 * v.log() - w.square() / (2 * v) + (total / torch.sin(w / 2)).log()


def heat_slope(w: Tensor, variance: Tensor) -> Tensor:
    """d/dw log f_v; differentiable again where w or v is."""
    with torch.inference_mode(False), torch.enable_grad():
        again = w.requires_grad or variance.requires_grad
        angle = w.double() if w.requires_grad else w.detach().clone().double().requires_grad_()
        slope = torch.autograd.grad(log_heat(angle, variance.double()).sum(), angle, create_graph=again)[0]
    return slope if again else slope.detach()


def log_angle_density(w: Tensor, variance: Tensor) -> Tensor:
    """Of the angle itself: log(f_v(w) (1 - cos w)/pi)."""
    return log_heat(w, variance) + 2 * torch.sin(w / 2).clamp_min(1e-150).log() + log(2 / pi)


def share_below(w: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """F(w), the probability of a smaller angle, and its slope, to rounding of 1."""
    w, v = torch.broadcast_tensors(w.double(), variance.double())
    if may_read(v) and bool((v >= ALONE).all()):
        return _share_by_waves(w, v)
    moments = _share_by_moments(w, v.clamp(SMALLEST, ALONE))
    if may_read(v) and bool((v < ALONE).all()):
        return moments
    waves = _share_by_waves(w, v.clamp_min(ALONE))
    share, slope = (torch.where(v < ALONE, one, other) for one, other in zip(moments, waves, strict=True))
    return share, slope


def _share_by_waves(w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    twice, fade = 2 * torch.cos(w), torch.exp(-v)
    before, sine, last, cosine = torch.zeros_like(w), torch.sin(w), torch.ones_like(w), 0.5 * twice
    share, slope, held, power = w, torch.ones_like(w), torch.ones_like(v), torch.ones_like(v)
    for n in range(1, waves_needed(v, ALONE)):
        power = power * fade  # e^{-n v}, of which the weights e^{-n (n + 1) v/2} are products
        following = ((2 * n + 1) / (2 * n - 1)) * (held * power)  # (2 n + 1) times the weight
        amplitude = torch.where(n * n * v < FADED, following - held, 0.0)
        share, slope = share + (1 / n) * (amplitude * sine), slope + amplitude * cosine
        before, sine = sine, twice * sine - before
        last, cosine = cosine, twice * cosine - last
        held = following
    return share / pi, slope / pi


def _share_by_moments(w: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    z, bell = w / v.sqrt(), torch.exp(-w.square() / (2 * v))
    moment, power = (0.5 * pi) ** 0.5 * torch.erf(z / 2**0.5), z * bell
    total, square, weight = moment, z.square(), torch.ones_like(v)
    for j in range(1, MOMENTS):
        moment, power = (2 * j - 1) * moment - power, power * square
        weight = weight * (-v / (4 * (2 * j - 1) * (2 * j)))  # (-v/4)^j/(2j)!
        total = total + weight * moment
    front, sine = 2 * (2 / pi) ** 0.5 * torch.exp(v / 8), torch.sin(w / 2) * bell / v.sqrt()
    return front * (0.5 * total - sine), front * sine * w / v


def furthest(variance: Tensor) -> Tensor:
    """The largest angle that counts."""
    return (REACH * variance.sqrt()).clamp_max(pi)


def draw_angle(u: Tensor, variance: Tensor) -> Tensor:
    """The angle with F(w) = u.  The start is where the law at 0, F = f_v(0) w^3/(6 pi), would have it."""
    v = variance.double().clamp_min(SMALLEST)
    high = furthest(v)
    peak = log_heat(torch.zeros_like(v), v).exp()
    start = torch.minimum((6 * pi * u / peak).clamp_min(1e-300) ** (1 / 3), 0.99 * high)
    return inverted(u, v, start, high, share_below)


class RotationLaw(HeatLaw):
    """The heat kernel around rotations `mean`; one variance for each row."""

    def __init__(self, mean: Float[Tensor, "batch 3 3"], variance: Tensor):
        self.mean = mean
        self.variance = variance.double().reshape(-1).expand(len(mean))

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return log_heat(angle_of(self.mean.double().mT @ x.double()), self.variance)

    def score(self, x: Tensor) -> Tensor:
        """x hat(n) d/dw log f_v, n the axis of m^T x."""
        here = x.double()
        between = self.mean.double().mT @ here
        w = angle_of(between)
        slope = heat_slope(w, self.variance) / torch.sin(w).clamp_min(TINY)
        return (0.5 * slope[:, None, None] * (here @ (between - between.mT))).to(x.dtype)

    def information(self) -> Float[Tensor, "batch"]:
        place, weight = rule(NODES, self.mean)
        end, v = furthest(self.variance).unsqueeze(-1), self.variance.unsqueeze(-1)
        terms = log_angle_density(end * place, v).exp() * log_heat(end * place, v)
        return (end.squeeze(-1) * (weight * terms).sum(-1)).clamp_min(0)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, UniformRotations):
            raise TypeError(f"the divergence of a heat kernel on rotations from a {type(other).__name__} is not known")
        return self.information()

    def draw(self, noise: NoiseSource) -> Tensor:
        w = draw_angle(noise.at("angle").uniform(), self.variance).unsqueeze(-1)
        z = noise.at("axis").normal((3,))
        turn = exponential(w * z / z.norm(dim=-1, keepdim=True).clamp_min(TINY))
        return (self.mean.double() @ turn).to(self.mean.dtype)


class UniformRotations(Law):
    """The uniform law of rotations: the density 1."""

    def __init__(self, like: Float[Tensor, "batch 3 3"]):
        self.like = like

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return torch.zeros(len(x), dtype=torch.float64, device=x.device)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, UniformRotations):
            raise TypeError(f"the divergence of the uniform law of rotations from a {type(other).__name__} is not known")
        return torch.zeros(len(self.like), dtype=torch.float64, device=self.like.device)

    def draw(self, noise: NoiseSource) -> Tensor:
        return from_quaternions(noise.normal((4,))).to(self.like)
