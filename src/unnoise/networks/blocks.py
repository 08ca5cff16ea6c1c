"""The transformer block that sequences and tables share.

Each branch sees normalised activations and adds to a residual stream: attention over all tokens (queries and keys
normalised, optionally rotated by their positions), then a gated perceptron.  With a condition both are modulated.

Rotary positions: the pair (a, b) of channels of a query or key at position n is turned by the angle n w.  The product of a
query and a key then depends on the difference of their positions alone.
"""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.networks.embedding import Modulation, modulate, rms_norm
from unnoise.shapes import Float

BASE = 10_000.0  # ratio of the fastest to the slowest rotation


def rotations(length: int, channels: int, device: torch.device) -> tuple[Tensor, Tensor]:
    """cos and sin of every position's angles, [length, channels / 2], float32."""
    speed = BASE ** (-torch.arange(0, channels, 2, device=device, dtype=torch.float32) / channels)
    angle = torch.arange(length, device=device, dtype=torch.float32).unsqueeze(1) * speed
    return angle.cos(), angle.sin()


def rotate(x: Float[Tensor, "*batch channels"], by: tuple[Tensor, Tensor]) -> Tensor:
    """The pairs (first half, second half) of channels turned by angles that broadcast against them."""
    cos, sin = by
    a, b = x.chunk(2, -1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], -1)


class RMSNorm(nn.Module):
    """Root-mean-square norm with a learned scale."""

    def __init__(self, width: int):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x: Tensor) -> Tensor:
        return rms_norm(x) * self.weight


class Attention(nn.Module):
    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, width, bias=False)
        self.query_norm, self.key_norm = RMSNorm(width // heads), RMSNorm(width // heads)

    def forward(
        self, x: Float[Tensor, "batch length width"], by: tuple[Tensor, Tensor] | None = None, causal: bool = False
    ) -> Float[Tensor, "batch length width"]:
        batch, length, width = x.shape
        packed = self.qkv(x).reshape(batch, length, 3, self.heads, width // self.heads)
        both, v = packed[:, :, :2], packed[:, :, 2]  # queries and keys together, in the layout they have: one pass
        both = rms_norm(both) * torch.stack([self.query_norm.weight, self.key_norm.weight]).unsqueeze(1)
        if by is not None:
            both = rotate(both, (by[0][:, None, None], by[1][:, None, None]))
        q, k = both.to(v.dtype).unbind(2)
        y = F.scaled_dot_product_attention(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class GatedPerceptron(nn.Module):
    """SwiGLU: out(silu(gate x) * value x), with a hidden width of 8/3 so that it costs what a plain one of 4 would."""

    def __init__(self, width: int):
        super().__init__()
        unit = 64 if width >= 256 else 8  # products of matrices are quickest in whole tiles
        hidden = unit * -(-8 * width // (3 * unit))
        self.up, self.out = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, -1)
        return self.out(F.silu(gate) * value)


class Neighbours(nn.Module):
    """A weighted sum over `2 reach + 1` neighbouring positions, channel by channel; all of them earlier ones if causal."""

    def __init__(self, width: int, reach: int):
        super().__init__()
        self.reach, self.weight = reach, nn.Parameter(torch.zeros(2 * reach + 1, width))

    def forward(self, x: Float[Tensor, "batch length width"], causal: bool = False) -> Float[Tensor, "batch length width"]:
        length, before = x.shape[1], 2 * self.reach if causal else self.reach
        padded = F.pad(x, (0, 0, before, 2 * self.reach - before))
        out = padded[:, :length] * self.weight[0]
        for i in range(1, 2 * self.reach + 1):
            out = out + padded[:, i : i + length] * self.weight[i]
        return out


class Block(nn.Module):
    """One layer of `depth`.  `condition` is the width of the condition, 0 for none; `reach` that of a sum over neighbours
    before attention, 0 for none: letters are known by their neighbours, and attention need not learn to find these."""

    def __init__(self, width: int, heads: int, depth: int, condition: int = 0, reach: int = 0):
        super().__init__()
        self.neighbours = Neighbours(width, reach) if reach else None
        self.attention, self.perceptron = Attention(width, heads), GatedPerceptron(width)
        self.modulation = Modulation(condition, width, 6) if condition else None
        self.norms = None if condition else nn.ModuleList([RMSNorm(width), RMSNorm(width)])
        with torch.no_grad():  # the stream keeps its scale, whatever the depth
            for linear in (self.attention.out, self.perceptron.out):
                linear.weight /= (2 * depth) ** 0.5

    def forward(
        self,
        h: Float[Tensor, "batch length width"],
        c: Float[Tensor, "batch groups condition"] | None = None,
        group: Tensor | None = None,
        by: tuple[Tensor, Tensor] | None = None,
        causal: bool = False,
    ) -> Float[Tensor, "batch length width"]:
        """c is one condition for all tokens (groups = 1), or one per group with `group` the group of each token."""
        if self.neighbours is not None:
            h = h + self.neighbours(rms_norm(h), causal)
        if self.modulation is None:
            assert self.norms is not None
            h = h + self.attention(self.norms[0](h), by, causal)
            return h + self.perceptron(self.norms[1](h))
        parts = self.modulation(c)
        if group is not None:
            parts = tuple(part.index_select(1, group) for part in parts)
        shift_1, scale_1, gate_1, shift_2, scale_2, gate_2 = parts
        h = h + (1 + gate_1) * self.attention(modulate(rms_norm(h), shift_1, scale_1), by, causal)
        return h + (1 + gate_2) * self.perceptron(modulate(rms_norm(h), shift_2, scale_2))
