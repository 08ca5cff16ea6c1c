"""Methods of higher order: a step uses what was predicted before.

A step from t_i to t_{i+1} goes from the state at t_i, with the predictions at t_i, t_{i-1}, ...  Some go from an earlier
one:

    single steps    come in blocks of `order`, each from its block's first state with predictions of that block alone
    order 4         needs a better start than two predictions give (see below)

What makes the order.  A step that uses k predictions is wrong by O(h^(k+1)), and so is the whole run if all steps are, by
O(h^k).  A few steps may be worse by one order: their errors do not add up.  The first has one prediction only and would be
wrong by O(h^2), which leaves order 2.  So with more predictions it is made again once the prediction at its end is known,
by a second call there: then its error is O(h^3), enough for order 3.  For order 4 the first two steps are one: the second
goes from x_0 too and, once the prediction at its end is known, is made again from x_0 through all three, with an error of
O(h^4).

`start_again=False` leaves out the second call, and is then of order 2 as printed: from the prior of images, where the first
prediction hardly changes, little is lost.  `lower_final=True` uses no more predictions than there are steps left, and is of
order 2.  It tames polynomials in very few steps, and unless told is done in fewer than 15 that end at a finite lambda; to
sigma = 0 the last step is one of DDIM anyway, and lowering those before it does more harm than good.

Rows at steps of their own (`step_rows`) may stay where they are while something else in their state jumps.  Then the
prediction jumps too, from D to D', and values read before belong to another function.  They are moved by D' - D: the new
function is known at one point, and taken to have had the slope of the old one.  What that is wrong by is O(h) in the slope,
so O(h^2) in the one step that follows each jump; few such steps leave order 2.
"""

from abc import abstractmethod
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.samplers.coefficients import Change, Coefficients, Moments, OnBoth, combined, gaussian_of
from unnoise.samplers.combinations import StepSums
from unnoise.samplers.linear import Eta, LinearMethod, LinearTables
from unnoise.samplers.problem import Problem
from unnoise.samplers.state import Memory, State
from unnoise.shapes import Int
from unnoise.tree import choose

FIRST = torch.tensor([0])  # the first step, as a list of steps
FEW = 15  # steps in fewer than which the last ones use fewer predictions


@dataclass(frozen=True)
class Past(Memory):
    """What is remembered: where the last step began, the values read before, newest first, and where it led, by which states
    are known that were put in its place; of rows at steps of their own, which have stayed."""

    x: Tensor | None = None
    values: tuple[Tensor, ...] = ()
    led: Tensor | None = None
    stayed: Tensor | None = None

    def along(self, value: Tensor, count: int) -> tuple[Tensor, ...]:
        """The values before this one, of rows some of which have stayed and read anew; moved by what that has changed."""
        if self.stayed is None:
            return (value,) * count  # nothing was read before, and no first step asks for it
        newest, *older = self.values
        stayed = self.stayed.reshape(-1, *[1] * (value.ndim - 1))
        moved = [torch.where(stayed, old + (value - newest), new) for new, old in zip(self.values, older, strict=False)]
        return tuple(moved[:count])


@dataclass(frozen=True)
class MultistepTables(LinearTables):
    """Beside each step's coefficients: how states are made again, and which steps begin where the one before began."""

    start: Coefficients | None = None  # the end of the first step again, from values at both its ends
    again: list[Coefficients | None] = field(default_factory=list)  # the start of each step again, from where the last began
    held: list[bool] = field(default_factory=list)


def reach(finite: list[bool], most: int) -> list[int]:
    """How many predictions each step may use, back to where lambda is infinite; 0 where it is so at one of its ends."""
    out, behind = [], 0
    for here, ahead in pairwise(finite):
        behind = behind + 1 if here else 0
        out.append(min(behind, most) if ahead else 0)
    return out


