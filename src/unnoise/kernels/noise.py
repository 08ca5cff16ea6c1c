"""The bits of `unnoise.noise` in one kernel, for accelerators.

Written out in torch the counter is some twenty passes over int64 and float64 arrays; fused, it writes each number once.
The bits are the same, so uniforms are; normals agree up to rounding of the quantile.  Where Triton is missing, torch's way
is used.

A launcher compiles a kernel anew for every class of its arguments' values: those that are 1, that are multiples of 16, that
fit into 32 bits.  Keys are all of these by chance, and each compilation takes longer than a batch.  So whole numbers are
taken as 64 bits whatever they are, and there is one kernel for each kind of number that is written.
"""

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
    from triton.language.extra import libdevice
except ImportError:  # CPU installations of torch come without it
    triton = None

BLOCK = 1024


def available(device: torch.device) -> bool:
    return triton is not None and device.type == "cuda"


if triton is not None:

    @triton.jit
    def _mix(x):
        x = x + -7046029254386353131
        x = (x ^ ((x >> 30) & 0x3FFFFFFFF)) * -4658895280553007687
        x = (x ^ ((x >> 27) & 0x1FFFFFFFFF)) * -7723592293110705685
        return x ^ ((x >> 31) & 0x1FFFFFFFF)

    @triton.jit(do_not_specialize=["label"], do_not_specialize_on_alignment=["key"])
    def _under(key, out, label: tl.int64):
        tl.store(out, _mix(_mix(tl.load(key)) ^ label))

    @triton.jit
    def _write(rows, out, key, width, total, NORMAL: tl.constexpr, BLOCK: tl.constexpr):
        index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        inside = index < total
        row = _mix(tl.load(rows + index // width, mask=inside, other=0) ^ key)
        bits = _mix(_mix(row + (index % width) * -7046029254386353131) ^ key)
        value = (((bits >> 12) & 0xFFFFFFFFFFFFF).to(tl.float64) + 0.5) * 2.220446049250313e-16
        if NORMAL:
            value = libdevice.normcdfinv(value)
        tl.store(out + index, value.to(out.dtype.element_ty), mask=inside)

    @triton.jit(do_not_specialize=["key", "width", "total"], do_not_specialize_on_alignment=["rows"])
    def _numbers(rows, out, key: tl.int64, width: tl.int64, total: tl.int64, NORMAL: tl.constexpr, BLOCK: tl.constexpr):
        _write(rows, out, key, width, total, NORMAL, BLOCK)

    @triton.jit(do_not_specialize=["width", "total"], do_not_specialize_on_alignment=["rows", "held"])
    def _numbers_of_held_key(rows, out, held, width: tl.int64, total: tl.int64, NORMAL: tl.constexpr, BLOCK: tl.constexpr):
        _write(rows, out, tl.load(held), width, total, NORMAL, BLOCK)


def under(key: Tensor, label: int) -> Tensor:
    """A key on the device under a label that was mixed already."""
    out = torch.empty_like(key)
    with torch.cuda.device(key.device):
        _under[(1,)](key, out, label)
    return out


def numbers(rows: Tensor, key: int | Tensor, shape: tuple[int, ...], dtype: torch.dtype, normal: bool) -> Tensor:
    """One array of the shape per row: uniform on (0, 1), or standard normal."""
    rows = rows.contiguous()  # the kernel counts through memory: every second row is not the row after the next
    out = torch.empty(len(rows), *shape, dtype=dtype, device=rows.device)
    total = out.numel()
    if total:
        grid = (-(-total // BLOCK),)
        width, options = total // len(rows), {"NORMAL": normal, "BLOCK": BLOCK}
        with torch.cuda.device(rows.device):
            if isinstance(key, Tensor):
                _numbers_of_held_key[grid](rows, out, key, width, total, **options)
            else:
                _numbers[grid](rows, out, key, width, total, **options)
    return out
