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
from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.predictions import Clean, ContinuousPrediction, Mean, Prediction
from unnoise.processes import Gaussian, Process
from unnoise.samplers.base import OneStep, Problem, on_host
from unnoise.schedules import Schedule

Coefficient = float | Tensor


@dataclass
class Row:
    """One step's coefficients: on x, on the clean predictions (newest first), on z."""

    keep: Coefficient
    weights: tuple[Coefficient, ...]
    noise: Coefficient | None = None

    def on(self, device: torch.device) -> "Row":
        """Ready for the loop."""
        noise = None if self.noise is None else settled(self.noise, device)
        return Row(settled(self.keep, device), tuple(settled(w, device) for w in self.weights), noise)


def settled(coefficient: Coefficient, device: torch.device) -> Coefficient:
    """A plain number where there is one for all coordinates (no kernel is launched for it), else where the states are."""
    if not isinstance(coefficient, Tensor):
        return coefficient
    return float(coefficient) if coefficient.ndim == 0 else coefficient.to(device)


class Moments:
    """alpha, sigma, lambda of the grid's times, float64 [times] (or [times, *shape])."""

    def __init__(self, schedule: Schedule, times: Tensor):
        schedule = on_host(schedule)
        self.schedule, self.times = schedule, times
        self.alpha, self.sigma = schedule.alpha(times), schedule.sigma(times)
        self.log_snr = schedule.log_snr(times) / 2  # lambda


def ddim_row(m: Moments, i: int, eta: float = 0.0) -> Row:
    """x_s = alpha_s D + sqrt(sigma_s^2 - v) eps + sqrt(v) z,  v = eta^2 Var q(x_s | x_t, x_0).

    That variance is -sigma_s^2 expm1(-2h), which has a value where lambda is infinite as well.
    """
    alpha_t, sigma_t, alpha_s, sigma_s = m.alpha[i], m.sigma[i], m.alpha[i + 1], m.sigma[i + 1]
    fall = 2 * (m.log_snr[i] - m.log_snr[i + 1])  # -2h
    rest = sigma_s * (1 - eta**2 + eta**2 * fall.exp()).sqrt()
    noise = eta * sigma_s * (-torch.expm1(fall)).sqrt() if eta else None
    return Row(rest / sigma_t, (alpha_s - rest * alpha_t / sigma_t,), noise)


class Linear(OneStep):
    """Base of methods given by a table."""

    order: int

    def __init__(self, degree: int = 1, order: int | None = None):
        self.degree, self.order = degree, degree if order is None else order

    @abstractmethod
    def row(self, m: Moments, i: int, known: int) -> Row:
        """The coefficients of step i, with `known` clean predictions at hand (the newest included)."""

    def refuse(self, process: Process) -> str | None:
        if not isinstance(process, Gaussian):
            return f"{type(self).__name__} moves numbers under Gaussian noise, and {type(process).__name__} has none"
        return None

    @torch.no_grad()
    def table(self, process: Gaussian, times: Tensor) -> list[Row]:
        """Every step's coefficients, float64."""
        m = Moments(process.schedule, times)
        return [self.row(m, i, min(i + 1, self.degree)) for i in range(len(times) - 1)]

    def init(self, problem: Problem) -> dict:
        process = problem.process
        assert isinstance(process, Gaussian)
        start = self.start(Moments(process.schedule, problem.times)) if self.order > 2 and problem.steps > 1 else None
        return {
            "table": [row.on(problem.device) for row in self.table(process, problem.times)],
            "start": None if start is None else start.on(problem.device),
            "reader": Reader(process, problem.times, problem.device),
            "past": [],
        }

    def start(self, m: Moments) -> Row | None:
        """The first step again, from values at both its ends (the later one first)."""
        return None

    def stage_times(self, problem, memory, i):
        """A method of order 3 starts with a step of order 2: a second call at its end, and a line through both."""
        again = i == 0 and memory["start"] is not None
        return [problem.clock[i], problem.clock[i + 1]] if again else [problem.clock[i]]

    def stage(self, problem, memory, prediction, x, i, k, noise):
        value = self.read(memory, prediction, x, i + k)
        if k == 1:
            return combined(memory["start"], memory["x"], [value, *memory["past"]])
        row = memory["table"][i]
        memory["x"], memory["past"] = x, [value, *memory["past"]][: self.degree]
        out = combined(row, x, memory["past"])
        if row.noise is not None:
            z = noise.normal(tuple(x.shape[1:])).to(x)
            covariance = problem.process.covariance
            out = plus(out, row.noise, z if covariance is None else covariance.colour(z))
        return out

    def read(self, memory: dict, prediction: Prediction, x: Tensor, i: int) -> Tensor:
        """What the table's weights are of: the clean prediction."""
        return memory["reader"].clean(prediction, x, i)


