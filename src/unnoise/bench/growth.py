"""How a time grows with a number: a line with an offset, and the exponent that fits best.

Times t_i at n_i are fitted by  a + b n^p  with a, b >= 0, by least squares of relative errors, since times differ by orders
of magnitude.  At p = 1 that is a line, whose R^2 says how much of the (weighted) spread of t it explains; among all p, the
one with the least error is the exponent.  What must grow linearly has p near 1 once b n outweighs the offset a, what each
step costs whatever n is.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

EXPONENTS = np.linspace(0.0, 3.0, 301)


@dataclass(frozen=True)
class Growth:
    """The line a + b n with its R^2, and the exponent p of a + b n^p."""

    offset: float
    slope: float
    r2: float
    exponent: float

    @classmethod
    def of(cls, numbers: Sequence[int | float], seconds: Sequence[float]) -> "Growth":
        if len(numbers) != len(seconds) or len(numbers) < 3:
            raise ValueError(f"{len(numbers)} numbers and {len(seconds)} times: a growth is fitted to three points or more")
        n, t = np.asarray(numbers, dtype=float), np.asarray(seconds, dtype=float)
        offset, slope, _ = _fitted(n, t)
        weights = 1 / t**2
        mean = (weights * t).sum() / weights.sum()
        around, left = (weights * (t - mean) ** 2).sum(), (weights * (t - offset - slope * n) ** 2).sum()
        errors = [_fitted(n**p, t)[2] for p in EXPONENTS]
        return cls(offset, slope, float(1 - left / around) if around > 0 else 1.0, float(EXPONENTS[np.argmin(errors)]))

    def at(self, number: int | float) -> float:
        """The line's time."""
        return self.offset + self.slope * number

    def json(self) -> dict[str, Any]:
        return asdict(self)


def _fitted(m: np.ndarray, t: np.ndarray) -> tuple[float, float, float]:
    """(a, b, error) of t = a + b m with a, b >= 0: the free minimum, or the better one on the edge."""
    u, v = 1 / t, m / t  # the relative error is (a u + b v - 1)
    uu, vv, uv = u @ u, v @ v, u @ v
    candidates = [(u.sum() / uu, 0.0), (0.0, v.sum() / vv)]
    if (determinant := uu * vv - uv * uv) > 1e-12 * uu * vv:
        a = (vv * u.sum() - uv * v.sum()) / determinant
        b = (uu * v.sum() - uv * u.sum()) / determinant
        candidates += [(a, b)] if a >= 0 and b >= 0 else []
    errors = [float(((a * u + b * v - 1) ** 2).sum()) for a, b in candidates]
    best = int(np.argmin(errors))
    return float(candidates[best][0]), float(candidates[best][1]), errors[best]
