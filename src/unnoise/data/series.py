"""Whether an axis of an array is an order, such as time, or a list of columns: by evidence.

Along an order the place that a place resembles most is one of its two neighbours.  Among n columns in any order that is the
case for a share 2/n of them, by chance.  So the axis is taken for an order where it has `LEAST` places or more and at least
half of them have their largest correlation, over the examples, with a neighbour.

Of two axes the longer may be the order and the shorter the channels.  An image has an order along both: where the shorter
has `IMAGE` places or more, it must not look like one.
"""

from dataclasses import dataclass

import numpy as np

from unnoise.data.base import BadData

LEAST = 16  # places of an axis that may be an order
IMAGE = 8  # places of an axis that may be the shorter side of an image
MOST = 1024  # places that are looked at, from the middle
ROWS = 5000  # examples that are looked at
SHARE = 0.5
CHOICES = ("series", "columns")


@dataclass(frozen=True)
class Axis:
    """Along which axis of an example there is an order, and how it was known."""

    axis: int  # 0 or 1
    why: str


def series_axis(values: np.ndarray, wish: str | None = None) -> Axis | None:
    """The axis of the examples that is an order, if one is; `wish` is "series" or "columns" where that was said."""
    if wish not in (None, *CHOICES):
        raise BadData(f"--option axis={wish}: choose from {', '.join(CHOICES)}")
    shape = values.shape[1:]
    if wish == "columns" or len(shape) not in (1, 2):
        if wish == "series":
            raise BadData(f"--option axis=series: examples of shape {shape} are none: pass [rows, length], or with channels")
        return None
    axis = int(np.argmax(shape))
    if wish == "series":
        return Axis(axis, "as told")
    if shape[axis] < LEAST or values.shape[0] < 4:
        return None
    if len(shape) == 2 and (min(shape) >= LEAST or (min(shape) >= IMAGE and ordered(values, 1 - axis)[0] >= SHARE)):
        return None
    share, near, far = ordered(values, axis)
    return Axis(axis, f"neighbours correlate by {near:.2f}, others by {far:.2f}") if share >= SHARE else None


def ordered(values: np.ndarray, axis: int) -> tuple[float, float, float]:
    """The share of places along an axis that resemble a neighbour most; mean |correlation| of neighbours, and of others."""
    rows = np.moveaxis(values[:: -(-len(values) // ROWS)], axis + 1, -1)
    skip = max(0, rows.shape[-1] - MOST) // 2
    parts = rows[..., skip : skip + MOST].reshape(len(rows), -1, min(MOST, rows.shape[-1])).astype(np.float64)
    alike = np.zeros((parts.shape[-1],) * 2)
    for channel in range(parts.shape[1]):
        centred = parts[:, channel] - parts[:, channel].mean(0)
        size = np.sqrt((centred**2).sum(0))
        unit = centred / np.where(size > 0, size, 1.0)
        alike += np.abs(unit.T @ unit) / parts.shape[1]
    count = len(alike)
    np.fill_diagonal(alike, -1.0)
    best = alike.argmax(1)
    near = np.diagonal(alike, 1)
    far = alike[np.triu_indices(count, 2)]
    return float((np.abs(best - np.arange(count)) == 1).mean()), float(near.mean()), float(far.mean()) if far.size else 0.0
