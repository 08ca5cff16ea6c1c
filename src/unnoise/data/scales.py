"""How texts are numbers: decimals as they were written, whole numbers of any length, and ISO dates.

A scale parses many texts at once (NaN where one does not fit) and writes numbers in the very form it was found in, on the
grid `start` + k `step` of the numbers it was shown, both in units of the last digit: days at midnight stay so.  `plain`
gives texts as typed files read them, and `spelt` such texts in the form of the scale.  Forms that are not as plain as these
have modules of their own, `written_numbers` and `written_dates`.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from decimal import Decimal
from math import gcd
from typing import ClassVar

import numpy as np

EXACT = 2.0**53  # whole numbers up to here are exact in float64

NUMBER = re.compile(r"\s*[-+]?(\d+(?:\.(\d*))?|\.(\d+))([eE][-+]?\d+)?\s*")
_PLAIN = re.compile(r"[-+0-9.eE\n]*")  # of many numbers at once: float() understands no more than NUMBER of such texts
_CODE = re.compile(r"^\s*[-+]?0\d", re.MULTILINE)  # 02139 is a code, not a number
DATE = re.compile(r"\d{4}-\d\d-\d\d(?:([T ])\d\d:\d\d(:\d\d(?:\.(\d{1,9}))?)?)?(Z|[+-]\d\d:?\d\d)?")
_WHOLE_UNIT = {"D": 86_400, "m": 60, "s": 1}


def grid_of(units: Iterable[int]) -> tuple[int, int]:
    """Step and start of the widest grid that all of these lie on."""
    first, step = None, 0
    for unit in units:
        first = unit if first is None else first
        step = gcd(step, unit - first)
        if step == 1:
            break
    return (step, (first or 0) % step) if step else (1, 0)


def nearest_on(units: np.ndarray, step: int, start: int) -> list[int]:
    """The places of a grid that are nearest to these numbers of units, found in one rounding."""
    return [start + round((unit - start) / step) * step for unit in np.asarray(units, dtype=np.float64).tolist()]


@dataclass(frozen=True)
class Decimals:
    """Numbers written with `least` to `most` decimals; `most` None: with as many digits as they have."""

    least: int
    most: int | None
    step: int = 1
    start: int = 0

    noun: ClassVar[str] = "number"
    note: ClassVar[str] = ""
    said: ClassVar[str] = ""  # of the form, in words

    @classmethod
    def understand(cls, texts: list[str], codes: bool = False) -> "Decimals | None":
        """None where a text is no number, or is a code and not `codes`: 02139, or a whole number that floats would round."""
        if not texts or not NUMBER.fullmatch(texts[0]):
            return None
        values, lines = cls(0, 0).parse(texts), "\n".join(texts)
        if np.isnan(values).any() or (not codes and _CODE.search(lines)):
            return None
        if "e" in lines or "E" in lines:
            return cls(0, None)
        lengths = {len(text) - text.index(".") - 1 if "." in text else 0 for text in map(str.strip, texts)}
        largest = float(np.abs(values).max())
        if not codes and max(lengths) == 0 and largest > EXACT:
            return None
        if max(lengths) == 0:
            return cls(0, 0)
        long = max(lengths) > 15 or largest * 10.0 ** max(lengths) > EXACT  # rounding would not be exact
        return cls(0, None) if long else cls(min(lengths), max(lengths))

    def narrowed(self, texts: list[str]) -> "Decimals":
        """The same with the decimals of these alone."""
        found = Decimals.understand(texts, codes=True)
        return found if found and found.most == self.most else self

    def on_grid(self, texts: list[str]) -> "Decimals":
        """The same, on the grid of these numbers."""
        step, start = (1, 0) if self.most is None else grid_of(map(self._units, texts))
        return replace(self, step=step, start=start)

    def _units(self, text: str) -> int:
        whole, _, part = text.strip().partition(".")
        return int(whole + part.ljust(self.most or 0, "0"))

    def parse(self, texts: list[str]) -> np.ndarray:
        try:
            plain = _PLAIN.fullmatch("\n".join(texts)) is not None
            values = np.array(texts if plain else [], dtype=np.float64)
        except ValueError:
            plain = False
        if not plain:
            values = np.array([float(text) if NUMBER.fullmatch(text) else np.nan for text in texts], dtype=np.float64)
        return np.where(np.isfinite(values), values, np.nan)

    def write(self, values: np.ndarray) -> list[str]:
        if self.most is None:
            return [repr(float(v)) for v in values]
        if self.step > 1:
            near = nearest_on(np.asarray(values) * 10.0**self.most, self.step, self.start)
            texts = [f"{Decimal(n).scaleb(-self.most):f}" if self.most else str(n) for n in near]
        else:
            texts = [f"{v:.{self.most}f}" for v in np.round(values, self.most) + 0.0]
        if self.least == self.most:
            return texts
        cut = [text.rstrip("0") for text in texts]
        return [c.ljust(c.index(".") + 1 + self.least, "0") if self.least else c.rstrip(".") for c in cut]

    def plain(self, texts: list[str]) -> list[str]:
        """No space around them, no + before them, no point at their end."""
        return [text.strip().removeprefix("+").removesuffix(".") for text in texts]

    def spelt(self, texts: list[str]) -> list[str]:
        return texts

    def arrow(self) -> str:
        return "int64" if self.most == 0 else "double"


@dataclass(frozen=True)
class LongIntegers:
    """Whole numbers beyond what floats hold: the numbers of this scale count from `origin`, and texts are exact."""

    origin: int
    last: int  # the largest
    step: int = 1
    start: int = 0

    noun: ClassVar[str] = "number"
    note: ClassVar[str] = ""
    said: ClassVar[str] = ""  # of the form, in words

    @classmethod
    def understand(cls, texts: list[str], codes: bool = False) -> "LongIntegers | None":
        """None where a text is no whole number, or is a code and not `codes`, or none is long."""
        lines = "\n".join(texts)
        if not re.fullmatch(r"(?:[-+]?\d+\n)*", lines + "\n") or (not codes and _CODE.search(lines)):
            return None
        whole = list(map(int, texts))
        return cls(min(whole), max(whole)) if max(map(abs, whole)) > EXACT else None

    def narrowed(self, texts: list[str]) -> "LongIntegers":
        return self

    def on_grid(self, texts: list[str]) -> "LongIntegers":
        step, start = grid_of(int(text) - self.origin for text in texts)
        return replace(self, step=step, start=start)

    def parse(self, texts: list[str]) -> np.ndarray:
        parsed = [float(Decimal(text.strip()) - self.origin) if NUMBER.fullmatch(text) else np.nan for text in texts]
        return np.array(parsed, dtype=np.float64)

    def write(self, values: np.ndarray) -> list[str]:
        near = nearest_on(values, self.step, self.start)
        return [str(min(self.origin + whole, self.last)) for whole in near]

    def plain(self, texts: list[str]) -> list[str]:
        return [text.strip().removeprefix("+") for text in texts]

    def spelt(self, texts: list[str]) -> list[str]:
        return texts

    def arrow(self) -> str:
        return "int64"


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
    step: int = 1
    start: int = 0

    noun: ClassVar[str] = "date"
    note: ClassVar[str] = ""
    said: ClassVar[str] = ""  # of the form, in words

    @classmethod
    def understand(cls, texts: list[str]) -> "Dates | None":
        scale = cls.form(texts[0]) if texts else None
        return scale if scale and scale.alike(texts) and not np.isnan(scale.parse(texts)).any() else None

    @classmethod
    def form(cls, text: str) -> "Dates | None":
        """The form that one text is written in."""
        m = DATE.fullmatch(text)
        return m and cls("s" if m[2] else "m" if m[1] else "D", len(m[3] or ""), m[1] or "", m[4] or "")

    def on_grid(self, texts: list[str]) -> "Dates":
        """The same, on the grid of these dates."""
        step, start = grid_of(self.parse(texts).astype(np.int64).tolist())
        return replace(self, step=step, start=start)

    def alike(self, texts: list[str]) -> bool:
        """Whether all are written in this very form."""
        clock = {"D": "", "m": r"\d\d:\d\d", "s": r"\d\d:\d\d:\d\d"}[self.unit]
        digits = rf"\.\d{{{self.digits}}}" if self.digits else ""
        form = rf"\d{{4}}-\d\d-\d\d{self.separator}{clock}{digits}{re.escape(self.zone)}\n"
        return re.fullmatch(f"(?:{form})*", "\n".join([*texts, ""])) is not None

    @property
    def _base(self) -> tuple[str, int]:
        """numpy's unit, and how many of them one step of this scale is."""
        name, per_second = ("us", 10**6) if self.digits <= 6 else ("ns", 10**9)
        return name, _WHOLE_UNIT[self.unit] * per_second // 10**self.digits

    def parse(self, texts: list[str]) -> np.ndarray:
        name, step = self._base
        if not self.alike(texts):
            matches = [DATE.fullmatch(text) for text in texts]
            texts = [m[0] if m and (m[4] or "") == self.zone else "NaT" for m in matches]
        ticks = _moments([text.removesuffix(self.zone) for text in texts], name)
        whole = ~np.isnat(ticks) & (ticks.astype(np.int64) % step == 0)
        steps = ticks.astype(np.int64) // step
        return np.where(whole & (np.abs(steps) <= EXACT), steps.astype(np.float64), np.nan)

    def write(self, values: np.ndarray) -> list[str]:
        name, step = self._base
        near = np.array(nearest_on(values, self.step, self.start), dtype=np.int64)
        ticks = (near * step).astype(f"datetime64[{name}]")
        length = {"D": 10, "m": 16, "s": 19}[self.unit] + (1 + self.digits if self.digits else 0)
        texts = [text[:length] for text in np.datetime_as_string(ticks).tolist()]
        return [text.replace("T", self.separator) + self.zone for text in texts] if self.separator else texts

    def narrowed(self, texts: list[str]) -> "Dates":
        return self

    def plain(self, texts: list[str]) -> list[str]:
        return texts

    def spelt(self, texts: list[str]) -> list[str]:
        return texts

    def arrow(self) -> str:
        if self.unit == "D":
            return "string" if self.zone else "date32"
        if self.zone not in ("", "Z"):
            return "string"
        size = "ms" if self.digits <= 3 else "us" if self.digits <= 6 else "ns"
        return f"timestamp[{size}{', UTC' if self.zone else ''}]"
