"""Column kinds: how the texts of one column become categories or scores, and come back as the same texts.

A column is read as text, so that it can be written as it was: decimals, date formats, `True` or `true`.  A `Scale` says how
texts are numbers.  A discrete column lists its texts in order and a state is an index of that list; a continuous one holds
`Quantiles`, and beside them the texts of its atoms, the single values that hold a good share of the rows.  Its states are:

    0 ... len(texts)-1     the value texts[state]
    then                   missing, where a value was missing
    then                   "some other number, see the score", for a continuous column
"""

import re
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.quantiles import Quantiles
from unnoise.noise import Noise

KINDS = ("number", "count", "ordinal", "category", "boolean", "date")
FEW = 256  # at most so many distinct numbers are ordinal categories
MANY = 65_536  # no column has more categories
ATOM = 0.02  # share of rows from which a single number is a category of its own
CONTINUOUS = 100  # distinct numbers that must remain beside the atoms
NAMES = 20  # a column of so many words may have them all distinct
MISSING = ("", "nan", "NaN")
TRUTH = {"true", "false"}
SEED = 0  # of the places of repeated values: the same file is always encoded alike
EXACT = 2.0**53  # whole numbers up to here are exact in float64
REMEDY = "drop it or name a kind in the override file"

_NUMBER = re.compile(r"\s*[-+]?(\d+(?:\.(\d*))?|\.(\d+))([eE][-+]?\d+)?\s*")
_CODE = re.compile(r"\s*[-+]?0\d")  # 02139 is a code, not a number
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:([T ])\d\d:\d\d(:\d\d(?:\.(\d{1,9}))?)?)?(Z|[+-]\d\d:?\d\d)?")
_WHOLE_UNIT = {"D": 86_400, "m": 60, "s": 1}


