"""Given a linear measurement of numbers, y = A x_0 + noise eps: the factor h(x_0) = N(y; A x_0, noise^2)."""

from typing import Any

from torch import Tensor

from unnoise.guidance.ahead import NormalAhead, SpreadOfTime
from unnoise.guidance.measurements import Measurement
from unnoise.guidance.twists import Twist
from unnoise.shapes import Float, Tree
from unnoise.tree import pick


class Measured(NormalAhead):
    def __init__(
        self,
        measurement: Measurement,
        leaf: str | tuple[str, ...] | None = None,
        variance: float | SpreadOfTime | None = None,
    ):
        super().__init__(leaf, variance)
        self.measurement = measurement

    def expected(self, mean: Tensor, variance: Tensor) -> tuple[Tensor, Tensor]:
        """With the largest variance, where coordinates differ: rather too little is said than too much."""
        return self.measurement.around(mean, variance.flatten(1).amax(1))

    def at_the_end(self, x0: Tree, condition: dict[str, Any]) -> Float[Tensor, "batch"]:
        return self.measurement.log_prob(pick(x0, self.leaf))

    def of_rows(self, condition: dict[str, Any]) -> tuple[Twist, dict[str, Any]]:
        measurement, rest = self.measurement.of_rows(condition)
        return Measured(measurement, self.leaf, self.variance), rest
