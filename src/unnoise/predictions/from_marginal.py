"""The reverse process of known marginals: the generator run backwards under log q_t.

For any process with a generator, on any space, a function log q_t(x) says the whole reverse process: drift and jumps follow
by `Generator.reversed`.  It is what an exactly solvable problem has to say of itself where no closed form is at hand, and
what samplers that ask for the generator alone (`samplers.FromGenerator`) need.  It has no kernel over a step.
"""

from collections.abc import Callable

from torch import Tensor

from unnoise.generators import Local
from unnoise.laws import Law
from unnoise.predictions.base import Kind, Prediction, check_shape, refuse
from unnoise.processes import Process
from unnoise.shapes import Clock, Tree
from unnoise.tree import batch_size


class FromMarginal(Prediction):
    """`FromMarginal(log_q, process, x_t, t)` with log_q(x, t) -> [batch], up to a constant."""

    def __init__(self, log_q: Callable[[Tree, Clock], Tensor], process: Process, x_t: Tree, t: Tree):
        self.log_q, self.process, self.x_t, self.t = log_q, process, x_t, t

    def local(self) -> Tree[Local]:
        return self.process.reversed_local(self.one_per_row, self.x_t, self.t)

    def one_per_row(self, x: Tree, t: Clock) -> Tensor:
        """log_q, if it is a number for each row; others would be added up as if they were."""
        value = self.log_q(x, t)
        check_shape(value, [(batch_size(x),)], "what log_q(x, t) returned")
        return value

    def step(self, s: Clock) -> Law:
        raise TypeError(
            "marginals alone have no kernel over a step: use a method that asks for the generator, FromGenerator()"
        )

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        raise refuse(self, kind, "it is a reverse generator, of which no number per coordinate is known")
