"""Which examples each update sees.

Epoch e visits the training rows in an order that is a function of (seed, e) alone, in batches of the global size; what is
left over at its end waits for another epoch.  Each batch is cut into `accumulate` parts, and each part into one piece per
process, in order: so a run on two processes sees what a run on one does.  A cursor (epoch, position) says what comes next,
and names the noise too, hence to resume is to put the cursor back.  Rows may be fetched ahead by worker processes: the
cursor counts what was used, not what was fetched.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from unnoise.noise import NoiseSource
from unnoise.shapes import Int, Tree
from unnoise.tree import batch_size, map_leaves

ON_DEVICE = 2 * 2**30  # bytes of data that are kept on the accelerator


class Source(ABC):
    """Anything that hands out rows: data in memory, or files behind it."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def take(self, indices: Int[Tensor, "rows"]) -> Tree: ...


class InMemory(Source):
    """A tree of tensors with one row per example."""

    def __init__(self, x0: Tree):
        self.x0 = x0

    def __len__(self) -> int:
        return batch_size(self.x0)

    def take(self, indices: Int[Tensor, "rows"]) -> Tree:
        return map_leaves(lambda leaf: leaf[indices.to(leaf.device, non_blocking=True)], self.x0)

    def placed(self, device: torch.device) -> "InMemory":
        """On the device, if that is an accelerator and the data is small."""
        sizes: list[int] = []
        map_leaves(lambda leaf: sizes.append(leaf.numel() * leaf.element_size()), self.x0)
        if device.type == "cpu" or sum(sizes) > ON_DEVICE:
            return self
        return InMemory(map_leaves(lambda leaf: leaf.to(device), self.x0))


def split(rows: int, share: float, seed: int) -> tuple[Tensor, Tensor]:
    """(training rows, held-out rows), both sorted: a function of (seed, number of rows)."""
    held = min(max(1, round(rows * share)), rows - 1) if share > 0 else 0
    if rows < 1 or (share > 0 and rows < 2):
        raise ValueError(f"the data has {rows} rows, too few to train on and hold out a share of {share:g}")
    order = NoiseSource(seed, rows).at("held out").uniform().argsort(stable=True)
    return order[held:].sort().values, order[:held].sort().values


@dataclass(frozen=True)
class Cursor:
    """The next part of a batch: its epoch, and how many rows of the epoch come before it."""

    epoch: int = 0
    position: int = 0


class Order:
    """The order of all epochs, in batches of a global size cut into parts."""

    def __init__(self, rows: Int[Tensor, "rows"], batch: int, seed: int, parts: int = 1, world: int = 1):
        unit = parts * world
        if len(rows) < unit:
            raise ValueError(f"{len(rows)} rows are fewer than accumulate x processes = {unit}: lower them")
        if batch % unit:
            raise ValueError(
                f"batch_size = {batch} does not divide into accumulate = {parts} parts x {world} processes: "
                f"use a multiple of {unit}"
            )
        self.rows, self.seed, self.parts, self.world = rows, seed, parts, world
        self.batch = min(batch, len(rows) // unit * unit)  # small data: all of it at once
        self.part = self.batch // parts
        self.per_epoch = len(rows) // self.batch
        self._epoch, self._order = -1, rows

    def epoch(self, epoch: int) -> Int[Tensor, "rows"]:
        if epoch != self._epoch:
            order = NoiseSource(self.seed, len(self.rows)).at("order", epoch).uniform().argsort(stable=True)
            self._epoch, self._order = epoch, self.rows[order]
        return self._order

    def at(self, cursor: Cursor, rows: int) -> Int[Tensor, "rows"]:
        """The indices of the next rows, over all processes."""
        return self.epoch(cursor.epoch)[cursor.position : cursor.position + rows]

    def next_batch(self, cursor: Cursor) -> Cursor:
        """Where the batch at a cursor begins: in the next epoch if too little is left of this one."""
        return Cursor(cursor.epoch + 1) if cursor.position + self.batch > len(self.rows) else cursor

    def after(self, cursor: Cursor) -> Cursor:
        """Where the batch after the one at a cursor begins."""
        return self.next_batch(Cursor(cursor.epoch, cursor.position + self.batch))

    def cursors(self, start: Cursor) -> Iterator[Cursor]:
        """The parts from a cursor (at the start of a batch) on, without end."""
        cursor = self.next_batch(start)
        while True:
            for i in range(self.parts):
                yield Cursor(cursor.epoch, cursor.position + i * self.part)
            cursor = self.after(cursor)

    def piece(self, cursor: Cursor, rank: int) -> Int[Tensor, "rows"]:
        """The share of one process in the part at a cursor."""
        size = self.part // self.world
        return self.at(cursor, self.part)[rank * size : (rank + 1) * size]


class _Pieces:
    """The indices that one process needs, in order, for a loader."""

    def __init__(self, order: Order, start: Cursor, rank: int):
        self.order, self.start, self.rank = order, start, rank

    def __iter__(self) -> Iterator[Tensor]:
        for cursor in self.order.cursors(self.start):
            yield self.order.piece(cursor, self.rank)


class _Rows(Dataset):
    def __init__(self, source: Source):
        self.source = source

    def __getitem__(self, indices: Tensor) -> tuple[Tensor, Tree]:
        return indices, self.source.take(indices)


def batches(
    source: Source, order: Order, start: Cursor, device: torch.device, rank: int = 0, workers: int = 0
) -> Iterator[tuple[Cursor, Tensor, Tree]]:
    """(cursor, indices, rows on the device) of every part from a cursor on, without end."""
    if workers == 0:
        source = source.placed(device) if isinstance(source, InMemory) else source
        rows = _Rows(source)
        pieces: Iterator = (rows[piece] for piece in _Pieces(order, start, rank))
    else:
        loader: DataLoader = DataLoader(
            _Rows(source),
            batch_size=None,
            sampler=_Pieces(order, start, rank),  # type: ignore[arg-type]
            num_workers=workers,
            pin_memory=device.type == "cuda",
            generator=torch.Generator().manual_seed(0),  # so that making a loader takes no number from the global one
        )
        pieces = iter(loader)
    for cursor, (indices, x0) in zip(order.cursors(start), pieces, strict=False):
        move = map_leaves(lambda leaf: leaf.to(device, non_blocking=True), x0)
        yield cursor, indices.to(device, non_blocking=True), move
