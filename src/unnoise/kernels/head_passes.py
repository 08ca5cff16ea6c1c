"""The two passes over a chunk of logits z [rows, width]: the first `size` columns are categories, the rest is room.

With theta = softmax(z) a row has the terms

    norm   = log sum_y exp(z_y)
    picked = z_i - norm = log theta_i                          for each index i of the row
    total  = sum_y log(1 + c theta_y)                          where a scale c is asked for
    share  = sum_y e_y,      e_y = c theta_y/(1 + c theta_y)

and, since d theta_y/d z_k = theta_y ([y = k] - theta_k),

    d picked/d z_k = [k = i] - theta_k
    d total/d z_k  = sum_y c/(1 + c theta_y) theta_y ([y = k] - theta_k) = e_k - theta_k share.

So with a_i and b the gradients of picked and total, the gradient of z is written over z itself in one pass,

    z_k  <-  sum_i a_i [k = i]  -  theta_k (sum_i a_i + b share)  +  b e_k.

The room behind the categories is left as it is: weights there are 0.

Statistics are float32, float64 for float64 logits, whatever the precision of z.  On CUDA each row is one Triton program, and
rows from `count` on are left out; elsewhere the passes are written in torch.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from unnoise.shapes import Float, Int

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU installations of torch come without it
    triton = None


class Statistics(NamedTuple):
    """What the forward pass finds, one entry per row; `total` and `share` are 0 where there is no scale."""

    norm: Float[Tensor, "rows"]
    picked: Float[Tensor, "rows indices"]
    total: Float[Tensor, "rows"]
    share: Float[Tensor, "rows"]

    def part(self, rows: slice) -> "Statistics":
        return Statistics(*(value[rows] for value in self))


class Arrived(NamedTuple):
    """What the backward pass is given, one entry per row: `by_picked` and `by_total` are the gradients that arrive."""

    at: Int[Tensor, "rows indices"]
    scale: Float[Tensor, "rows"] | None
    norm: Float[Tensor, "rows"]
    share: Float[Tensor, "rows"]
    by_picked: Float[Tensor, "rows indices"]
    by_total: Float[Tensor, "rows"]

    def part(self, rows: slice) -> "Arrived":
        return Arrived(*(value if value is None else value[rows] for value in self))  # type: ignore[arg-type]


def precision(dtype: torch.dtype) -> torch.dtype:
    """Of statistics."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def empty_statistics(index: Int[Tensor, "rows indices"], dtype: torch.dtype) -> Statistics:
    norm, total, share = torch.zeros(3, len(index), dtype=dtype, device=index.device)
    return Statistics(norm, torch.zeros(index.shape, dtype=dtype, device=index.device), total, share)


if triton is not None:

    @triton.jit
    def _log1p(x):
        """log(1 + x) for x >= 0, to the last digits also where 1 + x rounds."""
        u = 1 + x
        return tl.where(u == 1, x, tl.log(u) * (x / (u - 1)))

    @triton.jit
    def _read(z, index, scale, count, norm, picked, total, share, start, size, width,
              INDICES: tl.constexpr, SCALED: tl.constexpr, LIMITED: tl.constexpr, BLOCK: tl.constexpr):  # fmt: skip
        row = tl.program_id(0)
        if LIMITED:  # noqa: SIM102  # known before the other is read
            if start + row >= tl.load(count):
                return
        dtype = norm.dtype.element_ty
        row_of_z = z + row.to(tl.int64) * width
        column = tl.arange(0, BLOCK)
        largest, summed = tl.full((), float("-inf"), dtype), tl.full((), 0.0, dtype)
        for first in range(0, size, BLOCK):
            inside = first + column < size
            value = tl.load(row_of_z + first + column, mask=inside, other=float("-inf")).to(dtype)
            larger = tl.maximum(largest, tl.max(value, 0))
            shift = tl.where(larger == float("-inf"), 0.0, larger)
            summed = summed * tl.exp(largest - shift) + tl.sum(tl.exp(value - shift), 0)
            largest = larger
        shift = tl.where(largest == float("-inf"), 0.0, largest)
        log_sum = shift + tl.log(summed)
        tl.store(norm + row, log_sum)
        for i in tl.static_range(INDICES):
            at = tl.load(index + row * INDICES + i)
            own = tl.load(row_of_z + at, mask=(at >= 0) & (at < size), other=float("nan"))  # of no category: not a number
            tl.store(picked + row * INDICES + i, own.to(dtype) - log_sum)
        if SCALED:
            c = tl.load(scale + row)
            logs, shares = tl.full((), 0.0, dtype), tl.full((), 0.0, dtype)
            for first in range(0, size, BLOCK):
                inside = first + column < size
                value = tl.load(row_of_z + first + column, mask=inside, other=float("-inf")).to(dtype)
                x = c * tl.exp(value - log_sum)
                logs += tl.sum(_log1p(x), 0)
                shares += tl.sum(x / (1 + x), 0)
            tl.store(total + row, logs)
            tl.store(share + row, shares)

    @triton.jit
    def _write(z, index, scale, count, norm, share, by_picked, by_total, start, size, width,
               INDICES: tl.constexpr, SCALED: tl.constexpr, LIMITED: tl.constexpr, ZEROS: tl.constexpr,
               BLOCK: tl.constexpr):  # fmt: skip
        row = tl.program_id(0)
        dtype = norm.dtype.element_ty
        row_of_z = z + row.to(tl.int64) * width
        column = tl.arange(0, BLOCK)
        if LIMITED:  # noqa: SIM102  # known before the other is read
            if start + row >= tl.load(count):
                if ZEROS:
                    nothing = tl.zeros((BLOCK,), dtype).to(z.dtype.element_ty)
                    for first in range(0, size, BLOCK):
                        tl.store(row_of_z + first + column, nothing, mask=first + column < size)
                return
        log_sum = tl.load(norm + row)
        weight = tl.full((), 0.0, dtype)
        for i in tl.static_range(INDICES):
            weight += tl.load(by_picked + row * INDICES + i)
        if SCALED:
            c, b = tl.load(scale + row), tl.load(by_total + row)
            weight += b * tl.load(share + row)
        for first in range(0, size, BLOCK):
            place = first + column
            value = tl.load(row_of_z + place, mask=place < size, other=float("-inf")).to(dtype)
            theta = tl.exp(value - log_sum)
            gradient = -weight * theta
            if SCALED:
                x = c * theta
                gradient += b * (x / (1 + x))
            for i in tl.static_range(INDICES):
                own = tl.load(by_picked + row * INDICES + i)
                gradient += tl.where(place == tl.load(index + row * INDICES + i), own, 0.0)
            tl.store(row_of_z + place, gradient.to(z.dtype.element_ty), mask=place < size)


