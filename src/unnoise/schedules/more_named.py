"""More named schedules: sub-VP, the sigmoid, and the cosine with an offset.

`SubVP` has the drift of `LinearBeta` and less noise: with log alpha = -int b/2 and g^2 = b (1 - alpha^4) the equation
d sigma^2/dt = -b sigma^2 + g^2 is solved by sigma = 1 - alpha^2, the square of the VP variance.

`Sigmoid` and `CosineOffset` are variance preserving, sigma^2 = 1 - alpha^2, and so is every step: sigma^2_{t|s} =
1 - alpha^2_{t|s}.  Each writes alpha and sigma^2_{t|s} as products of its own, so that neither is a difference where it is
small; sigma^2 is the step from 0, and the rest follows:

    beta = sigma^2/(1 + alpha),    d log_snr/dt = 2 alpha'/(alpha sigma^2),    g^2 = -2 alpha'/alpha.

An inverse is asked for the time of a pair (alpha^2, sigma^2): (S(l), S(-l)) of a log-SNR l, with S the logistic function,
or ((1 - beta)^2, beta (2 - beta)) of a beta.
"""

from abc import abstractmethod
from math import exp, expm1, inf, pi, sin

import torch
from torch import Tensor

from unnoise.schedules.base import Schedule, rounded, rounded_step
from unnoise.schedules.named import LinearBeta


class SubVP(LinearBeta):
    """log alpha = -int b/2 with b(t) = b_min + t (b_max - b_min), sigma = 1 - alpha^2 (the standard deviation).

    The inverse: alpha/sigma = r solves r alpha^2 + alpha - r = 0, so log alpha = -asinh(1/(2r)).
    """

    def __init__(self, beta_min: float = 0.1, beta_max: float = 20.0):
        if not (0 < beta_min < inf and 0 < beta_max < inf):
            raise ValueError(
                f"beta_min = {beta_min}, beta_max = {beta_max}: the rate of noise runs from one to the other, "
                f"so make both positive (0.1 and 20 are usual)"
            )
        super().__init__(beta_min, beta_max)

    def exact_sigma(self, t):
        return -torch.expm1(2 * self._log_alpha(t))

    def exact_d_sigma(self, t):
        return self._rate(t) * self.exact_alpha(t).square()

    def exact_log_snr(self, t):
        return 2 * (self._log_alpha(t) - self.exact_sigma(t).log())

    def exact_d_log_snr(self, t):  # -b - 2 b alpha^2/sigma
        return -self._rate(t) * (1 + self.exact_alpha(t).square()) / self.exact_sigma(t)

    def exact_time_of_log_snr(self, value):
        return self._time_of_log_alpha(-torch.asinh(0.5 * torch.exp(-value / 2)))

    @rounded
    def diffusion(self, t):
        """g^2 = b (1 - alpha^4)."""
        return -self._rate(t) * torch.expm1(4 * self._log_alpha(t))


class _Preserving(Schedule):
    """sigma^2 = 1 - alpha^2, from the variance that a step adds: sigma^2_{t|s} = 1 - alpha^2_{t|s}."""

    plain = True

    @abstractmethod
    def _step(self, s: Tensor | float, t: Tensor) -> Tensor:
        """sigma^2_{t|s}."""

    @abstractmethod
    def _time_of(self, signal: Tensor, variance: Tensor) -> Tensor:
        """The time at which (alpha^2, sigma^2) are these."""

    def _variance(self, t: Tensor) -> Tensor:
        return self._step(0.0, t)

    def exact_sigma(self, t):
        return self._variance(t).sqrt()

    def exact_beta(self, t):
        return self._variance(t) / (1 + self.exact_alpha(t))

    def exact_d_log_snr(self, t):
        return 2 * self.exact_d_alpha(t) / (self.exact_alpha(t) * self._variance(t))

    def exact_time_of_log_snr(self, value):
        return self._time_of(torch.sigmoid(value), torch.sigmoid(-value))

    def exact_time_of_beta(self, value):
        return self._time_of((1 - value).square(), value * (2 - value))

    @rounded
    def time_of_alpha(self, value):
        """The time at which alpha has this value."""
        return self._time_of(value.square(), (1 - value) * (1 + value))

    @rounded
    def diffusion(self, t):
        """g^2 = -2 alpha'/alpha."""
        return -2 * self.exact_d_alpha(t) / self.exact_alpha(t)

    @rounded_step
    def step_variance(self, s, t):
        """sigma^2_{t|s} = 1 - alpha^2_{t|s}."""
        return self._step(s, t)

    @rounded_step
    def step_beta(self, s, t):
        """1 - alpha_{t|s} = sigma^2_{t|s}/(1 + alpha_{t|s})."""
        return self._step(s, t) / (1 + self.exact_alpha(t) / self.exact_alpha(s))


