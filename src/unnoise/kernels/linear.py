"""Linear combinations of arrays in one kernel, noise included: all that a step on numbers does beside its network.

    y_j = sum_k c_jk v_k,  j < 3, k < 7;      and to the last of them  + scale z(row, key, coordinate)

Each v is read and each y written once, where torch would take a pass for every term.  Coefficients come by value, in
float64, so that a recorded run holds them; sums are taken in float32, or float64 if one of the arrays is.  z is the number
that `kernels.noise` draws for the same row, key and coordinate, rounded to the type of y before it is scaled.  The plain way
beside this is in `samplers.combinations`.
"""

from collections.abc import Sequence
from typing import no_type_check

import torch
from torch import Tensor

from unnoise.kernels import noise as numbers
from unnoise.kernels.launching import Launcher, class_of
from unnoise.kernels.noise import available, on_device, tile

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU installations of torch come without it
    triton = None

__all__ = ["MOST_INPUTS", "MOST_SUMS", "TYPES", "available", "combine"]

MOST_INPUTS, MOST_SUMS = 7, 3
TYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16)

if triton is not None:  # annotations in kernels are types of the device
    _noise = numbers.normal_at

    @triton.jit
    @no_type_check
    def _read(place, at, inside, unused, USED: tl.constexpr, KIND: tl.constexpr):
        if USED:
            return tl.load(place + at, mask=inside, other=0.0).to(KIND)
        else:  # noqa: RET505  (a kernel has one return that is compiled)
            return unused

    @triton.jit
    @no_type_check
    def _sum(v0, v1, v2, v3, v4, v5, v6, c0, c1, c2, c3, c4, c5, c6, INPUTS: tl.constexpr):
        total = tl.full((), c0, v0.dtype) * v0
        if INPUTS > 1:
            total += tl.full((), c1, v0.dtype) * v1
        if INPUTS > 2:
            total += tl.full((), c2, v0.dtype) * v2
        if INPUTS > 3:
            total += tl.full((), c3, v0.dtype) * v3
        if INPUTS > 4:
            total += tl.full((), c4, v0.dtype) * v4
        if INPUTS > 5:
            total += tl.full((), c5, v0.dtype) * v5
        if INPUTS > 6:
            total += tl.full((), c6, v0.dtype) * v6
        return total

    @triton.jit(do_not_specialize=["key"])
    @no_type_check
    def _combine(
        p0, p1, p2, p3, p4, p5, p6, q0, q1, q2,
        a0: "fp64", a1: "fp64", a2: "fp64", a3: "fp64", a4: "fp64", a5: "fp64", a6: "fp64",
        b0: "fp64", b1: "fp64", b2: "fp64", b3: "fp64", b4: "fp64", b5: "fp64", b6: "fp64",
        c0: "fp64", c1: "fp64", c2: "fp64", c3: "fp64", c4: "fp64", c5: "fp64", c6: "fp64",
        scale: "fp64", rows, key: "i64", height, width,
        INPUTS: tl.constexpr, SUMS: tl.constexpr, NOISE: tl.constexpr, KIND: tl.constexpr,
        R: tl.constexpr, C: tl.constexpr,
    ):  # fmt: skip
        """The last sum has the coefficients a, the one before b, the first of three c."""
        row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
        column = tl.program_id(1) * C + tl.arange(0, C)
        inside = (row < height)[:, None] & (column < width)[None, :]
        at = row[:, None] * width + column[None, :]
        v0 = _read(p0, at, inside, None, True, KIND)
        v1 = _read(p1, at, inside, v0, INPUTS > 1, KIND)
        v2 = _read(p2, at, inside, v0, INPUTS > 2, KIND)
        v3 = _read(p3, at, inside, v0, INPUTS > 3, KIND)
        v4 = _read(p4, at, inside, v0, INPUTS > 4, KIND)
        v5 = _read(p5, at, inside, v0, INPUTS > 5, KIND)
        v6 = _read(p6, at, inside, v0, INPUTS > 6, KIND)
        last = _sum(v0, v1, v2, v3, v4, v5, v6, a0, a1, a2, a3, a4, a5, a6, INPUTS)
        if NOISE:
            z = _noise(tl.load(rows + row, mask=row < height, other=0), key, column)
            last += tl.full((), scale, KIND) * z.to(KIND).to(q0.dtype.element_ty).to(KIND)
        tl.store(q0 + at, last.to(q0.dtype.element_ty), mask=inside)
        if SUMS > 1:
            before = _sum(v0, v1, v2, v3, v4, v5, v6, b0, b1, b2, b3, b4, b5, b6, INPUTS)
            tl.store(q1 + at, before.to(q1.dtype.element_ty), mask=inside)
        if SUMS > 2:
            first = _sum(v0, v1, v2, v3, v4, v5, v6, c0, c1, c2, c3, c4, c5, c6, INPUTS)
            tl.store(q2 + at, first.to(q2.dtype.element_ty), mask=inside)

    _launch = Launcher(_combine)


def _form(value: Tensor | None) -> tuple[torch.dtype, bool] | None:
    """What is compiled for of an array: its type, and whether it begins at a multiple of 16 bytes."""
    return None if value is None else (value.dtype, value.data_ptr() % 16 == 0)


def combine(
    inputs: Sequence[Tensor],
    matrix: Sequence[Sequence[float]],
    scale: float | None = None,
    rows: Tensor | None = None,
    key: int | None = None,
) -> list[Tensor]:
    """The sums with these coefficients on the inputs, in the type of the first; with rows and a key the last has noise."""
    v = [value.contiguous() for value in inputs]
    out = [torch.empty_like(v[0]) for _ in matrix]
    if not v[0].numel():
        return out
    height = len(v[0])
    width = v[0].numel() // height
    (R, C), grid = tile(height, width)
    pointers = [*v, *[None] * (MOST_INPUTS - len(v)), *out[::-1], *[None] * (MOST_SUMS - len(out))]
    none = [0.0] * MOST_INPUTS
    rest = none[len(v) :]
    coefficients = [c for row in (*matrix[::-1], *[none] * MOST_SUMS)[:MOST_SUMS] for c in (*row, *rest)[:MOST_INPUTS]]
    noise = (0.0, None, 0) if rows is None else (scale, rows.contiguous(), key)
    kind = tl.float64 if any(value.dtype == torch.float64 for value in v) else tl.float32
    assumed = (out[0].device.index, class_of(height), class_of(width), *(_form(value) for value in (*v, noise[1])))
    fixed = (len(v), len(out), rows is not None, kind, R, C)
    with on_device(v[0].device):
        _launch(grid, (*fixed, *assumed), *pointers, *coefficients, *noise, height, width, *fixed)
    return out
