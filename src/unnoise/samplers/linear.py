"""Linear methods on numbers: a table of coefficients per step, and one line that applies them.

With D the clean prediction x_0(x_t) and z standard normal, every method here is

    x_s = keep x_t + sum_j weight_j D_{i-j} + scale z,

its coefficients computed in float64 on the host before the loop.  In a step each costs one multiply-add over the state, on
an accelerator all of them together one kernel (`samplers.combinations`), and none is read from, or sent to, the device.

`DDIM(eta)` is the non-Markov family with the marginals of the process: variance eta^2 times that of q(x_s | x_t, x_0).
`EulerMaruyama(eta)` takes plain Euler steps of the reverse SDE with drift -f + (1 + eta^2)/2 g^2 score and diffusion eta g
(eta = 0: the probability flow, eta = 1: the reversal).  Methods of higher order are in `samplers.multistep`.

eta may be a function of t, asked at the start of each step, such as `lambda t: (t > 0.5).double()`: any amount of noise at
any time leaves the marginals alone.
"""

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.covariance import Covariance
from unnoise.laws import Normal
from unnoise.predictions import Prediction
from unnoise.processes import Gaussian, Process
from unnoise.samplers.base import OneStep
from unnoise.samplers.coefficients import (
    Change,
    Coefficient,
    Coefficients,
    Moments,
    Reader,
    combined,
    gaussian_of,
    no_gaussian,
)
from unnoise.samplers.combinations import combine
from unnoise.samplers.problem import Problem
from unnoise.samplers.row_tables import RowCoefficients, RowReader, RowTables
from unnoise.samplers.state import State
from unnoise.shapes import Int
from unnoise.tree import choose

Eta = float | Callable[[Tensor], Tensor]  # the amount of stochasticity, or it as a function of times [steps]


def ddim_row(m: Moments, i: Tensor, eta: Coefficient = 0.0) -> Coefficients:
    """x_s = alpha_s D + sqrt(sigma_s^2 - v) eps + sqrt(v) z,  v = eta^2 Var q(x_s | x_t, x_0), for the steps i.

    That variance is -sigma_s^2 expm1(-2h), which has a value where lambda is infinite as well.
    """
    alpha_t, sigma_t, alpha_s, sigma_s = m.alpha[i], m.sigma[i], m.alpha[i + 1], m.sigma[i + 1]
    fall, some = 2 * (m.log_snr[i] - m.log_snr[i + 1]), isinstance(eta, Tensor) or eta > 0  # -2h
    rest = sigma_s * (1 - eta**2 + eta**2 * fall.exp()).sqrt() if some else sigma_s
    noise = eta * sigma_s * (-torch.expm1(fall)).sqrt() if some else None
    return Coefficients(rest / sigma_t, (alpha_s - rest * alpha_t / sigma_t,), noise)


@dataclass(frozen=True)
class LinearTables:
    """Every step's coefficients, and how predictions are read."""

    table: list[Coefficients]
    reader: Reader
    covariance: Covariance | None  # of the noise


