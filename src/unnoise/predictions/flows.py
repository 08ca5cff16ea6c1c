"""The score that a velocity of the probability flow tells: an open function of the process."""

from functools import singledispatch

from torch import Tensor

from unnoise.gamma_laws import LEAST
from unnoise.predictions.continuous import Flow, Score
from unnoise.processes import CoxIngersollRoss, Gaussian, HeatProcess, Process, WrightFisher


@singledispatch
def score_of_flow(process: Process, x: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    """grad log q_t(x) where the flow has this velocity."""
    name = type(process).__name__
    raise TypeError(f"no flow of {name} tells its score: write unnoise.predictions.score_of_flow.register({name})")


@score_of_flow.register(Gaussian)
def _(process: Gaussian, x: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    return Flow(velocity, process, x, t).to(Score).value


@score_of_flow.register(HeatProcess)
def _(process: HeatProcess, x: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    return -2 * velocity / process.local(x, t).diffusion  # type: ignore[operator]


@score_of_flow.register(WrightFisher)
def _(process: WrightFisher, x: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    """a grad log r = -2 u/g^2, on vectors of sum 0 undone by diag(1/x)."""
    slope = (-2 * velocity / process.local(x, t).diffusion + process.alpha - 1) / x.clamp_min(LEAST)  # type: ignore[operator]
    return slope - slope.mean(-1, keepdim=True)


@score_of_flow.register(CoxIngersollRoss)
def _(process: CoxIngersollRoss, x: Tensor, velocity: Tensor, t: Tensor) -> Tensor:
    """l = -2 u/g^2."""
    slope = -2 * velocity / process.local(x, t).diffusion + process.alpha - 1  # type: ignore[operator]
    return slope / x.clamp_min(LEAST) - 1 / process.scale
