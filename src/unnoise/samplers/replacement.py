"""Replacement: draw some coordinates given others, with a model that was not trained for it.

At every time the coordinates that are known follow a path of the forward process that ends in their values, x_s^known drawn
from q(x_s | x_t, x_0), and the model draws the others beside them.  What it draws at s has seen x_t^known, not x_s^known: it
is a step behind, and what early steps got wrong, where the known ones are mostly noise, stays.  Rounds mend that (RePaint,
Lugmayr et al. 2022): in each step the state is noised again from s to t by the forward process and drawn back, some times
over.  As steps get shorter a round leaves the law of the others given x_s^known as it is, and many rounds lead to it; at
t = 0 that is the conditional law.  With finitely many of both it is approximate, and no order is claimed.

Any process will do: only its kernels are asked.  Under masking, what is known is simply not masked.
"""

import torch
from torch import Tensor

from unnoise.processes import Masking
from unnoise.samplers.base import Ancestral, Problem
from unnoise.shapes import Bool

ROUNDS = 8


class Replacement(Ancestral):
    """Ancestral steps; the entries of x where `fixed` are held.  The rows of x are those of the run."""

    order = None

    def __init__(self, x: Tensor, fixed: Bool[Tensor, "..."], rounds: int = ROUNDS):
        super().__init__(rounds)
        self.x, self.fixed = torch.where(fixed, x, 0), fixed

    def init(self, problem: Problem) -> dict:
        if isinstance(problem.process, Masking):
            return {"known": self.x}
        return {"known": problem.process.marginal(self.x, problem.clock[0]).draw(problem.noise.at("known"))}

    def before(self, problem, memory, x, i):
        return torch.where(self.fixed, memory["known"], x)

    def stage(self, problem, memory, prediction, x, i, k, noise):
        process, t, s = problem.process, problem.clock[i], problem.clock[i + 1]
        masking = isinstance(process, Masking)
        if k == 0 and not masking:
            memory["known"] = process.posterior(memory["known"], self.x, s, t).draw(noise.at("known"))
        x = torch.where(self.fixed, memory["known"], prediction.step(s).draw(noise))
        if k + 1 == self.rounds:
            return x
        again = process.transition(x, s, t).draw(noise.at("again"))
        return torch.where(self.fixed, memory["known"], again) if masking else again
