"""Tables: one token per column, whatever its kind, and a transformer over the columns.

The state is a dict of leaves (nested to any depth), or a single leaf.  A number is a token through waves of its value and
a weight of its own column, an angle through the waves alone; a count the same through log(1 + x); a category through a row
of one table that holds the categories of all columns, MASK included, one column after the other.  So columns of unlike
sizes are a single lookup, and each output is a single product with a weight per column, padded to the largest size;
categories that a column does not have get IMPOSSIBLE as their logit.  Every token is told the time of its own leaf.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.networks.base import register, require
from unnoise.networks.blocks import Block
from unnoise.networks.embedding import Modulation, TimeEmbedding, fourier_of_angle, fourier_of_value, modulate, rms_norm
from unnoise.networks.told import conditions_of, hear, told_embedding
from unnoise.shapes import AnyState, Tree

IMPOSSIBLE = -1e9  # exp of it is 0 in every precision


@dataclass(kw_only=True)
class ColumnLeaf:
    """One leaf of the state: where it is, and what its coordinates are."""

    path: Sequence[str]  # its names from the root down; empty where the state is this leaf alone
    kind: str  # "number", "count", "angle" or "category"
    shape: Sequence[int] = ()
    sizes: Sequence[int] = ()  # categories of each coordinate, flattened
    extra: int = 0  # further states after the categories, such as MASK
    entries: int = 1  # numbers predicted per coordinate of a count
    frequencies: int = 0  # waves of each of its numbers, where those are more than the network's

    def __post_init__(self) -> None:
        require(
            self.kind in ("number", "count", "angle", "category"),
            f"kind = {self.kind!r} of leaf {list(self.path)}: choose 'number', 'count', 'angle' or 'category'",
        )
        expected = self.columns if self.kind == "category" else 0
        require(
            len(self.sizes) == expected,
            f"leaf {list(self.path)} has {len(self.sizes)} sizes; pass {expected}, one for each category coordinate",
        )

    @property
    def columns(self) -> int:
        return prod(self.shape)

    def find(self, tree: AnyState) -> Any:
        """Its own part of a tree; of a tree of times, that of the nearest branch that has one."""
        for name in self.path:
            if not isinstance(tree, Mapping):
                break
            tree = tree[name]
        return tree


@dataclass(kw_only=True)
class ColumnTransformerConfig:
    leaves: Sequence[Any]  # of ColumnLeaf, or of dicts of their fields
    width: int = 256
    layers: int = 4
    heads: int = 8
    frequencies: int = 3  # waves of each number
    self_condition: bool = False
    conditions: Sequence[Any] = ()  # that it is told beside x and t: `ConditionInput`, or dicts of its fields

    def __post_init__(self) -> None:
        self.conditions = conditions_of(self.conditions)
        self.leaves = [ColumnLeaf(**leaf) if isinstance(leaf, Mapping) else leaf for leaf in self.leaves]
        require(len(self.leaves) > 0, "leaves is empty: name at least one")
        waves = self.frequencies >= 1 or all(leaf.kind != "angle" for leaf in self.leaves)
        require(waves, f"frequencies = {self.frequencies}: an angle is seen by its waves, at least one")
        require(self.width % self.heads == 0, f"width = {self.width} is not a multiple of heads = {self.heads}")


class _Categories(nn.Module):
    """The category columns of all leaves: one table of inputs, one padded weight of outputs."""

    offset: Tensor
    own: Tensor
    shared: Tensor
    impossible: Tensor

    def __init__(self, leaves: list[ColumnLeaf], width: int, self_condition: bool):
        super().__init__()
        own = [size for leaf in leaves for size in leaf.sizes]
        shared = [max(leaf.sizes) for leaf in leaves for _ in leaf.sizes]  # where the leaf's further states begin
        rows = [size + leaf.extra for leaf in leaves for size in leaf.sizes]
        offset = [sum(rows[:i]) for i in range(len(rows))]
        for name, value in (("offset", offset), ("own", own), ("shared", shared)):
            self.register_buffer(name, torch.tensor(value), persistent=False)
        self.register_buffer("impossible", torch.arange(max(own)) >= self.own.unsqueeze(1), persistent=False)
        self.table = nn.Embedding(sum(rows), width)
        nn.init.normal_(self.table.weight, std=0.5)
        self.weight = nn.Parameter(torch.zeros(len(own), width, max(own)))
        self.bias = nn.Parameter(torch.zeros(len(own), max(own)))
        self.previous = nn.Parameter(0.1 * torch.randn(len(own), max(own), width)) if self_condition else None

    def tokens(self, x: Tensor, previous: Tensor | None = None) -> Tensor:
        """[batch, columns] -> [batch, columns, width]; a state after the leaf's categories follows the column's own."""
        h = self.table(self.offset + torch.where(x >= self.shared, x - self.shared + self.own, x))
        if self.previous is None:
            return h
        given = h.new_zeros(*x.shape, len(self.previous[0])) if previous is None else previous.to(h.dtype)
        return h + torch.einsum("bns,nsw->bnw", given, self.previous)

    def logits(self, h: Tensor) -> Tensor:
        out = torch.einsum("bnw,nws->bns", h, self.weight) + self.bias
        return out.to(torch.promote_types(out.dtype, torch.float32)).masked_fill(self.impossible, IMPOSSIBLE)


class _Numbers(nn.Module):
    """The number, count and angle columns of all leaves."""

    counted: Tensor
    angled: Tensor
    shown: Tensor

    def __init__(self, leaves: list[ColumnLeaf], width: int, frequencies: int, self_condition: bool):
        super().__init__()
        waves = [max(leaf.frequencies, frequencies) for leaf in leaves for _ in range(leaf.columns)]
        self.frequencies = most = max(waves)
        columns, seen = len(waves), 1 + 2 * most
        shown = [[True, *[i < own for i in range(most)] * 2] for own in waves]  # the number itself, cosines, sines
        self.register_buffer("shown", torch.tensor(shown), persistent=False)
        self.all_shown = min(waves) == most
        counted = [leaf.kind == "count" for leaf in leaves for _ in range(leaf.columns)]
        self.register_buffer("counted", torch.tensor(counted), persistent=False)
        angled = [leaf.kind == "angle" for leaf in leaves for _ in range(leaf.columns)]
        self.register_buffer("angled", torch.tensor(angled).unsqueeze(-1), persistent=False)
        self.any_angled = any(angled)
        self.any_counted, entries = any(counted), max(leaf.entries for leaf in leaves)
        self.inward = nn.Parameter(torch.randn(columns, seen, width) / (2 * seen**0.5))
        self.inward_bias = nn.Parameter(torch.randn(columns, width) / 2)
        self.weight = nn.Parameter(torch.zeros(columns, width, entries))
        self.bias = nn.Parameter(torch.zeros(columns, entries))
        self.previous = nn.Parameter(torch.randn(columns, width) / 2) if self_condition else None

    def tokens(self, x: Tensor, previous: Tensor | None = None) -> Tensor:
        if self.any_counted:
            x = torch.where(self.counted, x.clamp_min(0).log1p(), x)
        seen = fourier_of_value(x, self.frequencies)
        if self.any_angled:
            seen = torch.where(self.angled, fourier_of_angle(x, self.frequencies), seen)
        if not self.all_shown:
            seen = torch.where(self.shown, seen, 0.0)
        h = torch.einsum("bnf,nfw->bnw", seen, self.inward) + self.inward_bias
        if self.previous is None:
            return h
        return h + (torch.zeros_like(x) if previous is None else previous).unsqueeze(-1) * self.previous

    def values(self, h: Tensor) -> Tensor:
        out = torch.einsum("bnw,nwe->bne", h, self.weight) + self.bias
        return out.to(torch.promote_types(out.dtype, torch.float32))


@register(ColumnTransformerConfig)
class ColumnTransformer(nn.Module):
    """`forward(x, t, previous=None, **condition)`; t is one time per row, or a dict of them by leaf.  The output has the
    tree of the state, and so has `previous`, an earlier estimate of x_0: numbers, and for categories probabilities
    [..., size]."""

    group: Tensor

    def __init__(self, config: ColumnTransformerConfig):
        super().__init__()
        self.config = config
        self.number_leaves = [leaf for leaf in config.leaves if leaf.kind != "category"]
        self.category_leaves = [leaf for leaf in config.leaves if leaf.kind == "category"]
        self.leaves = self.number_leaves + self.category_leaves  # in the order of the tokens
        numbers, categories, twice = self.number_leaves, self.category_leaves, config.self_condition
        self.numbers = _Numbers(numbers, config.width, config.frequencies, twice) if numbers else None
        self.categories = _Categories(categories, config.width, twice) if categories else None
        group = [i for i, leaf in enumerate(self.leaves) for _ in range(leaf.columns)]
        self.register_buffer("group", torch.tensor(group), persistent=False)
        self.time, self.told = TimeEmbedding(config.width), told_embedding(config.conditions, config.width)
        self.blocks = nn.ModuleList(
            Block(config.width, config.heads, config.layers, config.width) for _ in range(config.layers)
        )
        self.modulation = Modulation(config.width, config.width, 2)

    def _joined(self, x: Tree, leaves: list[ColumnLeaf], dtype: torch.dtype) -> Tensor:
        return torch.cat([leaf.find(x).reshape(-1, leaf.columns).to(dtype) for leaf in leaves], 1)

    def _probabilities(self, previous: Tree) -> Tensor:
        """Of the categories of all columns, filled up to the largest size."""
        largest = max(max(leaf.sizes) for leaf in self.category_leaves)
        parts = [leaf.find(previous).reshape(-1, leaf.columns, max(leaf.sizes)) for leaf in self.category_leaves]
        return torch.cat([nn.functional.pad(part, (0, largest - part.shape[-1])) for part in parts], 1)

    def forward(self, x: Tree, t: Tree, previous: Tree | None = None, **condition: Any) -> Tree:
        if previous is not None and not self.config.self_condition:
            raise ValueError("this network takes no previous estimate: build it with self_condition=True")
        tokens = []
        if self.numbers is not None:
            dtype = self.numbers.inward.dtype
            shown = None if previous is None else self._joined(previous, self.number_leaves, dtype)
            tokens.append(self.numbers.tokens(self._joined(x, self.number_leaves, dtype), shown))
        if self.categories is not None:
            shown = None if previous is None else self._probabilities(previous)
            tokens.append(self.categories.tokens(self._joined(x, self.category_leaves, torch.int64), shown))
        h = torch.cat(tokens, 1)
        by_leaf = isinstance(t, Mapping)
        clock: AnyState = t
        told = hear(self.told, condition, len(h))
        clocks = torch.stack([leaf.find(t) for leaf in self.leaves], 1) if by_leaf else clock.unsqueeze(1)
        c = self.time(clocks, None if told is None else told.unsqueeze(1))
        for block in self.blocks:
            h = block(h, c, self.group if by_leaf else None)
        shift, scale = (part.index_select(1, self.group) if by_leaf else part for part in self.modulation(c))
        return self._outputs(modulate(rms_norm(h), shift, scale), h.shape[0])

    def _outputs(self, h: Tensor, batch: int) -> Tree:
        count = sum(leaf.columns for leaf in self.number_leaves)
        out: Tree = {}
        if self.numbers is not None:
            parts = self.numbers.values(h[:, :count]).split([leaf.columns for leaf in self.number_leaves], 1)
            for leaf, part in zip(self.number_leaves, parts, strict=True):
                axis = (leaf.entries,) if leaf.entries > 1 else ()
                out = _placed(out, leaf.path, part[..., : leaf.entries].reshape(batch, *leaf.shape, *axis))
        if self.categories is not None:
            parts = self.categories.logits(h[:, count:]).split([leaf.columns for leaf in self.category_leaves], 1)
            for leaf, part in zip(self.category_leaves, parts, strict=True):
                size = max(leaf.sizes)
                out = _placed(out, leaf.path, part[..., :size].reshape(batch, *leaf.shape, size))
        return out


def _placed(tree: Any, path: Sequence[str], value: Tensor) -> Tree:
    """The tree with a value at a path."""
    if not path:
        return value
    return {**tree, path[0]: _placed(tree.get(path[0], {}), path[1:], value)}
