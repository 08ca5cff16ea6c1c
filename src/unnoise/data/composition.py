"""Shares of a whole: columns of numbers that sum to one, or to 100, as one point of the simplex, and back.

    y = number/total  (+ a point of its step),        x = (1 - k least) y + least,        k parts

A row whose numbers sum to the total up to the rounding of its digits is divided by its sum.  What is written has `digits`
decimals, and its sum is the total to the last of them: in units of the last digit numbers are cut, and those that lost most
get what is left.

**Steps.**  A number on the grid of its digits stands for numbers around it, so each part moves within half a step and the
parts keep their sum: by uniform numbers u, of their size where the share is 0, less what makes the others balance, all of
them made smaller where one goes too far.  Cutting, and giving to those that lost most, undoes such moves.  Rows in which
something is missing do not move.

**Zeros** lie on the edge, where a density of data does not exist: `least`, half a step of each part and at most 0.001, is
mixed into every row (`Simplex.inside`), and is taken out again.

**Missing shares** are a uniform point of what the others leave: of m of them, with the sum r, the density is (m - 1)!
r^(1 - m).  One alone is what is left.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unnoise.data.base import BadData
from unnoise.data.joint_leaf import JointLeaf
from unnoise.noise import NoiseSource
from unnoise.processes import Process, WrightFisher
from unnoise.shapes import Bool, Float
from unnoise.spaces import Simplex

KINDS = ("composition",)
TOTALS = (1.0, 100.0)
MOST_DIGITS = 6  # decimals of a share that float32 holds
LEAST = 1e-3  # at most so much of each part is mixed in
WIDE = 0.98  # of a step, in which a number is put
SLACK = 0.02  # of the total, by which sums may differ at most
LEFT = 1e-6  # at least so much is left to missing shares


@dataclass(frozen=True, eq=False)
class Shares:
    """Numbers of one part; `values` are the least and the largest that were seen."""

    values: np.ndarray
    total: float  # 1 or 100
    digits: int  # decimals
    closed: ClassVar[bool] = True

    @property
    def limits(self) -> tuple[float, float]:
        return 0.0, self.total

    def encode(self, x: np.ndarray, place: np.ndarray | float = 0.5) -> np.ndarray:
        """Shares; where in its step a number goes is for all parts together to say."""
        return np.asarray(x, dtype=np.float64) / self.total

    def decode(self, share: np.ndarray) -> np.ndarray:
        return np.round(np.asarray(share, dtype=np.float64) * self.total, self.digits)

    def to_json(self) -> dict[str, Any]:
        return {"values": self.values.tolist(), "total": self.total, "digits": self.digits}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Shares":
        return cls(**{**data, "values": np.array(data["values"], dtype=np.float64)})


class Composition(JointLeaf):
    """Shares of one whole."""

    noun = "shares are one composition"
    told = "on the simplex"

    @property
    def size(self) -> int:
        return len(self.columns)

    @property
    def shares(self) -> Shares:
        found = self.columns[0].scores
        assert isinstance(found, Shares)
        return found

    @property
    def step(self) -> float:
        """Of a share, as it is written."""
        return 10.0**-self.shares.digits / self.shares.total

    @property
    def least(self) -> float:
        return least(self.step, self.size)

    @property
    def space(self) -> Simplex:
        return Simplex(self.size)

    def process(self) -> Process:
        return WrightFisher(self.size)

    @property
    def anywhere(self) -> Float[np.ndarray, "size"]:
        return np.full(self.size, 1 / self.size)

    def encode(
        self, scores: Float[np.ndarray, "rows size"], known: Bool[np.ndarray, "rows size"], noise: NoiseSource
    ) -> Float[np.ndarray, "rows size"]:
        total, digits = self.shares.total, self.shares.digits
        if (wrong := wrong_sums(total * scores, known, total, digits)).size:
            raise BadData(no_sum(total * scores, known, int(wrong[0]), self.names, (total,), alone=len(scores) == 1))
        y = np.where(known, scores, 0.0)
        missing = ~known
        whole = missing.sum(1) == 0
        y[whole] /= y[whole].sum(1, keepdims=True)
        fill = -np.log(noise.at("fill").uniform((self.size,)).numpy()) * missing
        left = np.maximum(1 - y.sum(1), LEFT)
        y[~whole] += (left[:, None] * fill / np.maximum(fill.sum(1, keepdims=True), 1e-300))[~whole]
        moved = y + self.step * moves(noise.at("place").uniform((self.size,)).numpy() - 0.5, y <= 0)
        y = np.where(whole[:, None], moved, y)
        return self.space.inside(torch.as_tensor(y / y.sum(1, keepdims=True)), self.least).numpy()

    def decode(self, x: Float[np.ndarray, "rows size"]) -> Float[np.ndarray, "rows size"]:
        units = round(1 / self.step)
        return on_grid(self._outside(x), units) / units

    def _outside(self, x: np.ndarray) -> np.ndarray:
        """What was mixed in taken out again."""
        y = np.clip((x - self.least) / (1 - self.size * self.least), 0, None)
        return y / y.sum(1, keepdims=True)

    def log_fill(self, x: Float[Tensor, "rows size"], known: Bool[Tensor, "rows size"]) -> Float[Tensor, "rows"]:
        """In the measure of the mixed shares, which are (1 - k least) as wide."""
        missing = (~known).double()
        free = (missing.sum(1) - 1).clamp_min(0)
        left = (missing * (x - self.least)).sum(1).clamp_min(LEFT)  # times 1 - k least, with the missing ones' scale in it
        return torch.lgamma(free + 1) - free * left.log()


def decimals(x: Float[np.ndarray, "n"]) -> int:
    """The fewest in which these numbers can be written."""
    return next((k for k in range(MOST_DIGITS) if (np.abs(x * 10**k - np.round(x * 10**k)) < 1e-6).all()), MOST_DIGITS)


def least(step: float, size: int) -> float:
    """How much of each part is mixed into every row."""
    return min(step / 2, LEAST, 0.5 / size)


def moves(u: Float[np.ndarray, "rows size"], zero: Bool[np.ndarray, "rows size"]) -> Float[np.ndarray, "rows size"]:
    """In (-1/2, 1/2), none below 0 where the share is 0, and 0 in sum."""
    d = np.where(zero, np.abs(u), u)
    d = d - np.where(zero, 0.0, d.sum(1, keepdims=True) / np.maximum((~zero).sum(1, keepdims=True), 1))
    return d * np.minimum(1.0, WIDE / 2 / np.abs(d).max(1, keepdims=True))


def on_grid(y: Float[np.ndarray, "rows size"], units: int) -> Float[np.ndarray, "rows size"]:
    """Whole numbers near units y whose sum is `units`: cut, and those that lost most get what is left."""
    exact = y * units
    whole = np.floor(exact)
    left = units - whole.sum(1, keepdims=True)
    rank = np.argsort(np.argsort(-(exact - whole), 1, kind="stable"), 1, kind="stable")
    return whole + (rank < left)


def allowed(total: float, digits: int, size: int) -> float:
    """How far a sum of rounded numbers may be from the total."""
    return min(size * 0.5 * 10.0**-digits, SLACK * total) + 1e-6 * total


def wrong_sums(
    x: Float[np.ndarray, "rows size"], known: Bool[np.ndarray, "rows size"], total: float, digits: int
) -> np.ndarray:
    """Rows that do not sum to the total, or more than that where some are missing."""
    sums, gap = np.where(known, x, 0.0).sum(1), allowed(total, digits, x.shape[1])
    return np.flatnonzero((sums > total + gap) | (known.all(1) & (sums < total - gap)))


def no_sum(
    x: np.ndarray, known: np.ndarray, row: int, names: list[str], totals: tuple[float, ...], alone: bool = False
) -> str:
    """What is wrong with a row, and what to do."""
    found, wanted = np.where(known, x, 0.0)[row].sum(), " or ".join(f"{total:g}" for total in totals)
    where = "" if alone else f"row {row + 1}: "
    return (
        f"{where}{', '.join(names)} sum to {found:.6g}, and shares of one composition to {wanted}: correct them, divide "
        f"them by their sum, or use kind number"
    )
