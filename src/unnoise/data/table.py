"""Tables: a CSV, TSV or Parquet file as states of a product space, and states as such a file.

All categorical columns share one leaf, `categories`, one coordinate each, under masking noise.  Every continuous column is a
Gaussian leaf of its own, since a leaf at time 0 is how one conditions on a column.  A continuous column with missing values,
or with single values that hold a share of the rows, also has a coordinate in `categories`, which says when to read it.

Every value passes through text: a typed column is cast to text on reading and back to its type on writing.
"""

import base64
import csv
import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.data.base import BadData, Format, Line
from unnoise.data.columns import MANY, Column, Dates, Decimals, Texts, understand
from unnoise.data.files import read_bytes, suffix_of, write_bytes
from unnoise.processes import Gaussian, Masking, Process, Product
from unnoise.shapes import Tree

CATEGORIES = "categories"
GLANCE = 200_000  # rows that are looked at first, so that a hopeless column fails before the rest is worked on
SUFFIXES = (".csv", ".tsv", ".parquet")
SEPARATORS = (",", ";", "\t")


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("tables need pyarrow: pip install 'unnoise[data]'") from error
    return pyarrow


def _suffix(path: Path) -> str:
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise BadData(f"{path}: a table ends in {', '.join(SUFFIXES)}, or in one of these and .gz: rename it")
    return suffix


def _utf8(raw: bytes, path: Path, encoding: str) -> bytes:
    """The text of a file as UTF-8."""
    plain = encoding.lower() in ("utf-8", "utf8")
    raw = raw.removeprefix(b"\xef\xbb\xbf") if plain else raw
    strange = sum(byte < 9 or 13 < byte < 32 for byte in raw[:4096])
    if plain and (b"\0" in raw or strange > 0.02 * len(raw[:4096])):
        raise BadData(f"{path}: holds binary data, not text: pass a CSV, TSV or Parquet file, or set the encoding (utf-16?)")
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        where = f"byte {error.start} (0x{raw[error.start]:02x})"
        raise BadData(f"{path}: {where} is not {encoding}: set the encoding, such as latin-1") from error
    except LookupError as error:
        raise BadData(f"{path}: there is no encoding '{encoding}': use one such as utf-8 or latin-1") from error
    if not text.strip():
        raise BadData(f"{path}: the file is empty: it needs a header and rows")
    return raw if plain else text.encode()


def _read_text(path: Path, encoding: str) -> tuple[Any, str]:
    """Text columns as an arrow table, and the separator."""
    pa = _arrow()
    raw = _utf8(read_bytes(path), path, encoding)
    first = raw.lstrip().split(b"\n", 1)[0].decode()
    separator = "\t" if _suffix(path) == ".tsv" else next((s for s in SEPARATORS if s in first), ",")
    reader = csv.reader(io.TextIOWrapper(io.BytesIO(raw), "utf-8", newline=""), delimiter=separator)
    names = next(row for row in reader if row)
    _check_names(names, path)
    if all(Decimals.understand([name]) for name in names):
        raise BadData(f"{path}: the first row holds numbers, not column names: add a header")
    ragged: list[Any] = []

    def keep(row: Any) -> str:
        ragged.append(row)
        return "skip" if len(ragged) == 1 else "error"

    try:
        table = pa.csv.read_csv(
            io.BytesIO(raw),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=1 << 24),
            parse_options=pa.csv.ParseOptions(
                delimiter=separator, newlines_in_values=True, ignore_empty_lines=len(names) > 1, invalid_row_handler=keep
            ),
            convert_options=pa.csv.ConvertOptions(column_types={name: pa.string() for name in names}),
        )
    except pa.ArrowInvalid as error:
        if not ragged:
            raise BadData(
                f"{path}: cannot be read as a table ({' '.join(str(error).split())}): check quotes and separators"
            ) from error
    if ragged:
        row = ragged[0]
        found = f"row {row.number - 1} has {row.actual_columns} fields, the header has {row.expected_columns}"
        raise BadData(f"{path}: {found}: correct the row (a text with '{separator}' inside needs quotes)")
    if table.num_rows == 0:
        raise BadData(f"{path}: has a header but no rows: add rows")
    return table, separator


