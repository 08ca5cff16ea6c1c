"""The law of a velocity given the position: a mixture of normal laws whose numbers are those of a perceptron.

It sees the position and the time, not the velocity at hand, so that all that it says is of one law p_t(v | x).  The
components begin a little apart, as those that begin alike learn alike.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn

from unnoise.networks.base import register, require
from unnoise.networks.mlp import MLP, MLPConfig
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

    def __post_init__(self) -> None:
        require(self.components >= 1, f"components = {self.components}: a mixture has at least one")


@register(VelocityMLPConfig)
class VelocityMLP(nn.Module):
    """`forward(z, t)`: numbers [batch, components, 1 + 2 d] of `VelocityMixture`."""

    def __init__(self, config: VelocityMLPConfig):
        super().__init__()
        self.config, d = config, prod(config.shape)
        answers = (config.components, 1 + 2 * d)
        inner = MLPConfig(
            shape=config.shape, answers=answers, width=config.width, layers=config.layers, frequencies=config.frequencies
        )
        self.inner = MLP(inner)
        means = APART * NoiseSource(0, config.components).normal((d,)).float()
        self.register_buffer("start", torch.cat([torch.zeros(len(means), 1), means, torch.zeros(means.shape)], 1))

    def forward(self, x: Tensor, t: Float[Tensor, "batch"]) -> Tensor:
        return self.inner(x[:, 0], t) + self.start
