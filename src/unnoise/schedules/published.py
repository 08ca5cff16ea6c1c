"""Schedules as published code has them: powers of 1 - t, one minus a cosine, and a table of betas.

The first two are used for masking, where sigma = 1 - alpha is the share that is masked.  A table of betas is that of a chain
of T steps with alpha^2_i = prod_{j <= i} (1 - beta_j); between its steps log alpha is a straight line, so that every 1/T is
a step of the table and a `Chain` of T steps is the published one.
"""

from collections.abc import Sequence
from math import pi

import torch
from torch import Tensor

from unnoise.schedules.base import Schedule


class Power(Schedule):
    """alpha = (1 - t)^power, sigma = 1 - alpha."""

    plain = True

    def __init__(self, power: float = 2.0):
        super().__init__()
        if not power > 0:
            raise ValueError(f"power = {power} must be positive")
        self.power = power

    def exact_alpha(self, t):
        return torch.rsub(t, 1) ** self.power

    def exact_beta(self, t):
        return -torch.expm1(self.power * torch.log1p(-t))

    exact_sigma = exact_beta

    def exact_d_alpha(self, t):
        return -self.power * torch.rsub(t, 1) ** (self.power - 1)

    def exact_d_sigma(self, t):
        return -self.exact_d_alpha(t)

    def exact_time_of_log_snr(self, value):
        return -torch.expm1(torch.nn.functional.logsigmoid(value / 2) / self.power)

    def exact_time_of_beta(self, value):
        return -torch.expm1(torch.log1p(-value) / self.power)

    def extra_repr(self) -> str:
        return f"power={self.power}"


class OneMinusCosine(Schedule):
    """alpha = 1 - cos(pi/2 (1 - t)), sigma = 1 - alpha = sin(pi t/2)."""

    plain = True

    def exact_alpha(self, t):
        return 2 * torch.sin(pi / 4 * torch.rsub(t, 1)).square()

    def exact_beta(self, t):
        return torch.sin(pi / 2 * t)

    exact_sigma = exact_beta

    def exact_d_sigma(self, t):
        return pi / 2 * torch.sin(pi / 2 * torch.rsub(t, 1))

    def exact_d_alpha(self, t):
        return -self.exact_d_sigma(t)

    def exact_time_of_log_snr(self, value):
        late = 1 - 4 / pi * torch.asin((torch.sigmoid(value / 2) / 2).sqrt())  # by alpha, where that is the smaller
        return torch.where(value < 0, late, self.exact_time_of_beta(torch.sigmoid(-value / 2)))

    def exact_time_of_beta(self, value):
        return 2 / pi * torch.asin(value)


class FromBetas(Schedule):
    """Variance preserving, from the betas of a chain: `FromBetas(torch.linspace(1e-4, 0.02, 1000))`."""

    falls: Tensor

    def __init__(self, betas: Sequence[float] | Tensor):
        super().__init__()
        betas = torch.as_tensor(betas, dtype=torch.float64)
        if betas.ndim != 1 or not len(betas):
            raise ValueError(f"betas of shape {tuple(betas.shape)}: pass one number per step, from data to noise")
        if not bool(((betas > 0) & (betas < 1)).all()):
            off = betas[~((betas > 0) & (betas < 1))][0].item()
            raise ValueError(f"betas contain {off:g}: each is the share of variance that a step adds, in (0, 1)")
        falls = -0.5 * torch.log1p(-betas).cumsum(0)
        self.register_buffer("falls", torch.cat([falls.new_zeros(1), falls]), persistent=True)  # -log alpha at every i/T
        self.validate()

    def _fall(self, t: Tensor) -> tuple[Tensor, Tensor]:
        """-log alpha and its slope."""
        falls = self.falls.to(t.device, torch.float64)
        steps = len(falls) - 1
        place = t * steps
        before = place.detach().floor().clamp(0, steps - 1).long()
        rise = falls[before + 1] - falls[before]
        return falls[before] + (place - before) * rise, steps * rise

    def exact_alpha(self, t):
        return torch.exp(-self._fall(t)[0])

    def exact_beta(self, t):
        return -torch.expm1(-self._fall(t)[0])

    def exact_sigma(self, t):
        return torch.sqrt(-torch.expm1(-2 * self._fall(t)[0]))

    def exact_d_alpha(self, t):
        fall, slope = self._fall(t)
        return -slope * torch.exp(-fall)

    def exact_d_sigma(self, t):
        fall, slope = self._fall(t)
        return slope * torch.exp(-2 * fall) / torch.sqrt(-torch.expm1(-2 * fall))

    def exact_log_snr(self, t):
        return -torch.log(torch.expm1(2 * self._fall(t)[0]))

    def exact_d_log_snr(self, t):
        fall, slope = self._fall(t)
        return 2 * slope / torch.expm1(-2 * fall)

    def _time_of_fall(self, fall: Tensor) -> Tensor:
        falls = self.falls.to(fall.device, torch.float64)
        steps = len(falls) - 1
        before = (torch.searchsorted(falls, fall.detach().contiguous(), right=True) - 1).clamp(0, steps - 1)
        return ((before + (fall - falls[before]) / (falls[before + 1] - falls[before])) / steps).clamp(0.0, 1.0)

    def exact_time_of_log_snr(self, value):
        return self._time_of_fall(0.5 * torch.nn.functional.softplus(-value))

    def exact_time_of_beta(self, value):
        return self._time_of_fall(-torch.log1p(-value))

    def extra_repr(self) -> str:
        return f"{len(self.falls) - 1} steps"
