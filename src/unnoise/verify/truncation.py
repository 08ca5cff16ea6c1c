"""Counts cut off at a largest value, so that finite methods apply: rate matrices, forward equations, lists of states.

A jump beyond the largest count is left out, so the cut process is that of its neighbours up to the time at which it would
first jump there: laws differ by at most the probability of ever being at the largest count.
"""

from functools import singledispatch

import torch
from torch import Tensor

from unnoise.generators import Local
from unnoise.laws import LOG_ZERO
from unnoise.shapes import Tree
from unnoise.spaces import Counts, Finite, ProductSpace, Space, tree_leaves
from unnoise.tree import batch_size, pick, replace


def counted(space: Space) -> list[tuple[str, ...]]:
    """The paths of the leaves that hold counts without end."""
    return [path for path, leaf in tree_leaves(space) if isinstance(leaf, Counts)]


@singledispatch
def cut(space: Space, last: int) -> Space:
    """The space with counts 0 ... last as categories."""
    return space


@cut.register
def _(space: Counts, last: int) -> Space:
    return Finite(last + 1, space.shape)


@cut.register
def _(space: ProductSpace, last: int) -> Space:
    return ProductSpace(**{name: cut(part, last) for name, part in space.leaves.items()})


def cut_local(data: Tree[Local], x: Tree, space: Space, last: int) -> Tree[Local]:
    """A generator's data on the cut space: two rates of a count become a row over 0 ... last."""
    for path in counted(space):
        here = pick(x, path)
        down, up = pick(data, path).log_rates.unsqueeze(-2).unbind(-1)  # type: ignore[union-attr]
        target, at = torch.arange(last + 1), here.unsqueeze(-1)
        nowhere = torch.full((*here.shape, last + 1), LOG_ZERO, dtype=torch.float64)
        rates = torch.where(target == at - 1, down, torch.where(target == at + 1, up, nowhere))
        data = replace(data, path, Local(log_rates=rates))
    return data


def has_counts(space: Space) -> bool:
    return bool(counted(space))


def edge(space: Space, points: Tree, last: int) -> Tensor:
    """Which of the states have a coordinate at the largest count."""
    at_edge = torch.zeros(batch_size(points), dtype=torch.bool)
    for path in counted(space):
        at_edge = at_edge | (pick(points, path).flatten(1) == last).any(1)
    return at_edge
