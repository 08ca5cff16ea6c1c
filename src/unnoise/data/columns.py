"""Column kinds: how the texts of one column become categories or scores, and come back as the same texts.

A column is read as text, so that it can be written as it was: decimals, date formats, `True` or `true`.  A `Scale` says
how texts are numbers.  A discrete column lists its texts in order and a state is an index of that list; a continuous one
holds a map of numbers to scores (`MAPS`), and beside it the texts of its atoms, the single values that hold a good share of
the rows.  Its states are:

    0 ... len(texts)-1     the value texts[state]
    then                   missing, where a value was missing
    then                   "some other number, see the score", for a continuous column
"""

import warnings
from dataclasses import dataclass
from decimal import Decimal
from math import pi
from textwrap import shorten
from typing import Any

import numpy as np

from unnoise.data.any_scale import Scale, scale_from_json, scale_to_json
from unnoise.data.around import Around, turn
from unnoise.data.base import BadData
from unnoise.data.composition import Shares
from unnoise.data.globe import Meridians, Parallels
from unnoise.data.quantiles import Quantiles
from unnoise.data.scales import Decimals
from unnoise.data.straight import Straight
from unnoise.noise import NoiseSource

MISSING = ("", "nan", "NaN")
TRUTH = {"true", "false"}
SEED = 0  # of the places of repeated values: the same file is always encoded alike
Scores = Quantiles | Straight | Around | Parallels | Meridians | Shares
MAPS: dict[str, Any] = {
    "quantiles": Quantiles,
    "straight": Straight,
    "around": Around,
    "parallels": Parallels,
    "meridians": Meridians,
    "shares": Shares,
}


@dataclass(frozen=True)
class Texts:
    """The texts of a column: each distinct one once, and for every row which of them it is (-1: missing)."""

    name: str
    distinct: list[str]
    index: np.ndarray
    where: str  # the file, for messages
    alone: bool = False  # one value that stands in no row

    def without(self, words: tuple[str, ...]) -> "Texts":
        """The same, with these words as missing values."""
        blank = set(words)
        found = [i for i, text in enumerate(self.distinct) if text in blank]
        if not found:
            return self
        gone = np.zeros(len(self.distinct) + 1, dtype=bool)
        gone[[*found, -1]] = True
        number = np.where(gone, -1, np.cumsum(~gone) - 1)
        kept = [text for text in self.distinct if text not in blank]
        return Texts(self.name, kept, number[self.index], self.where, self.alone)

    def rows(self) -> np.ndarray:
        """How many rows hold each of the distinct texts."""
        return np.bincount(self.index[self.index >= 0], minlength=len(self.distinct))

    def error(self, what: str, which: int | None = None) -> BadData:
        """An error about the column, or about the first row that holds distinct text number `which`."""
        if which is None:
            return BadData(f"{self.where}: column {self.name!r} {what}")
        text = "is missing" if which < 0 else repr(shorten(self.distinct[which], 60, placeholder=" ..."))
        row = "" if self.alone else f", row {int((self.index == which).argmax()) + 1}"
        return BadData(f"{self.where}: column {self.name!r}{row}: {text} {what}")


