"""Logits of a linear head in chunks of rows, and how the chunks are cut.

Columns are filled up to a multiple of `aligned`, for rows of odd length in memory make products of matrices slow.  The room
behind the categories has no probability.

Of the rows, those before `count` are asked for.  Where the device alone knows the count, the share of rows that is `likely`
is computed without asking, by the device's own products of matrices; of what lies behind, blocks of rows are left out by
programs that look at the count (`head_products`).  So the cost goes with the count, whatever it is.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.kernels import head_passes, head_products
from unnoise.kernels.head_passes import Arrived, Statistics, triton

WHOLE = 128  # rows of a chunk come in multiples of this where there are more


@dataclass(frozen=True)
class ChunkPlan:
    """How the work is cut; no number depends on it but by rounding."""

    held: int = 2**27  # logits of a chunk
    aligned: int = 64  # columns come in multiples of this
    likely: float = 0.5  # the share of rows that are computed whether they are chosen or not
    kernels: bool = True  # Triton's passes, or torch's
    block: int = 4096  # columns that a program of a pass holds at once
    warps: int = 8  # of a program of a pass
    tile: head_products.Tile = head_products.TILE


ON_HOST = ChunkPlan(held=2**23, aligned=1, kernels=False)
PLAN = ChunkPlan()


def plan_for(device: torch.device) -> ChunkPlan:
    if device.type == "cpu":
        return ON_HOST
    return PLAN if triton is not None and device.type == "cuda" else ChunkPlan(PLAN.held, PLAN.aligned, kernels=False)


def rounded_up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


class Chunks:
    """Rows h [rows, depth] and weights, in chunks whose logits share one buffer."""

    def __init__(self, h: Tensor, weight: Tensor, bias: Tensor | None, count: Tensor | None, plan: ChunkPlan):
        self.h, self.size, self.count, self.plan = h, len(weight), count, plan
        self.width = rounded_up(self.size, plan.aligned)
        self.weight = self._filled_up(weight)
        self.bias = None if bias is None else self._filled_up(bias)
        self.skips = count is not None and plan.kernels and h.dtype != torch.float64
        most = max(1, plan.held // self.width)
        self.most = most if most < WHOLE else most // WHOLE * WHOLE
        self.buffer = h.new_empty(min(self.most, len(h)), self.width)

    def _filled_up(self, value: Tensor) -> Tensor:
        """In the precision of the features, with zeros behind the categories."""
        if self.width == self.size:
            return value.to(self.h.dtype).contiguous()
        out = self.h.new_zeros(self.width, *value.shape[1:])
        out[: self.size] = value
        return out

    def __iter__(self) -> Iterator[tuple[slice, bool]]:
        """(rows, whether those that are not asked for are left out)."""
        rows = len(self.h)
        likely = min(rows, rounded_up(int(self.plan.likely * rows), WHOLE)) if self.skips else rows
        for first, last, skipped in ((0, likely, False), (likely, rows, True)):
            if first == last:
                continue
            pieces = -(-(last - first) // self.most)
            each = -(-(last - first) // pieces)
            each = each if each < WHOLE else min(self.most, rounded_up(each, WHOLE))
            for i in range(first, last, each):
                yield slice(i, min(i + each, last)), skipped

    def logits(self, rows: slice, skipped: bool) -> Tensor:
        h, z = self.h[rows], self.buffer[: rows.stop - rows.start]
        if skipped:
            head_products.logits(z, h, self.weight, self.bias, self._count, rows.start, self.plan.tile)
        elif self.bias is None:
            torch.mm(h, self.weight.t(), out=z)
        else:
            torch.addmm(self.bias, h, self.weight.t(), out=z)
        return z

    def read(self, z: Tensor, rows: slice, index: Tensor, scale: Tensor | None, out: Statistics) -> None:
        """The statistics of a chunk's logits."""
        if self.plan.kernels:
            head_passes.read(z, self.size, index, scale, out, self.count, rows.start, self.plan.block, self.plan.warps)
        else:
            head_passes.plain_read(z, self.size, index, scale, out)

    def write(self, z: Tensor, rows: slice, skipped: bool, given: Arrived) -> None:
        """The gradient of a chunk's logits over themselves."""
        if self.plan.kernels:
            plan = self.plan
            head_passes.write(z, self.size, given, self.count, rows.start, not skipped, plan.block, plan.warps)
        else:
            head_passes.plain_write(z, self.size, given)

    def of_features(self, out: Tensor, z: Tensor, rows: slice, skipped: bool) -> None:
        """out = z W."""
        if skipped:
            head_products.of_features(out[rows], z, self.weight, self._count, rows.start, self.plan.tile)
        else:
            torch.mm(z, self.weight, out=out[rows])

    def add_of_weights(self, dw: Tensor, db: Tensor | None, z: Tensor, rows: slice, skipped: bool) -> None:
        """dW += z^T h, and db += the sum over rows of z."""
        h = self.h[rows]
        if skipped:
            head_products.add_of_weights(dw, db, z, h, self._count, rows.start, self.plan.tile)
            return
        if dw.dtype == z.dtype:
            dw.addmm_(z.t(), h)
        elif z.device.type == "cuda" and torch.version.hip is None:  # in float32 as it is summed
            torch.addmm(dw, z.t(), h, out_dtype=dw.dtype, out=dw)
        else:
            dw.add_(z.t() @ h)
        if db is not None:
            db.add_(z.sum(0, dtype=db.dtype))

    @property
    def _count(self) -> Tensor:
        assert self.count is not None  # nothing is left out of all rows
        return self.count
