"""`pushed.draw` for accelerators: one kernel from the logits to the categories, and one for what float32 lost.

A program takes some rows.  It reads their logits, exponentials of which it multiplies with Q_{s|0}, multiplies the products
by the rows' evidence, sums them by blocks and finds the category (`inversion`): beside the logits nothing of their size is
read, and only the categories are written.

The product runs on units that multiply bfloat16 and add in float32.  Each factor is split in two, a = a' + a'', of 8 binary
digits each, and a b is a'b' + a'b'' + a''b' with a relative error of 1.2e-5 at most: where all terms are positive, of the
probabilities too.  (At 256 states the law is off by 1e-6 in the mean in total variation, and by 4e-6 at most.)

Rows whose total is low get -1, and a second kernel, of few programs that look through the answers, draws those again in
float64 from the logits themselves: the host never learns which.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from unnoise.kernels.inversion import width

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU installations of torch come without it
    triton = None

MOST_STATES = 1024  # a program holds whole rows
ENTRIES = 2**14  # of them: 64 rows of 256 states
STEPS, WARPS = 2**14, 8  # entries of a matrix multiplied at once
PROGRAMS, LOOKED_AT = 1024, 64  # that look through the answers, and how many of them at once


def available(logits: Tensor, evidence: Tensor) -> bool:
    if triton is None or not logits.is_cuda or evidence.shape[-1] > MOST_STATES:
        return False
    return torch.cuda.get_device_capability(logits.device) >= (8, 0)  # which multiplies bfloat16


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
        logits, high, low, evidence, x, u, out, per, least, size: tl.constexpr, states: tl.constexpr, SIZE: tl.constexpr,
        STATES: tl.constexpr, ROWS: tl.constexpr, STEP: tl.constexpr, BLOCK: tl.constexpr, FACTOR: tl.constexpr,
    ):  # fmt: skip
        tiles = tl.cdiv(per, ROWS)
        group, place = (tl.program_id(0) // tiles).to(tl.int64), tl.program_id(0) % tiles * ROWS + tl.arange(0, ROWS)
        row, inside, y, a = group * per + place, place < per, tl.arange(0, STATES), tl.arange(0, SIZE)
        own = logits + row[:, None] * size
        every = tl.load(own + a[None, :], mask=inside[:, None] & (a < size)[None, :], other=float("-inf"))
        peak = tl.where(inside, tl.max(every.to(tl.float32), 1), 0.0)
        weight = tl.zeros((ROWS, STATES), tl.float32)
        for first in range(0, SIZE, STEP):
            c = first + tl.arange(0, STEP)
            seen = tl.load(own + c[None, :], mask=inside[:, None] & (c < size)[None, :], other=float("-inf"))
            theta = tl.exp(seen.to(tl.float32) - peak[:, None])
            main = theta.to(tl.bfloat16)
            rest = (theta - main.to(tl.float32)).to(tl.bfloat16).to(FACTOR)
            main = main.to(FACTOR)
            column = (group * SIZE + c[:, None]) * STATES + y[None, :]
            push, small = tl.load(high + column).to(FACTOR), tl.load(low + column).to(FACTOR)
            weight = tl.dot(main, small, weight)
            weight = tl.dot(rest, push, weight)
            weight = tl.dot(main, push, weight)
        here = group * states + tl.load(x + row, mask=inside, other=0)
        weight *= tl.load(evidence + here[:, None] * STATES + y[None, :])
        blocks = tl.reshape(weight, (ROWS, STATES // BLOCK, BLOCK))
        mass = tl.sum(blocks, 2).to(tl.float64)
        cumulative, number = tl.cumsum(mass, 1), tl.arange(0, STATES // BLOCK)[None, :]
        whole = tl.max(cumulative, 1)
        target = tl.load(u + row, mask=inside, other=0.5) * whole
        block = first_place(cumulative > target[:, None], mass, number, 1)
        chosen = number == block[:, None]
        before = tl.sum(tl.where(chosen, cumulative - mass, 0.0), 1)
        share = (target - before) / tl.sum(tl.where(chosen, mass, 0.0), 1)
        part = tl.sum(tl.where(chosen[:, :, None], blocks, 0.0), 1).to(tl.float64)
        cumulative = tl.cumsum(part, 1)
        sought = share * tl.max(cumulative, 1)
        found = block * BLOCK + first_place(cumulative > sought[:, None], part, tl.arange(0, BLOCK)[None, :], 1)
        tl.store(out + row, tl.where(whole > least, found, -1).to(tl.int64), mask=inside)

    @triton.jit
    def _draw_again(
        logits, push, evidence, x, u, out, total, per, least: tl.constexpr, size: tl.constexpr, states: tl.constexpr,
        SIZE: tl.constexpr, STATES: tl.constexpr, ROWS: tl.constexpr,
    ):  # fmt: skip
        start = tl.program_id(0).to(tl.int64) * ROWS
        while start < total:
            looked = start + tl.arange(0, ROWS)
            low = tl.load(out + looked, mask=looked < total, other=0) < 0
            while tl.max(low.to(tl.int32)) > 0:
                row = start + tl.argmax(low.to(tl.int32), 0)
                low = low & (looked != row)
                group = row // per
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


def at_least_16(size: int) -> int:
    """The next power of two, as units for products want it."""
    return max(16, triton.next_power_of_2(size))


def split(push: Tensor, evidence: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Q_{s|0} by categories in two halves, and the evidence in float32, filled with zeros to powers of two."""
    states, size = push.shape[1:]
    more, wider = at_least_16(size) - size, at_least_16(states) - states
    push = torch.nn.functional.pad(push.mT, (0, wider, 0, more)).contiguous()
    high = push.bfloat16()
    evidence = torch.nn.functional.pad(evidence.float(), (0, wider)).contiguous()
    return high, (push - high.double()).bfloat16(), evidence


def draw(tables: Any, logits: Tensor, x: Tensor, u: Tensor, low: float, least: float) -> Tensor:
    """`pushed.draw`, of logits that are not float64."""
    (groups, per), (states, size) = x.shape, tables.push.shape[1:]
    logits, x, u, out = logits.contiguous(), x.contiguous(), u.contiguous(), torch.empty_like(x)
    wide, total = at_least_16(states), x.numel()
    sizes = {"size": size, "states": states, "SIZE": at_least_16(size), "STATES": wide}
    rows = max(16, min(64, ENTRIES // wide))
    with on(logits.device):
        options = {"ROWS": rows, "STEP": min(32, STEPS // wide, sizes["SIZE"]), "BLOCK": width(wide), "num_warps": WARPS}
        options |= {
            "FACTOR": tl.bfloat16 if logits.is_cuda else tl.float32,
            "num_stages": 2,
        }  # interpreters have no bfloat16
        _draw[(-(-per // rows) * groups,)](logits, *tables.halves, x, u, out, per, low, **sizes, **options)
        grid = (min(PROGRAMS, -(-total // LOOKED_AT)),)
        own = tables.push, tables.evidence, x, u, out, total, per
        _draw_again[grid](logits, *own, least=least, ROWS=LOOKED_AT, **sizes)
    return out
