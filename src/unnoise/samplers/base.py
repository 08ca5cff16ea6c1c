"""Samplers: numerical methods for the reverse process.

A sampler moves a batch of states from one time of a grid to the next, asking the denoiser for predictions.  It states

    order        of its error in the step size: of the trajectory where it is deterministic, of the law where it draws
                 (None: it has none, because it is exact or a heuristic)
    exact        whether it has the reverse process's own law at any number of steps
    stages       network calls per step
    draws        whether it draws noise on its way

A one-step method answers `stage`: from the prediction made at the k-th stage time it returns the next state.  Its stage
times are known before the loop and moved to the device in one piece.  That is all that products need, whose leaves step
together on one network call, each by a method of its own.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser, base_process, rows_of
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.schedules import Schedule
from unnoise.shapes import Float, Tree
from unnoise.tree import batch_size, map_leaves

After = Callable[[int, Tree], None]


@dataclass
class Info:
    """What a run did."""

    calls: int = 0  # of the network
    rows: int = 0  # rows given to it, over all calls
    jumps: Tensor | None = None  # coordinate changes per sample, where the method counts them
    clipped: Tensor | None = None  # share of rates that were negative and set to 0, where the method may do so
    end_errors: tuple[float, float] | None = None  # in total variation at most, of an event method's first and last piece
    times: Tensor | None = None  # the grid
    trajectory: list[Tree] | None = None  # states at the grid's times, when asked for


def on_host(schedule: Schedule) -> Schedule:
    """The schedule on the CPU, where tables are made: itself, or a copy where its parameters are elsewhere."""
    held = [*schedule.parameters(), *schedule.buffers()]
    return schedule if all(value.device.type == "cpu" for value in held) else deepcopy(schedule).cpu()


class Problem:
    """One run: the denoiser, its condition, the grid, the noise, and the record."""

    def __init__(
        self,
        denoiser: AnyDenoiser,
        times: Float[Tensor, "times"],
        noise: NoiseSource,
        condition: dict[str, Any],
        process: Process | None = None,
        info: Info | None = None,
    ):
        self.denoiser, self.process = denoiser, process or base_process(denoiser.process)
        self.times, self.noise, self.condition = times, noise, condition
        self.device = noise.rows.device
        self.clock = times.to(self.device)  # the same times where the states are
        self.info = info or Info(times=times)

    @property
    def steps(self) -> int:
        return len(self.times) - 1

    def part(self, name: str) -> "Problem":
        """The same run as one leaf of a product sees it."""
        leaf = self.process.leaves[name]  # type: ignore[union-attr,index]
        return Problem(self.denoiser, self.times, self.noise.at(name), self.condition, leaf, self.info)  # type: ignore

    def moments(self, times: Tree) -> list[Tree]:
        """Times of the loop, one entry per row, moved to the device at once: of a list of numbers, or such a list for each
        leaf."""
        if isinstance(times, dict):
            leaves = {name: self.moments(values) for name, values in times.items()}
            count = len(next(iter(leaves.values())))
            return [{name: values[i] for name, values in leaves.items()} for i in range(count)]
        exact = torch.as_tensor(times, dtype=torch.float64).to(self.device)
        return list(exact.unsqueeze(1).expand(-1, len(self.noise.rows)).unbind(0))

    def predict(self, x: Tree, t: Tree) -> Prediction:
        """The denoiser at time t: a number on the states' device, or a moment of the loop."""
        self.info.calls += 1
        self.info.rows += batch_size(x)
        return self.denoiser(x, t, **self.condition)

    def predict_rows(self, x: Tree, t: Tensor, rows: Tensor | None) -> Prediction:
        """The denoiser on some rows of the batch, with their share of the condition; None: on all."""
        if rows is None:
            return self.predict(x, t)
        condition = rows_of(self.condition, rows, batch_size(x))
        x = map_leaves(lambda leaf: leaf[rows], x)
        t = t[rows] if t.ndim else t
        self.info.calls += 1
        self.info.rows += len(rows)
        return self.denoiser(x, t, **condition)


