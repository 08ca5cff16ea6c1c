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

from unnoise.denoiser import AnyDenoiser, base_process
from unnoise.noise import NoiseSource
from unnoise.samplers.base import Ancestral, Info, Problem, Sampler, Stepping
from unnoise.samplers.grids import TimeGrid
from unnoise.samplers.sample import grid_of, refused, sample
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
        grid: TimeGrid | Tensor | list[float] | None = None,
        seed: int = 0,
        *,
        start: float = 1.0,
        end: float | None = None,
        **condition: Any,
    ):
        sampler = sampler or Ancestral()
        if not isinstance(sampler, Stepping):
            raise TypeError(f"{type(sampler).__name__} asks the device what to do next, so its run cannot be recorded")
        refused(sampler, base_process(denoiser.process))
        if n < 1:
            raise ValueError(f"n = {n}: record a run of at least one sample")
        self.denoiser, self.n, self.sampler, self.seed, self.condition = denoiser, n, sampler, seed, condition
        self.times = grid_of(denoiser, steps, grid, start, end)
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
            self._run(problem, self.sampler.prepared(problem))
        torch.cuda.current_stream().wait_stream(stream)
        problem.info = self.info = Info(times=self.times)
        memory, self.graph = self.sampler.prepared(problem), torch.cuda.CUDAGraph()
        self.kept = problem, memory  # every replay reads their tensors
        with torch.cuda.graph(self.graph):
            self.x = self._run(problem, memory)

    def _run(self, problem: Problem, memory: dict) -> Tree:
        prior = self.denoiser.process.prior(self.n, self.dtype, self.device)
        x = prior.draw(problem.noise.at("prior"))
        for i in range(problem.steps):
            x = self.sampler.step(problem, memory, x, i)
        return x

    @torch.no_grad()
    def __call__(self, first: int = 0) -> tuple[Tree, Info]:
        """Samples first ... first + n - 1."""
        if self.graph is None:
            given = {"grid": self.times, "seed": self.seed, "first": first}
            return sample(self.denoiser, self.n, None, self.sampler, **given, **self.condition)  # type: ignore[arg-type]
        torch.arange(first, first + self.n, out=self.rows)
        self.graph.replay()
        return map_leaves(Tensor.clone, self.x), self.info
