"""What log q_t does from here: its slope on numbers, its differences to the neighbours on categories and counts.

    numbers       slope = grad log q_t                       reverse drift -b + div a + a slope
    categories    slope_y = log q_t(y) - log q_t(x)          reverse rates R(x, y) exp(slope_y)

It is all that the reverse of a known generator needs (eq:reversed-generator), on any space that says how (`Space.backward`),
and so the kind of a process that is known by its generator alone (`processes.simulated`).  The generator is that of the
forward step that is undone: at the time of the grid before t.
"""

from typing import cast

from torch import Tensor

from unnoise.generators import Local
from unnoise.laws import Law
from unnoise.predictions.base import Kind, OutputReading, Prediction, check_output, refuse
from unnoise.processes import Process, Simulated
from unnoise.processes.base import spread_times
from unnoise.shapes import AnyState, Clock


class Slopes(Prediction):
    """`value` has the shape of x_t on numbers, [*x_t.shape, size] on categories, [*x_t.shape, 2] on counts."""

    def __init__(self, value: Tensor, process: Process, x_t: AnyState, t: AnyState):
        self.value, self.process, self.x_t, self.t = value, process, x_t, t

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        if isinstance(process, Simulated) and not process.leaves:
            return None
        return f"is for processes whose paths are simulated, and {type(process).__name__} has closed forms"

    @classmethod
    def shapes(cls, process: Process, x_t: AnyState) -> list[tuple[int, ...]]:
        return [process.state_space.slope_shape(x_t)]

    @classmethod
    def of_output(cls, output, process: Process, x_t: AnyState, t: AnyState, reading: OutputReading) -> "Slopes":
        check_output(output, cls.shapes(process, x_t))
        return cls(output, process, x_t, t)

    def local(self) -> Local:
        before = self.process.before(self.t)  # type: ignore[operator]

        def field(x: Tensor) -> Local:
            return self.process.local(x, spread_times(before, len(self.x_t), len(x)))  # type: ignore[return-value]

        return self.process.state_space.backward(field, self.value, cast(Tensor, self.x_t))

    def step(self, s: Clock) -> Law:
        raise TypeError("slopes have no kernel but that of a small step: use FromGenerator()")

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        raise refuse(self, kind, "it is the slope of log q_t, of which no x_0 is known")
