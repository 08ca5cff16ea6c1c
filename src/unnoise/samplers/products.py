"""Products: every leaf by a method of its own, all on one network call.

`Leaves(age=DPMSolverPP(2), job=Euler())` steps the leaves of a mixed state together.  The leaves see each other through the
network alone, so one call per stage serves them all: each method answers `stage` with its leaf's part of the prediction.

That needs stage times in common.  After a stage every leaf stands at the next stage's time, the one that the network is
told: methods with one stage go with each other, and with those whose second call is at the step's end (Heun), since after
the first they are there already.  Other combinations are refused by name.

The order of the joint scheme is the lowest of its leaves'.  Where a leaf draws noise the others' predictions fluctuate with
it within a step, of which no table of past predictions knows (see `samplers.exponential`): the order is then 2 at most.

Methods that go from event to event (first hitting, reveal plans, thinning, uniformization) have no steps to share.  Give
such a leaf a method with steps; or hold it with `Frozen()`: it stays as it is, and the network is told that it stands at
time 0, as data that has been observed.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, cast

from unnoise.predictions import Prediction, ProductPrediction
from unnoise.processes import Process
from unnoise.samplers.base import OneStep, Sampler
from unnoise.samplers.problem import Problem
from unnoise.samplers.state import Memory, State
from unnoise.shapes import Tree


class Frozen(OneStep):
    """The leaf stays as it is; the network is told that it is at the time `at`, 0 for what has been observed."""

    stages = 0
    by_rows = True

    def __init__(self, at: float = 0.0):
        if not 0 <= at <= 1:
            raise ValueError(f"at = {at:g} lies outside [0, 1] (0 is data, 1 is noise)")
        self.at = at

    def stage_times(self, problem, tables):
        return [()] * problem.steps

    def leaf_times(self, problem, times):
        return [self.at] * len(times)

    def stage(self, problem, tables, prediction, state, i, k, noise):
        return state


@dataclass(frozen=True)
class LeafTables:
    """Of each leaf by name: its method's own tables, and where that asks the network in each step."""

    own: dict[str, Any]
    stages: dict[str, list[tuple[float, ...]]]
    prepared: bool  # whether some method does something before a step's first call


@dataclass(frozen=True)
class LeafMemories(Memory):
    """What the methods remember of their leaves, by name."""

    own: dict[str, Memory | None]


def check_methods(default: Any, methods: dict[str, Any]) -> tuple[OneStep | None, dict[str, OneStep]]:
    """The methods of leaves, if they have steps to share."""
    for name, method in {"without a name": default, **methods}.items():
        if method is None and name not in methods:
            continue
        if not isinstance(method, Sampler):
            raise TypeError(f"leaf '{name}' is given {method!r}: pass a sampler, such as DDIM()")
        if not isinstance(method, OneStep):
            raise TypeError(
                f"leaf '{name}': {type(method).__name__} does not go by the common steps of a product: choose a method "
                f"that does, such as Ancestral(), or hold the leaf with Frozen()"
            )
    return default, methods


