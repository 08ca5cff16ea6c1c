"""Discrete time: a process restricted to a grid  t_0 < t_1 < ... < t_T.

A `Chain` answers every question of the process it restricts; it adds the grid, the time before each time, and the
reading that the model is a T-step chain.  Its bound is a sum of KLs over the grid's steps.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import may_read
from unnoise.generators import Local, Reversal
from unnoise.laws import Law
from unnoise.processes.base import Process
from unnoise.shapes import Clock, Tree


class Chain(Process):
    """`Chain(process, 100)` lays 100 equal steps from the process's cut-off to 1; or pass the times themselves."""

    grid: Tensor

    def __init__(self, process: Process, grid: int | Sequence[float] | Tensor):
        super().__init__()
        if isinstance(process, Chain):
            remedy = "pass chain.process and the new grid" if process.has_generator else "its matrices have their own grid"
            raise TypeError(f"the process is a chain of {process.steps} steps already: {remedy}")
        if isinstance(grid, int):
            if grid < 1:
                raise ValueError(f"a chain of {grid} steps: at least one is needed")
            grid = torch.linspace(process.cutoff, 1.0, grid + 1, dtype=torch.float64)
        grid = torch.as_tensor(grid, dtype=torch.float64)
        if grid.ndim != 1 or len(grid) < 2:
            raise ValueError(f"a grid of shape {tuple(grid.shape)}: pass at least two increasing times")
        falls = ~(grid[1:] > grid[:-1])
        if bool(falls.any()):
            i = int(falls.nonzero()[0, 0])
            raise ValueError(f"the grid goes from {grid[i].item():g} to {grid[i + 1].item():g}: times must increase")
        if float(grid[0]) < 0 or float(grid[-1]) > 1:
            raise ValueError(
                f"the grid runs from {grid[0].item():g} to {grid[-1].item():g}, outside [0, 1]: 0 is data, 1 is noise"
            )
        self.process, self.grid, self.has_generator = process, grid, process.has_generator
        self.space, self.state_space = process.space, process.state_space
        self.cutoff, self.end = float(grid[0]), float(grid[-1])

    @property
    def leaves(self) -> dict[str, Process]:
        return self.process.leaves

    @property
    def base(self) -> Process:
        return self.process

    @property
    def steps(self) -> int:
        return len(self.grid) - 1

    def index(self, t: Tensor) -> Tensor:
        """The grid position of each time; a time between grid points is refused."""
        grid = self.grid.to(t.device)
        i = torch.bucketize(t.double().contiguous(), (grid[1:] + grid[:-1]) / 2)
        if may_read(t):
            gap = (grid[i] - t.double()).abs()
            if bool((gap > 1e-6 * (1 + gap)).any()):
                j = int((gap > 1e-6).nonzero()[0, 0]) if t.ndim else 0
                raise ValueError(
                    f"t = {t.reshape(-1)[j].item():.6g} is not on the chain's grid of {self.steps} steps: "
                    f"pass one of chain.grid"
                )
        return i

    def before(self, t: Tensor) -> Tensor:
        """The grid time before each grid time."""
        i = self.index(t)
        if may_read(t) and bool((i == 0).any()):
            raise ValueError(f"t = {self.grid[0].item():g} is the chain's first time: nothing comes before it")
        return self.grid.to(t.device)[i - 1]

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        return self.process.prior(rows, dtype, device)

    def prior_kl(self, x0: Tree, t: Clock | None = None) -> Tensor:
        return self.process.prior_kl(x0, self.end if t is None else t)

    def marginal(self, x0: Tree, t: Clock) -> Law:
        return self.process.marginal(x0, t)

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> Law:
        return self.process.transition(x_s, s, t)

    def posterior(self, x_t: Tree, x0: Tree, s: Clock, t: Clock) -> Law:
        return self.process.posterior(x_t, x0, s, t)

    def local(self, x: Tree, t: Clock) -> Tree[Local]:
        return self.process.local(x, t)

    def reverse(self, x_t: Tree, x0: Tree, t: Clock) -> Reversal:
        return self.process.reverse(x_t, x0, t)

    def noiseless(self, t: float) -> bool:
        return self.process.noiseless(t)

    def movable(self, x_t: Tree) -> Tree:
        return self.process.movable(x_t)

    def support(self, x0: Tree, t: Clock) -> tuple[Tree, Tensor]:
        return self.process.support(x0, t)

    def push(self, q: Any, s: Clock, t: Clock) -> Any:
        return self.process.push(q, s, t)

    def inverse(self, q: Any, s: Clock, t: Clock) -> Any:
        return self.process.inverse(q, s, t)
