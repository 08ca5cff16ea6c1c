"""Dates as people write them: day or month first, with names of months, with years of two digits, with times of day.

A form is written as in `strftime`: %d/%m/%Y, %B %-d, %Y, %m/%d/%y %I:%M %p; %-d and its like are not padded with zeros.
"""

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from unnoise.data.scales import EXACT, grid_of, nearest_on

_YEAR = "january february march april may june july august september october november december"
MONTHS = tuple(re.findall(r"\w+", _YEAR))
_NAMES = {"B": MONTHS, "b": tuple(name[:3] for name in MONTHS)}
_NUMERIC = re.compile(r"(\d{1,4})([/.-])(\d{1,2})\2(\d{4}|\d{1,2})(?!\d)(.*)")
_DAY_NAME = re.compile(r"(\d{1,2})(\.? |[-/.])([A-Za-z]{3,9})([-/. ]|, )(\d{4}|\d{2})(?!\d)(.*)")
_NAME_DAY = re.compile(r"([A-Za-z]{3,9})( )(\d{1,2})(, | )(\d{4})(.*)")
_MONTH = re.compile(r"([A-Za-z]{3,9}|\d{1,2})([-/ ])(\d{4}|(?<=[A-Za-z]-)\d{2})|(\d{4})([-/])(\d{2})")
_CLOCK = re.compile(r"(,? |T)(\d{1,2})(:\d\d)(:\d\d)?(?:( ?)([AaPp])[Mm])?")
_PIECE = {"d": r"\d{1,2}", "m": r"\d{1,2}", "Y": r"\d{4}", "y": r"\d{2}", "H": r"\d{1,2}", "I": r"\d{1,2}"}
_PIECE |= {"M": r"\d\d", "S": r"\d\d", "p": "[AP]M", "P": "[ap]m", "b": "[A-Za-z]{3}", "B": "[A-Za-z]+"}
_SECONDS = {"D": 86_400, "m": 60, "s": 1}
UNCLEAR = (
    "its dates fit with the day first or the month first: read with the day first; to overrule it, say form: month first"
)


@lru_cache
def _pattern(form: str) -> re.Pattern[str]:
    pieces = re.split(r"%-?([a-zA-Z])", form)
    return re.compile("".join(f"(?P<{p}>{_PIECE[p]})" if i % 2 else re.escape(p) for i, p in enumerate(pieces)))


