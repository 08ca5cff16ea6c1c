"""Formats and plain data: tables of arrow, arrays of NumPy, strings.

    fitted(plain, how, kinds)            the format of data and its states
    encode(format, plain)                states of more such data, and what was moved to the nearest known value
    decode(format, x)                    states as plain data
    gaps(format, plain, mark)            states of data with gaps, and which of their coordinates are known
    filled(format, x, plain, mark)       the data with its gaps filled
    exact(format, plain, given)          drawn data with the given values in their very digits
    texts(given)                         given values as the texts that formats know them by

Those that take a format are open functions of it.  One of one's own needs none of them: it reads files, and its samples are
states.
"""

import warnings
from functools import singledispatch
from typing import Any

import numpy as np

from unnoise.data.arrays import Array
from unnoise.data.base import BadData, Format
from unnoise.data.conditional import DATA, Conditional
from unnoise.data.images import Images
from unnoise.data.reading import Reading
from unnoise.data.sequences import Sequences
from unnoise.data.table import Table
from unnoise.data.table_files import arrow_library
from unnoise.data.table_gaps import in_each_row
from unnoise.shapes import Tree

BLANK = ("nan", "NaT", "<NA>")  # what missing values of Python, NumPy and pandas are called


def fitted(plain: Any, how: Reading, kinds: dict[str, Any] | None) -> tuple[Format, Tree]:
    """The format of plain data and its states."""
    if how.condition and isinstance(plain, np.ndarray | str | list):
        raise BadData(
            f"condition = {how.condition}: names columns of a table, or what stands beside data in a file: pass a frame, or "
            f"the path of such a file"
        )
    if isinstance(plain, np.ndarray):
        _refuse_others(Array, how, kinds, "an array")
        axis, space = how.options.get("axis"), how.options.get("space")
        return Array.of_array(plain, how.categories, how.noise, axis=axis, space=space)
    if isinstance(plain, str | list):
        _refuse_others(Sequences, how, kinds, "strings")
        symbols: Any = how.text
        if symbols not in (None, "characters", "bytes", "smiles"):
            raise BadData(f"text = {symbols!r}: choose characters, bytes or smiles")
        if how.padded is not None and how.padded == isinstance(plain, str):
            raise BadData("padded: a list of strings is padded, and one long text is cut into windows: pass the other")
        return Sequences.of_texts(plain, how.length, symbols, how.tokenizer, how.noise or "masking")
    _refuse_others(Table, how, None, "a table")
    names, told = list(plain.column_names), tuple(how.condition)
    wishes = {name: wish for name, wish in (kinds or {}).items() if name not in told}
    table, x = Table.of_arrow(plain, wishes or None, keep=tuple(how.keep), told=told)
    if not told:
        return table, x
    return Conditional.of(table, x, table.companions_of(plain), how, kinds, "the table", names)


def _refuse_others(format: type[Format], how: Reading, kinds: dict[str, Any] | None, what: str) -> None:
    wrong = [option for option in how.given() if option not in format.options] + (["kinds"] if kinds else [])
    if wrong:
        raise BadData(f"{wrong[0]}: says nothing of {what}: leave it out")


def _expect(plain: Any, wanted: type | tuple[type, ...], what: str, format: Format) -> None:
    if not isinstance(plain, wanted):
        raise BadData(f"the model was trained on {what}, and these rows are a {type(plain).__name__}: pass {what} too")


def _others(format: Format) -> BadData:
    return BadData(f"data of the kind {format.kind!r} is read from files alone: pass a path")


@singledispatch
def encode(format: Format, plain: Any) -> tuple[Tree, list[str]]:
    raise _others(format)


@encode.register(Table)
@encode.register(Conditional)
def _(format: Any, plain: Any) -> tuple[Tree, list[str]]:
    _expect(plain, arrow_library().Table, "a table", format)
    with warnings.catch_warnings(record=True) as moved:
        warnings.simplefilter("always")
        x = format.encode_arrow(plain, unseen="nearest")
    return x, [str(one.message) for one in moved]


