"""Values of Python as a typed arrow column: what JSON lines and spreadsheets hold."""

from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from typing import Any

from unnoise.data.base import BadData
from unnoise.data.typed_columns import arrow_library

MARKERS = {
    "",
    "na",
    "n/a",
    "nan",
    "null",
    "none",
    "-",
    "?",
    "#n/a",
    "#null!",
    "#div/0!",
    "#value!",
    "#ref!",
    "#name?",
    "#num!",
}
KINDS: dict[type, str] = {
    bool: "a boolean",
    int: "a number",
    float: "a number",
    str: "a text",
    datetime: "a date",
    date: "a date",
    time: "a time of day",
    timedelta: "a duration",
    list: "a list",
}


def typed_column(values: list[Any], name: str, where: str, place: Callable[[int], str]) -> Any:
    """One type for all values, None where one is missing; `place` names a row.  Words for a missing value that stand beside
    values of another kind are missing."""
    pa = arrow_library()
    values = [None if value != value else value for value in values]  # NaN
    first = _first(values)
    if "a text" in first and len(first) > 1:
        values = [None if isinstance(value, str) and value.strip().lower() in MARKERS else value for value in values]
        first = _first(values)
    if len(first) > 1:
        (one, i), (other, j) = sorted(first.items(), key=lambda item: item[1])[:2]
        raise BadData(
            f"{where}: column {name!r} is {other} in {place(j)} ({_short(values[j])}), and {one} in {place(i)} "
            f"({_short(values[i])}): write them alike, or leave it empty where it is missing"
        )
    kind = next(iter(first), "a text")
    if kind == "a number":
        return _numbers(values, name, where, place)
    if kind == "a date":
        return _dates(pa, values)
    if kind == "a list":  # no value of a table, but such a column may be dropped
        import json

        texts = [value and [json.dumps(entry) for entry in value] for value in values]
        return pa.array(texts, pa.list_(pa.string()))
    return pa.array(values, {"a boolean": pa.bool_(), "a text": pa.string()}.get(kind))


def _first(values: list[Any]) -> dict[str, int]:
    """The row in which each kind stands first."""
    found: dict[type, int] = {}
    for i, value in enumerate(values):
        if type(value) not in found:
            found[type(value)] = i
    kinds: dict[str, int] = {}
    for kind, i in found.items():
        if kind is not type(None):
            kinds.setdefault(KINDS.get(kind, f"a {kind.__name__}"), i)
    return kinds


def _numbers(values: list[Any], name: str, where: str, place: Callable[[int], str]) -> Any:
    pa = arrow_library()
    if any(isinstance(value, float) for value in values):
        return pa.array([None if value is None else float(value) for value in values], pa.float64())
    known = [value for value in values if value is not None]
    if min(known) >= -(2**63) and max(known) < 2**63:
        return pa.array(values, pa.int64())
    if min(known) >= 0 and max(known) < 2**64:
        return pa.array(values, pa.uint64())
    i = next(i for i, value in enumerate(values) if value is not None and not -(2**63) <= value < 2**63)
    raise BadData(f"{where}: column {name!r} in {place(i)} is a number of more than 64 bits: write them as texts")


def _dates(pa: Any, values: list[Any]) -> Any:
    """Days where all are at midnight, else moments."""
    moments = [value for value in values if isinstance(value, datetime)]
    if all(moment.time() == time(0) for moment in moments):
        days = [value.date() if isinstance(value, datetime) else value for value in values]
        return pa.array(days, pa.date32())
    unit = "us" if any(moment.microsecond for moment in moments) else "s"
    full = [value if value is None or isinstance(value, datetime) else datetime.combine(value, time(0)) for value in values]
    return pa.array(full, pa.timestamp(unit))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 30 else text[:27] + "..."
