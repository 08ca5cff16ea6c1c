"""Leaps on finite spaces: rates are frozen over a step, and every coordinate moves by itself.

With frozen rates mu(y) to each destination, an event sets the coordinate to y at rate mu(y), whatever it was.  After a time
h it has met no event with probability exp(-h mu), mu = sum_y mu(y), and otherwise stands where the last one put it:

    hold-then-leap:   stay e^{-h mu},    y with (1 - e^{-h mu}) mu(y)/mu.

    Euler             hold-then-leap from the rates at t; `hold=False` for I + h R, whose entries can be negative: they are
                      cut to 0 and counted
    TauLeaping        a Poisson number of events; on categories two or more cancel (the state stays), on ordered ones
                      (`ordinal=True`) their displacements add up, cut to the range
    ThetaTrapezoidal  a leap over theta h from x to x*, then one over (1 - theta) h with rates
                      [a_1 mu(x*) - a_2 mu(x)]_+,  a_1 = 1/(2 theta (1 - theta)), a_2 = a_1 - 1
    ThetaRK2          the same first leap, then one over h from x with rates [(1 - 1/(2 theta)) mu(x) + 1/(2 theta) mu(x*)]_+

The trapezoidal rule is of order 2 in law while nothing is cut, and of order 1 where something is; the share that was cut is
counted.  One cut does no harm: where x leads to y and to y', but neither of these to the other (masking, neighbours), what
is lost after a leap to y and after one to y' cancels.  The cut that costs the order is that of a rate which falls below
a_2/a_1 of itself, but not to 0, as x goes to x*: under peaked laws and strongly dependent coordinates.

The other one is of order 1 everywhere.  Its second leap starts from x again and forgets where the first one went, so that
one step differs from the exact flow by

    1/2 h^2 sum_{nu*, nu} mu(x, nu*) (mu(x + nu*, nu) - mu(x, nu)) [phi(x + nu* + nu) - phi(x + nu*) - phi(x + nu) + phi(x)]

for a test function phi.  The bracket is a mixed second difference: 0 for the means of single coordinates, not for a law.

Which rates?  The reversal R^, or one of the family with the same marginals (eq:reverse-rate-family),

    (1 + gamma) R^ + gamma R        (R + R^ is in detailed balance with q_t: more jumps)
    [R^ - R]_+                      (`minimal=True`: edge by edge the fewest jumps; the plain reversal has them only where
                                    noise never goes back, as under masking)
"""

from abc import abstractmethod
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from unnoise.checks import may_read
from unnoise.laws import Categorical, log_of
from unnoise.noise import NoiseSource
from unnoise.predictions import FinitePrediction, Prediction
from unnoise.processes import FiniteProcess, Process
from unnoise.samplers.base import OneStep
from unnoise.samplers.problem import Problem
from unnoise.samplers.state import Memory, State
from unnoise.shapes import Float
from unnoise.spaces.finite import LOG_HUGE, leap

EVENTS = 8.0  # per coordinate and step: what a sum of displacements has room for


def finite(prediction: Prediction) -> FinitePrediction:
    """A prediction of categories; an energy says its ratios."""
    own = prediction.by_leaf()
    if not isinstance(own, FinitePrediction):
        raise TypeError(f"a {type(own).__name__} prediction says nothing of categories: predict a Posterior, Ratio, ...")
    return own


def log_rates_of(prediction: FinitePrediction) -> Float[Tensor, "batch *shape states"]:
    """log of the rates of the reverse process to every destination."""
    log_rates = prediction.local().log_rates
    if log_rates is None:
        raise TypeError(f"the generator of {type(prediction.process).__name__} has no jumps between categories")
    return log_rates


def no_rates(what: str, process: Process) -> str | None:
    """Why `what`, a method and its verb, finds no rates between categories in a process; None where it does."""
    if not isinstance(process, FiniteProcess):
        return f"{what} categories, and {type(process).__name__} has none"
    if not process.has_generator:
        return f"{what.split()[0]} needs rates, and a chain by matrices has no generator: use Ancestral"
    return None


