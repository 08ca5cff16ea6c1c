"""A prediction of one's own on numbers, by its two coefficients: what EDM lets its network predict.

EDM writes x_0 = c_skip x + c_out F of x = x_t/alpha at the noise s = sigma/alpha, with c_skip = d^2/(s^2 + d^2) and
c_out = s d/sqrt(s^2 + d^2), where d is the standard deviation of the data.  Solved for F with x = x_0 + s eps,

    F = a x_0 + b eps,     a = sigma/(d r),     b = -d alpha/r,     r = sqrt(sigma^2 + d^2 alpha^2),

which has variance one at every time if the data has variance d^2.
"""

import torch
from torch import nn

import unnoise as un


class EDMOutput(un.predictions.ContinuousPrediction):
    data_std = 0.5

    @classmethod
    def target_coefficients(cls, schedule, t):
        alpha, sigma, d = schedule.alpha(t), schedule.sigma(t), cls.data_std
        r = (sigma.square() + (d * alpha).square()).sqrt()
        return sigma / (d * r), -d * alpha / r


class Network(nn.Module):
    """A little network; shown its own estimate of x_0, it takes it into account."""

    def __init__(self, seed=0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.weight = nn.Parameter(0.3 * torch.randn(2, 2, generator=generator, dtype=torch.float64))

    def forward(self, x, t, previous=None):
        return torch.tanh(x @ self.weight) * (1 + t).unsqueeze(-1) + (0 if previous is None else 0.2 * previous)


def denoiser(self_condition=False, process=None):
    return un.Denoiser(Network(), process or un.Gaussian((2,)), EDMOutput, self_condition=self_condition)