class Sampler(ABC):
    """One numerical method."""

    order: int | None = None
    exact: bool = False
    stages: int = 1
    draws: bool = True

    def refuse(self, process: Process) -> str | None:
        """Why this method does not hold for a process; None where it does."""
        return None

    def calls(self, steps: int, process: Process) -> int | None:
        """Network calls of a run, at most; None where that is not known beforehand."""
        return self.stages * steps

    @abstractmethod
    def run(self, problem: Problem, x: Tree, after: After) -> Tree:
        """From the first time of the grid to the last; `after(i, x)` is called when times[i + 1] is reached."""


class Stepping(Sampler):
    """A method that goes from time to time."""

    def init(self, problem: Problem) -> dict:
        """What is kept from step to step."""
        return {}

    def prepared(self, problem: Problem) -> dict:
        """What `step` is given."""
        return self.init(problem)

    @abstractmethod
    def step(self, problem: Problem, memory: dict, x: Tree, i: int) -> Tree:
        """From times[i] to times[i + 1]."""

    def run(self, problem: Problem, x: Tree, after: After) -> Tree:
        memory = self.prepared(problem)
        for i in range(problem.steps):
            x = self.step(problem, memory, x, i)
            after(i, x)
        return x


class OneStep(Stepping):
    """A method with network calls at known stage times of each step."""

    def stage_times(self, problem: Problem, memory: dict) -> list[tuple[float, ...]]:
        """Where the network is asked in each step."""
        return [(t,) for t in problem.times[:-1].tolist()]

    def leaf_times(self, problem: Problem, times: list[float]) -> Tree:
        """The same times as the network is told them: a tree where a leaf stands at another."""
        return times

    def before(self, problem: Problem, memory: dict, x: Tree, i: int) -> Tree:
        """What is done to the state before the first call."""
        return x

    @abstractmethod
    def stage(
        self, problem: Problem, memory: dict, prediction: Prediction, x: Tree, i: int, k: int, noise: NoiseSource
    ) -> Tree:
        """The state after stage k; `noise` belongs to this step and stage."""

    def prepared(self, problem: Problem) -> dict:
        """`init`, with the moments of every stage."""
        memory = self.init(problem)
        stages = self.stage_times(problem, memory)
        moments = iter(problem.moments(self.leaf_times(problem, [t for step in stages for t in step])))
        memory["moments"] = [[next(moments) for _ in step] for step in stages]
        return memory

    def step(self, problem: Problem, memory: dict, x: Tree, i: int) -> Tree:
        x = self.before(problem, memory, x, i)
        for k, moment in enumerate(memory["moments"][i]):
            prediction = problem.predict(x, moment)
            x = self.stage(problem, memory, prediction, x, i, k, problem.noise.at("step", i, k))
        return x


class Ancestral(OneStep):
    """The model's own kernel p(x_s | x_t), drawn: for every process and prediction that has one (eq:reverse_p_theta_dt).

    On numbers the variance is the denoiser's (posterior, forward, learned, optimal).  On categories the kernel factorises
    over coordinates: exact for one coordinate, of order 1 for several.  On interpolating noise it is Tweedie tau-leaping.

    With `rounds` every step is taken so many times: in between, the forward process noises x_s again to x_t.  There and back
    leaves the law of x_s alone where it is right and brings it nearer where it is not, so what early steps got wrong is
    mended, at a network call for each round (predictor-correctors, churn and restarts do the same).  But where the network
    is wrong, many rounds lead to a law of its own making: count what matters before choosing more than 2.
    """

    order: int | None = 1

    def __init__(self, rounds: int = 1):
        if rounds < 1:
            raise ValueError(f"rounds = {rounds}: every step is taken at least once")
        self.rounds = self.stages = rounds

    def stage_times(self, problem, memory):
        return [(t,) * self.rounds for t in problem.times[:-1].tolist()]

    def stage(self, problem, memory, prediction, x, i, k, noise):
        t, s = problem.clock[i], problem.clock[i + 1]
        x = prediction.step(s).draw(noise)
        return x if k + 1 == self.rounds else problem.process.transition(x, s, t).draw(noise.at("again"))
