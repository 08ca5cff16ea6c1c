"""What is known of each row, on its way: particles draw the rest given it, with a model that was not trained for it.

The forward process noises each coordinate by itself, so that how the known ones get there depends on their values alone.
Their path is drawn from it, once for each sample and all of its particles; given the path, the model's law of the others is
that of particles which step by the model and are weighed by the density that it gave to where the known ones went,

    w  =  prod over steps of  prod over known l of  p(y^l | x).

Averaged over paths this is the law of the others given the known (Trippe et al. 2023, for numbers), with errors that fall
with the number of particles and the length of steps.  Any process will do whose steps have a density for each coordinate;
what is known of a masked leaf is simply not masked.
"""

from typing import Any

import torch

from unnoise.samplers.problem import Problem
from unnoise.shapes import Tree
from unnoise.tree import leaves, map_leaves, tile
from unnoise.tree import rows as some_rows


class KnownPath:
    """The entries of x where `fixed`, at every time of the run; `count` particles of each row share them."""

    def __init__(self, problem: Problem, x: Tree, fixed: Tree, count: int):
        if problem.chosen is not None:
            x, fixed = some_rows(x, problem.chosen), some_rows(fixed, problem.chosen)
        process, times, noise = problem.process, problem.clock, problem.noise.at("known")
        filler: Any = process.prior(len(noise.rows), _dtype(x), noise.rows.device).draw(noise.at("filler"))
        now: Any = map_leaves(lambda value, known, other: torch.where(known, value.to(other), other), x, fixed, filler)
        if not process.noiseless(float(problem.times[-1])):
            now = process.marginal(now, times[-1]).draw(noise.at("end"))
        path = [now]
        for k in reversed(range(problem.steps)):
            path.append(process.transition(path[-1], times[k + 1], times[k]).draw(noise.at(k)))
        if any(leaf.absorbing for leaf in _processes(process)):
            path = [_unmasked(process, step, now) for step in path]
        self.path, self.count = path[::-1], count
        self.fixed: Tree = tile(fixed, count)
        self.open: Tree = map_leaves(torch.logical_not, self.fixed)

    def put(self, y: Tree, k: int) -> Tree:
        """States at the k-th time with what is known in its place."""
        return map_leaves(torch.where, self.fixed, tile(self.path[k], self.count), y)


def _dtype(x: Tree) -> torch.dtype | None:
    return next((leaf.dtype for leaf in leaves(x) if leaf.dtype.is_floating_point), None)


def _processes(process: Any) -> list[Any]:
    return [leaf for child in process.leaves.values() for leaf in _processes(child)] if process.leaves else [process]


def _unmasked(process: Any, x: Any, clean: Any) -> Any:
    """The same states with masked leaves as they are in the end."""
    if process.leaves:
        return {name: _unmasked(leaf, x[name], clean[name]) for name, leaf in process.leaves.items()}
    return clean if process.absorbing else x
