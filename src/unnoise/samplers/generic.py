"""A step for anything with a generator: drift, diffusion and jumps, frozen for a while.

A generator L has parameters at each state and time: a drift b and a diffusion a of numbers, the rates mu(y) of categories to
their destinations, births and deaths per unit of counts.  Freeze them at x and let the process run:

    numbers        x + h b + sqrt(h a) z
    categories     hold, or leap to y with mu(y)/mu          (see `samplers.leaps`)
    counts         each unit dies with probability 1 - e^{-h death}; Poisson(h birth) come

One such move over a step is Euler's rule, of order 1 in law.  Two of them are the trapezoidal rule,

    x*  from x by  L(x, t)  over theta h,
    x_s from x* by  [a_1 L(x*, t - theta h) - a_2 L(x, t)]_+  over (1 - theta) h,
    a_1 = 1/(2 theta (1 - theta)),  a_2 = a_1 - 1,

which is of order 2 in law where nothing is cut to 0.  All leaves of a product move at once on the same two network calls, so
that the rule holds for the joint state: nothing is split.
"""

from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.processes import Process
from unnoise.samplers.base import OneStep
from unnoise.samplers.problem import Problem
from unnoise.samplers.state import Memory
from unnoise.samplers.stirring import Stirring, refused, stirred
from unnoise.shapes import AnyState, Tree
from unnoise.spaces import Local, Space
from unnoise.tree import leaves


def freeze(space: Space, local: Any, x: AnyState) -> dict[str, Any]:
    """A generator's parameters at the rows of a batch, leaf by leaf."""
    if space.leaves:
        return {name: freeze(leaf, local[name], x[name]) for name, leaf in space.leaves.items()}
    return space.freeze(local, x)


def move(space: Space, frozen: dict[str, Any], local: Any, x: AnyState, h: Tensor, noise: NoiseSource) -> Tree:
    """Run the frozen generator for a time h, leaf by leaf."""
    if space.leaves:
        return {
            name: move(leaf, frozen[name], local[name], x[name], h, noise.at(name)) for name, leaf in space.leaves.items()
        }
    return space.move(frozen, local, x, h, noise)


@dataclass(frozen=True)
class FirstMove(Memory):
    """The generator's parameters at the step's first stage: kept for its second."""

    frozen: dict[str, Any]


class FromGenerator(OneStep):
    """Euler's rule (order 1), or with `theta` the trapezoidal rule (order 2 where nothing is cut), for any generator.

    `stir` adds motion that leaves the marginals alone (`samplers.stirring`), on a product to every leaf or by a dict.
    """

    complete = False

    def __init__(self, theta: float | None = None, stir: Stirring | dict[str, Any] | None = None):
        if theta is not None and not 0 < theta < 1:
            raise ValueError(f"theta = {theta:g}: choose it in (0, 1), or leave it out for Euler's rule")
        self.theta, self.stir = theta, stir
        self.order, self.stages = (1, 1) if theta is None else (2, 2)

    def refuse(self, process: Process) -> str | None:
        if not process.has_generator:
            return "FromGenerator needs rates, and a chain by matrices has no generator: use Ancestral"
        return refused(process, self.stir)

    def latest(self, process: Process) -> float:
        return process.latest  # the generator is frozen from the first step on

    def tables(self, problem: Problem) -> list[float]:
        problem.info.clipped = torch.zeros((), dtype=torch.float64, device=problem.device)
        return problem.times.tolist()

    def stage_times(self, problem, tables):
        theta = self.theta
        return [(t,) if theta is None else (t, t - theta * (t - s)) for t, s in pairwise(problem.times.tolist())]

    def stage(self, problem, tables, prediction, state, i, k, noise):
        local, space, x = stirred(prediction, self.stir), problem.process.state_space, state.x
        frozen, h = freeze(space, local, x), problem.clock[i] - problem.clock[i + 1]
        self._refuse_infinite(frozen, tables[i])
        if k == 1:
            self._refuse_anywhere(local)
            frozen = self._extrapolated(problem, frozen, state.memory.frozen)
        share = 1.0 if self.theta is None else self.theta if k == 0 else 1 - self.theta
        again = self.theta is not None and k == 0
        moved = move(space, frozen, local, x, share * h, noise)
        return state.to(moved, FirstMove(frozen) if again else None)

    def _extrapolated(self, problem: Problem, now: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
        if isinstance(next(iter(now.values())), dict):
            return {name: self._extrapolated(problem, now[name], before[name]) for name in now}
        assert self.theta is not None
        a = 1 / (2 * self.theta * (1 - self.theta))
        mixed = {name: a * now[name] - (a - 1) * before[name] for name in now}
        kept = {name: value if name == "drift" else value.clamp_min(0) for name, value in mixed.items()}
        lost = sum((kept[name] - mixed[name]).sum().double() for name in kept)
        whole = sum(kept[name].sum().double() for name in kept if name != "drift")
        problem.info.clipped = problem.info.clipped + lost / whole.clamp_min(1e-300) / problem.steps  # type: ignore
        return kept

    def _refuse_anywhere(self, local: Tree[Local]) -> None:
        """Rates of jumps to anywhere, from two states, do not mix: they lead to other places."""
        if any(part.jumps is not None for part in leaves(local)):
            raise TypeError("the generator has jumps to anywhere, which the trapezoidal rule cannot mix: leave theta out")

    def _refuse_infinite(self, frozen: dict[str, Tree], t: float) -> None:
        parts = [part for part in leaves(cast(Tree, frozen)) if part.device.type == "cpu"]
        if all(bool((part.abs() < 1e80).all()) for part in parts):
            return
        if any(bool((part.abs() >= 1e80).any()) for part in parts):
            raise ValueError(
                f"the generator at t = {t:g} is infinite, since alpha is 0 there: start the grid before t = 1, use a "
                f"schedule with alpha_1 > 0, or Ancestral"
            )
        raise ValueError(
            f"the generator at t = {t:g} has a part that is NaN: a drift or rate that is no number, or a diffusion below 0; "
            f"look at what local(x, t) returns"
        )
