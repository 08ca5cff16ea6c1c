"""Typed network outputs.

A prediction knows what its number means, the state and time it was made at, and the process.  It converts to the other
kinds of its space where that is exact, and refuses where it is not; and it is a reverse process: it has a generator at
x_t and a kernel to any earlier s, which is all that bounds and samplers ask for.

A kind, the class itself, says what a denoiser must know before there is a prediction:

    misfit(process)        why it does not speak of this process, or None
    of_output(output, ...) the prediction that a plain network output means
    of_energy(leaf)        the prediction that the differences of an energy are
    cutoff(process)        where the bound of a network that predicts it may start
    latest(process)        where sampling from it starts
    tells_clean(process)   whether it determines an estimate of x_0 at every noise level

Where the kernels of a prediction are linear in its value, with coefficients that follow from the times, a run asks for all
of them at once (`kernel_table`) instead of for one law in every step.
"""

from abc import abstractmethod
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import dataclass
from typing import Any, TypeVar

from torch import Tensor

from unnoise.generators import Reversal
from unnoise.predictions.variance import Variance
from unnoise.processes import Process
from unnoise.shapes import AnyState, Tree
from unnoise.spaces import Space

Kind = TypeVar("Kind", bound="Prediction")


class InexactConversion(TypeError):
    """The target is not a function of the prediction at hand."""


@dataclass(frozen=True)
class OutputReading:
    """What a denoiser adds to an output of its network."""

    variance: Variance | None = None  # of the Gaussian kernel in discrete time
    kernel: str = "marginalised"  # how a raw posterior is turned into one
    before: Callable[[Tensor], Tensor] | None = None  # the time before each time of a chain's grid

    def grid_pair(self, kind: type["Prediction"], t: Tensor) -> dict[str, Tensor]:
        """The argument s of a kind that is tied to the grid."""
        if not kind.tied_to_grid:
            return {}
        if self.before is None:
            raise TypeError("a prediction tied to a grid pair (s, t) needs a chain: Denoiser(network, Chain(process, T))")
        return {"s": self.before(t)}


@dataclass(frozen=True)
class KernelTable:
    """Kernels of steps from t to s, x_s = on_x x_t + on_value value + std L z; float64 [steps] or [steps, *shape]."""

    on_x: Tensor
    on_value: Tensor
    known: tuple[Tensor, ...]  # of std, what is known before there are predictions (`variance.Variance.table`)


