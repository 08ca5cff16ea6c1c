"""What a column is, judged by its texts or told by an override."""

from dataclasses import replace
from typing import Any

import numpy as np

from unnoise.data.any_scale import Scale
from unnoise.data.around import PERIODS, SLACK, Around, turn
from unnoise.data.columns import MISSING, TRUTH, Column, Texts
from unnoise.data.composition import KINDS as COMPOSITION
from unnoise.data.composition import TOTALS, Shares, decimals
from unnoise.data.globe import DEGREES, Meridians, Parallels, limits
from unnoise.data.globe import KINDS as GLOBE
from unnoise.data.left_out import LeftOut, maker_of
from unnoise.data.private import private_form, private_number, private_words, running
from unnoise.data.quantiles import Quantiles
from unnoise.data.scales import Decimals
from unnoise.data.text_scales import REMEDY, is_marker, scale_of
from unnoise.data.wishes import LEFT_OUT, Evidence, Wish
from unnoise.data.written_numbers import WrittenNumbers

FEW = 256  # at most so many distinct numbers are ordinal categories where each of them has
ROWS_EACH = 100  # rows on average: with fewer, numbers learn from their neighbours what categories cannot
LEVELS = 3  # so many are categories in any case, and where there is little to learn,
SMALL, HALF, SMALL_LEVELS = 100, 0.5, 10  # in fewer rows or beside a number that holds half of them, so many
MANY = 65_536  # no column has more categories
ATOM = 0.02  # share of rows from which a single number is a category of its own, where it holds
ATOM_ROWS, ATOM_EXCESS = 15, 5  # so many rows, and so many times as many as the numbers of the column on average
CONTINUOUS = 100  # distinct numbers that must remain beside the atoms


def column_kind(values: Texts, wish: Any = None, evidence: Evidence | None = None, keep: bool = False) -> Column | LeftOut:
    """The kind of a column, from its texts or by `wish`: a kind, or {"kind": ..., "missing": [...], "order": [...]}.

    `keep`: an identifier or private text is modelled all the same.
    """
    wished = Wish.of(values, wish, keep)
    evidence = wished.evidence(evidence or Evidence())
    blanks = tuple(dict.fromkeys([*MISSING, *wished.missing]))
    kept, scale, note = values.without(blanks), None, ""
    if kept.distinct and wished.order is None and wished.kind not in LEFT_OUT:
        kept, scale, more, note = scale_of(kept, wished, evidence)
        blanks = (*blanks, *more)
    missing = None
    if (kept.index < 0).any():  # written in the commonest way, but not as a word that is a mistake
        seen, ways = values.rows(), {text for text in blanks if text in (*MISSING, *wished.missing) or is_marker(text)}
        missing = max(((seen[i], text) for i, text in enumerate(values.distinct) if text in ways), default=(0, ""))[1]
    known: dict[str, Any] = {"name": values.name, "missing": missing, "blanks": blanks}
    if (beside := _left_out(kept, wished, scale, missing or "")) is not None:
        return beside
    if scale is None:
        return _words(kept, wished.kind, wished.order, known)
    if wished.kind == "angle":
        return _angles(kept, wished.period, scale, known)
    if wished.kind in GLOBE:
        return _globe(kept, wished.kind, wished.period or DEGREES, scale, known)
    if wished.kind in COMPOSITION:
        return _shares(kept, scale, known)
    column = _numbers(kept, wished.kind, scale, known | {"scale": scale})
    return replace(column, note=note or ("" if wished.form else scale.note))


def _left_out(values: Texts, wish: Wish, scale: Scale | None, blank: str) -> LeftOut | None:
    """The column as one beside the model, if it is one."""
    known: dict[str, Any] = {"name": values.name, "blank": blank}
    if not values.distinct:
        return LeftOut(kind="text", what="no values, all are missing", **known)
    if wish.kind in LEFT_OUT:
        maker = maker_of(values.distinct) if wish.kind == "identifier" else None
        return LeftOut(kind=wish.kind, what="as told", maker=maker, **known)
    if wish.kind is not None or wish.order is not None or wish.keep:
        return None
    if scale is None:
        form = private_form(values)
        found = ("private", form) if form else private_words(values, MANY)
    elif scale.noun == "number" and scale.arrow() == "int64":
        form, sequence = private_number(values), running(values)
        found = ("private", form) if form else ("identifier", sequence) if sequence else None
    else:
        found = None
    if found is None:
        return None
    maker = maker_of(values.distinct) if found[0] == "identifier" else None
    return LeftOut(kind=found[0], what=found[1], maker=maker, **known)


