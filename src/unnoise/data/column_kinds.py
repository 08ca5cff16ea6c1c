"""What a column is, judged by its texts or told by an override."""

from typing import Any

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.columns import MISSING, TRUTH, Column, Texts
from unnoise.data.quantiles import Quantiles
from unnoise.data.scales import DATE, NUMBER, Dates, Decimals, Scale

KINDS = ("number", "count", "ordinal", "category", "boolean", "date")
LEVELS = 10  # at most so many distinct numbers are ordinal categories
FEW = 256  # and at most so many where each of them has
ROWS_EACH = 100  # rows on average: with fewer, numbers learn from their neighbours what categories cannot
MANY = 65_536  # no column has more categories
ATOM = 0.02  # share of rows from which a single number is a category of its own, where it holds
ATOM_ROWS, ATOM_EXCESS = 15, 5  # so many rows, and so many times as many as the numbers of the column on average
CONTINUOUS = 100  # distinct numbers that must remain beside the atoms
NAMES = 20  # a column of so many words may have them all distinct
REMEDY = "drop it or name its kind in a file for --columns"


def column_kind(values: Texts, wish: Any = None) -> Column:
    """The kind of a column, from its texts or by `wish`: a kind, or {"kind": ..., "missing": [...], "order": [...]}."""
    if not isinstance(wish, str | dict | None):
        raise values.error(f"has the override {wish!r}: write a kind, or {{kind: ..., missing: [...], order: [...]}}")
    wishes: dict[str, Any] = {"kind": wish} if isinstance(wish, str) else dict(wish or {})
    if unknown := sorted(set(wishes) - {"kind", "missing", "order"}):
        raise values.error(f"has the unknown override {unknown}: use kind, missing or order")
    kind: str | None = wishes.get("kind")
    order: list[Any] | None = wishes.get("order")
    if order is not None and (kind not in (None, "ordinal", "category") or not isinstance(order, list)):
        raise values.error(f"has the override order = {order!r} with kind {kind}: give a list, and kind ordinal")
    if kind not in (None, *KINDS):
        raise values.error(f"is to be of kind {kind!r}: use one of {', '.join(KINDS)}, or drop")
    listed = wishes.get("missing", [])
    blanks = tuple(dict.fromkeys([*MISSING, *map(str, listed if isinstance(listed, list | tuple) else [listed])]))
    kept = values.without(blanks)
    missing = None
    if (kept.index < 0).any():
        seen = values.rows()
        missing = max(((seen[i], text) for i, text in enumerate(values.distinct) if text in blanks), default=(0, ""))[1]
    if not kept.distinct:
        raise values.error("has no values, all are missing: drop it in a file for --columns")
    known: dict[str, Any] = {"name": values.name, "missing": missing, "blanks": blanks}
    scale = None if order else _scale(kept, kind)
    if scale is None:
        return _words(kept, kind, order, known)
    return _numbers(kept, kind, scale, known | {"scale": scale})


def _scale(values: Texts, kind: str | None) -> Scale | None:
    """How the texts are numbers, if they are; an error where they were said to be."""
    if kind in ("category", "boolean"):
        return None
    dates = Dates.understand(values.distinct) if kind in (None, "date", "ordinal") else None
    scale = dates or (None if kind == "date" else Decimals.understand(values.distinct, codes=kind is not None))
    if scale is None and kind is not None:
        good = [bool((DATE if kind == "date" else NUMBER).fullmatch(text)) for text in values.distinct]
        if kind == "ordinal":
            raise values.error(
                "is to be ordinal, but its values are not numbers: give them in order, {kind: ordinal, order: [...]}"
            )
        if all(good):
            raise (
                _odd_date(values) if kind == "date" else values.error("has numbers too large for a float: use kind category")
            )
        expected = "an ISO date such as 2024-01-31" if kind == "date" else "a number"
        raise values.error(
            f"is not {expected}: correct it, or list it under missing in a file for --columns", good.index(False)
        )
    return scale


def _odd_date(values: Texts) -> BadData:
    """What is wrong with dates that are not all understood: the first that is written unlike the first of all, or no day."""
    first = values.distinct[0]
    scale = Dates.form(first)
    assert scale is not None
    bad = [not scale.alike([text]) or bool(np.isnan(scale.parse([text])[0])) for text in values.distinct]
    return values.error(f"is no day, or not written like {first!r}: write all dates alike, or {REMEDY}", bad.index(True))


def _merged(keys: np.ndarray, values: Texts) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Distinct keys in order; of each, the place of its commonest text and its number of rows."""
    seen = values.rows()
    distinct, which = np.unique(keys, return_inverse=True)
    order = np.lexsort((-seen, which))
    _, first = np.unique(which[order], return_index=True)
    return distinct, order[first], np.bincount(which, weights=seen).astype(np.int64)


def _words(values: Texts, kind: str | None, order: list[Any] | None, known: dict[str, Any]) -> Column:
    words, rows = values.distinct, int((values.index >= 0).sum())
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
    crowd = len(words) > max(NAMES, rows / 2)
    if kind is None and (crowd or len(words) > FEW):
        _refuse_odd_one_out(values, rows)
    if len(words) > MANY:
        raise values.error(f"has {len(words):,} categories, more than {MANY:,}: {REMEDY}")
    if kind is None and crowd:
        raise values.error(f"looks like names or free text ({len(words):,} distinct values in {rows:,} rows): {REMEDY}")
    return Column(kind="category", texts=tuple(sorted(words)), **known)


def _refuse_odd_one_out(values: Texts, rows: int) -> None:
    """Words most of which are numbers or dates: the first that is none is a mistake."""
    seen = values.rows()
    for pattern, what in ((NUMBER, "a number"), (DATE, "an ISO date")):
        like = np.array([bool(pattern.fullmatch(word)) for word in values.distinct])
        if like.all() and pattern is DATE:
            raise _odd_date(values)
        if not like.all() and 2 * seen[like].sum() > rows:
            first = int(values.index[(values.index >= 0) & ~like[values.index]][0])
            raise values.error(
                f"is not {what}, unlike most of this column: correct it, list it under missing, or {REMEDY}", first
            )


def _numbers(values: Texts, kind: str | None, scale: Scale, known: dict[str, Any]) -> Column:
    numbers, commonest, seen = _merged(scale.parse(values.distinct), values)
    dates = isinstance(scale, Dates)
    whole = bool((numbers >= 0).all() and (numbers == np.floor(numbers)).all())
    if kind == "count" and not whole:
        bad = int(np.flatnonzero((numbers < 0) | (numbers != np.floor(numbers)))[0])
        raise values.error("is no count, 0, 1, 2, ...: use kind number", int(commonest[bad]))
    most = LEVELS if len(numbers) * ROWS_EACH > int(seen.sum()) else FEW
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
    rest = Decimals.understand(others, codes=True) if atoms and not dates else None
    if rest and isinstance(scale, Decimals) and rest.most == scale.most:
        scale = rest  # how few decimals there are is not for the atoms to say: 0 beside 1.50
    known["scale"] = scale.on_grid(others)
    quantiles = Quantiles.fit(numbers[~atom].repeat(seen[~atom]))
    return Column(kind=label, texts=atoms, quantiles=quantiles, **known)
