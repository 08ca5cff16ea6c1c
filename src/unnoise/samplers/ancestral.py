"""Ancestral steps: the model's own kernel p(x_s | x_t), drawn (eq:reverse_p_theta_dt).

Any prediction that has a kernel will do: `prediction.step(s).draw(noise)`.  On numbers that kernel is a normal law with a
mean linear in x_t and in what was predicted,

    x_s = on_x x_t + on_value value + std L z,

and the coefficients follow from the times, the kind of prediction and the choice of its variance.  Like those of any other
linear method they are computed in float64 on the host, for all steps at once, when a run meets a kind for the first time; a
step is then one combination of arrays (`samplers.combinations`).  The same holds for the way back up between rounds, x_t =
alpha_{t|s} x_s + sigma_{t|s} L z.  What has no such table, or none at some step, is drawn as it says itself; so is all with
`fast=False`, the reference: with the same noise, and equal up to rounding.
"""

from typing import Any, cast

import torch
from torch import Tensor

from unnoise.checks import remembering
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction, ProductPrediction
from unnoise.processes import Process
from unnoise.samplers.base import OneStep
from unnoise.samplers.coefficients import settled
from unnoise.samplers.combinations import Coefficient, combine
from unnoise.samplers.finish import leaf_processes
from unnoise.samplers.problem import Problem, on_host
from unnoise.shapes import AnyState, Tree
from unnoise.tree import choose

LARGE = 1e100  # no coefficient is larger: there the prediction says nothing of x_0

StepRow = tuple[Coefficient, Coefficient, tuple[Coefficient, ...]]  # on x_t, on the value, what is known of std
RiseRow = tuple[Coefficient, Coefficient]  # on x_s, std


class AncestralTables:
    """The coefficients of every step, found once for each kind of prediction that a run meets."""

    def __init__(self, problem: Problem):
        self.t, self.s, self.device = problem.times[:-1], problem.times[1:], problem.device
        numbers = [leaf for _, leaf in leaf_processes(problem.process) if leaf.has_density and not _learning(leaf)]
        self.hosts: dict[Process, Process] = {leaf: on_host(leaf) for leaf in numbers}
        self.kernels: dict[Any, list[StepRow | None]] = {}
        self.rises: dict[Process, list[RiseRow]] = {}

    def kernel(self, prediction: Prediction, i: int) -> StepRow | None:
        """The row of step i; None: the prediction says it itself."""
        key = prediction.kernel_key
        if key is None:
            return None
        if key not in self.kernels:
            self.kernels[key] = self._kernels(prediction)
        return self.kernels[key][i]

    @torch.no_grad()
    def _kernels(self, prediction: Prediction) -> list[StepRow | None]:
        host = self.hosts.get(prediction.process)
        with remembering():  # a schedule is asked for its values at the same times several times over
            table = None if host is None else prediction.kernel_table(host, self.s, self.t)
        if table is None:
            return [None] * len(self.t)
        columns = [table.on_x, table.on_value, *table.known]
        said = [(c.abs() < LARGE).reshape(len(c), -1).all(1).tolist() for c in columns[:2]]
        on_x, on_value, *known = (settled(c, self.device) for c in columns)
        rows = zip(on_x, on_value, zip(*known, strict=True), *said, strict=True)
        return [(x, value, of_std) if finite and finite_too else None for x, value, of_std, finite, finite_too in rows]

    def rise(self, process: Process, i: int) -> RiseRow | None:
        """From the end of step i back to its start by the forward process; None: the process says it itself."""
        if process not in self.rises:
            self.rises[process] = self._rises(process)
        rows = self.rises[process]
        return rows[i] if rows else None

    @torch.no_grad()
    def _rises(self, process: Process) -> list[RiseRow]:
        table = self.hosts[process].transition_table(self.s, self.t) if process in self.hosts else None
        return [] if table is None else list(zip(*(settled(c, self.device) for c in table), strict=True))


def _learning(process: Process) -> bool:
    """Whether a gradient is to pass through the coefficients themselves."""
    return torch.is_grad_enabled() and any(parameter.requires_grad for parameter in process.parameters())


class Ancestral(OneStep):
    """The model's own kernel p(x_s | x_t), drawn: for every process and prediction that has one.

    On numbers the variance is the denoiser's (posterior, forward, learned, optimal).  On categories the kernel factorises
    over coordinates: exact for one coordinate, of order 1 for several.  On interpolating noise it is Tweedie tau-leaping.

    With `rounds` every step is taken so many times: in between, the forward process noises x_s again to x_t.  There and back
    leaves the law of x_s alone where it is right and brings it nearer where it is not, so what early steps got wrong is
    mended, at a network call for each round (predictor-correctors, churn and restarts do the same).  But where the network
    is wrong, many rounds lead to a law of its own making: count what matters before choosing more than 2.

    With `fast=False` every kernel is drawn as the prediction says it, also where all of them are known as a table.
    """

    order: int | None = 1
    by_rows = True

    def __init__(self, rounds: int = 1, *, fast: bool = True):
        if rounds < 1:
            raise ValueError(f"rounds = {rounds}: every step is taken at least once")
        self.rounds = self.stages = rounds
        self.fast, self.by_rows = fast, self.by_rows and rounds == 1

    def tables(self, problem: Problem) -> AncestralTables | None:
        return AncestralTables(problem) if self.fast else None

    def stage_times(self, problem, tables):
        return [(t,) * self.rounds for t in problem.times[:-1].tolist()]

    def stage(self, problem, tables, prediction, state, i, k, noise):
        x = self.drawn(problem, tables, prediction, i, noise)
        if k + 1 == self.rounds:
            return state.to(x)
        return state.to(self.raised(problem, problem.process, tables, x, i, noise.at("again")))

    def step_rows(self, problem, tables, prediction, state, steps, stays, noise):
        """Each row by the kernel of its own step, as the prediction says it."""
        x = prediction.step(problem.clock[steps + 1]).draw(noise)
        return state.to(choose(stays, state.x, x))

    def drawn(
        self, problem: Problem, tables: AncestralTables | None, prediction: Prediction, i: int, noise: NoiseSource
    ) -> Tree:
        """x_s from the kernel of a prediction at the start of step i."""
        if tables is None:
            return prediction.step(problem.clock[i + 1]).draw(noise)
        prediction = prediction.by_leaf()
        if isinstance(prediction, ProductPrediction):
            leaves = prediction.leaves.items()
            return {name: self.drawn(problem, tables, leaf, i, noise.at(name)) for name, leaf in leaves}
        row = tables.kernel(prediction, i)
        if row is None:
            return prediction.step(problem.clock[i + 1]).draw(noise)
        on_x, on_value, known = row
        value, std = prediction.kernel_terms(known)
        x_t = cast(Tensor, prediction.x_t)
        return combine((x_t, value), [[(on_x, 0), (on_value, 1)]], std, noise, prediction.process.covariance)[0]

    def raised(
        self, problem: Problem, process: Process, tables: AncestralTables | None, x: AnyState, i: int, noise: NoiseSource
    ) -> Tree:
        """x_t from x_s, by the forward process."""
        if process.leaves and tables is not None:
            leaves = process.leaves.items()
            return {name: self.raised(problem, leaf, tables, x[name], i, noise.at(name)) for name, leaf in leaves}
        row = None if tables is None else tables.rise(process, i)
        if row is None:
            return process.transition(x, problem.clock[i + 1], problem.clock[i]).draw(noise)
        on_x, std = row
        return combine((x,), [[(on_x, 0)]], std, noise, process.covariance)[0]
