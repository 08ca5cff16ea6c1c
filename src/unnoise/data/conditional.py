"""Data of which a part is not modelled but told to the network: p(data | condition).

The states are a tree of two parts, {"data": what is modelled, "told": the states of its conditions}, so that rows keep what
is told of them wherever they are split, chosen or joined.  A format answers `apart` for what a network is given of them.
Where the data is a table, its samples are written with all columns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from unnoise.data.base import Bins, Format, Line, Spelling
from unnoise.data.companions import Companions
from unnoise.data.conditions import COLUMNS, Conditions
from unnoise.data.reading import Reading
from unnoise.data.registry import format_named, register_format
from unnoise.data.rule_columns import RuleColumn
from unnoise.data.table import Table
from unnoise.data.table_cells import Cells, as_arrow, as_frame, cells_of, write_cells
from unnoise.data.table_gaps import in_each_row, keep
from unnoise.data.table_parts import joined_states
from unnoise.denoiser import Denoiser
from unnoise.processes import Process
from unnoise.shapes import AnyState, Bool, Float, Tree

DATA, TOLD = "data", "told"  # the parts of the states


@register_format
@dataclass(kw_only=True, eq=False)
class Conditional(Format):
    """What was understood of data and of its conditions."""

    kind = "conditional"

    data: Format
    told: Conditions
    names: list[str]  # of all columns, as they stand in the file; none where the data is no table

    @classmethod
    def of(
        cls,
        data: Format,
        x: Tree,
        beside: Companions,
        how: Reading,
        kinds: dict[str, Any] | None = None,
        where: str = "the data",
        names: list[str] | None = None,
    ) -> tuple["Conditional", Tree]:
        """Data and what stands beside it; `how` says which of that is told."""
        told, states = Conditions.fit(beside.chosen(how.condition, where), kinds, how.keep, where, data.spells_conditions)
        return cls(data=data, told=told, names=names or []), {DATA: x, TOLD: states}

    # what is modelled, and what is told

    def inputs(self) -> list[dict[str, Any]]:
        return self.told.inputs()

    def told_together(self) -> list[list[str]]:
        return self.told.together()

    def apart(self, x: AnyState) -> tuple[Tree, dict[str, Tensor]]:  # type: ignore[override]
        return x[DATA], self.told.condition(x[TOLD])  # type: ignore[arg-type]

    def put_back(self, rows: AnyState, data: Tree) -> Tree:  # type: ignore[override]
        return {DATA: data, TOLD: rows[TOLD]}

    @cached_property
    def whole(self) -> Table | None:
        """The table of all columns."""
        return None if self.told.table is None else self.data.joined(self.told.table, self.names)  # type: ignore[return-value]

    @property
    def written_format(self) -> Format:
        return self.data if self.whole is None else self.whole

    def as_written(self, x: AnyState) -> tuple[Format, Tree]:  # type: ignore[override]
        if self.whole is None:
            return self.data, x[DATA]
        assert isinstance(self.data, Table) and self.told.table is not None
        told = self.told.filled(x[TOLD])
        data: Any = x[DATA]
        return self.whole, {**joined_states(self.whole, (self.data, data), (self.told.table, told[COLUMNS]))}

    def cells(self, x: AnyState) -> Cells:
        """All columns of a table, empty where nothing was told."""
        whole, states = self.as_written(x)
        assert isinstance(whole, Table)
        cells = cells_of(whole, states)  # type: ignore[arg-type]
        for name, there in self.told.known(x[TOLD]).items():
            cells[name] = [text if known else None for text, known in zip(cells[name], there.tolist(), strict=True)]
        return cells

    # a file

    def encode(self, path: Path) -> Tree:
        return {DATA: self.data.encode(path), TOLD: self.told.encode(self.data.companions(path), str(path))}

    def encode_nearest(self, path: Path) -> tuple[Tree, list[str]]:
        x, moved = self.data.encode_nearest(path)
        return {DATA: x, TOLD: self.told.encode(self.data.companions(path), str(path), "nearest")}, moved

    def encode_arrow(self, table: Any, unseen: str = "refuse", where: str = "the table") -> Tree:
        """States of a pyarrow.Table."""
        assert isinstance(self.data, Table)
        beside = self.data.companions_of(table)
        return {DATA: self.data.encode_arrow(table, unseen, where), TOLD: self.told.encode(beside, where, unseen)}

    # the model

    def lines(self) -> list[Line]:
        modelled = [line for line in self.data.lines() if line.part.removeprefix("array ") not in self.told.names]
        own = {line.part: line for line in [*modelled, *self.told.lines()]}
        order = [name for name in self.names if name in own]
        return [own[name] for name in [*order, *(name for name in own if name not in order)]]

    def notes(self) -> list[str]:
        return [*self.data.notes(), *([] if self.told.table is None else self.told.table.notes())]

    def kinds(self) -> str:
        return self.data.kinds() if self.whole is None else self.whole.kinds()

    def process(self) -> Process:
        return self.data.process()

    def objective_options(self) -> dict[str, Any]:
        return self.data.objective_options()

    @property
    def bins(self) -> Bins | None:
        return self.data.bins

    def network_hints(self) -> dict[str, Any]:
        return self.data.network_hints()

    def training(self, preset: str, on_cpu: bool) -> dict[str, Any]:
        return self.data.training(preset, on_cpu)

    @property
    def dear(self) -> bool:
        return self.data.dear

    def few_rows_remedy(self) -> str:
        return self.data.few_rows_remedy()

    def log_fill(self, x: AnyState) -> Float[Tensor, "rows"]:
        return self.data.log_fill(x[DATA])  # type: ignore[arg-type]

    def constrained(self, denoiser: Denoiser) -> Denoiser:
        return self.data.constrained(denoiser)

    def targets(self) -> list[str]:
        return self.data.targets() if self.whole is None else self.whole.targets()

    # samples

    @property
    def suffix(self) -> str:  # type: ignore[override]
        return self.data.suffix

    def shown_suffix(self) -> str:
        return self.data.shown_suffix()

    def out_name(self) -> str:
        return self.data.out_name()

    def check_out(self, path: Path) -> None:
        self.data.check_out(path)

    def seen(self, x: AnyState) -> Any:
        return self.data.seen(x[DATA]) if self.whole is None else self.frame(x)  # type: ignore[arg-type]

    def arrow(self, x: AnyState) -> Any:
        """All columns as a pyarrow.Table with the types of the file."""
        assert self.whole is not None
        return as_arrow(self.whole, self.cells(x))

    def frame(self, x: AnyState) -> Any:
        """All columns as a pandas.DataFrame."""
        assert self.whole is not None
        return as_frame(self.whole, self.arrow(x))

    def spelling(self) -> Spelling:
        return self.data.spelling()

    def rule_columns(self) -> dict[str, RuleColumn]:
        """All columns of a table; of none is it said where in the states it stands, for what is told is not drawn."""
        if self.whole is None:
            return self.data.rule_columns()
        told = set(self.told.names)
        return {
            name: replace(column, place=None, leaf=None, told=name in told)
            for name, column in self.whole.rule_columns().items()
        }

    def rule_values(self, x: AnyState, names: list[str], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """Missing where nothing was told."""
        whole, states = self.as_written(x)
        values = whole.rule_values(states, names, given)  # type: ignore[arg-type]
        for name, known in self.told.known(x[TOLD]).items():  # type: ignore[index]
            if name in values:
                values[name] = np.where(known.numpy(), values[name], np.nan)
        return values

    def write(self, x: AnyState, path: Path) -> None:
        self.write_given(x, {}, path)

    def given(self, assignments: dict[str, str]) -> dict[str, tuple[Tensor, Tensor]]:
        """Of what is modelled; what is told is `told.given`."""
        return self.data.given(assignments) if assignments else {}

    def write_given(self, x: AnyState, assignments: dict[str, Any], path: Path) -> None:
        if self.whole is None:
            self.data.write_told(x[DATA], self.told.decode(x[TOLD]), path)  # type: ignore[arg-type]
            return
        cells = self.cells(x)
        for name, text in assignments.items():
            keep(self.whole, cells, name, in_each_row(text, len(cells[name])))
        write_cells(self.whole, cells, path)

    # gaps are those of the data; conditions are told as they stand in the file

    def gaps(self, path: Path, mark: str | None = None) -> tuple[Tree, Tree]:
        told = self.told.encode(self.data.companions(path), str(path))
        x, fixed = self.data.gaps(path, mark)
        return {DATA: x, TOLD: told}, fixed

    def gaps_of_arrow(self, table: Any, mark: str | None = None, where: str = "the table") -> tuple[Tree, Tree]:
        """Those of a pyarrow.Table."""
        assert isinstance(self.data, Table)
        told = self.told.encode(self.data.companions_of(table), where)
        x, fixed = self.data.gaps_of_arrow(table, mark, where)
        return {DATA: x, TOLD: told}, fixed

    def write_filled(self, x: AnyState, source: Path, path: Path, mark: str | None = None) -> None:
        self.data.write_filled(x[DATA], source, path, mark)  # type: ignore[arg-type]

    def blank(self, x: AnyState, fixed: AnyState) -> Bool[Tensor, "rows places"]:
        return self.data.blank(x[DATA], fixed)  # type: ignore[arg-type]

    def count_gaps(self, fixed: AnyState) -> int:
        return self.data.count_gaps(fixed)

    def gap_parts(self, labels: dict[str, str], fixed: AnyState) -> dict[str, str]:
        return self.data.gap_parts(labels, fixed)

    # on disk

    def to_json(self) -> dict[str, Any]:
        data = {"kind": self.data.kind, "data": self.data.to_json()}
        return {"data": data, "told": self.told.to_json(), "names": self.names}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Conditional":
        own = format_named(data["data"]["kind"]).from_json(data["data"]["data"])
        return cls(data=own, told=Conditions.from_json(data["told"]), names=data["names"])
