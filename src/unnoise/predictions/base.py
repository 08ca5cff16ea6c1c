"""Typed network outputs.

A prediction knows what its number means, the state and time it was made at, and the process.  It converts to the other
kinds of its space where that is exact, and refuses where it is not; and it is a reverse process: it has a generator at
x_t and a kernel to any earlier s, which is all that bounds and samplers ask for.
"""

from abc import abstractmethod
from typing import TypeVar

from unnoise.generators import Reversal
from unnoise.processes import Process
from unnoise.shapes import Tree
from unnoise.spaces import Space

Kind = TypeVar("Kind", bound="Prediction")


class InexactConversion(TypeError):
    """The target is not a function of the prediction at hand."""


class Prediction(Reversal):
    """What a network says about x_0 (or the reverse process) at the state x_t and the forward time t."""

    process: Process
    x_t: Tree
    t: Tree
    tied_to_grid = False  # whether it belongs to one pair (s, t), as `Mean` and `Transition` do
    joint = False  # whether it is a function of the whole state, as `Energy` is, rather than a value for each leaf

    @property
    def space(self) -> Space:
        return self.process.state_space

    @abstractmethod
    def to(self, kind: type[Kind], **options) -> Kind:
        """The same prediction as another kind."""

    def by_leaf(self) -> "Prediction":
        """The same as a value for each leaf; itself, unless it is joint."""
        return self


def refuse(source: Prediction, target: type, why: str) -> InexactConversion:
    if issubclass(target, Prediction) and target.joint:
        why = (
            "numbers at one state do not determine a function of all states; let the network return it, "
            f"Denoiser(network, process, predicts={target.__name__})"
        )
    return InexactConversion(f"{type(source).__name__} does not determine {target.__name__}: {why}")
