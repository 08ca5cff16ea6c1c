"""Trees: a state, a clock, a condition is a tensor, or a dict of trees with one entry for each leaf of a product.

Every tensor of a tree has one entry per row of the batch in its first axis.  What is done to a whole tree, leaf by leaf or
row by row, is done here and nowhere else.

    map_leaves(f, x, y, ...)   f of the tensors that stand at the same place
    leaves(x)                  the tensors in order
    pick, replace              one place, named by its path: ("text",), or () for a tree that is a tensor
    rows, join, put_rows       some rows, trees one below another, rows written over
    tile, repeat_rows          the whole batch n times over, or every row n times
    choose                     rows of one tree or of another
"""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from unnoise.shapes import Tree

Path = tuple[str, ...]
T = TypeVar("T")
U = TypeVar("U")


def map_leaves(function: Callable[..., U], x: Tree[Any], *others: Tree[Any]) -> Tree[U]:
    """A function of the tensors that stand at the same place in each tree."""
    if isinstance(x, dict):
        return {name: map_leaves(function, value, *(other[name] for other in others)) for name, value in x.items()}
    return function(x, *others)


def leaves(x: Tree[T]) -> list[T]:
    """The tensors of a tree, in order."""
    return [leaf for value in x.values() for leaf in leaves(value)] if isinstance(x, dict) else [x]


def first_leaf(x: Tree[T]) -> T:
    while isinstance(x, dict):
        x = next(iter(x.values()))
    return x


def batch_size(x: Tree) -> int:
    return first_leaf(x).shape[0]


def pick(tree: Tree[T], path: Path) -> T:
    """The leaf at a path."""
    here: Any = tree
    for name in path:
        here = here[name]
    return here


def replace(tree: Tree[T], path: Path, value: T) -> Tree[T]:
    """The tree with the leaf at a path exchanged."""
    if not path:
        return value
    parts: dict[str, Tree[T]] = tree  # type: ignore[assignment]  # a path leads through dicts
    return {name: replace(part, path[1:], value) if name == path[0] else part for name, part in parts.items()}


def rows(x: Tree, index: Tensor | slice) -> Tree:
    """Some rows of every leaf."""
    return map_leaves(lambda leaf: leaf[index], x)


def join(trees: Sequence[Tree]) -> Tree:
    """The rows of several trees, one below another."""
    return map_leaves(lambda *parts: torch.cat(parts), *trees)


def put_rows(x: Tree, index: Tensor, new: Tree) -> Tree:
    """The tree with some of its rows replaced."""
    return map_leaves(lambda leaf, value: leaf.index_copy(0, index, value), x, new)


def tile(x: Tree, n: int) -> Tree:
    """The whole batch n times over."""
    return map_leaves(lambda leaf: leaf.repeat(n, *[1] * (leaf.ndim - 1)), x)


def repeat_rows(x: Tree, n: int) -> Tree:
    """Every row n times, one after another."""
    return map_leaves(lambda leaf: leaf.repeat_interleave(n, 0), x)


def choose(which: Tensor, x: Tree, y: Tree) -> Tree:
    """The rows of x where `which`, those of y elsewhere."""
    return map_leaves(lambda a, b: torch.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b), x, y)
