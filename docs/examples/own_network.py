"""A network of one's own, chosen by name: for point sets, the same whatever the order of the points.

Every point is a token that is told the label, the times and the mean of all tokens; what is predicted of a point depends on
the others through that mean alone.
"""

from dataclasses import dataclass

import torch
from torch import nn

from unnoise.networks import TimeEmbedding, register


@dataclass(kw_only=True)
class SetOptions:
    """What the network is built from: plain data, which is saved with a run."""

    labels: int
    width: int = 64
    layers: int = 2


def needs(process):
    """What of the options the process decides."""
    return {"labels": process.leaves["label"].space.size}


@register(SetOptions, needs)
class SetNetwork(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.label = nn.Embedding(config.labels + 1, config.width)  # one more: MASK
        self.point, self.time = nn.Linear(2, config.width), TimeEmbedding(config.width)
        self.layers = nn.ModuleList(nn.Linear(3 * config.width, config.width) for _ in range(config.layers))
        self.to_point, self.to_label = nn.Linear(config.width, 2), nn.Linear(config.width, config.labels)

    def forward(self, x, t):
        times = t if isinstance(t, dict) else {"label": t, "points": t}  # a leaf that is known stands at time 0
        about = self.label(x["label"]) + self.time(times["label"]) + 2 * self.time(times["points"])
        h = self.point(x["points"])
        for layer in self.layers:
            all_of = torch.stack([h.mean(1), about], 1).flatten(1).unsqueeze(1).expand(-1, h.shape[1], -1)
            h = h + nn.functional.silu(layer(torch.cat([h, all_of], -1)))
        return {"label": self.to_label(h.mean(1)), "points": self.to_point(h)}
