"""Replacement: draw some coordinates given others, with a model that was not trained for it.

At every time the coordinates that are known follow a path of the forward process that ends in their values, x_s^known drawn
from q(x_s | x_t, x_0), and the model draws the others beside them.  What it draws at s has seen x_t^known, not x_s^known: it
is a step behind, and what early steps got wrong, where the known ones are mostly noise, stays.  Rounds mend that (RePaint,
Lugmayr et al. 2022): in each step the state is noised again from s to t by the forward process and drawn back, some times
over.  As steps get shorter a round leaves the law of the others given x_s^known as it is, and many rounds lead to it; at
t = 0 that is the conditional law.  With finitely many of both it is approximate, and no order is claimed.

Any process will do: only its kernels are asked.  Under masking, what is known is simply not masked.
"""

from dataclasses import dataclass, replace
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.samplers.ancestral import Ancestral, AncestralTables
from unnoise.samplers.problem import Problem
from unnoise.samplers.state import Memory
from unnoise.shapes import Bool

ROUNDS = 8


@dataclass(frozen=True)
class Held(Memory):
    """What is known of each row: the clean values, where they are, and their noisy ones at the time that is reached."""

    x: Tensor
    fixed: Bool[Tensor, "batch *shape"]
    known: Tensor


class Replacement(Ancestral):
    """Ancestral steps; the entries of x where `fixed` are held.  The rows of x are those of the run."""

    order = None

    def __init__(self, x: Tensor, fixed: Bool[Tensor, "..."], rounds: int = ROUNDS):
        super().__init__(rounds)
        self.x, self.fixed = torch.where(fixed, x, 0), fixed

    def memory(self, problem: Problem, tables: AncestralTables | None, x: Tensor) -> Held:
        values, fixed = self.x, self.fixed
        if problem.chosen is not None:
            values, fixed = values[problem.chosen], fixed[problem.chosen]
        if problem.process.absorbing:
            return Held(values, fixed, values)
        known: Any = problem.process.marginal(values, problem.clock[0]).draw(problem.noise.at("known"))
        return Held(values, fixed, known)

    def before(self, problem, tables, state, i):
        held = state.memory
        return state.to(torch.where(held.fixed, held.known, state.x), held)

    def stage(self, problem, tables, prediction, state, i, k, noise):
        process, t, s, held = problem.process, problem.clock[i], problem.clock[i + 1], state.memory
        if k == 0 and not process.absorbing:
            held = replace(held, known=process.posterior(held.known, held.x, s, t).draw(noise.at("known")))
        x = torch.where(held.fixed, held.known, cast(Tensor, self.drawn(problem, tables, prediction, i, noise)))
        if k + 1 == self.rounds:
            return state.to(x, held)
        again = cast(Tensor, self.raised(problem, process, tables, x, i, noise.at("again")))
        return state.to(torch.where(held.fixed, held.known, again) if process.absorbing else again, held)
