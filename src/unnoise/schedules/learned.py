"""A learned schedule: variance preserving, its log-SNR a monotone function of time with trained parameters.

    log_snr(t) = high + (low - high) m(t),    alpha^2 = S(log_snr),    sigma^2 = S(-log_snr),    S the logistic function,

    m(t) = [w t + sum_j a_j k_j(t)] / [w + sum_j a_j k_j(1)],      k_j(t) = S(b_j (t - c_j)) - S(-b_j c_j).

With w, a_j, b_j > 0 m rises from 0 to 1.  Because S(x) - S(y) = -expm1(y - x) S(x) S(-y), what a step adds to the numerator,

    w (t - s) + sum_j a_j (-expm1(-b_j (t - s))) S(b_j (t - c_j)) S(b_j (c_j - s)),

is a sum of positive terms.  So the fall of log-SNR over a short step keeps its digits, and with it sigma^2_{t|s} =
-sigma_t^2 expm1(log_snr_t - log_snr_s) and 1 - alpha_{t|s} = sigma^2_{t|s}/(1 + alpha_{t|s}).

What is there to learn?  A state x_t = alpha x_0 + sigma eps is a function of (x_0, eps, log_snr), so the bound's integral

    int_0^1 -log_snr'(t)/2 E|eps - eps_model(x_t)|^2 dt  =  1/2 int_low^high E|eps - eps_model(x; l)|^2 dl

depends on the schedule through its ends alone, if the network sees time as log-SNR.  The ends are part of the model and are
learned by the bound: `high` against the decoder, `low` against the prior.  With the exact denoiser and decoder bound(x) =
-log q(x) + E log(q_1/p_1)(x_1), so of all parameters it moves with `low` alone.  The interior decides how much the integrand
varies over uniform times, hence the variance of the estimate.  By Cauchy-Schwarz the second moment

    int (log_snr')^2 E[r^2] dt  >=  (int_low^high E[r^2]^(1/2) dl)^2,        r = |eps - eps_model|^2/2,

and is least where -log_snr'(t) E[r^2]^(1/2) is level.  `unnoise.fit_schedule` learns the two in these two ways.

With one schedule per coordinate the integral is along a path through the log-SNRs.  It depends on the ends alone if the
network is exact, and otherwise on the path too.
"""

from collections.abc import Sequence
from math import isfinite, prod

import torch
from torch import Tensor, nn

from unnoise.schedules.base import Number, Schedule, rounded, rounded_step

_REACH = 0.25  # the steps' centres start this far outside [0, 1], so that m(t) = t nearly, up to both ends


def _positive(raw: Tensor) -> Tensor:
    """log(1 + exp(raw)), smooth throughout."""
    return -nn.functional.logsigmoid(-raw.double())


def _raw(positive: Tensor) -> Tensor:
    """The inverse: log(exp(positive) - 1)."""
    return positive + torch.log(-torch.expm1(-positive))


