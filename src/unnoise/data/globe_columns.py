"""Columns of latitudes and longitudes, told by their names and numbers or by people, two by two.

`lat` and `lon` belong together, `pickup_latitude` and `pickup_longitude` too: names that differ in that word alone.  Unless
people say otherwise they are places on the globe where all numbers are in range and the points lie apart, 15 degrees and
more around their middle: on a small patch two numbers say the same, and finer than the noise on the globe does.  Numbers
that may as well be radians stay numbers, and a note says so.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from math import pi
from typing import Any

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.columns import Column, Texts
from unnoise.data.globe import DEGREES, KINDS, limits, reach
from unnoise.data.left_out import LeftOut

WORDS = {"lat": "latitude", "latitude": "latitude", "lon": "longitude", "lng": "longitude", "long": "longitude"}
WORDS["longitude"] = "longitude"
APART = 15 * pi / 180
Known = dict[str, Column | LeftOut]
Make = Callable[[str, dict[str, Any]], Column | LeftOut]  # of a column's name and a wish


def with_places(found: Known, texts: Mapping[str, Texts], wishes: Mapping[str, Any], make: Make) -> Known:
    """The columns, those of a place as latitude and longitude with each other's name."""
    said = {name: c.kind for name, c in found.items() if isinstance(c, Column) and c.kind in KINDS}
    named = [(a, b) for a, b in _named(list(found)) if _may_be(found[a], said) and _may_be(found[b], said)]
    pairs = []
    for a, b in named:
        free = [name for name in (a, b) if name not in said]
        if (said.get(a, KINDS[0]), said.get(b, KINDS[1])) != KINDS or any(wishes[name] is not None for name in free):
            continue
        if len(free) == 2 and (why := _why_not(found, texts, a, b)) is not None:
            found = found | ({a: replace(found[a], note=why)} if why else {})
            continue
        found = found | {name: make(name, {"kind": KINDS[name == b]}) for name in free}
        pairs.append((a, b))
    paired = {name for pair in pairs for name in pair}
    left = [[name for name, kind in said.items() if kind == own and name not in paired] for own in KINDS]
    if len(left[0]) != len(left[1]):
        own = int(len(left[1]) > len(left[0]))
        raise texts[left[own][0]].error(
            f"is a {KINDS[own]} without a {KINDS[1 - own]}: name the column of its {KINDS[1 - own]} in a file for "
            f"--columns, {{kind: {KINDS[1 - own]}}}, or use kind number"
        )
    for a, b in [*pairs, *zip(*left, strict=True)]:
        found = found | {a: _of(found[a], b, texts), b: _of(found[b], a, texts)}
        narrow = reach(*(_numbers(found[name], texts[name]) for name in (a, b))) < APART / 15
        note = "all places lie within a degree or two of each other: kind number tells them apart better"
        found = found | ({a: replace(found[a], note=note)} if narrow else {})
    return found


def _named(names: list[str]) -> list[tuple[str, str]]:
    """(latitude, longitude): names that are the same but for that word."""
    stems: dict[str, dict[tuple[str, ...], str]] = {kind: {} for kind in KINDS}
    for name in names:
        words = [word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+|\d+", name)]
        for i, word in enumerate(words):
            if word in WORDS:
                stems[WORDS[word]].setdefault((*words[:i], "", *words[i + 1 :]), name)
    return [(name, stems[KINDS[1]][stem]) for stem, name in stems[KINDS[0]].items() if stem in stems[KINDS[1]]]


def _may_be(column: Column | LeftOut, said: dict[str, str]) -> bool:
    """Whether it is one, or a column of numbers."""
    return isinstance(column, Column) and (column.name in said or (column.scores is not None and not column.closed))


def _numbers(column: Column | LeftOut, values: Texts) -> np.ndarray:
    """Radians of its distinct numbers, a number for every row that has one, else the first."""
    assert isinstance(column, Column) and column.scale is not None
    values = values.without(column.blanks)
    numbers = column.scale.parse(values.distinct)
    return 2 * pi / getattr(column.scores, "period", DEGREES) * numbers[np.maximum(values.index, 0)]


def _why_not(found: Known, texts: Mapping[str, Texts], a: str, b: str) -> str | None:
    """Why two columns named as latitude and longitude are none: a note, or "" for none; None where they are."""
    latitude, longitude = (_numbers(found[name], texts[name]) for name in (a, b))
    for name, kind, x in ((a, KINDS[0], latitude), (b, KINDS[1], longitude)):
        low, high = limits(kind)
        degrees = x * 180 / pi
        if not low <= degrees.min() <= degrees.max() <= high or np.ptp(degrees) > DEGREES:
            odd = degrees.min() if degrees.min() < low else degrees.max()
            said = f"{name!r} holds {odd:g} and a {kind} is from {low:g} to {high:g}"
            return f"it and {b!r} are taken as numbers, not as places on the globe: {said}"
    up, around = latitude * 180 / pi, longitude * 180 / pi
    if np.abs(up).max() <= pi / 2 and np.abs(around).max() <= 2 * pi and bool((up != np.round(up)).any()):
        return (
            f"it and {b!r} may be radians, or degrees of a small place, and are taken as numbers: for places on the globe "
            "say {kind: latitude, period: radians} and {kind: longitude, period: radians}"
        )
    return None if reach(latitude, longitude) >= APART else ""


def _of(column: Column | LeftOut, partner: str, texts: Mapping[str, Texts]) -> Column:
    if not isinstance(column, Column):
        raise BadData(f"{texts[column.name].where}: column {column.name!r} is beside the model: give its kind")
    return replace(column, partner=partner)