def read(
    z: Tensor,
    size: int,
    index: Int[Tensor, "rows indices"],
    scale: Float[Tensor, "rows"] | None,
    out: Statistics,
    count: Tensor | None = None,
    start: int = 0,
    block: int = 4096,
    warps: int = 8,
) -> None:
    """The statistics of a chunk whose first row is number `start`; those of rows from `count` on stay as they are."""
    _read[(len(z),)](
        z, index, out.norm if scale is None else scale, index if count is None else count, *out, start, size, z.shape[1],
        INDICES=index.shape[1], SCALED=scale is not None, LIMITED=count is not None, BLOCK=block, num_warps=warps,
    )  # fmt: skip


def write(
    z: Tensor,
    size: int,
    given: Arrived,
    count: Tensor | None = None,
    start: int = 0,
    zeros: bool = True,
    block: int = 4096,
    warps: int = 8,
) -> None:
    """Turn logits into their gradient, in place; rows from `count` on become 0, or stay as they are (`zeros=False`)."""
    index, scale, norm, share, by_picked, by_total = given
    _write[(len(z),)](
        z, index, norm if scale is None else scale, index if count is None else count, norm, share,
        by_picked, by_total, start, size, z.shape[1], INDICES=index.shape[1], SCALED=scale is not None,
        LIMITED=count is not None, ZEROS=zeros, BLOCK=block, num_warps=warps,
    )  # fmt: skip


def plain_read(
    z: Tensor, size: int, index: Int[Tensor, "rows indices"], scale: Float[Tensor, "rows"] | None, out: Statistics
) -> None:
    """The same in torch, for all rows of the chunk."""
    logits = z[:, :size].to(out.norm.dtype)
    norm = logits.logsumexp(-1)
    out.norm.copy_(norm)
    out.picked.copy_(logits.gather(-1, index) - norm.unsqueeze(-1))
    if scale is not None:
        x = (logits - norm.unsqueeze(-1)).exp_().mul_(scale.unsqueeze(-1))
        out.total.copy_(x.log1p().sum(-1))
        out.share.copy_(x.div_(1 + x).sum(-1))


def plain_write(z: Tensor, size: int, given: Arrived) -> None:
    """The same in torch, for all rows of the chunk."""
    index, scale, norm, share, by_picked, by_total = given
    theta = (z[:, :size].to(norm.dtype) - norm.unsqueeze(-1)).exp_()
    if scale is None:
        gradient = theta.mul_(-by_picked.sum(-1, keepdim=True))
    else:
        x, weight = theta * scale.unsqueeze(-1), by_picked.sum(-1) + by_total * share
        gradient = theta.mul_(-weight.unsqueeze(-1)).addcmul_(by_total.unsqueeze(-1), x.div_(1 + x))
    z[:, :size].copy_(gradient.scatter_add_(-1, index, by_picked))