@dataclass(frozen=True)
class WrittenDates:
    """Dates or times of one form."""

    form: str
    case: str = "title"  # of the names of months: title, upper or lower
    first_year: int = 0  # the first of the hundred years that years of two digits are among
    step: int = 1
    start: int = 0
    note: str = ""  # what is unclear about it

    noun: ClassVar[str] = "date"

    @classmethod
    def understand(cls, texts: list[str], day_first: bool | None = None) -> "WrittenDates | None":
        """None where they have no common form.  `day_first`: what other columns, or people, say of the order."""
        if not texts:
            return None
        good = [made for form in _forms(texts[0]) if (made := cls._of(form, texts)) is not None]
        if len(good) < 2 or good[0].order is None:
            return good[0] if good else None
        first, second = (np.array([int(_found(made.form, text)["d"]) for text in texts]) for made in good)
        guess = day_first if day_first is not None else _likely(texts[0], first, second)
        made = good[1] if guess is False else good[0]  # the form with the day first stands first
        return made if guess is not None else replace(made, note=UNCLEAR)

    @classmethod
    def _of(cls, form: str, texts: list[str]) -> "WrittenDates | None":
        pattern = _pattern(form)
        found = [pattern.fullmatch(text) for text in texts]
        if not all(found):
            return None
        for piece in "dmHI":
            if f"%{piece}" in form and any(len(m[piece]) == 1 for m in found if m):
                form = form.replace(f"%{piece}", f"%-{piece}")
        name = next((m[piece] for piece in "bB" if f"%{piece}" in form for m in found[:1] if m), "")
        case = "upper" if name.isupper() else "lower" if name.islower() else "title"
        years = {int(m["y"]) for m in found if m} if "%y" in form else set()
        made = cls(form, case, _first_year(years) if years else 0)
        return None if np.isnan(made.parse(texts)).any() else made

    @property
    def unit(self) -> str:
        day = re.search("%-?d", self.form)
        return "M" if not day else "s" if "%S" in self.form else "m" if "%M" in self.form else "D"

    @property
    def order(self) -> bool | None:
        """Whether the day stands before the month; None where they cannot be confused."""
        day, month = re.search("%-?d", self.form), re.search("%-?m", self.form)
        return None if self.form.startswith("%Y") or not (day and month) else day.start() < month.start()

    @property
    def said(self) -> str:
        return "" if self.order is None else "day first" if self.order else "month first"

    @property
    def evidence(self) -> bool | None:
        """What it says of the order in other columns."""
        return None if self.note else self.order

    def narrowed(self, texts: list[str]) -> "WrittenDates":
        return self

    def on_grid(self, texts: list[str]) -> "WrittenDates":
        step, start = grid_of(self.parse(texts).astype(np.int64).tolist())
        return replace(self, step=step, start=start)

    def parse(self, texts: list[str]) -> np.ndarray:
        pattern = _pattern(self.form)
        rows = [self._numbers(match) if (match := pattern.fullmatch(text)) else (0, 0, 0, 0) for text in texts]
        year, month, day, second = np.array(rows, dtype=np.int64).reshape(-1, 4).T
        good = (month >= 1) & (month <= 12) & (day >= 1) & (second >= 0)
        months = ((year - 1970) * 12 + month - 1).astype("datetime64[M]")
        good &= day <= ((months + 1).astype("datetime64[D]") - months.astype("datetime64[D]")).astype(np.int64)
        if self.unit == "M":
            number = months.astype(np.int64)
        else:
            days = months.astype("datetime64[D]").astype(np.int64) + day - 1
            number = (days * 86_400 + second) // _SECONDS[self.unit]
        return np.where(good & (np.abs(number) <= EXACT), number.astype(np.float64), np.nan)

    def _numbers(self, match: re.Match[str]) -> tuple[int, int, int, int]:
        """Year, month, day and second of the day; the second is negative where there is no such time."""
        at = match.groupdict()
        year = int(at["Y"]) if "Y" in at else self.first_year + (int(at["y"]) - self.first_year) % 100
        if "m" in at:
            month = int(at["m"])
        else:
            piece = "b" if "b" in at else "B"
            name = at[piece].lower()
            month = _NAMES[piece].index(name) + 1 if name in _NAMES[piece] else 0
        hour, good = int(at.get("H", 0)), True
        if "I" in at:
            half = at.get("p", at.get("P", "")).lower()
            good, hour = 1 <= int(at["I"]) <= 12, int(at["I"]) % 12 + 12 * (half == "pm")
        minute, second = int(at.get("M", 0)), int(at.get("S", 0))
        good = good and hour < 24 and minute < 60 and second < 60
        return year, month, int(at.get("d", 1)), hour * 3600 + minute * 60 + second if good else -1

    def write(self, values: np.ndarray) -> list[str]:
        near = np.array(nearest_on(values, self.step, self.start), dtype=np.int64)
        return [self._written(text) for text in self._iso(near)]

    def _iso(self, numbers: np.ndarray) -> list[str]:
        if self.unit == "M":
            ticks = numbers.astype("datetime64[M]").astype("datetime64[s]")
        else:
            ticks = (numbers * _SECONDS[self.unit]).astype("datetime64[s]")
        return np.datetime_as_string(ticks).tolist()

    def _written(self, iso: str) -> str:
        year, month, day, hour = int(iso[:-15]), int(iso[-14:-12]), int(iso[-11:-9]), int(iso[-8:-6])
        half = "PM" if hour >= 12 else "AM"
        at = {"Y": f"{year:04d}", "y": f"{year % 100:02d}", "M": iso[-5:-3], "S": iso[-2:], "p": half, "P": half.lower()}
        at |= {piece: getattr(names[month - 1], self.case)() for piece, names in _NAMES.items()}
        for piece, number in {"d": day, "m": month, "H": hour, "I": (hour - 1) % 12 + 1}.items():
            at |= {piece: f"{number:02d}", f"-{piece}": str(number)}
        return re.sub(r"%(-?[a-zA-Z])", lambda piece: at[piece[1]], self.form)

    def plain(self, texts: list[str]) -> list[str]:
        numbers = self.parse(texts)
        known = ~np.isnan(numbers)
        iso = iter(self._iso(numbers[known].astype(np.int64)))
        length = {"M": 10, "D": 10}.get(self.unit, 19)
        return [next(iso)[:length] if good else "" for good in known]

    def spelt(self, texts: list[str]) -> list[str]:
        """ISO dates in this form."""
        result = []
        for text in texts:
            match = re.fullmatch(r"(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d(?::\d\d)?))?(?:\.0*)?", text)
            result.append(self._written(f"{match[1]}T{(match[2] or '00:00') + ':00':.8}") if match else text)
        return result

    def arrow(self) -> str:
        return "date32" if self.unit in "MD" else "timestamp[s]"