@encode.register
def _(format: Array, plain: Any) -> tuple[Tree, list[str]]:
    _expect(plain, np.ndarray, "an array", format)
    return format.encode_array(plain), []


@encode.register
def _(format: Sequences, plain: Any) -> tuple[Tree, list[str]]:
    _expect(plain, (list, str), "strings", format)
    return format.encode_texts(plain), []


@encode.register
def _(format: Images, plain: Any) -> tuple[Tree, list[str]]:
    return encode(format.array, plain)


@singledispatch
def decode(format: Format, x: Any) -> Any:
    return format.seen(x)


@decode.register
def _(format: Table, x: Any) -> Any:
    return format.arrow(x)


@decode.register
def _(format: Conditional, x: Any) -> Any:
    return format.seen(x) if format.whole is None else format.arrow(x)


@singledispatch
def gaps(format: Format, plain: Any, mark: str | None) -> tuple[Tree, Tree]:
    raise _others(format)


@gaps.register
def _(format: Conditional, plain: Any, mark: str | None) -> tuple[Tree, Tree]:
    _expect(plain, arrow_library().Table, "a table", format)
    return format.gaps_of_arrow(plain, mark)


@gaps.register
def _(format: Table, plain: Any, mark: str | None) -> tuple[Tree, Tree]:
    _expect(plain, arrow_library().Table, "a table", format)
    return format.gaps_of_arrow(plain, mark)


@gaps.register
def _(format: Array, plain: Any, mark: str | None) -> tuple[Tree, Tree]:
    _expect(plain, np.ndarray, "an array", format)
    return format.gaps_of_array(plain, mark)


@gaps.register
def _(format: Images, plain: Any, mark: str | None) -> tuple[Tree, Tree]:
    return gaps(format.array, plain, mark)


@gaps.register
def _(format: Sequences, plain: Any, mark: str | None) -> tuple[Tree, Tree]:
    _expect(plain, (list, str), "strings", format)
    return format.gaps_of_texts([plain] if isinstance(plain, str) else plain, mark)


@singledispatch
def filled(format: Format, x: Any, plain: Any, mark: str | None) -> Any:
    raise _others(format)


@filled.register
def _(format: Conditional, x: Any, plain: Any, mark: str | None) -> Any:
    return filled(format.data, x[DATA], plain, mark)


@filled.register
def _(format: Table, x: Any, plain: Any, mark: str | None) -> Any:
    return format.filled_arrow(x, plain, mark)


@filled.register
def _(format: Array, x: Any, plain: Any, mark: str | None) -> Any:
    return format.filled_array(x, plain, mark)


@filled.register
def _(format: Images, x: Any, plain: Any, mark: str | None) -> Any:
    return filled(format.array, x, plain, mark)


@filled.register
def _(format: Sequences, x: Any, plain: Any, mark: str | None) -> Any:
    return format.filled_texts(x, [plain] if isinstance(plain, str) else plain, mark)


@singledispatch
def exact(format: Format, plain: Any, given: dict[str, Any]) -> Any:
    return plain


@exact.register
def _(format: Table, plain: Any, given: dict[str, Any]) -> Any:
    """A number that is given stands in every row as it was given, as far as the column's type has it."""
    pa = arrow_library()
    for name, text in given.items():
        column = next((column for column in format.columns if column.name == name), None)
        cells = in_each_row(text, plain.num_rows)
        if column is None or column.scores is None or not {*cells}.isdisjoint(column.blanks):
            continue
        field = plain.schema.field(name)
        try:
            values = pa.array(cells, pa.string()).cast(field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):  # 39.0 for a whole number: what was drawn is 39
            continue
        plain = plain.set_column(plain.column_names.index(name), field, values)
    return plain


@exact.register
def _(format: Conditional, plain: Any, given: dict[str, Any]) -> Any:
    return exact(format.written_format, plain, given)


def texts(given: dict[Any, Any]) -> dict[str, str]:
    return {str(name): "" if value is None or str(value) in BLANK else str(value) for name, value in given.items()}
