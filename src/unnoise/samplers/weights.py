"""Weights of past predictions in a step of an exponential method.

With the step's length H (of log-SNR, times 1 + eta^2), u from 0 at its start to 1 at its end and B = 1 - e^{-H}, a step
needs

    int_0^1 H e^{-(1 - u) H} D(u) du

for a D known at some u_0 = 0, u_1, u_2 ... before.  Rules:

    exact       the polynomial through them, integrated exactly (what others call the heun variant)
    midpoint    of two points B (D_0 + D[u_0, u_1]/2), the published rule of DPM-Solver++ 2M: the line at the step's middle
    published   of three points as DPM-Solver++ 3M is commonly implemented, with half the weight of u^2, and of order 2

Both are of order 2 with two points.  Over a long step they differ: there the integral sees nothing but the step's end,
where a line through the past has gone far astray, while at the middle it has gone half as far.  With three points the
polynomial bends, and astray it goes faster.  So by the midpoint rule three points count in short steps only, and two in
long ones:

    weights = f exact(u_0, u_1, u_2) + (1 - f) midpoint(u_0, u_1),        f = e^{-2 H^2}

As 1 - f = O(h^2), and the two differ by O(h^3), this is exact up to O(h^5) and of order 3.
"""

from collections.abc import Callable, Sequence

import numpy as np
import torch
from torch import Tensor

NODES, WEIGHTS = (torch.as_tensor(a) for a in np.polynomial.legendre.leggauss(32))
Rule = Callable[[list[Tensor], Tensor], list[Tensor]]


def lagrange(points: Sequence[Tensor], at: Tensor) -> list[Tensor]:
    """The cardinal polynomials of the points, at other places."""
    out = []
    for j, p in enumerate(points):
        value = torch.ones_like(at)
        for k, q in enumerate(points):
            if k != j:
                value = value * (at - q) / (p - q)
        out.append(value)
    return out


def exact(u: list[Tensor], length: Tensor) -> list[Tensor]:
    """The weights of the values at the points u, in any order."""
    at = 0.5 * (NODES + 1).reshape(-1, *[1] * length.ndim)
    kernel = 0.5 * WEIGHTS.reshape(at.shape) * length * torch.exp((at - 1) * length)
    return [(kernel * basis).sum(0) for basis in lagrange(u, at.expand(-1, *length.shape))]


def midpoint(u: list[Tensor], length: Tensor) -> list[Tensor]:
    """The weights of the values at the points u, of which the first is the step's start."""
    whole = -torch.expm1(-length)
    if len(u) == 1:
        return [whole]
    line = 0.5 * whole / u[1]
    two = [whole - line, line, *[torch.zeros_like(line)] * (len(u) - 2)]
    if len(u) == 2:
        return two
    share = torch.exp(-2 * length.square())
    return [share * a + (1 - share) * b for a, b in zip(exact(u, length), two, strict=True)]


def published(u: list[Tensor], length: Tensor) -> list[Tensor]:
    """The midpoint rule of two points; of three the exact one less half the weight of u^2, int H e^{-(1 - u) H} u^2 du."""
    if len(u) < 3:
        return midpoint(u, length)
    square = exact(u, length)
    half = 0.5 * (1 - 2 * (length + torch.expm1(-length)) / length.square())
    for n, (a, b, c) in enumerate(((0, 1, 2), (1, 0, 2), (2, 0, 1))):
        square[n] = square[n] - half / ((u[a] - u[b]) * (u[a] - u[c]))
    return square


def bh1(u: list[Tensor], length: Tensor) -> list[Tensor]:
    """UniPC's, with B(h) = h in place of 1 - e^{-h}: the exact rule but for two points."""
    if len(u) != 2:
        return exact(u, length)
    line = 0.5 * length / u[1]
    return [-torch.expm1(-length) - line, line]


def bh2(u: list[Tensor], length: Tensor) -> list[Tensor]:
    """UniPC's, the exact rule but for two points, where it is the midpoint rule."""
    return midpoint(u, length) if len(u) == 2 else exact(u, length)


RULES: dict[str, Rule] = {"midpoint": midpoint, "exact": exact, "published": published, "bh1": bh1, "bh2": bh2}