@dataclass(frozen=True)
class FirstLeap(Memory):
    """Where the step began, and the rates there: kept for its second leap."""

    x: Tensor
    rates: Tensor


class Leap(OneStep):
    """Base of the methods with frozen rates."""

    order = 1
    complete = False

    def __init__(self, gamma: float = 0.0, minimal: bool = False):
        if not gamma >= 0:
            raise ValueError(f"gamma = {gamma:g} must not be negative: it adds jumps in detailed balance")
        if gamma and minimal:
            raise ValueError("the minimal process has no further jumps: leave gamma out")
        self.gamma, self.minimal = gamma, minimal

    def refuse(self, process: Process) -> str | None:
        return no_rates(f"{type(self).__name__} leaps on", process)

    def latest(self, process: Process) -> float:
        return process.latest  # rates are frozen from the first step on

    def rates(self, prediction: Prediction) -> Tensor:
        """Rates to every destination, [batch, *shape, states], 0 at the state itself."""
        prediction = finite(prediction)
        log_reverse = log_rates_of(prediction)
        if may_read(log_reverse) and bool((log_reverse > LOG_HUGE).any()):
            raise ValueError(
                f"the rates at t = {prediction.t.max().item():g} are infinite, since alpha is 0 there: start the grid "
                f"before t = 1, use a schedule with alpha_1 > 0, or Ancestral"
            )
        reverse = log_reverse.double().clamp_max(LOG_HUGE).exp()
        if not (self.gamma or self.minimal):
            return reverse
        forward = prediction.process.log_rates_from(prediction.x_t, prediction.t).clamp_max(LOG_HUGE).exp()
        return (reverse - forward).clamp_min(0) if self.minimal else (1 + self.gamma) * reverse + self.gamma * forward

    @abstractmethod
    def law(self, problem: Problem, rates: Tensor, state: State, h: Tensor, k: int) -> Categorical:
        """The law of the state after stage k of a step of length h, from the rates there; `state` as the stage before left
        it."""

    def stage(
        self, problem: Problem, tables: None, prediction: Prediction, state: State, i: int, k: int, noise: NoiseSource
    ) -> State:
        rates = self.rates(prediction)
        moved = self.law(problem, rates, state, problem.clock[i] - problem.clock[i + 1], k).draw(noise)
        came_from = self.origin(state, k)
        counted = state if came_from is None else state.counted(moved, came_from)
        return counted.to(moved, self.kept(rates, state, k))

    def origin(self, state: State, k: int) -> Tensor | None:
        """The state that stage k leaves; None where what it reaches is only looked at."""
        return state.x

    def kept(self, rates: Tensor, state: State, k: int) -> Memory | None:
        """What stage k leaves to the next."""
        return None

    def tables(self, problem: Problem) -> None:
        problem.info.clipped = torch.zeros((), dtype=torch.float64, device=problem.device)

    def cut(self, problem: Problem, rates: Tensor) -> Tensor:
        """Negative rates set to 0; their share of the whole is recorded."""
        kept = rates.clamp_min(0)
        clipped = problem.info.clipped
        if clipped is not None:
            lost = (kept - rates).sum() / kept.sum().clamp_min(1e-300)
            problem.info.clipped = clipped + lost / problem.steps
        return kept


class Euler(Leap):
    def __init__(self, gamma: float = 0.0, minimal: bool = False, hold: bool = True):
        super().__init__(gamma, minimal)
        self.hold = hold

    def law(self, problem, rates, state, h, k):
        x = state.x
        if self.hold:
            return leap(x, rates, h)
        moved = h * rates
        stay = 1 - moved.sum(-1, keepdim=True)
        probs = self.cut(problem, moved.scatter(-1, x.unsqueeze(-1), stay))
        return Categorical(log_of(probs / probs.sum(-1, keepdim=True)))


