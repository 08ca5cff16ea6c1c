"""Remasking (ReMDM, Wang et al. 2025): under masking, what was revealed may be masked again, and so be corrected.

With a remasking probability sigma in [0, sigma_max], sigma_max = min(1, beta_s/alpha_t), beta = 1 - alpha, the kernel

    x_t != MASK:   (1 - sigma) e_{x_t} + sigma e_MASK
    x_t  = MASK:   reveal theta + (1 - reveal) e_MASK,      reveal = (beta_t - beta_s + sigma alpha_t)/beta_t

has the marginals of masking for every sigma: of the share alpha_t that is clean sigma alpha_t is masked, and as much more is
revealed.  theta is the posterior q(x_0^k | x_t).  How large is sigma?  A rule says, from sigma_max and the times:

    Cap(eta)            min(sigma_max, eta)
    Rescale(eta)        eta sigma_max
    Rate(rate)          min(sigma_max, rate (t - s))
    Confidence(rule)    the rule's sigma, dealt out over the clean coordinates of a row: times softmax(-c), c the probability
                        that each token had when it was revealed.  Masked coordinates are revealed as if sigma were 0, so
                        the clean share falls behind by what is remasked, until the last steps make up for it
    Loop(rule)          the rule in a window off < t < on, in which the process's time stands still at `hold`; before and
                        after it time runs faster, without remasking

In law.  Exact for one coordinate (but for Confidence).  For several, Rate is of order 1: a coordinate changes in a step with
probability O(h).  Cap and Rescale remask a share in every step, however short, and tokens revealed together do not see each
other: no order.

Whether a coordinate changes comes before where to, and (but for Confidence) has nothing to do with any token.  So the plan
of what is remasked and revealed in every step is drawn before the loop: the network's head is asked for the coordinates that
are about to be revealed and for no others, and the loop never waits for the device.  What changes the tokens' law leaves the
reveal rate alone.
"""

from abc import ABC, abstractmethod
from copy import copy
from dataclasses import dataclass
from math import inf
from typing import cast

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Masking
from unnoise.samplers.base import OneStep
from unnoise.samplers.categorical_ddim import Mixed, alpha_beta, over, raw_log_probs
from unnoise.samplers.problem import Problem
from unnoise.samplers.reveal import Revealing, masking_of
from unnoise.samplers.state import Memory, State
from unnoise.samplers.tokens import Tokens
from unnoise.shapes import Bool, Float
from unnoise.tree import choose


class Rule(ABC):
    """How likely a clean coordinate is to be masked again."""

    order: int | None = None
    by_confidence: bool = False

    @abstractmethod
    def sigma(self, most: Float[Tensor, "steps *shape"], t: Tensor, s: Tensor) -> Float[Tensor, "steps *shape"]:
        """Of every step from t to s, at most sigma_max = `most`."""

    def clock(self, times: Float[Tensor, "times"]) -> Float[Tensor, "times"]:
        """The process's time at the times of the grid, which the network is told."""
        return times


def _share(eta: float) -> float:
    if not 0 <= eta <= 1:
        raise ValueError(f"eta = {eta:g}: choose it in [0, 1]; 0 remasks nothing")
    return eta


class Cap(Rule):
    def __init__(self, eta: float):
        self.eta = _share(eta)

    def sigma(self, most, t, s):
        return most.clamp_max(self.eta)


class Rescale(Rule):
    def __init__(self, eta: float):
        self.eta = _share(eta)

    def sigma(self, most, t, s):
        return self.eta * most


class Rate(Rule):
    """Remask at a rate per unit of time: as steps shrink, a process in continuous time."""

    order = 1

    def __init__(self, rate: float):
        if not 0 <= rate < inf:
            raise ValueError(f"rate = {rate:g} must be finite and not negative: remaskings per unit of time")
        self.rate = rate

    def sigma(self, most, t, s):
        return torch.minimum(most, self.rate * (t - s))


class Confidence(Rule):
    """Remask what the network was least sure of; tokens given at the start count as certain."""

    by_confidence = True

    def __init__(self, rule: Rule):
        if rule.by_confidence:
            raise TypeError("Confidence deals out the sigma of a rule that is the same for all tokens: pass Cap, Rate, ...")
        self.rule = rule

    def sigma(self, most, t, s):
        return self.rule.sigma(most, t, s)

    def clock(self, times):
        return self.rule.clock(times)


