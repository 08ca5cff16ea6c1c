"""Predictions for positive numbers under Cox-Ingersoll-Ross noise: how log r slopes at x_t, r = q_t/pi, pi the Gamma law.

    OrthantScore    the slope in units of its own size, in the coordinate 2 sqrt(x):     l = x d log r = u sqrt(x) value

The bound's rate is 1/2 g^2 sum (gap of l)^2/x = 1/2 g^2 u^2 |target - value|^2, finite for bounded values also at zero.
"""

from typing import Any

from torch import Tensor

from unnoise.checks import as_times
from unnoise.gamma_laws import LEAST
from unnoise.generators import Local
from unnoise.laws import Law
from unnoise.predictions.base import Kind, OutputReading, Prediction, check_output, refuse
from unnoise.processes import CoxIngersollRoss, Process
from unnoise.shapes import Clock, Float


class OrthantScore(Prediction):
    """The slope of log q_t/pi in units of its own size, in the coordinates 2 sqrt(x)."""

    process: CoxIngersollRoss
    x_t: Tensor
    t: Tensor

    def __init__(self, value: Float[Tensor, "batch *shape"], process: CoxIngersollRoss, x_t: Tensor, t: Clock):
        self.value, self.process, self.x_t = value, process, x_t
        self.t = as_times(t, x_t.shape[0], x_t.device)

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        return None if isinstance(process, CoxIngersollRoss) else super().misfit(process)

    @classmethod
    def shapes(cls, process: Process, x_t: Tensor) -> list[tuple[int, ...]]:
        return [tuple(x_t.shape)]

    @classmethod
    def of_output(cls, output: Any, process: Process, x_t: Tensor, t: Tensor, reading: OutputReading) -> "OrthantScore":
        check_output(output, cls.shapes(process, x_t))
        return cls(output, process, x_t, t)  # type: ignore[arg-type]

    @classmethod
    def of_lines(cls, lines: Tensor, process: CoxIngersollRoss, x_t: Tensor, t: Clock) -> "OrthantScore":
        root = x_t.double().clamp_min(LEAST).sqrt()
        return cls((lines / (root * process.score_size(t, x_t))).to(x_t.dtype), process, x_t, t)

    @classmethod
    def of_energy(cls, leaf: Any) -> "OrthantScore":
        """log q_t slopes by l/x and what pi does, (alpha - 1)/x - 1/s."""
        x, process = leaf.x.double(), leaf.process
        return cls.of_lines(x * leaf.slope - (process.alpha - 1) + x / process.scale, process, leaf.x, leaf.t)

    @classmethod
    def target(cls, process: CoxIngersollRoss, x0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """What a perfect regression on x_0 would be trained towards."""
        return cls.of_lines(process.marginal(x0, t).lines(x_t), process, x_t, t).value

    def lines(self) -> Tensor:
        """l = x d log(q_t/pi)."""
        return self.process.score_size(self.t, self.x_t) * self.x_t.double().clamp_min(LEAST).sqrt() * self.value.double()

    def flow_velocity(self) -> Tensor:
        """-1/2 g^2 l, in forward time: drift and noise alone hold pi."""
        return (-0.5 * self.process.rate(self.t, self.x_t) * self.lines()).to(self.x_t.dtype)

    def clean(self) -> Tensor:
        """Where the slope points: x + tau l, kept positive."""
        tau = self.process.spread(self.process.tau(self.t, self.x_t), self.x_t)
        return (self.x_t + tau * self.lines()).clamp_min(LEAST).to(self.x_t.dtype)

    def local(self) -> Local:
        return self.process.reverse_local(self.x_t, self.lines(), self.t)

    def step(self, s: Clock) -> Law:
        raise TypeError(
            f"{type(self).__name__} has no kernel but that of a small step: sample by FromGenerator(), and for a "
            f"likelihood take un.bound"
        )

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        raise refuse(self, kind, "a slope on the orthant says this and no more")
