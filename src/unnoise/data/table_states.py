"""The columns of a table as states: the names of leaves, how columns are told, labels and scores of rows of texts."""

import re
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.data.base import Line
from unnoise.data.columns import Column, Texts
from unnoise.data.globe import points
from unnoise.data.places import Scored
from unnoise.data.table_cells import CATEGORIES
from unnoise.shapes import Bool, Float, Tree

if TYPE_CHECKING:
    from unnoise.data.table import Table


def leaf_names(names: list[str]) -> list[str]:
    """Names for leaves: identifiers, all different, and none that a module has of its own."""
    taken = {CATEGORIES}
    leaves = []
    for name in names:
        safe = re.sub(r"\W+", "_", name).strip("_")
        safe = safe if safe and not safe[0].isdigit() else f"column_{safe}"
        while safe in taken or hasattr(nn.ModuleDict, safe) or safe in vars(nn.ModuleDict()):
            safe += "_"
        taken.add(safe)
        leaves.append(safe)
    return leaves


def line_of(column: Column, listed: bool) -> Line:
    """What was understood of a column."""
    values = column.choices
    if column.scores is None and len(column.texts) == 1:
        values = f"constant: {values}"
    elif column.scores is not None and column.texts:
        values += f"; apart: {', '.join(column.texts)}"
    values += f"; {form}" if (form := column.form) else ""
    values += "; or missing" if column.missing is not None else ""
    own = f"on the sphere, with {column.partner}" if column.partner else "wrapped normal" if column.closed else "Gaussian"
    process = "masking" if column.scores is None else f"{own} and masking" if listed else own
    return Line(column.name, column.kind, values, process)


def encoded(format: "Table", texts: dict[str, Texts], unseen: str) -> Tree:
    """States of rows, the scores of shared numbers at the places that the rest of the row says (`places`)."""
    if unseen not in ("refuse", "nearest"):
        raise ValueError(f"unseen = {unseen!r}: use 'refuse' or 'nearest'")
    x = _states(format, texts, unseen)
    if format.places is None:
        return {**x}
    z = format.places.placed(_scored(format, texts, x)).float()
    return {**x, **{leaf: own.unsqueeze(1) for leaf, own in zip(format.leaves, z.unbind(1), strict=True)}}


def scored(format: "Table", texts: dict[str, Texts]) -> Scored:
    """Scores anywhere in the intervals that they may lie in."""
    return _scored(format, texts, _states(format, texts, "refuse"))


def log_fill(format: "Table", x: dict[str, Tensor]) -> Float[Tensor, "rows"]:
    """Of the scores that nobody reads: by the law of the places, or standard normal; of angles uniform."""
    z, own = _numbers(format, x), _own(format, x)
    total, rest = torch.zeros(len(z), dtype=torch.float64, device=z.device), set(range(z.shape[1]))
    if format.places is not None:
        total = format.places.log_fill(Scored(z, z, z, own, _marks(format, x)))
        rest -= set(format.places.columns)
    columns = list(format.leaves.values())
    for j in rest:
        total = total + torch.where(own[:, j], 0.0, columns[j].log_fill(z[:, j]))  # type: ignore[arg-type]
    for leaf, pair in format.globes.items():
        for column in pair:
            total = total + torch.where(_read(format, x, column, leaf), 0.0, column.log_fill(0.0))  # type: ignore[arg-type]
    return total


def _numbers(format: "Table", x: dict[str, Tensor]) -> Float[Tensor, "rows numbers"]:
    """The scores of all leaves of one number side by side."""
    return torch.cat([next(iter(x.values()))[:, :0].double(), *(x[leaf].double() for leaf in format.leaves)], 1)


def _states(format: "Table", texts: dict[str, Texts], unseen: str) -> dict[str, Tensor]:
    """With the scores of shared numbers anywhere in their intervals."""
    coded = {column.name: column.encode(texts[column.name], unseen) for column in format.columns}
    x: dict[str, Tensor] = {}
    if format.coordinates:
        x[CATEGORIES] = torch.as_tensor(np.stack([coded[column.name][0] for column in format.coordinates], 1))
    for leaf, column in format.leaves.items():
        x[leaf] = torch.as_tensor(coded[column.name][1], dtype=torch.float32).unsqueeze(-1)
    for leaf, pair in format.globes.items():
        latitude, longitude = (np.asarray(coded[column.name][1]) for column in pair)
        x[leaf] = torch.as_tensor(points(latitude, longitude), dtype=torch.float32)
    return x


def _scored(format: "Table", texts: dict[str, Texts], x: dict[str, Tensor]) -> Scored:
    """The states, with the intervals: the ends are where the first and the last point of a number go."""
    ends = [[c.encode(texts[c.name], place=place)[1] for c in format.leaves.values()] for place in (0.0, 1.0)]
    low, high = (torch.stack([torch.as_tensor(end).double() for end in each], 1) for each in ends)
    z = _numbers(format, x)
    return Scored(z, low, high, _own(format, x), _marks(format, x))


def _own(format: "Table", x: dict[str, Tensor]) -> Bool[Tensor, "rows numbers"]:
    """Which scores are read: not those beside an atom or a missing value."""
    own = [_read(format, x, column, leaf) for leaf, column in format.leaves.items()]
    return torch.stack(own, 1) if own else torch.zeros(len(next(iter(x.values()))), 0, dtype=torch.bool)


def _read(format: "Table", x: dict[str, Tensor], column: Column, leaf: str) -> Bool[Tensor, "rows"]:
    places = [i for i, other in enumerate(format.coordinates) if other is column]
    if not places:
        return torch.ones_like(x[leaf][:, 0], dtype=torch.bool)
    return x[CATEGORIES][:, places[0]] == column.size - 1


def _marks(format: "Table", x: dict[str, Tensor]) -> Float[Tensor, "rows labels"]:
    """All labels as 0 and 1, side by side."""
    marks = [nn.functional.one_hot(x[CATEGORIES][:, i], c.size).double() for i, c in enumerate(format.coordinates)]
    return torch.cat([next(iter(x.values())).double()[:, :0], *marks], 1)
