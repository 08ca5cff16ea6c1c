"""Norms of groups of channels, scaled, shifted and through SiLU in one kernel, for arrays [batch, channels, height, width].

    y = silu(gain (h - mean)/sqrt(variance + eps) + offset),      mean and variance over a group's channels and places

The device's convolutions want channels last in memory, torch's group norm wants them first: between the two every array is
turned around and back, and each of scale, shift and SiLU is a pass more.  Here one program has one row of the batch: it
reads whole runs of memory, twice, and writes once.  A bias that a convolution would add in a pass of its own is added on the
way (`before`); so is that of the sum of two arrays, `halfway`.

Sums are in float32, about each channel's first number, and are put together by group as those of parts are,

    M2 = sum_c [M2_c + n (mean_c - mean)^2],

so that no large mean swallows the variance.  For drawing: gradients, other devices and compilers go the plain way, which is
the reference.
"""

from typing import no_type_check

import torch
import torch.nn.functional as F
from torch import Tensor

from unnoise.kernels.noise import available, on_device
from unnoise.shapes import Float

try:
    import triton
    import triton.language as tl
except ImportError:  # CPU installations of torch come without it
    triton = None

TILE, WARPS = 8192, 8  # numbers that a program looks at together
KINDS = (torch.float32, torch.bfloat16, torch.float16)
MOST_CHANNELS = 2048

