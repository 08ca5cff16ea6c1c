"""A leaf with drift, diffusion and jumps at once: numbers that are noised, pulled to 0, and now and then thrown.

    x_t = a_t (x_0 + sqrt(2 t) eps + sum_{i <= N} s xi_i),      N ~ Poisson(3 t),      a_t = e^{-t},      s = 1

so that the generator at t is

    L phi = -x phi' + a_t^2 phi'' + 3 int N(y; x, (a_t s)^2) [phi(y) - phi(x)] dy

and given N the law of x_t is normal: q(x_t | x_0) = sum_n Poisson(n; 3 t) N(a_t x_0, a_t^2 (2 t + n s^2)).

The data is a mixture of two normal laws, whose noised law is known as well.
"""

from math import exp, log, pi

import torch

import unnoise as un
from unnoise.verify import Operators

RATE, SIZE, REACH = 3.0, 1.0, 24  # of jumps; terms of the Poisson sum leave out 1e-13
WEIGHTS, MEANS, STD = torch.tensor([0.3, 0.7], dtype=torch.float64), torch.tensor([-2.0, 1.0], dtype=torch.float64), 0.3


class Throws(un.JumpKernel):
    """J(x, y) = rate N(y; x, width^2) at one time for each row; the rule for integrals over y reaches 7.5 widths."""

    def __init__(self, width):
        self.width = width

    def log_rate(self, x, y):
        width = self.width.repeat_interleave(len(x) // len(self.width)).reshape(-1, 1)
        z = (y - x) / width
        return (-0.5 * z.square() - width.log() - 0.5 * log(2 * pi) + log(RATE)).sum(1)

    def nodes(self, x):
        h = 0.3
        z = torch.arange(-7.5, 7.5 + h / 2, h, dtype=x.dtype)
        width = self.width.repeat_interleave(len(x) // len(self.width))
        y = x.unsqueeze(1) + width.reshape(-1, 1, 1) * z.reshape(1, -1, 1)
        return y, (h * width).log().unsqueeze(1).expand(-1, len(z))

    def draw(self, x, noise):
        return x + self.width.reshape(-1, 1) * noise.normal((1,), x.dtype)


class Thrown(un.Process):
    def __init__(self):
        super().__init__()
        self.space = self.state_space = un.Euclidean((1,))
        self.cutoff = 0.02

    def local(self, x, t):
        t = torch.as_tensor(t, dtype=x.dtype).expand(len(x))
        a = torch.exp(-t).unsqueeze(1)
        return un.Local(drift=-x, diffusion=2 * a.square(), jumps=Throws(SIZE * a[:, 0]))

    def log_marginal(self, x, t, means=MEANS, weights=WEIGHTS, variance=STD**2):
        """log q_t(x) of the data law, or of points (variance 0)."""
        t = torch.as_tensor(t, dtype=x.dtype).reshape(-1, 1, 1)
        n = torch.arange(REACH, dtype=x.dtype)
        log_n = torch.xlogy(n, RATE * t) - RATE * t - torch.lgamma(n + 1)
        spread = torch.exp(-2 * t) * (variance + 2 * t + n * SIZE**2)
        gap = x.reshape(-1, 1, 1) - torch.exp(-t) * means.unsqueeze(-1)
        normal = -0.5 * gap.square() / spread - 0.5 * (2 * pi * spread).log()
        return (weights.log().unsqueeze(-1) + log_n + normal).flatten(1).logsumexp(1)


class Exact(un.AnyDenoiser):
    """The data law's own reverse process."""

    def __init__(self):
        super().__init__()
        self.process = Thrown()

    def forward(self, x_t, t, /, **condition):
        return un.FromMarginal(self.process.log_marginal, self.process, x_t, t)


def noised(rows, t, seed):
    """Draws of x_t, the process run forward in closed form."""
    source = un.NoiseSource(seed, rows)
    x0 = MEANS[(source.at("which").uniform() > WEIGHTS[0]).long()] + STD * source.at("data").normal()
    counts = torch.arange(REACH).double()
    log_n = counts * log(RATE * t) - RATE * t - torch.lgamma(counts + 1)
    n = torch.searchsorted(log_n.exp().cumsum(0), source.at("jumps").uniform())
    spread = (2 * t + n * SIZE**2).sqrt()
    return (exp(-t) * (x0 + spread * source.at("noise").normal())).unsqueeze(1)


def operators():
    """The forward generator at t = 0.5 with points of the line, for `unnoise verify --generator jump_leaf:operators`."""
    x, h = torch.linspace(-12, 12, 481, dtype=torch.float64), 0.05
    log_density = lambda y: -0.5 * (y[:, 0] - 0.4).square() / 0.8 + 0.2 * torch.sin(y[:, 0])  # noqa: E731
    return Operators(Thrown().generator(0.5), x.unsqueeze(1), log_density, torch.full_like(x, h))
