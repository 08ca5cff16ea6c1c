"""Columns of latitudes and longitudes, told by people or by their names and numbers, two by two.

`lat` and `lon` belong together, `pickup_latitude` and `pickup_longitude` too: names that differ in that word alone; others
where people say `with:`, or in their order.  Unless people say otherwise they are places on the globe where all numbers are
in range and the points lie apart, 15 degrees and more around their middle: on a small patch two numbers say the same, and
finer than the noise on the globe does.  Numbers that may as well be radians stay numbers, and a note says so.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import pi
from typing import Any

import numpy as np

from unnoise.data.around import PERIODS
from unnoise.data.columns import Column, Texts
from unnoise.data.globe import DEGREES, KINDS, limits, reach
from unnoise.data.left_out import LeftOut
from unnoise.data.wishes import Wish

WORDS = {"lat": "latitude", "latitude": "latitude", "lon": "longitude", "lng": "longitude", "long": "longitude"}
WORDS["longitude"] = "longitude"
APART = 15 * pi / 180
Known = dict[str, Column | LeftOut]
Make = Callable[[str, dict[str, Any]], Column | LeftOut]  # of a column's name and a wish


def with_globe(found: Known, texts: Mapping[str, Texts], wishes: Mapping[str, Any], make: Make) -> Known:
    """The columns, those of a place as latitude and longitude with both names as `partners`."""
    said = {name: c.kind for name, c in found.items() if isinstance(c, Column) and c.kind in KINDS}
    pairs = _told(found, texts, wishes, said)
    for a, b in _named(list(found)):
        paired = {name for pair in pairs for name in pair}
        free = [name for name in (a, b) if name not in said]
        if paired & {a, b} or (said.get(a, KINDS[0]), said.get(b, KINDS[1])) != KINDS:
            continue
        if any(wishes[name] is not None or (len(free) == 2 and not _numeric(found[name])) for name in free):
            continue
        if len(free) == 2 and (why := _why_not(found, texts, a, b)) is not None:
            found = found | ({a: replace(found[a], note=why)} if why else {})
            continue
        pairs.append((a, b))
    paired = {name for pair in pairs for name in pair}
    left = [[name for name, kind in said.items() if kind == own and name not in paired] for own in KINDS]
    if len(left[0]) != len(left[1]):
        own = int(len(left[1]) > len(left[0]))
        raise texts[left[own][0]].error(
            f"is a {KINDS[own]} without a {KINDS[1 - own]}: name the column of its {KINDS[1 - own]} in a file for "
            f"--columns, {{kind: {KINDS[own]}, with: COLUMN}}, or use kind number"
        )
    for pair in [*pairs, *zip(*left, strict=True)]:
        found = found | _pair(found, texts, make, said, pair)
    return found


def _told(
    found: Known, texts: Mapping[str, Texts], wishes: Mapping[str, Any], said: dict[str, str]
) -> list[tuple[str, str]]:
    """(latitude, longitude) of which people say that one is with the other."""
    pairs: list[tuple[str, str]] = []
    for name, kind in said.items():
        others = Wish.of(texts[name], wishes[name], False).partners
        if not others:
            continue
        opposite = KINDS[kind == KINDS[0]]
        if len(others) > 1 or others[0] not in found:
            raise texts[name].error(f"is to be with {', '.join(others)}: name the one column of its {opposite}")
        (other,) = others
        if said.get(other, opposite) != opposite or not (other in said or wishes[other] is None):
            raise texts[name].error(f"is to be with {other!r}, which is of kind {found[other].kind}: make that {opposite}")
        pair = (name, other) if kind == KINDS[0] else (other, name)
        if any(pair != old and set(pair) & set(old) for old in pairs):
            raise texts[name].error(f"is to be with {other!r}, and one of them with another column too: a place has two")
        pairs += [] if pair in pairs else [pair]
    return pairs


def _pair(found: Known, texts: Mapping[str, Texts], make: Make, said: dict[str, str], pair: tuple[str, str]) -> Known:
    """Both columns of a place, with what is odd about it as a note."""
    periods = [getattr(getattr(found[name], "scores", None), "period", DEGREES) for name in pair if name in said]
    period = periods[0] if periods else DEGREES
    if any(other != period for other in periods):
        raise texts[pair[0]].error(f"and {pair[1]!r} are one in degrees and one in radians: give both the same period")
    unit = next(word for word, length in PERIODS.items() if length == period)
    columns: list[Column] = []
    for name, kind in zip(pair, KINDS, strict=True):
        column = found[name] if name in said else make(name, {"kind": kind, "period": unit})
        if not isinstance(column, Column):
            raise texts[name].error("is beside the model: give its kind in a file for --columns")
        columns.append(replace(column, partners=pair))
    up, around = (_radians(column, texts[column.name]) for column in columns)
    note = ""
    if any(_words(name)[i] == KINDS[not k] for k, name in enumerate(pair) for i in _words(name)):
        note = f"{pair[0]!r} is told to be a latitude and {pair[1]!r} a longitude: are the two swapped?"
    elif period == DEGREES and _small(up * 180 / pi, around * 180 / pi):
        note = "these degrees may be radians: if they are, say period: radians"
    elif reach(up, around) < APART / 15:
        note = "all places lie within a degree or two of each other: kind number tells them apart better"
    columns[0] = replace(columns[0], note=note or columns[0].note)
    return {column.name: column for column in columns}


def _words(name: str) -> dict[int, str]:
    """The words for latitude or longitude in a name, by their place."""
    words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)]
    return {i: WORDS[word] for i, word in enumerate(words) if word in WORDS}


def _named(names: list[str]) -> list[tuple[str, str]]:
    """(latitude, longitude): names that are the same but for that word."""
    stems: dict[str, dict[tuple[str, ...], str]] = {kind: {} for kind in KINDS}
    for name in names:
        words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)]
        for i, kind in _words(name).items():
            stems[kind].setdefault((*words[:i], "", *words[i + 1 :]), name)
    return [(name, stems[KINDS[1]][stem]) for stem, name in stems[KINDS[0]].items() if stem in stems[KINDS[1]]]


def _numeric(column: Column | LeftOut) -> bool:
    """Whether it is a column of numbers, and of no leaf with others."""
    return isinstance(column, Column) and column.scores is not None and not column.closed and not column.partners


def _radians(column: Column | LeftOut, values: Texts) -> np.ndarray:
    """Of every row, where it has a number, else the column's first."""
    assert isinstance(column, Column) and column.scale is not None
    values = values.without(column.blanks)
    numbers = column.scale.parse(values.distinct)
    return 2 * pi / getattr(column.scores, "period", DEGREES) * numbers[np.maximum(values.index, 0)]


