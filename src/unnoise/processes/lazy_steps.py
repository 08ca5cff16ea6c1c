"""Reverse steps whose probabilities are worked out only when asked for: to draw, less will do.

    PushedStep    kernels that are matrices: a product with Q_{s|0}, the evidence, a draw (`kernels.pushed`)
    RaisedStep    rank-one noise: only coordinates that can move are asked for logits (`kernels.raised`)

Logits are made by chunks of coordinates and forgotten, so nothing of the size [batch, *shape, categories] stands in memory
unless the network made it.  A draw falls on the category that the probabilities would give for the same uniform number, but
for numbers as close to an edge as rounding: in float32 a share of some 1e-5 of all draws.
"""

from abc import abstractmethod
from collections.abc import Iterator
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
        self._plain: Categorical | None = None

    @property
    def plain(self) -> Categorical:
        """Its probabilities, made once when they are asked for (a compiler cannot follow the lock of a cached property)."""
        if self._plain is None:
            self._plain = self.process.reverse_step(self.x_t, self.theta.log_theta(), self.s, self.t)
        return self._plain

    @property
    def log_probs(self) -> Float[Tensor, "batch *shape size"]:  # type: ignore[override]
        return self.plain.log_probs

    def drawn(self, noise: NoiseSource) -> Int[Tensor, "batch *shape"]:
        u = noise.uniform(tuple(self.x_t.shape[1:]))
        if type(u) is not Tensor:  # numbers that stay open until they are compared: then what they decide must be in sight
            return super().drawn(noise)
        with torch.no_grad():
            return self.at(u.flatten()).reshape(self.x_t.shape)

    @abstractmethod
    def at(self, u: Float[Tensor, "coordinates"]) -> Int[Tensor, "coordinates"]:
        """The categories on which uniform numbers fall."""

    def together(self) -> int:
        """Coordinates of a chunk."""
        least, entries = (FEWEST, CACHED) if self.x_t.device.type == "cpu" else (MANY, LARGE)
        return max(least, entries // self.process.state_space.size)


class PushedStep(LazyStep):
    """Under kernels that are matrices, one for all rows or one for each."""

    process: "DenseProcess"

    def at(self, u: Float[Tensor, "coordinates"]) -> Int[Tensor, "coordinates"]:
        x, tables = self.x_t.flatten(), self.process.step_tables(self.x_t, self.s, self.t)
        row = self.process.space.dimension if len(tables.push) > 1 else 1  # coordinates with the same matrices stay together
        out = torch.empty_like(x)
        for part in _slices(len(x), max(1, self.together() // row) * row):
            own = tables[part.start // row : part.stop // row]
            shape = (len(own.push), -1)
            logits = self.theta.output_at(part).reshape(*shape, self.process.space.size)
            found = pushed.draw(own, logits, x[part].reshape(shape), u[part].reshape(shape), may_read(x))
            out[part] = found.flatten()
        return out


class RaisedStep(LazyStep):
    """Under rank-one noise."""

    process: "RankOne"

    def at(self, u: Float[Tensor, "coordinates"]) -> Int[Tensor, "coordinates"]:
        x, known = self.x_t.flatten(), self.process.raised(self.x_t, self.s, self.t, u)
        out, moving = x.clone(), known.may_move()
        parts = moving.nonzero().squeeze(-1).split(self.together()) if may_read(x) else _slices(len(x), self.together())
        for part in parts:
            out[part] = raised.draw(self.theta.output_at(part), known[part])
        return torch.where(moving, out, x)


def _slices(count: int, together: int) -> Iterator[slice]:
    for first in range(0, count, together):
        yield slice(first, min(first + together, count))


def library_s_own(process: FiniteProcess, *methods: str) -> bool:
    """Whether these methods are the library's own: a process that answers one differently has kernels of another kind."""
    return all(getattr(type(process), name).__module__.startswith("unnoise.processes.") for name in methods)