if triton is not None:  # annotations in kernels are types of the device

    @triton.jit
    @no_type_check
    def _normalise(h, before, gain, offset, out, places, channels, width, of_row, eps: "fp32",
                   BIASED: tl.constexpr, PIECES: tl.constexpr, R: tl.constexpr, C: tl.constexpr,
                   G: tl.constexpr):  # fmt: skip
        row = tl.program_id(0).to(tl.int64)
        channel = tl.arange(0, C)
        known = channel < channels
        base = row * places * channels
        added = tl.zeros((C,), tl.float32)
        if BIASED:
            added = tl.load(before + channel, mask=known, other=0.0).to(tl.float32)
        origin = tl.load(h + base + channel, mask=known, other=0.0).to(tl.float32)
        once = tl.zeros((R, C), tl.float32)  # summed over places at the end: until then threads need not meet
        twice = tl.zeros((R, C), tl.float32)
        for piece in range(PIECES):
            place = piece * R + tl.arange(0, R)
            inside = (place < places)[:, None] & known[None, :]
            at = base + place[:, None] * channels + channel[None, :]
            value = tl.load(h + at, mask=inside, other=0.0).to(tl.float32)
            value = tl.where(inside, value - origin[None, :], 0.0)
            once += value
            twice += value * value
        once, twice = tl.sum(once, 0), tl.sum(twice, 0)
        own_mean = origin + added + once / places
        own = (tl.arange(0, G)[:, None] == (channel // width)[None, :]) & known[None, :]  # [groups, channels]
        mean = tl.sum(tl.where(own, own_mean[None, :], 0.0), 1) / width
        mean = tl.sum(tl.where(own, mean[:, None], 0.0), 0)
        spread = twice - once * once / places + places * (own_mean - mean) * (own_mean - mean)
        variance = tl.sum(tl.where(own, spread[None, :], 0.0), 1) / (places * width)
        variance = tl.sum(tl.where(own, variance[:, None], 0.0), 0)
        scale = tl.load(gain + row * of_row + channel, mask=known, other=0.0).to(tl.float32) / tl.sqrt(variance + eps)
        shift = tl.load(offset + row * of_row + channel, mask=known, other=0.0).to(tl.float32) + (added - mean) * scale
        for piece in range(PIECES):
            place = piece * R + tl.arange(0, R)
            inside = (place < places)[:, None] & known[None, :]
            at = base + place[:, None] * channels + channel[None, :]
            y = tl.load(h + at, mask=inside, other=0.0).to(tl.float32) * scale[None, :] + shift[None, :]
            tl.store(out + at, (y / (1.0 + tl.exp(-y))).to(out.dtype.element_ty), mask=inside)

    @triton.jit
    @no_type_check
    def _halfway(x, y, bias, out, total, channels, SIZE: tl.constexpr):
        at = tl.program_id(0).to(tl.int64) * SIZE + tl.arange(0, SIZE)
        inside = at < total
        added = tl.load(bias + at % channels, mask=inside, other=0.0).to(tl.float32)
        both = tl.load(x + at, mask=inside, other=0.0).to(tl.float32) + tl.load(y + at, mask=inside, other=0.0).to(
            tl.float32
        )
        tl.store(out + at, ((both + added) * 0.7071067811865476).to(out.dtype.element_ty), mask=inside)


def norm_silu(
    h: Float[Tensor, "batch channels height width"],
    groups: int,
    gain: Float[Tensor, "*batch channels"],
    offset: Float[Tensor, "*batch channels"],
    before: Float[Tensor, "channels"] | None = None,
    eps: float = 1e-5,
) -> Float[Tensor, "batch channels height width"]:
    """SiLU of the scaled and shifted norm of h + before; gain and offset [channels], or [batch, channels] for each row."""
    if not fits(h):
        return plain_norm_silu(h, groups, gain, offset, before, eps)
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else h.dtype
    return _launch_norm(h, groups, gain, offset, before, eps, torch.empty_like(h, dtype=dtype))


def plain_norm_silu(
    h: Tensor, groups: int, gain: Tensor, offset: Tensor, before: Tensor | None = None, eps: float = 1e-5
) -> Tensor:
    h = h if before is None else h + before[:, None, None]
    if gain.ndim == 1:
        return F.silu(F.group_norm(h, groups, gain, offset, eps))
    return F.silu(F.group_norm(h, groups, eps=eps) * gain[..., None, None] + offset[..., None, None])


def halfway(x: Tensor, y: Tensor, bias: Float[Tensor, "channels"] | None = None) -> Tensor:
    """(x + y + bias)/sqrt 2, of arrays [batch, channels, height, width]."""
    if bias is None or x.shape != y.shape or not (fits(x) and fits(y)):
        return plain_halfway(x, y, bias)
    wide = torch.promote_types(x.dtype, y.dtype)
    return _launch_halfway(x, y, bias, torch.empty_like(x, dtype=wide))


def plain_halfway(x: Tensor, y: Tensor, bias: Tensor | None) -> Tensor:
    return (x + y if bias is None else x + y + bias[:, None, None]) * 0.5**0.5


def fits(h: Tensor) -> bool:
    """Whether the kernels take an array."""
    if not available(h.device) or torch.is_grad_enabled() or torch.compiler.is_compiling() or not h.numel():
        return False
    last = h.ndim == 4 and h.is_contiguous(memory_format=torch.channels_last)
    return last and h.dtype in KINDS and h.shape[1] <= MOST_CHANNELS


def _launch_norm(
    h: Tensor, groups: int, gain: Tensor, offset: Tensor, before: Tensor | None, eps: float, out: Tensor
) -> Tensor:
    batch, channels, *places = h.shape
    count, of_row = places[0] * places[1], 0 if gain.ndim == 1 else channels
    columns = triton.next_power_of_2(channels)
    rows = min(max(TILE // columns, 1), triton.next_power_of_2(count))
    fixed = (before is not None, -(-count // rows), rows, columns, triton.next_power_of_2(groups))
    gain, offset = gain.contiguous(), offset.contiguous()
    with on_device(h.device):
        arrays = (h, h if before is None else before.contiguous(), gain, offset, out)
        _normalise[(batch,)](*arrays, count, channels, channels // groups, of_row, eps, *fixed, num_warps=WARPS)
    return out


def _launch_halfway(x: Tensor, y: Tensor, bias: Tensor, out: Tensor) -> Tensor:
    with on_device(x.device):
        _halfway[(-(-x.numel() // TILE),)](x, y, bias.contiguous(), out, x.numel(), x.shape[1], TILE, num_warps=WARPS)
    return out
