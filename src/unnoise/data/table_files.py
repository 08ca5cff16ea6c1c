"""CSV, TSV and Parquet files as arrow tables, and arrow columns as texts; whatever is wrong is named in one line."""

import csv
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.column_kinds import FEW, MANY, column_kind
from unnoise.data.columns import Texts
from unnoise.data.files import read_bytes, separator_of, suffix_of, without_blanks
from unnoise.data.scales import Dates, Decimals

GLANCE = 200_000  # rows that are looked at first, so that a hopeless column fails before the rest is worked on
SUFFIXES = (".csv", ".tsv", ".parquet")


def arrow_library() -> Any:
    try:
        import pyarrow
        import pyarrow.compute
        import pyarrow.csv
        import pyarrow.parquet
    except ImportError as error:
        raise ImportError("tables need pyarrow: pip install 'unnoise[data]'") from error
    return pyarrow


def overrides(path: Path | None) -> dict[str, Any] | None:
    """The kinds of columns that a YAML file names."""
    if path is None:
        return None
    try:
        import yaml
    except ImportError as error:
        raise BadData("a YAML file needs the package pyyaml: pip install 'unnoise[data]'") from error
    try:
        data = yaml.load(read_bytes(path), yaml.BaseLoader)  # every value as it is written: no, 01000
    except yaml.YAMLError as error:
        raise BadData(f"{path}: is no YAML ({' '.join(str(error).split())})") from error
    if not isinstance(data, dict):
        raise BadData(f"{path}: expected lines such as `age: number`")
    return data


def table_suffix(path: Path) -> str:
    suffix = suffix_of(path)
    if suffix not in SUFFIXES:
        raise BadData(f"{path}: a table ends in {', '.join(SUFFIXES)}, or in one of these and .gz: rename it")
    return suffix


def _text(raw: bytes, path: Path, encoding: str) -> str:
    """The text of a file, from its header."""
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
    return without_blanks(text)


def _separator(path: Path, text: str) -> str:
    return "\t" if table_suffix(path) == ".tsv" else separator_of(text)


def read_text(path: Path, encoding: str) -> tuple[Any, str]:
    """Text columns as an arrow table, and the separator."""
    pa = arrow_library()
    text = _text(read_bytes(path), path, encoding)
    separator = _separator(path, text)
    raw = text.encode()
    names = next(csv.reader(io.TextIOWrapper(io.BytesIO(raw), "utf-8", newline=""), delimiter=separator))
    check_names(names, path)
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
    if raw.count(b'"') % 2 and any("\n" in column[-1].as_py() for column in table.columns):
        raise BadData(f"{path}: row {table.num_rows} opens a quote that nothing closes: close it")
    return table, separator


@dataclass(frozen=True)
class Written:
    """A text file as it is written: what stands before the header, and of each line the fields and the end."""

    head: str
    separator: str
    lines: list[tuple[list[str], str]]

    @classmethod
    def anew(cls, columns: dict[str, list[str]], separator: str) -> "Written":
        rows = [list(columns), *zip(*columns.values(), strict=True)]
        return cls("", separator, [([quoted(cell, separator) for cell in row], "\n") for row in rows])

    @classmethod
    def read(cls, path: Path, encoding: str, columns: dict[str, list[str]]) -> "Written":
        """`columns`: what arrow reads in it.  Should that not be what is found here, they are written anew."""
        raw = read_bytes(path)
        text = _text(raw, path, encoding)
        separator = _separator(path, text)
        body, end = f"[^{separator}\r\n]*", r"[\r\n]+" if len(columns) > 1 else r"\r\n|\r|\n"  # a blank line may be a row
        lines, fields = [], []
        for field in re.finditer(rf'("[^"]*(?:""[^"]*)*"{body}|{body})({separator}|{end}|\Z)', text):
            fields.append(field[1])
            if field[2] != separator:
                lines.append((fields, field[2]))
                fields = []
        lines = lines[:-1] if lines[-1] == ([""], "") else lines  # what follows the last end
        if [tuple(map(_unquoted, line)) for line, _ in lines] != [tuple(columns), *zip(*columns.values(), strict=True)]:
            return cls.anew(columns, separator)
        return cls(raw.decode(encoding).removesuffix(text), separator, lines)

    def separated(self, separator: str) -> "Written":
        """The same with another separator."""
        if separator == self.separator:
            return self
        lines = [([quoted(_unquoted(field), separator) for field in fields], end) for fields, end in self.lines]
        return Written(self.head, separator, lines)

    def text(self) -> str:
        return self.head + "".join(self.separator.join(fields) + end for fields, end in self.lines)


