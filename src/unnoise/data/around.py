"""Numbers that begin again after a period, as angles and back: hours of the day, days of the year, degrees.

    angle = 2 pi x/period  (mod 2 pi, in [-pi, pi)),        x = low + (period angle/(2 pi) - low  mod  period)

so that a number comes back in [low, low + period), where the data lie.  A number on a grid owns the interval of half a step
on both sides, and `encode` draws a point in it, so that the angles have a density; `decode` takes the nearest number of the
grid all around.  Where the period is no whole number of steps (365.25 days) the first and the last number of the grid are
nearer to each other than a step, and share what lies between them.
"""

from dataclasses import dataclass
from math import ceil, pi
from typing import Any, ClassVar

import numpy as np

from unnoise.data.straight import EVEN, MOST_STEPS

PERIODS = {
    "radians": 2 * pi,
    "degrees": 360.0,
    "hours": 24.0,
    "minutes": 60.0,
    "weekdays": 7.0,
    "months": 12.0,
    "days": 365.25,
}
SLACK = 1e-9  # of a period, by which rounding may carry a number over its end


def turn(period: float) -> str:
    """A period as people write it."""
    return "2 pi" if abs(period - 2 * pi) < 1e-9 else f"{period:.6g}"


@dataclass(frozen=True, eq=False)
class Around:
    """Numbers with a period; `values` are the least and the largest that were seen."""

    values: np.ndarray
    period: float
    low: float
    step: float  # 0: on no grid
    closed: ClassVar[bool] = True

    @property
    def limits(self) -> tuple[float, float]:
        """Once around; whole numbers up to the whole end of the period, since a year has a day 366."""
        end = self.low + self.period
        return self.low - SLACK * self.period, (ceil(end) if self.step >= 1 else end) + SLACK * self.period

    @classmethod
    def fit(cls, x: np.ndarray, period: float) -> "Around":
        values = np.unique(x)
        least, most = float(values[0]), float(values[-1])
        if most - least > period * (1 + SLACK):
            raise ValueError(f"numbers from {least:g} to {most:g} are more than once around a period of {turn(period)}")
        step = float(np.diff(values).min()) if len(values) > 1 else 0.0
        places = (values - values[0]) / step if step else values
        on_grid = step > 0 and period / step <= MOST_STEPS and bool((np.abs(places - np.round(places)) < EVEN).all())
        return cls(values[[0, -1]], period, _low(least, most, period), step if on_grid else 0.0)

    @property
    def last(self) -> int:
        """The number of the grid's last place before the period is over, counted from `values[0]`'s residue above low."""
        return int(np.ceil((self.period - (self._first - self.low)) / self.step - SLACK)) - 1

    @property
    def _first(self) -> float:
        """The first number of the grid in [low, low + period)."""
        first = self.low + (self.values[0] - self.low) % self.step
        return self.low if self.low + self.step - first < EVEN * self.step else float(first)

    @property
    def _gap(self) -> float:
        """From the last number of the grid to the first, the other way round."""
        return self.period - self.last * self.step

    def encode(self, x: np.ndarray, place: np.ndarray | float = 0.5) -> np.ndarray:
        """Angles in [-pi, pi); `place` in (0, 1), one per row or one for all, says where in its interval a number goes."""
        x = np.asarray(x, dtype=np.float64)
        if self.step:
            k = np.round((self._inside(x) - self._first) / self.step)
            off = (place - 0.5) * self.step
            outward = ((k >= self.last) & (off > 0)) | ((k <= 0) & (off < 0))
            x = x + np.where(outward, off * (self._gap / self.step), off)
        angle = 2 * pi * (x / self.period)
        return angle - 2 * pi * np.floor((angle + pi) / (2 * pi))

    def decode(self, angle: np.ndarray) -> np.ndarray:
        x = self._inside(np.asarray(angle, dtype=np.float64) / (2 * pi) * self.period)
        if not self.step:
            return x
        place = (x - self._first) / self.step
        k = np.round(place)
        beyond = place * self.step > self.last * self.step + self._gap / 2
        before = (self._first - x) > self._gap / 2
        k = np.where(beyond, 0, np.where(before, self.last, np.clip(k, 0, self.last)))
        return self._first + k * self.step

    def _inside(self, x: np.ndarray) -> np.ndarray:
        """The same in [low, low + period), the end being the beginning up to rounding."""
        turn = (x - self.low) % self.period
        return self.low + np.where(turn > self.period * (1 - SLACK), 0.0, turn)

    def to_json(self) -> dict[str, Any]:
        return {"values": self.values.tolist(), "period": self.period, "low": self.low, "step": self.step}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Around":
        return cls(**{**data, "values": np.array(data["values"], dtype=np.float64)})


def _low(least: float, most: float, period: float) -> float:
    """Where numbers of this range begin: at 0, half a period before it, or at the least (hours 1 to 24)."""
    if least >= 0 and most < period * (1 - SLACK):
        return 0.0
    if least >= -period / 2 * (1 + SLACK) and most <= period / 2 * (1 + SLACK):
        return -period / 2
    return least
