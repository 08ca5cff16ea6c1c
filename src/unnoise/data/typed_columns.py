"""Texts as typed arrow columns, and the types that a table has."""

import base64
import json
import re
from decimal import Decimal
from importlib import import_module
from typing import Any

from unnoise.data.base import BadData
from unnoise.data.columns import Column


def arrow_library(*parts: str) -> Any:
    """pyarrow, with these parts of it loaded; unless named, all that tables are read and computed with."""
    try:
        for part in parts or ("compute", "csv", "parquet"):
            import_module(f"pyarrow.{part}")
        return import_module("pyarrow")
    except ImportError as error:
        raise ImportError("tables need pyarrow: pip install 'unnoise[all]'") from error


def arrow_type(name: str) -> Any:
    """An arrow type by the name a column gives it."""
    pa = arrow_library()
    match = re.fullmatch(r"timestamp\[(\w+)(?:, (\w+))?\]", name)
    return pa.timestamp(match[1], match[2]) if match else pa.type_for_alias(name)


def packed_schema(types: dict[str, Any], source: Any) -> str:
    """An arrow schema in base64, with what the schema of the source says of pandas types."""
    pa = arrow_library()
    schema = pa.schema(list(types.items()), metadata=_pandas_types(source, list(types)))
    return base64.b64encode(schema.serialize().to_pybytes()).decode()


def unpacked_schema(packed: str) -> Any:
    pa = arrow_library("ipc")  # samples are written as text by the names alone
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(packed)))


def is_text(kind: Any) -> bool:
    """Whether cells of this type are texts as people wrote them."""
    types = arrow_library().types
    kind = kind.value_type if types.is_dictionary(kind) else kind
    return bool(types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind))


def typed(texts: list[str | None], kind: Any, column: Column | None) -> Any:
    """Cells as an arrow column; `column`: what is known of it, where it is in the model."""
    pa = arrow_library()
    listed = column is not None and column.scores is None
    values = kind.value_type if pa.types.is_dictionary(kind) and not listed else kind
    if column is not None and column.scale is not None and not is_text(values) and not pa.types.is_dictionary(values):
        texts = _plain(texts, column)
    if pa.types.is_integer(values):
        signed = not pa.types.is_unsigned_integer(values)
        if column is None:
            _check_room(texts, values, signed)
        texts = [text and _whole(text, values.bit_width, signed) for text in texts]
    elif pa.types.is_date(values):
        texts = [text and text[:10] for text in texts]
    words = pa.array(texts, pa.string())
    if pa.types.is_dictionary(kind) and column is not None and listed:
        known = pa.array(column.texts, pa.string())
        codes = pa.compute.index_in(words, known).cast(kind.index_type)
        words = pa.DictionaryArray.from_arrays(codes, known.cast(kind.value_type), ordered=kind.ordered)
    elif pa.types.is_dictionary(kind):
        words = words.cast(kind.value_type).dictionary_encode()
    return words.cast(kind)


def _plain(texts: list[str | None], column: Column) -> list[str | None]:
    """Numbers and dates as arrow reads them."""
    assert column.scale is not None
    known = iter(column.scale.plain([text for text in texts if text is not None]))
    return [None if text is None else next(known) for text in texts]


def _whole(text: str, bits: int, signed: bool) -> str:
    """A whole number as arrow reads it, 39 where it is written 39.0, within the range of its type."""
    number = Decimal(text.strip())
    least, most = -(2 ** (bits - 1)) if signed else 0, 2 ** (bits - signed) - 1
    return str(min(max(int(number), least), most)) if number == int(number) else text


def _check_room(texts: list[str | None], kind: Any, signed: bool) -> None:
    """That new identifiers fit the type of their column: they would not be unique otherwise."""
    largest, most = max((int(text) for text in texts if text), default=0), 2 ** (kind.bit_width - signed) - 1
    if largest > most:
        raise BadData(
            f"{len(texts)} new identifiers up to {largest} do not fit a column of type {kind}, which ends at {most}: leave "
            "the column out (kind drop), give it a wider type, or draw fewer rows"
        )


def _pandas_types(schema: Any, names: list[str]) -> dict[str, str] | None:
    """What a Parquet file says of the pandas types of these columns, without the index of its rows."""
    if b"pandas" not in (schema.metadata or {}):
        return None
    said = json.loads(schema.metadata[b"pandas"])
    columns = [column for column in said["columns"] if column["name"] in names]
    return {"pandas": json.dumps({**said, "columns": columns, "index_columns": []})}
