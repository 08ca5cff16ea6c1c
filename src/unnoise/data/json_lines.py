"""JSON lines as typed tables: an object a line, a key a column.

Keys that are missing are missing values.  An object within an object is flattened, {"a": {"b": 1}} as the column a.b, and
written as it was.  Numbers, booleans, texts and null keep their types, and keys the order in which they first appear.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from unnoise.data.base import BadData
from unnoise.data.files import read_text
from unnoise.data.python_columns import typed_column
from unnoise.data.reading import suffix_of
from unnoise.data.table_files import arrow_library
from unnoise.data.table_kinds import Form, register_table_file


def read_json_lines(path: Path, options: Mapping[str, Any]) -> tuple[Any, Form]:
    pa = arrow_library()
    paths: dict[tuple[str, ...], str] = {}  # of every value found, and the name of its column
    rows: list[dict[tuple[str, ...], Any]] = []
    numbers = []
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if not line.strip():
            continue
        row = dict(_flat(_object(line, path, number), ()))
        paths.update((key, ".".join(key)) for key in row if key not in paths)
        rows.append(row)
        numbers.append(number)
    if not rows:
        raise BadData(f"{path}: has no lines: it needs a JSON object on each")
    inner = {key[:i] for key in paths for i in range(1, len(key))}  # a null there is an object that is missing
    paths = {key: name for key, name in paths.items() if key not in inner or any(row.get(key) is not None for row in rows)}
    if len(set(paths.values())) < len(paths):
        double = next(name for name in paths.values() if list(paths.values()).count(name) > 1)
        raise BadData(f"{path}: the key {double!r} occurs twice, as such and within an object: rename one")
    columns = {
        name: typed_column([row.get(key) for row in rows], name, str(path), lambda i: f"line {numbers[i]}")
        for key, name in paths.items()
    }
    if not columns:
        raise BadData(f"{path}: its objects have no keys: a row needs values by name")
    nested = {name: list(key) for key, name in paths.items() if len(key) > 1}
    return pa.table(columns), {"suffix": suffix_of(path), **({"nested": nested} if nested else {})}


def _object(line: str, path: Path, number: int) -> dict[str, Any]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadData(f"{path}: line {number} is no JSON ({error}): write one object per line") from error
    if not isinstance(row, dict):
        what = "a list" if isinstance(row, list) else "a text" if isinstance(row, str) else "a single value"
        raise BadData(f"{path}: line {number} is {what}: write one object per line, {{...}}")
    return row


def _flat(row: dict[str, Any], above: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    for key, value in row.items():
        if isinstance(value, dict):
            yield from _flat(value, (*above, key))
        else:
            yield (*above, key), value


def write_json_lines(table: Any, form: Form) -> bytes:
    nested = form.get("nested", {})
    listed = {field.name for field in table.schema if str(field.type) == "list<item: string>"}
    lines = []
    for row in table.to_pylist():
        out: dict[str, Any] = {}
        for name, value in row.items():
            *above, last = nested.get(name, [name])
            inner = out
            for key in above:
                inner = inner.setdefault(key, {})
            inner[last] = [json.loads(entry) for entry in value] if name in listed and value else value
        lines.append(json.dumps(out, ensure_ascii=False, default=_plain) + "\n")
    return "".join(lines).encode()


def _plain(value: Any) -> Any:
    """What JSON has no type for."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime | date):
        return value.isoformat()
    return str(value)


for suffix in (".jsonl", ".ndjson"):
    register_table_file(suffix, read_json_lines, write_json_lines)
