"""The kinds of a table's columns as a YAML file, to be edited and read again with --columns."""

import json

from unnoise.data.around import PERIODS, Around
from unnoise.data.columns import MISSING, Column
from unnoise.data.globe import Meridians, Parallels
from unnoise.data.left_out import LeftOut
from unnoise.data.wishes import FORMS, KINDS, LEFT_OUT
from unnoise.data.written_dates import WrittenDates
from unnoise.data.written_numbers import WrittenNumbers

HEAD = f"""\
# What was understood of the columns.  Edit it, and pass it with --columns.
# kinds: {", ".join(KINDS)}
# beside the model: {", ".join(LEFT_OUT)}; identifiers are made anew in samples, private ones and texts are empty
# drop: not even in samples
# more: {{kind: ordinal, order: [low, high]}}, {{kind: number, missing: [-9]}}, {{kind: date, form: day first}},
#   {{kind: angle, period: 24}}, {{kind: latitude, with: lon, period: radians}}: with its longitude a place on the globe
#   {{kind: composition, with: [silt, clay]}}: shares that sum to one or to 100
# periods: a number, or {", ".join(PERIODS)}
# forms: {", ".join(FORMS)}
"""


def _form(column: Column) -> str | None:
    """Where the form may be read in two ways, which it is."""
    scale = column.scale
    if isinstance(scale, WrittenNumbers) and (scale.group or scale.most):
        meant: str | bool | None = scale.decimal
    elif isinstance(scale, WrittenDates):
        meant = scale.order
    else:
        return None
    return next((form for form, means in FORMS.items() if means == meant and type(means) is type(meant)), None)


def _line(column: Column | LeftOut) -> str:
    name, kind = json.dumps(column.name, ensure_ascii=False), column.kind
    if isinstance(column, LeftOut):
        return f"{name}: {kind}  # {column.values}"
    more = [f"kind: {kind}"]
    if column.scale is None and kind == "ordinal":
        more.append(f"order: {json.dumps(column.texts, ensure_ascii=False)}")
    if extra := [text for text in column.blanks if text not in MISSING]:
        more.append(f"missing: {json.dumps(extra, ensure_ascii=False)}")
    if form := _form(column):
        more.append(f"form: {form}")
    if others := [other for other in column.partners if other != column.name]:
        more.append(f"with: {json.dumps(others[0] if len(others) == 1 else others, ensure_ascii=False)}")
    if isinstance(column.scores, Around | Parallels | Meridians):
        period = column.scores.period
        more.append(f"period: {next((name for name, p in PERIODS.items() if p == period), repr(period))}")
    said = " ".join(column.choices.split())
    return f"{name}: {'{' + ', '.join(more) + '}' if more[1:] else kind}  # {said[:80]}"


def kinds_yaml(columns: list[Column | LeftOut], dropped: tuple[str, ...], notes: list[str]) -> str:
    lines = [*map(_line, columns), *(f"{json.dumps(name, ensure_ascii=False)}: drop" for name in dropped)]
    return HEAD + "".join(f"# unclear: {note}\n" for note in notes) + "\n".join(lines) + "\n"
