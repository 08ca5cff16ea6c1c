"""How the texts of a column are numbers or dates, if they are: the plainest scale that all fit but missing values."""

from collections.abc import Callable

import numpy as np

from unnoise.data.any_scale import Scale
from unnoise.data.base import BadData
from unnoise.data.clock_times import ClockTimes
from unnoise.data.columns import Texts
from unnoise.data.private import NAMES
from unnoise.data.scales import DATE, NUMBER, Dates, Decimals, LongIntegers
from unnoise.data.wishes import Evidence, Wish
from unnoise.data.written_dates import WrittenDates
from unnoise.data.written_numbers import WrittenNumbers

SOME = 200  # texts that are looked at before all are
ODD = 0.05  # share of rows that may hold no number, or no date, in a column of them: they are missing values
REMEDY = "drop it or name its kind in a file for --columns"
_MARKERS = """n/a|na|n.a.|n.a|n/d|nd|#n/a|#na|#null!|#div/0!|#value!|null|none|nil|nan|<na>|(null)|(none)
-|--|---|–|—|?|??|.|..|*|missing|unknown|unk|undefined|not available|not applicable|k.a.|keine angabe"""
MARKERS = frozenset(_MARKERS.replace("\n", "|").split("|"))  # beside numbers or dates these are missing values


def is_marker(text: str) -> bool:
    return text.strip().lower() in MARKERS


def scale_of(values: Texts, wish: Wish, evidence: Evidence) -> tuple[Texts, Scale | None, tuple[str, ...], str]:
    """How the texts are numbers, if they are, an error where they were said to be; those that are missing values; a note."""
    if wish.kind in ("category", "boolean"):
        return values, None, (), ""
    scale = _understood(values.distinct, wish.kind, evidence)
    markers = tuple(text for text in values.distinct if is_marker(text))
    if scale is None and markers:
        rest = values.without(markers)
        if len(rest.distinct) > 1:
            scale = _understood(rest.distinct, wish.kind, evidence)
            values = rest if scale is not None else values
    if scale is not None:
        return values, scale, markers, ""
    if wish.kind is not None:
        raise _no_scale(values, wish.kind)
    return (values, None, (), "") if wish.keep else _without_odd(values, markers, evidence)


def _understood(texts: list[str], kind: str | None, evidence: Evidence) -> Scale | None:
    """The scale of all these texts: the plainest that they fit."""
    if len(texts) > 10 * SOME and _understood(texts[:: len(texts) // SOME], kind, evidence) is None:
        return None
    codes = kind is not None
    makers: list[Callable[[], Scale | None]] = []
    if kind in (None, "date", "ordinal"):
        makers += [lambda: Dates.understand(texts), lambda: WrittenDates.understand(texts, evidence.day_first)]
    if kind == "angle":
        makers.append(lambda: ClockTimes.understand(texts))
    if kind != "date":
        plain: list[Callable[[], Scale | None]] = [
            lambda: LongIntegers.understand(texts, codes),
            lambda: Decimals.understand(texts, codes),
        ]
        written: list[Callable[[], Scale | None]] = [lambda: WrittenNumbers.understand(texts, codes, evidence.decimal)]
        first = evidence.decimal == "," or (any(text.lstrip()[:1] == "+" for text in texts))
        makers += written + plain if first else plain + written
    return next((scale for make in makers if (scale := make()) is not None), None)


def plainest(texts: list[str]) -> Scale | None:
    """The scale of texts that nothing else is known of."""
    return _understood(texts, None, Evidence())


def _no_scale(values: Texts, kind: str) -> BadData:
    """Why the texts are not of the kind that they were said to be."""
    if kind == "ordinal":
        return values.error(
            "is to be ordinal, but its values are not numbers: give them in order, {kind: ordinal, order: [...]}"
        )
    good = [bool((DATE if kind == "date" else NUMBER).fullmatch(text)) for text in values.distinct]
    if all(good):
        return _odd_date(values) if kind == "date" else values.error("has numbers too large for a float: use kind category")
    expected = {"date": "a date such as 2024-01-31 or 31.01.2024", "angle": "a number or a time of day"}.get(
        kind, "a number"
    )
    return values.error(
        f"is not {expected}, or not written like the others: correct it, or list it under missing in a file for --columns",
        good.index(False),
    )


def _odd_date(values: Texts) -> BadData:
    """What is wrong with dates that are not all understood: the first that is written unlike the first of all, or no day."""
    first = values.distinct[0]
    scale = Dates.form(first)
    assert scale is not None
    bad = [not scale.alike([text]) or bool(np.isnan(scale.parse([text])[0])) for text in values.distinct]
    return values.error(f"is no day, or not written like {first!r}: write all dates alike, or {REMEDY}", bad.index(True))


def _without_odd(
    values: Texts, markers: tuple[str, ...], evidence: Evidence
) -> tuple[Texts, Scale | None, tuple[str, ...], str]:
    """A column of numbers or dates but for a few words or mistakes, which are missing values then, and named in a note."""
    seen, rows = values.rows(), int((values.index >= 0).sum())
    scale = _of_most(values, markers, evidence) if len(values.distinct) > NAMES else None
    if scale is None:
        return values, None, (), ""
    odd = [i for i, number in enumerate(scale.parse(values.distinct)) if np.isnan(number)]
    words = [i for i in odd if values.distinct[i] not in markers]
    if seen[words].sum() > ODD * rows:
        return values, None, (), ""
    rest = values.without(tuple(values.distinct[i] for i in odd))
    scale = _understood(rest.distinct, None, evidence)
    if scale is None:
        return values, None, (), ""
    first = min(words, key=lambda i: int((values.index == i).argmax()))
    others = f", and {len(words) - 1} more values," if words[1:] else ""
    what = f"is no {scale.noun} unlike the rest{others} and taken as missing: correct it, or list it under missing"
    note = str(values.error(what, first)).partition(f"column {values.name!r}, ")[2]
    return rest, scale, tuple(values.distinct[i] for i in odd), note


def _of_most(values: Texts, markers: tuple[str, ...], evidence: Evidence) -> Scale | None:
    """The scale of the plain numbers and dates among the texts, or of those with digits where these are few, or, where some
    of these do not fit, of one of the first of them."""
    like = [bool(NUMBER.fullmatch(text) or DATE.fullmatch(text)) for text in values.distinct]
    if sum(like) < 0.5 * len(like):
        like = [any(one.isdigit() for one in text) for text in values.distinct]
    some = [text for text, good in zip(values.distinct, like, strict=True) if good and text not in markers]
    scale = _understood(some, None, evidence) if some else None
    return scale or next((made for text in some[:3] if (made := _understood([text], None, evidence)) is not None), None)
