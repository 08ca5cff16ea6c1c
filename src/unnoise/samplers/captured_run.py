"""A whole run as one CUDA graph: every step's kernels are recorded once and started together.

    draw = CapturedRun(denoiser, 4096, steps=50, sampler=DDIM())
    x, info = draw(first=0)
    y, info = draw(first=4096)        # the next 4096 samples

A step of a small network takes the device less time than the host needs to launch it.  Recorded, the host launches once per
batch.  Sample i is the same as that of `sample` with the same seed: the numbers drawn are a function of the row's index, and
that index is what a replay is given.  So are states to start from and conditions, if there are any: those that a run is made
with say their form, and each call copies its own to where they lay.

Methods with a fixed grid can be recorded; those that ask the device what to do next cannot.  Elsewhere than on CUDA every
batch is sampled in the plain way.
"""

from collections.abc import Callable
from copy import copy
from dataclasses import replace
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.conditions import Condition, checked
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.samplers.base import Sampler, Stepping
from unnoise.samplers.captured import cuda_graph, put
from unnoise.samplers.finish import finished, read_off
from unnoise.samplers.problem import Info, Problem
from unnoise.samplers.run_grid import Grid, grid_of
from unnoise.samplers.sample import chosen, row_numbers, sample, seed_of
from unnoise.shapes import Int, Tree
from unnoise.tree import batch_size, map_leaves


class CapturedRun:
    """Draws batches of n samples; records itself when made.

    `x` are states to start from, `n` of them.  What a library or a compiler does in a first run it must not do while a
    recording is made, so the run is made once before; with `warm_up=False` the caller has done so.
    """

    recorded_on: tuple[str, ...] = ("cuda",)
    record: Callable[[Callable[[], None]], Callable[[], None]] = staticmethod(cuda_graph)

    def __init__(
        self,
        denoiser: AnyDenoiser,
        n: int,
        steps: int | None = None,
        sampler: Sampler | None = None,
        grid: Grid = None,
        seed: int | None = None,
        *,
        calls: int | None = None,
        start: float | None = None,
        end: float | None = None,
        x: Tree | None = None,
        condition: Condition | None = None,
        warm_up: bool = True,
    ):
        sampler, steps = chosen(denoiser, steps, sampler, grid, calls, None)
        if not isinstance(sampler, Stepping):
            raise TypeError(f"{type(sampler).__name__} asks the device what to do next, so its run cannot be recorded")
        if n < 1:
            raise ValueError(f"n = {n}: record a run of at least one sample")
        self.denoiser, self.n, self.sampler, self.seed = denoiser, n, sampler, seed_of(seed)
        self.x, self.condition = self._states(x), checked(condition, n)
        self.times = grid_of(denoiser, steps, grid, start, end, sampler)
        self.dtype, self.device = denoiser.dtype, denoiser.device
        self.drawn: Tree | None = None
        self.replay: Callable[[], None] | None = None
        if self.device.type in self.recorded_on:
            self._record(warm_up)

    def _states(self, x: Tree | None) -> Tree | None:
        """States to start from, if there are as many as the run has rows."""
        if x is None:
            return None
        x = self.denoiser.process.state_space.check(x, "x")
        if batch_size(x) != self.n:
            raise ValueError(f"x has {batch_size(x)} rows, and the run was recorded for {self.n}: pass as many")
        return x

    @torch.no_grad()
    def _record(self, warm_up: bool) -> None:
        self.rows = torch.arange(self.n, device=self.device)
        self.x = None if self.x is None else map_leaves(lambda leaf: leaf.to(self.device).clone(), self.x)
        self.condition = map_leaves(lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, self.condition)  # type: ignore[assignment]
        problem = Problem(self.denoiser, self.times, NoiseSource(self.seed, self.rows), self.condition)
        self.setup, self.problem = self.sampler.setup(problem), problem  # every replay reads their tensors
        self.begun = replace(problem.info, seed=self.seed)
        # once beforehand: kernels are compiled, and tables made of what is predicted, which cannot be sent there later
        self._run(problem, self.setup, problem.steps if warm_up else 1)
        self.replay = self.record(self._once)

    def _once(self) -> None:
        """The run, its samples written to where those of the recording lie."""
        self.problem.info = replace(self.begun)
        drawn = self._run(self.problem, self.setup, self.problem.steps)
        if self.drawn is None:
            self.drawn = drawn
        else:
            put(self.drawn, drawn, "x")

    def _run(self, problem: Problem, setup: Any, steps: int) -> Tree:
        x = self.x
        if x is None:
            prior = self.denoiser.process.prior(self.n, self.dtype, self.device)
            x = prior.draw(problem.noise.at("prior"))
        state = self.sampler.init(problem, setup, x)
        for i in range(steps):
            state = self.sampler.step(problem, setup, state, i)
        problem.info.jumps = state.jumps
        return state.x

    @torch.no_grad()
    def __call__(
        self,
        first: int = 0,
        *,
        x: Tree | None = None,
        condition: Condition | None = None,
        rows: Int[Tensor, "rows"] | None = None,
    ) -> tuple[Tree, Info]:
        """Samples first ... first + n - 1, or those of `rows`.  A run that was made with states to start from is given those
        of each batch; a condition stays as it is unless another one is given."""
        if (x is None) != (self.x is None):
            raise ValueError(
                "the run was recorded " + ("from states x: pass them" if x is None else "from the prior: leave x out")
            )
        x = self._states(x)
        if self.replay is None:
            start: dict[str, Any] = {"n": self.n} if x is None else {"x": x}
            told = self.condition if condition is None else condition
            return sample(
                self.denoiser,
                sampler=self.sampler,
                grid=self.times,
                seed=self.seed,
                condition=told,
                first=first,
                rows=rows,
                **start,
            )
        self.rows.copy_(row_numbers(rows, first, self.n, self.device))
        if x is not None:
            put(self.x, x, "x")
        if condition is not None:
            put(self.condition, checked(condition, self.n), "condition")
        self.replay()
        problem, info = copy(self.problem), self.problem.info
        jumps, clipped = (None if part is None else part.clone() for part in (info.jumps, info.clipped))
        problem.info = replace(info, jumps=jumps, clipped=clipped)  # the next replay writes over all of it
        drawn = finished(self.sampler, problem, map_leaves(Tensor.clone, cast(Tree, self.drawn)), None)
        return read_off(problem, drawn), problem.info
