"""Products with masked leaves: masked coordinates one by one, the other leaves by methods of their own.

`OneByOne(age=DPMSolverPP(2), height=DDIM())` draws mixed tables.  Each masked coordinate of a row is revealed in a network
call of its own, in which nothing else of that row moves; all other calls move the other leaves, as `Leaves` does.  Where a
row stands in which call is `samplers.row_grids`: B steps and D masked coordinates are B + D calls, whatever the batch.

What is right and what is not.  Given the others a coordinate is drawn from its own law, so with the exact denoiser reveals
add no error, and no two coordinates are drawn as if independent.  The other leaves take B steps by their methods, each with
what is revealed by then.  A reveal changes the predictions that follow: a method with a memory takes that into account
(`samplers.multistep`).  So the order is that of the methods, and 2 at most.

Fewer calls than that are had by sharing: in B steps at most B^(3/2) calls reveal, and coordinates that share one are drawn
as if independent.  (Errors of the steps fall like B^-2 and those of sharing like 1/R in R calls: for a given sum B + R they
are balanced by an R that grows faster than B.)

Rows stand at times of their own, so after step i of the common times, when a callback is called with times[i + 1] and a
trajectory keeps the state, a row is near that time, not at it: as near as can be said before its reveals are drawn.  Where
it stands in each call is in the state's memory, `grid.times`.  At the last time all rows are at that time.

What a callback masks again is drawn in the next call, all of a row at once.
"""

from dataclasses import dataclass, replace
from math import ceil
from typing import Any, cast

import torch
from torch import Tensor

from unnoise import tree
from unnoise.predictions import Energy, Prediction, ProductPrediction
from unnoise.predictions.kinds import kind_at
from unnoise.processes import Process
from unnoise.samplers.base import OneStep, Sampler, Stepping
from unnoise.samplers.masked_leaves import MaskedLeaf, expected_share, masked_coordinates, masked_leaves, other_leaves
from unnoise.samplers.problem import Problem
from unnoise.samplers.products import Frozen, LeafMemories, check_methods
from unnoise.samplers.row_grids import RowGrid, call_ends, row_grid
from unnoise.samplers.state import State
from unnoise.samplers.tokens import Tokens
from unnoise.shapes import AnyState, Bool, Float, Tree


@dataclass(frozen=True)
class RowSetup:
    """What is the same for all rows."""

    tables: dict[str, Any]  # of the leaves that are not masked
    masked: list[MaskedLeaf]
    clocks: dict[str, Tensor]  # of leaves that are held
    ends: list[int]  # after how many calls each step ends
    reveals: int  # calls that reveal
    moves: bool  # whether any leaf moves that is not masked

    @property
    def shared(self) -> int:
        """Coordinates of one row in one call, at most."""
        return ceil(sum(leaf.width for leaf in self.masked) / self.reveals)

    def parts(self, x: AnyState) -> tuple[Tensor, ...]:
        return tuple(leaf.of(x) for leaf in self.masked)


@dataclass(frozen=True)
class RowMemories(LeafMemories):
    """Beside what the methods remember: the rows' grids, the numbers by which values are drawn, and the masked leaves as
    they were left."""

    grid: RowGrid
    u: Float[Tensor, "rows coordinates"]
    led: tuple[Tensor, ...]


