"""`pushed.draw` for accelerators: softmax and product by torch, the rest in one kernel, and what float32 lost in another.

The first kernel reads each row of Q_{s|0} theta once, multiplies it by its row of the evidence, which the cache holds, sums
in float64 and finds the category.  Rows whose total is low get -1, and a second one, of few programs that look through the
answers, draws those again in float64 from the logits themselves: the host never learns which.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU installations of torch come without it
    triton = None

MOST_STATES = 4096  # a row is held at once
ENTRIES = 1024  # of a program
PROGRAMS, LOOKED_AT = 1024, 64  # that look through the answers, and how many of them at once


def available(logits: Tensor, evidence: Tensor) -> bool:
    return triton is not None and logits.is_cuda and evidence.shape[-1] <= MOST_STATES


def on(device: torch.device) -> AbstractContextManager[Any]:
    """Kernels are launched on the device that is current; without one they are interpreted."""
    return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


if triton is not None:

    @triton.jit
    def first_place(holds, weight, places, axis: tl.constexpr):
        """The first place of weight that holds; where rounding has left none, the last of weight."""
        none = 1 << 30
        found = tl.min(tl.where(holds & (weight > 0), places, none), axis)
        return tl.where(found < none, found, tl.max(tl.where(weight > 0, places, 0), axis))

    @triton.jit
    def _draw(
        prior, evidence, x, u, out, total, per, low, states: tl.constexpr, SHARED: tl.constexpr, ROWS: tl.constexpr,
        STATES: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)
        y = tl.arange(0, STATES)
        inside = row < total
        here = tl.load(x + row, mask=inside, other=0)
        if not SHARED:
            here += row // per * states
        seen = inside[:, None] & (y < states)[None, :]
        weight = tl.load(prior + row[:, None] * states + y[None, :], mask=seen, other=0.0)
        weight *= tl.load(evidence + here[:, None] * states + y[None, :], mask=seen, other=0.0)
        weight = weight.to(tl.float64)
        cumulative = tl.cumsum(weight, 1)
        whole = tl.max(cumulative, 1)
        target = tl.load(u + row, mask=inside, other=0.5) * whole
        place = first_place(cumulative > target[:, None], weight, y[None, :], 1)
        tl.store(out + row, tl.where(whole > low, place, -1).to(tl.int64), mask=inside)

    @triton.jit
    def _draw_again(
        logits, push, evidence, x, u, out, total, per, least: tl.constexpr, size: tl.constexpr, states: tl.constexpr,
        SHARED: tl.constexpr, SIZE: tl.constexpr, STATES: tl.constexpr, ROWS: tl.constexpr,
    ):  # fmt: skip
        start = tl.program_id(0).to(tl.int64) * ROWS
        while start < total:
            looked = start + tl.arange(0, ROWS)
            low = tl.load(out + looked, mask=looked < total, other=0) < 0
            while tl.max(low.to(tl.int32)) > 0:
                row = start + tl.argmax(low.to(tl.int32), 0)
                low = low & (looked != row)
                group = row // per
                if SHARED:
                    group *= 0
                here = tl.load(x + row)
                a = tl.arange(0, SIZE)
                y = tl.arange(0, STATES)
                known = tl.load(logits + row * size + a, mask=a < size, other=float("-inf")).to(tl.float64)
                peak = tl.max(known)
                scale = tl.sum(tl.exp(known - peak))
                prior = tl.zeros((STATES,), tl.float64)
                for category in range(size):
                    theta = tl.exp(tl.load(logits + row * size + category).to(tl.float64) - peak) / scale
                    column = push + (group * states + y) * size + category
                    prior += theta * tl.load(column, mask=y < states, other=0.0)
                told = tl.load(evidence + (group * states + here) * states + y, mask=y < states, other=0.0)
                weight = prior * told
                cumulative = tl.cumsum(weight, 0)
                whole = tl.max(cumulative)
                place = first_place(cumulative > tl.load(u + row) * whole, weight, y, 0)
                place = tl.where(whole > least, place, tl.argmax(told, 0))
                tl.store(out + row, place.to(tl.int64))
            start += tl.num_programs(0) * ROWS


def draw(tables: Any, logits: Tensor, x: Tensor, u: Tensor, low: float, least: float) -> Tensor:
    """`pushed.draw`, of logits that are not float64."""
    per, (states, size) = x.shape[-1], tables.push.shape[1:]
    with torch.autocast(logits.device.type, enabled=False):
        prior = logits.softmax(-1, dtype=torch.float32) @ tables.single.push.mT
    logits, x, u, out = logits.contiguous(), x.contiguous(), u.contiguous(), torch.empty_like(x)
    total, wide = x.numel(), triton.next_power_of_2(states)
    rows = max(1, ENTRIES // wide)
    options = {"states": states, "SHARED": len(tables.push) == 1, "STATES": wide}
    again = {"least": least, "size": size, "SIZE": triton.next_power_of_2(size), "ROWS": LOOKED_AT}
    with on(logits.device):
        grid, own = (-(-total // rows),), (x, u, out, total, per)
        _draw[grid](prior, tables.single.evidence, *own, low, ROWS=rows, **options)
        grid = (min(PROGRAMS, -(-total // LOOKED_AT)),)
        _draw_again[grid](logits, tables.push, tables.evidence, *own, **again, **options)
    return out