def _found(form: str, text: str) -> re.Match[str]:
    match = _pattern(form).fullmatch(text)
    assert match is not None
    return match


def _forms(text: str) -> list[str]:
    """Forms that one text may be of; where days and months may be confused, that with the day first is the first."""
    if match := _NUMERIC.fullmatch(text):
        first, sep, _, last, clock = match.groups()
        year = "%Y" if len(last) == 4 else "%y"
        dates = [f"%d{sep}%m{sep}{year}", f"%m{sep}%d{sep}{year}"] if len(first) < 3 and len(last) > 1 else []
        dates = [f"%Y{sep}%m{sep}%d"] if len(first) == 4 and len(last) < 3 else dates
    elif match := _DAY_NAME.fullmatch(text):
        _, one, _, two, last, clock = match.groups()
        dates = [f"%d{one}%{name}{two}{'%Y' if len(last) == 4 else '%y'}" for name in "bB"]
    elif match := _NAME_DAY.fullmatch(text):
        dates, clock = [f"%{name} %d{match[4]}%Y" for name in "bB"], match[6]
    elif match := _MONTH.fullmatch(text):
        year = "%Y" if len(match[3] or "") == 4 else "%y"
        names = ["m"] if (match[1] or "").isdigit() else ["b", "B"]
        dates = [f"%Y{match[5]}%m"] if match[4] else [f"%{name}{match[2]}{year}" for name in names]
        clock = ""
    else:
        return []
    times = _clock(clock)
    return [] if times is None else [date + times for date in dates]


def _clock(text: str) -> str | None:
    if not text:
        return ""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    half = "" if match[6] is None else match[5] + ("%p" if match[6].isupper() else "%P")
    return match[1] + ("%I" if half else "%H") + ":%M" + (":%S" if match[4] else "") + half


def _likely(text: str, first: np.ndarray, second: np.ndarray) -> bool | None:
    """Whether the day is first where both orders fit: the part that is 1 throughout is the day; points are written in
    countries that put the day first, AM and PM in those that do not."""
    if len(set(first)) > 1 and set(second) == {1}:
        return False
    if len(set(second)) > 1 and set(first) == {1}:
        return True
    if "." in text.split(" ")[0]:
        return True
    return False if re.search("[ap]m", text, re.IGNORECASE) else None


def _first_year(years: set[int]) -> int:
    """In the middle of the longest run of two-digit years that do not occur: 45 ... 99, 00 ... 05 are 1945 ... 2005."""
    known = sorted(years)
    gaps = [((after - before) % 100 or 100, after) for before, after in zip([known[-1], *known[:-1]], known, strict=True)]
    gap, first = max(gaps)
    last = first + 100 - gap
    century = 1900 if last >= 69 else 2000
    return century + first - gap // 2
