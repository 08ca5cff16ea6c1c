"""`raised.draw` for accelerators: a program for each row, which reads its logits once, by blocks, and one of them twice.

Each block keeps its own largest logit and the sum of its exponentials below that, in float32; they are brought together in
float64.  A row that cannot move reads nothing.
"""

from typing import Any

import torch
from torch import Tensor

from unnoise.kernels.pushed_fused import on

try:
    import triton
    import triton.language as tl

    from unnoise.kernels.pushed_fused import first_place
except ImportError:  # CPU installations of torch come without it
    triton = None

BLOCK = 1024  # logits at once


def available(logits: Tensor) -> bool:
    return triton is not None and logits.is_cuda


if triton is not None:

    @triton.jit
    def _draw(
        logits, alpha, scale, gain, near, u, x, which, fresh, fresh_mass, out, slack: tl.constexpr, size: tl.constexpr,
        states: tl.constexpr, BLOCKS: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        here, number = tl.load(x + row), tl.load(u + row)
        answer = here
        if tl.minimum(number, 1 - number) <= tl.load(near + row) * (1 + slack):
            own, law, step = logits + row * size, tl.load(which + row), tl.arange(0, BLOCK)
            block = tl.arange(0, BLOCKS)
            peaks = tl.full((BLOCKS,), float("-inf"), tl.float32)
            sums = tl.zeros((BLOCKS,), tl.float32)
            for j in range((size + BLOCK - 1) // BLOCK):
                y = j * BLOCK + step
                seen = tl.load(own + y, mask=y < size, other=float("-inf")).to(tl.float32)
                peak = tl.max(seen)
                peaks = tl.where(block == j, peak, peaks)
                sums = tl.where(block == j, tl.sum(tl.exp(seen - tl.maximum(peak, -3e38))), sums)
            top = tl.max(peaks).to(tl.float64)
            mass = sums.to(tl.float64) * tl.exp(peaks.to(tl.float64) - top)
            weight, noise = tl.load(alpha + row) / tl.sum(mass), tl.load(scale + row)
            at_x = tl.load(own + here, mask=here < size, other=float("-inf")).to(tl.float64)
            bonus = weight * tl.exp(at_x - top) + noise * tl.load(fresh + law * states + here)
            bonus *= tl.load(gain + row)
            mass = weight * mass + noise * tl.load(fresh_mass + law * BLOCKS + block)
            mass += tl.where(block == here // BLOCK, bonus, 0.0)
            cumulative = tl.cumsum(mass, 0)
            target = number * tl.max(cumulative)
            found = first_place(cumulative > target, mass, block, 0)
            chosen = block == found
            before = tl.sum(tl.where(chosen, cumulative - mass, 0.0))
            share = (target - before) / tl.sum(tl.where(chosen, mass, 0.0))
            y = found * BLOCK + step
            inside = weight * tl.exp(tl.load(own + y, mask=y < size, other=float("-inf")).to(tl.float64) - top)
            inside += noise * tl.load(fresh + law * states + y, mask=y < states, other=0.0)
            inside += tl.where(y == here, bonus, 0.0)
            cumulative = tl.cumsum(inside, 0)
            whole = tl.max(cumulative)
            answer = first_place(cumulative > share * whole, inside, y, 0).to(tl.int64)
        tl.store(out + row, answer)


def draw(logits: Tensor, raised: Any, slack: float) -> Tensor:
    """`raised.draw`, of logits that are not float64."""
    logits, states = logits.contiguous(), raised.fresh.shape[-1]
    block = min(BLOCK, triton.next_power_of_2(states))
    blocks = triton.next_power_of_2(-(-states // block))
    fresh_mass = torch.nn.functional.pad(raised.fresh, (0, blocks * block - states)).unflatten(-1, (blocks, block)).sum(-1)
    out = torch.empty_like(raised.x)
    rows = [part.contiguous() for part in (raised.alpha, raised.scale, raised.gain, raised.near, raised.u)]
    held = raised.x.contiguous(), raised.which.contiguous(), raised.fresh.contiguous(), fresh_mass, out
    with on(logits.device):
        options = {"slack": slack, "size": logits.shape[-1], "states": states, "BLOCKS": blocks, "BLOCK": block}
        _draw[(len(out),)](logits, *rows, *held, **options)
    return out
