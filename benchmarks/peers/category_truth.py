"""Small chains on categories by matrices: losses and reverse steps by their definitions, with no formula for them.

A kernel Q[y, x] and a rate matrix R[y, x] go from x to y.  With theta a law of x_0 put in the place of x_0 itself,

    reverse rates  R[x_t, y] m(y)/m(x_t),  m = Q theta          reverse step  Q_{t|s}[x_t, y] (Q_s theta)(y), normalised
    loss           sum over y != x_t of  model - true + true log(true/model)
"""

from dataclasses import dataclass

import torch
from torch import Tensor

DOUBLE = {"dtype": torch.float64}
SIZE = 4
X_0 = torch.tensor([[0, 2, 3], [1, 1, 2], [3, 0, 0]])
MASKED = torch.tensor([[4, 2, 4], [4, 4, 4], [3, 4, 0]])  # x_t under masking: state 4 is MASK
CHANGED = torch.tensor([[0, 1, 3], [2, 1, 2], [0, 3, 0]])  # x_t under uniform noise
MIXED = torch.tensor([[4, 1, 3], [2, 4, 2], [0, 3, 4]])  # x_t under both
T = torch.tensor([0.3, 0.6, 0.9], **DOUBLE)
LOGITS = torch.sin(7.0 * torch.arange(3 * 3 * SIZE, **DOUBLE)).reshape(3, 3, SIZE)
THETA = LOGITS.softmax(-1)


@dataclass(frozen=True)
class Chain:
    """Noise of rank one at a time: alpha I + (1 - alpha) p 1^T."""

    law: Tensor

    def kernel(self, alpha: float) -> Tensor:
        return alpha * torch.eye(len(self.law), **DOUBLE) + (1 - alpha) * self.law[:, None]

    def rates(self, speed: float) -> Tensor:
        """speed is -alpha'/alpha."""
        return speed * (self.law[:, None] - torch.eye(len(self.law), **DOUBLE))


MASKING = Chain(torch.eye(SIZE + 1, **DOUBLE)[SIZE])
UNIFORM = Chain(torch.full((SIZE,), 1 / SIZE, **DOUBLE))


def hybrid(t: float) -> Tensor:
    """The kernel from 0 to t of mask and uniform noise, a fifth uniform at t = 1/2."""
    c = (t * (1 - t)) ** 0.5 / 2
    law = torch.tensor([c / SIZE] * SIZE + [t], **DOUBLE) / (1 + c)
    return (1 - t) / (1 + c) * torch.eye(SIZE + 1, **DOUBLE) + law[:, None]


def wide(theta: Tensor, states: int) -> Tensor:
    return torch.nn.functional.pad(theta, (0, states - theta.shape[-1]))


def one_hot(x: Tensor, states: int) -> Tensor:
    return torch.nn.functional.one_hot(x, states).double()


def divergence(model: Tensor, true: Tensor, x_t: int) -> Tensor:
    """sum_{y != x_t} model - true + true log(true/model)."""
    terms = [
        m - r + (r * (r / m).log() if r > 0 else 0 * r)
        for y, (m, r) in enumerate(zip(model, true, strict=True))
        if y != x_t and (m > 0 or r > 0)
    ]
    return torch.stack(terms).sum() if terms else torch.zeros((), **DOUBLE)


def rates_of(kernel: Tensor, rates: Tensor, theta: Tensor, x_t: int) -> Tensor:
    m = kernel @ theta
    return rates[x_t] * m / m[x_t]


def loss(kernels: list[Tensor], rates: list[Tensor], x_t: Tensor, theta: Tensor, x_0: Tensor = X_0) -> Tensor:
    """The bound's integrand of each row; theta [rows, length, states]."""
    out = []
    for row, (kernel, rate) in enumerate(zip(kernels, rates, strict=True)):
        states = len(kernel)
        total = torch.zeros((), **DOUBLE)
        for k, x in enumerate(x_t[row].tolist()):
            model = rates_of(kernel, rate, wide(theta[row, k], states), x)
            true = rates_of(kernel, rate, one_hot(x_0[row, k], states), x)
            total = total + divergence(model, true, x)
        out.append(total)
    return torch.stack(out)


def score_loss(kernels: list[Tensor], rates: list[Tensor], x_t: Tensor, ratios: Tensor) -> Tensor:
    """The same where the model says q(y)/q(x_t)."""
    out = []
    for row, (kernel, rate) in enumerate(zip(kernels, rates, strict=True)):
        parts = [
            divergence(rate[x] * ratios[row, k], rates_of(kernel, rate, one_hot(X_0[row, k], len(kernel)), x), x)
            for k, x in enumerate(x_t[row].tolist())
        ]
        out.append(torch.stack(parts).sum())
    return torch.stack(out)


def steps(early: list[Tensor], late: list[Tensor], x_t: Tensor, theta: Tensor) -> Tensor:
    """The reverse kernel of each coordinate from the kernels of s and t: [rows, length, states]."""
    out = torch.zeros(*x_t.shape, len(early[0]), **DOUBLE)
    for row, (q_s, q_t) in enumerate(zip(early, late, strict=True)):
        between = q_t @ torch.linalg.inv(q_s)
        for k, x in enumerate(x_t[row].tolist()):
            weight = between[x] * (q_s @ wide(theta[row, k], len(q_s)))
            out[row, k] = weight / weight.sum()
    return out


def carried(x_t: Tensor, theta: Tensor) -> Tensor:
    """Under masking a coordinate that is not masked has its value."""
    shown = (x_t < SIZE).unsqueeze(-1)
    return torch.where(shown, one_hot(x_t.clamp_max(SIZE - 1), SIZE), theta)