def _check_names(names: list[str], where: Path | str) -> None:
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise BadData(f"{where}: the column name {double[0]!r} occurs {names.count(double[0])} times: rename one")


def _read_parquet(path: Path) -> Any:
    pa = _arrow()
    try:
        table = pa.parquet.read_table(pa.BufferReader(read_bytes(path)))
    except (pa.ArrowException, OSError) as error:
        raise BadData(f"{path}: is no Parquet file ({str(error).splitlines()[0]}): check the file") from error
    _check_names(table.column_names, path)
    if table.num_rows == 0:
        raise BadData(f"{path}: has columns but no rows: add rows")
    return table


def _as_text(column: Any, name: str, where: str) -> Any:
    """A typed arrow column as text."""
    pa = _arrow()
    kind = column.type
    try:
        if pa.types.is_dictionary(kind):
            return _as_text(column.cast(kind.value_type), name, where)
        if pa.types.is_timestamp(kind):
            for unit in ("s", "ms", "us", "ns"):
                try:
                    return column.cast(pa.timestamp(unit, kind.tz and "UTC")).cast(pa.string())
                except pa.ArrowInvalid:  # finer than this unit
                    continue
        return column.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise BadData(f"{where}: column '{name}' has the type {kind}, which is no table value: drop it") from error


def _texts(column: Any, name: str, where: str) -> Texts:
    """Distinct texts and their places in an arrow column."""
    coded = _as_text(column, name, where).combine_chunks().dictionary_encode()
    return Texts(name, coded.dictionary.to_pylist(), coded.indices.fill_null(-1).to_numpy().astype(np.int64), where)


def _glance(column: Any, name: str, where: str, wish: Any) -> None:
    """Raises what `understand` will, from the first rows alone, where these hold too many categories already."""
    if len(column) > GLANCE:
        values = _texts(column[:GLANCE], name, where)
        some = values.distinct[-1000:]
        if len(values.distinct) > MANY and not (Decimals.understand(some) or Dates.understand(some)):
            understand(values, wish)


def _type(pa: Any, name: str) -> Any:
    """An arrow type by the name a column gives it."""
    match = re.fullmatch(r"timestamp\[(\w+)(?:, (\w+))?\]", name)
    return pa.timestamp(match[1], match[2]) if match else pa.type_for_alias(name)


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


