"""Tables: a CSV, TSV, JSON-lines, Excel or Parquet file as states of a product space, and states as such a file.

All categorical columns share one leaf, `categories`, one coordinate each, under masking noise.  Every continuous column is a
Gaussian leaf of its own, since a leaf at time 0 is how one conditions on a column.  A continuous column with missing values,
or with single values that hold a share of the rows, also has a coordinate in `categories`, which says when to read it.

Identifiers and private texts stand beside the model (`LeftOut`): samples get new ones, or empty cells.

Every value passes through text: a typed column is cast to text on reading and back to its type on writing.
Scores are float32: a number comes back exactly where its column has up to about 10^6 steps from end to end, or 2000 values.
"""

import csv
import io
import re
import warnings
import zlib
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import log, pi
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.data import json_lines, sheets  # noqa: F401  (they register themselves)
from unnoise.data.base import BY_CONTENT, BY_NAME, NO, BadData, Format, Line
from unnoise.data.columns import MISSING, Column, Texts
from unnoise.data.files import write_bytes
from unnoise.data.header import column_names
from unnoise.data.kinds_file import kinds_yaml
from unnoise.data.left_out import LeftOut
from unnoise.data.parquet_files import is_parquet_folder
from unnoise.data.reading import Reading, suffix_of
from unnoise.data.registry import register_format
from unnoise.data.score_maps import with_score_maps
from unnoise.data.table_files import (
    TextTable,
    Written,
    any_texts,
    arrow_library,
    check_names,
    levels_of,
    overrides,
    read_text,
    texts_of,
)
from unnoise.data.table_kinds import TEXT, TYPED, table_suffix
from unnoise.data.text_encoding import FALLBACK
from unnoise.data.typed_columns import arrow_type, is_text, packed_schema, typed, unpacked_schema
from unnoise.data.understanding import notes, understand
from unnoise.objectives import Importance
from unnoise.processes import Gaussian, Masking, Process, Product
from unnoise.schedules import Polynomial
from unnoise.shapes import AnyState, Bool, Float, Tree
from unnoise.spaces import Euclidean, Finite, ProductSpace, Space
from unnoise.tree import batch_size

CATEGORIES = "categories"
FEW_ROWS = 20_000  # tables of at most so many rows draw their labels before their numbers, by
LATE = 4.0


