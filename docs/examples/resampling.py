"""A sampler of one's own: any stepping method, with rows resampled by a reward on the way.

The samples are to have the model's law tilted by a reward, p(x_0) e^{reward(x_0)} up to a constant.  A row at time t has the
potential G_t(x) = (1 - t) reward(x), which is the reward itself at t = 0.  From time to time rows are drawn anew with
probabilities in proportion to e^{G_t - G_t'}, t' being where that was last done.  Over a run these weights multiply to
e^{reward(x_0)}, so the law at the end is the tilted one whatever G is in between, as the number of rows grows; a good G
keeps the weights even.

A row that is drawn brings its history along (`state.rows`): under a multistep method the next step needs the predictions of
the row's own past, not of the one whose place it takes.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

import unnoise as un
from unnoise.samplers import Memory, State, Stepping


def systematic(log_weight: Tensor, u: Tensor) -> Tensor:
    """Row numbers with probabilities in proportion to the weights: n even teeth of a comb, shifted by one number u."""
    n = len(log_weight)
    borders = log_weight.softmax(0).cumsum(0)
    return torch.searchsorted(borders, (torch.arange(n, device=u.device) + u) / n).clamp_max(n - 1)


def effective(log_weight: Tensor) -> float:
    """Of how many rows of equal weight the weights are worth."""
    return float(1 / log_weight.softmax(0).square().sum())


@dataclass(frozen=True)
class Weighted(Memory):
    """Beside what the method remembers: each row's weight since rows were last drawn, and its potential."""

    own: Memory | None
    log_weight: Tensor
    potential: Tensor


class Resampled(Stepping):
    """`Resampled(DPMSolverPP(2), reward)`: rows are drawn anew where their weights are worth less than `share` of them."""

    def __init__(self, method: Stepping, reward: Callable[[Tensor], Tensor], share: float = 0.5):
        self.method, self.reward, self.share = method, reward, share
        self.draws, self.stages = method.draws, method.stages

    def refuse(self, process):
        return self.method.refuse(process)

    def calls(self, steps, process):
        return self.method.calls(steps, process)

    def setup(self, problem):
        return self.method.setup(problem)

    def init(self, problem, setup, x):
        own = self.method.init(problem, setup, x)
        potential = self.potential(x, problem.times[0])
        return replace(own, memory=Weighted(own.memory, potential, potential))

    def potential(self, x: Tensor, t: Tensor) -> Tensor:
        return (1 - float(t)) * self.reward(x).double()

    def step(self, problem, setup, state: State, i):
        before = state.memory
        moved = self.method.step(problem, setup, replace(state, memory=before.own), i)
        potential = self.potential(moved.x, problem.times[i + 1])
        log_weight = before.log_weight + potential - before.potential
        state = replace(moved, memory=Weighted(moved.memory, log_weight, potential))
        last = i + 1 == problem.steps
        if last or effective(log_weight) < self.share * len(log_weight):
            state = self.drawn(state, problem.noise.at("resample", i).shared_uniform())
        return state

    def drawn(self, state: State, u: Tensor) -> State:
        """Rows by their weights, each with its history; they all weigh the same afterwards."""
        state = state.rows(systematic(state.memory.log_weight, u))
        return replace(state, memory=replace(state.memory, log_weight=torch.zeros_like(state.memory.log_weight)))


def model() -> un.oracles.Components:
    """Two bumps on the line: 0.6 N(-1, 1/4) + 0.4 N(1, 1/4)."""
    weights, means = torch.tensor([0.6, 0.4]).double(), torch.tensor([[-1.0], [1.0]]).double()
    return un.oracles.mixture(un.Gaussian((1,)), weights, means, torch.full((2, 1, 1), 0.25).double())


def tilted_mean(slope: float) -> float:
    """Under e^{slope x} a bump w N(m, v) becomes w e^{slope m + slope^2 v/2} N(m + slope v, v)."""
    means = torch.tensor([-1.0, 1.0]).double()
    weights = (torch.tensor([0.6, 0.4]).double().log() + slope * means).softmax(0)
    return float(weights @ (means + slope * 0.25))
