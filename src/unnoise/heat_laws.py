"""Laws of heat flow: what Brownian motion on a compact space has become after a while, and those of angles.

After a variance v Brownian motion from m has a density h_v(x, m), the heat kernel of the operator 1/2 Laplace: symmetric
in x and m, composing as h_v h_w = h_{v+w}, and tending to the uniform law.  A `HeatLaw` is one such law for each row.

**Angles.**  On a circle it is the wrapped normal law, in two forms that are equal for every v and good at opposite ends,

    h_v(x, m) = sum_k N(x - m + 2 pi k; 0, v)                          images: the ways round
              = [1 + 2 sum_k e^{-k^2 v/2} cos k(x - m)] / (2 pi)       waves

Images are positive, so their sum has full relative precision however far in the tail; below v = 2 those with |k| <= 2
leave out e^-59 of it.  From v = 2 on six waves leave out e^-49, and their sum is at least 0.3, so that nothing cancels.  The
score d/dx log h_v is taken term by term from the same sums.  Angles of an array are independent.

**Bridges.**  Given x_0 and x_t at the variances 0 and v_t, the way from one to the other has gone round k times with
probability w_k prop. to N(D + 2 pi k; 0, v_t), D = x_t - x_0; for known k it is a Brownian bridge on the line, so that at
v_s

    x_s = x_0 + (v_s/v_t) (D + 2 pi k) + sqrt(v_s (v_t - v_s)/v_t) z        (mod 2 pi),

which is how it is drawn.  Its density is by Bayes h_{v_s}(x_s, x_0) h_{v_t - v_s}(x_t, x_s) / h_{v_t}(x_t, x_0).
"""

from abc import abstractmethod
from math import ceil, e, log, pi

import torch
from torch import Tensor

from unnoise.checks import may_read
from unnoise.laws import Law, draw_categories, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.shapes import Float

TURN = 2 * pi
SWITCH = 2.0  # the variance from which waves are used
WAVES = 6
SMALLEST = 1e-30  # variances below count as this: a law on a point
NARROW = 0.12  # below this variance less than 1e-18 of a normal law lies beyond half a turn
NODES = 256  # of a rule around the circle, for laws that are not narrow
MOST_NODES = 2**14
REACH, SPACING = 8.5, 0.7  # standard deviations that a law is followed for, and that nodes are apart
HELD = 2**20  # entries of the arrays that a divergence is worked out in


def wrap(x: Tensor) -> Tensor:
    """The same angle in [-pi, pi); one that lies there is returned as it is."""
    return x - TURN * torch.floor((x + pi) / TURN)


def log_wrapped(gap: Tensor, variance: Tensor) -> Tensor:
    """log h_v of x - m = gap, float64, entry by entry; differentiable in both as often as wanted."""
    gap, variance = wrap(gap.double()), variance.double()
    few = variance.clamp(SMALLEST, SWITCH)
    images = _images(gap, few)[0].log() - gap.square() / (2 * few) - 0.5 * (TURN * few).log()
    return torch.where(variance < SWITCH, images, _waves(gap, variance.clamp_min(SWITCH))[0].log() - log(TURN))


def wrapped_score(gap: Tensor, variance: Tensor) -> Tensor:
    """d/dx log h_v at x - m = gap, float64, entry by entry."""
    gap, variance = wrap(gap.double()), variance.double()
    few = variance.clamp(SMALLEST, SWITCH)
    total, ways = _images(gap, few)
    density, slope = _waves(gap, variance.clamp_min(SWITCH))
    return torch.where(variance < SWITCH, -ways / (total * few), slope / density)


