"""What a network says of velocities that flip: log r_i(z) = log p_t(R_i z)/p_t(z), one number per coordinate.

The reverse process flips i at u_i(z) = lambda_i(R_i z) min(r_i(z), cap), with the cap of the process.  What the bound of a
path and the sampler ask of it, as of any kind for processes of finite speed:

    exit_rate()               sum_i u_i at these states
    log_ratio(before, mark)   log lambda(before -> here)/u(here -> before), of a forward jump that led here
    thinned(mark, noise)      the states after a candidate jump, found at `cap` times the rates that lead here

A flip i led here at lambda_i(R_i z), which cancels: the first logarithm is -log min(r_i, cap).
"""

from math import log

import torch
from torch import Tensor

from unnoise.generators import Local
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.predictions.base import Kind, OutputReading, Prediction, check_output, refuse
from unnoise.processes import Process
from unnoise.processes.finite_speed import FiniteSpeed, rows_of
from unnoise.processes.flips import FlippingVelocity, flipped
from unnoise.processes.ratio_flips import RatioFlips, back_rates
from unnoise.shapes import AnyState, Clock, Float, Int


class FlightPrediction(Prediction):
    """Base of kinds for processes of finite speed."""

    process: FiniteSpeed
    x_t: Tensor

    def exit_rate(self) -> Float[Tensor, "batch"]:
        raise NotImplementedError

    def log_ratio(self, before: Tensor, mark: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
        raise NotImplementedError

    def thinned(self, mark: Int[Tensor, "batch"], noise: NoiseSource) -> Tensor:
        raise NotImplementedError

    def step(self, s: Clock) -> Law:
        raise TypeError("a process of finite speed has no kernel with a density: use ThinnedFlights(), its default sampler")

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        raise refuse(self, kind, "it is a ratio of densities of velocities, of which no x_0 is known")


class FlipRatios(FlightPrediction):
    """`value` is log r_i, of the shape of x."""

    process: FlippingVelocity

    def __init__(self, value: Tensor, process: Process, x_t: AnyState, t: AnyState):
        self.value, self.process, self.x_t, self.t = value, process, x_t, t  # type: ignore[assignment]

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        if isinstance(process, FlippingVelocity):
            return None
        return f"is for velocities that flip, and those of {type(process).__name__} do not"

    @classmethod
    def shapes(cls, process: Process, x_t: AnyState) -> list[tuple[int, ...]]:
        return [tuple(x_t[:, 0].shape)]

    @classmethod
    def of_output(cls, output, process: Process, x_t: AnyState, t: AnyState, reading: OutputReading) -> "FlipRatios":
        check_output(output, cls.shapes(process, x_t))
        return cls(output, process, x_t, t)

    @property
    def log_ratios(self) -> Tensor:
        """log min(r_i, cap), float64: those of the model."""
        return self.value.double().clamp_max(log(self.process.cap))

    def exit_rate(self) -> Float[Tensor, "batch"]:
        return (back_rates(self.process, self.x_t) * self.log_ratios.exp()).reshape(len(self.x_t), -1).sum(1)

    def log_ratio(self, before: Tensor, mark: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
        return -self.log_ratios.reshape(len(mark), -1).gather(1, mark.unsqueeze(1)).squeeze(1)

    def thinned(self, mark: Int[Tensor, "batch"], noise: NoiseSource) -> Tensor:
        log_share = -self.log_ratio(self.x_t, mark) - log(self.process.cap)
        flips = noise.uniform().log() < log_share
        return torch.where(rows_of(flips, self.x_t), flipped(self.x_t, mark), self.x_t)

    def local(self) -> Local:
        forward = self.process.local(self.x_t, self.t)
        return Local(drift=-forward.drift, jumps=RatioFlips(self.process, self.x_t, self.log_ratios))  # type: ignore[operator]
