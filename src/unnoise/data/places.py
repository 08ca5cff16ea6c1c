"""Where numbers that many rows share stand within the intervals of scores that they own: near what the rest of the row says.

A number that c rows share owns an interval of scores (`Quantiles`, `Straight`), and each of these rows gets a point in it.
Points drawn for each column by itself are noise: it weakens what columns have to do with each other, once in the scores that
a model learns from, and once more when its scores become shared numbers again.  With the normal scores u of a pair of
correlation r and the share w = Var E[u | number] that the numbers say of them, what is left in the scores is about r w w'.

So the points of a column are drawn from a normal law given the rest of the row, within their intervals,

    u_j ~ N(b_j . (1, labels, u_k for k other than j), s_j^2)      given  low < u_j < high,

one column after the other, SWEEPS times: Gibbs' sampler of latent scores that are normal together.  No number changes, since
any point of its interval means the same number.  b_j and s_j are a ridge regression on the points drawn so far, FITS times
over; then they are kept, so that a row of another file is placed by the same law, and by random numbers of its own.

A score that nobody reads, beside a missing value or an atom, is no evidence (0).  In such a column it is drawn at the end
from the same normal law given the scores that are read: as noise of its own it would weaken what the column has to do with
others where it is read.  `log_fill` is its density.
"""

from dataclasses import dataclass
from math import log, pi
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.shapes import Bool, Float

FITS, SWEEPS = 15, 10
RIDGE = 4.0  # rows, that say "no effect"
LEAST = 0.002  # of a column's variance lies within the intervals: less is not worth it
FEWEST = 40  # rows
MOST_ROWS = 1000  # of more rows a network finds out by itself, and better
MOST_NUMBERS, MOST_LABELS = 128, 1000
EDGE = 1e-3  # of an interval, that scores in float32 stay away from its ends
NARROW = 1e-3  # an interval in which a score stays where it is
HALF = 0.5  # of the rows: a column with a number that more of them share stays as it is, since most would be surmise
SEED = 0


@dataclass(frozen=True, eq=False)
class Scored:
    """The scores of a table's rows, [rows, numbers], with the intervals in which they may lie, and its labels as 0 and 1."""

    z: Float[Tensor, "rows d"]
    low: Float[Tensor, "rows d"]
    high: Float[Tensor, "rows d"]
    own: Bool[Tensor, "rows d"]  # whether the score is read
    marks: Float[Tensor, "rows labels"]


@dataclass(frozen=True, eq=False)
class Places:
    """`columns`: those with numbers that many rows share, or with scores that nobody reads; of each, what its score has on
    average and how far it lies off."""

    columns: tuple[int, ...]
    weights: Float[Tensor, "columns weights"]
    deviations: Float[Tensor, "columns"]

    def placed(self, rows: Scored, sweeps: int = SWEEPS) -> Float[Tensor, "rows d"]:
        """The scores, those of shared numbers at their places."""
        z = rows.z.clone()
        for sweep in range(sweeps):
            for j, weights, deviation in zip(self.columns, self.weights, self.deviations, strict=True):
                u = NoiseSource(SEED, len(z)).at("places", sweep, "column", j).uniform().double()
                z[:, j] = _drawn(rows, z, j, weights, deviation, u)
        for j, weights, deviation in zip(self.columns, self.weights, self.deviations, strict=True):
            fill = _evidence(rows, z, j) @ weights + deviation * NoiseSource(SEED, len(z)).at("fills", j).normal()
            z[:, j] = torch.where(rows.own[:, j], z[:, j], fill)
        return z

    def log_fill(self, rows: Scored) -> Float[Tensor, "rows"]:
        """Of the scores that nobody reads, given all that are read."""
        total = rows.z.new_zeros(len(rows.z))
        for j, weights, deviation in zip(self.columns, self.weights, self.deviations, strict=True):
            weights, deviation = weights.to(rows.z), deviation.to(rows.z)
            white = (rows.z[:, j] - _evidence(rows, rows.z, j) @ weights) / deviation
            each = -0.5 * (white.square() + log(2 * pi)) - deviation.log()
            total = total + torch.where(rows.own[:, j], 0.0, each)
        return total

    def to_json(self) -> dict[str, Any]:
        both = torch.cat([self.weights, self.deviations.unsqueeze(1)], 1).tolist()
        digits = [[float(f"{w:.8g}") for w in own] for own in both]
        deviations = [own.pop() for own in digits]
        return {"columns": list(self.columns), "weights": digits, "deviations": deviations}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Places":
        weights, deviations = (torch.tensor(data[name], dtype=torch.float64) for name in ("weights", "deviations"))
        return cls(tuple(data["columns"]), weights, deviations)


