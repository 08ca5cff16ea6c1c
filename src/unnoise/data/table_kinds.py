"""The files that hold tables, by suffix: text, and files that carry the types of their columns.

A typed file is read as an arrow table, with what must be known of its form when samples are written in it again, and written
from an arrow table.  Another kind is one more entry: `register_table_file(".feather", read, write)`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from unnoise.data.base import BadData
from unnoise.data.reading import suffix_of

TEXT = (".csv", ".tsv")
Form = dict[str, Any]  # plain data, saved with a run; "suffix" is that of the file


@dataclass(frozen=True)
class TableFile:
    read: Callable[[Path, Mapping[str, Any]], tuple[Any, Form]]  # of a path and options such as a sheet: the table, its form
    write: Callable[[Any, Form], bytes]


TYPED: dict[str, TableFile] = {}


def register_table_file(
    suffix: str, read: Callable[[Path, Mapping[str, Any]], tuple[Any, Form]], write: Callable[[Any, Form], bytes]
) -> None:
    TYPED[suffix] = TableFile(read, write)


def table_suffix(path: Path) -> str:
    """Of a file that holds a table, before .gz; a folder holds Parquet files."""
    if path.is_dir():
        return ".parquet"
    suffix = suffix_of(path)
    if suffix not in (*TEXT, *TYPED):
        raise BadData(f"{path}: a table ends in {', '.join((*TEXT, *TYPED))}, or in one of these and .gz: rename it")
    return suffix