@dataclass(frozen=True, kw_only=True, eq=False)
class Column:
    """What is known of one column."""

    name: str
    kind: str
    texts: tuple[str, ...]  # its categories in order; of a continuous column, its atoms
    missing: str | None = None  # how a missing value is written; None where none was missing
    blanks: tuple[str, ...] = MISSING  # texts that stand for a missing value
    scale: Scale | None = None  # None where the texts are words
    scores: Scores | None = None  # of the numbers of a continuous column
    partners: tuple[str, ...] = ()  # all columns of its `JointLeaf`, if it has one
    note: str = ""  # what is unclear about it

    @property
    def size(self) -> int:
        """How many states it has."""
        return len(self.texts) + (self.missing is not None) + (self.scores is not None)

    @property
    def closed(self) -> bool:
        """Whether its numbers are angles."""
        return self.scores is not None and self.scores.closed

    @property
    def choices(self) -> str:
        if self.scores is None and self.scale is not None and len(self.texts) > 12:
            return f"{len(self.texts)} values {self.texts[0]} ... {self.texts[-1]}"
        if self.scores is None:
            head = ", ".join(repr(text) for text in self.texts[:12])
            return f"{head}, ... ({len(self.texts)} in all)" if len(self.texts) > 12 else head
        ends = (self.scale or Decimals(0, None)).write(self.scores.values[[0, -1]])
        around = f", around {turn(self.scores.period)}" if isinstance(self.scores, Around) else ""
        return f"{ends[0]} ... {ends[1]}{around}"

    @property
    def form(self) -> str:
        """How its texts are read, where they may be read otherwise."""
        return self.scale.said if self.scale is not None else ""

    def _find(self, texts: list[str]) -> tuple[np.ndarray, np.ndarray]:
        """The state (-1: none) and the number of each text: 39 and 39.0 are one number, booleans have no case."""
        if self.scale is None:
            lower = self.kind == "boolean"
            known = {text.lower() if lower else text: state for state, text in enumerate(self.texts)}
            states = [known.get(text.lower() if lower else text, -1) for text in texts]
            return np.array(states, dtype=np.int64), np.full(len(texts), np.nan)
        numbers, old = self.scale.parse(texts), self.scale.parse(list(self.texts))
        if not len(old):
            return np.full(len(texts), -1), numbers
        order = np.argsort(old)
        state = order[np.minimum(np.searchsorted(old[order], numbers), len(old) - 1)]
        return np.where(old[state] == numbers, state, -1), numbers

    def encode(
        self, values: Texts, unseen: str = "refuse", place: float | None = None
    ) -> tuple[np.ndarray, np.ndarray | None]:
        """A state per row and, of a continuous column, a score per row.  `unseen` "nearest" moves new ordered values."""
        values = values.without(self.blanks)
        states, numbers = self._find(values.distinct)
        states, numbers = np.append(states, len(self.texts)), np.append(numbers, np.nan)  # the last is for missing values
        if self.missing is None and (values.index < 0).any():
            raise values.error("but no value of this column was missing before: fill it in, or leave the row out", -1)
        new = states < 0
        if (new & np.isnan(numbers)).any():
            what = self.scale.noun if self.scale else "known value"
            which = int((new & np.isnan(numbers)).argmax())
            raise values.error(f"is no {what} of this column: it holds {self.choices}", which)
        if self.scores is not None:
            states[new] = self.size - 1
        elif new.any() and unseen == "nearest":
            old = self.scale.parse(list(self.texts)) if self.scale else numbers[:0]
            moved = int(new[values.index].sum())
            warnings.warn(
                f"{values.where}: column '{self.name}': {moved} new values moved to the nearest known", stacklevel=2
            )
            states[new] = np.abs(numbers[new, None] - old).argmin(1)
        elif new.any():
            remedy = self._nearest(numbers[new][0]) if values.alone else "correct it, or encode with unseen='nearest'"
            raise values.error(f"is not among the {self.choices} of this column: {remedy}", int(new.argmax()))
        state = states[values.index]
        if self.scores is None:
            return state, None
        self._check_limits(values, numbers)
        noise = NoiseSource(SEED, len(state)).at(self.name)
        fill = noise.at("fill")  # rows without a number of their own: read by no one
        score = (2 * pi * fill.uniform() - pi if self.closed else fill.normal()).numpy().copy()
        own = state == self.size - 1
        spread = noise.at("place").uniform().numpy()[own] if place is None else place
        score[own] = self.scores.encode(numbers[values.index[own]], spread)
        return state, score

    def _check_limits(self, values: Texts, numbers: np.ndarray) -> None:
        if self.scores is not None and self.scores.limits is not None:
            low, high = self.scores.limits
            if (bad := np.flatnonzero((numbers < low) | (numbers > high))).size:
                raise values.error(f"is no {self.kind}, from {low:.6g} to {high:.6g}: correct it", int(bad[0]))

    def _nearest(self, number: float) -> str:
        """The known values on both sides of a new one, as a remedy."""
        assert self.scale is not None
        old = self.scale.parse(list(self.texts))
        order = np.argsort(old)
        place = int(np.searchsorted(old[order], number))
        near = [self.texts[i] for i in order[max(place - 1, 0) : place + 1]]
        return f"the nearest are {' and '.join(near)}: use one of them" if near[1:] else f"the nearest is {near[0]}: use it"

    def decode(self, state: np.ndarray, score: np.ndarray | None = None) -> list[str | None]:
        """The text of every row; None is missing."""
        words = np.array([*self.texts, None, None], dtype=object)
        texts = words[np.minimum(state, len(self.texts))]
        if self.scores is not None:
            own = state == self.size - 1
            assert self.scale is not None and score is not None
            texts[own] = self.scale.write(self.scores.decode(score[own]))
        return texts.tolist()

    def arrow(self) -> str:
        """The type of its values in typed files."""
        if self.kind == "boolean" and {text.lower() for text in self.texts} <= TRUTH:
            return "bool"
        name = self.scale.arrow() if self.scale is not None else "string"
        if self.scale is None or name != "int64":
            return name
        ends = [] if self.scores is None else self.scale.write(self.scores.values[[0, -1]])
        whole = [int(Decimal(text)) for text in self.scale.plain([*self.texts, *ends])]
        if min(whole) >= -(2**63) and max(whole) < 2**63:
            return "int64"
        return "uint64" if min(whole) >= 0 and max(whole) < 2**64 else "string"

    def to_json(self) -> dict[str, Any]:
        data: dict[str, Any] = {"name": self.name, "kind": self.kind, "texts": list(self.texts), "missing": self.missing}
        data |= {"blanks": list(self.blanks), "quantiles": None, "scale": scale_to_json(self.scale), "note": self.note}
        if self.scores is not None:
            data[next(name for name, kind in MAPS.items() if type(self.scores) is kind)] = self.scores.to_json()
        return data | ({"partners": list(self.partners)} if self.partners else {})

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Column":
        lists = {"texts": tuple(data["texts"]), "blanks": tuple(data["blanks"]), "partners": tuple(data.get("partners", ()))}
        known = {name: value for name, value in data.items() if name not in MAPS}
        scores = next((kind.from_json(data[name]) for name, kind in MAPS.items() if data.get(name) is not None), None)
        return cls(**{**known, **lists, "scale": scale_from_json(data["scale"]), "scores": scores})