class Sigmoid(_Preserving):
    """alpha^2 = (S(b) - S(v))/(S(b) - S(a)),  a = start/temperature, b = end/temperature, v = a + t (b - a).

    With D = b - a and S(x) - S(y) = sinh((x - y)/2)/(2 cosh(x/2) cosh(y/2)) = -expm1(y - x) S(x) S(-y),

        alpha^2 = expm1(-D (1 - t))/expm1(-D) S(-v)/S(-a),
        sigma^2_{t|s} = (S(v_t) - S(v_s))/(S(b) - S(v_s)) = expm1(-D (t - s))/expm1(-D (1 - s)) S(v_t)/S(b),

    and alpha^2/sigma^2 = S(b)/S(a) (y - exp(-D))/(1 - y) with y = exp(-D t), whence the inverse.
    """

    def __init__(self, start: float = -3.0, end: float = 3.0, temperature: float = 1.0):
        super().__init__()
        if not -inf < start < end < inf:
            raise ValueError(f"start = {start}, end = {end}: the sigmoid is cut out between them, so choose start < end")
        if not 0 < temperature < inf:
            raise ValueError(f"temperature = {temperature} must be positive (1 is usual; less is steeper)")
        if max(abs(start), abs(end)) > 300 * temperature:
            raise ValueError(
                f"temperature = {temperature} is too steep for start = {start}, end = {end}: the logistic function leaves "
                f"the range of float64; use at least {max(abs(start), abs(end)) / 300:.3g}"
            )
        self.start, self.end, self.temperature = start, end, temperature
        self._a, self._b = start / temperature, end / temperature

    def _position(self, t):
        return (1 - t) * self._a + t * self._b

    def exact_alpha(self, t):
        share = torch.expm1((1 - t) * (self._a - self._b)) / expm1(self._a - self._b)  # +0 at t = 1
        return (share * (torch.sigmoid(-self._position(t)) / _logistic(-self._a))).sqrt()

    def _step(self, s, t):
        gap = self._b - self._a
        rest = torch.expm1((s - 1) * gap) if isinstance(s, Tensor) else expm1((s - 1) * gap)
        return torch.expm1((s - t) * gap) / rest * (torch.sigmoid(self._position(t)) / _logistic(self._b))

    def _slope(self, t):
        """d sigma^2/dt = D S'(v)/(S(b) - S(a))."""
        v, gap = self._position(t), self._b - self._a
        whole = -expm1(-gap) * _logistic(self._b) * _logistic(-self._a)
        return gap / whole * torch.sigmoid(v) * torch.sigmoid(-v)

    def exact_d_alpha(self, t):
        return -0.5 * self._slope(t) / self.exact_alpha(t)

    def exact_d_sigma(self, t):
        return 0.5 * self._slope(t) / self.exact_sigma(t)

    def _time_of(self, signal, variance):
        gap = self._b - self._a
        odds = signal / variance * (_logistic(self._a) / _logistic(self._b))  # (y - exp(-D))/(1 - y)
        change = expm1(-gap) / (1 + odds)  # y - 1
        # log y from y - 1, or from y itself where that is the smaller
        log_y = torch.where(change > -0.5, torch.log1p(change), torch.log((odds + exp(-gap)) / (1 + odds)))
        return -log_y / gap

    def extra_repr(self) -> str:
        return f"start={self.start}, end={self.end}, temperature={self.temperature}"


def _logistic(x: float) -> float:
    return 1 / (1 + exp(-x))


class CosineOffset(_Preserving):
    """alpha = cos(B)/cos(A),  A = c s, B = c (t + s), c = pi/2/(1 + s): the cosine entered at the offset s.

    Since B and c (1 - t) add up to a right angle, and A and c do, alpha = sin(c (1 - t))/sin(c); and for a step from r to t,
    cos^2(B_r) - cos^2(B_t) = sin(B_t - B_r) sin(B_t + B_r) gives

        sigma^2_{t|r} = sin(c (t - r)) sin(c (t + r + 2 s))/sin^2(c (1 - r)),

    where c (t + r + 2 s) and c (2 - t - r) have the same sine: the first is exact near 0, the second near 1.
    For the inverse, w = sigma^2 cos^2(A) = sin^2(B) - sin^2(A) = sin(B - A) sin(B + A) gives sin(B), and the angle
    B - A = c t from its sine and cosine.
    """

    def __init__(self, offset: float = 0.008):
        super().__init__()
        if not 0 < offset < inf:
            raise ValueError(f"offset = {offset} must be positive (0.008 is usual); Cosine() is the one without")
        self.offset, self._turn = offset, pi / 2 / (1 + offset)

    def exact_alpha(self, t):
        return torch.sin(self._turn * (1 - t)) / sin(self._turn)

    def _step(self, s, t):
        both = torch.sin(self._turn * torch.where(s + t < 1, s + t + 2 * self.offset, (1 - t) + (1 - s)))
        rest = torch.sin(self._turn * (1 - s)) if isinstance(s, Tensor) else sin(self._turn * (1 - s))
        return (torch.sin(self._turn * (t - s)) / rest) * (both / rest)

    def exact_d_alpha(self, t):
        return -self._turn / sin(self._turn) * torch.sin(self._turn * (t + self.offset))

    def exact_d_sigma(self, t):
        return -self.exact_alpha(t) * self.exact_d_alpha(t) / self.exact_sigma(t)

    def _time_of(self, signal, variance):
        sin_a, cos_a = sin(self._turn * self.offset), sin(self._turn)
        w = variance * cos_a**2
        sin_b, cos_b = (w + sin_a**2).sqrt(), signal.sqrt() * cos_a
        along = torch.atan2(w / (sin_b * cos_a + cos_b * sin_a), cos_b * cos_a + sin_b * sin_a)
        return along / self._turn

    def extra_repr(self) -> str:
        return f"offset={self.offset}"