def fit_places(rows: Scored) -> Places | None:
    """None where there is nothing to place, too few rows to tell how, enough to do without, or too many columns."""
    n, d = rows.z.shape
    if not FEWEST <= n <= MOST_ROWS or d > MOST_NUMBERS or rows.marks.shape[1] > MOST_LABELS or d + rows.marks.shape[1] < 2:
        return None
    columns = [j for j in range(d) if int(rows.own[:, j].sum()) >= FEWEST and _placed(rows, j)]
    if not columns:
        return None
    z = rows.z.clone()
    for k in range(FITS):
        fitted = {}
        for j in columns:
            fitted[j] = _regression(rows, z, j)
            u = NoiseSource(SEED, len(z)).at("fit of places", k, "column", j).uniform().double()
            z[:, j] = _drawn(rows, z, j, *fitted[j], u)
    weights, deviations = zip(*fitted.values(), strict=True)
    found = Places(tuple(columns), torch.stack(weights), torch.stack(deviations))
    return Places.from_json(found.to_json())  # with the digits that are saved


def _placed(rows: Scored, j: int) -> bool:
    """Whether a column has scores that nobody reads, or a share of its variance lies within intervals (an even law each)."""
    own = rows.own[:, j]
    if bool((torch.special.ndtr(rows.high[own, j]) - torch.special.ndtr(rows.low[own, j]) > HALF).any()):
        return False
    within = (rows.high - rows.low)[own, j].square().mean() / 12
    return not bool(own.all()) or float(within) > LEAST * float(rows.z[own, j].var())


def _evidence(rows: Scored, z: Tensor, j: int) -> Float[Tensor, "rows weights"]:
    others = torch.where(rows.own, z, 0.0)
    others[:, j] = 0.0
    return torch.cat([torch.ones(len(z), 1).to(z), rows.marks, others], 1)


def _regression(rows: Scored, z: Tensor, j: int) -> tuple[Tensor, Tensor]:
    """Weights, and the deviation of what they leave: of as many rows as there are, less those that the weights cost."""
    own = rows.own[:, j]
    seen, aim = _evidence(rows, z, j)[own], z[own, j]
    penalty = torch.full((seen.shape[1],), RIDGE, dtype=z.dtype)
    penalty[0] = 1e-6
    gram = seen.T @ seen
    inverse = torch.linalg.inv(gram + torch.diag(penalty))
    weights = inverse @ (seen.T @ aim)
    spent = (inverse * gram).sum()  # the trace of the map from what is aimed at to what is found
    left = (aim - seen @ weights).square().sum() / (len(aim) - spent).clamp_min(0.5 * len(aim))
    return weights, left.clamp_min(1e-6).sqrt()


def _drawn(rows: Scored, z: Tensor, j: int, weights: Tensor, deviation: Tensor, u: Tensor) -> Float[Tensor, "rows"]:
    """From the normal law within the interval, by u in (0, 1); from the lower tail, where probabilities are exact."""
    mean = _evidence(rows, z, j) @ weights
    low, high = (rows.low[:, j] - mean) / deviation, (rows.high[:, j] - mean) / deviation
    flip = low + high > 0
    least, most = torch.where(flip, -high, low), torch.where(flip, -low, high)
    a, b = torch.special.log_ndtr(least).exp(), torch.special.log_ndtr(most).exp()
    white = torch.special.ndtri((a + u * (b - a)).clamp(1e-300, 1 - 1e-16))
    found = mean + deviation * torch.where(flip, -white, white)
    width = (rows.high - rows.low)[:, j]
    found = torch.minimum(torch.maximum(found, rows.low[:, j] + EDGE * width), rows.high[:, j] - EDGE * width)
    return torch.where(rows.own[:, j] & (width > NARROW), found, z[:, j])
