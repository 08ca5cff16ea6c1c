"""Networks whose weights are a formula."""

from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from .leaves import Leaf, mapped, parts_of, wave


def clocks_of(leaves: Any, t: Any) -> list[Tensor]:
    """The time of each leaf; one may stand for all of a part."""
    if not isinstance(leaves, dict):
        return [t]
    return [clock for key, part in leaves.items() for clock in clocks_of(part, t[key] if isinstance(t, dict) else t)]


class Fixed(nn.Module):
    """A perceptron on any tree of leaves; it may be told a time of each leaf, a label of each row, and a first estimate.

    With `pair` it says a second output between 0 and 1, as learned variances ask for.
    """

    def __init__(self, leaves: Any, kinds: Any, pair: bool = False, width: int = 6):
        super().__init__()
        self.leaves, self.energy, self.pair = leaves, kinds == "Energy", pair
        parts = parts_of(leaves)
        self.known = sum(leaf.known for leaf in parts)
        seen = sum(leaf.features(leaf.data(1)).shape[1] for leaf in parts) + self.known + len(parts) + 1
        self.shapes = [()] if self.energy else [leaf.output(k) for leaf, k in zip(parts, parts_of(kinds), strict=True)]
        said = (2 if pair else 1) * sum(prod(shape) for shape in self.shapes)
        self.first, self.last = nn.Parameter(0.6 * wave(width, seen)), nn.Parameter(0.7 * wave(said, width, phase=0.3))

    def forward(self, x: Any, t: Any, previous: Any = None, label: Any = None) -> Any:
        states = [leaf.features(value) for leaf, value in zip(parts_of(self.leaves), parts_of(x), strict=True)]
        rows = len(states[0])
        nothing = torch.zeros(rows, self.known)
        estimate = [nothing] if previous is None else [part.flatten(1) for part in parts_of(previous)]
        clocks = [clock.reshape(rows, 1) for clock in clocks_of(self.leaves, t)]
        label = nothing[:, :1] if label is None else label.reshape(rows, 1)
        seen = torch.cat([part.to(self.first.dtype) for part in (*states, *estimate, *clocks, label)], 1)
        out = torch.tanh(seen @ self.first.T) @ self.last.T
        if self.pair:
            value, share = (part.reshape(rows, *self.shapes[0]) for part in out.chunk(2, 1))
            return value, share.sigmoid()
        values = out.split([prod(shape) for shape in self.shapes], 1)
        each = iter([value.reshape(rows, *shape) for value, shape in zip(values, self.shapes, strict=True)])
        return next(each) if self.energy else mapped(lambda leaf: next(each), self.leaves)


class Lazy(nn.Module):
    """A network of categories that says its features and its head apart."""

    def __init__(self, leaf: Leaf, width: int = 5):
        super().__init__()
        self.leaf, self.head = leaf, nn.Linear(width, leaf.size)
        self.body = nn.Parameter(0.8 * wave(prod(leaf.shape) * leaf.states + 1, prod(leaf.shape) * width))
        with torch.no_grad():
            self.head.weight.copy_(wave(leaf.size, width, phase=0.6))
            self.head.bias.copy_(wave(leaf.size, phase=0.1))

    def features(self, x: Tensor, t: Tensor) -> Tensor:
        dtype = self.body.dtype
        seen = torch.cat([self.leaf.features(x).to(dtype), t.to(dtype).reshape(-1, 1)], 1)
        return torch.tanh(seen @ self.body).reshape(*x.shape, -1)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        return self.head(self.features(x, t))