def _unquoted(field: str) -> str:
    return re.sub(r'"([^"]*(?:""[^"]*)*)"', lambda m: m[1].replace('""', '"'), field, count=1) if field[:1] == '"' else field


def quoted(text: str, separator: str) -> str:
    """A text as a field, in quotes where it needs them."""
    return '"' + text.replace('"', '""') + '"' if set(text) & {separator, '"', "\r", "\n"} else text


def check_names(names: list[str], where: Path | str) -> None:
    double = sorted({name for name in names if names.count(name) > 1})
    if double:
        raise BadData(f"{where}: the column name {double[0]!r} occurs {names.count(double[0])} times: rename one")


def read_parquet(path: Path) -> Any:
    pa = arrow_library()
    try:
        # in this thread alone: another that still holds the bytes when the interpreter ends would abort it
        table = pa.parquet.ParquetFile(pa.BufferReader(read_bytes(path)), pre_buffer=False).read(use_threads=False)
    except (pa.ArrowException, OSError) as error:
        raise BadData(f"{path}: is no Parquet file ({str(error).splitlines()[0]}): check the file") from error
    check_names(table.column_names, path)
    if table.num_rows == 0:
        raise BadData(f"{path}: has columns but no rows: add rows")
    return table


def _as_text(column: Any, name: str, where: str) -> Any:
    """A typed arrow column as text."""
    pa = arrow_library()
    kind = column.type
    try:
        if pa.types.is_dictionary(kind):
            return _as_text(column.cast(kind.value_type), name, where)
        if pa.types.is_time(kind) or pa.types.is_duration(kind):
            raise BadData(
                f"{where}: column '{name}' has the type {kind}: turn it into a number, such as seconds, or drop it"
            )
        if pa.types.is_timestamp(kind):
            for unit in ("s", "ms", "us", "ns"):
                try:
                    return column.cast(pa.timestamp(unit, kind.tz and "UTC")).cast(pa.string())
                except pa.ArrowInvalid:  # finer than this unit
                    continue
        return column.cast(pa.string())
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid) as error:
        raise BadData(f"{where}: column '{name}' has the type {kind}, which is no table value: drop it") from error


def any_texts(column: Any) -> list[str]:
    """A column of any type as texts, for people: it stands beside a model, not in it."""
    try:
        texts = _as_text(column, "", "").to_pylist()
    except BadData:
        texts = [None if value is None else str(value) for value in column.to_pylist()]
    return ["" if text is None else text for text in texts]


def texts_of(column: Any, name: str, where: str) -> Texts:
    """Distinct texts and their places in an arrow column."""
    coded = _as_text(column, name, where).combine_chunks().dictionary_encode()
    return Texts(name, coded.dictionary.to_pylist(), coded.indices.fill_null(-1).to_numpy().astype(np.int64), where)


def glance(column: Any, name: str, where: str, wish: Any) -> None:
    """Raises what `understand` will, from the first rows alone, where these hold too many categories already."""
    if len(column) > GLANCE:
        values = texts_of(column[:GLANCE], name, where)
        some = values.distinct[-1000:]
        if len(values.distinct) > MANY and not (Decimals.understand(some) or Dates.understand(some)):
            column_kind(values, wish)


def arrow_type(pa: Any, name: str) -> Any:
    """An arrow type by the name a column gives it."""
    match = re.fullmatch(r"timestamp\[(\w+)(?:, (\w+))?\]", name)
    return pa.timestamp(match[1], match[2]) if match else pa.type_for_alias(name)


def levels_of(column: Any) -> dict[str, Any] | None:
    """The kind of a column of pandas categories, with its levels in their order."""
    types = arrow_library().types
    if not types.is_dictionary(column.type):
        return None
    words = any(test(column.type.value_type) for test in (types.is_string, types.is_large_string, types.is_string_view))
    if not words and not column.type.ordered:
        return None
    levels = column.unify_dictionaries().chunk(0).dictionary
    if len(levels) > FEW or levels.null_count:
        return None
    return {"kind": "ordinal" if column.type.ordered else "category", "order": levels.cast("string").to_pylist()}


def pandas_types(schema: Any, names: list[str]) -> dict[str, str] | None:
    """What a Parquet file says of the pandas types of these columns, without the index of its rows."""
    if b"pandas" not in (schema.metadata or {}):
        return None
    said = json.loads(schema.metadata[b"pandas"])
    columns = [column for column in said["columns"] if column["name"] in names]
    return {"pandas": json.dumps({**said, "columns": columns, "index_columns": []})}
