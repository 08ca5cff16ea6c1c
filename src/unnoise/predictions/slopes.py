"""What log q_t does from here: its slope on numbers, its differences to the neighbours on categories and counts.

    numbers       slope = grad log q_t                       reverse drift -b + div a + a slope
    categories    slope_y = log q_t(y) - log q_t(x)          reverse rates R(x, y) exp(slope_y)

It is all that the reverse of a known generator needs (eq:reversed-generator), on any space that says how (`Space.backward`),
and so the kind of a process that is known by its generator alone (`processes.simulated`).  The generator is that of the
forward step that is undone: at the time of the grid before t (`Simulated.before`).
"""

from typing import Any

from unnoise.checks import fits
from unnoise.generators import Generator, Local
from unnoise.laws import Law
from unnoise.predictions.base import Kind, OutputReading, Prediction, check_output, refuse
from unnoise.processes import Process
from unnoise.processes.base import spread_times
from unnoise.shapes import AnyState, Clock, Tree
from unnoise.spaces import Space
from unnoise.tree import batch_size


class Slopes(Prediction):
    """`value` has the shape of x_t on numbers, [*x_t.shape, size] on categories, [*x_t.shape, 2] on counts; a dict of them
    on a product of spaces."""

    def __init__(self, value: Tree, process: Process, x_t: AnyState, t: AnyState):
        self.value, self.process, self.x_t, self.t = value, process, x_t, t

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        if process.by_generator and not process.leaves:
            return None
        return f"is for processes whose paths are simulated, and {type(process).__name__} has closed forms"

    @classmethod
    def shapes(cls, process: Process, x_t: AnyState) -> list[tuple[int, ...]] | None:
        return None if process.state_space.leaves else [process.state_space.slope_shape(x_t)]  # type: ignore[arg-type]

    @classmethod
    def of_output(cls, output, process: Process, x_t: AnyState, t: AnyState, reading: OutputReading) -> "Slopes":
        _check_slopes(output, process.state_space, x_t, "the network's output")
        return cls(output, process, x_t, t)

    def local(self) -> Tree[Local]:
        before = self.process.before(self.t)  # type: ignore[operator]

        def local(x: Tree) -> Tree[Local]:
            return self.process.local(x, spread_times(before, batch_size(self.x_t), batch_size(x)))

        return Generator(self.process.state_space, local).backward(self.value, self.x_t)

    def step(self, s: Clock) -> Law:
        raise TypeError("slopes have no kernel but that of a small step: use FromGenerator()")

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        raise refuse(self, kind, "it is the slope of log q_t, of which no x_0 is known")


def _check_slopes(output: Any, space: Space, x_t: AnyState, name: str) -> None:
    """A slope for each leaf of the space."""
    if not space.leaves:
        check_output(output, [space.slope_shape(x_t)])  # type: ignore[arg-type]
        return
    fits(output, tuple(space.leaves), name)
    for leaf, own in space.leaves.items():
        _check_slopes(output[leaf], own, x_t[leaf], f"{name}[{leaf!r}]")