def _leaf_names(names: list[str]) -> list[str]:
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

    kind = "table"
    suffixes = (*TEXT, *TYPED)
    folders = True
    options = {"--encoding": "tables", "--columns": "tables", "--keep": "tables", "--option sheet": "spreadsheets"}

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
        return cls.fit(path, overrides(how.columns), how.encoding, how.keep, how.options)

    @classmethod
    def fit(
        cls,
        path: Path | str,
        overrides: dict[str, Any] | None = None,
        encoding: str = "utf-8",
        keep: tuple[str, ...] = (),
        options: dict[str, str] | None = None,
    ) -> tuple["Table", Tree]:
        """The format of a file and its states.

        `overrides`: {column: "drop", a kind, or {"kind": ..., ...}}.  `keep`: columns to be modelled though they are
        identifiers or private.  `options` are those of the kind of file, such as {"sheet": "2024"}.
        """
        path = Path(path)
        suffix = table_suffix(path)
        if suffix in TYPED:
            table, form = TYPED[suffix].read(path, options or {})
            return cls.of_arrow(table, overrides, str(path), keep, form)
        table, separator, found, header = read_text(path, encoding)
        remarks = []
        if found in FALLBACK and not encoding.lower().startswith(found):
            remarks.append(f"the text is not {encoding}: read as {found}, to overrule it use --encoding")
        if not header:
            remarks.append(f"the first row holds values, not names: the columns are called {column_names(1)[0]}, ...")
        settings = {"separator": separator, "encoding": found, "header": header, "remarks": tuple(remarks)}
        settings["form"] = {"suffix": suffix}
        return cls._fit(table, str(path), overrides, keep, typed=False, **settings)

    @classmethod
    def of_arrow(
        cls,
        table: Any,
        overrides: dict[str, Any] | None = None,
        where: str = "the table",
        keep: tuple[str, ...] = (),
        form: dict[str, Any] | None = None,
    ) -> tuple["Table", Tree]:
        """The format of a pyarrow.Table and its states; what is drawn has its types.  `where`: what to call it; `form`: of
        the file that it was read from."""
        check_names(table.column_names, where)
        if table.num_rows == 0:
            raise BadData(f"{where}: has columns but no rows: add rows")
        return cls._fit(table, where, overrides, keep, typed=True, form=form or {})

    @classmethod
    def _fit(
        cls, table: Any, where: str, wished: dict[str, Any] | None, keep: tuple[str, ...], typed: bool, **settings: Any
    ) -> tuple["Table", Tree]:
        overrides = {str(name): wish for name, wish in (wished or {}).items()}
        for said, told in (("overrides name", overrides), ("columns to keep are", keep)):
            if unknown := [name for name in told if name not in table.column_names]:
                raise BadData(f"{where}: the {said} {unknown[0]!r}, but the columns are {table.column_names}: correct it")
        dropped = tuple(name for name in table.column_names if overrides.get(name) in ("drop", {"kind": "drop"}))
        names = [name for name in table.column_names if name not in dropped]
        if not names:
            raise BadData(f"{where}: every column is dropped: keep at least one")
        wishes = {name: overrides.get(name, levels_of(table[name])) for name in names}
        texts = {name: texts_of(table[name], name, where) for name in names}
        found = understand(texts, wishes, keep)
        columns = tuple(with_score_maps([column for column in found if isinstance(column, Column)], texts))
        left_out = tuple(column for column in found if isinstance(column, LeftOut))
        if not columns:
            said = "; ".join(f"{column.name!r} is {column.kind} ({column.what})" for column in left_out)
            raise BadData(f"{where}: no column is left to model, {said}: keep one with --keep")
        types = {name: table.schema.field(name).type for name in names}
        if not typed:
            types |= {column.name: arrow_type(column.arrow()) for column in columns}
        settings["late"] = LATE if table.num_rows <= FEW_ROWS else 1.0
        made = cls(columns, packed_schema(types, table.schema), dropped=dropped, left_out=left_out, **settings)
        return made, made._encode(texts, "refuse")

    @property
    def leaves(self) -> dict[str, Column]:
        """The continuous columns by the name of their leaf."""
        continuous = [column for column in self.columns if column.scores is not None]
        return dict(zip(_leaf_names([column.name for column in continuous]), continuous, strict=True))

    @property
    def coordinates(self) -> tuple[Column, ...]:
        """The columns that the coordinates of the leaf `categories` stand for."""
        return tuple(c for c in self.columns if c.scores is None or c.texts or c.missing is not None)

    @cached_property
    def space(self) -> Space:
        """Of the states."""
        sizes = [column.size for column in self.coordinates]
        discrete: dict[str, Space] = {CATEGORIES: Finite(sizes)} if sizes else {}
        return ProductSpace(**discrete, **{leaf: Euclidean((1,)) for leaf in self.leaves})

    def process(self) -> Process:
        sizes = [column.size for column in self.coordinates]
        schedule = None if self.late == 1 else Polynomial(self.late)
        discrete = {CATEGORIES: Masking(sizes, schedule=schedule)} if sizes else {}
        return Product(**discrete, **{leaf: Gaussian((1,)) for leaf in self.leaves})

    def objective_options(self) -> dict[str, Any]:
        """Numbers alone have the times that they have beside labels."""
        return {} if self.coordinates else {"times": Importance(power=16.0)}

    def lines(self) -> list[Line]:
        return [
            Line(column.name, column.kind, column.values, "left out")
            if isinstance(column, LeftOut)
            else _line(column, column in self.coordinates)
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
        total = super().log_fill(x)
        place = {column.name: i for i, column in enumerate(self.coordinates)}
        for leaf, column in self.leaves.items():
            if column.name in place:
                unread = x[CATEGORIES][:, place[column.name]] != column.size - 1
                z = x[leaf][:, 0].double()
                total = total + torch.where(unread, -0.5 * (z.square() + log(2 * pi)), 0.0)
        return total

    def encode(self, path: Path | str, unseen: str = "refuse") -> Tree:
        """States of another file.  `unseen`: "refuse" an ordered value that was never seen, or move it to the "nearest"."""
        path = Path(path)
        return self._encode_table(self._read(path), str(path), unseen)

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
        if extra := [name for name in table.column_names if name not in (*names, *self._beside)]:
            raise BadData(f"{where}: has the unknown column {extra[0]!r}: leave it out, the columns are {names}")
        return self._encode({column.name: self._texts(table, column, where) for column in self.columns}, unseen)

    @property
    def _beside(self) -> list[str]:
        return [*self.dropped, *(column.name for column in self.left_out)]

    def _texts(self, table: Any, column: Column, where: str) -> Texts:
        """The texts of a column, those of a typed one in the form of this format."""
        texts = texts_of(table[column.name], column.name, where)
        if column.scale is None or is_text(table[column.name].type):
            return texts
        return replace(texts, distinct=column.scale.spelt(texts.distinct))

    def _encode(self, texts: dict[str, Texts], unseen: str) -> Tree:
        if unseen not in ("refuse", "nearest"):
            raise ValueError(f"unseen = {unseen!r}: use 'refuse' or 'nearest'")
        coded = {}
        for column in self.columns:
            coded[column.name] = column.encode(texts[column.name], unseen)
        return self._states(coded)

    def _states(self, coded: dict[str, tuple[np.ndarray, np.ndarray | None]]) -> Tree:
        x: dict[str, Tree] = {}
        if self.coordinates:
            x[CATEGORIES] = torch.as_tensor(np.stack([coded[column.name][0] for column in self.coordinates], 1))
        for leaf, column in self.leaves.items():
            x[leaf] = torch.as_tensor(coded[column.name][1], dtype=torch.float32).unsqueeze(-1)
        return x

    def _decode(self, x: AnyState) -> dict[str, list[str | None]]:
        self.space.check(x)
        where = {column.name: i for i, column in enumerate(self.coordinates)}
        leaf_of = {column.name: leaf for leaf, column in self.leaves.items()}
        rows = len(next(iter(x.values())))
        result = {}
        for column in self.columns:
            only = np.full(rows, column.size - 1)  # a continuous column with no other state
            state = x[CATEGORIES][:, where[column.name]].cpu().numpy() if column.name in where else only
            score = x[leaf_of[column.name]][:, 0].double().cpu().numpy() if column.name in leaf_of else None
            result[column.name] = column.decode(state, score)
        return result

    def _cells(self, x: AnyState) -> dict[str, list[str | None]]:
        """All columns in their order, those beside the model made anew or empty: a function of the first row and the number
        of rows, so that more samples of a seed begin like fewer of them."""
        cells = self._decode(x)
        first = b"".join(x[leaf][:1].contiguous().cpu().numpy().tobytes() for leaf in sorted(x))
        for column in self.left_out:
            seed = zlib.crc32(column.name.encode(), zlib.crc32(first))
            cells[column.name] = column.cells(batch_size(x), seed)
        return {column.name: cells[column.name] for column in self.in_order}

    def arrow(self, x: AnyState) -> Any:
        """States as a pyarrow.Table with the types of the file."""
        return self._arrow(self._cells(x))

    def _arrow(self, cells: dict[str, list[str | None]]) -> Any:
        pa = arrow_library()
        schema, known = unpacked_schema(self.schema), {column.name: column for column in self.columns}
        fields = [schema.field(name) for name in cells]
        arrays = [typed(cells[field.name], field.type, known.get(field.name)) for field in fields]
        return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=schema.metadata))

    def frame(self, x: AnyState) -> Any:
        """States as a pandas.DataFrame; whole numbers and booleans that can be missing get pandas' nullable types."""
        import pandas as pd

        table = self.arrow(x)
        nullable = {"int64": pd.Int64Dtype(), "int32": pd.Int32Dtype(), "int16": pd.Int16Dtype(), "int8": pd.Int8Dtype()}
        nullable |= {f"u{name}": getattr(pd, f"UI{str(kind)[1:]}Dtype")() for name, kind in nullable.items()}
        nullable["bool"] = pd.BooleanDtype()
        series = {}
        for column, values in zip(self.in_order, table.columns, strict=True):
            gaps = isinstance(column, Column) and column.missing is not None
            mapper = (lambda kind: nullable.get(str(kind))) if gaps or values.null_count else None
            series[column.name] = values.to_pandas(types_mapper=mapper, date_as_object=False)
        return pd.DataFrame(series)

    def check_out(self, path: Path) -> None:
        super().check_out(path)
        table_suffix(path)

    def write(self, x: AnyState, path: Path | str) -> None:
        self._write(self._cells(x), Path(path))

    def write_given(self, x: AnyState, assignments: dict[str, str], path: Path) -> None:
        """States drawn given columns, whose values are written to the last digit: scores are float32."""
        cells = self._cells(x)
        for name, text in assignments.items():
            self._keep(cells, name, [str(text)] * len(cells[name]))
        self._write(cells, Path(path))

    def write_filled(self, x: AnyState, source: Path, path: Path, mark: str | None = None) -> None:
        """The file `source` with its gaps filled, and with the columns that it left out at its end."""
        source, path = Path(source), Path(path)
        table = self._read(source)
        if table_suffix(path) in TYPED:
            filled = self.filled_arrow(x, table, mark, str(source))
            write_bytes(path, TYPED[table_suffix(path)].write(filled, self.form))
            return
        cells, known = self._decode(x), self._known(table, source, mark)
        if table_suffix(source) in TYPED:
            self._keep_all(cells, known)
        blanks = {column.name: column.missing or "" for column in self.columns}
        texts = {name: [blanks[name] if text is None else text for text in drawn] for name, drawn in cells.items()}
        written = self._written(table, texts, source, path)
        for name, drawn in texts.items():
            place = table.column_names.index(name) if name in known else len(written.lines[0][0])
            gaps = [cell is None for cell in known[name]] if name in known else [True] * len(drawn)
            written.put(place, name, drawn, gaps, name not in known)
        write_bytes(path, written.raw())

    def filled_arrow(self, x: AnyState, table: Any, mark: str | None = None, where: str = "the table") -> Any:
        """A pyarrow.Table with its gaps filled, and with the columns that it left out at its end."""
        cells, known = self._decode(x), self._known(table, where, mark)
        self._keep_all(cells, known)
        filled = self._arrow(cells)
        for other in table.schema:
            if other.name not in cells:
                filled = filled.append_column(other, table[other.name])
        return filled.select([*table.column_names, *[name for name in cells if name not in known]])

    def _written(self, table: Any, texts: dict[str, list[str]], source: Path, path: Path) -> Written:
        """The columns of `source` as they are to stand in the text file `path`, gaps and all."""
        if table_suffix(source) in TYPED:
            columns = {name: texts[name] if name in texts else any_texts(table[name]) for name in table.column_names}
            written = Written.anew(columns, self.separator, self.encoding, self.header)
        else:
            columns = {name: any_texts(table[name]) for name in table.column_names}
            written = Written.read(source, self.encoding, columns, self._text(source).header)
        own = self.separator if table_suffix(source) == ".tsv" else written.separator
        return written.separated("\t" if table_suffix(path) == ".tsv" else own)

    def _keep_all(self, cells: dict[str, list[str | None]], known: dict[str, list[str | None]]) -> None:
        for name in [name for name in cells if name in known]:
            self._keep(cells, name, known[name])

    def _keep(self, cells: dict[str, list[str | None]], name: str, known: list[str | None]) -> None:
        """Numbers as they were known; None and blanks leave what was drawn, and categories are what they were anyway."""
        column = next(column for column in self.columns if column.name == name)
        if column.scores is not None:
            blank = {None, "", *column.blanks}
            cells[name] = [old if text in blank else text for old, text in zip(cells[name], known, strict=True)]

    def _write(self, cells: dict[str, list[str | None]], path: Path) -> None:
        suffix = table_suffix(path)
        if suffix in TYPED:
            raw = TYPED[suffix].write(self._arrow(cells), self.form)
        else:
            blanks = [column.blank if isinstance(column, LeftOut) else column.missing or "" for column in self.in_order]
            filled = [
                [blank if text is None else text for text in column]
                for column, blank in zip(cells.values(), blanks, strict=True)
            ]
            stream = io.StringIO(newline="")
            writer = csv.writer(stream, delimiter="\t" if suffix == ".tsv" else self.separator, lineterminator="\n")
            if self.header:
                writer.writerow(cells)
            writer.writerows(zip(*filled, strict=True))
            raw = stream.getvalue().encode(self.encoding)
        write_bytes(path, raw)

    def given(self, assignments: dict[str, str]) -> dict[str, tuple[Tensor, Tensor]]:
        """Fixed columns as {leaf: (values, which of its coordinates are fixed)}: `given({"age": "39", "sex": "Female"})`."""
        known = {column.name: column for column in self.columns}
        place = {column.name: i for i, column in enumerate(self.coordinates)}
        leaf_of = {column.name: leaf for leaf, column in self.leaves.items()}
        values, fixed = torch.zeros(len(place), dtype=torch.int64), torch.zeros(len(place), dtype=torch.bool)
        result: dict[str, tuple[Tensor, Tensor]] = {}
        for name, text in assignments.items():
            if beside := [column.what for column in self.left_out if column.name == name]:
                raise BadData(f"given {name}=...: not in the model ({beside[0]}): train with --keep {name}")
            if name not in known:
                raise BadData(f"given {name}={text}: there is no such column: use one of {list(known)}")
            column = known[name]
            (state,), score = column.encode(Texts(name, [str(text)], np.zeros(1, dtype=np.int64), "given", True), place=0.5)
            if name in place:
                values[place[name]], fixed[place[name]] = int(state), True
            if score is None or column.scores is None:
                continue
            if state == column.size - 1:  # else the score is a fill, as good as any
                number = column.scale.parse([str(text)])[0] if column.scale is not None else np.nan
                if not column.scores.values[0] <= number <= column.scores.values[-1]:
                    raise BadData(f"given {name}={text}: outside the range of this column: use a value in {column.choices}")
                if column.arrow() == "int64" and number != round(number):
                    raise BadData(f"given {name}={text}: this column holds whole numbers: round it")
            result[leaf_of[name]] = torch.tensor(score, dtype=torch.float32), torch.ones(1, dtype=torch.bool)
        return {CATEGORIES: (values, fixed), **result} if fixed.any() else result

    def gaps(self, path: Path, mark: str | None = None) -> tuple[Tree, Tree]:
        """Gaps are the cells that are missing, however that is written, or hold the mark, and columns that are left out."""
        path = Path(path)
        return self.gaps_of_arrow(self._read(path), mark, str(path))

    def gaps_of_arrow(self, table: Any, mark: str | None = None, where: str = "the table") -> tuple[Tree, Tree]:
        """Those of a pyarrow.Table."""
        columns, rows = self._known(table, where, mark), table.num_rows
        x: dict[str, Any] = {}
        if self.coordinates:
            x[CATEGORIES] = torch.zeros(rows, len(self.coordinates), dtype=torch.int64)
        x |= {leaf: torch.zeros(rows, 1) for leaf in self.leaves}
        fixed: dict[str, Any] = {name: torch.zeros_like(leaf, dtype=torch.bool) for name, leaf in x.items()}
        for i in range(rows):
            known = {name: cell for name, cells in columns.items() if (cell := cells[i]) is not None}
            try:
                found = self.given(known)
            except BadData as error:
                raise BadData(f"{where}: row {i + 1}: {str(error).removeprefix('given').lstrip(': ')}") from error
            for leaf, (values, which) in found.items():
                x[leaf][i], fixed[leaf][i] = torch.where(which, values, x[leaf][i]), which
        return x, fixed

    def blank(self, x: AnyState, fixed: dict[str, Tensor]) -> Bool[Tensor, "rows columns"]:
        """Cells that were not known and are missing still: drawn as such."""
        known = [len(column.texts) if column.missing is not None else -1 for column in self.coordinates]
        if not known:
            return torch.zeros(batch_size(x), 0, dtype=torch.bool)
        return ~fixed[CATEGORIES] & (x[CATEGORIES] == torch.tensor(known))

    def count_gaps(self, fixed: dict[str, Tensor]) -> int:
        """Cells: a column may have a coordinate in two leaves."""
        filled: dict[str, Any] = {}
        for leaf, known in fixed.items():
            names = [self.leaves[leaf].name] if leaf in self.leaves else [column.name for column in self.coordinates]
            for name, own in zip(names, known.reshape(len(known), -1).unbind(1), strict=True):
                filled[name] = ~own | filled.get(name, False)
        return sum(int(cells.sum()) for cells in filled.values())

    def gap_parts(self, labels: dict[str, str], fixed: dict[str, Tensor]) -> dict[str, str]:
        """By columns."""
        parts: dict[str, str] = {}
        for leaf, label in labels.items():
            if leaf in self.leaves:
                parts[self.leaves[leaf].name] = label
            else:
                known = fixed[leaf].all(0).tolist()
                parts |= {c.name: label for c, all_known in zip(self.coordinates, known, strict=True) if not all_known}
        return parts

    def _read(self, path: Path) -> Any:
        suffix = table_suffix(path)
        return TYPED[suffix].read(path, self.form)[0] if suffix in TYPED else self._text(path).table

    def _text(self, path: Path) -> TextTable:
        return read_text(path, self.encoding, self.header)

    def _known(self, table: Any, where: Path | str, mark: str | None) -> dict[str, list[str | None]]:
        """The texts of a file's columns, None where there is a gap."""
        own = {column.name: column for column in self.columns}
        columns = {}
        for name in table.column_names:
            if name not in self._beside:
                known = name in own
                texts = self._texts(table, own[name], str(where)) if known else texts_of(table[name], name, str(where))
                blanks = own[name].blanks if known else MISSING
                texts = texts.without((*blanks, *([] if mark is None else [mark])))
                columns[name] = np.array([*texts.distinct, None], dtype=object)[texts.index].tolist()
        return columns

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
        }
        return {"columns": [column.to_json() for column in self.columns], **plain}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Table":
        columns = tuple(map(Column.from_json, data["columns"]))
        left_out = tuple(map(LeftOut.from_json, data.get("left_out", [])))
        lists = {"dropped": tuple(data["dropped"]), "remarks": tuple(data.get("remarks", []))}
        return cls(**{**data, **lists, "columns": columns, "left_out": left_out})


def _line(column: Column, listed: bool) -> Line:
    values = column.choices
    if column.scores is None and len(column.texts) == 1:
        values = f"constant: {values}"
    elif column.scores is not None and column.texts:
        values += f"; apart: {', '.join(column.texts)}"
    values += f"; {form}" if (form := column.form) else ""
    values += "; or missing" if column.missing is not None else ""
    process = "masking" if column.scores is None else "Gaussian and masking" if listed else "Gaussian"
    return Line(column.name, column.kind, values, process)