class Learned(Schedule):
    """A learned log-SNR from `high` (data) to `low` (noise), near to linear at first.  Either end moves on its own side of
    the middle that they start around, so that high > low always.

    `shape` gives each coordinate a schedule of its own; `hidden` is the number of steps k_j; with learn_ends=False the ends
    stay as given.  Parameters are float64.
    """

    middle: Tensor

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        hidden: int = 16,
        high: Number = 10.0,
        low: Number = -10.0,
        learn_ends: bool = True,
    ):
        super().__init__()
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if not all(isinstance(n, int) and n > 0 for n in self.shape):
            raise ValueError(f"shape = {self.shape}: pass the coordinates' shape, such as (2,), or () for one schedule")
        if hidden < 2:
            raise ValueError(f"hidden = {hidden}: a monotone curve needs at least 2 steps to bend (16 is usual)")
        top, bottom = (self._end(value, name) for value, name in ((high, "high"), (low, "low")))
        if not bool((top > bottom).all()):
            raise ValueError(f"high = {high} must exceed low = {low}: log-SNR falls with time")
        gap = (1 + 2 * _REACH) / (hidden - 1)
        one = torch.ones(*self.shape, hidden, dtype=torch.float64)
        self.hidden = hidden
        self.register_buffer("middle", (top + bottom) / 2)
        self.above = nn.Parameter(_raw((top - bottom) / 2), requires_grad=learn_ends)
        self.below = nn.Parameter(_raw((top - bottom) / 2), requires_grad=learn_ends)
        self.slope = nn.Parameter(_raw(torch.ones(self.shape, dtype=torch.float64)))  # w
        self.height = nn.Parameter(_raw(gap * one))  # a
        self.steepness = nn.Parameter(_raw(1.5 / gap * one))  # b
        self.centre = nn.Parameter(torch.linspace(-_REACH, 1 + _REACH, hidden, dtype=torch.float64) * one)  # c

    def _end(self, value: Number, name: str) -> Tensor:
        end = torch.as_tensor(value, dtype=torch.float64).detach()
        if end.ndim > len(self.shape) or not all(isfinite(v) for v in end.flatten().tolist()):
            raise ValueError(f"{name} = {value} is no finite log-SNR, nor one for each of the coordinates {self.shape}")
        try:
            return end.expand(self.shape).clone()
        except RuntimeError as error:
            raise ValueError(
                f"{name} has shape {tuple(end.shape)}; pass a number, or one per coordinate, shape {self.shape}"
            ) from error

    @property
    def high(self) -> Tensor:
        """log_snr(0)."""
        return self.middle.double() + _positive(self.above)

    @property
    def low(self) -> Tensor:
        """log_snr(1)."""
        return self.middle.double() - _positive(self.below)

    def ends(self) -> list[nn.Parameter]:
        """The trained parameters of which the bound is a function."""
        return [p for p in (self.above, self.below) if p.requires_grad]

    def interior(self) -> list[nn.Parameter]:
        """The trained parameters of m."""
        return [p for p in (self.slope, self.height, self.steepness, self.centre) if p.requires_grad]

    def _aligned(self, t: Tensor) -> Tensor:
        return t.to(self.centre.device).reshape((*t.shape, *[1] * len(self.shape)))

    def _curve(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """(w, a, b, c)."""
        return _positive(self.slope), _positive(self.height), _positive(self.steepness), self.centre.double()

    def _fall(self, s: Tensor, t: Tensor) -> Tensor:
        """log_snr_s - log_snr_t = (high - low) (m(t) - m(s))."""
        w, a, b, c = self._curve()
        s, t = self._aligned(s), self._aligned(t)
        from_s, to_t = torch.sigmoid(b * (c - s.unsqueeze(-1))), torch.sigmoid(b * (t.unsqueeze(-1) - c))
        grown = w * (t - s) - (a * torch.expm1(b * (s - t).unsqueeze(-1)) * from_s * to_t).sum(-1)
        return (self.high - self.low) * (grown / self._whole(w, a, b, c))

    def _whole(self, w: Tensor, a: Tensor, b: Tensor, c: Tensor) -> Tensor:
        """The denominator of m."""
        return w - (a * torch.expm1(-b) * torch.sigmoid(b * c) * torch.sigmoid(b * (1 - c))).sum(-1)

    def exact_log_snr(self, t):
        return self.high - self._fall(torch.zeros_like(t), t)

    def exact_d_log_snr(self, t):
        w, a, b, c = self._curve()
        x = b * (self._aligned(t).unsqueeze(-1) - c)
        bumps = (a * b * torch.sigmoid(x) * torch.sigmoid(-x)).sum(-1)
        return (self.low - self.high) * ((w + bumps) / self._whole(w, a, b, c))

    def exact_alpha(self, t):
        return torch.sigmoid(self.exact_log_snr(t)).sqrt()

    def exact_sigma(self, t):
        return torch.sigmoid(-self.exact_log_snr(t)).sqrt()

    def exact_beta(self, t):
        return torch.sigmoid(-self.exact_log_snr(t)) / (1 + self.exact_alpha(t))

    def exact_d_alpha(self, t):
        return 0.5 * self.exact_d_log_snr(t) * self.exact_alpha(t) * self.exact_sigma(t).square()

    def exact_d_sigma(self, t):
        return -0.5 * self.exact_d_log_snr(t) * self.exact_sigma(t) * self.exact_alpha(t).square()

    def exact_time_of_log_snr(self, value):
        if self.shape:
            raise ValueError(f"the {prod(self.shape)} coordinates have schedules of their own and share no inverse")
        return super().exact_time_of_log_snr(value)

    def exact_time_of_beta(self, value):
        variance = value * (2 - value)
        return self.exact_time_of_log_snr(torch.log1p(-variance) - variance.log())

    @rounded
    def diffusion(self, t):
        """g^2 = -sigma^2 d log_snr/dt."""
        return -self.exact_sigma(t).square() * self.exact_d_log_snr(t)

    def _step_variance(self, s: Tensor, t: Tensor) -> Tensor:
        return -self.exact_sigma(t).square() * torch.expm1(-self._fall(s, t))

    @rounded_step
    def step_variance(self, s, t):
        """sigma^2_{t|s} = 1 - alpha^2_{t|s}."""
        return self._step_variance(s, t)

    @rounded_step
    def step_beta(self, s, t):
        """1 - alpha_{t|s} = sigma^2_{t|s}/(1 + alpha_{t|s})."""
        return self._step_variance(s, t) / (1 + self.exact_alpha(t) / self.exact_alpha(s))

    def extra_repr(self) -> str:
        return f"shape={self.shape}, hidden={self.hidden}"
