"""Linear methods on numbers: a table of coefficients per step, and one line that applies them.

With D the clean prediction x_0(x_t) and z standard normal, every method here is

    x_s = keep x_t + sum_j weight_j D_{i-j} + scale z,

its coefficients computed in float64 on the host before the loop.  In a step each costs one multiply-add over the state, and
none is read from, or sent to, the device.

`DDIM(eta)` is the non-Markov family with the marginals of the process: variance eta^2 times that of q(x_s | x_t, x_0).
`EulerMaruyama(eta)` takes plain Euler steps of the reverse SDE with drift -f + (1 + eta^2)/2 g^2 score and diffusion eta g
(eta = 0: the probability flow, eta = 1: the reversal).  Methods of higher order are in `samplers.exponential`.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.predictions import Prediction
from unnoise.processes import Gaussian, Process
from unnoise.samplers.base import OneStep
from unnoise.samplers.coefficients import (
    Coefficients,
    Moments,
    Reader,
    combined,
    gaussian_of,
    no_gaussian,
    plus,
    scaled,
)
from unnoise.samplers.problem import Problem
from unnoise.samplers.state import Memory, State
from unnoise.shapes import Int


def ddim_row(m: Moments, i: Tensor, eta: float = 0.0) -> Coefficients:
    """x_s = alpha_s D + sqrt(sigma_s^2 - v) eps + sqrt(v) z,  v = eta^2 Var q(x_s | x_t, x_0), for the steps i.

    That variance is -sigma_s^2 expm1(-2h), which has a value where lambda is infinite as well.
    """
    alpha_t, sigma_t, alpha_s, sigma_s = m.alpha[i], m.sigma[i], m.alpha[i + 1], m.sigma[i + 1]
    fall = 2 * (m.log_snr[i] - m.log_snr[i + 1])  # -2h
    rest = sigma_s * (1 - eta**2 + eta**2 * fall.exp()).sqrt() if eta else sigma_s
    noise = eta * sigma_s * (-torch.expm1(fall)).sqrt() if eta else None
    return Coefficients(rest / sigma_t, (alpha_s - rest * alpha_t / sigma_t,), noise)


@dataclass(frozen=True)
class Past(Memory):
    """What a multistep method remembers: where the last step began, and the values read before, newest first."""

    x: Tensor | None = None
    values: tuple[Tensor, ...] = ()


@dataclass(frozen=True)
class LinearTables:
    """Every step's coefficients, those of the first step made again, and how predictions are read."""

    table: list[Coefficients]
    start: Coefficients | None
    reader: Reader


