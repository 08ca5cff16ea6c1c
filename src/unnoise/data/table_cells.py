"""The states of a table as cells, and cells as a typed table, a frame or a file."""

import csv
import io
import zlib
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from unnoise.data.columns import Column
from unnoise.data.files import write_bytes
from unnoise.data.left_out import LeftOut
from unnoise.data.table_files import arrow_library
from unnoise.data.table_kinds import TYPED, table_suffix
from unnoise.data.typed_columns import typed, unpacked_schema
from unnoise.shapes import AnyState
from unnoise.tree import batch_size

if TYPE_CHECKING:
    from unnoise.data.table import Table

CATEGORIES = "categories"  # the leaf of all labels
Cells = dict[str, list[str | None]]  # by column; None is missing


def decode(format: "Table", x: AnyState, names: Collection[str] | None = None) -> Cells:
    """The columns of the model, or those of these names."""
    format.space.check(x)
    where = {column.name: i for i, column in enumerate(format.coordinates)}
    scores = {column.name: x[leaf][:, 0].double().cpu().numpy() for leaf, column in format.leaves.items()}
    for leaf, joint in format.joints.items():
        scores |= zip(joint.names, joint.decode(x[leaf].double().cpu().numpy()).T, strict=True)
    rows = len(next(iter(x.values())))
    result = {}
    for column in (column for column in format.columns if names is None or column.name in names):
        only = np.full(rows, column.size - 1)  # a continuous column with no other state
        state = x[CATEGORIES][:, where[column.name]].cpu().numpy() if column.name in where else only
        result[column.name] = column.decode(state, scores.get(column.name))
    return result


def cells_of(format: "Table", x: AnyState) -> Cells:
    """All columns in their order, those beside the model made anew or empty: a function of the first row and the number
    of rows, so that more samples of a seed begin like fewer of them."""
    cells = decode(format, x)
    first = b"".join(x[leaf][:1].contiguous().cpu().numpy().tobytes() for leaf in sorted(x))
    for column in format.left_out:
        seed = zlib.crc32(column.name.encode(), zlib.crc32(first))
        cells[column.name] = column.cells(batch_size(x), seed)
    return {column.name: cells[column.name] for column in format.in_order}


def as_arrow(format: "Table", cells: Cells) -> Any:
    """A pyarrow.Table with the types of the file."""
    pa = arrow_library()
    schema, known = unpacked_schema(format.schema), {column.name: column for column in format.columns}
    fields = [schema.field(name) for name in cells]
    arrays = [typed(cells[field.name], field.type, known.get(field.name)) for field in fields]
    return pa.Table.from_arrays(arrays, schema=pa.schema(fields, metadata=schema.metadata))


def as_frame(format: "Table", table: Any) -> Any:
    """A pyarrow.Table as a pandas.DataFrame; whole numbers and booleans that can be missing get pandas' nullable types."""
    import pandas as pd

    nullable = {"int64": pd.Int64Dtype(), "int32": pd.Int32Dtype(), "int16": pd.Int16Dtype(), "int8": pd.Int8Dtype()}
    nullable |= {f"u{name}": getattr(pd, f"UI{str(kind)[1:]}Dtype")() for name, kind in nullable.items()}
    nullable["bool"] = pd.BooleanDtype()
    series = {}
    for column, values in zip(format.in_order, table.columns, strict=True):
        gaps = isinstance(column, Column) and column.missing is not None
        mapper = (lambda kind: nullable.get(str(kind))) if gaps or values.null_count else None
        series[column.name] = values.to_pandas(types_mapper=mapper, date_as_object=False)
    return pd.DataFrame(series)


def write_cells(format: "Table", cells: Cells, path: Path) -> None:
    """In the form that the name asks for, a text as it was read."""
    suffix = table_suffix(path)
    if suffix in TYPED:
        raw = TYPED[suffix].write(as_arrow(format, cells), format.form)
    else:
        blanks = [column.blank if isinstance(column, LeftOut) else column.missing or "" for column in format.in_order]
        filled = [
            [blank if text is None else text for text in column]
            for column, blank in zip(cells.values(), blanks, strict=True)
        ]
        stream = io.StringIO(newline="")
        writer = csv.writer(stream, delimiter="\t" if suffix == ".tsv" else format.separator, lineterminator="\n")
        if format.header:
            writer.writerow(cells)
        writer.writerows(zip(*filled, strict=True))
        raw = stream.getvalue().encode(format.encoding)
    write_bytes(path, raw)
