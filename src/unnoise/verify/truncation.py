"""Counts cut off at a largest value, so that finite methods apply: rate matrices, forward equations, lists of states.

A jump beyond the largest count is left out, so the cut process is that of its neighbours up to the time at which it would
first jump there: laws differ by at most the probability of ever being at the largest count.
"""

import torch
from torch import Tensor

from unnoise.generators import Local
from unnoise.laws import LOG_ZERO
from unnoise.shapes import Tree
from unnoise.spaces import Counts, Finite, ProductSpace, Space


def cut(space: Space, last: int) -> Space:
    """The space with counts 0 ... last as categories."""
    if isinstance(space, ProductSpace):
        return ProductSpace(**{name: cut(part, last) for name, part in space.leaves.items()})
    return Finite(last + 1, space.shape) if isinstance(space, Counts) else space


def cut_local(data: Tree, x: Tree, space: Space, last: int) -> Tree:
    """A generator's data on the cut space: two rates of a count become a row over 0 ... last."""
    if isinstance(space, ProductSpace):
        return {name: cut_local(data[name], x[name], part, last) for name, part in space.leaves.items()}
    if not isinstance(space, Counts):
        return data
    down, up = data.log_rates.unsqueeze(-2).unbind(-1)
    target, here = torch.arange(last + 1), x.unsqueeze(-1)
    nowhere = torch.full((*x.shape, last + 1), LOG_ZERO, dtype=torch.float64)
    return Local(log_rates=torch.where(target == here - 1, down, torch.where(target == here + 1, up, nowhere)))


def has_counts(space: Space) -> bool:
    if isinstance(space, ProductSpace):
        return any(has_counts(part) for part in space.leaves.values())
    return isinstance(space, Counts)


def edge(space: Space, points: Tree, last: int) -> Tensor:
    """Which of the states have a coordinate at the largest count."""
    if isinstance(space, ProductSpace):
        return torch.stack([edge(part, points[name], last) for name, part in space.leaves.items()]).any(0)
    at_edge = points.reshape(len(points), -1) == last
    return at_edge.any(1) if isinstance(space, Counts) else torch.zeros(len(points), dtype=torch.bool)
