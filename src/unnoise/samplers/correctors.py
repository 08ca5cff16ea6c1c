"""Predictor-correctors: a step to the next time, then moves at that time that leave its law alone.

A predictor takes x from t to s and makes an error.  A corrector then runs for a while in a process that has q_s as its
stationary law, and so draws any other law nearer to it:

    numbers       dx = C score dtau + sqrt(2) L dw               Langevin, with the covariance C = L L^T of the noise
    categories    jumps at the rates R_s + R^_s                  forward and reverse: in detailed balance with q_s
                                                                 (eq:detailed-balance-discrete)

both discretised.  With C score = (alpha D - x)/sigma^2 and a pseudo-time kappa sigma^2 a Langevin move is

    x' = (1 - kappa) x + kappa alpha D + sqrt(2 kappa) sigma L z,                kappa = 1 - exp(-scale h),

h the step in lambda = log(alpha/sigma) that the predictor has taken.  So kappa is scale h on fine grids and never more than
1, where the move is stable for every data law.  On Gaussian data a direction of variance c has the stationary variance
c/(1 - kappa sigma^2/(2 c)): a bias of the order of kappa, so the whole is of order 1 in law.  With `snr` kappa is 2 snr^2 at
all times, the usual choice (a pseudo-time of 2 (snr sigma)^2); its bias, snr^2 sigma^2/c relative to c, does not go away as
steps are refined, and there is no order.  The size of a move never looks at the batch: sample i stays its own.

Jumps are made by hold-then-leap with frozen rates (`samplers.leaps`) over the pseudo-time scale (t - s).  Under masking they
mask again and reveal again, which is the point: nothing else takes back a wrong token.

Both cost one network call per move.  No move is made at the last time if there is no noise there.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.predictions import Clean, Prediction
from unnoise.processes import Gaussian, Process
from unnoise.samplers.base import Stepping
from unnoise.samplers.coefficients import continuous, gaussian_of, no_gaussian
from unnoise.samplers.leaps import finite, log_rates_of, no_rates
from unnoise.samplers.problem import Problem, on_host
from unnoise.samplers.state import State
from unnoise.shapes import Float, Tree
from unnoise.spaces.finite import LOG_HUGE, leap


class Corrector(ABC):
    """A move at one time, towards the law of that time."""

    order: int | None = None

    @abstractmethod
    def refuse(self, process: Process) -> str | None:
        """Why this corrector does not hold for a process; None where it does."""

    def tables(self, problem: Problem) -> Any:
        """What is known before the loop."""
        return None

    @abstractmethod
    def move(self, problem: Problem, tables: Any, prediction: Prediction, state: State, i: int, noise: NoiseSource) -> State:
        """One move at times[i + 1], where the prediction was made; what the predictor remembers stays as it is."""


@dataclass(frozen=True)
class CorrectedSetup:
    predictor: Any
    corrector: Any
    corrected: int  # steps that are followed by moves
    moments: list[Tree]


class PredictorCorrector(Stepping):
    """`PredictorCorrector(Ancestral(), Langevin(), rounds=1)`: each step is followed by `rounds` moves of the corrector."""

    def __init__(self, predictor: Stepping, corrector: Corrector, rounds: int = 1):
        if not isinstance(predictor, Stepping):
            raise TypeError(f"{type(predictor).__name__} does not go from time to time: choose one that steps, as Ancestral")
        if predictor.goes_back:
            raise TypeError(
                f"{type(predictor).__name__} makes steps again from where they began, and would undo the moves: choose "
                f"DPMSolverPP(2)"
            )
        if rounds < 1:
            raise ValueError(f"rounds = {rounds}: at least one move per step, or use the predictor alone")
        self.predictor, self.corrector, self.rounds = predictor, corrector, rounds
        orders = [predictor.order, corrector.order]
        self.order = None if None in orders else min(o for o in orders if o is not None)
        self.stages, self.complete = predictor.stages + rounds, predictor.complete

    def latest(self, process):
        return self.predictor.latest(process)

    def refuse(self, process):
        return self.predictor.refuse(process) or self.corrector.refuse(process)

    def calls(self, steps, process):
        own = self.predictor.calls(steps, process)
        return None if own is None else own + self.rounds * steps

    def setup(self, problem):
        noiseless = problem.process.noiseless(float(problem.times[-1]))
        return CorrectedSetup(
            self.predictor.setup(problem),
            self.corrector.tables(problem),
            problem.steps - 1 if noiseless else problem.steps,
            problem.moments(problem.times[1:].tolist()),
        )

    def init(self, problem, setup, x):
        return self.predictor.init(problem, setup.predictor, x)

    def step(self, problem, setup, state, i):
        state = self.predictor.step(problem, setup.predictor, state, i)
        for n in range(self.rounds if i < setup.corrected else 0):
            prediction = problem.predict(state.x, setup.moments[i])
            noise = problem.noise.at("correct", i, n)
            state = self.corrector.move(problem, setup.corrector, prediction, state, i, noise)
        return state


class Langevin(Corrector):
    """Noise and a pull along the score.  `scale` ties its size to the step, order 1; `snr` fixes it, no order."""

    def __init__(self, scale: float = 1.0, snr: float | None = None):
        if not scale > 0:
            raise ValueError(f"scale = {scale:g} must be positive: it is the share of each step that is noised again")
        if snr is not None and not 0 < snr < 1:
            raise ValueError(f"snr = {snr:g}: choose it in (0, 1), such as 0.16; from 1 on the moves grow without end")
        self.scale, self.snr = scale, snr
        self.order = 1 if snr is None else None

    def refuse(self, process):
        return no_gaussian("Langevin", process)

    @torch.no_grad()
    def rows(self, process: Gaussian, times: Float[Tensor, "times"]) -> list[tuple[Tensor, Tensor, Tensor]]:
        """The coefficients on x, D and z of a move at times[1:], float64."""
        schedule = on_host(process.schedule)
        half = schedule.log_snr(times) / 2
        alpha, sigma = schedule.alpha(times)[1:], schedule.sigma(times)[1:]
        kappa = -torch.expm1(-self.scale * (half[1:] - half[:-1])) if self.snr is None else 0 * alpha + 2 * self.snr**2
        return list(zip(1 - kappa, kappa * alpha, (2 * kappa).sqrt() * sigma, strict=True))

    def tables(self, problem):
        process = gaussian_of(problem.process, type(self).__name__)
        rows = self.rows(process, problem.times)
        if process.schedule.shape:
            return [tuple(c.to(problem.device) for c in row) for row in rows]
        return [tuple(float(c) for c in row) for row in rows]  # nothing is sent to the device in the loop

    def move(self, problem, tables, prediction, state, i, noise):
        keep, weight, scale = tables[i]
        x = state.x
        z = noise.normal(tuple(x.shape[1:]), x.dtype)
        covariance = problem.process.covariance
        z = z if covariance is None else covariance.colour(z)
        clean = continuous(prediction).to(Clean).value
        return replace(state, x=(keep * x + weight * clean + scale * z).to(x.dtype))


class DetailedBalance(Corrector):
    """Forward and reverse jumps together, for a pseudo-time of scale times the step."""

    order = 1

    def __init__(self, scale: float = 0.5):
        if not scale > 0:
            raise ValueError(f"scale = {scale:g} must be positive: it is the pseudo-time of a move, in steps")
        self.scale = scale

    def refuse(self, process):
        return no_rates("DetailedBalance jumps between", process)

    def rates(self, prediction: Prediction) -> Float[Tensor, "batch *shape states"]:
        """R_s + R^_s at the prediction's state and time."""
        prediction = finite(prediction)
        log_reverse = log_rates_of(prediction)
        log_forward = prediction.process.log_rates_from(prediction.x_t, prediction.t)
        return log_reverse.double().clamp_max(LOG_HUGE).exp() + log_forward.double().clamp_max(LOG_HUGE).exp()

    def move(self, problem, tables, prediction, state, i, noise):
        x = state.x
        h = self.scale * (problem.clock[i] - problem.clock[i + 1])
        moved = leap(x, self.rates(prediction), h).draw(noise)
        counted = state if state.jumps is None else state.counted(moved, x)  # where the predictor counts its own
        return replace(counted, x=moved)
