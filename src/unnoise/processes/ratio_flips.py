"""The reverse of velocities that flip: lambda_i(R_i z) r_i(z) at states where the ratios of densities are known."""

import torch
from torch import Tensor

from unnoise.laws import LOG_ZERO
from unnoise.processes.flips import FlippingVelocity, Flips
from unnoise.spaces.phase import turned


def back_rates(process: FlippingVelocity, z: Tensor) -> Tensor:
    """lambda_i(R_i z), the shape of x, float64: the rates that lead here.  lambda_i knows of v its own coordinate alone, so
    all may be turned at once."""
    return process.rates(turned(z))


class RatioFlips(Flips):
    """Flips of the reverse process at the states z, log_ratio of the shape of x: of these rows, or of each several times."""

    def __init__(self, process: FlippingVelocity, z: Tensor, log_ratio: Tensor):
        super().__init__(process)
        self.log_rates = (back_rates(process, z).clamp_min(1e-300).log() + log_ratio.double()).clamp_min(LOG_ZERO)

    def log_rate(self, x: Tensor, y: Tensor) -> Tensor:
        changed = (x[:, 1] * y[:, 1] < 0).reshape(len(x), -1)
        held = self.log_rates.reshape(len(self.log_rates), -1)
        held = held.repeat_interleave(len(x) // len(held), 0)
        return torch.where(changed.sum(1) == 1, (held * changed).sum(1), LOG_ZERO)