class Loop(Rule):
    """Remask while the process's time stands still at `hold`, in the window off < t < on of the grid's time."""

    def __init__(self, rule: Rule, on: float = 0.55, off: float = 0.05, hold: float = 0.1):
        if rule.by_confidence or isinstance(rule, Loop):
            raise TypeError(
                f"a Loop is made of Cap, Rescale or Rate, not of {type(rule).__name__}: use Confidence(Loop(...))"
            )
        if not 0 < off < on < 1:
            raise ValueError(f"on = {on:g}, off = {off:g}: time falls from 1 to 0, choose 0 < off < on < 1")
        if not 0 < hold < 1:
            raise ValueError(f"hold = {hold:g}: a time of the process in (0, 1)")
        self.rule, self.on, self.off, self.hold = rule, on, off, hold
        self.order = rule.order

    def sigma(self, most, t, s):
        middle = (t + s) / 2
        return torch.where((middle < self.on) & (middle > self.off), self.rule.sigma(most, t, s), 0.0)

    def clock(self, times):
        early = 1 - (1 - times) * (1 - self.hold) / (1 - self.on)
        late = times * self.hold / self.off
        return torch.where(times > self.on, early, torch.where(times < self.off, late, self.hold))


@dataclass(frozen=True)
class Sureness(Memory):
    """The probability that each token had when it was revealed."""

    sureness: Float[Tensor, "batch *shape"]


class ChangePlan(Memory):
    """Which coordinates of each row are masked, and which revealed, in every step.

    Of each step the flat positions are laid out beforehand, so that the loop does not ask the device how many there are.
    It holds for the states `left` by the last step, and is made anew for others that are put in their place.
    """

    left: Tensor | None = None

    def __init__(self, remask: list[Bool[Tensor, "batch *shape"]], reveal: list[Bool[Tensor, "batch *shape"]]):
        self.changes = remask, reveal
        both = [[step.flatten().nonzero().squeeze(1) for step in part] for part in self.changes]
        self.steps = list(zip(*both, strict=True))

    def rows(self, index: Tensor) -> "ChangePlan":
        some = ChangePlan(*[[step[index] for step in part] for part in self.changes])
        return some if self.left is None else some.after(self.left[index])

    def after(self, left: Tensor) -> "ChangePlan":
        plan = copy(self)
        plan.left = left  # type: ignore[misc]
        return plan


