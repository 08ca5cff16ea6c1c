"""The columns of a table as states: the names of leaves, how columns are told, labels and scores of rows of texts."""

import re
from math import log, pi
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.data.base import BadData, Line
from unnoise.data.columns import SEED, Column, Texts
from unnoise.data.composition import Composition
from unnoise.data.globe import Globe
from unnoise.data.joint_leaf import JointLeaf
from unnoise.data.places import Scored
from unnoise.data.table_cells import CATEGORIES
from unnoise.noise import NoiseSource
from unnoise.shapes import Bool, Float, Tree

if TYPE_CHECKING:
    from unnoise.data.table import Table

JOINT: dict[str, type[JointLeaf]] = {"latitude": Globe, "composition": Composition}  # by the kind of their first column


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


def joint_leaves(columns: tuple[Column, ...]) -> list[JointLeaf]:
    """In the order of their first columns."""
    by_name = {column.name: column for column in columns}
    groups = [tuple(by_name[name] for name in names) for names in dict.fromkeys(c.partners for c in columns if c.partners)]
    return [JOINT[group[0].kind](group) for group in groups]


def line_of(column: Column, listed: bool, joint: JointLeaf | None = None) -> Line:
    """What was understood of a column."""
    values = column.choices
    if column.scores is None and len(column.texts) == 1:
        values = f"constant: {values}"
    elif column.scores is not None and column.texts:
        values += f"; apart: {', '.join(column.texts)}"
    values += f"; {form}" if (form := column.form) else ""
    values += "; or missing" if column.missing is not None else ""
    own = "wrapped normal" if column.closed else "Gaussian"
    if joint is not None:
        others = [name for name in joint.names if name != column.name]
        own = f"{joint.told}, with {', '.join(others)}"
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
        fill = torch.full_like(z[:, j], -log(2 * pi)) if columns[j].closed else -0.5 * (z[:, j].square() + log(2 * pi))
        total = total + torch.where(own[:, j], 0.0, fill)
    for leaf, joint in format.joints.items():
        known = torch.stack([_read(format, x, column) for column in joint.columns], 1)
        total = total + joint.log_fill(x[leaf].double(), known)
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
    for leaf, joint in format.joints.items():
        scores = np.stack([np.asarray(coded[name][1]) for name in joint.names], 1)
        known = np.stack([coded[column.name][0] == column.size - 1 for column in joint.columns], 1)
        try:
            points = joint.encode(scores, known, NoiseSource(SEED, len(scores)).at(leaf))
        except BadData as error:
            raise BadData(f"{texts[joint.names[0]].where}: {error}") from error
        x[leaf] = torch.as_tensor(points, dtype=torch.float32)
    return x


def _scored(format: "Table", texts: dict[str, Texts], x: dict[str, Tensor]) -> Scored:
    """The states, with the intervals: the ends are where the first and the last point of a number go."""
    ends = [[c.encode(texts[c.name], place=place)[1] for c in format.leaves.values()] for place in (0.0, 1.0)]
    low, high = (torch.stack([torch.as_tensor(end).double() for end in each], 1) for each in ends)
    z = _numbers(format, x)
    return Scored(z, low, high, _own(format, x), _marks(format, x))


def _own(format: "Table", x: dict[str, Tensor]) -> Bool[Tensor, "rows numbers"]:
    """Which scores are read: not those beside an atom or a missing value."""
    none = next(iter(x.values()))[:, :0].bool()
    return torch.cat([none, *(_read(format, x, column).unsqueeze(1) for column in format.leaves.values())], 1)


def _read(format: "Table", x: dict[str, Tensor], column: Column) -> Bool[Tensor, "rows"]:
    """Where the score of a column is read."""
    places = [i for i, other in enumerate(format.coordinates) if other is column]
    if not places:
        return torch.ones_like(next(iter(x.values()))[:, 0], dtype=torch.bool)
    return x[CATEGORIES][:, places[0]] == column.size - 1


def _marks(format: "Table", x: dict[str, Tensor]) -> Float[Tensor, "rows labels"]:
    """All labels as 0 and 1, side by side."""
    marks = [nn.functional.one_hot(x[CATEGORIES][:, i], c.size).double() for i, c in enumerate(format.coordinates)]
    return torch.cat([next(iter(x.values())).double()[:, :0], *marks], 1)