def _images(gap: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """sum_k e_k and sum_k (gap + 2 pi k) e_k, e_k the k-th image over that of k = 0, of which none is larger."""
    gap = gap.clamp(-pi, pi)
    total, ways, scale = torch.ones_like(gap), gap, -TURN / variance
    for k in (-1, 1, -2, 2):
        over = torch.exp(k * scale * (gap + pi * k))
        total, ways = total + over, ways + (gap + TURN * k) * over
    return total, ways


def _waves(gap: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
    """2 pi h_v and its slope; cos kx and sin kx from those of k - 1 and k - 2."""
    cosine, sine, last, before = torch.cos(gap), torch.sin(gap), torch.ones_like(gap), torch.zeros_like(gap)
    total, slope, twice = torch.ones_like(gap), torch.zeros_like(gap), 2 * cosine
    for k in range(1, WAVES + 1):
        fade = 2 * torch.exp(-0.5 * k * k * variance)
        total, slope = total + fade * cosine, slope - k * fade * sine
        cosine, last = twice * cosine - last, cosine
        sine, before = twice * sine - before, sine
    return total, slope


def angle_information(variance: Tensor) -> Tensor:
    """KL(h_v || uniform) = log 2 pi - entropy, of each angle.  A narrow law has a normal one's entropy; of others the rule
    around the circle converges geometrically."""
    variance = variance.double()
    narrow = log(TURN) - 0.5 * (TURN * e * variance.clamp(SMALLEST, NARROW)).log()
    gap = TURN / NODES * torch.arange(NODES, dtype=torch.float64, device=variance.device)
    log_h = log_wrapped(gap, variance.clamp_min(NARROW).unsqueeze(-1))
    wide = TURN / NODES * (log_h.exp() * (log_h + log(TURN))).sum(-1)
    return torch.where(variance < NARROW, narrow, wide.clamp_min(0))


class HeatLaw(Law):
    """Where Brownian motion from `mean` is after `variance`, for each row."""

    mean: Tensor

    @abstractmethod
    def score(self, x: Tensor) -> Tensor:
        """The gradient of log h_v at x, a tangent vector, in the precision of x."""

    @abstractmethod
    def information(self) -> Float[Tensor, "batch"]:
        """KL(h_v || uniform), the same from every point: log of the whole volume, less the entropy."""


class AngleLaw(Law):
    """A law of independent angles with a density in closed form; its divergence from another is a sum over nodes."""

    like: Tensor  # a state, of the law's shape, dtype and device

    @abstractmethod
    def log_density(self, x: Tensor) -> Tensor:
        """Of each angle, float64; x is [..., batch, *shape]."""

    @abstractmethod
    def window(self) -> tuple[Tensor, Tensor, Tensor]:
        """(centre, reach, width): it lies within the reach of the centre, and no part of it is narrower than the width."""

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        return sum_coordinates(self.each(x))

    def each(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return self.log_density(x)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, AngleLaw):
            raise TypeError(f"a law of angles is compared with a {type(other).__name__}, which is none")
        centre, reach, width = self.window()
        reach = reach.clamp_max(pi)
        nodes = self._nodes(reach / width.clamp_min(1e-15))
        places = (torch.arange(nodes, dtype=torch.float64, device=self.like.device) + 0.5) * (2 / nodes) - 1
        total: Tensor = torch.zeros(self.like.shape, dtype=torch.float64, device=self.like.device)
        for some in places.split(max(1, HELD // max(1, self.like.numel()))):
            x = centre.double() + reach * some.reshape(-1, *[1] * self.like.ndim)
            log_p = self.log_density(x)
            terms = torch.where(log_p > -200, log_p.exp() * (log_p - other.log_density(x)), 0.0)
            total = total + terms.sum(0)
        return sum_coordinates(2 * reach / nodes * total)

    def _nodes(self, widths: Tensor) -> int:
        """So many that neighbours are less than a standard deviation apart."""
        if not may_read(widths):
            return NODES
        needed = ceil(2 / SPACING * float(widths.detach().max()))
        if needed > MOST_NODES:
            raise ValueError(
                f"a law of angles is too narrow for a divergence by {MOST_NODES} nodes, {needed} are needed: choose the "
                f"times of the grid closer together, or end it at more noise"
            )
        return max(32, needed)


class WrappedLaw(AngleLaw, HeatLaw):
    """The wrapped normal law of each angle."""

    def __init__(self, mean: Float[Tensor, "batch *shape"], variance: Tensor):
        self.mean = self.like = mean
        self.variance = variance.double()

    def log_density(self, x: Tensor) -> Tensor:
        return log_wrapped(x.double() - self.mean.double(), self.variance)

    def window(self) -> tuple[Tensor, Tensor, Tensor]:
        return self.mean, REACH * self.variance.sqrt(), self.variance.sqrt()

    def score(self, x: Tensor) -> Tensor:
        return wrapped_score(x.double() - self.mean.double(), self.variance).to(x.dtype)

    def information(self) -> Float[Tensor, "batch"]:
        return sum_coordinates(angle_information(self.variance).expand(self.mean.shape))

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        return self.information() if isinstance(other, UniformAngles) else super().kl(other)

    def draw(self, noise: NoiseSource) -> Tensor:
        z = noise.normal(tuple(self.mean.shape[1:]), self.mean.dtype).to(self.mean.device)
        return wrap(self.mean + self.variance.sqrt().to(self.mean.dtype) * z)


class UniformAngles(AngleLaw):
    """Every angle as likely as any other: the density 1/(2 pi) of arc length."""

    def __init__(self, like: Float[Tensor, "batch *shape"]):
        self.like = like

    def log_density(self, x: Tensor) -> Tensor:
        return torch.full_like(x, -log(TURN), dtype=torch.float64)

    def window(self) -> tuple[Tensor, Tensor, Tensor]:
        one = torch.ones((), dtype=torch.float64, device=self.like.device)
        return torch.zeros_like(one), pi * one, one

    def draw(self, noise: NoiseSource) -> Tensor:
        return (TURN * noise.uniform(tuple(self.like.shape[1:])) - pi).to(self.like)


class AngleBridge(AngleLaw):
    """Where Brownian motion from x_0 at variance 0 to x_t at v_t is at v_s < v_t, `turns` being the most ways round."""

    def __init__(self, x0: Tensor, x_t: Tensor, before: Tensor, step: Tensor, turns: int):
        self.x0, self.x_t, self.before, self.step, self.turns = x0, x_t, before.double(), step.double(), turns
        self.like = x_t

    def log_density(self, x: Tensor) -> Tensor:
        first = log_wrapped(x.double() - self.x0.double(), self.before)
        second = log_wrapped(self.x_t.double() - x.double(), self.step)
        return first + second - log_wrapped(self.x_t.double() - self.x0.double(), self.before + self.step)

    def window(self) -> tuple[Tensor, Tensor, Tensor]:
        """Around x_t: a share w/v_t of the way D + 2 pi k, which is about sqrt(v_t), and the bridge's own width."""
        away = self.step / (self.before + self.step).clamp_min(SMALLEST).sqrt()
        return self.x_t, REACH * (self.width() + away), self.width()

    def width(self) -> Tensor:
        return (self.before * self.step / (self.before + self.step).clamp_min(SMALLEST)).sqrt()

    def draw(self, noise: NoiseSource) -> Tensor:
        whole = (self.before + self.step).clamp_min(SMALLEST)
        k = torch.arange(-self.turns, self.turns + 1, dtype=torch.float64, device=self.x_t.device)
        way = wrap(self.x_t.double() - self.x0.double()).unsqueeze(-1) + TURN * k
        log_share = (-0.5 * way.square() / whole.unsqueeze(-1)).log_softmax(-1)
        which = draw_categories(log_share, noise.at("turns"))
        gone = way.gather(-1, which.unsqueeze(-1)).squeeze(-1)
        z = noise.at("bridge").normal(tuple(self.x_t.shape[1:]))
        return wrap(self.x0.double() + self.before / whole * gone + self.width() * z).to(self.x_t.dtype)
