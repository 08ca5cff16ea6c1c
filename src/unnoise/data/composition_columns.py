"""Columns that people say are the parts of a whole, `sand: {kind: composition, with: [silt, clay]}`.

To say it of one part is enough; parts of which nobody says with which others make one composition together.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.columns import Column, Texts
from unnoise.data.composition import KINDS, MOST_DIGITS, TOTALS, Shares, least, no_sum, wrong_sums
from unnoise.data.left_out import LeftOut
from unnoise.data.wishes import Wish

Known = dict[str, Column | LeftOut]
Make = Callable[[str, dict[str, Any]], Column | LeftOut]  # of a column's name and a wish


def with_compositions(found: Known, texts: Mapping[str, Texts], wishes: Mapping[str, Any], make: Make) -> Known:
    """The columns, those of a composition with the names of all its parts as `partners`, in the order of the file."""
    said = [name for name, column in found.items() if isinstance(column, Column) and column.kind in KINDS]
    groups: list[tuple[str, ...]] = []
    for name in said:
        others = Wish.of(texts[name], wishes[name], False).partners
        if others:
            group = _group(name, others, found, texts, wishes)
            groups += [] if group in groups else [group]
    left = tuple(name for name in said if not any(name in group for group in groups))
    if len(left) == 1:
        raise texts[left[0]].error(
            f"is a composition by itself: name its other parts, {{kind: {KINDS[0]}, with: [COLUMN, ...]}}, or use kind "
            f"number"
        )
    groups += [left] if left else []
    for i, group in enumerate(groups):
        if twice := [name for name in group for other in groups[:i] if name in other]:
            raise texts[twice[0]].error("is in two compositions, and a share is of one whole: leave it out of one")
        found = found | _composition(group, found, texts, make)
    return found


def _group(
    name: str, others: tuple[str, ...], found: Known, texts: Mapping[str, Texts], wishes: Mapping[str, Any]
) -> tuple[str, ...]:
    for other in others:
        if other not in found or other == name:
            what = "itself" if other == name else f"{other!r}, which is no column of the model"
            raise texts[name].error(f"is to be a composition with {what}: name its other parts")
        kind = found[other].kind
        if wishes[other] is not None and kind not in KINDS:
            raise texts[name].error(f"is to be a composition with {other!r}, which is of kind {kind}: make that {KINDS[0]}")
    return tuple(each for each in found if each in (name, *others))


def _composition(names: tuple[str, ...], found: Known, texts: Mapping[str, Texts], make: Make) -> Known:
    columns: list[Column] = []
    for name in names:
        column = found[name]
        column = column if column.kind in KINDS else make(name, {"kind": KINDS[0]})
        if not isinstance(column, Column):
            raise texts[name].error("is a part of a composition without a value: leave it out of it")
        columns.append(column)
    x, known = (np.stack(part, 1) for part in zip(*(_numbers(c, texts[c.name]) for c in columns), strict=True))
    written = max(getattr(column.scores, "digits", 0) for column in columns)
    whole = known.all(1)
    if not whole.any():
        raise texts[names[0]].error(f"and {', '.join(names[1:])} have no row without a gap: leave the composition out")
    median = float(np.median(x[whole].sum(1)))
    total = min(TOTALS, key=lambda each: abs(np.log(max(median, 1e-300) / each)))
    digits = min(written, MOST_DIGITS if total == 1 else MOST_DIGITS - 2)
    if (wrong := wrong_sums(x, known, total, digits)).size:
        raise BadData(f"{texts[names[0]].where}: {no_sum(x, known, int(wrong[0]), list(names), TOTALS)}")
    zeros = int(((x == 0) & known).any(1).sum())
    note = f"its shares sum to {total:g}, with {', '.join(names[1:])}" if total != 1 else ""
    if zeros:
        little = total * least(10.0**-digits / total, len(names))
        note += "; " if note else ""
        note += f"{zeros} of {len(x)} rows have zeros, so {little:g} of every part is mixed into all rows, and taken out of "
        note += "samples"
    done: Known = {}
    for i, column in enumerate(columns):
        assert isinstance(column.scores, Shares)
        scale = replace(column.scale, most=digits, least=min(column.scale.least, digits))  # type: ignore[union-attr,type-var]
        scores = replace(column.scores, total=total, digits=digits)
        done[column.name] = replace(column, scale=scale, scores=scores, partners=names, note=note if i == 0 else "")
    return done


def _numbers(column: Column, values: Texts) -> tuple[np.ndarray, np.ndarray]:
    """Of every row, and whether it has one."""
    values = values.without(column.blanks)
    assert column.scale is not None
    numbers = np.append(column.scale.parse(values.distinct), 0.0)
    return numbers[values.index], values.index >= 0
