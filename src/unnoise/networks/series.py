"""Series: a 1-D U-Net for [length] or [channels, length] of numbers, which starts from the fitted Gaussian law.

Residual convolutions along the axis at a few resolutions, each told the time, with attention at the lowest; any length will
do, padded with zeros to a multiple of the stride.  A learned vector for every place says where in the series it is.

`fit_base(x0)` is given the training rows once.  Then the network knows their Gaussian law N(m, C), C = U diag(l) U^T.
Under x_t = alpha x_0 + sigma eps and with d = alpha^2 l + sigma^2, the variances of x_t, the vector
w = U diag(d^-1/2) U^T (x_t - alpha m) is white, the exact velocity of that law is

    v_base = -sigma m + U diag(alpha sigma (1 - l)/d) U^T (x_t - alpha m),

and what it leaves unknown of v has the deviation (l/d)^1/2 along U.  So the output is v_base + U diag((l/d)^1/2) U^T f,
where f is what the convolutions say to w, to x_t and to the base's own estimate of x_0, and is 0 at first: the model starts as the
Gaussian, and learns what is not Gaussian.  Before it is fitted the law is N(0, 1), and the velocity 0.

alpha and sigma are those of the cosine schedule; under another the base is left out (`base=False`).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, pi, prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.networks.base import register, require
from unnoise.networks.blocks import Attention
from unnoise.networks.embedding import Modulation, TimeEmbedding, rms_norm
from unnoise.shapes import Float

GROUPS = 8
FOLDS = 5
SHRINKAGES = [10 ** (-k / 4) for k in range(25)]  # 1 ... 1e-6


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

    def __post_init__(self) -> None:
        require(len(self.shape) in (1, 2), f"shape = {list(self.shape)}: pass [length] or [channels, length]")
        require(
            self.width % (2 * GROUPS) == 0 and self.width % self.heads == 0,
            f"width = {self.width}: choose a multiple of {2 * GROUPS} and of heads = {self.heads}",
        )
        require(self.kernel % 2 == 1, f"kernel = {self.kernel}: choose an odd number of places")
        require(0 <= self.dropout < 1, f"dropout = {self.dropout}: a share lies in [0, 1)")


class _Residual(nn.Module):
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
    """`forward(x, t, previous=None)`; `previous` is an earlier estimate of x_0, of the shape of x."""

    centre: Tensor
    directions: Tensor
    variances: Tensor

    def __init__(self, config: SeriesNetConfig):
        super().__init__()
        self.config = config
        self.channels = 1 if len(config.shape) == 1 else config.shape[0]
        condition, width, length = 4 * config.width, config.width, config.shape[-1]
        self.time = TimeEmbedding(condition)
        seen = (3 if config.base else 1) + config.self_condition
        self.inward = nn.Conv1d(self.channels * seen, width, config.kernel, padding=config.kernel // 2)
        self.place = nn.Parameter(0.02 * torch.randn(width, length))
        levels = [width * m for m in config.multipliers]
        self.down, self.up, self.joins = nn.ModuleList(), nn.ModuleList(), nn.ModuleList()
        kept, channels = [], width
        for i, level in enumerate(levels):
            self.down.append(nn.ModuleList())
            for _ in range(config.blocks):
                self.down[-1].append(_Residual(channels, level, condition, config))  # type: ignore[operator]
                channels = level
                kept.append(channels)
            self.joins.append(nn.Conv1d(channels, channels, 3, 2, 1) if i + 1 < len(levels) else nn.Identity())
        self.before, self.after = (_Residual(channels, channels, condition, config) for _ in range(2))
        self.attention = Attention(channels, config.heads)
        for level in reversed(levels):
            self.up.append(nn.ModuleList())
            for _ in range(config.blocks):
                self.up[-1].append(_Residual(channels + kept.pop(), level, condition, config))  # type: ignore[operator]
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

    @torch.no_grad()
    def fit_base(self, x0: Float[Tensor, "rows ..."]) -> None:
        """Take the Gaussian law of the training rows as the start."""
        if self.config.base and len(x0) > 1:
            centre, covariance = shrunk_gaussian(x0.flatten(1).double())
            variances, directions = torch.linalg.eigh(covariance)
            for name, value in (("centre", centre), ("directions", directions), ("variances", variances)):
                own = getattr(self, name)
                own.copy_(value.to(own))

    def forward(self, x: Tensor, t: Float[Tensor, "batch"], previous: Tensor | None = None) -> Tensor:
        if previous is not None and not self.config.self_condition:
            raise ValueError("this network takes no previous estimate: build it with self_condition=True")
        dtype, full = self.inward.weight.dtype, (x.shape[0], self.channels, self.config.shape[-1])
        base, unknown, seen = self._base(x, t)
        if self.config.self_condition:
            seen = [*seen, torch.zeros_like(x) if previous is None else previous]
        out = self._body(torch.cat([part.reshape(full).to(dtype) for part in seen], 1), t)
        if not self.config.base:
            return out.reshape(x.shape)
        with torch.autocast(x.device.type, enabled=False):
            flat = out.flatten(1).to(base.dtype)
            return (base + self._along(unknown, flat @ self.directions.to(base.dtype))).to(dtype).reshape(x.shape)

    def _along(self, factor: Tensor, coefficients: Tensor) -> Tensor:
        return (factor * coefficients) @ self.directions.to(coefficients.dtype).T

    def _base(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """The velocity of the fitted law, the deviation of what it leaves unknown along U, and what the convolutions see."""
        if not self.config.base:
            return x, x, [x]
        with torch.autocast(x.device.type, enabled=False):
            number = torch.promote_types(self.centre.dtype, torch.float32)
            m, l = self.centre.to(number), self.variances.to(number)
            turn = pi / 2 * t.to(number).unsqueeze(-1)
            alpha, sigma = turn.cos(), turn.sin()
            flat = x.flatten(1).to(number)
            d = alpha.square() * l + sigma.square()
            r = (flat - alpha * m) @ self.directions.to(number)
            base = self._along(alpha * sigma * (1 - l) / d, r) - sigma * m
            white, clean = self._along(d.rsqrt(), r), m + self._along(alpha * l / d, r)
            return base, (l / d).sqrt(), [flat, white, clean]

    def _body(self, seen: Tensor, t: Tensor) -> Tensor:
        length = self.config.shape[-1]
        stride = 2 ** (len(self.config.multipliers) - 1)
        c, h = self.time(t), self.inward(seen)
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


def shrunk_gaussian(x: Float[Tensor, "rows size"]) -> tuple[Tensor, Tensor]:
    """Mean and covariance (1 - a) S + a diag(S) of the rows, with the a under which rows left out are likeliest.

    Each of `FOLDS` parts is left out in turn.  With R = diag(S)^-1/2 S diag(S)^-1/2 = V diag(e) V^T the covariance has the
    variances (1 - a) e + a along V, so one decomposition per part serves every a.
    """
    part = torch.arange(len(x)) % min(FOLDS, len(x))
    cost = torch.zeros(len(SHRINKAGES), dtype=x.dtype)
    for fold in part.unique():
        mean, scale, e, vectors = _correlations(x[part != fold])
        r = ((x[part == fold] - mean) / scale) @ vectors
        for i, a in enumerate(SHRINKAGES):
            variance = (1 - a) * e + a
            cost[i] += 0.5 * (r.square() / variance + variance.log() + log(2 * pi)).sum()
    mean, scale, e, vectors = _correlations(x)
    a = SHRINKAGES[int(cost.argmin())]
    covariance = (vectors * ((1 - a) * e + a)) @ vectors.T
    return mean, covariance * scale * scale.unsqueeze(1)


def _correlations(x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    mean, scale = x.mean(0), x.std(0, unbiased=False)
    scale = torch.where(scale > 1e-6, scale, 1.0)
    white = (x - mean) / scale
    e, vectors = torch.linalg.eigh(white.T @ white / len(x))
    return mean, scale, e.clamp_min(0.0), vectors
