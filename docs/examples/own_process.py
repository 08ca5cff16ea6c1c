"""A process of one's own: categories on a wheel, which turns forward more readily than backward.

Each coordinate waits, then moves by a draw from a K x K jump matrix P (column = source, columns sum to 1).  With the clock
gamma(t) = -log alpha(t) the process has made a Poisson(gamma) number of jumps, so for any P

    Q_{t|s} = sum_n e^{-g} g^n/n! P^n   with g = gamma(t) - gamma(s),        R_t = gamma'(t) (P - I).

Every term is >= 0: entries are accurate to the last digit however small they are.
"""

import torch
from torch import Tensor

import unnoise as un
from unnoise.generators.local import without_self
from unnoise.laws import Categorical, log_of
from unnoise.processes.finite import FiniteProcess, float_dtype

TERMS = 64  # of the Poisson sum; with gamma(1) = 3 they leave out 1e-60


class Wheel(FiniteProcess):
    def __init__(self, size: int, shape: tuple[int, ...], forward: float = 0.8):
        super().__init__()
        self.space = self.state_space = un.Finite(size, shape)
        self.schedule, self.cutoff = un.schedules.LinearBeta(6.0, 6.0), 0.0  # gamma(t) = 3 t
        eye = torch.eye(size, dtype=torch.float64)
        self.jump = forward * eye.roll(1, 0) + (1 - forward) * eye.roll(-1, 0)
        self.powers = torch.stack([torch.linalg.matrix_power(self.jump, n) for n in range(TERMS)])

    def kernel(self, x: Tensor, s, t) -> Tensor:
        """Q_{t|s} per row, with an axis for each axis of x but the first."""
        t = self.times(t, x)
        beta = self.schedule.beta(t) if s is None else self.schedule.step_beta(self.times(s, x, "s"), t)
        n, g = torch.arange(TERMS).double(), -torch.log1p(-beta).unsqueeze(-1)
        poisson = (torch.xlogy(n, g) - g - torch.lgamma(n + 1)).exp()
        return torch.einsum("bn,nyx->byx", poisson, self.powers).reshape(-1, *[1] * (x.ndim - 1), *self.jump.shape)

    def pick(self, matrix: Tensor, x: Tensor) -> Tensor:
        """The row of each coordinate's state."""
        rows = matrix.expand(*x.shape, *self.jump.shape)
        return rows.gather(-2, x[..., None, None].expand(*x.shape, 1, self.space.size)).squeeze(-2)

    def rates(self, matrix: Tensor, x: Tensor, t) -> Tensor:
        speed = -self.schedule.drift(self.times(t, x)).reshape(-1, *[1] * x.ndim)
        return without_self(log_of(speed * matrix[x]).to(float_dtype(t)), x)

    def log_evidence(self, x_t, s, t):
        return log_of(self.pick(self.kernel(x_t, s, t), x_t)).to(float_dtype(t))

    def log_push(self, log_v, s, t):
        moved = self.kernel(log_v[..., 0], s, t) @ log_v.double().exp().unsqueeze(-1)
        return log_of(moved.squeeze(-1)).to(log_v.dtype)

    def log_rates_into(self, x, t):
        return self.rates(self.jump, x, t)

    def log_rates_from(self, x, t):
        return self.rates(self.jump.T, x, t)

    def prior(self, rows, dtype=None, device=None):
        shape = (rows, *self.space.shape, self.space.size)
        return Categorical.normalised(torch.zeros(shape, dtype=dtype or torch.float64, device=device))

    def movable(self, x_t):
        return torch.ones_like(x_t, dtype=torch.bool)

    def inverse(self, q, s, t):
        return torch.linalg.solve(self.kernel(q[..., 0], s, t), q.double().unsqueeze(-1)).squeeze(-1).to(q.dtype)


def process() -> Wheel:
    return Wheel(3, (2,))
