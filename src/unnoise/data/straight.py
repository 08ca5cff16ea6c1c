"""Numbers as they are, centred and scaled, and back.

A number on a grid owns the interval of half a step on both sides: `encode` draws a point in it, and `decode` leaves it to
the column's scale to write the point on its grid again.  So the scores have a density, as those of `Quantiles`.  Numbers on
no grid have a score each; up to `KNOTS` of them are kept, so that they come back to the last digit.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from unnoise.data.quantiles import FURTHEST, KNOTS, SNAP

MOST_STEPS = 1e6  # of a grid, from end to end, that scores in float32 tell apart
EVEN = 1e-3  # of a step: how far a number may lie off its grid


@dataclass(frozen=True, eq=False)
class Straight:
    """Numbers of the range `values`, less `centre`, in units of `unit`; decoded ones stay in that range."""

    values: np.ndarray  # in order; of a grid the least and the largest
    centre: float
    unit: float
    step: float  # 0: on no grid
    closed: ClassVar[bool] = False
    limits: ClassVar[None] = None

    @classmethod
    def fit(cls, x: np.ndarray, grid: bool = True) -> "Straight":
        """Of numbers that may lie on a grid, unless told otherwise."""
        values = np.unique(x)
        if len(values) < 2 or not np.isfinite(values).all():
            raise ValueError(f"{len(values)} distinct values: a scale needs finite ones, at least two")
        step = float(np.diff(values).min())
        places = (values - values[0]) / step
        on_grid = grid and places[-1] <= MOST_STEPS and bool((np.abs(places - np.round(places)) < EVEN).all())
        kept = values if not on_grid and len(values) <= KNOTS else values[[0, -1]]
        return cls(kept, float(np.mean(x)), float(np.std(x)), step if on_grid else 0.0)

    def encode(self, x: np.ndarray, place: np.ndarray | float = 0.5) -> np.ndarray:
        """Scores; `place` in (0, 1), one per row or one for all, says where in its interval a number goes."""
        point = np.asarray(x, dtype=np.float64) + (place - 0.5) * self.step
        return np.clip((point - self.centre) / self.unit, -FURTHEST, FURTHEST)

    def decode(self, z: np.ndarray) -> np.ndarray:
        z = np.asarray(z, dtype=np.float64)
        x = np.clip(self.centre + self.unit * z, self.values[0], self.values[-1])
        right = np.clip(np.searchsorted(self.values, x), 1, len(self.values) - 1)
        near = np.where(x - self.values[right - 1] < self.values[right] - x, right - 1, right)
        found = self.values[near]
        return np.where(np.abs(x - found) <= SNAP * self.unit * np.abs(z), found, x)

    def to_json(self) -> dict[str, Any]:
        return {"values": self.values.tolist(), "centre": self.centre, "unit": self.unit, "step": self.step}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Straight":
        return cls(**{**data, "values": np.array(data["values"], dtype=np.float64)})