def _merged(keys: np.ndarray, values: Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct keys in order; of each, the place of its commonest text and its number of rows."""
    seen = values.rows()
    distinct, which = np.unique(keys, return_inverse=True)
    order = np.lexsort((-seen, which))
    _, first = np.unique(which[order], return_index=True)
    return distinct, order[first], np.bincount(which, weights=seen).astype(np.int64)


def _words(values: Texts, kind: str | None, order: list[Any] | None, known: dict[str, Any]) -> Column:
    words = values.distinct
    if order is not None:
        ranks = tuple(dict.fromkeys(map(str, order)))
        if bad := [i for i, word in enumerate(words) if word not in ranks]:
            raise values.error(f"is not in the order given for this column, {list(ranks)}: add it", bad[0])
        return Column(kind=kind or "ordinal", texts=ranks, **known)
    lowered = [word.lower() for word in words]
    if kind is None and set(lowered) <= TRUTH:
        kind = "boolean"
    if kind == "boolean":
        keys, commonest, _ = _merged(np.array(lowered), values)
        texts = [words[i] for i in commonest]
        if len(keys) > 2:
            raise values.error(f"is to be boolean but has {len(keys)} values, such as {texts[:3]}: use kind category")
        return Column(kind="boolean", texts=tuple(texts), **known)
    if len(words) > MANY:
        raise values.error(f"has {len(words):,} categories, more than {MANY:,}: {REMEDY}")
    return Column(kind="category", texts=tuple(sorted(words)), **known)


def _numbers(values: Texts, kind: str | None, scale: Scale, known: dict[str, Any]) -> Column:
    numbers, commonest, seen = _merged(scale.parse(values.distinct), values)
    dates = scale.noun == "date"
    whole = bool((numbers >= 0).all() and (numbers == np.floor(numbers)).all())
    if kind == "count" and not whole:
        bad = int(np.flatnonzero((numbers < 0) | (numbers != np.floor(numbers)))[0])
        raise values.error("is no count, 0, 1, 2, ...: use kind number", int(commonest[bad]))
    rows = int(seen.sum())
    small = rows < SMALL or int(seen.max()) >= HALF * rows
    most = FEW if len(numbers) * ROWS_EACH <= rows else SMALL_LEVELS if small else LEVELS
    few = kind in (None, "date") and len(numbers) <= most
    if kind == "ordinal" or few or len(numbers) == 1:
        if len(numbers) > MANY:
            raise values.error(f"has {len(numbers):,} distinct values, more than {MANY:,}: use kind number")
        return Column(kind="date" if dates else "ordinal", texts=tuple(values.distinct[i] for i in commonest), **known)
    label = "date" if dates else kind or ("count" if whole and scale.arrow() == "int64" else "number")
    atom = seen >= max(ATOM * len(values.index), ATOM_ROWS, ATOM_EXCESS * seen.mean())
    if (~atom).sum() < CONTINUOUS:
        atom[:] = False
    atoms = tuple(values.distinct[i] for i in commonest[atom])
    others = [values.distinct[i] for i in commonest[~atom]]
    if atoms:
        scale = scale.narrowed(others)  # how few decimals there are is not for the atoms to say: 0 beside 1.50
    known["scale"] = scale.on_grid(others)
    quantiles = Quantiles.fit(numbers[~atom].repeat(seen[~atom]))
    return Column(kind=label, texts=atoms, scores=quantiles, **known)


def _angles(values: Texts, period: float | None, scale: Scale, known: dict[str, Any]) -> Column:
    """Numbers with a period: that which was said, a day for times of day, else radians."""
    x, note = scale.parse(values.distinct), ""
    clock = scale.noun == "time of day"
    period = period or PERIODS["hours" if clock else "radians"]
    least, most = float(x.min()), float(x.max())
    if most - least > period * (1 + SLACK):
        likely = ": they look like degrees" if most - least <= 360 and period < 7 else ""
        raise values.error(
            f"has numbers from {least:g} to {most:g}, more than once around the period {turn(period)}{likely}: say "
            f"{{kind: angle, period: degrees}}, or another period ({', '.join(PERIODS)}, or a number)"
        )
    few = most - least <= PERIODS["radians"] * (1 + SLACK) and bool((x != np.round(x)).any())
    if few and period >= 24 and not clock and len(x) > LEVELS:
        note = "all its numbers lie within 2 pi of each other: if they are radians, say period: radians"
    known |= {"scale": scale.on_grid(values.distinct), "scores": Around.fit(x, period), "note": note}
    return Column(kind="angle", texts=(), **known)


def _globe(values: Texts, kind: str, period: float, scale: Scale, known: dict[str, Any]) -> Column:
    """Latitudes or longitudes, of which `globe_columns` makes places."""
    x, (low, high) = scale.parse(values.distinct), limits(kind, period)
    if (bad := np.flatnonzero((x < low) | (x > high))).size:
        swapped = period == DEGREES and kind == GLOBE[0] and bool((np.abs(x) <= DEGREES).all())
        unit = "degrees: correct it" if period == DEGREES else "radians: are they degrees? Then leave period out"
        unit += " (are the columns of latitude and longitude swapped?)" if swapped else ""
        raise values.error(f"is no {kind}, from {low:.6g} to {high:.6g} {unit}, or use kind number", int(bad[0]))
    if np.ptp(x) > period * (1 + SLACK):
        raise values.error(f"has longitudes from {x.min():g} to {x.max():g}, more than once around: correct it")
    scores = Parallels.fit(x, period) if kind == GLOBE[0] else Meridians.fit(x, period)
    return Column(kind=kind, texts=(), **known | {"scale": scale.on_grid(values.distinct), "scores": scores})


def _shares(values: Texts, scale: Scale, known: dict[str, Any]) -> Column:
    """Numbers of one part, of which `composition_columns` makes compositions."""
    x, most = scale.parse(values.distinct), max(TOTALS)
    if not isinstance(scale, Decimals | WrittenNumbers):
        raise values.error(f"holds a {scale.noun} too long for a share: use kind number")
    if (bad := np.flatnonzero((x < 0) | (x > most * (1 + SLACK)))).size:
        raise values.error(f"is no share, from 0 to 1 or to {most:g}: correct it, or use kind number", int(bad[0]))
    scores = Shares(np.array([x.min(), x.max()]), most, decimals(x) if scale.most is None else scale.most)
    return Column(kind=COMPOSITION[0], texts=(), **known | {"scale": scale, "scores": scores})
