"""A reverse process seen from (x_t, t): its generator there, and its kernel to any earlier time s.

Discrete and continuous time are one: `divergence(true, model, s)` is the KL of the two kernels over the step, and its
limit per unit time as s -> t, `divergence(true, model)`, is the distance of the two generators.
"""

from abc import ABC, abstractmethod

from torch import Tensor

from unnoise.generators.local import divergence_rate
from unnoise.laws import Joint, Law
from unnoise.shapes import Clock, Float, Tree
from unnoise.spaces import Local, ProductSpace, Space


class Reversal(ABC):
    """What a process conditioned on x_0, or a prediction, says about going back from x_t."""

    x_t: Tree

    @property
    @abstractmethod
    def space(self) -> Space:
        """Where x_t lives."""

    @abstractmethod
    def local(self) -> Tree[Local]:
        """The reverse generator at x_t: a `Local`, or a dict of them on a product."""

    @abstractmethod
    def step(self, s: Clock) -> Law:
        """The law of x_s given x_t; that of categories factorises over coordinates (eq:dt-reversal-factorisation)."""


class ProductReversal(Reversal):
    def __init__(self, leaves: dict[str, Reversal]):
        self.leaves = leaves
        self.x_t = {name: leaf.x_t for name, leaf in leaves.items()}

    @property
    def space(self) -> Space:
        return ProductSpace(**{name: leaf.space for name, leaf in self.leaves.items()})

    def local(self) -> dict[str, Tree[Local]]:
        return {name: leaf.local() for name, leaf in self.leaves.items()}

    def step(self, s: Clock) -> Law:
        return Joint({name: leaf.step(s[name] if isinstance(s, dict) else s) for name, leaf in self.leaves.items()})


def divergence(true: Reversal, model: Reversal, s: Clock | None = None) -> Float[Tensor, "batch"]:
    """KL of the kernels to time s (eq:kl-definition), or, without s, the rate at which it grows from the current time."""
    if s is None:
        return divergence_rate(true.space, true.local(), model.local(), true.x_t)
    return true.step(s).kl(model.step(s))
