"""Samplers: numerical methods for the reverse process.

A sampler moves a batch of states from one time of a grid to the next, asking the denoiser for predictions.  It states

    order        of its error in the step size: of the trajectory where it is deterministic, of the law where it draws
                 (None: it has none, because it is exact or a heuristic)
    exact        whether it has the reverse process's own law at any number of steps
    stages       network calls per step
    draws        whether it draws noise on its way

A method that steps (`Stepping`) lays out what is the same for the whole run in `setup`, begins with `init` and goes on by
`step`, from state to state (`samplers.state`).  A one-step method answers `stage`: from the prediction made at the k-th
stage time it returns the next state.  Its stage times are known before the loop and moved to the device in one piece.  That
is all that products need, whose leaves step together on one network call, each by a method of its own.

Rows may also be at steps of their own (`samplers.one_by_one`).  A method that can be asked for that (`by_rows`) answers
`step_rows`, with a step number for each row; some rows stay where they are.

Methods that go from event to event answer `run` alone: they have no steps in which rows could be exchanged.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from torch import Tensor

from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.samplers.problem import Problem
from unnoise.samplers.state import Memory, State, Told
from unnoise.shapes import AnyState, Bool, Int, Tree
from unnoise.tree import choose

After = Callable[[int, State], State | None]


class Sampler(ABC):
    """One numerical method."""

    order: int | None = None
    exact: bool = False
    stages: int = 1
    draws: bool = True
    complete: bool = True  # whether its last step leaves every coordinate with a value, also where noise adds MASK
    differentiable: bool = True  # whether gradients pass through a run, as far as the states are numbers

    def refuse(self, process: Process) -> str | None:
        """Why this method does not hold for a process; None where it does."""
        return None

    def latest(self, process: Process) -> float:
        """The latest time from which it can start."""
        return 1.0

    def calls(self, steps: int, process: Process) -> int | None:
        """Calls of the denoiser in a run, at most; None where that is not known beforehand."""
        return self.stages * steps

    @abstractmethod
    def run(self, problem: Problem, x: AnyState, after: After) -> Tree:
        """From the first time of the grid to the last; `after(i, state)` is told when times[i + 1] is reached."""

    def told(self, x: Tree) -> Told:
        """What a method without steps tells of a time of the grid."""
        name = type(self).__name__
        return Told(
            x,
            why=f"{name} has no steps: its path does not go on from the states that it tells of, so rows cannot be "
            f"exchanged or edited; use a method that steps, such as Ancestral",
        )


class Stepping(Sampler):
    """A method that goes from time to time."""

    goes_back: bool = False  # whether a step may begin at an earlier state than the last, whatever was done to that

    def setup(self, problem: Problem) -> Any:
        """What is the same for the whole run and all rows, computed once: tables, times."""
        return None

    def init(self, problem: Problem, setup: Any, x: Tree) -> State:
        """The state before the first step."""
        return State(x)

    @abstractmethod
    def step(self, problem: Problem, setup: Any, state: State, i: int) -> State:
        """From times[i] to times[i + 1]."""

    def run(self, problem: Problem, x: Tree, after: After) -> Tree:
        setup = self.setup(problem)
        state = self.init(problem, setup, x)
        for i in range(problem.steps):
            state = self.step(problem, setup, state, i)
            problem.info.jumps = state.jumps
            new = after(i, state)
            state = state if new is None else new
        problem.info.jumps = state.jumps
        return state.x


@dataclass(frozen=True)
class Stages:
    """The setup of a one-step method: its own tables, and the times of each step's network calls."""

    tables: Any
    moments: list[list[Tree]]


class OneStep(Stepping):
    """A method with network calls at known stage times of each step."""

    by_rows: bool = False  # whether rows may be at steps of their own, `step_rows`: of methods with one stage

    def __init_subclass__(cls, **options: Any) -> None:
        """A class with a stage of its own says of itself whether rows may be at steps of their own."""
        super().__init_subclass__(**options)
        if "stage" in vars(cls) and "by_rows" not in vars(cls):
            cls.by_rows = False

    def tables(self, problem: Problem) -> Any:
        """What the method computes once: its coefficients."""
        return None

    def memory(self, problem: Problem, tables: Any, x: AnyState) -> Memory | None:
        """What it remembers of the rows before the first step."""
        return None

    def stage_times(self, problem: Problem, tables: Any) -> list[tuple[float, ...]]:
        """Where the network is asked in each step: where it starts, unless a method with more stages says."""
        if self.stages != 1:
            raise TypeError(
                f"{type(self).__name__} has stages = {self.stages}, and does not say where: write stage_times(problem, "
                f"tables), a list with the times of each step's {self.stages} calls, as in [(t, (t + s) / 2), ...]"
            )
        return [(t,) for t in problem.times[:-1].tolist()]

    def leaf_times(self, problem: Problem, times: list[float]) -> Tree[list[float]]:
        """The same times as the network is told them: a tree where a leaf stands at another."""
        return times

    def before(self, problem: Problem, tables: Any, state: State, i: int) -> State:
        """What is done to the state before the first call."""
        return state

    @abstractmethod
    def stage(
        self, problem: Problem, tables: Any, prediction: Prediction, state: State, i: int, k: int, noise: NoiseSource
    ) -> State:
        """The state after stage k; `noise` belongs to this step and stage."""

    def no_law(self) -> str | None:
        """Why no density of its steps is known; None where `step_law` says it."""
        return f"{type(self).__name__} does not say the density of its steps, without which they cannot be weighed"

    def step_law(self, problem: Problem, tables: Any, prediction: Prediction, i: int) -> Law:
        """The law of the state after step i, which `stage` draws: of a method with one stage that remembers nothing."""
        raise TypeError(self.no_law())

    def row_tables(self, problem: Problem, tables: Any, kind: Any) -> Any:
        """The tables as `step_rows` wants them; `kind` is what the network predicts, None where that is not known."""
        return tables

    def step_rows(
        self,
        problem: Problem,
        tables: Any,
        prediction: Prediction,
        state: State,
        steps: Int[Tensor, "rows"],
        stays: Bool[Tensor, "rows"],
        noise: NoiseSource,
    ) -> State:
        """The state after one call, in which each row takes the step of its own number, or stays."""
        moved = self.stage(problem, tables, prediction, state, steps, 0, noise)  # type: ignore[arg-type]
        return replace(moved, x=choose(stays, state.x, moved.x))

    def setup(self, problem: Problem) -> Stages:
        tables = self.tables(problem)
        stages = self.stage_times(problem, tables)
        moments = iter(problem.moments(self.leaf_times(problem, [t for step in stages for t in step])))
        return Stages(tables, [[next(moments) for _ in step] for step in stages])

    def init(self, problem: Problem, setup: Stages, x: Tree) -> State:
        return State(x, self.memory(problem, setup.tables, x))

    def step(self, problem: Problem, setup: Stages, state: State, i: int) -> State:
        state = self.before(problem, setup.tables, state, i)
        for k, moment in enumerate(setup.moments[i]):
            prediction = problem.predict(state.x, moment)
            state = self.stage(problem, setup.tables, prediction, state, i, k, problem.noise.at("step", i, k))
        return state
