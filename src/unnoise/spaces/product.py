"""Products: a dict of spaces, nested to any depth.  Generators map over the leaves; a product has no geometry of its own."""

from math import prod

import torch
from torch import Tensor

from unnoise.checks import fits
from unnoise.shapes import AnyState, Int, Tree
from unnoise.spaces.base import Space
from unnoise.tree import Path, batch_size, repeat_rows, tile


class ProductSpace(Space):
    """A dict of spaces; a point is a dict with one entry per leaf."""

    reference = "the product of the leaves' measures"

    def __init__(self, /, **leaves: Space):
        if not leaves:
            raise ValueError("a product needs at least one leaf")
        self._leaves = leaves

    @property
    def leaves(self) -> dict[str, Space]:
        return self._leaves

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._leaves)

    @property
    def dimension(self) -> int:
        return sum(space.dimension for space in self._leaves.values())

    @property
    def entries(self) -> int:
        return sum(space.entries for space in self._leaves.values())

    def check(self, x: AnyState, name: str = "x") -> dict[str, Tree]:
        fits(x, self.names, name)
        checked = {key: space.check(x[key], f"{name}['{key}']") for key, space in self._leaves.items()}
        rows = {key: batch_size(value) for key, value in checked.items()}
        if len(set(rows.values())) > 1:
            raise ValueError(f"the leaves of {name} differ in rows: {rows}")
        return checked

    def project(self, x: dict[str, Tree]) -> dict[str, Tree]:
        return {name: space.project(x[name]) for name, space in self._leaves.items()}

    @property
    def enumerable(self) -> bool:
        return all(space.enumerable for space in self._leaves.values())

    @property
    def count(self) -> int:
        return prod(space.count for space in self._leaves.values())

    def states(self) -> dict[str, Tree]:
        tree: dict[str, Tree] = {}
        for name, space in self._leaves.items():
            new = space.states()
            old_count, new_count = (batch_size(tree) if tree else 1), batch_size(new)
            tree = {key: repeat_rows(part, new_count) for key, part in tree.items()}
            tree[name] = tile(new, old_count)
        return tree

    def code(self, x: dict[str, Tree]) -> Int[Tensor, "batch"]:
        index = torch.zeros(batch_size(x), dtype=torch.int64)
        for name, space in self._leaves.items():
            index = index * space.count + space.code(x[name])
        return index

    def __repr__(self) -> str:
        return f"Product({', '.join(f'{k}={v}' for k, v in self._leaves.items())})"


def tree_leaves(space: Space, path: Path = ()) -> list[tuple[Path, Space]]:
    """The leaves of a space with their paths; a space that is a leaf has the empty path."""
    if not space.leaves:
        return [(path, space)]
    return [leaf for name, part in space.leaves.items() for leaf in tree_leaves(part, (*path, name))]
