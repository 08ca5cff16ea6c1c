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


def rotate(x: Float[Tensor, "*batch length channels"], by: tuple[Tensor, Tensor]) -> Tensor:
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
        q, k, v = packed.permute(2, 0, 3, 1, 4).unbind(0)
        q, k = self.query_norm(q), self.key_norm(k)
        if by is not None:
            q, k = rotate(q, by), rotate(k, by)
        y = F.scaled_dot_product_attention(q.to(v.dtype), k.to(v.dtype), v, is_causal=causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class GatedPerceptron(nn.Module):
    """SwiGLU: out(silu(gate x) * value x), with a hidden width of 8/3 so that it costs what a plain one of 4 would."""

    def __init__(self, width: int):
        super().__init__()
        hidden = 8 * -(-width // 3)
        self.up, self.out = nn.Linear(width, 2 * hidden, bias=False), nn.Linear(hidden, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        gate, value = self.up(x).chunk(2, -1)
        return self.out(F.silu(gate) * value)


class Block(nn.Module):
    """One layer of `depth`.  `condition` is the width of the condition, 0 for none."""

    def __init__(self, width: int, heads: int, depth: int, condition: int = 0):
        super().__init__()
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
