"""CSV, TSV and Parquet files as arrow tables, and arrow columns as texts; whatever is wrong is named in one line."""

import csv
import io
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.column_kinds import FEW
from unnoise.data.columns import Texts
from unnoise.data.files import read_bytes, separator_of, without_blanks
from unnoise.data.header import ROWS, column_names, has_header
from unnoise.data.table_kinds import table_suffix
from unnoise.data.text_encoding import decoded
from unnoise.data.typed_columns import arrow_library


def overrides(path: Path | None) -> dict[str, Any] | None:
    """The kinds of columns that a YAML file names."""
    if path is None:
        return None
    try:
        import yaml
    except ImportError as error:
        raise BadData("a YAML file needs the package pyyaml: pip install 'unnoise[all]'") from error
    try:
        data = yaml.load(read_bytes(path), yaml.BaseLoader)  # every value as it is written: no, 01000
    except yaml.YAMLError as error:
        raise BadData(f"{path}: is no YAML ({' '.join(str(error).split())})") from error
    if not isinstance(data, dict):
        raise BadData(f"{path}: expected lines such as `age: number`")
    return data


def _text(raw: bytes, path: Path, encoding: str) -> tuple[str, str]:
    """The text of a file, from its header, and its encoding."""
    text, encoding = decoded(raw, str(path), encoding)
    if not text.strip():
        raise BadData(f"{path}: the file is empty: it needs a header and rows")
    return without_blanks(text), encoding


class TextTable(NamedTuple):
    """What a text file holds, and how it is written."""

    table: Any  # an arrow table of text columns
    separator: str
    encoding: str
    header: bool  # whether it names its columns


def _separator(path: Path, text: str) -> str:
    return "\t" if table_suffix(path) == ".tsv" else separator_of(text)


def read_text(path: Path, encoding: str, header: bool | None = None) -> TextTable:
    """A text file; without a header its columns are column_1, ...  `header`: whether it has one, where that is known."""
    text, encoding = _text(read_bytes(path), path, encoding)
    separator = _separator(path, text)
    raw = text.encode()
    names = next(csv.reader(io.TextIOWrapper(io.BytesIO(raw), "utf-8", newline=""), delimiter=separator))
    own = column_names(len(names))
    if header is False and names == own:  # this one has it
        header = True
    table = _read_csv(raw, path, separator, own)
    if header is None:
        header = table.num_rows < 2 or has_header(names, [column[1:ROWS].to_pylist() for column in table.columns])
    if header:
        check_names(names, path)
        table = table.slice(1).rename_columns(names)
    if table.num_rows == 0:
        raise BadData(f"{path}: has a header but no rows: add rows")
    if raw.count(b'"') % 2 and any("\n" in column[-1].as_py() for column in table.columns):
        raise BadData(f"{path}: row {table.num_rows} opens a quote that nothing closes: close it")
    return TextTable(table, separator, encoding, header)


def _read_csv(raw: bytes, path: Path, separator: str, names: list[str]) -> Any:
    """Text columns as an arrow table, the header as its first row."""
    pa = arrow_library()
    ragged: list[Any] = []

    def keep(row: Any) -> str:
        ragged.append(row)
        return "skip" if len(ragged) == 1 else "error"

    try:
        table = pa.csv.read_csv(
            io.BytesIO(raw),
            read_options=pa.csv.ReadOptions(use_threads=False, block_size=1 << 24, column_names=names),
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
    return table


@dataclass(frozen=True)
class Written:
    """A text file as it is written: what stands before the header, and of each line the fields and the end."""

    head: str
    separator: str
    lines: list[tuple[list[str], str]]
    encoding: str
    header: bool = True  # whether the first line names the columns

    @classmethod
    def anew(cls, columns: dict[str, list[str]], separator: str, encoding: str, header: bool = True) -> "Written":
        rows = [*([list(columns)] if header else []), *zip(*columns.values(), strict=True)]
        lines = [([quoted(cell, separator) for cell in row], "\n") for row in rows]
        return cls("", separator, lines, encoding, header)

    @classmethod
    def read(cls, path: Path, encoding: str, columns: dict[str, list[str]], header: bool = True) -> "Written":
        """`columns`: what arrow reads in it.  Should that not be what is found here, they are written anew."""
        raw = read_bytes(path)
        text, encoding = _text(raw, path, encoding)
        separator = _separator(path, text)
        body, end = f"[^{separator}\r\n]*", r"[\r\n]+" if len(columns) > 1 else r"\r\n|\r|\n"  # a blank line may be a row
        lines, fields = [], []
        for field in re.finditer(rf'("[^"]*(?:""[^"]*)*"{body}|{body})({separator}|{end}|\Z)', text):
            fields.append(field[1])
            if field[2] != separator:
                lines.append((fields, field[2]))
                fields = []
        lines = lines[:-1] if lines[-1] == ([""], "") else lines  # what follows the last end
        rows = [*([tuple(columns)] if header else []), *zip(*columns.values(), strict=True)]
        if [tuple(map(_unquoted, line)) for line, _ in lines] != rows:
            return cls.anew(columns, separator, encoding, header)
        return cls(raw.decode(encoding).removesuffix(text), separator, lines, encoding, header)

    def separated(self, separator: str) -> "Written":
        """The same with another separator."""
        if separator == self.separator:
            return self
        lines = [([quoted(_unquoted(field), separator) for field in fields], end) for fields, end in self.lines]
        return replace(self, separator=separator, lines=lines)

    def put(self, place: int, name: str, cells: list[str], gaps: list[bool], new: bool) -> None:
        """Cells where there are gaps; a `new` column is named as well, where columns are."""
        named = [(name, new)] if self.header else []
        for (fields, _), (text, gap) in zip(self.lines, [*named, *zip(cells, gaps, strict=True)], strict=True):
            if gap:
                fields[place : place + 1] = [quoted(text, self.separator)]

    def raw(self) -> bytes:
        text = self.head + "".join(self.separator.join(fields) + end for fields, end in self.lines)
        return text.encode(self.encoding)


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
