"""A whole run as one CUDA graph: every step's kernels are recorded once and started together.

    draw = CapturedRun(denoiser, 4096, steps=50, sampler=DDIM())
    x, info = draw(first=0)
    y, info = draw(first=4096)        # the next 4096 samples

A step of a small network takes the device less time than the host needs to launch it.  Recorded, the host launches once per
batch.  Sample i is the same as that of `sample` with the same seed: the numbers drawn are a function of the row's index, and
that index is what a replay is given.  Methods with a fixed grid can be recorded; those that ask the device what to do next
cannot.  Elsewhere than on CUDA every batch is sampled in the plain way.
"""

from typing import Any

import torch
from torch import Tensor

from unnoise.conditions import Condition, checked
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.samplers.base import Sampler, Stepping
from unnoise.samplers.problem import Info, Problem
from unnoise.samplers.run_grid import Grid, grid_of
from unnoise.samplers.sample import chosen, sample, seed_of
from unnoise.shapes import Tree
from unnoise.tree import map_leaves


class CapturedRun:
    """Draws batches of n samples; records itself when made."""

    def __init__(
        self,
        denoiser: AnyDenoiser,
        n: int,
        steps: int | None = None,
        sampler: Sampler | None = None,
        grid: Grid = None,
        seed: int | None = None,
        *,
        start: float = 1.0,
        end: float | None = None,
        condition: Condition | None = None,
    ):
        sampler, steps = chosen(denoiser, steps, sampler, grid, None, None)
        if not isinstance(sampler, Stepping):
            raise TypeError(f"{type(sampler).__name__} asks the device what to do next, so its run cannot be recorded")
        if n < 1:
            raise ValueError(f"n = {n}: record a run of at least one sample")
        self.denoiser, self.n, self.sampler, self.seed = denoiser, n, sampler, seed_of(seed)
        self.condition = checked(condition, n)
        self.times = grid_of(denoiser, steps, grid, start, end, sampler)
        self.dtype, self.device = denoiser.dtype, denoiser.device
        self.graph: torch.cuda.CUDAGraph | None = None
        if self.device.type == "cuda":
            self._record()

    @torch.no_grad()
    def _record(self) -> None:
        self.rows = torch.arange(self.n, device=self.device)
        problem = Problem(self.denoiser, self.times, NoiseSource(self.seed, self.rows), self.condition)
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # once beforehand: libraries choose their algorithms, kernels are compiled
            self._run(problem, self.sampler.setup(problem))
        torch.cuda.current_stream().wait_stream(stream)
        problem.info = self.info = Info(times=self.times, seed=self.seed)
        setup, self.graph = self.sampler.setup(problem), torch.cuda.CUDAGraph()
        self.kept = problem, setup  # every replay reads their tensors
        with torch.cuda.graph(self.graph):
            self.x = self._run(problem, setup)

    def _run(self, problem: Problem, setup: Any) -> Tree:
        prior = self.denoiser.process.prior(self.n, self.dtype, self.device)
        state = self.sampler.init(problem, setup, prior.draw(problem.noise.at("prior")))
        for i in range(problem.steps):
            state = self.sampler.step(problem, setup, state, i)
        problem.info.jumps = state.jumps
        return state.x

    @torch.no_grad()
    def __call__(self, first: int = 0) -> tuple[Tree, Info]:
        """Samples first ... first + n - 1."""
        if self.graph is None:
            given = {"seed": self.seed, "condition": self.condition, "first": first}
            return sample(self.denoiser, self.n, None, self.sampler, self.times, **given)  # type: ignore[arg-type]
        torch.arange(first, first + self.n, out=self.rows)
        self.graph.replay()
        return map_leaves(Tensor.clone, self.x), self.info
