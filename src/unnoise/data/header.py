"""Whether the first row of a text table holds the names of its columns, or is a row like the others."""

import numpy as np

from unnoise.data.text_scales import is_marker, plainest

ROWS = 1000  # that are looked at


def column_names(count: int) -> list[str]:
    return [f"column_{i + 1}" for i in range(count)]


def has_header(first: list[str], columns: list[list[str]]) -> bool:
    """`columns`: the texts below the first row.  There is none where no cell of it is a name and some are plainly values:
    numbers or dates above such, or all of them words that recur below."""
    if first == column_names(len(first)) or _counted(first) or not any(columns):
        return True
    values = 0
    for cell, texts in zip(first, columns, strict=True):
        known = [text for text in dict.fromkeys(texts[:ROWS]) if text and not is_marker(text)]
        scale = plainest(known) if known else None
        if scale is None and cell not in known and 2 * len(known) <= len(texts[:ROWS]):
            return True  # a name above categories
        if scale is None or not cell:
            continue
        if np.isnan(scale.parse([cell])[0]):
            return True  # a name above numbers
        values += 1
    words = [cell in texts for cell, texts in zip(first, columns, strict=True)]
    if values == len(first):
        return _years(first)
    return not (values and not _years(first)) and not (all(words) and len(words) > 1)


def _counted(first: list[str]) -> bool:
    """0, 1, 2, ...: names that programs give to columns without one."""
    return len(first) > 2 and first in ([str(i) for i in range(len(first))], [str(i + 1) for i in range(len(first))])


def _years(first: list[str]) -> bool:
    """All numbers of the row are years that rise: a table with a column for each."""
    whole = [int(cell) for cell in first if cell.isdigit()]
    numbers = [cell for cell in first if any(one.isdigit() for one in cell)]
    return len(numbers) == len(whole) > 1 and whole == sorted(set(whole)) and whole[0] >= 1800 and whole[-1] <= 2200
