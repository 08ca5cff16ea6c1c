"""Arrays: a small U-Net for [height, width] or [channels, height, width], of numbers, counts or ordinal categories.

Residual convolutions at a few resolutions, each told the time, with attention at the lowest and the way up joined to the way
down.  Any size will do: the array is padded with zeros to a multiple of the stride and cropped at the end.

Categories enter both as numbers between -1 and 1 (MASK, index `size`, as 0) and by a table, so their order is known and need
not be learned.  They leave as `size` logits per pixel through `features` and `head`: the logits of level k are those of a
plain linear layer plus a smooth function of k, a sum of the first cosines, so that what is learned of a level is at once
learned of its neighbours.

Numbers that come in bins enter beside sine and cosine waves of one and two bins' width: noise much smaller than the numbers
themselves, on which the likelihood depends, would be lost in bfloat16.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import pi
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.kernels.group_norm import fits, halfway, norm_silu
from unnoise.networks.base import register, require
from unnoise.networks.blocks import Attention
from unnoise.networks.embedding import Modulation, TimeEmbedding, looked_up, rms_norm, zeroed
from unnoise.networks.told import conditions_of, hear, told_embedding
from unnoise.shapes import Float

GROUPS = 8
COSINES = 16  # of the smooth part of ordinal logits


@dataclass(kw_only=True)
class SmallUNetConfig:
    shape: Sequence[int]  # [height, width] or [channels, height, width]
    kind: str = "number"  # or "count", "category"
    entries: int = 1  # numbers predicted per coordinate of a count; 1 means that there is no axis for them
    size: int = 0  # categories, without MASK
    extra: int = 0  # further states after the categories, such as MASK
    bin: float = 0.0  # the width of the bins that numbers come in; 0 for none
    width: int = 64
    multipliers: Sequence[int] = (1, 2, 2)  # channels at each resolution, in widths
    blocks: int = 2  # per resolution
    heads: int = 4
    self_condition: bool = False
    conditions: Sequence[Any] = ()  # that it is told beside x and t: `ConditionInput`, or dicts of its fields

    def __post_init__(self) -> None:
        self.conditions = conditions_of(self.conditions)
        require(len(self.shape) in (2, 3), f"shape = {list(self.shape)}: pass [height, width] or [channels, height, width]")
        require(
            self.kind in ("number", "count", "category"), f"kind = {self.kind!r}: choose 'number', 'count' or 'category'"
        )
        require((self.size > 0) == (self.kind == "category"), f"size = {self.size} does not fit kind = {self.kind!r}")
        require(
            self.width % (2 * GROUPS) == 0 and self.width % self.heads == 0,
            f"width = {self.width}: choose a multiple of {2 * GROUPS} and of heads = {self.heads}",
        )


def _bare(layer: nn.Module, h: Tensor) -> tuple[Tensor, Tensor | None]:
    """What a convolution gives, and the bias that is left to add: where a kernel adds it on its way to something else."""
    if not isinstance(layer, nn.Conv2d) or not fits(h):
        return layer(h), None
    return F.conv2d(h, layer.weight, None, layer.stride, layer.padding), layer.bias


class _Residual(nn.Module):
    def __init__(self, inputs: int, outputs: int, condition: int):
        super().__init__()
        self.first_norm = nn.GroupNorm(GROUPS, inputs)
        self.first = nn.Conv2d(inputs, outputs, 3, padding=1)
        self.modulation = Modulation(condition, outputs, 2)
        self.second_norm = nn.GroupNorm(GROUPS, outputs, affine=False)
        self.second = nn.Conv2d(outputs, outputs, 3, padding=1)
        self.skip = nn.Conv2d(inputs, outputs, 1) if inputs != outputs else nn.Identity()

    def forward(self, h: Tensor, c: Tensor) -> Tensor:
        shift, scale = self.modulation(c)
        out, left = _bare(self.first, norm_silu(h, GROUPS, self.first_norm.weight, self.first_norm.bias))
        out, left = _bare(self.second, norm_silu(out, GROUPS, 1 + scale, shift, left))
        kept, more = _bare(self.skip, h)
        return halfway(kept, out, left if more is None or left is None else left + more)


class _Middle(nn.Module):
    """Attention between two residual blocks, at the lowest resolution."""

    def __init__(self, channels: int, condition: int, heads: int):
        super().__init__()
        self.before, self.after = _Residual(channels, channels, condition), _Residual(channels, channels, condition)
        self.attention = Attention(channels, heads)

    def forward(self, h: Tensor, c: Tensor) -> Tensor:
        h = self.before(h, c)
        tokens = h.flatten(2).transpose(1, 2)
        tokens = tokens + self.attention(rms_norm(tokens))
        return self.after(tokens.transpose(1, 2).reshape(h.shape), c)


@register(SmallUNetConfig)
class SmallUNet(nn.Module):
    """`forward(x, t, previous=None, **condition)`; `previous` is an earlier estimate of x_0: numbers of the shape of x, or
    for categories probabilities [..., size], of which their means as scaled numbers are used."""

    def __init__(self, config: SmallUNetConfig):
        super().__init__()
        self.config = config
        self.channels = 1 if len(config.shape) == 2 else config.shape[0]
        condition, width = 4 * config.width, config.width
        categories = config.kind == "category"
        self.time, self.told = TimeEmbedding(condition), told_embedding(config.conditions, condition)
        self.table = nn.Embedding(self.channels * (config.size + config.extra), width) if categories else None
        if self.table is not None:
            nn.init.normal_(self.table.weight, std=0.2)
        plain, waves = 1 + config.self_condition, 4 if config.bin else 0
        self.inward = nn.Conv2d(self.channels * (plain + waves), width, 3, padding=1)
        with torch.no_grad():  # waves say nothing at first: under strong noise they are noise
            self.inward.weight[:, plain * self.channels :] = 0.0
        down, up, joins = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        levels = [width * m for m in config.multipliers]
        kept, channels = [], width
        for i, level in enumerate(levels):
            blocks = nn.ModuleList()
            for _ in range(config.blocks):
                blocks.append(_Residual(channels, level, condition))
                channels = level
                kept.append(channels)
            down.append(blocks)
            joins.append(nn.Conv2d(channels, channels, 3, stride=2, padding=1) if i + 1 < len(levels) else nn.Identity())
        self.middle = _Middle(channels, condition, config.heads)
        for level in reversed(levels):
            blocks = nn.ModuleList()
            for _ in range(config.blocks):
                blocks.append(_Residual(channels + kept.pop(), level, condition))
                channels = level
            up.append(blocks)
        self.down, self.up, self.joins = down, up, joins
        self.norm = nn.GroupNorm(GROUPS, channels)
        if categories:
            self.spread = nn.Conv2d(channels, self.channels * width, 1)
            self.out: nn.Module = zeroed(nn.Linear(width, config.size))
            order = torch.arange(1, min(COSINES, config.size - 1) + 1)
            place = (torch.arange(config.size) + 0.5) / config.size
            self.register_buffer("cosines", 2**0.5 * torch.cos(pi * place.unsqueeze(1) * order), persistent=False)
            self.smooth = nn.Parameter(torch.zeros(len(order), width))
        else:
            self.out = nn.Conv2d(channels, self.channels * config.entries, 3, padding=1)
            nn.init.zeros_(self.out.weight)
            nn.init.zeros_(self.out.bias)  # type: ignore[arg-type]
        self.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as the device's convolutions want it

    def _stem(self, x: Tensor, previous: Tensor | None) -> Float[Tensor, "batch width height breadth"]:
        config, dtype = self.config, self.inward.weight.dtype
        full = (x.shape[0], self.channels, *config.shape[-2:])
        x = x.reshape(full)
        if config.kind == "category":
            values = torch.where(x < config.size, 2.0 * x / max(config.size - 1, 1) - 1, 0.0).to(dtype)
        else:
            values = x.to(dtype)
            values = values.log1p() if config.kind == "count" else values
        if config.self_condition:
            if previous is None:
                previous = torch.zeros_like(values)
            elif config.kind == "category":
                previous = previous.to(dtype) @ torch.linspace(-1, 1, config.size, dtype=dtype, device=x.device)
            values = torch.cat([values, previous.reshape(full).to(dtype)], 1)
        elif previous is not None:
            raise ValueError("this network takes no previous estimate: build it with self_condition=True")
        if config.bin:
            turn = 2 * pi / config.bin * x.to(dtype)
            values = torch.cat([values, turn.sin(), turn.cos(), (turn / 2).sin(), (turn / 2).cos()], 1)
        h = self.inward(values)
        if self.table is not None:
            own = torch.arange(self.channels, device=x.device).reshape(-1, 1, 1) * (config.size + config.extra)
            h = h + looked_up(self.table, x + own).sum(1).permute(0, 3, 1, 2)
        return h

    def _body(self, x: Tensor, t: Tensor, previous: Tensor | None, **condition: Any) -> Tensor:
        height, breadth = self.config.shape[-2:]
        stride = 2 ** (len(self.config.multipliers) - 1)
        c, h = self.time(t, hear(self.told, condition, len(x))), self._stem(x, previous)
        h = F.pad(h, (0, -breadth % stride, 0, -height % stride))
        kept = []
        for blocks, join in zip(self.down, self.joins, strict=True):
            for block in blocks:  # type: ignore[attr-defined]
                h = block(h, c)
                kept.append(h)
            h = join(h)
        h = self.middle(h, c)
        for i, blocks in enumerate(self.up):
            h = F.interpolate(h, scale_factor=2, mode="nearest") if i else h
            for block in blocks:  # type: ignore[attr-defined]
                h = block(torch.cat([h, kept.pop()], 1), c)
        return norm_silu(h[..., :height, :breadth], GROUPS, self.norm.weight, self.norm.bias)

    def features(self, x: Tensor, t: Float[Tensor, "batch"], previous: Tensor | None = None, **condition: Any) -> Tensor:
        """What `head` turns into logits, [batch, *shape, width]; of categories only."""
        if self.config.kind != "category":
            raise ValueError(f"features and head are for categories; this network is for kind = {self.config.kind!r}")
        h = self.spread(self._body(x, t, previous, **condition))
        h = h.reshape(x.shape[0], self.channels, self.config.width, *h.shape[-2:]).permute(0, 1, 3, 4, 2)
        return h.reshape(*x.shape, self.config.width)

    def head(self, h: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows size"]:
        return F.linear(h, self.out.weight + self.cosines @ self.smooth, self.out.bias)  # type: ignore

    def forward(self, x: Tensor, t: Float[Tensor, "batch"], previous: Tensor | None = None, **condition: Any) -> Tensor:
        if self.config.kind == "category":
            return self.head(self.features(x, t, previous, **condition))
        out = self.out(self._body(x, t, previous, **condition))
        if self.config.entries == 1:
            return out.reshape(x.shape)
        out = out.reshape(x.shape[0], self.channels, self.config.entries, *out.shape[-2:])
        return out.movedim(2, -1).reshape(*x.shape, self.config.entries)
