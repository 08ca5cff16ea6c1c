"""Reverse steps whose probabilities are worked out only when asked for: to draw, less will do.

    PushedStep    kernels that are matrices: a product with Q_{s|0}, the evidence, a draw (`kernels.pushed`)
    RaisedStep    rank-one noise: only coordinates that can move are asked for logits (`kernels.raised`)

Logits are made by chunks of coordinates and forgotten, so nothing of the size [batch, *shape, categories] stands in memory
unless the network made it.  A draw falls on the category that the probabilities would give for the same uniform number, but
for numbers as close to an edge as rounding: in float32 a share of some 1e-5 of all draws.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unnoise.checks import may_read, ordered
from unnoise.kernels import pushed, raised
from unnoise.laws import Categorical
from unnoise.noise import NoiseSource
from unnoise.processes.finite import CleanLogits, FiniteProcess
from unnoise.shapes import Clock, Float, Int

if TYPE_CHECKING:
    from unnoise.processes.dense import DenseProcess
    from unnoise.processes.rank_one import RankOne

# coordinates of a chunk, at least, and its logits: on the host what a cache holds (but so many as are worth reading the
# head's weights for), on an accelerator little memory in few launches
FEWEST, CACHED = 256, 2**18
MANY, LARGE = 1024, 2**26


class LazyStep(Categorical):
    """q(x_t | x_s) (Q_s theta)(x_s), normalised."""

    process: Any

    def __init__(self, process: FiniteProcess, x_t: Int[Tensor, "batch *shape"], theta: CleanLogits, s: Clock, t: Clock):
        ordered(process.times(s, x_t, "s"), process.times(t, x_t))
        self.process, self.x_t, self.theta, self.s, self.t = process, x_t, theta, s, t

    @cached_property
    def plain(self) -> Categorical:
        return self.process.reverse_step(self.x_t, self.theta.log_theta(), self.s, self.t)

    @property
    def log_probs(self) -> Float[Tensor, "batch *shape size"]:  # type: ignore[override]
        return self.plain.log_probs

    def together(self) -> int:
        """Coordinates of a chunk."""
        least, entries = (FEWEST, CACHED) if self.x_t.device.type == "cpu" else (MANY, LARGE)
        return max(least, entries // self.process.state_space.size)


class PushedStep(LazyStep):
    """Under kernels that are matrices, one for all rows or one for each."""

    process: "DenseProcess"

    @torch.no_grad()
    def draw(self, noise: NoiseSource) -> Int[Tensor, "batch *shape"]:
        u, x = noise.uniform(tuple(self.x_t.shape[1:])).flatten(), self.x_t.flatten()
        tables, readable = self.process.step_tables(self.x_t, self.s, self.t), may_read(x)
        row = self.process.space.dimension if len(tables.push) > 1 else 1  # coordinates with the same matrices stay together
        out = torch.empty_like(x)
        for part in _slices(len(x), max(1, self.together() // row) * row):
            groups = slice(part.start // row, part.stop // row) if row > 1 or len(tables.push) > 1 else slice(0, 1)
            own = tables[groups]
            shape = (len(own.push), -1)
            logits = self.theta.output_at(part).reshape(*shape, self.process.space.size)
            found = pushed.draw(own, logits, x[part].reshape(shape), u[part].reshape(shape), readable)
            out[part] = found.flatten()
        return out.reshape(self.x_t.shape)


class RaisedStep(LazyStep):
    """Under rank-one noise."""

    process: "RankOne"

    @torch.no_grad()
    def draw(self, noise: NoiseSource) -> Int[Tensor, "batch *shape"]:
        u, x = noise.uniform(tuple(self.x_t.shape[1:])).flatten(), self.x_t.flatten()
        known = self.process.raised(self.x_t, self.s, self.t, u)
        if may_read(x):
            out = x.clone()
            for part in known.may_move().nonzero().squeeze(-1).split(self.together()):
                out[part] = raised.draw(self.theta.output_at(part), known[part])
            return out.reshape(self.x_t.shape)
        found = [raised.draw(self.theta.output_at(part), known[part]) for part in _slices(len(x), self.together())]
        return torch.where(known.may_move(), torch.cat(found), x).reshape(self.x_t.shape)


def _slices(count: int, together: int) -> Iterator[slice]:
    for first in range(0, count, together):
        yield slice(first, min(first + together, count))


def library_s_own(process: FiniteProcess, *methods: str) -> bool:
    """Whether these methods are the library's own: a process that answers one differently has kernels of another kind."""
    return all(getattr(type(process), name).__module__.startswith("unnoise.processes.") for name in methods)
