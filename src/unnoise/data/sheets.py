"""Spreadsheets (.xlsx) as typed tables: the first sheet, or one by name (`--option sheet=NAME`).

The first row that is not blank names the columns; types are those of the cells.  Of a formula its last value counts.  What
is written is a plain sheet, of values alone.
"""

import io
import zipfile
from collections.abc import Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from unnoise.data.base import BadData
from unnoise.data.files import read_bytes
from unnoise.data.python_columns import typed_column
from unnoise.data.table_files import arrow_library, check_names
from unnoise.data.table_kinds import Form, register_table_file


def _library() -> Any:
    try:
        import openpyxl
    except ImportError as error:
        raise BadData("spreadsheets need the package openpyxl: pip install 'unnoise[all]'") from error
    return openpyxl


def read_sheet(path: Path, options: Mapping[str, Any]) -> tuple[Any, Form]:
    pa = arrow_library()
    rows = _rows(path, options.get("sheet"))
    start = next((i for i, row in enumerate(rows) if not _blank(row)), None)
    if start is None:
        raise BadData(f"{path}: the sheet is empty: it needs a row of names and rows of values")
    header = rows[start]
    wide = max(len(row) - next((i for i, cell in enumerate(reversed(row)) if cell is not None), len(row)) for row in rows)
    body = [(*row, *[None] * (wide - len(row))) for row in rows[start + 1 :]]
    while body and _blank(body[-1]):
        body.pop()
    places = [i for i, row in enumerate(body) if wide == 1 or not _blank(row)]
    if not places:
        raise BadData(f"{path}: has a header but no rows: add rows")
    names = [_name(header[i] if i < len(header) else None, i, path) for i in range(wide)]
    check_names(names, path)
    if all(isinstance(cell, int | float | datetime) for cell in header[:wide]):
        raise BadData(f"{path}: the first row holds numbers, not column names: add a header")
    columns = {
        name: typed_column([body[i][k] for i in places], name, str(path), lambda i: f"row {start + 2 + places[i]}")
        for k, name in enumerate(names)
    }
    form = {"suffix": ".xlsx", **({"sheet": options["sheet"]} if options.get("sheet") else {})}
    return pa.table(columns), form


def _rows(path: Path, sheet: str | None) -> list[tuple[Any, ...]]:
    openpyxl = _library()
    data = read_bytes(path)
    try:
        book = openpyxl.load_workbook(io.BytesIO(data), read_only=True, data_only=True)
        if sheet is not None and sheet not in book.sheetnames:
            raise BadData(f"{path}: there is no sheet {sheet!r}: choose from {', '.join(book.sheetnames)}")
        found = book[sheet] if sheet is not None else book.worksheets[0]
        return list(found.iter_rows(values_only=True))
    except (zipfile.BadZipFile, KeyError, ValueError, OSError, EOFError, IndexError, SyntaxError) as error:
        if isinstance(error, BadData):
            raise
        raise BadData(f"{path}: is no spreadsheet that can be read ({error}): save it as .xlsx again") from error


def _blank(row: tuple[Any, ...]) -> bool:
    return all(cell is None for cell in row)


def _name(cell: Any, column: int, path: Path) -> str:
    if cell is None or not str(cell).strip():
        letter = _library().utils.get_column_letter(column + 1)
        raise BadData(f"{path}: column {letter} has values but no name: name it in the first row, or delete it")
    return str(cell)


def write_sheet(table: Any, form: Form) -> bytes:
    book = _library().Workbook(write_only=True)
    sheet = book.create_sheet(form.get("sheet", "Sheet1"))
    sheet.append(table.column_names)
    for row in zip(*(column.to_pylist() for column in table.columns), strict=True):
        sheet.append([_cell(value) for value in row])
    out = io.BytesIO()
    book.save(out)
    return out.getvalue()


def _cell(value: Any) -> Any:
    """What a cell can hold: no time zones, no lists."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value.isoformat() if isinstance(value, datetime) and value.tzinfo is not None else value


register_table_file(".xlsx", read_sheet, write_sheet)
