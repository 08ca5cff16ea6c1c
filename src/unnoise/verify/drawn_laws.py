"""Draws against the law that they should have: means of test functions, in standard errors.

A right law is rejected with probability `LEVEL` at most, all means of a row together.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from unnoise.generators import Generator
from unnoise.generators.generator import Function
from unnoise.noise import NoiseSource
from unnoise.shapes import Float, Tree
from unnoise.tree import batch_size, map_leaves, repeat_rows
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row

DRAWS, POINTS, LEVEL = 4000, 8, 1e-6


def means_row(
    place: Place, quantity: str, exact: Float[Tensor, "means"], drawn: Float[Tensor, "means draws"], beside: float = 0.0
) -> Row:
    """The mean that is furthest off, and the error in standard errors beyond what may be off `beside` it."""
    mean, spread = drawn.mean(1), drawn.std(1) / drawn.shape[1] ** 0.5 + 1e-9
    gap = (((mean - exact).abs() - beside).clamp_min(0) / spread).nan_to_num(nan=torch.inf)
    limit = -float(torch.special.ndtri(torch.tensor(LEVEL / (2 * len(exact)), dtype=torch.float64)))
    i = int(gap.argmax())
    row = place.row(f"{quantity}, error in standard errors", exact[i], mean[i], gap[i], limit)
    return replace(row, note=f"{drawn.shape[1]} draws; false alarm below {LEVEL:.0e}")


def some(points: Tree, count: int = POINTS) -> Tree:
    """A few of the points, evenly."""
    rows = batch_size(points)
    which = torch.linspace(0, rows - 1, min(rows, count)).round().long()
    return map_leaves(lambda leaf: leaf[which], points)


@guarded("jumps as drawn")
def jump_checks(generator: Generator, points: Tree, place: Place, tests: list[Function]) -> Iterator[Row]:
    """Where jumps to anywhere lead, as drawn, against their nodes: E phi(y) = sum phi J(x, y)/J(x)."""
    x = some(points)
    here: Any = generator.local(x)
    if getattr(here, "jumps", None) is None:
        return
    y, rates = here.jumps.rates(x)
    total = rates.sum(1, keepdim=True)
    share, leaving = rates / total.clamp_min(1e-300), total[:, 0] > 0
    many = repeat_rows(x, DRAWS)
    there: Any = generator.local(many)
    after = there.jumps.draw(many, NoiseSource(93, batch_size(many)))
    for k, phi in enumerate(tests):
        exact = (share * phi(y.flatten(0, 1)).reshape(share.shape)).sum(1)
        drawn = phi(after).reshape(len(exact), DRAWS)
        yield means_row(place, f"jumps as drawn = jumps by their nodes, function {k}", exact[leaving], drawn[leaving])
