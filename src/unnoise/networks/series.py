"""Series: a 1-D U-Net for [length] or [channels, length] of numbers, which starts from the fitted Gaussian law.

Residual convolutions along the axis at a few resolutions, each told the time, with attention at the lowest; any length will
do, padded with zeros to a multiple of the stride.  A learned vector for every place says where in the series it is.

`fit_base(x0)` is given the training rows once.  Then the network knows a law of them in closed form, Gaussians of one shape
and several scales (see `scale_mixture`), and with it the exact velocity v_base and the deviation g along U of what that
leaves unknown, g^2 = sum_k w_k s_k^2 l/d_k.  The output is

    v_base + U diag(g) U^T f,

where f is what the convolutions say to x_t, to x_t made white, and to the law's own estimate of x_0.  It is 0 at first: the
model starts as that law, and learns what is left.  Before it is fitted the law is N(0, 1), and the velocity 0.

alpha and sigma are those of the cosine schedule; under another the base is left out (`base=False`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi, prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.networks.base import register, require
from unnoise.networks.blocks import Attention
from unnoise.networks.embedding import Modulation, TimeEmbedding, rms_norm
from unnoise.networks.scale_mixture import FOLDS, SCALES, fit_scale_mixture
from unnoise.networks.told import conditions_of, hear, told_embedding
from unnoise.shapes import Float

GROUPS = 8


@dataclass(kw_only=True)
class SeriesNetConfig:
    shape: Sequence[int]  # [length] or [channels, length]
    width: int = 64
    multipliers: Sequence[int] = (1, 2, 2)  # channels at each resolution, in widths
    blocks: int = 2  # per resolution
    heads: int = 4
    kernel: int = 5
    dropout: float = 0.0
    base: bool = True  # whether the Gaussian law of the training rows is fitted; needs the cosine schedule
    self_condition: bool = False
    conditions: Sequence[Any] = ()  # that it is told beside x and t: `ConditionInput`, or dicts of its fields

    def __post_init__(self) -> None:
        self.conditions = conditions_of(self.conditions)
        require(len(self.shape) in (1, 2), f"shape = {list(self.shape)}: pass [length] or [channels, length]")
        require(
            self.width % (2 * GROUPS) == 0 and self.width % self.heads == 0,
            f"width = {self.width}: choose a multiple of {2 * GROUPS} and of heads = {self.heads}",
        )
        require(self.kernel % 2 == 1, f"kernel = {self.kernel}: choose an odd number of places")
        require(0 <= self.dropout < 1, f"dropout = {self.dropout}: a share lies in [0, 1)")


class _SeriesBlock(nn.Module):
    def __init__(self, inputs: int, outputs: int, condition: int, config: SeriesNetConfig):
        super().__init__()
        around = config.kernel // 2
        self.first_norm = nn.GroupNorm(GROUPS, inputs)
        self.first = nn.Conv1d(inputs, outputs, config.kernel, padding=around)
        self.modulation = Modulation(condition, outputs, 2)
        self.second_norm = nn.GroupNorm(GROUPS, outputs, affine=False)
        self.second = nn.Conv1d(outputs, outputs, config.kernel, padding=around)
        self.skip = nn.Conv1d(inputs, outputs, 1) if inputs != outputs else nn.Identity()
        self.dropout = config.dropout

    def forward(self, h: Tensor, c: Tensor) -> Tensor:
        shift, scale = (part[..., None] for part in self.modulation(c))
        out = self.first(F.silu(self.first_norm(h)))
        out = F.silu(self.second_norm(out) * (1 + scale) + shift)
        out = self.second(F.dropout(out, self.dropout, self.training))
        return (self.skip(h) + out) * 0.5**0.5


@register(SeriesNetConfig)
class SeriesNet(nn.Module):
    """`forward(x, t, previous=None, **condition)`; `previous` is an earlier estimate of x_0, of the shape of x."""

    centre: Tensor
    directions: Tensor
    variances: Tensor
    scales: Tensor
    log_weights: Tensor

    def __init__(self, config: SeriesNetConfig):
        super().__init__()
        self.config = config
        self.channels = 1 if len(config.shape) == 1 else config.shape[0]
        condition, width, length = 4 * config.width, config.width, config.shape[-1]
        self.time, self.told = TimeEmbedding(condition), told_embedding(config.conditions, condition)
        seen = (3 if config.base else 1) + config.self_condition
        self.inward = nn.Conv1d(self.channels * seen, width, config.kernel, padding=config.kernel // 2)
        self.place = nn.Parameter(0.02 * torch.randn(width, length))
        levels = [width * m for m in config.multipliers]
        self.down, self.up, self.joins = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        kept, channels = [], width
        for i, level in enumerate(levels):
            self.down.append(nn.ModuleList())
            for _ in range(config.blocks):
                self.down[-1].append(_SeriesBlock(channels, level, condition, config))  # type: ignore[operator]
                channels = level
                kept.append(channels)
            self.joins.append(nn.Conv1d(channels, channels, 3, 2, 1) if i + 1 < len(levels) else nn.Identity())
        self.before, self.after = (_SeriesBlock(channels, channels, condition, config) for _ in range(2))
        self.attention = Attention(channels, config.heads)
        for level in reversed(levels):
            self.up.append(nn.ModuleList())
            for _ in range(config.blocks):
                self.up[-1].append(_SeriesBlock(channels + kept.pop(), level, condition, config))  # type: ignore[operator]
                channels = level
        self.norm = nn.GroupNorm(GROUPS, channels)
        self.out = nn.Conv1d(channels, self.channels, config.kernel, padding=config.kernel // 2)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)  # type: ignore[arg-type]
        if config.base:
            size = prod(config.shape)
            self.register_buffer("centre", torch.zeros(size))
            self.register_buffer("directions", torch.eye(size))
            self.register_buffer("variances", torch.ones(size))
            self.register_buffer("scales", torch.ones(SCALES))
            self.register_buffer("log_weights", torch.full((SCALES,), -log(SCALES)))

    @torch.no_grad()
    def fit_base(self, x0: Float[Tensor, "rows ..."]) -> None:
        """Take the law of the training rows as the start."""
        if self.config.base and len(x0) > FOLDS:
            law = fit_scale_mixture(x0.flatten(1).double().cpu())
            for name, value in vars(law).items():
                own = getattr(self, name)
                own.copy_(value.to(own))

    def forward(self, x: Tensor, t: Float[Tensor, "batch"], previous: Tensor | None = None, **condition: Any) -> Tensor:
        if previous is not None and not self.config.self_condition:
            raise ValueError("this network takes no previous estimate: build it with self_condition=True")
        dtype, full = self.inward.weight.dtype, (x.shape[0], self.channels, self.config.shape[-1])
        base, unknown, seen = self._base(x, t)
        if self.config.self_condition:
            seen = [*seen, torch.zeros_like(x) if previous is None else previous]
        out = self._body(torch.cat([part.reshape(full).to(dtype) for part in seen], 1), t, condition)
        if not self.config.base:
            return out.reshape(x.shape)
        with torch.autocast(x.device.type, enabled=False):
            flat = out.flatten(1).to(base.dtype)
            return (base + self._along(unknown, flat @ self.directions.to(base.dtype))).to(dtype).reshape(x.shape)

    def _along(self, factor: Tensor, coefficients: Tensor) -> Tensor:
        return (factor * coefficients) @ self.directions.to(coefficients.dtype).T

    def _base(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The velocity of the fitted law, the deviation along U of what it leaves unknown, and what the convolutions see."""
        if not self.config.base:
            return x, x, [x]
        with torch.autocast(x.device.type, enabled=False):
            number = torch.promote_types(self.centre.dtype, torch.float32)
            turn = pi / 2 * t.to(number).reshape(-1, 1, 1)
            alpha, sigma = turn.cos(), turn.sin()
            centre, flat = self.centre.to(number), x.flatten(1).to(number)
            l = self.scales.to(number).square().unsqueeze(1) * self.variances.to(number)  # of every scale
            d = alpha.square() * l + sigma.square()  # [batch, scales, size]
            r = (flat - alpha[:, 0] * centre) @ self.directions.to(number)
            far = -0.5 * (r.square().unsqueeze(1) / d + d.log()).sum(-1)
            w = (self.log_weights.to(number) + far).softmax(-1).unsqueeze(-1)
            known, unknown = (w * l / d).sum(1), (w * (1 - l) / d).sum(1)
            base = self._along(alpha[:, 0] * sigma[:, 0] * unknown, r) - sigma[:, 0] * centre
            clean, white = centre + self._along(alpha[:, 0] * known, r), self._along((w * d.rsqrt()).sum(1), r)
            return base, known.sqrt(), [flat, white, clean]

    def _body(self, seen: Tensor, t: Tensor, told: dict[str, Any]) -> Tensor:
        length = self.config.shape[-1]
        stride = 2 ** (len(self.config.multipliers) - 1)
        c, h = self.time(t, hear(self.told, told, len(t))), self.inward(seen)
        h = F.pad(h + self.place.to(h.dtype), (0, -length % stride))
        kept = []
        for blocks, join in zip(self.down, self.joins, strict=True):
            for block in blocks:  # type: ignore[attr-defined]
                h = block(h, c)
                kept.append(h)
            h = join(h)
        tokens = self.before(h, c).transpose(1, 2)
        h = self.after((tokens + self.attention(rms_norm(tokens))).transpose(1, 2), c)
        for i, blocks in enumerate(self.up):
            h = F.interpolate(h, size=kept[-1].shape[-1], mode="nearest") if i else h
            for block in blocks:  # type: ignore[attr-defined]
                h = block(torch.cat([h, kept.pop()], 1), c)
        return self.out(F.silu(self.norm(h[..., :length])))
