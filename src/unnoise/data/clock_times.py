"""Times of day written with colons, as hours: 08:30 is 8.5, with seconds where the texts have them."""

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2})(\.\d+)?)?")
DAY = 24 * 60


@dataclass(frozen=True)
class ClockTimes:
    """`HH:MM`, or with `seconds` `HH:MM:SS` and so many `decimals` of them; `padded`: 08:30, not 8:30."""

    seconds: bool = False
    padded: bool = True
    decimals: int = 0

    noun: ClassVar[str] = "time of day"
    note: ClassVar[str] = ""

    @property
    def said(self) -> str:
        return "times of day"

    @classmethod
    def understand(cls, texts: list[str]) -> "ClockTimes | None":
        """None where a text is no time of day, or some have seconds and some have not."""
        found = [CLOCK.fullmatch(text.strip()) for text in texts]
        if not texts or any(one is None for one in found):
            return None
        seconds = {one[3] is not None for one in found if one}
        decimals = {len(one[4] or ".") - 1 for one in found if one}
        scale = cls(seconds.pop(), all(one and len(one[1]) == 2 for one in found), max(decimals))
        return None if seconds or np.isnan(scale.parse(texts)).any() else scale

    def narrowed(self, texts: list[str]) -> "ClockTimes":
        return self

    def on_grid(self, texts: list[str]) -> "ClockTimes":
        return self

    def parse(self, texts: list[str]) -> np.ndarray:
        return np.array([self._hours(text) for text in texts], dtype=np.float64)

    def _hours(self, text: str) -> float:
        found = CLOCK.fullmatch(text.strip())
        if found is None:
            return np.nan
        hours, minutes, seconds = int(found[1]), int(found[2]), float(found[3] or 0) + float(found[4] or 0)
        return hours + minutes / 60 + seconds / 3600 if hours < 24 and minutes < 60 and seconds < 60 else np.nan

    def write(self, values: np.ndarray) -> list[str]:
        unit = 60 * 10**self.decimals if self.seconds else 1
        ticks = np.round(np.asarray(values, dtype=np.float64) * 60 * unit).astype(np.int64) % (DAY * unit)
        return [self._text(int(tick), unit) for tick in ticks]

    def _text(self, tick: int, unit: int) -> str:
        minutes, rest = divmod(tick, unit)
        hour = f"{minutes // 60:02d}" if self.padded else str(minutes // 60)
        text = f"{hour}:{minutes % 60:02d}"
        if not self.seconds:
            return text
        whole, part = divmod(rest, 10**self.decimals)
        return f"{text}:{whole:02d}" + (f".{part:0{self.decimals}d}" if self.decimals else "")

    def plain(self, texts: list[str]) -> list[str]:
        return [text.strip() for text in texts]

    def spelt(self, texts: list[str]) -> list[str]:
        """Texts of a typed column, which always have seconds, as this scale writes them."""
        return [
            text if np.isnan(hours) else self.write(np.array([hours]))[0] for text in texts for hours in [self._hours(text)]
        ]

    def arrow(self) -> str:
        return "string"
