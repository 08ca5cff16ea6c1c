"""The law of a velocity given the position: a mixture of normal laws whose numbers are those of a perceptron.

It sees the position and the time, not the velocity at hand, so that all that it says is of one law p_t(v | x).  The
components begin a little apart, as those that begin alike learn alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.networks.base import register, require
from unnoise.networks.mlp import MLP, MLPConfig
from unnoise.networks.told import conditions_of
from unnoise.noise import NoiseSource
from unnoise.shapes import Float

APART = 0.3  # standard deviations between means at the start


@dataclass(kw_only=True)
class VelocityMLPConfig:
    shape: Sequence[int]
    components: int = 8
    width: int = 256
    layers: int = 4
    frequencies: int = 3
    conditions: Sequence[Any] = ()  # that it is told beside the state and t: `ConditionInput`, or dicts of its fields

    def __post_init__(self) -> None:
        self.conditions = conditions_of(self.conditions)
        require(self.components >= 1, f"components = {self.components}: a mixture has at least one")


@register(VelocityMLPConfig)
class VelocityMLP(nn.Module):
    """`forward(z, t, **condition)`: numbers [batch, components, 1 + 2 d] of `VelocityMixture`."""

    def __init__(self, config: VelocityMLPConfig):
        super().__init__()
        self.config, d = config, prod(config.shape)
        answers = (config.components, 1 + 2 * d)
        inner = MLPConfig(
            shape=config.shape,
            answers=answers,
            width=config.width,
            layers=config.layers,
            frequencies=config.frequencies,
            conditions=config.conditions,
        )
        self.inner = MLP(inner)
        means = APART * NoiseSource(0, config.components).normal((d,)).float()
        self.register_buffer("start", torch.cat([torch.zeros(len(means), 1), means, torch.zeros(means.shape)], 1))

    def forward(self, x: Tensor, t: Float[Tensor, "batch"], **condition: Any) -> Tensor:
        return self.inner(x[:, 0], t, **condition) + self.start