class Prediction(Reversal):
    """What a network says about x_0 (or the reverse process) at the state x_t and the forward time t."""

    process: Process
    x_t: Tree
    t: Tree
    tied_to_grid = False  # whether it belongs to one pair (s, t), as `Mean` and `Transition` do
    joint = False  # whether it is a function of the whole state, as `Energy` is, rather than a value for each leaf
    lazy = False  # whether `of_features` takes a network's features and head, so that the head sees only rows asked for

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        """Why this kind does not speak of a leaf under this process; None where it does."""
        return f"does not fit {type(process).__name__}"

    @classmethod
    def of_output(cls, output: Any, process: Process, x_t: AnyState, t: AnyState, reading: OutputReading) -> "Prediction":
        """What a plain network output means."""
        check_output(output, None)
        return cls(output, process, x_t, t)  # type: ignore[call-arg]

    @classmethod
    def shapes(cls, process: Process, x_t: AnyState) -> list[tuple[int, ...]] | None:
        """The shapes that its value may have at these states, the usual one first; None: it has no such value."""
        return None

    @classmethod
    def of_energy(cls, leaf: Any) -> "Prediction":
        """What the differences of an energy say on a leaf (see `energy.EnergyLeaf`)."""
        raise TypeError(f"no {cls.__name__} is made of an energy's differences: write {cls.__name__}.of_energy(leaf)")

    @classmethod
    def latest(cls, process: Process) -> float:
        """The latest time at which a network that predicts it says something of x_0, where sampling starts unless told."""
        return 1.0

    @classmethod
    def cutoff(cls, process: Process) -> float:
        """The earliest time that the bound visits unless told otherwise: the process's own, where any network's output
        keeps the bound finite down to it."""
        return process.cutoff

    @classmethod
    def tells_clean(cls, process: Process) -> bool:
        """Whether `clean` exists at every noise level."""
        return False

    def clean(self) -> Tree:
        """The estimate of x_0: numbers as they are, categories as probabilities [..., size]."""
        raise InexactConversion(f"{type(self).__name__} tells of no x_0")

    @property
    def space(self) -> Space:
        return self.process.state_space

    @abstractmethod
    def to(self, kind: type[Kind], **options) -> Kind:
        """The same prediction as another kind."""

    def with_value(self: Kind, value: Any) -> Kind:
        """The same kind at the same state and time, with another value (a dict by leaf on a product)."""
        if not hasattr(self, "value"):
            raise TypeError(f"a {type(self).__name__} has no value to put another in the place of")
        expected = self.shapes(self.process, self.x_t)
        if expected is not None:
            check_shape(value, expected, f"the value of {type(self).__name__}")
        own = copy(self)
        own.value = value  # type: ignore[attr-defined]
        return own

    def at(self: Kind, t: AnyState) -> Kind:
        """The same value, said of another time: one per row, or on a product a dict by leaf."""
        own = copy(self)
        own.t = t
        return own

    def flow_velocity(self) -> Tensor:
        """dx/dt of the probability flow at x_t, in forward time."""
        raise InexactConversion(f"{type(self).__name__} tells of no probability flow: predict numbers, or a score of angles")

    def flow_step(self, s: Tensor) -> Tensor:
        """Where a single step of the flow to the time s leads, exact for data on one point."""
        raise InexactConversion(f"{type(self).__name__} tells of no probability flow: predict numbers, or a score of angles")

    @property
    def kernel_key(self) -> Hashable | None:
        """What its kernels depend on beside state, value and times: alike where the table is the same; None: it has none."""
        return None

    def kernel_table(self, process: Process, s: Tensor, t: Tensor) -> KernelTable | None:
        """The kernels of steps from t to s, on the host, under its process there; None where they are no such table."""
        return None

    def kernel_terms(self, known: tuple[Any, ...]) -> tuple[Tensor, Any]:
        """What a table's on_value is of, and the standard deviation, by what the table knows of it in this step."""
        raise TypeError(f"the kernels of {type(self).__name__} are no table")

    def by_leaf(self) -> "Prediction":
        """The same as a value for each leaf; itself, unless it is joint."""
        return self


def check_output(output: Any, expected: list[tuple[int, ...]] | None) -> None:
    """A tensor of floats, of one of the shapes expected."""
    if not isinstance(output, Tensor):
        raise TypeError(f"the network returned a {type(output).__name__}; it must return a plain tensor")
    if expected is not None and tuple(output.shape) not in expected:
        raise ValueError(f"the network returned shape {tuple(output.shape)}; expected {expected[0]}")
    if not output.dtype.is_floating_point:
        raise TypeError(f"the network returned dtype {output.dtype}; it must return floating point numbers")


def check_shape(value: Any, expected: list[tuple[int, ...]], what: str, spread: bool = False) -> None:
    """A tensor of one of the shapes; with `spread` axes of length 1 stand for any."""
    shape = tuple(value.shape) if isinstance(value, Tensor) else None
    if shape in expected or spread and shape is not None and any(_spreads(shape, wanted) for wanted in expected):
        return
    found = f"a {type(value).__name__}" if shape is None else f"of shape {shape}"
    raise ValueError(f"{what} is {found}: pass a tensor of shape {' or '.join(map(str, dict.fromkeys(expected)))}")


def _spreads(shape: tuple[int, ...], wanted: tuple[int, ...]) -> bool:
    return len(shape) == len(wanted) and all(n in (1, m) for n, m in zip(shape, wanted, strict=True))


def refuse(source: Prediction, target: type, why: str) -> InexactConversion:
    if issubclass(target, Prediction) and target.joint:
        why = (
            "numbers at one state do not determine a function of all states; let the network return it, "
            f"Denoiser(network, process, predicts={target.__name__})"
        )
    return InexactConversion(f"{type(source).__name__} does not determine {target.__name__}: {why}")
