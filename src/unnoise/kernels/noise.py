"""The bits of `unnoise.noise` in one kernel, for accelerators.

Written out in torch the counter is some twenty passes over int64 and float64 arrays; fused, it writes each number once.
The bits are the same, so uniforms are; normals agree up to rounding of the quantile.  Where Triton is missing, torch's way
is used.

A launcher compiles a kernel anew for every class of its arguments' values: those that are 1, that are multiples of 16, that
fit into 32 bits.  Keys are all of these by chance, and each compilation takes longer than a batch.  So whole numbers are
taken as 64 bits whatever they are, and there is one kernel for each kind of number and shape of tile.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import no_type_check

import torch
from torch import Tensor

from unnoise.kernels.launching import Launcher

try:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice
except ImportError:  # CPU installations of torch come without it
    triton = None

TILE, WIDEST = 512, 512  # numbers of one program, at most so many of a row


def available(device: torch.device) -> bool:
    return triton is not None and device.type == "cuda"


def tile(height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
    """Rows and columns of one program, powers of two, and how many programs there are of each."""
    columns = min(1 << max(width - 1, 0).bit_length(), WIDEST)
    rows = TILE // columns
    return (rows, columns), (-(-height // rows), -(-width // columns))


def on_device(device: torch.device) -> AbstractContextManager:
    """Where kernels are launched; nothing to do where that is the case already."""
    here = device.type != "cuda" or device.index == torch.cuda.current_device()
    return nullcontext() if here else torch.cuda.device(device)


if triton is not None:  # annotations in kernels are types of the device

    @triton.jit
    @no_type_check
    def _mix(x):
        x = x + -7046029254386353131
        x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
        x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
        return x ^ ((x >> 31) & 0x1FFFFFFFF)

    @triton.jit(do_not_specialize=["label"], do_not_specialize_on_alignment=["key"])
    @no_type_check
    def _under(key, out, label: "i64"):
        tl.store(out, _mix(_mix(tl.load(key)) ^ label))

    @triton.jit
    @no_type_check
    def _uniform_at(rows, key, columns):
        """[rows, columns], in float64: what belongs to a row is mixed once for all of its columns."""
        row = _mix(rows ^ key)
        bits = _mix(_mix(row[:, None] + (columns.to(tl.int64) * -7046029254386353131)[None, :]) ^ key)
        return (((bits >> 12) & 0xFFFFFFFFFFFFF).to(tl.float64) + 0.5) * 2.220446049250313e-16

    @triton.jit
    @no_type_check
    def normal_at(rows, key, columns):
        return libdevice.normcdfinv(_uniform_at(rows, key, columns))

    @triton.jit
    @no_type_check
    def _write(rows, out, key, height, width, NORMAL: tl.constexpr, R: tl.constexpr, C: tl.constexpr):
        row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
        column = tl.program_id(1) * C + tl.arange(0, C)
        of_row = tl.load(rows + row, mask=row < height, other=0)
        value = _uniform_at(of_row, key, column)
        if NORMAL:
            value = libdevice.normcdfinv(value)
        inside = (row < height)[:, None] & (column < width)[None, :]
        tl.store(out + row[:, None] * width + column[None, :], value.to(out.dtype.element_ty), mask=inside)

    @triton.jit(do_not_specialize=["key", "height", "width"], do_not_specialize_on_alignment=["rows"])
    @no_type_check
    def _numbers(rows, out, key: "i64", height: "i64", width: "i64",
                 NORMAL: tl.constexpr, R: tl.constexpr, C: tl.constexpr):  # fmt: skip
        _write(rows, out, key, height, width, NORMAL, R, C)

    @triton.jit(do_not_specialize=["height", "width"], do_not_specialize_on_alignment=["rows", "held"])
    @no_type_check
    def _numbers_of_held_key(rows, out, held, height: "i64", width: "i64",
                             NORMAL: tl.constexpr, R: tl.constexpr, C: tl.constexpr):  # fmt: skip
        _write(rows, out, tl.load(held), height, width, NORMAL, R, C)

    _of_key, _of_held_key = Launcher(_numbers), Launcher(_numbers_of_held_key)


def under(key: Tensor, label: int) -> Tensor:
    """A key on the device under a label that was mixed already."""
    out = torch.empty_like(key)
    with on_device(key.device):
        _under[(1,)](key, out, label)
    return out


def numbers(rows: Tensor, key: int | Tensor, shape: tuple[int, ...], dtype: torch.dtype, normal: bool) -> Tensor:
    """One array of the shape per row: uniform on (0, 1), or standard normal."""
    rows = rows.contiguous()  # the kernel counts through memory: every second row is not the row after the next
    out = torch.empty(len(rows), *shape, dtype=dtype, device=rows.device)
    if out.numel():
        width = out.numel() // len(rows)
        (R, C), grid = tile(len(rows), width)
        with on_device(rows.device):
            launch = _of_held_key if isinstance(key, Tensor) else _of_key
            launch(grid, (out.device.index, dtype, normal, R, C), rows, out, key, len(rows), width, normal, R, C)
    return out
