"""What holds along simulated paths: Dynkin's formula, the exponential martingale, the density of one path law by another.

A path is simulated in small steps, each from the law `Space.step_law` of a generator that is frozen for the step.  Along it

    M = phi(x_T, T) - phi(x_0, 0) - int (d/dt + L) phi dt                           has mean 0           (Dynkin)
    W = h(x_T)/h(x_0) exp(-int L h/h dt)                                            has mean 1           (exponential)
    log dP/dQ = log p(x_0)/q(x_0) + sum over steps of log p(x'|x)/q(x'|x)           has mean KL(P || Q)  (Girsanov)

The first two hold up to the step's error, O(step), and integrals are taken by the trapezoidal rule; the third is exact for
the chains of steps themselves.  Means come with their standard errors, so that the divergence of two path laws, which the
bound is made of, can be had in two ways that share nothing: this one, and the integral of `divergence_rate`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isfinite
from typing import Any

import torch
from torch import Tensor

from unnoise.generators.generator import Function, Generator, one_per_row
from unnoise.generators.local import divergence_rate
from unnoise.laws import Joint, Law
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Float, Tree
from unnoise.spaces import Space
from unnoise.tree import batch_size, map_leaves

InTime = Callable[[float], Generator]  # the generator at a time


@dataclass(frozen=True)
class Estimate:
    """A mean over paths and its standard error."""

    mean: float
    error: float

    @classmethod
    def of(cls, values: Float[Tensor, "paths"]) -> "Estimate":
        if not len(values):
            raise ValueError("a mean over no paths: begin with one state at least, and with many for its error")
        return cls(float(values.mean()), float(values.std() / len(values) ** 0.5) if len(values) > 1 else inf)

    def __str__(self) -> str:
        return f"{self.mean:.6g} ± {self.error:.2g}"


@dataclass(frozen=True)
class Paths:
    """States of many paths at the times of a grid, which may run up or down."""

    times: list[float]
    states: list[Tree]


def step_law(space: Space, local: Any, x: AnyState, h: Tensor) -> Law:
    """The law of a small step, leaf by leaf."""
    if space.leaves:
        return Joint({name: step_law(leaf, local[name], x[name], h) for name, leaf in space.leaves.items()})
    return space.step_law(local, x, h)


def step_from(generator: Generator, x: Tree, h: float) -> Law:
    """Where a generator that is frozen at x leads in a time h."""
    return step_law(generator.space, generator.local(x), x, torch.tensor(abs(h), dtype=torch.float64))


def simulated(generator: InTime, x: Tree, times: list[float], noise: NoiseSource) -> Paths:
    """Paths from x along the times, one small step between each two of them."""
    _check_grid(times)
    if len(noise.rows) != batch_size(x):
        raise ValueError(
            f"noise for {len(noise.rows)} rows and {batch_size(x)} states: un.NoiseSource(seed, {batch_size(x)})"
        )
    states = [x]
    for i, (t, s) in enumerate(pairwise(times)):
        drawn = step_from(generator(t), states[-1], s - t).draw(noise.at("step", i))
        states.append(map_leaves(lambda new, old: new.to(old.dtype), drawn, x))  # times are float64, states need not be
    return Paths(list(times), states)


def _check_grid(times: list[float]) -> None:
    """Times that run one way."""
    steps = [s - t for t, s in pairwise(times)]
    if not steps or not all(isfinite(t) for t in times) or not (all(h > 0 for h in steps) or all(h < 0 for h in steps)):
        shown = ", ".join(f"{t:g}" for t in times[:4])
        raise ValueError(f"times {shown}{', ...' if len(times) > 4 else ''}: give two or more, finite, all up or all down")


def dynkin(generator: InTime, phi: Callable[[AnyState, Tensor], Tensor], paths: Paths) -> Estimate:
    """phi(x_T, T) - phi(x_0, 0) - int (d/dt + L) phi dt, of paths that run up in time: 0 in the mean."""

    def value(i: int) -> Tensor:
        x = paths.states[i]
        return one_per_row(phi(x, torch.full((batch_size(x),), paths.times[i], dtype=torch.float64)), x).detach()

    grown = _integral(paths, lambda x, t: generator(t).extended(phi, x, t))
    return Estimate.of(value(-1) - value(0) - grown)


def exponential_martingale(generator: InTime, log_h: Function, paths: Paths) -> Estimate:
    """h(x_T)/h(x_0) exp(-int L h/h dt): 1 in the mean."""

    def rate(x: Tree, t: float) -> Tensor:
        return generator(t).act(lambda y: log_h(y).exp(), x) / log_h(x).exp()

    last, first = (one_per_row(log_h(x), x) for x in (paths.states[-1], paths.states[0]))
    change = (last - first).detach()
    return Estimate.of((change - _integral(paths, rate)).exp())


def log_density_ratio(true: InTime, model: InTime, paths: Paths) -> Float[Tensor, "paths"]:
    """log dP/dQ of each path given where it begins, P and Q the chains of small steps of two generators."""
    total = torch.zeros(batch_size(paths.states[0]), dtype=torch.float64)
    for (t, s), x, y in zip(pairwise(paths.times), paths.states, paths.states[1:], strict=False):
        own, other = (step_from(generator(t), x, s - t).log_prob(y) for generator in (true, model))
        total = total + (own - other).double()
    return total


def path_divergence(true: InTime, model: InTime, paths: Paths) -> tuple[Estimate, Estimate]:
    """KL of two path laws from the same beginning, over paths of the first: by log dP/dQ, and by the divergence of the
    generators integrated in time."""
    space = true(paths.times[0]).space

    def rate(x: Tree, t: float) -> Tensor:
        return divergence_rate(space, true(t).local(x), model(t).local(x), x)

    return Estimate.of(log_density_ratio(true, model, paths)), Estimate.of(_integral(paths, rate))


def _integral(paths: Paths, rate: Callable[[Tree, float], Tensor]) -> Float[Tensor, "paths"]:
    """Of a rate along each path, by the trapezoidal rule."""
    values = [rate(x, t).double() for x, t in zip(paths.states, paths.times, strict=True)]
    steps = [abs(s - t) for t, s in pairwise(paths.times)]
    return torch.stack([0.5 * h * (a + b) for h, a, b in zip(steps, values, values[1:], strict=False)]).sum(0)