class LinearMethod(OneStep):
    """Base of methods given by a table."""

    order: int

    def __init__(self, degree: int = 1, order: int | None = None, eta: float = 0.0):
        self.degree, self.order, self.eta = degree, degree if order is None else order, eta
        self.draws = eta > 0

    def calls(self, steps: int, process: Process) -> int:
        return steps + (self.order > 2)

    @abstractmethod
    def row(self, m: Moments, i: Int[Tensor, "steps"], known: int) -> Coefficients:
        """The coefficients of the steps i, with `known` clean predictions at hand (the newest included)."""

    def known(self, m: Moments) -> list[int]:
        """How many predictions each step uses; 0: it is a step of DDIM, which needs no lambda."""
        return [1] * (len(m.times) - 1)

    def refuse(self, process: Process) -> str | None:
        return no_gaussian(type(self).__name__, process)

    def table(self, process: Gaussian, times: Tensor, device: torch.device | str = "cpu") -> list[Coefficients]:
        """Every step's coefficients, float64."""
        m = Moments(process.schedule, times)
        return self.laid_out(self.known(m), lambda i, known: self.steps_with(m, i, known), device)

    def steps_with(self, m: Moments, i: Tensor, known: int) -> Coefficients:
        return self.row(m, i, known) if known else ddim_row(m, i, min(self.eta, 1.0))

    @staticmethod
    @torch.no_grad()
    def laid_out(
        known: list[int], row: Callable[[Tensor, int], Coefficients], device: torch.device | str
    ) -> list[Coefficients]:
        """Rows of all steps, those with the same number of predictions computed together."""
        out: dict[int, Coefficients] = {}
        for n in set(known):
            steps = [i for i, count in enumerate(known) if count == n]
            out.update(zip(steps, row(torch.tensor(steps), n).split(device), strict=True))
        return [out[i] for i in range(len(known))]

    def tables(self, problem: Problem) -> LinearTables:
        process = gaussian_of(problem.process, type(self).__name__)
        m = Moments(process.schedule, problem.times)
        start = self.start(m) if self.order > 2 and problem.steps > 1 else None
        return LinearTables(
            self.table(process, problem.times, problem.device),
            None if start is None else start.split(problem.device)[0],
            Reader(process, problem.times, problem.device),
        )

    def memory(self, problem: Problem, tables: LinearTables, x: Tensor) -> Past | None:
        """With one prediction per step nothing is kept."""
        return None if self.degree == 1 else Past()

    def start(self, m: Moments) -> Coefficients | None:
        """The first step again, from values at both its ends (the later one first)."""
        return None

    def stage_times(self, problem, tables):
        """A method of order 3 starts with a step of order 2: a second call at its end, and a line through both."""
        stages = super().stage_times(problem, tables)
        return stages if tables.start is None else [(*stages[0], problem.times[1].item()), *stages[1:]]

    def stage(self, problem, tables, prediction, state: State, i, k, noise):
        x, memory = state.x, state.memory
        if k == 1:
            value = self.read(tables, prediction, x, i + 1)
            return state.to(combined(tables.start, memory.x, (value, *memory.values)), memory)
        row = tables.table[i]
        if self.degree == 1:  # nothing is kept: the reading is part of the row
            value, (on_x, on_value) = tables.reader.linear(prediction, x, i)
            weight = row.weights[0]
            out = plus(scaled(row.keep + weight * on_x, x), weight * on_value, value)
        else:
            past = (self.read(tables, prediction, x, i), *memory.values)
            memory = Past(x, past[: self.degree])
            out = combined(row, x, past)
        if row.noise is not None:
            z = noise.normal(tuple(x.shape[1:]), x.dtype)
            covariance = problem.process.covariance
            out = plus(out, row.noise, z if covariance is None else covariance.colour(z))
        return state.to(out, memory)

    def read(self, tables: Any, prediction: Prediction, x: Tensor, i: int) -> Tensor:
        """What the table's weights are of: the clean prediction."""
        return tables.reader.clean(prediction, x, i)


class DDIM(LinearMethod):
    """eta = 0 is deterministic, the probability flow's exponential Euler; eta = 1 is the ancestral kernel."""

    def __init__(self, eta: float = 0.0):
        if not 0 <= eta <= 1:
            raise ValueError(f"eta = {eta:g}: choose 0 (deterministic) to 1 (ancestral)")
        super().__init__(1, eta=eta)

    def row(self, m, i, known):
        return ddim_row(m, i, self.eta)


class EulerMaruyama(LinearMethod):
    """Plain Euler steps of the reverse SDE with stochasticity eta; eta = 0 is Euler on the probability flow.

    eta = 1 is eq:reverse-SDE, and every eta is eq:reverseKFE-trick with C = eta^2/2.
    """

    def __init__(self, eta: float = 1.0):
        if not eta >= 0:
            raise ValueError(f"eta = {eta:g} must not be negative")
        super().__init__(1, eta=eta)

    def known(self, m):
        """Where alpha = 0, f and g^2 are infinite."""
        return (m.alpha[:-1].reshape(len(m.times) - 1, -1) > 0).all(1).long().tolist()

    def row(self, m, i, known):
        t, alpha, sigma = m.times[i], m.alpha[i], m.sigma[i]
        step = (t - m.times[i + 1]).reshape(-1, *[1] * (alpha.ndim - 1))
        f, g2 = m.schedule.drift(t), m.schedule.diffusion(t)
        pull = 0.5 * (1 + self.eta**2) * g2 * step / sigma.square()
        noise = self.eta * (g2 * step).sqrt() if self.eta else None
        return Coefficients(1 - step * f - pull, (pull * alpha,), noise)