class Multistep(LinearMethod):
    """Base of methods that use the last `degree` predictions (or what is read from them)."""

    by_rows = True
    twice_above = 2  # of which order on the first step is made again by a second call

    def __init__(
        self,
        degree: int,
        eta: Eta = 0.0,
        clean: Change | None = None,
        *,
        single: bool = False,
        lower_final: bool | None = None,
        start_again: bool = True,
    ):
        some = callable(eta) or eta > 0
        super().__init__(degree, eta, clean)
        self.degree, self.single, self.lower_final = degree, single, lower_final
        self.twice = start_again and not (some or single) and degree > self.twice_above
        starts = degree if self.twice or single else min(degree, self.twice_above)
        self.order = min(starts, 2) if some or lower_final else starts
        self.goes_back = single or self.order > 3
        self.by_rows = self.by_rows and not (self.twice or single)
        if single and some:
            raise ValueError(f"eta = {eta}: a single step takes the states inside it back, and has no noise for them")

    @abstractmethod
    def through(
        self, m: Moments, i: Int[Tensor, "steps"], points: list[Tensor], since: Tensor | None = None
    ) -> Coefficients:
        """The steps to times i + 1, from those at `since` (i), by the polynomial through the values at these times."""

    def finite(self, m: Moments) -> list[bool]:
        """At which times of the grid a polynomial may have points."""
        return m.finite

    def calls(self, steps: int, process: Process) -> int:
        return steps + self.twice

    def known(self, m):
        known = reach(self.finite(m), self.predictor_degree if not self.single else len(m.times))
        if self.single:
            known = [n and (n - 1) % self.degree + 1 for n in known]
        if self.lower_final or self.lower_final is None and len(known) < FEW and m.finite[-1]:
            known = [min(n, len(known) - i) for i, n in enumerate(known)]
        return known

    @property
    def predictor_degree(self) -> int:
        return self.degree

    def row(self, m, i, known):
        return self.through(m, i, [i - n for n in range(known)], i - known + 1 if self.single else None)

    def tables(self, problem: Problem) -> MultistepTables:
        own, process = super().tables(problem), gaussian_of(problem.process, type(self).__name__)
        m = Moments(process.schedule, problem.times)
        known, finite = self.known(m), self.finite(m)
        held = [self.single and n > 1 for n in known]
        table, again, start = own.table, self.remade(m, problem.device), None
        if self.twice and problem.steps > 1 and finite[0] and finite[1]:
            start = self.through(m, FIRST, [FIRST + 1, FIRST]).split(problem.device)[0]
            if self.order > 3 and problem.steps > 2 and finite[2]:
                table[1] = self.through(m, FIRST + 1, [FIRST + 1, FIRST], FIRST).split(problem.device)[0]
                again[1:3] = None, self.through(m, FIRST + 1, [FIRST + 2, FIRST + 1, FIRST], FIRST).split(problem.device)[0]
                held[1] = True
        return MultistepTables(table, own.reader, own.covariance, start, again, held)

    def remade(self, m: Moments, device: torch.device) -> list[Coefficients | None]:
        """How the start of each step is made again, once the prediction there is known."""
        return [None] * (len(m.times) - 1)

    def memory(self, problem: Problem, tables: Any, x: Tensor) -> Past | None:
        """With one prediction per step nothing is kept."""
        return None if self.degree == 1 else Past()

    def stage_times(self, problem, tables):
        stages = super().stage_times(problem, tables)
        return stages if tables.start is None else [(*stages[0], problem.times[1].item()), *stages[1:]]

    def stage(self, problem, tables, prediction, state: State, i, k, noise):
        if self.degree == 1:
            return super().stage(problem, tables, prediction, state, i, k, noise)
        x, memory = state.x, state.memory
        if k == 1:
            value = self.read(tables, prediction, x, i + 1)
            out = combined(tables.start, memory.x, (value, *memory.values))
            return state.to(out, replace(memory, led=out))
        row, again = tables.table[i], tables.again[i]
        value, on = self.reading(tables, prediction, x, i)
        if again is not None and memory.led is not None and x is not memory.led:
            value, on = self.read(tables, prediction, x, i), None
            x, again = as_left(x, memory.led, combined(again, memory.x, (value, *memory.values))), None
        sums = StepSums()
        here, told = sums.given(x), sums.given(value)
        newest = told if on is None else sums.of((on[1], told), (on[0], here))
        before = max(len(row.weights), 0 if again is None else len(again.weights)) - 1
        past = (newest, *map(sums.given, memory.values[:before]))
        begun = sums.given(self.taken_back(x, memory)) if tables.held[i] else here
        if again is not None:
            begun = sums.of((again.keep, sums.given(memory.x)), *zip(again.weights, past, strict=False))
        end = sums.of((row.keep, begun), *zip(row.weights, past, strict=False))
        made = sums.made(row.noise, noise, tables.covariance)
        return state.to(made[end], Past(made[begun], (made[newest], *memory.values)[: self.degree], made[end]))

    def step_rows(self, problem, tables, prediction, state: State, steps, stays, noise):
        if self.degree == 1:
            return super().step_rows(problem, tables, prediction, state, steps, stays, noise)
        x, row = state.x, tables.table[steps]
        value = self.read(tables, prediction, x, steps)
        past = (value, *state.memory.along(value, self.degree - 1))
        out = tables.noised(combined(row, x, past), row, noise)
        return state.to(choose(stays, x, out), Past(values=past, stayed=stays))

    def taken_back(self, x: Tensor, memory: Past) -> Tensor:
        """Where the step before began, whose end is given up."""
        if x is not memory.led and not torch.equal(x, cast(Tensor, memory.led)):
            raise ValueError(
                f"{type(self).__name__} of order {self.degree} takes the states inside a step back, and a callback has put "
                f"others there: change states by a method that goes on from each, such as DPMSolverPP(2)"
            )
        return cast(Tensor, memory.x)

    def read(self, tables: Any, prediction: Prediction, x: Tensor, i: int | Tensor) -> Tensor:
        """What the table's weights are of: the clean prediction."""
        return tables.reader.clean(prediction, x, i)

    def reading(self, tables: Any, prediction: Prediction, x: Tensor, i: int) -> tuple[Tensor, OnBoth | None]:
        """The same as on_x x + on_value value, to be made with the rest of the step; None: it is the value."""
        return tables.reader.linear(prediction, x, i)


def as_left(x: Tensor, led: Tensor | None, corrected: Tensor) -> Tensor:
    """Corrected, but for the rows that are no longer where the predictor led."""
    if x is led or led is None:
        return corrected
    changed = (x != led).reshape(len(x), -1).any(1)
    return torch.where(changed.reshape(-1, *[1] * (x.ndim - 1)), x, corrected)
