"""Vectors: a residual perceptron that is told the time in every block.

The coordinates, of any shape, are one vector; each enters as itself and as a few waves, an angle as waves
alone.  Counts enter as log(1 + x), and
their predictions may be more than one number per coordinate (`entries`, a last axis of the output).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.networks.base import register, require
from unnoise.networks.embedding import (
    Modulation,
    TimeEmbedding,
    fourier_of_angle,
    fourier_of_value,
    modulate,
    rms_norm,
    zeroed,
)
from unnoise.networks.told import conditions_of, hear, told_embedding
from unnoise.shapes import Float


@dataclass(kw_only=True)
class MLPConfig:
    shape: Sequence[int]
    kind: str = "number"  # or "count", "angle"
    entries: int = 1  # numbers predicted per coordinate; 1 means that there is no axis for them
    answers: Sequence[int] | None = None  # the shape of the prediction where it is not that of x
    width: int = 256
    layers: int = 4
    frequencies: int = 3  # waves of each coordinate; 0: the number alone
    self_condition: bool = False
    conditions: Sequence[Any] = ()  # that it is told beside x and t: `ConditionInput`, or dicts of its fields

    def __post_init__(self) -> None:
        self.conditions = conditions_of(self.conditions)
        kinds = ("number", "count", "angle")
        require(self.kind in kinds, f"kind = {self.kind!r}: choose 'number', 'count' or 'angle'")
        waves = self.kind != "angle" or self.frequencies >= 1
        require(waves, f"frequencies = {self.frequencies}: an angle is seen by its waves, at least one")
        require(
            min(self.width, self.layers, self.entries) >= 1,
            f"width = {self.width}, layers = {self.layers}, entries = {self.entries}: each is at least 1",
        )


class _Layer(nn.Module):
    def __init__(self, width: int, depth: int):
        super().__init__()
        self.modulation = Modulation(width, width, 3)
        self.up, self.out = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)
        with torch.no_grad():
            self.out.weight /= depth**0.5

    def forward(self, h: Tensor, c: Tensor) -> Tensor:
        shift, scale, gate = self.modulation(c)
        return h + (1 + gate) * self.out(F.silu(self.up(modulate(rms_norm(h), shift, scale))))


@register(MLPConfig)
class MLP(nn.Module):
    """`forward(x, t, previous=None, **condition)`; `previous` is an earlier estimate of x_0, of the shape of x."""

    def __init__(self, config: MLPConfig):
        super().__init__()
        self.config = config
        size = prod(config.shape)
        self.outputs = (size if config.answers is None else prod(config.answers)) * config.entries
        seen = size * (1 + 2 * config.frequencies) + (size if config.self_condition else 0)
        self.inward, self.time = nn.Linear(seen, config.width), TimeEmbedding(config.width)
        self.told = told_embedding(config.conditions, config.width)
        self.blocks = nn.ModuleList(_Layer(config.width, config.layers) for _ in range(config.layers))
        self.modulation = Modulation(config.width, config.width, 2)
        self.out = zeroed(nn.Linear(config.width, self.outputs))

    def forward(self, x: Tensor, t: Float[Tensor, "batch"], previous: Tensor | None = None, **condition: Any) -> Tensor:
        out = self.numbers(x, t, previous, **condition)
        shape = x.shape if self.config.answers is None else (len(x), *self.config.answers)
        return out.reshape(shape if self.config.entries == 1 else (*shape, self.config.entries))

    def numbers(
        self, x: Tensor, t: Float[Tensor, "batch"], previous: Tensor | None = None, **condition: Any
    ) -> Float[Tensor, "batch outputs"]:
        """All that it predicts, in a row."""
        dtype, batch = self.out.weight.dtype, x.shape[0]
        flat = x.reshape(batch, prod(self.config.shape)).to(dtype)
        flat = flat.log1p() if self.config.kind == "count" else flat
        waves = fourier_of_angle if self.config.kind == "angle" else fourier_of_value
        seen = waves(flat, self.config.frequencies).flatten(1)
        if self.config.self_condition:
            absent = torch.zeros_like(flat)
            seen = torch.cat([seen, absent if previous is None else previous.reshape(flat.shape).to(dtype)], 1)
        elif previous is not None:
            raise ValueError("this network takes no previous estimate: build it with self_condition=True")
        c = self.time(t, hear(self.told, condition, batch))
        h = self.inward(seen)
        for block in self.blocks:
            h = block(h, c)
        return self.out(modulate(rms_norm(h), *self.modulation(c)))