class OneByOne(Stepping):
    """One method for each leaf that is not masked, by name; a first argument is the method of those without one.

    `tokens`, the second, says how values are drawn from their logits.
    """

    def __init__(self, default: Sampler | None = None, tokens: Tokens | None = None, /, **methods: Any):
        self.default, self.methods = check_methods(default, methods)
        self.tokens, self.gaps = tokens or Tokens(), cast(int | None, None)
        moving = [m for m in (*self.methods.values(), self.default) if m is not None and not isinstance(m, Frozen)]
        orders = [method.order for method in moving]
        stated = bool(moving) and None not in orders and self.tokens.plain
        self.order = min(2, *(order or 0 for order in orders)) if stated else None
        self.complete = all(method.complete for method in moving)

    def method(self, name: str) -> OneStep:
        """Of a leaf that is not masked."""
        method = self.methods.get(name, self.default)
        if method is None:
            raise KeyError(
                f"OneByOne has no method for {name!r}: name one, or pass OneByOne(Ancestral(), ...) for the others"
            )
        return method

    def holding(self, names: list[str]) -> "OneByOne":
        """The same with these leaves held as they are."""
        held = OneByOne(self.default, self.tokens, **self.methods | {name: Frozen() for name in names})
        held.gaps = self.gaps
        return held

    def with_gaps(self, gaps: int) -> "OneByOne":
        """The same for rows with at most so many masked coordinates: calls in which none would reveal are left out."""
        other = self.holding([])
        other.gaps = gaps
        return other

    def others(self, process: Process) -> dict[str, OneStep]:
        """The methods of the leaves that are not masked."""
        return {name: self.method(name) for name in other_leaves(process)}

    def moves(self, process: Process) -> bool:
        return any(not isinstance(method, Frozen) for method in self.others(process).values())

    def reveals(self, steps: int, process: Process) -> int:
        """How many calls reveal, in so many steps."""
        width = masked_coordinates(process)
        width = width if self.gaps is None else max(1, min(width, self.gaps))
        return min(width, int(steps**1.5))

    def calls(self, steps, process):
        return self.reveals(steps, process) + (steps if self.moves(process) else 0)

    def latest(self, process):
        return min([1.0, *(method.latest(process.leaves[name]) for name, method in self.others(process).items())])

    def refuse(self, process: Process) -> str | None:
        if not process.leaves or not masked_coordinates(process):
            return f"OneByOne reveals the masked leaves of a product, and {type(process).__name__} has none: use Leaves"
        names = list(other_leaves(process))
        unknown = [name for name in self.methods if name not in names]
        if unknown:
            return f"OneByOne names {unknown}; the leaves that are not masked are {names}"
        missing = [name for name in names if name not in self.methods]
        if missing and self.default is None:
            return (
                f"OneByOne has no method for {missing}: name one for each, or pass OneByOne(Ancestral(), ...) for the others"
            )
        reasons = {name: _misfit(method, process.leaves[name]) for name, method in self.others(process).items()}
        return next((f"leaf '{name}': {why}" for name, why in reasons.items() if why), None)

    # --- a run

    def setup(self, problem: Problem) -> RowSetup:
        process, kinds = problem.process, problem.denoiser.kinds
        tables, clocks = {}, {}
        for name, method in self.others(process).items():
            part = problem.part(name)
            kind = None if kinds is None or kinds is Energy else kind_at(kinds, name)
            tables[name] = method.row_tables(part, method.tables(part), kind)
            if isinstance(method, Frozen):
                clocks[name] = torch.full((), method.at, dtype=torch.float64, device=problem.device)
        masked, moves = masked_leaves(problem), self.moves(process)
        reveals = self.reveals(problem.steps, process)
        ends = call_ends(expected_share(masked, problem.times), reveals, moves)
        return RowSetup(tables, masked, clocks, ends, reveals, moves)

    def init(self, problem: Problem, setup: RowSetup, x: AnyState) -> State:
        tau = torch.cat([leaf.times(problem, x) for leaf in setup.masked], 1)
        u = torch.cat([leaf.uniform(problem, "token") for leaf in setup.masked], 1)
        own = {
            name: method.memory(problem.part(name), setup.tables[name], x[name])
            for name, method in self.others(problem.process).items()
        }
        grid = row_grid(tau, problem.clock, setup.reveals, setup.moves)
        return State(x, RowMemories(own, grid, u, setup.parts(x)))

    def step(self, problem: Problem, setup: RowSetup, state: State, i: int) -> State:
        for call in range(setup.ends[i - 1] if i else 0, setup.ends[i]):
            state = self.call(problem, setup, state, call)
        return state

    def call(self, problem: Problem, setup: RowSetup, state: State, call: int) -> State:
        """One call of the network: some rows reveal, the others move on."""
        x, memory = cast(dict[str, Tree], state.x), cast(RowMemories, state.memory)
        again = self.masked_again(problem, setup, state, call)
        prediction = problem.predict(x, self.clock(problem, setup, memory.grid.times[:, call])).by_leaf()
        if not isinstance(prediction, ProductPrediction):
            raise TypeError(f"a {type(prediction).__name__} prediction has no leaves: predict a dict with one for each leaf")
        new, own = self.moved(problem, setup, prediction, state, call)
        shown = memory.grid.shown(call, setup.shared, setup.reveals)
        for leaf in setup.masked:
            value = leaf.revealed(x, prediction, shown, memory.u, self.tokens)
            if again is not None:
                late = again[:, leaf.first : leaf.first + leaf.width]
                value = leaf.drawn_at(value, prediction, late, problem.noise.at("again", call), self.tokens)
            new = tree.replace(new, leaf.path, value)
        return State(new, replace(memory, own=own, led=setup.parts(new)), state.jumps)

    def clock(self, problem: Problem, setup: RowSetup, times: Float[Tensor, "rows"]) -> Tree:
        """What the network is told: a tree where some leaf is held."""
        if not setup.clocks:
            return times
        return {name: setup.clocks.get(name, times) for name in problem.process.leaves}

    def moved(
        self, problem: Problem, setup: RowSetup, prediction: ProductPrediction, state: State, call: int
    ) -> tuple[Tree, dict[str, Any]]:
        """The other leaves, in the rows that move, and what their methods remember."""
        x, own = dict(state.x), dict(state.memory.own)
        if not setup.moves:
            return x, own
        steps, stays = state.memory.grid.place(call, problem.steps)
        noise, said = problem.noise.at("step", call, 0), cast(dict[str, Prediction], prediction.leaves)
        for name, method in self.others(problem.process).items():
            if not isinstance(method, Frozen):
                part, leaf = problem.part(name), State(x[name], own[name])
                leaf = method.step_rows(part, setup.tables[name], said[name], leaf, steps, stays, noise.at(name))
                x[name], own[name] = leaf.x, leaf.memory
        return x, own

    def masked_again(
        self, problem: Problem, setup: RowSetup, state: State, call: int
    ) -> Bool[Tensor, "rows coordinates"] | None:
        """What a callback has masked that would not be revealed any more; None where it has put no states in place."""
        if all(now is left for now, left in zip(setup.parts(state.x), state.memory.led, strict=True)):
            return None
        masked = torch.cat([leaf.masked(state.x) for leaf in setup.masked], 1)
        to_the_end = float(problem.times[-1]) == 0
        return masked & state.memory.grid.behind(call, setup.reveals, to_the_end)


def _misfit(method: OneStep, process: Process) -> str | None:
    """Why a leaf is not moved by a method in steps of each row's own."""
    if not method.by_rows:
        return (
            f"{type(method).__name__} takes all rows through the same steps: choose a method that does not, such as "
            f"DPMSolverPP(2), DDIM() or Ancestral(), or common steps, Leaves(...)"
        )
    return method.refuse(process)
