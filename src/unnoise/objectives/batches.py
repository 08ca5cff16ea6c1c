"""The rows of all processes that train together; and a batch that is worked through piece by piece."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import torch
from torch import Tensor, distributed

_piece: ContextVar[tuple[int, int] | None] = ContextVar("the first row of a piece, and the size of its batch", default=None)


@contextmanager
def piece_of(first: int, total: int) -> Iterator[None]:
    """For the length of a `with`, rows are a piece of a batch of `total`, from row `first` on: they have the strata of time
    that they have in the whole of it."""
    token = _piece.set((first, total))
    try:
        yield
    finally:
        _piece.reset(token)


def place(rows: int) -> tuple[int, int]:
    """(the first of these rows in the batch of all processes, its size)."""
    piece = None if torch.compiler.is_compiling() else _piece.get()
    return piece or (rank() * rows, rows * world())


def _together() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def rank() -> int:
    return distributed.get_rank() if _together() else 0


def world() -> int:
    return distributed.get_world_size() if _together() else 1


def gathered(values: Tensor) -> Tensor:
    """The entries of every process, one after another; each has as many.  No gradient."""
    if world() == 1:
        return values
    parts = [torch.empty_like(values) for _ in range(world())]
    distributed.all_gather(parts, values.contiguous())
    return torch.cat(parts)