class Remasking(Revealing, OneStep):
    """The factorised kernel that remasks by a rule."""

    def __init__(self, rule: Rule, tokens: Tokens | None = None):
        super().__init__(tokens)
        self.rule = rule
        self.order = rule.order if self.tokens.plain else None

    def leaf_times(self, problem, times):
        grid = torch.tensor(times, dtype=torch.float64)
        told = self.rule.clock(grid)
        return times if told is grid else told.tolist()

    def chances(self, process: Masking, times: Float[Tensor, "times"]) -> tuple[Tensor, Tensor]:
        """sigma and the probability to reveal, of every step, on the host."""
        alpha, beta = alpha_beta(process, self.rule.clock(times))
        t, s = (times[part].reshape(-1, *[1] * (alpha.ndim - 1)) for part in (slice(0, -1), slice(1, None)))
        sigma = self.rule.sigma(over(beta[1:], alpha[:-1], 1.0).clamp_max(1.0), t, s)
        extra = 0.0 if self.rule.by_confidence else sigma * alpha[:-1]
        return sigma, over(beta[:-1] - beta[1:] + extra, beta[:-1], 1.0).clamp(0.0, 1.0)

    def tables(self, problem: Problem) -> Float[Tensor, "two steps *shape"]:
        """sigma and the probability to reveal, of every step."""
        chances = torch.stack(torch.broadcast_tensors(*self.chances(masking_of(problem.process), problem.times)))
        return chances.to(problem.device)

    def no_law(self) -> str | None:
        return f"{type(self).__name__} by confidence goes by what it remembers" if self.rule.by_confidence else None

    def step_law(self, problem: Problem, tables: Tensor, prediction: Prediction, i: int) -> Mixed:
        """A masked coordinate is revealed by the network's law or stays, a clean one is masked or stays."""
        process, x = masking_of(problem.process), cast(Tensor, prediction.x_t)
        (sigma, reveal), masked = tables[:, i], problem.process.movable(x)
        clean, fresh = torch.where(masked, reveal, 0.0), torch.where(masked, 0.0, sigma)
        return Mixed(process, x, raw_log_probs(prediction, self.tokens), 1 - clean - fresh, clean, fresh)

    def memory(self, problem: Problem, tables: Tensor, x: Tensor) -> Memory:
        if self.rule.by_confidence:
            return Sureness(torch.ones(x.shape, dtype=torch.float64, device=x.device))
        return self.plan(problem, tables, x)

    def changes(self, noise: NoiseSource, masked: Bool[Tensor, "batch *shape"], sigma: Tensor, reveal: Tensor) -> Tensor:
        """Whether each coordinate is masked or revealed."""
        return noise.at("whether").uniform(tuple(masked.shape[1:])) < torch.where(masked, reveal, sigma)

    def plan(
        self, problem: Problem, chances: Tensor, x: Tensor, old: ChangePlan | None = None, first: int = 0
    ) -> ChangePlan:
        """The changes from step number `first` on, where x stands; those before are past."""
        masked = problem.process.movable(x)
        remask, reveal = ([], []) if old is None else (part[:first] for part in old.changes)
        for i in range(first, problem.steps):
            change = self.changes(problem.noise.at("plan", i), masked, *chances[:, i])
            remask.append(change & ~masked)
            reveal.append(change & masked)
            masked = masked ^ change
        return ChangePlan(remask, reveal)

    def planned(self, problem: Problem, chances: Tensor, state: State, i: int) -> ChangePlan:
        """The plan, made anew for rows in which other coordinates are masked than the last step left so."""
        plan, x = state.memory, state.x
        if plan.left is None or x is plan.left:
            return plan
        other = (problem.process.movable(x) != problem.process.movable(plan.left)).reshape(len(x), -1).any(1)
        if not bool(other.any()):
            return plan
        new = self.plan(problem, chances, x, plan, i)
        both = [zip(*parts, strict=True) for parts in zip(plan.changes, new.changes, strict=True)]
        return ChangePlan(*[[cast(Tensor, choose(other, after, before)) for before, after in part] for part in both])

    def stage(
        self, problem: Problem, tables: Tensor, prediction: Prediction, state: State, i: int, k: int, noise: NoiseSource
    ) -> State:
        x, memory = state.x, state.memory
        u = noise.at("token").uniform(tuple(x.shape[1:])).flatten()
        if self.rule.by_confidence:
            moved, memory = self._by_confidence(problem, tables[:, i], prediction, state, noise, u)
        else:
            memory = self.planned(problem, tables, state, i)
            remask, reveal = memory.steps[i]
            moved = x.flatten().index_fill(0, remask, masking_of(problem.process).mask)
            if len(reveal):
                moved = moved.scatter(0, reveal, self.tokens.draw(self.logits(prediction, reveal), u[reveal]))
            moved = moved.reshape(x.shape)
            memory = memory.after(moved)
        return state.counted(moved, x).to(moved, memory)

    def _by_confidence(self, problem, chances, prediction, state, noise, u):
        """Which tokens are revealed depends on earlier ones: the head is asked for all, so that nothing is waited for."""
        x, sureness = state.x, state.memory.sureness
        masked = x == problem.process.mask
        weight = torch.where(masked, 0.0, torch.exp(-sureness)).reshape(len(x), -1)
        weight = (weight / weight.sum(1, keepdim=True).clamp_min(1e-300)).reshape(x.shape)
        sigma, reveal = chances
        change = self.changes(noise, masked, weight * sigma, reveal)
        logits = self.logits(prediction, torch.arange(x.numel(), device=x.device)).double()
        token = self.tokens.draw(logits, u)
        sure = logits.log_softmax(-1).gather(-1, token.unsqueeze(-1)).exp().reshape(x.shape)
        moved = torch.where(masked, token.reshape(x.shape), problem.process.mask)
        return torch.where(change, moved, x), Sureness(torch.where(masked & change, sure, sureness))