@dataclass(frozen=True, eq=False)
class Table(Format):
    """What was understood of a table."""

    columns: tuple[Column, ...]
    schema: str  # types of the columns, an arrow schema in base64
    separator: str = ","
    encoding: str = "utf-8"
    dropped: tuple[str, ...] = ()

    kind = "table"
    suffix = ".csv"

    @classmethod
    def fit(cls, path: Path | str, overrides: dict[str, Any] | None = None, encoding: str = "utf-8") -> tuple["Table", Tree]:
        """The format of a file and its states.  `overrides`: {column: "drop", a kind, or {"kind": ..., ...}}."""
        path, overrides = Path(path), {str(name): wish for name, wish in (overrides or {}).items()}
        if _suffix(path) == ".parquet":
            return cls._fit(_read_parquet(path), str(path), overrides, typed=True)
        table, separator = _read_text(path, encoding)
        return cls._fit(table, str(path), overrides, typed=False, separator=separator, encoding=encoding)

    @classmethod
    def _fit(cls, table: Any, where: str, overrides: dict[str, Any], typed: bool, **settings: str) -> tuple["Table", Tree]:
        pa = _arrow()
        if unknown := [name for name in overrides if name not in table.column_names]:
            raise BadData(
                f"{where}: the overrides name {unknown[0]!r}, but the columns are {table.column_names}: correct it"
            )
        dropped = tuple(name for name in table.column_names if overrides.get(name) in ("drop", {"kind": "drop"}))
        names = [name for name in table.column_names if name not in dropped]
        if not names:
            raise BadData(f"{where}: every column is dropped: keep at least one")
        for name in names:
            _glance(table[name], name, where, overrides.get(name))
        texts = {name: _texts(table[name], name, where) for name in names}
        columns = tuple(understand(texts[name], overrides.get(name)) for name in names)
        types = [table.schema.field(c.name).type if typed else _type(pa, c.arrow()) for c in columns]
        schema = pa.schema(list(zip(names, types, strict=True))).serialize().to_pybytes()
        made = cls(columns, base64.b64encode(schema).decode(), dropped=dropped, **settings)
        return made, made._encode(texts, "refuse")

    @property
    def leaves(self) -> dict[str, Column]:
        """The continuous columns by the name of their leaf."""
        continuous = [column for column in self.columns if column.quantiles is not None]
        return dict(zip(_leaf_names([column.name for column in continuous]), continuous, strict=True))

    @property
    def coordinates(self) -> tuple[Column, ...]:
        """The columns that the coordinates of the leaf `categories` stand for."""
        return tuple(c for c in self.columns if c.quantiles is None or c.texts or c.missing is not None)

    def process(self) -> Process:
        sizes = [column.size for column in self.coordinates]
        discrete = {CATEGORIES: Masking(sizes)} if sizes else {}
        return Product(**discrete, **{leaf: Gaussian((1,)) for leaf in self.leaves})

    def lines(self) -> list[Line]:
        return [_line(column, column in self.coordinates) for column in self.columns]

    def encode(self, path: Path | str, unseen: str = "refuse") -> Tree:
        """States of another file.  `unseen`: "refuse" an ordered value that was never seen, or move it to the "nearest"."""
        path = Path(path)
        table = _read_parquet(path) if _suffix(path) == ".parquet" else _read_text(path, self.encoding)[0]
        return self._encode_table(table, str(path), unseen)

    def encode_frame(self, frame: Any, unseen: str = "refuse") -> Tree:
        """States of a pandas.DataFrame."""
        pa = _arrow()
        _check_names(list(map(str, frame.columns)), "the frame")
        try:
            table = pa.Table.from_pandas(frame, preserve_index=False)
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise BadData(f"the frame: {error.args[-1]}: give each column one type") from error
        return self._encode_table(table, "the frame", unseen)

    def _encode_table(self, table: Any, where: str, unseen: str) -> Tree:
        names = [column.name for column in self.columns]
        if lost := [name for name in names if name not in table.column_names]:
            raise BadData(f"{where}: lacks the column {lost[0]!r}: it needs {names}")
        if extra := [name for name in table.column_names if name not in (*names, *self.dropped)]:
            raise BadData(f"{where}: has the unknown column {extra[0]!r}: leave it out, the columns are {names}")
        return self._encode({name: _texts(table[name], name, where) for name in names}, unseen)

    def _encode(self, texts: dict[str, Texts], unseen: str) -> Tree:
        if unseen not in ("refuse", "nearest"):
            raise ValueError(f"unseen = {unseen!r}: use 'refuse' or 'nearest'")
        coded = {}
        for column in self.columns:
            coded[column.name] = column.encode(texts[column.name], unseen)
        return self._states(coded)

    def _states(self, coded: dict[str, tuple[np.ndarray, np.ndarray | None]]) -> Tree:
        x: dict[str, Tensor] = {}
        if self.coordinates:
            x[CATEGORIES] = torch.as_tensor(np.stack([coded[column.name][0] for column in self.coordinates], 1))
        for leaf, column in self.leaves.items():
            x[leaf] = torch.as_tensor(coded[column.name][1], dtype=torch.float32).unsqueeze(-1)
        return x

    def _decode(self, x: Tree) -> dict[str, list[str | None]]:
        self.process().space.check(x)
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

    def arrow(self, x: Tree) -> Any:
        """States as a pyarrow.Table with the types of the file."""
        pa = _arrow()
        schema = pa.ipc.read_schema(pa.BufferReader(base64.b64decode(self.schema)))
        arrays = []
        for (_, texts), field in zip(self._decode(x).items(), schema, strict=True):
            words = pa.array(texts, pa.string())
            inner = field.type.value_type if pa.types.is_dictionary(field.type) else field.type
            arrays.append(words.cast(inner).cast(field.type))
        return pa.Table.from_arrays(arrays, schema=schema)

    def frame(self, x: Tree) -> Any:
        """States as a pandas.DataFrame; whole numbers and booleans that can be missing get pandas' nullable types."""
        import pandas as pd

        table = self.arrow(x)
        nullable = {"int64": pd.Int64Dtype(), "int32": pd.Int32Dtype(), "int16": pd.Int16Dtype(), "int8": pd.Int8Dtype()}
        nullable |= {f"u{name}": getattr(pd, f"UI{str(kind)[1:]}Dtype")() for name, kind in nullable.items()}
        nullable["bool"] = pd.BooleanDtype()
        series = {}
        for column, values in zip(self.columns, table.columns, strict=True):
            mapper = (lambda kind: nullable.get(str(kind))) if column.missing is not None else None
            series[column.name] = values.to_pandas(types_mapper=mapper, date_as_object=False)
        return pd.DataFrame(series)

    def write(self, x: Tree, path: Path | str) -> None:
        path = Path(path)
        suffix = _suffix(path)
        if suffix == ".parquet":
            pa = _arrow()
            sink = pa.BufferOutputStream()
            pa.parquet.write_table(self.arrow(x), sink)
            raw = sink.getvalue().to_pybytes()
        else:
            texts = self._decode(x)
            blanks = [column.missing or "" for column in self.columns]
            filled = [
                [blank if text is None else text for text in column]
                for column, blank in zip(texts.values(), blanks, strict=True)
            ]
            stream = io.StringIO(newline="")
            writer = csv.writer(stream, delimiter="\t" if suffix == ".tsv" else self.separator, lineterminator="\n")
            writer.writerow(texts)
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
            if name not in known:
                raise BadData(f"given {name}={text}: there is no such column: use one of {list(known)}")
            column = known[name]
            (state,), score = column.encode(Texts(name, [str(text)], np.zeros(1, dtype=np.int64), "given"), place=0.5)
            if name in place:
                values[place[name]], fixed[place[name]] = int(state), True
            if score is not None and column.quantiles is not None and state == column.size - 1:
                number = column.scale.parse([str(text)])[0] if column.scale is not None else np.nan
                if not column.quantiles.values[0] <= number <= column.quantiles.values[-1]:
                    raise BadData(f"given {name}={text}: outside the range of this column: use a value in {column.choices}")
                result[leaf_of[name]] = torch.tensor(score, dtype=torch.float32), torch.ones(1, dtype=torch.bool)
        return {CATEGORIES: (values, fixed), **result} if fixed.any() else result

    def to_json(self) -> dict[str, Any]:
        plain = {
            "schema": self.schema,
            "separator": self.separator,
            "encoding": self.encoding,
            "dropped": list(self.dropped),
        }
        return {"columns": [column.to_json() for column in self.columns], **plain}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Table":
        columns = tuple(map(Column.from_json, data["columns"]))
        return cls(**{**data, "columns": columns, "dropped": tuple(data["dropped"])})


def _line(column: Column, listed: bool) -> Line:
    values = column.choices
    if column.quantiles is None and len(column.texts) == 1:
        values = f"constant: {values}"
    elif column.quantiles is not None and column.texts:
        values += f"; apart: {', '.join(column.texts)}"
    values += "; or missing" if column.missing is not None else ""
    process = "masking" if column.quantiles is None else "Gaussian and masking" if listed else "Gaussian"
    return Line(column.name, column.kind, values, process)
