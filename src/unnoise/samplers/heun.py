"""Heun's method in the variables of EDM: y = x/alpha as a function of r = sigma/alpha, where dy/dr = (y - D)/r.

    churn       r' = r (1 + gamma):  the forward process from r to r',   gamma = churn/steps, at most sqrt(2) - 1
    first       d_1 = (y - D(y, r'))/r',       y~ = y + (r_s - r') d_1            (this alone is DDIM)
    second      d_2 = (y~ - D(y~, r_s))/r_s,   y_s = y + (r_s - r')(d_1 + d_2)/2

The last step, where r_s = 0, and a first one from alpha = 0 are the first stage alone.  Churn lifts a state to t = 1 at
most, where the process ends: for churn in the first step begin below, such as at start=0.98.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.samplers.base import OneStep
from unnoise.samplers.coefficients import Change, Coefficients, Moments, Reader, combined, gaussian_of, no_gaussian
from unnoise.samplers.linear import ddim_row
from unnoise.samplers.problem import Problem, on_host
from unnoise.samplers.state import Memory
from unnoise.schedules import Schedule


@dataclass(frozen=True)
class HeunTables:
    raised: list[bool]  # whether churn lifts the step's start
    starts: list[float]
    clock: Tensor  # the starts, where the states are
    euler: list[Coefficients]
    heun: list[Coefficients]
    twice: list[bool]  # whether a second stage follows
    first: Reader
    second: Reader


@dataclass(frozen=True)
class FirstStage(Memory):
    """Where the step began, and what was clean there: kept for its second stage."""

    x: Tensor
    clean: Tensor


class Heun(OneStep):
    """`Heun()` is deterministic; `Heun(churn=40)` adds noise and takes it back, between the sigma/alpha given.

    `noise` multiplies what churn adds: a little above 1 makes up for detail that networks lose, and the law is another.
    `clean` is what is done to clean predictions (`samplers.clean`).
    """

    order = 2
    stages = 2

    def __init__(
        self,
        churn: float = 0.0,
        low: float = 0.0,
        high: float = float("inf"),
        noise: float = 1.0,
        clean: Change | None = None,
    ):
        if not churn >= 0:
            raise ValueError(f"churn = {churn:g} must not be negative")
        if not 0 <= low <= high:
            raise ValueError(f"low = {low:g}, high = {high:g}: churn acts where low <= sigma/alpha <= high")
        if not noise >= 0:
            raise ValueError(f"noise = {noise:g} must not be negative (1 leaves the law alone)")
        self.churn, self.low, self.high, self.draws = churn, low, high, churn > 0
        self.noise, self.clean = noise, clean

    def refuse(self, process):
        why = no_gaussian(type(self).__name__, process)
        if why is None and process.schedule.shape and self.churn:
            return "churn raises one noise level for all coordinates: use Heun() with schedules per coordinate"
        return why

    @torch.no_grad()
    def tables(self, problem: Problem) -> HeunTables:
        process = gaussian_of(problem.process, type(self).__name__)
        starts = self._churned(on_host(process.schedule), problem.times)
        m = Moments(process.schedule, torch.stack([starts, problem.times[1:]], 1).flatten())  # of each step, one by one
        i = 2 * torch.arange(problem.steps)
        return HeunTables(
            raised=(starts > problem.times[:-1]).tolist(),
            starts=starts.tolist(),
            clock=starts.to(problem.device),
            euler=ddim_row(m, i).split(problem.device),
            heun=self._second(m, i).split(problem.device),
            twice=(self._positive(m.alpha[i]) & self._positive(m.alpha[i + 1]) & self._positive(m.sigma[i + 1])).tolist(),
            first=Reader(process, starts, problem.device, self.clean),
            second=Reader(process, problem.times[1:], problem.device, self.clean),
        )

    @staticmethod
    def _positive(values: Tensor) -> Tensor:
        return (values.reshape(len(values), -1) > 0).all(1)

    def _second(self, m: Moments, i: Tensor) -> Coefficients:
        """alpha_s times y (1 + half/r) - half/r D_1 + half/r_s (y~ - D_2), on (x~, x, D_1, D_2)."""
        r, r_s = m.sigma[i] / m.alpha[i], m.sigma[i + 1] / m.alpha[i + 1]
        half = 0.5 * (r_s - r)
        start = m.alpha[i + 1] / m.alpha[i] * (1 + half / r)
        return Coefficients(half / r_s, (start, -m.alpha[i + 1] * half / r, -m.alpha[i + 1] * half / r_s))

    def _churned(self, schedule: Schedule, times: Tensor) -> Tensor:
        starts = times[:-1].clone()
        if not self.churn:
            return starts
        gamma = min(self.churn / (len(times) - 1), 2**0.5 - 1)
        log_snr = schedule.log_snr(starts)
        ratio = (-log_snr / 2).exp()
        inside = (ratio >= self.low) & (ratio <= self.high) & (starts < 1)
        raised = schedule.time_of_log_snr(log_snr - 2 * torch.log1p(torch.tensor(gamma, dtype=torch.float64)))
        return torch.where(inside, torch.maximum(raised.clamp_max(1.0), starts), starts)

    def before(self, problem, tables, state, i):
        """Churn: up from times[i] to the step's real start."""
        if not tables.raised[i]:
            return state
        lifted = problem.process.transition(state.x, problem.clock[i], tables.clock[i])
        x = lifted.draw(problem.noise.at("churn", i))
        return state.to(x if self.noise == 1 else torch.lerp(lifted.mean, x, self.noise))

    def stage_times(self, problem, tables):
        ends = problem.times[1:].tolist()
        return [
            (start, end) if twice else (start,) for start, end, twice in zip(tables.starts, ends, tables.twice, strict=True)
        ]

    def stage(self, problem, tables, prediction, state, i, k, noise):
        x, first = state.x, state.memory
        if k == 0:
            clean = tables.first.clean(prediction, x, i)
            return state.to(combined(tables.euler[i], x, (clean,)), FirstStage(x, clean) if tables.twice[i] else None)
        second = tables.second.clean(prediction, x, i)
        return state.to(combined(tables.heun[i], x, (first.x, first.clean, second)))