@dataclass(frozen=True)
class Decimals:
    """Numbers written with `least` to `most` decimals; `most` None: with as many digits as they have."""

    least: int
    most: int | None

    @classmethod
    def understand(cls, texts: list[str], codes: bool = False) -> "Decimals | None":
        """None where a text is no number, or is a code and not `codes`: 02139, or a whole number that floats would round."""
        matches = [_NUMBER.fullmatch(text) for text in texts]
        values = cls(0, 0).parse(texts)
        if not texts or np.isnan(values).any() or (not codes and any(map(_CODE.match, texts))):
            return None
        if not codes and (np.abs(values) > EXACT).any() and not any(m[2] or m[3] or m[4] for m in matches if m):
            return None
        if any(m[4] for m in matches if m):
            return cls(0, None)
        lengths = {len(m[2] or m[3] or "") for m in matches if m}
        long = max(lengths) > 15 or np.abs(values).max() * 10.0 ** max(lengths) > EXACT  # rounding would not be exact
        return cls(0, None) if long else cls(min(lengths), max(lengths))

    def parse(self, texts: list[str]) -> np.ndarray:
        values = np.array([float(text) if _NUMBER.fullmatch(text) else np.nan for text in texts], dtype=np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    def write(self, values: np.ndarray) -> list[str]:
        if self.most is None:
            return [repr(float(v)) for v in values]
        texts = [f"{v:.{self.most}f}" for v in np.round(values, self.most) + 0.0]
        if self.least == self.most:
            return texts
        cut = [text.rstrip("0") for text in texts]
        return [c.ljust(c.index(".") + 1 + self.least, "0") if self.least else c.rstrip(".") for c in cut]

    def arrow(self) -> str:
        return "int64" if self.most == 0 else "double"


def _moments(texts: list[str], unit: str) -> np.ndarray:
    try:
        return np.array(texts, dtype=f"datetime64[{unit}]")
    except ValueError:  # some day is not in the calendar
        if len(texts) == 1:
            return np.array(["NaT"], dtype=f"datetime64[{unit}]")
        half = len(texts) // 2
        return np.concatenate([_moments(texts[:half], unit), _moments(texts[half:], unit)])


@dataclass(frozen=True)
class Dates:
    """ISO dates or times, all written alike: whole days ("D"), minutes ("m"), or seconds ("s") with some digits."""

    unit: str
    digits: int
    separator: str
    zone: str

    @classmethod
    def understand(cls, texts: list[str]) -> "Dates | None":
        if not texts or not _DATE.fullmatch(texts[0]):
            return None
        matches = [_DATE.fullmatch(text) for text in texts]
        shapes = {("s" if m[2] else "m" if m[1] else "D", len(m[3] or ""), m[1] or "", m[4] or "") for m in matches if m}
        if None in matches or len(shapes) > 1:
            return None
        scale = cls(*shapes.pop())
        return None if np.isnan(scale.parse(texts)).any() else scale

    @property
    def _base(self) -> tuple[str, int]:
        """numpy's unit, and how many of them one step of this scale is."""
        name, per_second = ("us", 10**6) if self.digits <= 6 else ("ns", 10**9)
        return name, _WHOLE_UNIT[self.unit] * per_second // 10**self.digits

    def parse(self, texts: list[str]) -> np.ndarray:
        name, step = self._base
        matches = [_DATE.fullmatch(text) for text in texts]
        fit = np.array([m is not None and (m[4] or "") == self.zone for m in matches], dtype=bool)
        plain = [text.removesuffix(self.zone) if ok else "NaT" for text, ok in zip(texts, fit, strict=True)]
        ticks = _moments(plain, name)
        whole = ~np.isnat(ticks) & (ticks.astype(np.int64) % step == 0)
        steps = ticks.astype(np.int64) // step
        return np.where(whole & (np.abs(steps) <= EXACT), steps.astype(np.float64), np.nan)

    def write(self, values: np.ndarray) -> list[str]:
        name, step = self._base
        ticks = (np.round(values).astype(np.int64) * step).astype(f"datetime64[{name}]")
        length = {"D": 10, "m": 16, "s": 19}[self.unit] + (1 + self.digits if self.digits else 0)
        texts = [text[:length] for text in np.datetime_as_string(ticks).tolist()]
        return [text.replace("T", self.separator) + self.zone for text in texts] if self.separator else texts

    def arrow(self) -> str:
        if self.unit == "D":
            return "string" if self.zone else "date32"
        if self.zone not in ("", "Z"):
            return "string"
        size = "s" if self.digits == 0 else "ms" if self.digits <= 3 else "us" if self.digits <= 6 else "ns"
        return f"timestamp[{size}{', UTC' if self.zone else ''}]"


Scale = Decimals | Dates


@dataclass(frozen=True)
class Texts:
    """The texts of a column: each distinct one once, and for every row which of them it is (-1: missing)."""

    name: str
    distinct: list[str]
    index: np.ndarray
    where: str  # the file, for messages

    def without(self, words: tuple[str, ...]) -> "Texts":
        """The same, with these words as missing values."""
        gone = np.array([*(text in words for text in self.distinct), True])
        number = np.where(gone, -1, np.cumsum(~gone) - 1)
        kept = [text for text, out in zip(self.distinct, gone[:-1], strict=True) if not out]
        return Texts(self.name, kept, number[self.index], self.where)

    def error(self, what: str, which: int | None = None) -> BadData:
        """An error about the column, or about the first row that holds distinct text number `which`."""
        if which is None:
            return BadData(f"{self.where}: column '{self.name}' {what}")
        text = "is missing" if which < 0 else repr(self.distinct[which])
        return BadData(f"{self.where}: column '{self.name}', row {int((self.index == which).argmax()) + 1}: {text} {what}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """What is known of one column."""

    name: str
    kind: str
    texts: tuple[str, ...]  # its categories in order; of a continuous column, its atoms
    missing: str | None = None  # how a missing value is written; None where none was missing
    blanks: tuple[str, ...] = MISSING  # texts that stand for a missing value
    scale: Scale | None = None  # None where the texts are words
    quantiles: Quantiles | None = None

    @property
    def size(self) -> int:
        """How many states it has."""
        return len(self.texts) + (self.missing is not None) + (self.quantiles is not None)

    @property
    def choices(self) -> str:
        if self.quantiles is None and self.scale is not None and len(self.texts) > 12:
            return f"{len(self.texts)} values {self.texts[0]} ... {self.texts[-1]}"
        if self.quantiles is None:
            head = ", ".join(repr(text) for text in self.texts[:12])
            return f"{head}, ... ({len(self.texts)} in all)" if len(self.texts) > 12 else head
        ends = (self.scale or Decimals(0, None)).write(self.quantiles.values[[0, -1]])
        return f"{ends[0]} ... {ends[1]}"

    def _keys(self, texts: list[str]) -> list[Any]:
        """What is compared: numbers as numbers (39 and 39.0 are one), booleans without case."""
        if self.scale is not None:
            return self.scale.parse(texts).tolist()
        return [text.lower() for text in texts] if self.kind == "boolean" else texts

    def encode(
        self, values: Texts, unseen: str = "refuse", place: float | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """A state per row and, of a continuous column, a score per row.  `unseen` "nearest" moves new ordered values."""
        values = values.without(self.blanks)
        keys = self._keys(values.distinct)
        known = {key: state for state, key in enumerate(self._keys(list(self.texts)))}
        states = np.array([*(known.get(key, -1) for key in keys), len(self.texts)], dtype=np.int64)
        if self.missing is None and (values.index < 0).any():
            raise values.error("but no value of this column was missing before: fill it in, or leave the row out", -1)
        numbers = np.array([*keys, np.nan]) if self.scale is not None else np.full(len(states), np.nan)
        new = states < 0
        if (new & np.isnan(numbers)).any():
            what = "number" if isinstance(self.scale, Decimals) else "date" if self.scale else "known value"
            which = int((new & np.isnan(numbers)).argmax())
            raise values.error(f"is no {what} of this column: it holds {self.choices}", which)
        if self.quantiles is not None:
            states[new] = self.size - 1
        elif new.any() and unseen == "nearest":
            old = np.array(list(known))
            moved = int(new[values.index].sum())
            warnings.warn(
                f"{values.where}: column '{self.name}': {moved} new values moved to the nearest known", stacklevel=2
            )
            states[new] = np.abs(numbers[new, None] - old).argmin(1)
        elif new.any():
            remedy = "correct it, or encode with unseen='nearest'"
            raise values.error(f"is not among the {self.choices} of this column: {remedy}", int(new.argmax()))
        state = states[values.index]
        if self.quantiles is None:
            return state, None
        noise = Noise(SEED, len(state)).at(self.name)
        score = noise.at("fill").normal().numpy().copy()  # rows without a number of their own: read by no one
        own = state == self.size - 1
        spread = noise.at("place").uniform().numpy()[own] if place is None else place
        score[own] = self.quantiles.encode(numbers[values.index[own]], spread)
        return state, score

    def decode(self, state: np.ndarray, score: np.ndarray | None = None) -> list[str | None]:
        """The text of every row; None is missing."""
        words = np.array([*self.texts, None, None], dtype=object)
        texts = words[np.minimum(state, len(self.texts))]
        if self.quantiles is not None:
            own = state == self.size - 1
            assert self.scale is not None and score is not None
            texts[own] = self.scale.write(self.quantiles.decode(score[own]))
        return texts.tolist()

    def arrow(self) -> str:
        """The type of its values in typed files."""
        if self.kind == "boolean" and {text.lower() for text in self.texts} <= TRUTH:
            return "bool"
        return self.scale.arrow() if self.scale is not None else "string"

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name, "kind": self.kind, "texts": list(self.texts), "missing": self.missing}
        data |= {"blanks": list(self.blanks), "quantiles": self.quantiles and self.quantiles.to_json()}
        return data | {"scale": self.scale and {"of": type(self.scale).__name__, **vars(self.scale)}}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Column":
        scale, quantiles = data["scale"] and dict(data["scale"]), data["quantiles"]
        scale = scale and {"Decimals": Decimals, "Dates": Dates}[scale.pop("of")](**scale)
        quantiles = quantiles and Quantiles.from_json(quantiles)
        lists = {"texts": tuple(data["texts"]), "blanks": tuple(data["blanks"])}
        return cls(**{**data, **lists, "scale": scale, "quantiles": quantiles})


def understand(values: Texts, wish: Any = None) -> Column:
    """The kind of a column, from its texts or by `wish`: a kind, or {"kind": ..., "missing": [...], "order": [...]}."""
    if not isinstance(wish, str | dict | None):
        raise values.error(f"has the override {wish!r}: write a kind, or {{kind: ..., missing: [...], order: [...]}}")
    wishes = {"kind": wish} if isinstance(wish, str) else dict(wish or {})
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
        seen = np.bincount(values.index[values.index >= 0], minlength=len(values.distinct))
        missing = max(((seen[i], text) for i, text in enumerate(values.distinct) if text in blanks), default=(0, ""))[1]
    if not kept.distinct:
        raise values.error("has no values, all are missing: drop it in the override file")
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
        good = [bool((_DATE if kind == "date" else _NUMBER).fullmatch(text)) for text in values.distinct]
        if kind == "ordinal":
            raise values.error(
                "is to be ordinal, but its values are not numbers: give them in order, {kind: ordinal, order: [...]}"
            )
        if all(good):
            what = "dates in different forms or days that do not exist: write all as YYYY-MM-DD, or use kind category"
            raise values.error(f"holds {what if kind == 'date' else 'numbers too large for a float: use kind category'}")
        expected = "an ISO date such as 2024-01-31" if kind == "date" else "a number"
        raise values.error(
            f"is not {expected}: correct it, or list it under missing in the override file", good.index(False)
        )
    return scale


def _merged(keys: list[Any], values: Texts) -> tuple[list[Any], list[str], np.ndarray]:
    """Distinct keys in order, the commonest text and the number of rows of each."""
    seen = np.bincount(values.index[values.index >= 0], minlength=len(keys))
    text: dict[Any, str] = {}
    rows: dict[Any, int] = {}
    for i in np.argsort(-seen, kind="stable").tolist():
        text.setdefault(keys[i], values.distinct[i])
        rows[keys[i]] = rows.get(keys[i], 0) + int(seen[i])
    ordered = sorted(text)
    return ordered, [text[key] for key in ordered], np.array([rows[key] for key in ordered])


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
        keys, texts, _ = _merged(lowered, values)
        if len(keys) > 2:
            raise values.error(f"is to be boolean but has {len(keys)} values, such as {texts[:3]}: use kind category")
        return Column(kind="boolean", texts=tuple(texts), **known)
    if kind is None and len(words) > FEW:
        seen = np.bincount(values.index[values.index >= 0], minlength=len(words))
        for pattern, what in ((_NUMBER, "a number"), (_DATE, "an ISO date")):
            like = np.array([bool(pattern.fullmatch(word)) for word in words])
            if not like.all() and 2 * seen[like].sum() > rows:
                first = int(values.index[(values.index >= 0) & ~like[values.index]][0])
                raise values.error(
                    f"is not {what}, unlike most of this column: correct it or list it under missing, or {REMEDY}", first
                )
    if len(words) > MANY:
        raise values.error(f"has {len(words):,} categories, more than {MANY:,}: {REMEDY}")
    if kind is None and len(words) > max(NAMES, rows / 2):
        raise values.error(f"looks like names or free text ({len(words):,} distinct values in {rows:,} rows): {REMEDY}")
    return Column(kind="category", texts=tuple(sorted(words)), **known)


def _numbers(values: Texts, kind: str | None, scale: Scale, known: dict[str, Any]) -> Column:
    keys, texts, seen = _merged(scale.parse(values.distinct).tolist(), values)
    numbers, dates = np.array(keys), isinstance(scale, Dates)
    whole = bool((numbers >= 0).all() and (numbers == np.floor(numbers)).all())
    if kind == "count" and not whole:
        bad = int(np.flatnonzero((numbers < 0) | (numbers != np.floor(numbers)))[0])
        which = values.distinct.index(texts[bad])
        raise values.error("is no count, 0, 1, 2, ...: use kind number", which)
    few = kind in (None, "date") and len(keys) <= FEW
    if kind == "ordinal" or few or len(keys) == 1:
        if len(keys) > MANY:
            raise values.error(f"has {len(keys):,} distinct values, more than {MANY:,}: use kind number")
        return Column(kind="date" if dates else "ordinal", texts=tuple(texts), **known)
    label = "date" if dates else kind or ("count" if whole and scale.arrow() == "int64" else "number")
    atom = seen >= ATOM * len(values.index)
    if (~atom).sum() < CONTINUOUS:
        atom[:] = False
    atoms = tuple(text for text, apart in zip(texts, atom, strict=True) if apart)
    quantiles = Quantiles.fit(numbers[~atom].repeat(seen[~atom]))
    return Column(kind=label, texts=atoms, quantiles=quantiles, **known)
