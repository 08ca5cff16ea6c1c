"""Numbers as standard normal scores, and back.

Sorted, the i-th of n training values stands at z = Phi^{-1}((i - 1/2) / n), so the scores are normal whatever the law of the
values.  A value seen c times owns the interval between its first and its last place: `encode` draws a point in it, `decode`
maps all of it back to that value.  Between the places of neighbouring values both maps are linear in z, so they are monotone
and inverse to each other.

Up to `KNOTS` distinct values are all kept.  Beyond, half of the knots are even in probability and half even in z (these
follow the tails), and any value that holds a share of 1 / KNOTS keeps its interval.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch

KNOTS = 2000
FURTHEST = 8.0  # scores of values far outside the training range go no further
SNAP = 2.0**-23  # relative: a score that was rounded to float32 still finds its knot


def _score(u: np.ndarray) -> np.ndarray:
    return torch.special.ndtri(torch.as_tensor(u, dtype=torch.float64)).numpy()


def _probability(z: np.ndarray) -> np.ndarray:
    return torch.special.ndtr(torch.as_tensor(z, dtype=torch.float64)).numpy()


@dataclass(frozen=True, eq=False)
class Quantiles:
    """A monotone map of numbers to scores: `values` in increasing order, each with the interval of scores it owns."""

    values: np.ndarray
    low: np.ndarray
    high: np.ndarray
    clip: bool = True  # decoded numbers stay within the observed range; otherwise the last slope goes on
    closed: ClassVar[bool] = False
    limits: ClassVar[None] = None

    @classmethod
    def fit(cls, x: np.ndarray, knots: int = KNOTS, clip: bool = True) -> "Quantiles":
        x = np.asarray(x, dtype=np.float64)
        if x.size == 0 or not np.isfinite(x).all():
            raise ValueError(
                f"{x.size} values, of which {np.isfinite(x).sum()} finite: quantiles need finite values, at least one"
            )
        values, counts = np.unique(x, return_counts=True)
        last = np.cumsum(counts)
        low, high = _score((last - counts + 0.5) / x.size), _score((last - 0.5) / x.size)
        if len(values) > knots:
            even = _score((np.arange(knots // 2) + 0.5) / (knots // 2))
            tails = np.linspace(low[0], high[-1], knots // 2)
            grid = np.minimum(np.searchsorted(high, np.concatenate([even, tails])), len(values) - 1)
            heavy = np.flatnonzero(counts * knots >= x.size)
            keep = np.unique(np.concatenate([[0, len(values) - 1], grid, heavy]))
            values, low, high = values[keep], low[keep], high[keep]
        return cls(values, low, high, clip)

    def encode(self, x: np.ndarray, place: np.ndarray | float = 0.5) -> np.ndarray:
        """Scores; `place` in (0, 1), one per row or one for all, says where in its interval a repeated value goes."""
        x = np.asarray(x, dtype=np.float64)
        last = len(self.values) - 1
        i = np.clip(np.searchsorted(self.values, x, side="right") - 1, 0, last)
        j = np.minimum(i + 1, last)
        gap = np.where(j > i, self.values[j] - self.values[i], 1.0)
        between = self.high[i] + (x - self.values[i]) / gap * (self.low[j] - self.high[i])
        below, above = _probability(self.low[i]), _probability(self.high[i])
        within = np.where(below < above, _score(below + place * (above - below)), self.low[i])
        z = np.where(self.values[i] == x, within, between)
        if last:
            z = np.where(x < self.values[0], self.low[0] + (x - self.values[0]) / self._slope(0), z)
            z = np.where(x > self.values[-1], self.high[-1] + (x - self.values[-1]) / self._slope(last - 1), z)
        return np.clip(z, -FURTHEST, FURTHEST)

    def _slope(self, i: int) -> float:
        return float((self.values[i + 1] - self.values[i]) / (self.low[i + 1] - self.high[i]))

    def decode(self, z: np.ndarray) -> np.ndarray:
        z = np.asarray(z, dtype=np.float64)
        ends = np.stack([self.low, self.high], 1).ravel()  # the two ends of each interval in turn
        numbers = self.values.repeat(2)
        first = np.r_[True, ends[1:] > ends[:-1]]
        x = np.interp(z, ends[first], numbers[first])
        if not self.clip and len(self.values) > 1:
            x = np.where(z < ends[0], self.values[0] + (z - ends[0]) * self._slope(0), x)
            x = np.where(z > ends[-1], self.values[-1] + (z - ends[-1]) * self._slope(len(self.values) - 2), x)
        right = np.clip(np.searchsorted(ends, z), 1, len(ends) - 1)
        near = np.where(z - ends[right - 1] < ends[right] - z, right - 1, right)
        return np.where(np.abs(z - ends[near]) <= SNAP * np.abs(z), numbers[near], x)

    def to_json(self) -> dict[str, Any]:
        return {
            "values": self.values.tolist(),
            "low": self.low.tolist(),
            "high": self.high.tolist(),
            "clip": self.clip,
        }

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Quantiles":
        values, low, high = (np.array(data[name], dtype=np.float64) for name in ("values", "low", "high"))
        return cls(values, low, high, data["clip"])
