"""Columns as rules speak of them: every written value is a number, and missing is NaN.

    unit          numbers                                        their order and arithmetic
    "number"      what is written, of whatever form              yes, yes
    "date"        seconds since 1970                             yes, no
    others        hours of the day, numbers beyond floats        yes, no: among values of their own column
    "label"       the place of a word in the list of the column  where the list is one, no

A rule reads values as they are written, rounded and in the form of the column; so `read` and `values` agree.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import numpy as np

from unnoise.data.columns import Column
from unnoise.data.scales import DATE, LongIntegers
from unnoise.data.table_cells import decode
from unnoise.data.table_gaps import in_each_row, keep
from unnoise.shapes import AnyState

if TYPE_CHECKING:
    from unnoise.data.table import Table

DATES, NUMBERS, LABELS = "date", "number", "label"
_SHOWN = 6


@dataclass(frozen=True, eq=False)
class RuleColumn:
    """One column; `absent`: why a rule cannot speak of it."""

    name: str
    column: Column | None = None
    absent: str | None = None
    place: int | None = None  # of its coordinate in the leaf of all labels
    leaf: str | None = None  # of its score, where that has one of its own
    told: bool = False  # whether it is a condition, which is not drawn

    @property
    def known(self) -> Column:
        assert self.column is not None
        return self.column

    @property
    def unit(self) -> str:
        """What its values can be compared with: values of the same unit."""
        scale = self.known.scale
        if scale is None:
            return LABELS
        if isinstance(scale, LongIntegers):
            return f"number of column {self.name!r}"
        return scale.noun

    @property
    def ordered(self) -> bool:
        return self.known.scale is not None or self.known.kind == "ordinal"

    @property
    def boolean(self) -> bool:
        return self.known.scale is None and self.known.kind == "boolean"

    @property
    def truth(self) -> float:
        """The value that says yes, of a boolean; NaN where none does."""
        return self.read("true")

    def read(self, text: str) -> float:
        """What a text in a rule means; NaN where it is no value of this column.  Dates may be ISO's."""
        scale = self.known.scale
        if scale is not None and scale.noun == DATES and (found := DATE.fullmatch(text)):
            zone = found[4] or ""
            return float(_seconds([text.removesuffix(zone)])[0]) if zone in ("", getattr(scale, "zone", "")) else np.nan
        return float(self.values([text])[0])

    def values(self, texts: Sequence[str | None]) -> np.ndarray:
        """Of written cells; None and what stands for a missing value are NaN."""
        blank = {None, *self.known.blanks}
        distinct = list(dict.fromkeys(text for text in texts if text is not None and text not in blank))
        numbers = dict(zip(distinct, self._numbers(distinct).tolist(), strict=True))
        return np.array([np.nan if text is None or text in blank else numbers[text] for text in texts], dtype=np.float64)

    def _numbers(self, texts: list[str]) -> np.ndarray:
        scale = self.known.scale
        if scale is not None:
            numbers = scale.parse(texts)
            if scale.noun != DATES or not texts:
                return numbers
            zone, known = getattr(scale, "zone", ""), ~np.isnan(numbers)
            plain = [text if good else "" for text, good in zip(scale.plain(texts), known, strict=True)]
            return np.where(known, _seconds([text.removesuffix(zone) for text in plain]), np.nan)
        lower = self.boolean
        places = {text.lower() if lower else text: float(i) for i, text in enumerate(self.known.texts)}
        return np.array([places.get(text.lower() if lower else text, np.nan) for text in texts], dtype=np.float64)

    @property
    def states(self) -> np.ndarray:
        """The value of each state among the labels; NaN of what is missing, and of a number that has a score."""
        listed = self.values(self.known.texts)
        return np.concatenate([listed, np.full(self.known.size - len(listed), np.nan)])

    def at(self, scores: np.ndarray) -> np.ndarray:
        """Numbers by their scores, as they are written."""
        assert self.known.scores is not None and self.known.scale is not None
        return self.values(self.known.scale.write(self.known.scores.decode(scores)))

    def some(self, text: str | None = None) -> str:
        """A few of its values, those that are like a text first."""
        if self.known.scale is not None:
            return self.known.choices
        near = [] if text is None else get_close_matches(text, self.known.texts, 3, 0.5)
        shown = list(dict.fromkeys([*near, *self.known.texts]))[:_SHOWN]
        more = f", ... ({len(self.known.texts)} in all)" if len(self.known.texts) > len(shown) else ""
        return ", ".join(map(repr, shown)) + more


def _seconds(texts: list[str]) -> np.ndarray:
    """ISO dates and times since 1970; NaN for an empty one, or for a day that is in no calendar."""
    try:
        moments = np.array([text or "NaT" for text in texts], dtype="datetime64[us]")
    except ValueError:
        return np.full(len(texts), np.nan) if len(texts) == 1 else np.concatenate([_seconds([text]) for text in texts])
    return np.where(np.isnat(moments), np.nan, moments.astype(np.int64) / 1e6)


def of_table(format: "Table") -> dict[str, RuleColumn]:
    """Those of a table, in its order and with what is beside the model."""
    left_out = {
        column.name: f"is not in the model ({column.what}): train with --keep {column.name}" for column in format.left_out
    }
    known = {column.name: column for column in format.columns}
    places = {column.name: i for i, column in enumerate(format.coordinates)}
    leaves = {column.name: leaf for leaf, column in format.leaves.items()}
    found = {
        name: RuleColumn(name, known.get(name), left_out.get(name), places.get(name), leaves.get(name))
        for name in (column.name for column in format.in_order)
    }
    dropped = {
        name: RuleColumn(name, absent="was dropped in training: rules speak of what is drawn") for name in format.dropped
    }
    return found | dropped


def values_of_table(format: "Table", x: AnyState, names: list[str], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
    cells, columns = decode(format, x, names), of_table(format)
    for name in names:
        if name in given:
            keep(format, cells, name, in_each_row(given[name], len(cells[name])))
    return {name: columns[name].values(cells[name]) for name in names}
