"""Tables: a CSV, TSV, JSON-lines, Excel or Parquet file as states of a product space, and states as such a file.

All categorical columns share one leaf, `categories`, one coordinate each, under masking noise.  Every continuous column is
a Gaussian leaf of its own, since a leaf at time 0 is how one conditions on a column; one of angles a leaf of angles, and a
latitude with its longitude one leaf, a point of the sphere (`JointLeaf`).  A continuous column with missing values, or with
single values that hold a share of the rows, also has a coordinate in `categories`, which says when to read it.

Identifiers and private texts stand beside the model (`LeftOut`): samples get new ones, or empty cells.

Every value passes through text: a typed column is cast to text on reading and back to its type on writing (`table_cells`).
Gaps are read and filled in `table_gaps`.  Scores are float32: a number comes back exactly where its column has
up to about 10^6 steps from end to end, or 2000 values.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from unnoise.data import (
    json_lines,  # noqa: F401  (it registers itself, as the next)
    rule_columns,
    sheets,  # noqa: F401
    table_gaps,
    table_parts,
    table_states,
)
from unnoise.data.base import BY_CONTENT, BY_NAME, NO, BadData, Format, Line
from unnoise.data.columns import Column, Texts
from unnoise.data.companions import Companions
from unnoise.data.header import column_names
from unnoise.data.joint_leaf import JointLeaf
from unnoise.data.kinds_file import kinds_yaml
from unnoise.data.left_out import LeftOut
from unnoise.data.parquet_files import is_parquet_folder
from unnoise.data.places import MOST_ROWS as MOST_PLACED
from unnoise.data.places import Places, fit_places
from unnoise.data.reading import Reading, suffix_of
from unnoise.data.registry import register_format
from unnoise.data.rule_columns import RuleColumn
from unnoise.data.score_maps import with_score_maps
from unnoise.data.table_cells import CATEGORIES, as_arrow, as_frame, cells_of, write_cells
from unnoise.data.table_files import (
    TextTable,
    arrow_library,
    check_names,
    levels_of,
    overrides,
    read_text,
    texts_of,
)
from unnoise.data.table_kinds import TEXT, TYPED, table_suffix
from unnoise.data.table_states import joint_leaves, leaf_names, line_of
from unnoise.data.text_encoding import FALLBACK
from unnoise.data.typed_columns import arrow_type, is_text, packed_schema, unpacked_schema
from unnoise.data.understanding import notes, understand
from unnoise.objectives import Importance
from unnoise.processes import Gaussian, Masking, Process, Product, WrappedNormal
from unnoise.schedules import Polynomial
from unnoise.shapes import AnyState, Bool, Float, Tree
from unnoise.spaces import Euclidean, Finite, ProductSpace, Space, Torus

FEW_ROWS = 20_000  # tables of at most so many rows draw their labels before their numbers, by
LATE = 4.0


@register_format
@dataclass(frozen=True, eq=False)
class Table(Format):
    """What was understood of a table."""

    columns: tuple[Column, ...]
    schema: str  # types of the columns, an arrow schema in base64
    separator: str = ","
    encoding: str = "utf-8"
    dropped: tuple[str, ...] = ()
    left_out: tuple[LeftOut, ...] = ()
    header: bool = True  # whether a text file names the columns
    remarks: tuple[str, ...] = ()  # what was found out about the file as a whole
    late: float = 1.0  # a label is masked with probability t^late: the larger, the earlier labels are drawn
    form: dict[str, Any] = field(default_factory=dict)  # of the file it was read from: its suffix, a sheet, nested keys
    places: Places | None = None  # of numbers that many rows share, within their intervals; None: by chance alone

    kind = "table"
    suffixes = (*TEXT, *TYPED)
    folders = True
    options = {
        "--encoding": "tables",
        "--columns": "tables",
        "--keep": "tables",
        "--condition": "tables",
        "--option sheet": "spreadsheets",
    }

    @property
    def suffix(self) -> str:  # type: ignore[override]
        """That of the file it was read from."""
        return str(self.form.get("suffix", ".csv"))

    def shown_suffix(self) -> str:
        """Of a text that people can read."""
        return self.suffix if self.suffix in (*TEXT, ".jsonl") else ".csv"

    @classmethod
    def recognises(cls, path: Path, how: Reading) -> int:
        """By name; but JSON lines may be those of another format that names their suffix."""
        if path.is_dir():
            return BY_CONTENT if is_parquet_folder(path) else NO
        sure = BY_CONTENT if suffix_of(path) in (".jsonl", ".ndjson") else BY_NAME
        return sure if suffix_of(path) in (*TEXT, *TYPED) else NO

    @classmethod
    def taken(cls, path: Path, how: Reading) -> tuple[str, tuple[str, ...]]:
        return "a table", tuple(name for name in cls.options if name != "--option sheet" or suffix_of(path) == ".xlsx")

    @classmethod
    def read(cls, path: Path, how: Reading) -> tuple["Table", Tree]:
        return cls.fit(path, overrides(how.columns), how.encoding, how.keep, how.options, how.condition)

    @classmethod
    def fit(
        cls,
        path: Path | str,
        overrides: dict[str, Any] | None = None,
        encoding: str = "utf-8",
        keep: tuple[str, ...] = (),
        options: dict[str, str] | None = None,
        told: tuple[str, ...] = (),
    ) -> tuple["Table", Tree]:
        """The format of a file and its states.

        `overrides`: {column: "drop", a kind, or {"kind": ..., ...}}.  `keep`: columns to be modelled though they are
        identifiers or private.  `options` are those of the kind of file, such as {"sheet": "2024"}.  `told`: columns that
        are not modelled, since a network is told them.
        """
        path = Path(path)
        suffix = table_suffix(path)
        if suffix in TYPED:
            table, form = TYPED[suffix].read(path, options or {})
            return cls.of_arrow(table, overrides, str(path), keep, form, told)
        table, separator, found, header = read_text(path, encoding)
        remarks = []
        if found in FALLBACK and not encoding.lower().startswith(found):
            remarks.append(f"the text is not {encoding}: read as {found}, to overrule it use --encoding")
        if not header:
            remarks.append(f"the first row holds values, not names: the columns are called {column_names(1)[0]}, ...")
        settings = {"separator": separator, "encoding": found, "header": header, "remarks": tuple(remarks)}
        settings["form"] = {"suffix": suffix}
        return cls._fit(table, str(path), overrides, keep, told, typed=False, **settings)

    @classmethod
    def of_arrow(
        cls,
        table: Any,
        overrides: dict[str, Any] | None = None,
        where: str = "the table",
        keep: tuple[str, ...] = (),
        form: dict[str, Any] | None = None,
        told: tuple[str, ...] = (),
        typed: bool = True,
    ) -> tuple["Table", Tree]:
        """The format of a pyarrow.Table and its states; what is drawn has its types (unless `typed=False`: texts).  `where`:
        what to call it; `form`: of the file that it was read from; `told`: columns that are not modelled."""
        check_names(table.column_names, where)
        if table.num_rows == 0:
            raise BadData(f"{where}: has columns but no rows: add rows")
        return cls._fit(table, where, overrides, keep, told, typed=typed, form=form or {})

    @classmethod
    def _fit(
        cls,
        table: Any,
        where: str,
        wished: dict[str, Any] | None,
        keep: tuple[str, ...],
        told: tuple[str, ...],
        typed: bool,
        **settings: Any,
    ) -> tuple["Table", Tree]:
        overrides = {str(name): wish for name, wish in (wished or {}).items()}
        for said, named in (("overrides name", overrides), ("columns to keep are", keep), ("conditions are", told)):
            if unknown := [name for name in named if name not in table.column_names]:
                raise BadData(f"{where}: the {said} {unknown[0]!r}, but the columns are {table.column_names}: correct it")
        overrides |= dict.fromkeys(told, "drop")
        dropped = tuple(name for name in table.column_names if overrides.get(name) in ("drop", {"kind": "drop"}))
        names = [name for name in table.column_names if name not in dropped]
        if not names:
            raise BadData(f"{where}: every column is dropped{' or told' if told else ''}: keep at least one")
        wishes = {name: overrides.get(name, levels_of(table[name])) for name in names}
        texts = {name: texts_of(table[name], name, where) for name in names}
        found = understand(texts, wishes, keep)
        columns = tuple(with_score_maps([column for column in found if isinstance(column, Column)], texts))
        left_out = tuple(column for column in found if isinstance(column, LeftOut))
        if not columns:
            said = "; ".join(f"{column.name!r} is {column.kind} ({column.what})" for column in left_out)
            raise BadData(f"{where}: no column is left to model, {said}: keep one with --keep")
        types = {name: table.schema.field(name).type for name in names}
        if odd := [c.name for c in columns if c.partners and "int" in str(types[c.name]) and c.arrow() == "double"]:
            raise BadData(f"{where}: column {odd[0]!r} holds whole numbers and its partners do not: store it as floats")
        if not typed:
            types |= {column.name: arrow_type(column.arrow()) for column in columns}
        settings["late"] = LATE if table.num_rows <= FEW_ROWS else 1.0
        made = cls(columns, packed_schema(types, table.schema), dropped=dropped, left_out=left_out, **settings)
        straight = not any(column.closed for column in made.leaves.values())  # places go by a linear law
        if made.leaves and straight and table.num_rows <= MOST_PLACED:
            made = replace(made, places=fit_places(table_states.scored(made, texts)))
        return made, table_states.encoded(made, texts, "refuse")

    @property
    def leaves(self) -> dict[str, Column]:
        """The continuous columns by the name of their leaf."""
        continuous = [column for column in self.columns if column.scores is not None and not column.partners]
        return dict(zip(leaf_names([column.name for column in continuous]), continuous, strict=True))

    @cached_property
    def joints(self) -> dict[str, JointLeaf]:
        """The leaves that stand for several columns each, by name."""
        single = [column.name for column in self.leaves.values()]
        joint = joint_leaves(self.columns)
        named = leaf_names([*single, *("_".join(leaf.names) for leaf in joint)])
        return dict(zip(named[len(single) :], joint, strict=True))

    @property
    def coordinates(self) -> tuple[Column, ...]:
        """The columns that the coordinates of the leaf `categories` stand for."""
        return tuple(c for c in self.columns if c.scores is None or c.texts or c.missing is not None)

    @cached_property
    def space(self) -> Space:
        """Of the states."""
        sizes = [column.size for column in self.coordinates]
        discrete: dict[str, Space] = {CATEGORIES: Finite(sizes)} if sizes else {}
        single = {leaf: Torus((1,)) if c.closed else Euclidean((1,)) for leaf, c in self.leaves.items()}
        return ProductSpace(**discrete, **single, **{leaf: joint.space for leaf, joint in self.joints.items()})

    def process(self) -> Process:
        sizes = [column.size for column in self.coordinates]
        schedule = None if self.late == 1 else Polynomial(self.late)
        discrete = {CATEGORIES: Masking(sizes, schedule=schedule)} if sizes else {}
        single = {leaf: WrappedNormal((1,)) if c.closed else Gaussian((1,)) for leaf, c in self.leaves.items()}
        return Product(**discrete, **single, **{leaf: joint.process() for leaf, joint in self.joints.items()})

    def objective_options(self) -> dict[str, Any]:
        """Numbers alone have the times that they have beside labels."""
        angles = all(column.closed for column in self.leaves.values())
        return {} if self.coordinates or angles else {"times": Importance(power=16.0)}

    def lines(self) -> list[Line]:
        joint_of = {name: joint for joint in self.joints.values() for name in joint.names}
        return [
            Line(column.name, column.kind, column.values, "left out")
            if isinstance(column, LeftOut)
            else line_of(column, column in self.coordinates, joint_of.get(column.name))
            for column in self.in_order
        ]

    @property
    def in_order(self) -> list[Column | LeftOut]:
        """All columns as they stand in the file, those beside the model too."""
        known: dict[str, Column | LeftOut] = {column.name: column for column in self.columns}
        known |= {column.name: column for column in self.left_out}
        return [known[name] for name in unpacked_schema(self.schema).names]

    def notes(self) -> list[str]:
        return [*self.remarks, *notes(self.in_order)]

    def kinds(self) -> str:
        return kinds_yaml(self.in_order, self.dropped, self.notes())

    def training(self, preset: str, on_cpu: bool) -> dict[str, Any]:
        return {"batch_size": 256 if on_cpu else 2048, "start": "law"}

    def targets(self) -> list[str]:
        return [column.name for column in self.columns]

    def log_fill(self, x: dict[str, Tensor]) -> Float[Tensor, "rows"]:
        """Of the normal numbers that stand where a continuous column is missing or has one of its atoms."""
        return table_states.log_fill(self, x) if self.leaves or self.joints else super().log_fill(x)

    def encode(self, path: Path | str, unseen: str = "refuse") -> Tree:
        """States of another file.  `unseen`: "refuse" an ordered value that was never seen, or move it to the "nearest"."""
        path = Path(path)
        return self._encode_table(self.arrow_table(path), str(path), unseen)

    def encode_nearest(self, path: Path | str) -> tuple[Tree, list[str]]:
        with warnings.catch_warnings(record=True) as moved:
            warnings.simplefilter("always")
            x = self.encode(path, unseen="nearest")
        return x, [str(one.message) for one in moved]

    def encode_frame(self, frame: Any, unseen: str = "refuse") -> Tree:
        """States of a pandas.DataFrame."""
        pa = arrow_library()
        check_names(list(map(str, frame.columns)), "the frame")
        try:
            table = pa.Table.from_pandas(frame, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise BadData(f"the frame: {error.args[-1]}: give each column one type") from error
        return self._encode_table(table, "the frame", unseen)

    def encode_arrow(self, table: Any, unseen: str = "refuse", where: str = "the table") -> Tree:
        """States of a pyarrow.Table."""
        return self._encode_table(table, where, unseen)

    def _encode_table(self, table: Any, where: str, unseen: str) -> Tree:
        names = [column.name for column in self.columns]
        if lost := [name for name in names if name not in table.column_names]:
            raise BadData(f"{where}: lacks the column {lost[0]!r}: it needs {names}")
        if extra := [name for name in table.column_names if name not in (*names, *self.beside)]:
            raise BadData(f"{where}: has the unknown column {extra[0]!r}: leave it out, the columns are {names}")
        return table_states.encoded(
            self, {column.name: self.column_texts(table, column, where) for column in self.columns}, unseen
        )

    @property
    def beside(self) -> list[str]:
        return [*self.dropped, *(column.name for column in self.left_out)]

    def column_texts(self, table: Any, column: Column, where: str) -> Texts:
        """The texts of a column, those of a typed one in the form of this format."""
        texts = texts_of(table[column.name], column.name, where)
        if column.scale is None or is_text(table[column.name].type):
            return texts
        return replace(texts, distinct=column.scale.spelt(texts.distinct))

    def arrow(self, x: AnyState) -> Any:
        """States as a pyarrow.Table with the types of the file."""
        return as_arrow(self, cells_of(self, x))

    def seen(self, x: AnyState) -> Any:
        return self.frame(x)

    def frame(self, x: AnyState) -> Any:
        """States as a pandas.DataFrame; whole numbers and booleans that can be missing get pandas' nullable types."""
        return as_frame(self, self.arrow(x))

    def check_out(self, path: Path) -> None:
        super().check_out(path)
        table_suffix(path)

    def write(self, x: AnyState, path: Path | str) -> None:
        write_cells(self, cells_of(self, x), Path(path))

    def write_given(self, x: AnyState, assignments: dict[str, Any], path: Path) -> None:
        """States drawn given columns, whose values are written to the last digit: scores are float32."""
        cells = cells_of(self, x)
        for name, text in assignments.items():
            table_gaps.keep(self, cells, name, table_gaps.in_each_row(text, len(cells[name])))
        write_cells(self, cells, Path(path))

    def write_filled(self, x: AnyState, source: Path, path: Path, mark: str | None = None) -> None:
        """The file `source` with its gaps filled, and with the columns that it left out at its end."""
        table_gaps.write_filled(self, x, Path(source), Path(path), mark)

    def filled_arrow(self, x: AnyState, table: Any, mark: str | None = None, where: str = "the table") -> Any:
        """A pyarrow.Table with its gaps filled, and with the columns that it left out at its end."""
        return table_gaps.filled_arrow(self, x, table, mark, where)

    def rule_columns(self) -> dict[str, RuleColumn]:
        return rule_columns.of_table(self)

    def rule_values(self, x: AnyState, names: list[str], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        return rule_columns.values_of_table(self, x, names, given)

    def given(self, assignments: dict[str, str]) -> dict[str, tuple[Tensor, Tensor]]:
        """Fixed columns as {leaf: (values, which of its coordinates are fixed)}: `given({"age": "39", "sex": "Female"})`."""
        return table_gaps.given(self, assignments)

    def gaps(self, path: Path, mark: str | None = None) -> tuple[Tree, Tree]:
        """Gaps are the cells that are missing, however that is written, or hold the mark, and columns that are left out."""
        return self.gaps_of_arrow(self.arrow_table(Path(path)), mark, str(path))

    def gaps_of_arrow(self, table: Any, mark: str | None = None, where: str = "the table") -> tuple[Tree, Tree]:
        """Those of a pyarrow.Table."""
        return table_gaps.gaps_of_arrow(self, table, mark, where)

    def blank(self, x: AnyState, fixed: dict[str, Tensor]) -> Bool[Tensor, "rows columns"]:
        return table_gaps.blank(self, x, fixed)

    def count_gaps(self, fixed: dict[str, Tensor]) -> int:
        return table_gaps.count_gaps(self, fixed)

    def gap_parts(self, labels: dict[str, str], fixed: dict[str, Tensor]) -> dict[str, str]:
        return table_gaps.gap_parts(self, labels, fixed)

    def companions(self, path: Path) -> Companions:
        return self.companions_of(self.arrow_table(path), table_suffix(path) in TYPED)

    def companions_of(self, table: Any, typed: bool = True) -> Companions:
        """Those of a pyarrow.Table: the columns that are not modelled."""
        return Companions(table.select([name for name in table.column_names if name in self.dropped]), {}, typed)

    def column_names(self, path: Path) -> list[str]:
        return list(self.arrow_table(path).column_names)

    def joined(self, other: "Table", names: list[str]) -> "Table":
        return table_parts.joined(self, other, names)

    def arrow_table(self, path: Path) -> Any:
        suffix = table_suffix(path)
        return TYPED[suffix].read(path, self.form)[0] if suffix in TYPED else self.text_table(path).table

    def text_table(self, path: Path) -> TextTable:
        return read_text(path, self.encoding, self.header)

    def to_json(self) -> dict[str, Any]:
        plain = {
            "schema": self.schema,
            "separator": self.separator,
            "encoding": self.encoding,
            "dropped": list(self.dropped),
            "left_out": [column.to_json() for column in self.left_out],
            "header": self.header,
            "remarks": list(self.remarks),
            "late": self.late,
            "form": self.form,
            "places": None if self.places is None else self.places.to_json(),
        }
        return {"columns": [column.to_json() for column in self.columns], **plain}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Table":
        columns = tuple(map(Column.from_json, data["columns"]))
        left_out = tuple(map(LeftOut.from_json, data.get("left_out", [])))
        lists = {"dropped": tuple(data["dropped"]), "remarks": tuple(data.get("remarks", []))}
        places = None if data.get("places") is None else Places.from_json(data["places"])
        return cls(**{**data, **lists, "columns": columns, "left_out": left_out, "places": places})
