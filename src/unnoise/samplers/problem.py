"""One run: what is drawn from, over which times, with which noise, and the record of what it took."""

from copy import copy, deepcopy
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from unnoise import tree
from unnoise.checks import as_times
from unnoise.clocks import moments, spread
from unnoise.conditions import Condition, rows_of
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.shapes import Float, Tree


@dataclass
class Info:
    """What a run did."""

    calls: int = 0  # evaluations of the network
    rows: int = 0  # rows given to it, over all evaluations
    jumps: Tensor | None = None  # coordinate changes per sample, where the method counts them
    clipped: Tensor | None = None  # share of rates that were negative and set to 0, where the method may do so
    end_errors: tuple[float, float] | None = None  # in total variation at most, of an event method's first and last piece
    times: Tensor | None = None  # the grid
    trajectory: list[Tree] | None = None  # states at the grid's times, when asked for
    seed: int | None = None  # by which the run can be repeated
    stopped: float | None = None  # the time at which a callback ended the run
    batch: int | None = None  # rows at a time, where they were drawn in batches
    particles: Any = None  # what became of them, of methods that weigh (`samplers.particles.ParticleRecord`)
    rejection: Any = None  # how many samples a rule let through, where one was asked for (`guidance.rejection`)
    computed: Any = None  # cells of columns that a rule has computed from others, by name (`guidance.equalities`)
    failure: str | None = None  # why later batches were not drawn, where what was drawn before is kept
    way: str | None = None  # and how the kernels of a batch were launched (`samplers.many`)


Part = TypeVar("Part", bound=nn.Module)


def on_host(part: Part) -> Part:
    """A schedule, or a process, on the CPU, where tables are made: itself, or a copy where its parameters are elsewhere."""
    held = [*part.parameters(), *part.buffers()]
    return part if all(value.device.type == "cpu" for value in held) else deepcopy(part).cpu()


class Problem:
    """One run: the denoiser, its condition, the grid, the noise, and the record."""

    def __init__(
        self,
        denoiser: AnyDenoiser,
        times: Float[Tensor, "times"],
        noise: NoiseSource,
        condition: Condition,
        process: Process | None = None,
        info: Info | None = None,
    ):
        self.denoiser, self.process = denoiser, process or denoiser.process.base
        self.times, self.noise, self.condition = times, noise, condition
        self.device = noise.rows.device
        self.clock = times.to(self.device)  # the same times where the states are
        self.info = info or Info(times=times)
        self.given = False  # whether the first states were given, not drawn from the prior
        self.chosen: Tensor | None = None  # which rows of the whole run these are; None: all of them
        self._parts: dict[str, tuple[NoiseSource, Problem]] = {}

    @property
    def steps(self) -> int:
        return len(self.times) - 1

    def part(self, name: str) -> "Problem":
        """The same run as one leaf of a product sees it."""
        noise, other = self._parts.get(name, (None, self))
        if noise is self.noise and other.condition is self.condition and other.info is self.info:
            return other
        other = self._copy()
        other.process, other.noise = self.process.leaves[name], self.noise.at(name)
        self._parts[name] = self.noise, other
        return other

    def _copy(self) -> "Problem":
        """The same, with parts of its own."""
        other = copy(self)
        other._parts = {}
        return other

    def rows(self, index: Tensor, numbers: Tensor | None = None) -> "Problem":
        """The same run for some of its rows, which keep their noise unless they are given other numbers."""
        other = self._copy()
        other.noise, other.condition = self.noise.of(index), rows_of(self.condition, index)
        other.chosen = index if self.chosen is None else self.chosen[index]
        if numbers is not None:
            other.noise.rows = numbers
        return other

    def over(self, times: Float[Tensor, "times"], info: Info) -> "Problem":
        """The same run over another grid, with a record of its own."""
        other = self._copy()
        other.times, other.clock, other.info = times, times.to(self.device), info
        return other

    def moments(self, times: Tree[list[float]]) -> list[Tree]:
        """Times of the loop, moved to the device at once: a list of numbers, or such a list for each leaf."""
        if isinstance(times, dict):
            leaves = {name: self.moments(values) for name, values in times.items()}
            count = len(next(iter(leaves.values())))
            return [{name: values[i] for name, values in leaves.items()} for i in range(count)]
        return moments(torch.as_tensor(times, dtype=torch.float64).to(self.device))  # type: ignore[return-value]

    def predict(self, x: Tree, t: Tree) -> Prediction:
        """The denoiser at time t, a number or one for each row (or for each leaf such a time)."""
        rows, passes = tree.batch_size(x), self.denoiser.passes
        self.info.calls += passes
        self.info.rows += rows * passes
        if isinstance(t, Tensor):
            return self.denoiser(x, spread(t, rows), **self.condition)

        def clock(time: Any) -> Tensor:
            return spread(time, rows) if isinstance(time, Tensor) else as_times(time, rows, self.device)

        return self.denoiser(x, tree.map_leaves(clock, t), **self.condition)

    def predict_rows(self, x: Tree, t: Tensor, rows: Tensor | None) -> Prediction:
        """The denoiser on some rows of the batch, with their share of the condition; None: on all."""
        if rows is None:
            return self.predict(x, t)
        part = self._copy()
        part.condition = rows_of(self.condition, rows)
        return part.predict(tree.rows(x, rows), t[rows] if t.ndim else t)
