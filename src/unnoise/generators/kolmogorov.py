"""Kolmogorov equations on small finite spaces: dense rate matrices, and the law that a process really has.

`solve` integrates dp/dtau = R p with R column-stochastic in the rate sense, by the fourth-order Magnus method

    p <- exp( h/2 (R_1 + R_2) + h^2 sqrt(3)/12 [R_2, R_1] ) p,        R_1, R_2 at the two Gauss nodes of the step,

over a grid that is graded towards both ends of [0, 1], where rates may be unbounded.  Steps are doubled until the
answer settles.
"""

from collections.abc import Callable
from math import sqrt

import torch
from torch import Tensor

from unnoise.generators.generator import Generator, neighbours, pick, tree_leaves
from unnoise.shapes import Float, Tree
from unnoise.spaces import Finite, Product, Space, batch_size, map_leaves


def states(space: Space) -> Tree:
    """Every point of a finite space or of a product of finite spaces."""
    if isinstance(space, Finite):
        return space.states()
    if isinstance(space, Product):
        tree: Tree = {}
        for name, part in space.leaves.items():
            new = states(part)
            old_count, new_count = (batch_size(tree) if tree else 1), batch_size(new)
            tree = map_leaves(lambda x, n=new_count: x.repeat_interleave(n, 0), tree) if tree else {}
            tree[name] = map_leaves(lambda x, n=old_count: x.repeat(n, *[1] * (x.ndim - 1)), new)
        return tree
    raise TypeError(f"{space} is not finite: its points cannot be listed")


def code(space: Space, x: Tree) -> Tensor:
    """The position of each row of x in `states(space)`."""
    if isinstance(space, Finite):
        index = torch.zeros(batch_size(x), dtype=torch.int64)
        sizes = torch.full((space.dimension,), space.size) if space.sizes is None else space.sizes.flatten()
        for column, size in zip(x.reshape(batch_size(x), -1).unbind(1), sizes.tolist(), strict=True):
            index = index * size + column
        return index
    if isinstance(space, Product):
        index = torch.zeros(batch_size(x), dtype=torch.int64)
        for name, part in space.leaves.items():
            index = index * batch_size(states(part)) + code(part, x[name])
        return index
    raise TypeError(f"{space} is not finite: its points cannot be listed")


def matrix(generator: Generator) -> Float[Tensor, "count count"]:
    """The dense rate matrix, R[y, x] the rate x -> y, columns summing to zero."""
    points = states(generator.space)
    count, data = batch_size(points), generator.local(points)
    dense = torch.zeros(count, count, dtype=torch.float64)
    for path, space in tree_leaves(generator.space):
        rates = pick(data, path).rates.double().reshape(count, -1)
        jump = rates.flatten() > 0
        source = torch.arange(count).repeat_interleave(rates.shape[1])[jump]
        target = code(generator.space, map_leaves(lambda x, j=jump: x[j], neighbours(points, path, space)))
        dense.index_put_((target, source), rates.flatten()[jump], accumulate=True)
    return dense - torch.diag(dense.sum(0))


def solve(rate_matrix: Callable[[float], Tensor], p: Tensor, start: float, end: float, tolerance: float = 1e-10) -> Tensor:
    """The law at `end` of a chain with law p at `start`; with end < start the clock runs down and R is the reverse's."""
    previous, steps = None, 16
    while steps <= 4096:
        current = _magnus(rate_matrix, p, start, end, steps)
        if previous is not None and float((current - previous).abs().max()) < tolerance:
            return current
        previous, steps = current, 2 * steps
    raise RuntimeError(f"the forward equation did not settle to {tolerance:g} within 4096 steps from {start} to {end}")


def _magnus(rate_matrix, p: Tensor, start: float, end: float, steps: int) -> Tensor:
    def time(v: float) -> float:  # graded: all derivatives up to the third vanish at both ends
        return start + (end - start) * v**4 * (35 - 84 * v + 70 * v**2 - 20 * v**3)

    def slope(v: float) -> float:
        return abs(end - start) * 140 * v**3 * (1 - v) ** 3

    h = 1 / steps
    for i in range(steps):
        nodes = [(i + 0.5 + side * sqrt(3) / 6) * h for side in (-1, 1)]
        first, second = (rate_matrix(time(v)) * slope(v) for v in nodes)
        bracket = second @ first - first @ second
        p = torch.linalg.matrix_exp(h / 2 * (first + second) + h * h * sqrt(3) / 12 * bracket) @ p
    return p
