"""A table with gaps: what is known of its rows, and the table with its gaps filled."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from unnoise.data.base import BadData
from unnoise.data.columns import MISSING, SEED, Texts
from unnoise.data.files import write_bytes
from unnoise.data.table_cells import CATEGORIES, Cells, as_arrow, decode
from unnoise.data.table_files import Written, any_texts, texts_of
from unnoise.data.table_kinds import TYPED, table_suffix
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Bool, Tree
from unnoise.tree import batch_size

if TYPE_CHECKING:
    from unnoise.data.table import Table


def given(format: "Table", assignments: dict[str, str]) -> dict[str, tuple[Tensor, Tensor]]:
    """Fixed columns as {leaf: (values, which of its coordinates are fixed)}: `given({"age": "39", "sex": "Female"})`."""
    known = {column.name: column for column in format.columns}
    place = {column.name: i for i, column in enumerate(format.coordinates)}
    leaf_of = {column.name: leaf for leaf, column in format.leaves.items()}
    values, fixed = torch.zeros(len(place), dtype=torch.int64), torch.zeros(len(place), dtype=torch.bool)
    result: dict[str, tuple[Tensor, Tensor]] = {}
    parts: dict[str, tuple[float, bool]] = {}  # of columns of joint leaves: a score, and whether it is one
    for name, text in assignments.items():
        if beside := [column.what for column in format.left_out if column.name == name]:
            raise BadData(f"given {name}=...: not in the model ({beside[0]}): train with --keep {name}")
        if name not in known:
            raise BadData(f"given {name}={text}: there is no such column: use one of {list(known)}")
        column = known[name]
        (state,), score = column.encode(Texts(name, [str(text)], np.zeros(1, dtype=np.int64), "given", True), place=0.5)
        if name in place:
            values[place[name]], fixed[place[name]] = int(state), True
        if score is None or column.scores is None:
            continue
        if state == column.size - 1:  # else the score is a fill, as good as any
            number = column.scale.parse([str(text)])[0] if column.scale is not None else np.nan
            if not column.closed and not column.scores.values[0] <= number <= column.scores.values[-1]:
                raise BadData(f"given {name}={text}: outside the range of this column: use a value in {column.choices}")
            if column.arrow() == "int64" and number != round(number):
                raise BadData(f"given {name}={text}: this column holds whole numbers: round it")
        if column.partners:
            parts[name] = float(score[0]), bool(state == column.size - 1)
        else:
            result[leaf_of[name]] = torch.tensor(score, dtype=torch.float32), torch.ones(1, dtype=torch.bool)
    result |= _joint(format, parts)
    return {CATEGORIES: (values, fixed), **result} if fixed.any() else result


def _joint(format: "Table", parts: dict[str, tuple[float, bool]]) -> dict[str, tuple[Tensor, Tensor]]:
    """Points of leaves of several columns that are known: all of those are."""
    result = {}
    for leaf, joint in format.joints.items():
        there, gone = ([name for name in joint.names if (name in parts) == yes] for yes in (True, False))
        if there and gone:
            what = f"given {', '.join(there)} without {', '.join(gone)}"
            raise BadData(f"{what}: {joint.noun}, so give all of {joint.names} or none of them")
        if there:
            scores, known = (np.array([values]) for values in zip(*(parts[name] for name in joint.names), strict=True))
            try:
                point = joint.encode(scores, known, NoiseSource(SEED, 1).at(leaf))[0]
            except BadData as error:
                raise BadData(f"given: {error}") from error
            result[leaf] = torch.tensor(point, dtype=torch.float32), torch.ones(len(point), dtype=torch.bool)
    return result


def gaps_of_arrow(format: "Table", table: Any, mark: str | None = None, where: str = "the table") -> tuple[Tree, Tree]:
    """The states of a pyarrow.Table, and which of their coordinates are known."""
    columns, rows = _known(format, table, where, mark), table.num_rows
    x: dict[str, Any] = {}
    if format.coordinates:
        x[CATEGORIES] = torch.zeros(rows, len(format.coordinates), dtype=torch.int64)
    x |= {leaf: torch.zeros(rows, 1) for leaf in format.leaves}
    x |= {leaf: torch.tensor(joint.anywhere).float().repeat(rows, 1) for leaf, joint in format.joints.items()}
    fixed: dict[str, Any] = {name: torch.zeros_like(leaf, dtype=torch.bool) for name, leaf in x.items()}
    for i in range(rows):
        known = {name: cell for name, cells in columns.items() if (cell := cells[i]) is not None}
        try:
            found = given(format, known)
        except BadData as error:
            raise BadData(f"{where}: row {i + 1}: {str(error).removeprefix('given').lstrip(': ')}") from error
        for leaf, (values, which) in found.items():
            x[leaf][i], fixed[leaf][i] = torch.where(which, values, x[leaf][i]), which
    return x, fixed


def _known(format: "Table", table: Any, where: Path | str, mark: str | None) -> Cells:
    """The texts of a file's columns, None where there is a gap."""
    own = {column.name: column for column in format.columns}
    columns = {}
    for name in table.column_names:
        if name not in format.beside:
            known = name in own
            texts = format.column_texts(table, own[name], str(where)) if known else texts_of(table[name], name, str(where))
            blanks = own[name].blanks if known else MISSING
            texts = texts.without((*blanks, *([] if mark is None else [mark])))
            columns[name] = np.array([*texts.distinct, None], dtype=object)[texts.index].tolist()
    return columns


