"""Arrays whose examples are points of a space with bounds or without ends, as told by `--option space=...`:

    rotations      unit quaternions [rows, 4], the real part first, or matrices [rows, 3, 3]      un.RotationHeat
    sphere         unit vectors [rows, 2 to 10]                                                   un.SphereHeat
    angles         radians, of any shape, in [-pi, pi] or [0, 2 pi]                               un.WrappedNormal
    composition    shares that sum to one, [rows, 2 or more]                                      un.WrightFisher

States are points of the space to the last digit of float32: what differs from one by no more than `ROUNDING`, as numbers of
few decimals do, is brought there.  q and -q are one rotation, and come back as the one whose first entry is not negative.
Were the real part the last, that would be all the difference: heat knows no axes.
"""

from abc import ABC, abstractmethod
from math import pi
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from unnoise.data.base import BadData
from unnoise.processes import Process, RotationHeat, SphereHeat, WrappedNormal, WrightFisher
from unnoise.rotation_matrices import from_quaternions, nearest, to_quaternions

ROUNDING = 1e-3  # by which a length, a sum or an entry of x^T x may differ from what it should be
END = 1e-5  # beyond its range, that rounding may carry an angle
TURN = 2 * pi
MOST = 10  # entries of a unit vector


class Points(ABC):
    """One kind of them."""

    noun: ClassVar[str]
    wanted: ClassVar[str]  # the shape of the array
    whole: ClassVar[bool] = True  # whether an example is known or missing as one

    @abstractmethod
    def said(self, shape: tuple[int, ...]) -> str:
        """How the numbers of an example are read."""

    @abstractmethod
    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether an example may have this shape."""

    @abstractmethod
    def process(self, shape: tuple[int, ...]) -> Process: ...

    @abstractmethod
    def wrong(self, values: np.ndarray) -> str | None:
        """What is wrong with the first row that is no such point, and the remedy."""

    @abstractmethod
    def states(self, values: np.ndarray) -> Tensor:
        """Of examples in float64."""

    def values(self, x: np.ndarray, shape: tuple[int, ...], start: float) -> np.ndarray:
        """Examples of states; angles are counted from `start` on."""
        return x

    def span(self, values: np.ndarray, where: str) -> list[float] | None:
        """Between which the numbers lie, where there is a choice."""
        return None

    @abstractmethod
    def anywhere(self, shape: tuple[int, ...]) -> np.ndarray:
        """A point, for where none is known."""

    def check(self, values: np.ndarray, where: str) -> None:
        if not self.fits(values.shape[1:]):
            raise BadData(f"{where}: has the shape {values.shape}, and {self.noun} are {self.wanted}: reshape it")
        if np.issubdtype(values.dtype, np.floating) and not np.isfinite(values).all():
            place = np.argwhere(~np.isfinite(values))[0].tolist()
            raise BadData(f"{where}: the entry {place} is {values[tuple(place)]}: drop or impute it first")
        if why := self.wrong(values.astype(np.float64)):
            raise BadData(f"{where}: {why}")
        if not np.issubdtype(values.dtype, np.floating):
            raise BadData(f"{where}: holds {values.dtype}, and samples of {self.noun} are floats: pass .astype(np.float32)")


class RotationPoints(Points):
    noun = "rotations"
    wanted = "quaternions [rows, 4] or matrices [rows, 3, 3]"

    def said(self, shape: tuple[int, ...]) -> str:
        return "matrices" if len(shape) == 2 else "quaternions, the real part first"

    def fits(self, shape: tuple[int, ...]) -> bool:
        return shape in ((4,), (3, 3))

    def process(self, shape: tuple[int, ...]) -> Process:
        return RotationHeat()

    def wrong(self, values: np.ndarray) -> str | None:
        if values.ndim == 2:
            return _not_unit(values, "quaternion")
        gap = np.abs(values.transpose(0, 2, 1) @ values - np.eye(3)).max((1, 2))
        if (gap > ROUNDING).any():
            row = int(np.argmax(gap > ROUNDING))
            return (
                f"row {row} is no rotation, as x^T x differs from 1 by {gap[row]:.3g}: pass matrices whose columns are "
                f"orthogonal and of length 1, such as un.Rotations().project(x) of a tensor x"
            )
        mirrored = np.linalg.det(values) < 0
        if not mirrored.any():
            return None
        return (
            f"row {int(np.argmax(mirrored))} is a reflection, of determinant -1: exchange two of its axes, or turn one of "
            f"them round"
        )

    def states(self, values: np.ndarray) -> Tensor:
        x = torch.as_tensor(values)
        return nearest(x if x.ndim == 3 else from_quaternions(x)).float()

    def values(self, x: np.ndarray, shape: tuple[int, ...], start: float) -> np.ndarray:
        r = nearest(torch.as_tensor(x))
        return (to_quaternions(r) if shape == (4,) else r).numpy()

    def anywhere(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.eye(*shape) if len(shape) == 2 else np.eye(4)[0]


class SpherePoints(Points):
    noun = "points of a sphere"
    wanted = f"unit vectors [rows, 2 to {MOST}]"

    def said(self, shape: tuple[int, ...]) -> str:
        return "unit vectors"

    def fits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == 1 and 2 <= shape[0] <= MOST

    def process(self, shape: tuple[int, ...]) -> Process:
        return SphereHeat(shape[0] - 1)

    def wrong(self, values: np.ndarray) -> str | None:
        return _not_unit(values, "vector")

    def states(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values / np.linalg.norm(values, axis=1, keepdims=True)).float()

    def values(self, x: np.ndarray, shape: tuple[int, ...], start: float) -> np.ndarray:
        return x / np.linalg.norm(x, axis=1, keepdims=True)

    def anywhere(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.eye(shape[0])[-1]


class AnglePoints(Points):
    noun = "angles"
    wanted = "radians [rows, ...]"
    whole = False

    def said(self, shape: tuple[int, ...]) -> str:
        return "radians"

    def fits(self, shape: tuple[int, ...]) -> bool:
        return True

    def process(self, shape: tuple[int, ...]) -> Process:
        return WrappedNormal(shape)

    def wrong(self, values: np.ndarray) -> str | None:
        outside = (values < -pi - END) | (values > TURN + END)
        if not outside.any():
            return None
        place = np.argwhere(outside)[0].tolist()
        degrees = "np.radians(x) of degrees, or " if np.abs(values).max() > TURN + END else ""
        return (
            f"the entry {place} is {values[tuple(place)]:g}, and angles are radians in [-pi, pi] or [0, 2 pi]: pass "
            f"{degrees}x % (2 * np.pi)"
        )

    def span(self, values: np.ndarray, where: str) -> list[float]:
        least, most = float(values.min()), float(values.max())
        if most <= pi + END:
            return [-pi, pi]
        if least < -END:
            raise BadData(
                f"{where}: angles from {least:g} to {most:g} lie neither in [-pi, pi] nor in [0, 2 pi]: pass x % (2 * np.pi)"
            )
        return [0.0, TURN]

    def states(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor((values + pi) % TURN - pi).float()

    def values(self, x: np.ndarray, shape: tuple[int, ...], start: float) -> np.ndarray:
        return start + (x - start) % TURN

    def anywhere(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.zeros(shape)


class Compositions(Points):
    noun = "compositions"
    wanted = "shares [rows, 2 or more]"

    def said(self, shape: tuple[int, ...]) -> str:
        return "shares"

    def fits(self, shape: tuple[int, ...]) -> bool:
        return len(shape) == 1 and shape[0] >= 2

    def process(self, shape: tuple[int, ...]) -> Process:
        return WrightFisher(shape[0])

    def wrong(self, values: np.ndarray) -> str | None:
        off, total = values <= 0, values.sum(1)
        if off.any():
            place = np.argwhere(off)[0].tolist()
            size, value = values.shape[1], values[tuple(place)]
            small = min(1e-3, 0.1 / size)
            remedy = f"pass {1 - size * small:g} * x + {small:g}" if value == 0 else "drop or mend the row"
            return f"the entry {place} is {value:g}, and shares of a composition with a density lie above 0: {remedy}"
        apart = np.abs(total - 1) > ROUNDING
        if not apart.any():
            return None
        row = int(np.argmax(apart))
        return f"row {row} sums to {total[row]:g}, and the shares of a composition to 1: pass x / x.sum(1, keepdims=True)"

    def states(self, values: np.ndarray) -> Tensor:
        return torch.as_tensor(values / values.sum(1, keepdims=True)).float()

    def values(self, x: np.ndarray, shape: tuple[int, ...], start: float) -> np.ndarray:
        return x / x.sum(1, keepdims=True)

    def anywhere(self, shape: tuple[int, ...]) -> np.ndarray:
        return np.full(shape, 1 / shape[0])


POINTS: dict[str, Points] = {
    "rotations": RotationPoints(),
    "sphere": SpherePoints(),
    "angles": AnglePoints(),
    "composition": Compositions(),
}


def points_named(name: str) -> Points:
    if name not in POINTS:
        raise BadData(f"--option space={name}: choose from {', '.join(POINTS)}")
    return POINTS[name]


def _not_unit(values: np.ndarray, noun: str) -> str | None:
    length = np.linalg.norm(values, axis=1)
    off = np.abs(length - 1) > ROUNDING
    if not off.any():
        return None
    row = int(np.argmax(off))
    return (
        f"row {row} has the length {length[row]:.4g}, and this is a unit {noun}: pass x / np.linalg.norm(x, axis=1, "
        f"keepdims=True), and drop rows that are 0"
    )
