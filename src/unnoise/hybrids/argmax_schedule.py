"""The schedule of uniform noise that the argmax of a Gaussian path has at each time.

With w_t = a_t e_x + s_t eps under any schedule (a, s) of numbers, the argmax has the one-time law of uniform noise with

    alpha(t) = T(mu_t),     mu_t = a_t/s_t,     alpha'(t) = T'(mu_t) mu'_t,     mu' = (a' s - a s')/s^2

(`argmax_law` has T).  What is lost in a step is T(mu_s) - T(mu_t), a sum of positive terms.  As for other schedules of
categories sigma = 1 - alpha, so that log_snr = 2 log alpha/(1 - alpha).

Unless told the path is variance preserving with log-SNR linear in t, from where 1 - alpha = 1e-5 to where alpha = 1e-3:
what is left at either end is counted by the bound's prior and reconstruction terms.  Paths without noise at t = 0 or
without signal at t = 1, such as `Linear`, have alpha = 1 or 0 there exactly; but alpha is 1 wherever 1 - T is less than
float64 holds, mu > 52.

The argmax of the path itself is another process: see `docs/duo.md`.
"""

import torch

from unnoise.hybrids.argmax_law import ArgmaxLaw
from unnoise.processes.base import valid_schedule
from unnoise.schedules import LogSNRLinear, Schedule
from unnoise.schedules.base import rounded_step

NOISE, SIGNAL = 1e-5, 1e-3  # 1 - alpha at t = 0 and alpha at t = 1, of the default


def usual_path(law: ArgmaxLaw) -> LogSNRLinear:
    """The Gaussian path between the two ends."""
    odds = torch.tensor([(1 - NOISE) / NOISE, SIGNAL / (1 - SIGNAL)], dtype=torch.float64).log()
    high, low = (2 * law.mean_of_log_odds(odds).log()).tolist()
    return LogSNRLinear(high, low)


class ArgmaxSchedule(Schedule):
    """alpha(t) = T(a_t/s_t) for `size` categories, (a, s) from a schedule of numbers.

    A range of log-SNR is `ArgmaxSchedule(size, un.schedules.LogSNRLinear(3.5, 1.75))`, that of published curricula.
    """

    def __init__(self, size: int, gaussian: Schedule | None = None):
        super().__init__()
        self.law = ArgmaxLaw(size)
        self.gaussian = valid_schedule(gaussian or usual_path(self.law), LogSNRLinear())
        if self.gaussian.shape:
            raise ValueError(
                f"{self.gaussian} has a schedule for each of {self.gaussian.shape}: pass one for all, or "
                f"PerCoordinate([ArgmaxSchedule(size, one), ...])"
            )

    @property
    def size(self) -> int:
        return self.law.size

    def mean(self, t):
        """mu, of float64 times."""
        return self.gaussian.exact_alpha(t) / self.gaussian.exact_sigma(t)

    def exact_alpha(self, t):
        return self.law.alpha(self.mean(t))

    def exact_beta(self, t):
        return self.law.beta(self.mean(t))

    exact_sigma = exact_beta

    def exact_d_alpha(self, t):
        a, s = self.gaussian.exact_alpha(t), self.gaussian.exact_sigma(t)
        d_mu = (self.gaussian.exact_d_alpha(t) * s - a * self.gaussian.exact_d_sigma(t)) / s.square()
        slope = self.law.slope(a / s)
        return torch.where(slope > 0, slope * torch.where(slope > 0, d_mu, 0.0), 0.0)

    def exact_d_sigma(self, t):
        return -self.exact_d_alpha(t)

    def exact_d_log_snr(self, t):
        share = self.exact_alpha(t) * self.exact_beta(t)
        return torch.where(share > 0, 2 * self.exact_d_alpha(t) / share, -torch.inf)

    def exact_time_of_log_snr(self, value):
        return self.gaussian.exact_time_of_log_snr(2 * self.law.mean_of_log_odds(value / 2).log())

    def exact_time_of_beta(self, value):
        return self.exact_time_of_log_snr(2 * (torch.log1p(-value) - value.log()))

    @rounded_step
    def step_beta(self, s, t):
        """1 - alpha_{t|s} = (alpha_s - alpha_t)/alpha_s."""
        early, late = self.mean(s), self.mean(t)
        return self.law.between(late.expand_as(early), early.expand_as(late)) / self.law.alpha(early)

    def extra_repr(self) -> str:
        return f"size={self.size}"
