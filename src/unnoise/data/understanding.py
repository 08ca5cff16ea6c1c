"""All columns of a table at once: each by its own texts, then what is unclear by what the others say."""

from collections.abc import Mapping
from typing import Any

from unnoise.data.base import BadData
from unnoise.data.column_kinds import column_kind
from unnoise.data.columns import Column, Texts
from unnoise.data.composition_columns import with_compositions
from unnoise.data.globe_columns import with_globe
from unnoise.data.left_out import LeftOut
from unnoise.data.wishes import Evidence


def understand(texts: Mapping[str, Texts], wishes: Mapping[str, Any], keep: tuple[str, ...]) -> list[Column | LeftOut]:
    """Every column; whatever is wrong with any of them is one error."""
    found: dict[str, Column | LeftOut] = {}
    errors = []
    for name, values in texts.items():
        try:
            found[name] = column_kind(values, wishes[name], keep=name in keep)
        except BadData as error:
            errors.append(str(error))
    if errors:
        raise BadData("; ".join(errors))
    evidence = Evidence.of(found.values())
    if evidence != Evidence():
        for name, values in texts.items():
            if _open(found[name], evidence):
                found[name] = column_kind(values, wishes[name], evidence, name in keep)

    def make(name: str, wish: dict[str, Any]) -> Column | LeftOut:
        return column_kind(texts[name], wish, evidence, name in keep)

    found = with_compositions(found, texts, wishes, make)
    return list(with_globe(found, texts, wishes, make).values())


def _open(column: Column | LeftOut, evidence: Evidence) -> bool:
    """Whether the other columns may say how it is read: it is unclear, or may have commas for points."""
    if isinstance(column, LeftOut) or column.scale is None:
        return False
    return bool(column.scale.note) or (evidence.decimal == "," and column.scale.arrow() == "double")


def notes(columns: list[Column | LeftOut]) -> list[str]:
    """What is unclear, a line each, and which columns the model does without."""
    lines = [f"column {column.name!r}: {column.note}" for column in columns if column.note]
    beside = [column for column in columns if isinstance(column, LeftOut)]
    made = [repr(column.name) for column in beside if column.maker is not None]
    empty = [repr(column.name) for column in beside if column.maker is None]
    if made:
        lines.append(f"not in the model, made anew in samples: {', '.join(made)}; --keep COLUMN models one")
    if empty:
        lines.append(f"not in the model, empty in samples: {', '.join(empty)}; --keep COLUMN models one")
    return lines
