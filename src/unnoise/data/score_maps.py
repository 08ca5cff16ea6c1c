"""Which columns of numbers are scored by their quantiles, and which stand as they are, centred and scaled.

Scores by quantiles are normal one by one, whatever the law of the numbers, but what lies far apart comes close together:
lengths of two species, normal each and far from each other, become one normal law, and its two halves are none.  Given the
species, and beside other lengths, the numbers as they are may be nearer to normal.

So compare densities, of a law in which all scores z together are normal given the labels, with one covariance S.  A column
x of variance 1 has the density |dz/dx| times that of its score, and on average over the rows

    -log p = 1/2 log det S + sum_j J_j + const,      J = -E log dz/dx

up to the entropies of the columns, which no choice changes: with x and z of variance 1, J is 0 by quantiles, and by straight
scores it is the distance of the column's law from normal, in nats.  Straight scores are taken where they make this less.

    J = log(deviation of x) - mean over i of log((x_(i+m) - x_(i-m)) / (z_(i+m) - z_(i-m)))

over the sorted numbers x_(i) and their normal scores z_(i), m = sqrt(n): slopes of the quantiles, too few neighbours being
too uneven.
"""

from dataclasses import replace

import numpy as np
import torch
from torch import Tensor

from unnoise.data.columns import Column, Texts
from unnoise.data.straight import Straight
from unnoise.noise import NoiseSource
from unnoise.shapes import Float

MOST_ROWS = 20_000  # of a table of more rows a network finds out by itself
MOST_NUMBERS, MOST_LABELS = 128, 1000
LEAST = 20  # numbers of a column, below which quantiles say it all
RIDGE = 4.0  # rows, that say "no effect" of a label
SHRINK = 0.05  # of correlations
GAIN = 0.01  # nats a row, from which it is worth it
SWEEPS = 3


def with_score_maps(columns: list[Column], texts: dict[str, Texts]) -> list[Column]:
    """The columns, some of their numbers with straight scores."""
    numbers = [c for c in columns if c.scores is not None and not c.closed and not c.partners]
    labels = [column for column in columns if column.scores is None or column.size > 1]
    if not 0 < len(numbers) <= MOST_NUMBERS or sum(column.size for column in labels) > MOST_LABELS:
        return columns
    rows = len(texts[numbers[0].name].index)
    if rows > MOST_ROWS:
        return columns
    tried = {column.name: _straight(column, texts[column.name]) for column in numbers}
    found = {name: both for name, both in tried.items() if both is not None}
    numbers = [column for column in numbers if column.name in found]
    if not numbers:
        return columns
    marks = [torch.eye(c.size, dtype=torch.float64)[torch.as_tensor(c.encode(texts[c.name])[0])] for c in labels]
    scores = [_scores(column, texts[column.name]) for column in (*numbers, *(found[c.name][0] for c in numbers))]
    left = _left_by(torch.cat([torch.zeros(rows, 0, dtype=torch.float64), *marks], 1), torch.stack(scores, 1))
    chosen = _chosen(left.T @ left / rows, [found[column.name][1] for column in numbers])
    straight = {column.name: found[column.name][0] for column, yes in zip(numbers, chosen, strict=True) if yes}
    return [straight.get(column.name, column) for column in columns]


def _straight(column: Column, texts: Texts) -> tuple[Column, float] | None:
    """The column with straight scores, and how far its law is from normal, over all rows."""
    own = column.encode(texts)[0] == column.size - 1
    assert column.scale is not None
    kept = texts.without(column.blanks)
    x = column.scale.parse(kept.distinct)[kept.index[own]]
    different = len(np.unique(x))
    if len(x) < LEAST or different < 2:
        return None
    place = NoiseSource(0, len(x)).at(column.name).uniform().numpy()
    for straight in (Straight.fit(x), Straight.fit(x, grid=False)):
        if straight.step == 0 and different < len(x):  # repeated numbers on no grid: their scores have no density
            return None
        points = straight.encode(x, place)
        written = column.scale.write(straight.decode(points.astype(np.float32)))
        if np.array_equal(column.scale.parse(written), x):
            return replace(column, scores=straight), len(x) / len(own) * distance_from_normal(points)
    return None


def distance_from_normal(x: Float[np.ndarray, "n"]) -> float:
    """J of numbers without ties, in nats."""
    n, x = len(x), np.sort(x)
    m = max(1, round(n**0.5))
    upper, lower = np.minimum(np.arange(n) + m, n - 1), np.maximum(np.arange(n) - m, 0)
    z = torch.special.ndtri((torch.arange(n, dtype=torch.float64) + 0.5) / n).numpy()
    return float(np.log(x.std()) - np.mean(np.log((x[upper] - x[lower]) / (z[upper] - z[lower]))))


def _scores(column: Column, texts: Texts) -> Float[Tensor, "rows"]:
    """To mean 0 and variance 1."""
    scores = torch.as_tensor(column.encode(texts)[1]).double()
    return (scores - scores.mean()) / scores.std(correction=0)


def _left_by(marks: Float[Tensor, "rows labels"], scores: Float[Tensor, "rows k"]) -> Float[Tensor, "rows k"]:
    """What the labels leave of the scores."""
    apart = marks - marks.mean(0)
    ridge = RIDGE * torch.eye(marks.shape[1], dtype=torch.float64)
    return scores - apart @ torch.linalg.solve(apart.T @ apart + ridge, apart.T @ scores)


def _chosen(both: Float[Tensor, "k k"], distances: list[float]) -> list[bool]:
    """Of every column, whether its scores are straight: one changes after the other as long as that makes rows likelier, at
    first none being straight, then all.  `both` is the covariance of all scores by quantiles, then of all straight ones."""
    count = len(distances)
    shrunk = (1 - SHRINK) * both + SHRINK * torch.diag(both.diagonal())
    told = [distance + GAIN for distance in distances]

    def cost(straight: list[bool]) -> float:
        pick = torch.tensor([j + count * yes for j, yes in enumerate(straight)])
        return 0.5 * float(torch.logdet(shrunk[pick][:, pick])) + sum(
            t for t, yes in zip(told, straight, strict=True) if yes
        )

    def best_from(chosen: list[bool]) -> tuple[float, list[bool]]:
        least = cost(chosen)
        for _ in range(SWEEPS):
            before = list(chosen)
            for j in range(count):
                other = [not yes if i == j else yes for i, yes in enumerate(chosen)]
                if (found := cost(other)) < least:
                    chosen, least = other, found
            if chosen == before:
                break
        return least, chosen

    return min(best_from([False] * count), best_from([True] * count))[1]