class TauLeaping(Leap):
    def __init__(self, gamma: float = 0.0, minimal: bool = False, ordinal: bool = False):
        super().__init__(gamma, minimal)
        self.ordinal = ordinal

    def law(self, problem, rates, state, h, k):
        x = state.x
        if self.ordinal:
            return Categorical(log_of(displaced(x, h * rates)))
        events = h * rates.sum(-1, keepdim=True)
        once = h * rates * torch.exp(-events)
        return Categorical(log_of(once.scatter(-1, x.unsqueeze(-1), 1 - once.sum(-1, keepdim=True))))


def displaced(x: Tensor, means: Tensor) -> Tensor:
    """The law of x + the sum of displacements y - x of Poisson(means_y) events each, cut to the range.

    A compound Poisson law on the integers: its transform is exp(sum_y means_y (w^(y - x) - 1)), taken on a ring so long that
    what goes round it, 32 events or more, has a mass below 1e-10.  That holds for up to EVENTS events on average; larger
    means, of a step that is far too long for frozen rates, are scaled down to that number.
    """
    size = means.shape[-1]
    means = means.scatter(-1, x.unsqueeze(-1), 0.0)  # an event without displacement
    means = means * (EVENTS / means.sum(-1, keepdim=True).clamp_min(EVENTS))
    ring = 1 << (64 * size).bit_length()
    places = (torch.arange(size, device=x.device) - x.unsqueeze(-1)) % ring
    jumps = torch.zeros(*x.shape, ring, dtype=torch.float64, device=x.device).scatter(-1, places, means.double())
    law = torch.fft.irfft(torch.exp(torch.fft.rfft(jumps) - means.sum(-1, keepdim=True)), n=ring).clamp_min(0)
    where = torch.arange(ring, device=x.device)
    shift = torch.where(where < ring // 2, where, where - ring)
    target = (x.unsqueeze(-1) + shift).clamp(0, size - 1)
    probs = torch.zeros(*x.shape, size, dtype=torch.float64, device=x.device).scatter_add(-1, target, law)
    return probs / probs.sum(-1, keepdim=True)


class _TwoLeaps(Leap):
    stages = 2

    def __init__(self, theta: float = 0.5, gamma: float = 0.0, minimal: bool = False):
        super().__init__(gamma, minimal)
        self.theta = theta

    def stage_times(self, problem, tables):
        return [(t, t - self.theta * (t - s)) for t, s in pairwise(problem.times.tolist())]

    def law(self, problem, rates, state, h, k):
        return self.second(problem, rates, state, h) if k else leap(state.x, rates, self.theta * h)

    def kept(self, rates, state, k):
        return None if k else FirstLeap(state.x, rates)

    @abstractmethod
    def second(self, problem: Problem, rates: Tensor, state: State, h: Tensor) -> Categorical: ...


class ThetaTrapezoidal(_TwoLeaps):
    """Of order 2 while nothing is cut (`info.clipped` is 0) or only what cancels, of order 1 otherwise."""

    order = 2

    def __init__(self, theta: float = 0.5, gamma: float = 0.0, minimal: bool = False):
        if not 0 < theta < 1:
            raise ValueError(f"theta = {theta:g}: choose it in (0, 1)")
        super().__init__(theta, gamma, minimal)

    def second(self, problem, rates, state, h):
        a, x = 1 / (2 * self.theta * (1 - self.theta)), state.x
        mixed = (a * rates - (a - 1) * state.memory.rates).scatter(-1, x.unsqueeze(-1), 0.0)
        return leap(x, self.cut(problem, mixed), (1 - self.theta) * h)


class ThetaRK2(_TwoLeaps):
    """Of order 1 in law, for the mixed second difference above: it is here to be compared with."""

    order = 1

    def __init__(self, theta: float = 0.5, gamma: float = 0.0, minimal: bool = False):
        if not 0 < theta <= 1:
            raise ValueError(f"theta = {theta:g}: choose it in (0, 1]")
        super().__init__(theta, gamma, minimal)

    def second(self, problem, rates, state, h):
        b, first = 1 / (2 * self.theta), state.memory
        mixed = (b * rates + (1 - b) * first.rates).scatter(-1, first.x.unsqueeze(-1), 0.0)
        return leap(first.x, self.cut(problem, mixed), h)

    def origin(self, state, k):
        return state.memory.x if k else None
