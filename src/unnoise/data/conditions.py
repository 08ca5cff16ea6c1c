"""What was understood of conditions: columns as those of a table, and arrays.

Their states are a tree, {"columns": the states of a table, "array name": ..., "text name": ...}.  A network gets of them, by
name,

    a category       its number, a missing value having one of its own; -1 for nothing
    a number         its score; NaN for nothing, and where the value is missing or an atom, which a second entry then says
    several columns  that are one point, such as a latitude and a longitude: the point
    an array         its numbers, centred and scaled
    a text           its symbols, in order, filled up with the one that ends it; -1 for nothing
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from unnoise.conditions import RESERVED
from unnoise.data.arrays import Array
from unnoise.data.base import BadData, Line
from unnoise.data.companions import Companions
from unnoise.data.sequences import Sequences
from unnoise.data.table import Table
from unnoise.data.table_cells import CATEGORIES
from unnoise.data.table_files import arrow_library
from unnoise.shapes import Bool, Float, Tree
from unnoise.tree import map_leaves

COLUMNS = "columns"  # the part of the tree that is a table's
NOTHING = float("nan")
LABELS, ROWS_EACH = 256, 8  # whole numbers are labels if there are at most so many, each of so many rows on average


@dataclass(frozen=True, eq=False)
class Conditions:
    table: Table | None
    arrays: dict[str, Array] = field(default_factory=dict)
    texts: dict[str, Sequences] = field(default_factory=dict)

    @classmethod
    def fit(
        cls,
        beside: Companions,
        overrides: Mapping[str, Any] | None = None,
        keep: Sequence[str] = (),
        where: str = "the data",
        spelt: bool = False,
    ) -> tuple["Conditions", dict[str, Tree]]:
        """What was understood of all that stands there, and its states; `spelt`: columns are texts, told as sequences."""
        arrays, states, table = dict[str, Array](), dict[str, Tree](), None
        if spelt:
            texts = dict[str, Sequences]()
            for name in beside.names:
                texts[name], states[f"text {name}"] = Sequences.of_texts(_texts(beside, name), where=f"{where}: {name}")
            return cls(None, {}, texts), states
        if beside.table is not None:
            names = beside.table.column_names
            wishes = {name: wish for name, wish in (overrides or {}).items() if name in names}
            kept = tuple(name for name in keep if name in names)
            table, states[COLUMNS] = Table.of_arrow(beside.table, wishes, where, kept, typed=beside.typed)
            labels = [column.name for column in table.columns if column.kind == "count" and _few(beside.table[column.name])]
            if labels := [name for name in labels if name not in wishes]:
                wishes |= dict.fromkeys(labels, "ordinal")
                table, states[COLUMNS] = Table.of_arrow(beside.table, wishes, where, kept, typed=beside.typed)
            if table.left_out:
                first = table.left_out[0]
                raise BadData(
                    f"{where}: --condition {first.name}: is {first.kind} ({first.what}), of which nothing is learned: "
                    f"leave it out, or add --keep {first.name}"
                )
        for name, values in beside.arrays.items():
            arrays[name], states[f"array {name}"] = Array.of_array(values, where=f"{where}: {name}")
            arrays[name].array = name
        return cls(table, arrays), states

    def encode(self, beside: Companions, where: str, unseen: str = "refuse") -> dict[str, Tree]:
        """The states of more of the same."""
        lost = [name for name in self.names if name not in beside.names]
        if lost:
            raise BadData(f"{where}: lacks {lost[0]!r}, a condition of the model: it needs {self.names}")
        own = beside.chosen(self.names, where)
        texts = {f"text {name}": self._spelt(name, _texts(own, name), where) for name in self.texts}
        states = {} if self.table is None else {COLUMNS: self.table.encode_arrow(own.table, unseen, where)}
        arrays = {f"array {name}": array.encode_array(own.arrays[name], where) for name, array in self.arrays.items()}
        return {**states, **arrays, **texts}

    def _spelt(self, name: str, texts: list[str], where: str) -> Tensor:
        """The states of texts; none is longer than those that were trained on."""
        own = self.texts[name]
        if long := [text for text in texts if len(own.split(text, where)) > own.length]:
            raise BadData(f"{where}: {name} {long[0][:40]!r} is longer than the {own.length} symbols of the model: cut it")
        return own.encode_texts(texts, f"{where}: {name}")

    @property
    def names(self) -> list[str]:
        """As people know them: columns and arrays."""
        return [*([] if self.table is None else (column.name for column in self.table.columns)), *self.arrays, *self.texts]

    def lines(self) -> list[Line]:
        own = [] if self.table is None else self.table.lines()
        own += [line for array in self.arrays.values() for line in array.lines()[:1]]
        own += [replace(text.lines()[0], part=name) for name, text in self.texts.items()]
        return [Line(line.part, line.kind, line.values, "told, not modelled") for line in own]

    # what a network is told

    @cached_property
    def _heard(self) -> dict[str, tuple[str, Any]]:
        """Names that a network knows, each with the kind and the key of what it is."""
        found: list[tuple[str, str, Any]] = []
        if self.table is not None:
            found += [(column.name, "number", leaf) for leaf, column in self.table.leaves.items()]
            found += [("_".join(joint.names), "point", leaf) for leaf, joint in self.table.joints.items()]
            numbers = {name for name, _, _ in found} | {name for j in self.table.joints.values() for name in j.names}
            for i, column in enumerate(self.table.coordinates):
                found.append((f"kind of {column.name}" if column.name in numbers else column.name, "category", i))
        found += [(name, "array", f"array {name}") for name in self.arrays]
        found += [(name, "text", f"text {name}") for name in self.texts]
        named: dict[str, tuple[str, Any]] = {}
        for name, kind, key in found:
            while name in named or name in RESERVED:
                name += "_"
            named[name] = kind, key
        return named

    def inputs(self) -> list[dict[str, Any]]:
        """Of each name that a network is told: how many categories it has (0: numbers), and its shape."""
        told = []
        for name, (kind, key) in self._heard.items():
            size, shape = 0, list[int]()
            if self.table is not None and kind == "category":
                size = self.table.coordinates[key].size
            if self.table is not None and kind == "point":
                shape = [len(self.table.joints[key].anywhere)]
            if kind == "array":
                array = self.arrays[key.removeprefix("array ")]
                shape = list(array.state_shape)
            if kind == "text":
                text = self.texts[key.removeprefix("text ")]
                size, shape = len(text.alphabet), [text.length]
            told.append({"name": name, "size": size, "shape": shape} | ({"sequence": True} if kind == "text" else {}))
        return told

    def together(self) -> list[list[str]]:
        """Those names in groups, each of a column or of several that are one point."""
        groups: dict[str, list[str]] = {}
        for name, (kind, key) in self._heard.items():
            column = str(key)
            if self.table is not None and kind == "number":
                column = self.table.leaves[key].name
            if self.table is not None and kind == "point":
                column = self.table.joints[key].names[0]
            if self.table is not None and kind == "category":
                own = self.table.coordinates[key]
                column = own.partners[0] if own.partners else own.name
            groups.setdefault(column, []).append(name)
        return list(groups.values())

    def condition(self, states: Mapping[str, Any]) -> dict[str, Tensor]:
        """States as a network is told them."""
        told: dict[str, Tensor] = {}
        for name, (kind, key) in self._heard.items():
            if kind == "array":
                told[name] = states[key].float()
            elif kind == "text":
                told[name] = states[key]
            elif kind == "category":
                told[name] = states[COLUMNS][CATEGORIES][:, key]
            else:
                told[name] = self._number(states[COLUMNS], key, kind)
        return told

    def _number(self, x: Mapping[str, Tensor], leaf: str, kind: str) -> Float[Tensor, "rows ..."]:
        """The numbers of a leaf, and nothing where they stand for none."""
        assert self.table is not None
        columns = [self.table.leaves[leaf]] if kind == "number" else list(self.table.joints[leaf].columns)
        value, place = x[leaf], {column.name: i for i, column in enumerate(self.table.coordinates)}
        for column in columns:
            if column.name in place:
                there = x[CATEGORIES][:, place[column.name]] == column.size - 1
                value = torch.where(there.reshape(-1, *[1] * (value.ndim - 1)), value, NOTHING)
        return value[:, 0] if kind == "number" else value

    # as it is written

    def known(self, states: Mapping[str, Any]) -> dict[str, Bool[Tensor, "rows"]]:
        """Of which rows a column is told."""
        if self.table is None:
            return {}
        x, place = states[COLUMNS], {column.name: i for i, column in enumerate(self.table.coordinates)}
        found = {c.name: ~x[leaf].isnan().any(1) for leaf, c in self.table.leaves.items()}
        for leaf, joint in self.table.joints.items():
            found |= dict.fromkeys(joint.names, ~x[leaf].reshape(len(x[leaf]), -1).isnan().any(1))
        return found | {name: x[CATEGORIES][:, i] >= 0 for name, i in place.items()}

    def filled(self, states: Mapping[str, Any]) -> dict[str, Any]:
        """The same states with some value where nothing is told."""

        def some(value: Tensor) -> Tensor:
            nothing = value.isnan() if value.is_floating_point() else value < 0
            return torch.where(nothing, torch.zeros_like(value), value)

        return {name: map_leaves(some, part) for name, part in states.items()}

    def decode(self, states: Mapping[str, Any]) -> Companions:
        """As it stood beside the data."""
        filled = self.filled(states)
        table = None if self.table is None else self.table.arrow(filled[COLUMNS])
        arrays = {name: array.values(filled[f"array {name}"]) for name, array in self.arrays.items()}
        texts = dict[str, list[str]]()
        for name, text in self.texts.items():
            spelt = states[f"text {name}"]
            texts[name] = text.texts(torch.where(spelt < 0, len(text.alphabet) - 1, spelt))  # nothing is told: an empty one
        return Companions(arrow_library().table(texts) if texts else table, arrays)

    # what is given

    def nothing(self) -> dict[str, Tree]:
        """The states of a row of which nothing is told."""
        states: dict[str, Tree] = {}
        if self.table is not None:
            sizes = dict.fromkeys(self.table.leaves, (1,))
            sizes |= {leaf: (len(joint.anywhere),) for leaf, joint in self.table.joints.items()}
            own: dict[str, Any] = {leaf: torch.full((1, *shape), NOTHING) for leaf, shape in sizes.items()}
            if self.table.coordinates:
                own[CATEGORIES] = torch.full((1, len(self.table.coordinates)), -1)
            states[COLUMNS] = own
        states |= {f"text {name}": torch.full((1, text.length), -1) for name, text in self.texts.items()}
        return states | {
            f"array {name}": torch.full((1, *array.state_shape), NOTHING) for name, array in self.arrays.items()
        }

    def given(self, assignments: Mapping[str, str]) -> dict[str, Tree]:
        """The states of a row of which these columns are told, by their texts, and nothing else."""
        states = self.nothing()
        if wrong := [name for name in assignments if name in self.arrays]:
            raise BadData(f"given {wrong[0]}=...: is an array of {self.arrays[wrong[0]].shape} numbers, not a single value")
        for name in self.texts:
            if name in assignments:
                states[f"text {name}"] = self._spelt(name, [str(assignments[name])], "given")
        if self.table is None or not assignments:
            return states
        own: Any = states[COLUMNS]
        for leaf, (values, fixed) in self.table.given(dict(assignments)).items():
            own[leaf] = torch.where(fixed, values.to(own[leaf]), own[leaf])
        return states

    # on disk

    def to_json(self) -> dict[str, Any]:
        arrays = {name: array.to_json() for name, array in self.arrays.items()}
        texts = {name: text.to_json() for name, text in self.texts.items()}
        return {"table": None if self.table is None else self.table.to_json(), "arrays": arrays, "texts": texts}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Conditions":
        table = None if data["table"] is None else Table.from_json(data["table"])
        texts = {name: Sequences.from_json(text) for name, text in data.get("texts", {}).items()}
        return cls(table, {name: Array.from_json(array) for name, array in data["arrays"].items()}, texts)


def _texts(beside: Companions, name: str) -> list[str]:
    return [text or "" for text in beside.table[name].to_pylist()]


def _few(values: Any) -> bool:
    """Whether a column of whole numbers is one of labels: they are told apart, as they are not where they are modelled."""
    distinct = len(values.unique())
    return distinct <= LABELS and distinct * ROWS_EACH <= len(values)
