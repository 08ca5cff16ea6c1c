"""The bound of a batch, piece by piece: every row keeps its noise and its stratum of time."""

from collections.abc import Callable

import torch

from unnoise.batch_sizes import in_batches
from unnoise.conditions import Condition, checked, rows_of
from unnoise.noise import NoiseSource
from unnoise.objectives.batches import piece_of
from unnoise.objectives.terms import Terms
from unnoise.shapes import Tree
from unnoise.tree import batch_size
from unnoise.tree import rows as some_rows


def in_pieces(
    objective: Callable[[Tree, NoiseSource, Condition | None], Terms],
    x0: Tree,
    noise: NoiseSource,
    condition: Condition | None = None,
    size: int | None = None,
) -> Terms:
    """The terms of a batch, at most `size` rows at a time and fewer where memory runs out: those of the batch as a whole."""
    rows, told = batch_size(x0), checked(condition, batch_size(x0))

    def piece(first: int, count: int) -> Terms:
        if count == rows:
            return objective(x0, noise, condition)
        index = torch.arange(first, first + count, device=noise.rows.device)
        with piece_of(first, rows):
            return objective(some_rows(x0, index), noise.of(index), rows_of(told, index))

    return Terms.joined(in_batches(rows, rows if size is None else size, piece))