class LinearMethod(OneStep):
    """Base of methods given by a table.  `clean` is what is done to clean predictions (`samplers.clean`)."""

    order: int
    degree: int = 1  # how many predictions a step uses
    by_rows = True

    def __init__(self, order: int = 1, eta: Eta = 0.0, clean: Change | None = None):
        self.order, self.eta, self.clean = order, eta, clean
        self.draws = callable(eta) or eta > 0
        if not callable(eta) and not eta >= 0:
            raise ValueError(f"eta = {eta:g} must not be negative")

    @abstractmethod
    def row(self, m: Moments, i: Int[Tensor, "steps"], known: int) -> Coefficients:
        """The coefficients of the steps i, with `known` clean predictions at hand (the newest included)."""

    def known(self, m: Moments) -> list[int]:
        """How many predictions each step uses; 0: it is a step of DDIM, which needs no lambda."""
        return [1] * (len(m.times) - 1)

    def amount(self, m: Moments, i: Int[Tensor, "steps"], most: float = float("inf")) -> Coefficient:
        """eta in the steps i."""
        if not callable(self.eta):
            return min(self.eta, most)
        eta = torch.as_tensor(self.eta(m.times[i]), dtype=torch.float64).expand(len(i))
        if not bool((eta >= 0).all()):
            raise ValueError(f"eta = {eta[~(eta >= 0)][0].item():g} at some time of the grid: it must not be negative")
        return eta.clamp_max(most).reshape(-1, *[1] * (m.alpha.ndim - 1))

    def refuse(self, process: Process) -> str | None:
        return no_gaussian(type(self).__name__, process)

    def table(self, process: Gaussian, times: Tensor, device: torch.device | str = "cpu") -> list[Coefficients]:
        """Every step's coefficients, float64."""
        m = Moments(process.schedule, times)
        return self.laid_out(self.known(m), lambda i, known: self.steps_with(m, i, known), device)

    def steps_with(self, m: Moments, i: Tensor, known: int) -> Coefficients:
        return self.row(m, i, known) if known else ddim_row(m, i, self.amount(m, i, 1.0))

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
        reader = Reader(process, problem.times, problem.device, self.clean)
        return LinearTables(self.table(process, problem.times, problem.device), reader, process.covariance)

    def stage(self, problem, tables, prediction, state: State, i, k, noise):
        """Nothing is kept: the reading is part of the row."""
        row, x = tables.table[i], state.x
        value, on = tables.reader.linear(prediction, x, i)
        keep, weight = row.keep, row.weights[0]
        if on is not None:
            keep, weight = keep + weight * on[0], weight * on[1]
        out = combine((x, value), [[(keep, 0), (weight, 1)]], row.noise, noise, tables.covariance)
        return state.to(out[0])

    def no_law(self) -> str | None:
        name = type(self).__name__
        if self.degree > 1:
            return f"{name} goes by predictions of earlier steps, so that its steps have no density by themselves"
        return (
            None if self.draws and not callable(self.eta) else f"{name} draws nothing at some times: pass a number, eta > 0"
        )

    def step_law(self, problem: Problem, tables: LinearTables, prediction: Prediction, i: int) -> Normal:
        row, x = tables.table[i], cast(Tensor, prediction.x_t)
        mean = combined(replace(row, noise=None), x, (tables.reader.clean(prediction, x, i),))
        std = 0.0 if row.noise is None else row.noise
        return Normal(mean, torch.as_tensor(std, dtype=mean.dtype, device=mean.device), tables.covariance)

    def row_tables(self, problem: Problem, tables: LinearTables, kind: Any) -> RowTables:
        axes = len(gaussian_of(problem.process, type(self).__name__).space.shape)
        reader = RowReader(tables.reader, kind, problem.steps)
        return RowTables(RowCoefficients(tables.table, axes, problem.device), reader, tables.covariance)

    def step_rows(self, problem, tables, prediction, state: State, steps, stays, noise):
        row, x = tables.table[steps], state.x
        out = combined(row, x, (tables.reader.clean(prediction, x, steps),))
        return state.to(choose(stays, x, tables.noised(out, row, noise)))


class DDIM(LinearMethod):
    """eta = 0 is deterministic, the probability flow's exponential Euler; eta = 1 is the ancestral kernel."""

    def __init__(self, eta: Eta = 0.0, clean: Change | None = None):
        if not callable(eta) and not 0 <= eta <= 1:
            raise ValueError(f"eta = {eta:g}: choose 0 (deterministic) to 1 (ancestral)")
        super().__init__(1, eta, clean)

    def row(self, m, i, known):
        return ddim_row(m, i, self.amount(m, i, 1.0))


class EulerMaruyama(LinearMethod):
    """Plain Euler steps of the reverse SDE with stochasticity eta; eta = 0 is Euler on the probability flow.

    eta = 1 is eq:reverse-SDE, and every eta is eq:reverseKFE-trick with C = eta^2/2.
    """

    def __init__(self, eta: Eta = 1.0, clean: Change | None = None):
        super().__init__(1, eta, clean)

    def known(self, m):
        """Where alpha = 0, f and g^2 are infinite."""
        return (m.alpha[:-1].reshape(len(m.times) - 1, -1) > 0).all(1).long().tolist()

    def row(self, m, i, known):
        t, alpha, sigma = m.times[i], m.alpha[i], m.sigma[i]
        step = (t - m.times[i + 1]).reshape(-1, *[1] * (alpha.ndim - 1))
        f, g2, eta = m.schedule.drift(t), m.schedule.diffusion(t), self.amount(m, i)
        pull = 0.5 * (1 + eta**2) * g2 * step / sigma.square()
        noise = eta * (g2 * step).sqrt() if self.draws else None
        return Coefficients(1 - step * f - pull, (pull * alpha,), noise)
