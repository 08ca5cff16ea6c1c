"""Predictions on closed spaces under heat flow: the score grad log q_t(x_t), a tangent vector.

    UnitScore      score/u_v, whose target grad log q(x_t | x_0)/u_v is of size one per direction at every noise level
    TangentScore   the score itself

with u_v of `processes.heat`.  Each determines the other.  The reverse process has the drift g^2 score; the bound's rate is

    1/2 g^2 |score_0 - score|^2 = 1/2 g^2 u_v^2 |target - value|^2,

so that for bounded values it stays integrable: towards the data u_v^2 = 1/v, where it grows with log v, and towards the
uniform law u_v^2 fades like e^{-dv}.  What a network says is projected onto the tangent plane.

There is no kind for x_0 itself: x_0 given x_t has no mean in the space, and no point of it determines the score.  At little
noise there is one, by Tweedie's formula along the geodesic: `clean` goes from x_t along v score.
"""

from typing import Any

from torch import Tensor

from unnoise.checks import as_times
from unnoise.generators import Local
from unnoise.laws import Law
from unnoise.predictions.base import Kind, OutputReading, Prediction, check_output, refuse
from unnoise.processes import HeatProcess, Process
from unnoise.shapes import Clock, Float


class HeatPrediction(Prediction):
    """A tangent vector at x_t."""

    process: HeatProcess
    x_t: Tensor
    t: Tensor

    def __init__(self, value: Float[Tensor, "batch *shape"], process: HeatProcess, x_t: Tensor, t: Clock):
        self.process, self.x_t = process, x_t
        self.value = process.space.tangent(value, x_t)
        self.t = as_times(t, x_t.shape[0], x_t.device)

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        return None if isinstance(process, HeatProcess) else super().misfit(process)

    @classmethod
    def shapes(cls, process: Process, x_t: Tensor) -> list[tuple[int, ...]]:
        return [tuple(x_t.shape)]

    @classmethod
    def of_output(cls, output: Any, process: Process, x_t: Tensor, t: Tensor, reading: OutputReading) -> "HeatPrediction":
        check_output(output, cls.shapes(process, x_t))
        return cls(output, process, x_t, t)  # type: ignore[arg-type]

    @classmethod
    def of_energy(cls, leaf: Any) -> "HeatPrediction":
        return cls.of_score(leaf.process.space.gradient(leaf.slope, leaf.x), leaf.process, leaf.x, leaf.t)

    @staticmethod
    def unit(process: HeatProcess, x_t: Tensor, t: Clock) -> Tensor | float:
        """The score that a value of one stands for."""
        return 1.0

    @classmethod
    def of_score(cls, score: Tensor, process: HeatProcess, x_t: Tensor, t: Clock) -> "HeatPrediction":
        return cls(score / cls.unit(process, x_t, t), process, x_t, t)

    @classmethod
    def target(cls, process: HeatProcess, x0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """What a perfect regression on x_0 would be trained towards."""
        score = process.marginal(x0, t).score(x_t)
        return score / cls.unit(process, x_t, t)

    def score(self) -> Tensor:
        """grad log q_t(x_t)."""
        return self.value * self.unit(self.process, self.x_t, self.t)

    def flow_velocity(self) -> Tensor:
        """-1/2 g^2 score, in forward time: nothing drifts, so that all of the flow is what undoes the spreading."""
        diffusion = self.process.local(self.x_t, self.t).diffusion
        return -0.5 * diffusion * self.score()  # type: ignore[operator]

    def flow_step(self, s: Tensor) -> Tensor:
        """DDIM along the geodesic: of the way v_t score to x_0, the share 1 - sigma_s/sigma_t."""
        variance = self.process.variance(self.t, self.x_t)
        share = 1 - (self.process.variance(s, self.x_t) / variance).sqrt()
        return self.process.space.carry(self.x_t, (share * variance).to(self.x_t.dtype) * self.score())

    def clean(self) -> Tensor:
        variance = self.process.variance(self.t, self.x_t).to(self.x_t.dtype)
        return self.process.space.carry(self.x_t, variance * self.score())

    def local(self) -> Local:
        return self.process.reverse_local(self.x_t, self.score(), self.t)

    def step(self, s: Clock) -> Law:
        return self.process.reverse_step(self.x_t, self.score(), s, self.t)

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        if not issubclass(kind, HeatPrediction):
            raise refuse(self, kind, "a score at one noise level tells of no x_0 on a closed space")
        return kind.of_score(self.score(), self.process, self.x_t, self.t)  # type: ignore[return-value]


class TangentScore(HeatPrediction):
    """grad log q_t(x_t)."""


class UnitScore(HeatPrediction):
    """The score in units of its own size."""

    @staticmethod
    def unit(process: HeatProcess, x_t: Tensor, t: Clock) -> Tensor | float:
        return process.score_size(t, x_t).to(x_t.dtype)