def _why_not(found: Known, texts: Mapping[str, Texts], a: str, b: str) -> str | None:
    """Why two columns named as latitude and longitude are none: a note, or "" for none; None where they are."""
    up, around = (_radians(found[name], texts[name]) for name in (a, b))
    for name, kind, x in ((a, KINDS[0], up * 180 / pi), (b, KINDS[1], around * 180 / pi)):
        low, high = limits(kind)
        if not low <= x.min() <= x.max() <= high or np.ptp(x) > DEGREES:
            odd = x.min() if x.min() < low else x.max()
            said = f"{name!r} holds {odd:g} and a {kind} is from {low:g} to {high:g}"
            if name == a and np.abs(x).max() <= DEGREES and np.abs(around).max() <= pi / 2:
                said += ": are the two swapped?"
            return f"it and {b!r} are taken as numbers, not as places on the globe: {said}"
    if _small(up * 180 / pi, around * 180 / pi):
        return (
            f"it and {b!r} may be radians, or degrees of a small place, and are taken as numbers: for places on the globe "
            "say {kind: latitude, period: radians} and {kind: longitude, period: radians}"
        )
    return None if reach(up, around) >= APART else ""


def _small(up: np.ndarray, around: np.ndarray) -> bool:
    """Whether numbers could be radians as well: small, and no whole degrees."""
    return bool(np.abs(up).max() <= pi / 2 and np.abs(around).max() <= 2 * pi and (up != np.round(up)).any())
