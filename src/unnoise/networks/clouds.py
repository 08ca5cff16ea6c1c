"""Clouds of vectors under jump-diffusion: the perceptron of `MLP`, with mean, log-variance and log-weight of each cloud.

Untrained it says the same at every state: narrow clouds of even weight in random places as wide apart as data of unit
variance, so that no two of them are alike and each can go its own way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log, prod
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.networks.base import register, require
from unnoise.networks.embedding import zeroed
from unnoise.networks.mlp import MLP, MLPConfig
from unnoise.networks.told import conditions_of
from unnoise.shapes import Float

VARIANCE = 0.3  # of an untrained cloud


@dataclass(kw_only=True)
class CloudMLPConfig:
    shape: Sequence[int]
    clouds: int = 8
    width: int = 256
    layers: int = 4
    frequencies: int = 3
    conditions: Sequence[Any] = ()  # that it is told beside the state and t: `ConditionInput`, or dicts of its fields

    def __post_init__(self) -> None:
        self.conditions = conditions_of(self.conditions)
        require(self.clouds >= 1, f"clouds = {self.clouds}: at least one")


@register(CloudMLPConfig, needs=lambda process: {"shape": process.space.shape})  # type: ignore[attr-defined]
class CloudMLP(nn.Module):
    """`forward(x, t, **condition)`: [batch, clouds, d + 2]."""

    def __init__(self, config: CloudMLPConfig):
        super().__init__()
        self.config = config
        self.body = MLP(
            MLPConfig(
                shape=config.shape,
                width=config.width,
                layers=config.layers,
                frequencies=config.frequencies,
                conditions=config.conditions,
            )
        )
        d = prod(config.shape)
        start = torch.cat([torch.randn(config.clouds, d), torch.full((config.clouds, 1), log(VARIANCE))], 1)
        self.body.out = zeroed(nn.Linear(config.width, config.clouds * (d + 2)))
        with torch.no_grad():
            self.body.out.bias.copy_(nn.functional.pad(start, (0, 1)).flatten())

    def forward(self, x: Tensor, t: Float[Tensor, "batch"], **condition: Any) -> Float[Tensor, "batch clouds numbers"]:
        return self.body.numbers(x, t, **condition).reshape(len(x), self.config.clouds, -1)