class Leaves(OneStep):
    """One method per leaf, by name; a first argument without a name is the method of all leaves that have none."""

    def __init__(self, default: Sampler | None = None, /, **methods: Any):
        self.default, self.methods = check_methods(default, methods)
        all_methods = [*self.methods.values(), *([self.default] if self.default else [])]
        moving = [method for method in all_methods if not isinstance(method, Frozen)]
        orders = [method.order for method in moving]
        self.draws = any(method.draws for method in moving)
        self.order = None if None in orders else min([2 if self.draws else 3, *[order or 0 for order in orders]])
        self.stages = max([method.stages for method in moving], default=1)
        self.complete = all(method.complete for method in all_methods)

    def method(self, name: str) -> OneStep:
        method = self.methods.get(name, self.default)
        if method is None:
            raise KeyError(f"Leaves has no method for {name!r}: name one, or pass Leaves(Ancestral(), ...) for the others")
        return method

    def holding(self, names: list[str]) -> "Leaves":
        """The same with these leaves held as they are."""
        return Leaves(self.default, **self.methods | {name: Frozen() for name in names})

    def calls(self, steps, process):
        """As many as the leaf with the most: all methods here know theirs."""
        return max(self.each(lambda name, method: method.calls(steps, process.leaves[name]) or 0, process).values())

    def latest(self, process):
        return min(self.each(lambda name, method: method.latest(process.leaves[name]), process).values())

    def refuse(self, process: Process) -> str | None:
        names = list(process.leaves)
        if not names:
            return f"Leaves steps the leaves of a product, and {type(process).__name__} is none: pass the method itself"
        unknown = [name for name in self.methods if name not in names]
        if unknown:
            return f"Leaves names {unknown}; the leaves are {names}"
        missing = [name for name in names if name not in self.methods]
        if missing and self.default is None:
            return f"Leaves has no method for {missing}: name one for each, or pass Leaves(Ancestral(), ...) for the others"
        reasons = {name: self.method(name).refuse(leaf) for name, leaf in process.leaves.items()}
        return next((f"leaf '{name}': {why}" for name, why in reasons.items() if why), None)

    def each(self, function: Callable[[str, OneStep], Any], process: Process) -> dict[str, Any]:
        return {name: function(name, self.method(name)) for name in process.leaves}

    def tables(self, problem: Problem) -> LeafTables:
        own = self.each(lambda name, method: method.tables(problem.part(name)), problem.process)
        stages = self.each(lambda name, method: method.stage_times(problem.part(name), own[name]), problem.process)
        prepared = any(type(self.method(name)).before is not OneStep.before for name in own)
        return LeafTables(own, stages, prepared)

    def memory(self, problem: Problem, tables: LeafTables, x: dict[str, Tree]) -> LeafMemories:
        own = tables.own
        return LeafMemories(
            self.each(lambda name, method: method.memory(problem.part(name), own[name], x[name]), problem.process)
        )

    def stage_times(self, problem, tables):
        """Those that all leaves share in each step; a shorter list may lack what lies at the step's end."""
        out = []
        for i in range(problem.steps):
            start, end = problem.times[i].item(), problem.times[i + 1].item()
            own = {name: stages[i] for name, stages in tables.stages.items() if stages[i]}
            longest = max(own.values(), key=len, default=(start,))
            for name, times in own.items():
                if times != longest[: len(times)] or any(t != end for t in longest[len(times) :]):
                    other = next(n for n, t in own.items() if t == longest)
                    raise ValueError(
                        f"in the step from {start:g} to {end:g} leaf '{name}' asks the network at {_list(times)} and leaf "
                        f"'{other}' at {_list(longest)}, but they share its calls: give both methods with the same stages"
                    )
            out.append(longest)
        return out

    def leaf_times(self, problem, times):
        """A tree where some leaf is frozen; else the common clock."""
        process = problem.process
        told = self.each(lambda name, method: method.leaf_times(problem.part(name), times), process)
        return times if all(value is times for value in told.values()) else told

    def before(self, problem, tables, state, i):
        def of_leaf(name: str, method: OneStep, leaf: State) -> State:
            return method.before(problem.part(name), tables.own[name], leaf, i)

        return self.leaf_by_leaf(state, of_leaf) if tables.prepared else state

    def stage(self, problem, tables, prediction: Prediction, state: State, i, k, noise):
        prediction = prediction.by_leaf()  # an energy says its scores and ratios
        if not isinstance(prediction, ProductPrediction):
            raise TypeError(f"a {type(prediction).__name__} prediction has no leaves: predict a dict with one for each leaf")
        leaves = prediction.leaves

        def of_leaf(name: str, method: OneStep, leaf: State) -> State:
            if k >= len(tables.stages[name][i]):
                return leaf  # it is there already, or does not move
            return method.stage(problem.part(name), tables.own[name], leaves[name], leaf, i, k, noise.at(name))

        return self.leaf_by_leaf(state, of_leaf)

    def leaf_by_leaf(self, state: State, function: Callable[[str, OneStep, State], State]) -> State:
        """Each leaf's state by its own method; what they count is added up."""
        memories, x, jumps = cast(LeafMemories, state.memory).own, {}, state.jumps
        kept = dict(memories)
        for name, value in state.x.items():
            leaf = function(name, self.method(name), State(value, memories[name]))
            x[name], kept[name] = leaf.x, leaf.memory
            if leaf.jumps is not None:
                jumps = leaf.jumps if jumps is None else jumps + leaf.jumps
        return replace(state, x=x, memory=LeafMemories(kept), jumps=jumps)


def _list(times: tuple[float, ...]) -> str:
    return " and ".join(f"{t:g}" for t in times)
