"""Times and numbers as vectors.

A time becomes sines and cosines of many frequencies and then, through a small network, a condition c.  Blocks are told c by
modulation: each normalised activation h is replaced by (1 + scale(c)) h + shift(c), and each branch of a residual network is
multiplied by 1 + gate(c).  Times may be one per row or one per row and group of coordinates; the shape of c follows them.
"""

from math import log

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.shapes import Float

FASTEST = 1000.0  # radians per unit of time of the highest frequency
EPSILON = 1e-6


def fourier_of_time(t: Float[Tensor, "*batch"], count: int) -> Float[Tensor, "*batch {2*count}"]:
    """cos and sin of t at `count` frequencies from 1 to FASTEST, each a fixed multiple of the last; in float32 at least."""
    t = t.to(torch.promote_types(t.dtype, torch.float32))
    ladder = torch.linspace(0, log(FASTEST), count, dtype=t.dtype, device=t.device).exp()
    angle = t.unsqueeze(-1) * ladder
    return torch.cat([angle.cos(), angle.sin()], -1)


def fourier_of_value(x: Float[Tensor, "*batch"], count: int) -> Float[Tensor, "*batch {1+2*count}"]:
    """A number (of about unit scale) itself, and its cos and sin at `count` frequencies 1, 2, 4, ..."""
    angle = x.unsqueeze(-1) * torch.arange(count, device=x.device, dtype=x.dtype).exp2()
    return torch.cat([x.unsqueeze(-1), angle.cos(), angle.sin()], -1)


def fourier_of_angle(x: Float[Tensor, "*batch"], count: int) -> Float[Tensor, "*batch {1+2*count}"]:
    """The same of an angle, without the number itself, which leaps from pi to -pi: in its place stands 0."""
    waves = fourier_of_value(x, count)
    return torch.cat([torch.zeros_like(waves[..., :1]), waves[..., 1:]], -1)


def rms_norm(x: Tensor) -> Tensor:
    """x over its root mean square along the last axis."""
    return F.rms_norm(x, x.shape[-1:], eps=EPSILON)


def modulate(h: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return h * (1 + scale) + shift


class TimeEmbedding(nn.Module):
    """Times [...] -> conditions [..., width]."""

    def __init__(self, width: int, frequencies: int = 32):
        super().__init__()
        self.frequencies = frequencies
        self.first, self.second = nn.Linear(2 * frequencies, width), nn.Linear(width, width)

    def forward(self, t: Float[Tensor, "*batch"], told: Tensor | None = None) -> Float[Tensor, "*batch width"]:
        """`told`: what else is known of a row, as a vector."""
        waves = fourier_of_time(t, self.frequencies).to(self.first.weight.dtype)
        h = self.second(F.silu(self.first(waves)))
        return F.silu(h if told is None else h + told)


class Modulation(nn.Module):
    """A condition [..., width] -> `parts` vectors of the channels' size: shifts, scales, gates, all near 0 at first."""

    def __init__(self, width: int, channels: int, parts: int):
        super().__init__()
        self.parts, self.linear = parts, nn.Linear(width, parts * channels)
        nn.init.normal_(self.linear.weight, std=0.02)
        nn.init.zeros_(self.linear.bias)

    def forward(self, c: Tensor) -> tuple[Tensor, ...]:
        return self.linear(c).chunk(self.parts, -1)


def looked_up(table: nn.Embedding, index: Tensor) -> Tensor:
    """The rows of a small table."""
    return by_indicators(table, index) if index.device.type == "cuda" else table(index)


def by_indicators(table: nn.Embedding, index: Tensor) -> Tensor:
    """The same as a product of matrices: on an accelerator the gradients of many entries that share few rows would otherwise
    be added up one behind another."""
    indicators = index.unsqueeze(-1) == torch.arange(table.num_embeddings, device=index.device)
    return indicators.to(table.weight.dtype) @ table.weight


def zeroed(linear: nn.Linear) -> nn.Linear:
    """A last layer that says nothing at first: velocity 0, uniform logits."""
    nn.init.zeros_(linear.weight)
    if linear.bias is not None:
        nn.init.zeros_(linear.bias)
    return linear
