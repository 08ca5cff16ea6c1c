"""Leaves of small spaces, and trees of them: data, oracles and shapes, all by formulas."""

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
from torch import Tensor, nn

from .adapter import made, name

NUMBERS, CATEGORIES = ("Clean", "Noise", "Score", "Velocity", "Flow"), ("Posterior", "RawPosterior", "Ratio", "Rates")
DEATH, ARRIVALS = ("Remaining", "Intensity", "CountRatio"), ("Intensity", "CountRatio")
Case = tuple[str, Callable[[], Any]]  # a name, and a function that returns a tree of results


def wave(*shape: int, phase: float = 0.0) -> Tensor:
    """Numbers in [-1, 1] in general position, float64."""
    return torch.sin(1.7 * torch.arange(1, prod(shape) + 1, dtype=torch.float64) + phase).reshape(shape)


@dataclass(frozen=True)
class Leaf:
    """One leaf of a space: how its data look, and the kinds of prediction it admits."""

    kinds: tuple[str, ...]
    shape: tuple[int, ...] = (2,)
    size: int = 0  # categories; 0: numbers or counts
    states: int = 0  # with those that noise adds
    sizes: tuple[int, ...] | None = None  # of each coordinate, where they differ

    @property
    def counts(self) -> bool:
        return "Intensity" in self.kinds

    @property
    def bounds(self) -> Tensor:
        """Of the categories of each coordinate."""
        return torch.tensor(self.sizes or (self.size,) * prod(self.shape)).reshape(self.shape)

    def data(self, rows: int) -> Tensor:
        if not (self.size or self.counts):
            return 1.3 * wave(rows, *self.shape, phase=0.4)
        places = 3 * torch.arange(rows * prod(self.shape)).reshape(rows, *self.shape) + 1
        places = places // 2 + torch.arange(rows).reshape(-1, *[1] * len(self.shape))
        return places % 5 if self.counts else places % self.bounds

    def oracle(self) -> Any:
        """Three components."""
        if self.counts:
            return made("oracles.PoissonLeaf", 1.6 + 1.4 * wave(3, *self.shape, phase=0.2))
        if self.size:
            possible = torch.arange(self.size) < self.bounds.unsqueeze(-1)
            logits = torch.where(possible, 1.5 * wave(3, *self.shape, self.size, phase=0.9), -1e30)
            return made("oracles.CategoricalLeaf", logits.log_softmax(-1))
        d = prod(self.shape)
        root = 0.5 * torch.eye(d, dtype=torch.float64) + 0.2 * wave(3, d, d, phase=1.1).tril()
        return made("oracles.GaussianLeaf", 1.2 * wave(3, *self.shape, phase=2.0), root @ root.mT)

    @property
    def known(self) -> int:
        """Numbers in an estimate of x_0."""
        return prod(self.shape) * (self.size or 1)

    def features(self, x: Tensor) -> Tensor:
        """As a network sees a state."""
        if self.size:
            return nn.functional.one_hot(x, self.states).flatten(1)
        return (x.log1p() if self.counts else x).flatten(1)

    def output(self, kind: str) -> tuple[int, ...]:
        """The shape of a prediction."""
        if self.size:
            return (*self.shape, self.size if kind in ("Posterior", "RawPosterior") else self.states)
        return (*self.shape, 2) if kind in ARRIVALS else self.shape


def number(*shape: int) -> Leaf:
    return Leaf(NUMBERS, shape)


def category(size: int, shape: tuple[int, ...], extra: int = 0, sizes: tuple[int, ...] | None = None) -> Leaf:
    return Leaf(CATEGORIES, shape, size, size + extra, sizes)


def parts_of(tree: Any) -> list[Any]:
    """The leaves of a tree, in order."""
    return [leaf for part in tree.values() for leaf in parts_of(part)] if isinstance(tree, dict) else [tree]


def mapped(function: Callable, tree: Any, *others: Any) -> Any:
    """A function of every leaf, and of those in its place in other trees."""
    if isinstance(tree, dict):
        return {key: mapped(function, part, *(other[key] for other in others)) for key, part in tree.items()}
    return function(tree, *others)


def kinds_of(names: Any) -> Any:
    """Prediction types from their names."""
    return mapped(lambda kind: name(f"predictions.{kind}"), names)


def told(names: Any) -> str:
    """Kinds in one word."""
    return "+".join(parts_of(names))