def combined(row: Row, x: Tensor, past: list[Tensor]) -> Tensor:
    out = scaled(row.keep, x)
    for weight, value in zip(row.weights, past, strict=False):
        out = plus(out, weight, value)
    return out


def scaled(coefficient: Coefficient, x: Tensor) -> Tensor:
    return x * (coefficient.to(x.dtype) if isinstance(coefficient, Tensor) else coefficient)


def plus(x: Tensor, coefficient: Coefficient, y: Tensor) -> Tensor:
    if isinstance(coefficient, Tensor):
        return torch.addcmul(x, y, coefficient.to(x.dtype))
    return torch.add(x, y, alpha=coefficient)


class Reader:
    """Clean predictions at the times of a list, by coefficients computed once per kind."""

    def __init__(self, process: Gaussian, times: Tensor, device: torch.device):
        self.process, self.times, self.device = process, times, device
        self.known: dict[type, list[tuple[Coefficient, Coefficient] | None]] = {}

    def clean(self, prediction: Prediction, x: Tensor, i: int) -> Tensor:
        """D from the prediction at times[i]: two multiply-adds."""
        if isinstance(prediction, Clean):
            return prediction.value
        prediction = prediction.by_leaf()  # an energy says its score
        assert isinstance(prediction, ContinuousPrediction)
        kind = type(prediction)
        if kind is Mean:
            return prediction.to(Clean).value  # its coefficients depend on its own pair (s, t)
        if kind not in self.known:
            self.known[kind] = self._coefficients(kind)
        coefficients = self.known[kind][i]
        if coefficients is None:
            raise ValueError(
                f"a {kind.__name__} prediction says nothing of x_0 at t = {self.times[i].item():g}, where alpha = 0: start "
                f"the grid a little later, such as start=0.999, or predict Clean, Velocity or Flow"
            )
        on_x, on_value = coefficients
        return plus(scaled(on_value, kind.to_linear(self.process, prediction.value)), on_x, x)

    @torch.no_grad()
    def _coefficients(self, kind: type[ContinuousPrediction]) -> list[tuple[Coefficient, Coefficient] | None]:
        """x_0 = (b x_t - sigma value)/(alpha b - sigma a) for a kind's target a x_0 + b eps; None where that is 0/0."""
        m = Moments(self.process.schedule, self.times)
        a, b = kind.target_coefficients(m.schedule, m.times)
        determinant = m.alpha * b - m.sigma * a
        out: list[tuple[Coefficient, Coefficient] | None] = []
        for on_x, on_value in zip(b / determinant, -m.sigma / determinant, strict=True):
            says = bool((on_value.abs() < 1e100).all() and on_x.isfinite().all())
            out.append((settled(on_x, self.device), settled(on_value, self.device)) if says else None)
        return out


class DDIM(Linear):
    """eta = 0 is deterministic, the probability flow's exponential Euler; eta = 1 is the ancestral kernel."""

    def __init__(self, eta: float = 0.0):
        super().__init__(1)
        if not 0 <= eta <= 1:
            raise ValueError(f"eta = {eta:g}: choose 0 (deterministic) to 1 (ancestral)")
        self.eta = eta

    def row(self, m, i, known):
        return ddim_row(m, i, self.eta)


class EulerMaruyama(Linear):
    """Plain Euler steps of the reverse SDE with stochasticity eta; eta = 0 is Euler on the probability flow."""

    def __init__(self, eta: float = 1.0):
        super().__init__(1)
        if not eta >= 0:
            raise ValueError(f"eta = {eta:g} must not be negative")
        self.eta = eta

    def row(self, m, i, known):
        t, step = m.times[i], m.times[i] - m.times[i + 1]
        alpha, sigma = m.alpha[i], m.sigma[i]
        if bool((alpha <= 0).any()):
            return ddim_row(m, i, min(self.eta, 1.0))  # f and g^2 are infinite there
        f, g2 = m.schedule.drift(t), m.schedule.diffusion(t)
        pull = 0.5 * (1 + self.eta**2) * g2 * step / sigma.square()
        noise = self.eta * (g2 * step).sqrt() if self.eta else None
        return Row(1 - step * f - pull, (pull * alpha,), noise)
