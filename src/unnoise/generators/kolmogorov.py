"""Kolmogorov equations on small finite spaces: dense rate matrices, and the law that a process really has.

`solve` integrates dp/dtau = R p (eq:KFE-discrete-sp, eq:reverse-CTMC) by the commutator-free fourth-order method

    p <- exp(h (b R_1 + a R_2)) exp(h (a R_1 + b R_2)) p,    a, b = 1/4 +- sqrt(3)/6,   R_1, R_2 at the step's Gauss nodes,

whose factors stay stochastic for stiff rates (a commutator would not), over a grid that is graded towards both ends of
[0, 1], where rates may be unbounded.  Steps are doubled until the answer settles; the last two are extrapolated.
"""

from collections.abc import Callable
from functools import cache
from math import sqrt

import torch
from torch import Tensor

from unnoise.generators.generator import Generator, beside
from unnoise.shapes import AnyState, Float, Tree
from unnoise.spaces import Local, Space, tree_leaves
from unnoise.tree import batch_size, map_leaves, pick


def states(space: Space) -> Tree:
    """Every point of a space that can be listed."""
    return space.states()


def enumerable(space: Space) -> bool:
    """Whether every leaf is finite."""
    return space.enumerable


def code(space: Space, x: Tree) -> Tensor:
    """The position of each row of x in `states(space)`."""
    return space.code(x)


def matrices(
    space: Space, local: Callable[[AnyState, Tensor], Tree[Local]], times: Float[Tensor, "n"]
) -> Float[Tensor, "n count count"]:
    """Dense rate matrices, one per time: R[y, x] is the rate x -> y, columns sum to zero.  `local` is evaluated once."""
    points, n = states(space), len(times)
    count = batch_size(points)
    tiled = map_leaves(lambda x: x.repeat(n, *[1] * (x.ndim - 1)), points)
    data = local(tiled, times.repeat_interleave(count))
    dense = torch.zeros(n, count, count, dtype=torch.float64)
    for (path, _), (target, source) in zip(tree_leaves(space), _edges(space), strict=True):
        rates = pick(data, path).rates.double().reshape(n, -1)
        which = torch.arange(n).repeat_interleave(len(source))
        dense.index_put_((which, target.repeat(n), source.repeat(n)), rates.flatten(), accumulate=True)
    return dense - torch.diag_embed(dense.sum(1))


def matrix(generator: Generator) -> Float[Tensor, "count count"]:
    """The dense rate matrix of a generator at its own time (eq:seq-rate-matrix)."""
    return matrices(generator.space, lambda x, t: generator.local(x), torch.zeros(1, dtype=torch.float64))[0]


@cache
def _edges(space: Space) -> list[tuple[Tensor, Tensor]]:
    """For each leaf: destination and source of every entry of its rates (those of an impossible category are 0)."""
    points, out = states(space), []
    for path, leaf in tree_leaves(space):
        own = pick(points, path)
        around = leaf.neighbours(own)
        source = torch.arange(len(own)).repeat_interleave(len(around) // len(own))
        out.append((code(space, beside(points, path, around)), source))
    return out


def solve(
    rate_matrices: Callable[[Tensor], Tensor], p: Tensor, start: float, end: float, tolerance: float = 1e-10
) -> Tensor:
    """The law at `end` of a chain with law p (or each column of p) at `start`.

    `rate_matrices` takes a vector of times.  With end < start the clock runs down and the rates are the reverse's.
    Unit columns give the kernel (eq:KFE-eq-transition), a coordinate's own rates its own law (eq:kfe-1d-discrete).
    """
    previous, steps = None, 8
    while steps <= 4096:
        current = _integrate(rate_matrices, p, start, end, steps)
        if previous is not None:
            correction = (current - previous) / 15  # the method is of order 4: one step of Richardson's extrapolation
            if float(correction.abs().max()) < 30 * tolerance:
                return current + correction
        previous, steps = current, 2 * steps
    raise RuntimeError(f"the forward equation did not settle to {tolerance:g} within 4096 steps from {start} to {end}")


def _integrate(rate_matrices, p: Tensor, start: float, end: float, steps: int, chunk: int = 64) -> Tensor:
    h, major, minor = 1 / steps, 0.25 + sqrt(3) / 6, 0.25 - sqrt(3) / 6
    for i in range(0, steps, chunk):
        left = torch.arange(i, min(i + chunk, steps), dtype=torch.float64) * h
        v = torch.stack([left + (0.5 + side * sqrt(3) / 6) * h for side in (-1, 1)])
        near, w = v < 0.5, torch.minimum(v, 1 - v)
        share = w**4 * (35 - 84 * w + 70 * w**2 - 20 * w**3)  # all derivatives up to the third vanish at both ends
        t = torch.where(near, start + (end - start) * share, end + (start - end) * share)
        slope = abs(end - start) * 140 * v**3 * (1 - v) ** 3
        rates = rate_matrices(t.flatten())
        first, second = (rates * slope.flatten()[:, None, None]).chunk(2)
        early = torch.linalg.matrix_exp(h * (major * first + minor * second))
        late = torch.linalg.matrix_exp(h * (minor * first + major * second))
        for step in late @ early:
            p = step @ p
    return p
