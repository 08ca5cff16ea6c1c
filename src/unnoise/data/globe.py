"""Places on the globe: latitude and longitude as one point of the unit sphere, and back.

    x = (cos a cos o, cos a sin o, sin a),        a = atan2(x_3, |(x_1, x_2)|),     o = atan2(x_2, x_1)

which keeps the digits of float32 at the poles and at the equator: 4e-8 radians, two millionths of a degree.  The surface
measure is cos a da do, so that a uniform point has sin a uniform on [-1, 1] and o uniform around: that is what stands where
one of the two is missing.  Given the other, a missing longitude has the density 1/(2 pi) and a missing sin a the density
1/2, in the measure d(sin a) do.

A number on a grid owns half a step on both sides, as in `around`, but for the last hundredth of it, which rounding may need;
at the poles what is left of that.  Finer grids than `MOST_STEPS` around need no interval, since the noise is wider.
"""

from dataclasses import dataclass, replace
from math import log, pi
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from unnoise.data.around import Around
from unnoise.data.joint_leaf import JointLeaf
from unnoise.data.straight import EVEN, MOST_STEPS
from unnoise.noise import NoiseSource
from unnoise.processes import Process, SphereHeat
from unnoise.shapes import Bool, Float
from unnoise.spaces import Space, Sphere

KINDS = ("latitude", "longitude")
DEGREES = 360.0
INSIDE = 0.98  # of an interval, in which a number is put


@dataclass(frozen=True, eq=False)
class Parallels:
    """Latitudes, in [-period/4, period/4]; `values` are the least and the largest that were seen."""

    values: np.ndarray
    period: float  # 360, or 2 pi for radians
    step: float  # 0: on no grid
    closed: ClassVar[bool] = True

    @classmethod
    def fit(cls, x: np.ndarray, period: float) -> "Parallels":
        values = np.unique(x)
        step = float(np.diff(values).min()) if len(values) > 1 else 0.0
        places = (values - values[0]) / step if step else values
        on_grid = step > 0 and period / step <= MOST_STEPS and bool((np.abs(places - np.round(places)) < EVEN).all())
        return cls(values[[0, -1]], period, step if on_grid else 0.0)

    @property
    def limits(self) -> tuple[float, float]:
        return limits(KINDS[0], self.period)

    def encode(self, x: np.ndarray, place: np.ndarray | float = 0.5) -> np.ndarray:
        """Radians; `place` in (0, 1), one per row or one for all, says where in its interval a number goes."""
        pole = self.period / 4
        point = np.asarray(x, dtype=np.float64) + INSIDE * (place - 0.5) * self.step
        return 2 * pi / self.period * np.where(np.abs(point) > pole, np.sign(point) * 2 * pole - point, point)

    def decode(self, angle: np.ndarray) -> np.ndarray:
        x, pole = np.asarray(angle, dtype=np.float64) / (2 * pi) * self.period, self.period / 4
        if self.step:
            first = self.values[0] - self.step * np.floor((self.values[0] + pole) / self.step + EVEN)
            last = np.floor((pole - first) / self.step + EVEN)
            x = first + self.step * np.clip(np.round((x - first) / self.step), 0, last)
        return np.clip(x, -pole, pole)

    def to_json(self) -> dict[str, Any]:
        return {"values": self.values.tolist(), "period": self.period, "step": self.step}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Parallels":
        return cls(**{**data, "values": np.array(data["values"], dtype=np.float64)})


@dataclass(frozen=True, eq=False)
class Meridians:
    """Longitudes: from -period/2 on, or from 0 on where some lie beyond period/2."""

    around: Around
    closed: ClassVar[bool] = True

    @classmethod
    def fit(cls, x: np.ndarray, period: float) -> "Meridians":
        around = Around.fit(x, period)
        return cls(replace(around, low=-period / 2) if around.values[-1] <= period / 2 else around)

    @property
    def values(self) -> np.ndarray:
        return self.around.values

    @property
    def period(self) -> float:
        return self.around.period

    @property
    def limits(self) -> tuple[float, float]:
        return limits(KINDS[1], self.period)

    def encode(self, x: np.ndarray, place: np.ndarray | float = 0.5) -> np.ndarray:
        """Radians."""
        return self.around.encode(x, 0.5 + INSIDE * (place - 0.5))

    def decode(self, angle: np.ndarray) -> np.ndarray:
        return self.around.decode(angle)

    def to_json(self) -> dict[str, Any]:
        return self.around.to_json()

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Meridians":
        return cls(Around.from_json(data))


class Globe(JointLeaf):
    """A latitude and a longitude."""

    noun = "a place is one point"
    told = "on the sphere"

    @property
    def space(self) -> Space:
        return Sphere(2)

    def process(self) -> Process:
        return SphereHeat(2)

    @property
    def anywhere(self) -> Float[np.ndarray, "3"]:
        return np.array([0.0, 0.0, 1.0])

    def encode(
        self, scores: Float[np.ndarray, "rows 2"], known: Bool[np.ndarray, "rows 2"], noise: NoiseSource
    ) -> Float[np.ndarray, "rows 3"]:
        u, v = (2 * noise.at(name).uniform().numpy() - 1 for name in KINDS)
        latitude, longitude = np.where(known, scores, np.stack([np.arcsin(u), pi * v], 1)).T
        return points(latitude, longitude)

    def decode(self, x: Float[np.ndarray, "rows 3"]) -> Float[np.ndarray, "rows 2"]:
        return np.stack(radians(x), 1)

    def log_fill(self, x: Float[Tensor, "rows 3"], known: Bool[Tensor, "rows 2"]) -> Float[Tensor, "rows"]:
        missing = (~known).double()
        return -log(2.0) * missing[:, 0] - log(2 * pi) * missing[:, 1]


def limits(kind: str, period: float = DEGREES) -> tuple[float, float]:
    """Between which a latitude or a longitude lies; of longitudes, those that count from 0 to 360 too."""
    return (-period / 4, period / 4) if kind == "latitude" else (-period / 2, period)


def points(latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """Unit vectors [rows, 3] of radians."""
    wide = np.cos(latitude)
    return np.stack([wide * np.cos(longitude), wide * np.sin(longitude), np.sin(latitude)], -1)


def radians(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Latitudes and longitudes of unit vectors."""
    return np.arctan2(x[:, 2], np.hypot(x[:, 0], x[:, 1])), np.arctan2(x[:, 1], x[:, 0])


def reach(latitude: np.ndarray, longitude: np.ndarray, share: float = 0.95) -> float:
    """The angle around their middle in which this share of points lies; pi where they have no middle."""
    x = points(latitude, longitude)
    middle = x.mean(0)
    length = float(np.linalg.norm(middle))
    return pi if length < 1e-6 else float(np.arccos(np.clip(np.quantile(x @ middle / length, 1 - share), -1, 1)))
