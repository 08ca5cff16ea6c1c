"""The leaves of a tree of spaces, and the states around a state: those that one jump can lead to."""

import torch
from torch import Tensor

from unnoise.shapes import Tree
from unnoise.spaces import Counts, Finite, ProductSpace, Space
from unnoise.tree import batch_size, map_leaves, pick, replace


def tree_leaves(space: Space, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Space]]:
    """The leaves of a space with their paths; a single space has the empty path."""
    if isinstance(space, ProductSpace):
        return [leaf for name, part in space.leaves.items() for leaf in tree_leaves(part, (*path, name))]
    return [(path, space)]


def neighbours(x: Tree, path: tuple[str, ...], space: Space) -> Tree:
    """Every state that differs from x in at most one coordinate of one leaf: [batch * dimension * size] rows.

    A finite leaf runs through all categories, counts through x - 1 and x + 1 (size = 2).  Where a coordinate has fewer
    categories than `size` its surplus rows repeat its last one, and 0 repeats itself for -1: no function is asked for a
    value off the space.
    """
    leaf = pick(x, path).reshape(batch_size(x), -1)
    values = _destinations(leaf, space)
    rows, dimension, size = values.shape
    copies = leaf[:, None, None, :].expand(rows, dimension, size, dimension).clone()
    k = torch.arange(dimension, device=leaf.device)
    copies[:, k, :, k] = values.transpose(0, 1)
    around = map_leaves(lambda part: part.repeat_interleave(dimension * size, 0), x)
    return replace(around, path, copies.reshape(-1, *pick(x, path).shape[1:]))


def _destinations(leaf: Tensor, space: Space) -> Tensor:
    """Where each coordinate of a flat leaf may jump to: [rows, dimension, size]."""
    if isinstance(space, Counts):
        return torch.stack([(leaf - 1).clamp_min(0), leaf + 1], -1)
    assert isinstance(space, Finite)
    category = torch.arange(space.size, device=leaf.device)
    if space.sizes is not None:
        category = torch.minimum(category, space.sizes.to(leaf.device).reshape(-1, 1) - 1)
    return category.expand(*leaf.shape, space.size)
