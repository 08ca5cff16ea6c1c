"""Conditions: what a network is told beside (x_t, t).

A condition is a tree: a dict of names whose values are tensors or dicts of them, to any depth.  There is one rule for all of
its tensors: a tensor has one entry per row of the batch.  What is not given row by row is marked,

    condition={"label": labels, "graph": un.Shared(adjacency)},

and is handed to the network as it is, never cut, repeated or counted.  A word, a number and None are shared by nature; what
else has a length (a list, an array of numpy) is made a tensor, or marked.  A network gets the values by name:
network(x, t, label=..., graph=...); the names of what it is given already are refused.

    checked(condition, rows)   the rule, asked at the entrance of bounds, samplers and likelihoods
    rows_of(condition, index)  the share of some rows
    tiled(condition, n)        for the batch n times over
    joined([one, other])       for one batch below another
    unknown(condition)         the same with nothing known: -1 for categories, NaN for numbers
    given(condition)           as the network sees it, with the marks taken off
"""

from collections.abc import Callable, Mapping, Sequence, Sized
from functools import partial
from typing import Any

import torch
from torch import Tensor

Condition = Mapping[str, Any]
_APART = object()  # stands for what cannot be joined
RESERVED = ("self", "x", "t", "x_t", "previous", "mixture")  # what a network is given already


class Shared:
    """A value that is the same for all rows: `Shared(table)`."""

    def __init__(self, value: Any):
        self.value = value

    def __repr__(self) -> str:
        return f"Shared({self.value!r})"


def _map(function: Callable[[Tensor], Any], value: Any) -> Any:
    """A function of every tensor that has an entry per row."""
    if isinstance(value, Mapping):
        return {name: _map(function, part) for name, part in value.items()}
    return function(value) if isinstance(value, Tensor) else value


def checked(condition: Any, rows: int) -> dict[str, Any]:
    """The condition of a batch, or an error that names what breaks the rule."""
    if condition is None:
        return {}
    if not isinstance(condition, Mapping):
        raise TypeError(f"condition is a {type(condition).__name__}: pass a dict of values, condition={{'label': y}}")
    for name in condition:
        if not isinstance(name, str):
            raise TypeError(f"condition has the name {name!r}: a network gets its condition by name, so use words")
        if name in RESERVED:
            raise ValueError(f"condition names {name!r}, which a network is given already: choose another name")
    _check(condition, rows, "condition")
    return dict(condition)


def _check(value: Any, rows: int, place: str) -> None:
    if isinstance(value, Mapping):
        for name, part in value.items():
            _check(part, rows, f"{place}[{name!r}]")
    elif isinstance(value, Tensor) and (not value.ndim or len(value) != rows):
        raise ValueError(
            f"{place} has shape {tuple(value.shape)}, but there are {rows} rows: a tensor has one entry per row; "
            f"mark what all rows share, un.Shared(...)"
        )
    elif isinstance(value, Sized) and not isinstance(value, str | bytes | Tensor) and getattr(value, "ndim", True):
        raise TypeError(
            f"{place} is a {type(value).__name__}, whose rows would not be found: pass a tensor with one entry per row "
            f"(torch.as_tensor(...)), a dict of tensors, or mark what all rows share, un.Shared(...)"
        )


def rows_of(condition: Condition, index: Tensor | slice) -> dict[str, Any]:
    """The share of some rows."""
    return _map(lambda leaf: leaf[index], condition)


def tiled(condition: Condition, n: int) -> dict[str, Any]:
    """For the batch n times over."""
    return _map(lambda leaf: leaf.repeat(n, *[1] * (leaf.ndim - 1)), condition)


def joined(conditions: Sequence[Condition]) -> dict[str, Any] | None:
    """The rows of several conditions, one below another; None where they do not fit together."""

    def below(values: Sequence[Any]) -> Any:
        first = values[0]
        if isinstance(first, Mapping):
            same = all(isinstance(value, Mapping) and set(value) == set(first) for value in values)
            parts = {name: below([value[name] for value in values]) for name in first} if same else {"": _APART}
            return _APART if any(part is _APART for part in parts.values()) else parts
        if all(isinstance(value, Tensor) and value.shape[1:] == first.shape[1:] for value in values):
            return torch.cat(list(values))
        return first if all(value is first for value in values) else _APART

    whole = below(conditions)
    return None if whole is _APART else whole


def one_row(condition: Condition, rows: int) -> dict[str, Any]:
    """The condition as that of a single row; refused where rows differ."""

    def first(name: str, leaf: Tensor) -> Tensor:
        differs = (leaf != leaf[:1]).reshape(rows, -1).any(1)
        if bool(differs.any()):
            i = int(differs.nonzero()[0, 0])
            raise ValueError(
                f"the condition '{name}' differs between rows 0 and {i}, but a table of all states is for one condition: "
                f"pass the rows of one condition at a time, or use PathWeighted()"
            )
        return leaf[:1]

    return {name: _map(partial(first, name), value) for name, value in condition.items()}


def spread(condition: Condition, rows: int) -> dict[str, Any]:
    """A condition of one row, for `rows` rows that share it."""
    return _map(lambda leaf: leaf.expand(rows, *leaf.shape[1:]), condition)


def unknown(condition: Condition) -> dict[str, Any]:
    """The same tree with nothing known of any row: -1 in place of categories, NaN in place of numbers."""

    def nothing(value: Tensor) -> Tensor:
        return torch.full_like(value, float("nan") if value.dtype.is_floating_point else -1)

    return _map(nothing, condition)


def given(condition: Condition) -> dict[str, Any]:
    """As a network gets it: marks taken off."""

    def plain(value: Any) -> Any:
        if isinstance(value, Shared):
            return value.value
        return {name: plain(part) for name, part in value.items()} if isinstance(value, Mapping) else value

    return {name: plain(value) for name, value in condition.items()}


def moved(condition: Condition, device: torch.device | str) -> dict[str, Any]:
    """On a device, what is shared too."""

    def move(value: Any) -> Any:
        if isinstance(value, Shared):
            return Shared(move(value.value))
        if isinstance(value, Mapping):
            return {name: move(part) for name, part in value.items()}
        return value.to(device) if isinstance(value, Tensor) else value

    return {name: move(value) for name, value in condition.items()}
