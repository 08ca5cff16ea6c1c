"""Products of rows with a matrix of weights that stop where the rows do: how many there are is known to the device alone.

With h [rows, depth], weights W [width, depth] and gradients z [rows, width],

    logits            z   = h W^T + b
    of_features       dh  = z W
    add_of_weights    dW += z^T h,      db += sum over rows of z

A block of rows that begins at `count` or behind it is not computed: its program ends at once.  Sums over rows are cut off
there.  Every entry is summed by one program, in float32, in an order that is always the same.
"""

import torch
from torch import Tensor

from unnoise.shapes import Float

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU installations of torch come without it
    triton = None

Tile = tuple[int, int, int]  # of a block of the result, and of the sum over which it runs
TILE: Tile = (128, 128, 64)
WARPS, STAGES = 8, 3


if triton is not None:

    @triton.jit
    def _logits(h, w, bias, z, count, start, rows, width, depth,
                BIAS: tl.constexpr, EVEN: tl.constexpr, HOW: tl.constexpr,
                M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # fmt: skip
        blocks = tl.cdiv(rows, M)  # of rows, which come first: they share the weights
        first = tl.program_id(0) % blocks * M
        if start + first >= tl.load(count):
            return
        row, column = first + tl.arange(0, M), tl.program_id(0) // blocks * N + tl.arange(0, N)
        k = tl.arange(0, K)
        a = h + row[:, None].to(tl.int64) * depth + k[None, :]
        b = w + column[None, :].to(tl.int64) * depth + k[:, None]
        total = tl.zeros((M, N), tl.float32)
        for done in range(0, depth, K):
            inside = k < (K if EVEN else depth - done)
            left = tl.load(a + done, mask=(row < rows)[:, None] & inside[None, :], other=0.0)
            right = tl.load(b + done, mask=(column < width)[None, :] & inside[:, None], other=0.0)
            total = tl.dot(left, right, total, input_precision=HOW)
        if BIAS:
            total += tl.load(bias + column, mask=column < width, other=0.0).to(tl.float32)[None, :]
        out = z + row[:, None].to(tl.int64) * width + column[None, :]
        tl.store(out, total.to(z.dtype.element_ty), mask=(row < rows)[:, None] & (column < width)[None, :])

    @triton.jit
    def _of_features(z, w, out, count, start, rows, width, depth,
                     EVEN: tl.constexpr, HOW: tl.constexpr,
                     M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # fmt: skip
        blocks = tl.cdiv(rows, M)
        first = tl.program_id(0) % blocks * M
        limit = tl.minimum(rows, tl.load(count) - start)
        if first >= limit:
            return
        row, column = first + tl.arange(0, M), tl.program_id(0) // blocks * N + tl.arange(0, N)
        k = tl.arange(0, K)
        a = z + row[:, None].to(tl.int64) * width + k[None, :]
        b = w + k[:, None].to(tl.int64) * depth + column[None, :]
        total = tl.zeros((M, N), tl.float32)
        for done in range(0, width, K):
            inside = k < (K if EVEN else width - done)
            left = tl.load(a + done, mask=(row < limit)[:, None] & inside[None, :], other=0.0)
            right = tl.load(b, mask=(column < depth)[None, :] & inside[:, None], other=0.0)
            total = tl.dot(left, right, total, input_precision=HOW)
            b += K * depth
        place = out + row[:, None].to(tl.int64) * depth + column[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=(row < limit)[:, None] & (column < depth)[None, :])

    @triton.jit
    def _add_of_weights(z, h, dw, db, count, start, rows, width, depth,
                        BIAS: tl.constexpr, HOW: tl.constexpr,
                        M: tl.constexpr, N: tl.constexpr, K: tl.constexpr):  # fmt: skip
        limit = tl.minimum(rows, tl.load(count) - start)
        if limit <= 0:
            return
        blocks = tl.cdiv(width, M)
        column, channel = tl.program_id(0) % blocks * M + tl.arange(0, M), tl.program_id(0) // blocks * N + tl.arange(0, N)
        k = tl.arange(0, K)
        a = z + k[:, None].to(tl.int64) * width + column[None, :]
        b = h + k[:, None].to(tl.int64) * depth + channel[None, :]
        total, sums = tl.zeros((M, N), tl.float32), tl.zeros((M,), tl.float32)
        for done in range(0, limit, K):
            inside = (k < limit - done)[:, None]
            left = tl.load(a, mask=inside & (column < width)[None, :], other=0.0)
            right = tl.load(b, mask=inside & (channel < depth)[None, :], other=0.0)
            total = tl.dot(tl.trans(left), right, total, input_precision=HOW)
            if BIAS:
                sums += tl.sum(left.to(tl.float32), 0)
            a += K * width
            b += K * depth
        place = dw + column[:, None].to(tl.int64) * depth + channel[None, :]
        there = (column < width)[:, None] & (channel < depth)[None, :]
        tl.store(place, tl.load(place, mask=there, other=0.0) + total, mask=there)
        if BIAS:  # noqa: SIM102
            if tl.program_id(0) < blocks:  # those of the first channels
                tl.store(db + column, tl.load(db + column, mask=column < width, other=0.0) + sums, mask=column < width)


def _options(like: Tensor, tile: Tile) -> dict:
    """Blocks in shared memory, and how float32 numbers are multiplied: as torch is told to."""
    full = like.dtype == torch.float32
    shape = tuple(min(side, 64) for side in tile[:2]) + (min(tile[2], 32),) if full else tile
    how = "tf32" if full and torch.backends.cuda.matmul.fp32_precision == "tf32" else "ieee"
    return {**dict(zip("MNK", shape, strict=True)), "HOW": how, "num_warps": WARPS, "num_stages": STAGES}


def _programs(across: int, along: int, options: dict) -> tuple[int]:
    return (-(-across // options["M"]) * -(-along // options["N"]),)


def logits(
    z: Float[Tensor, "rows width"], h: Tensor, w: Tensor, bias: Tensor | None, count: Tensor, start: int, tile: Tile = TILE
) -> None:
    """z = h W^T + b in the rows before `count`, of which the first here is number `start`."""
    (rows, width), depth, options = z.shape, h.shape[1], _options(h, tile)
    grid, flags = _programs(rows, width, options), {"BIAS": bias is not None, "EVEN": depth % options["K"] == 0}
    _logits[grid](h, w, w if bias is None else bias, z, count, start, rows, width, depth, **flags, **options)


def of_features(
    out: Float[Tensor, "rows depth"], z: Tensor, w: Tensor, count: Tensor, start: int, tile: Tile = TILE
) -> None:
    """out = z W in the rows before `count`; the others stay as they are."""
    (rows, width), depth, options = z.shape, w.shape[1], _options(z, tile)
    grid = _programs(rows, depth, options)
    _of_features[grid](z, w, out, count, start, rows, width, depth, EVEN=width % options["K"] == 0, **options)


def add_of_weights(
    dw: Float[Tensor, "width depth"],
    db: Float[Tensor, "width"] | None,
    z: Tensor,
    h: Tensor,
    count: Tensor,
    start: int,
    tile: Tile = TILE,
) -> None:
    """dW += z^T h and db += the sum of z, over the rows before `count`."""
    (rows, width), depth, options = z.shape, h.shape[1], _options(z, tile)
    grid = _programs(width, depth, options)
    _add_of_weights[grid](
        z, h, dw, dw if db is None else db, count, start, rows, width, depth, BIAS=db is not None, **options
    )