def blank(format: "Table", x: AnyState, fixed: dict[str, Tensor]) -> Bool[Tensor, "rows columns"]:
    """Cells that were not known and are missing still: drawn as such."""
    known = [len(column.texts) if column.missing is not None else -1 for column in format.coordinates]
    if not known:
        return torch.zeros(batch_size(x), 0, dtype=torch.bool)
    return ~fixed[CATEGORIES] & (x[CATEGORIES] == torch.tensor(known))


def count_gaps(format: "Table", fixed: dict[str, Tensor]) -> int:
    """Cells: a column may have a coordinate in two leaves."""
    filled: dict[str, Any] = {}
    for leaf, known in fixed.items():
        own = known.reshape(len(known), -1)
        each = own.unbind(1) if leaf == CATEGORIES else [own.all(1)] * len(_columns_of(format, leaf))
        for name, there in zip(_columns_of(format, leaf), each, strict=True):
            filled[name] = ~there | filled.get(name, False)
    return sum(int(cells.sum()) for cells in filled.values())


def _columns_of(format: "Table", leaf: str) -> list[str]:
    """The names of the columns that a leaf stands for."""
    if leaf == CATEGORIES:
        return [column.name for column in format.coordinates]
    return [format.leaves[leaf].name] if leaf in format.leaves else format.joints[leaf].names


def gap_parts(format: "Table", labels: dict[str, str], fixed: dict[str, Tensor]) -> dict[str, str]:
    """By columns."""
    parts: dict[str, str] = {}
    for leaf, label in labels.items():
        if leaf != CATEGORIES:
            parts |= dict.fromkeys(_columns_of(format, leaf), label)
        else:
            known = fixed[leaf].all(0).tolist()
            parts |= {c.name: label for c, all_known in zip(format.coordinates, known, strict=True) if not all_known}
    return parts


def write_filled(format: "Table", x: AnyState, source: Path, path: Path, mark: str | None = None) -> None:
    """The file `source` with its gaps filled, and with the columns that it left out at its end."""
    table = format.arrow_table(source)
    if table_suffix(path) in TYPED:
        filled = filled_arrow(format, x, table, mark, str(source))
        write_bytes(path, TYPED[table_suffix(path)].write(filled, format.form))
        return
    cells, known = decode(format, x), _known(format, table, source, mark)
    if table_suffix(source) in TYPED:
        _keep_all(format, cells, known)
    blanks = {column.name: column.missing or "" for column in format.columns}
    texts = {name: [blanks[name] if text is None else text for text in drawn] for name, drawn in cells.items()}
    written = _written(format, table, texts, source, path)
    for name, drawn in texts.items():
        place = table.column_names.index(name) if name in known else len(written.lines[0][0])
        gaps = [cell is None for cell in known[name]] if name in known else [True] * len(drawn)
        written.put(place, name, drawn, gaps, name not in known)
    write_bytes(path, written.raw())


def filled_arrow(format: "Table", x: AnyState, table: Any, mark: str | None = None, where: str = "the table") -> Any:
    """A pyarrow.Table with its gaps filled, and with the columns that it left out at its end."""
    cells, known = decode(format, x), _known(format, table, where, mark)
    _keep_all(format, cells, known)
    filled = as_arrow(format, cells)
    for other in table.schema:
        if other.name not in cells:
            filled = filled.append_column(other, table[other.name])
    return filled.select([*table.column_names, *[name for name in cells if name not in known]])


def _written(format: "Table", table: Any, texts: dict[str, list[str]], source: Path, path: Path) -> Written:
    """The columns of `source` as they are to stand in the text file `path`, gaps and all."""
    if table_suffix(source) in TYPED:
        columns = {name: texts[name] if name in texts else any_texts(table[name]) for name in table.column_names}
        written = Written.anew(columns, format.separator, format.encoding, format.header)
    else:
        columns = {name: any_texts(table[name]) for name in table.column_names}
        written = Written.read(source, format.encoding, columns, format.text_table(source).header)
    own = format.separator if table_suffix(source) == ".tsv" else written.separator
    return written.separated("\t" if table_suffix(path) == ".tsv" else own)


def _keep_all(format: "Table", cells: Cells, known: Cells) -> None:
    for name in [name for name in cells if name in known]:
        keep(format, cells, name, known[name])


def keep(format: "Table", cells: Cells, name: str, known: list[str | None]) -> None:
    """Numbers as they were known; None and blanks leave what was drawn, and categories are what they were anyway."""
    column = next(column for column in format.columns if column.name == name)
    if column.scores is not None:
        blank = {None, "", *column.blanks}
        cells[name] = [old if text in blank else text for old, text in zip(cells[name], known, strict=True)]


def in_each_row(value: Any, rows: int) -> list[str | None]:
    """What is known of a column, one text for all rows or a list of them, row by row."""
    return list(value) if isinstance(value, list) else [str(value)] * rows
