"""An energy: one number for the whole state, on any space.

    E(x, t) = log q_t(x) + any function of t

The marginal is not normalised and need not be: a reverse process asks for differences of log q_t alone,

    numbers      the score            grad_x E, and on closed spaces its tangent part
    categories   the ratios           log q_t(y)/q_t(x_t) = E(y, t) - E(x_t, t),   y another category in one coordinate
    counts       the same             at x_t - 1 and x_t + 1
    numbers that are thrown           the score, and E(y) - E(x_t) wherever a throw leads

and from there everything is as for `Score`, `Ratio` and `CountRatio`.  On a product one energy of the joint state gives
every leaf its own.  What a network says as an energy is consistent by construction: the score is a gradient field, and
ratios multiply to one around every loop of states, as those of a true marginal do and those of free outputs need not.

The cost is that of taking differences.  A score is one backward pass (and training one through it); the ratios of d
coordinates with K categories are up to d (K - 1) further evaluations, only where the forward process leads back to x_t: the
masked coordinates under masking, the neighbours under sparse rates.  They are made in chunks of at most `CHUNK` numbers, and
in training each chunk is evaluated again on the way back, so that memory does not grow with K.

Near the ends of time an energy must contain what the noise itself says, or its bound is large: under masking log q_t has
log(alpha/(1 - alpha)) for every unmasked coordinate, and where alpha_1 = 0 the energy of categories under other noise tends
to that of the noise alone.  Add the one and fade the rest with alpha, rather than let a network learn them.

A score or a ratio at one state does not determine the energy of the states around it: nothing converts to an energy.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unnoise.checks import leaf_time
from unnoise.generators import Local
from unnoise.laws import LOG_ZERO, Law
from unnoise.predictions import variance as variances
from unnoise.predictions.base import Kind, OutputReading, Prediction
from unnoise.predictions.continuous import Score
from unnoise.predictions.counts import CountRatio
from unnoise.predictions.finite import Ratio
from unnoise.predictions.heat import TangentScore
from unnoise.predictions.jump_scores import ScoreAndRatio
from unnoise.predictions.orthant import OrthantScore
from unnoise.predictions.product import ProductPrediction
from unnoise.predictions.simplex import SimplexScore
from unnoise.processes import (
    CoxIngersollRoss,
    FiniteProcess,
    Gaussian,
    HeatProcess,
    JumpDiffusion,
    Process,
    Thinning,
    WrightFisher,
)
from unnoise.shapes import Clock, Float, Tree
from unnoise.tree import Path, batch_size, map_leaves, pick, replace

CHUNK = 2**20  # coordinates of the states that are put to the network at once

Function = Callable[[Tree, Tensor | None], Tensor]


@singledispatch
def difference_kind(process: Process) -> type[Prediction]:
    """The kind that an energy's differences are on a leaf; it is made by its `of_energy`."""
    name = type(process).__name__
    raise TypeError(
        f"an energy has no differences on {name}: use numbers, categories, counts or angles, or write "
        f"unnoise.predictions.difference_kind.register({name})"
    )


@difference_kind.register(Gaussian)
def _(process: Gaussian) -> type[Prediction]:
    return Score


@difference_kind.register(FiniteProcess)
def _(process: FiniteProcess) -> type[Prediction]:
    return Ratio


@difference_kind.register(Thinning)
def _(process: Thinning) -> type[Prediction]:
    return CountRatio


@difference_kind.register(HeatProcess)
def _(process: HeatProcess) -> type[Prediction]:
    return TangentScore


@difference_kind.register(CoxIngersollRoss)
def _(process: CoxIngersollRoss) -> type[Prediction]:
    return OrthantScore


@difference_kind.register(WrightFisher)
def _(process: WrightFisher) -> type[Prediction]:
    return SimplexScore


@difference_kind.register(JumpDiffusion)
def _(process: JumpDiffusion) -> type[Prediction]:
    return ScoreAndRatio


@dataclass
class EnergyLeaf:
    """What a kind is told of an energy on a leaf."""

    process: Process
    x: Tensor  # the state x_t of the leaf
    t: Tree
    variance: variances.Variance | None
    slope: Tensor | None  # the gradient there; None where the state is no numbers
    ratios: Callable[[Tensor, Tensor, float], Tensor]  # (to, wanted, unknown): E(y) - E(x_t), see `Energy.ratios`
    change: Callable[[Tensor], Tensor] | None = None  # E(y) - E(x_t) for any states y of the leaf, each row n times over


class Energy(Prediction):
    """log q_t(x) + const(t) as a function of the state.

    `function(x, rows)` is the energy of each state of x, at the time and condition of the row of the batch that `rows` names
    for it; None names every row once.
    """

    joint = True

    def __init__(self, function: Function, process: Process, x_t: Tree, t: Tree, variance: variances.Variance | None = None):
        self.function, self.process, self.x_t, self.t, self.variance = function, process, x_t, t, variance
        self._differences: dict[bool, Prediction] = {}

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        return None

    @classmethod
    def of_output(cls, output: Any, process: Process, x_t: Tree, t: Tree, reading: OutputReading) -> "Energy":
        raise TypeError("an Energy is a function of the state: call the denoiser, which asks the network where it must")

    @classmethod
    def of_function(cls, function: Function, process: Process, x_t: Tree, t: Tree, reading: OutputReading) -> "Energy":
        """The prediction that a network as a function of states is."""
        return cls(function, process, x_t, t, reading.variance)

    @classmethod
    def latest(cls, process: Process) -> float:
        return difference_kind(process).latest(process)

    @classmethod
    def cutoff(cls, process: Process) -> float:
        """That of its differences."""
        return difference_kind(process).cutoff(process)

    def with_value(self, value: Function) -> Any:
        """Another function."""
        if not callable(value):
            raise TypeError(f"the value of an Energy is a function of (states, rows), not a {type(value).__name__}")
        return type(self)(value, self.process, self.x_t, self.t, self.variance)

    def at(self, t: Tree) -> Any:
        """The same function, said to be of another time."""
        return type(self)(self.function, self.process, self.x_t, t, self.variance)

    @property
    def value(self) -> Float[Tensor, "batch"]:
        return _at_least_single(self.function(self.x_t, None))

    def by_leaf(self) -> Prediction:
        """The `Score`, `Ratio` or `CountRatio` of each leaf, found once."""
        graph = torch.is_grad_enabled()
        if True in self._differences:
            return self._differences[True]
        if graph not in self._differences:
            here, slopes = self._slopes(graph)
            self._differences[graph] = self._leaf(self.process, (), self.t, here, slopes)
        return self._differences[graph]

    def local(self) -> Tree[Local]:
        return self.by_leaf().local()

    def step(self, s: Clock) -> Law:
        return self.by_leaf().step(s)

    def to(self, kind: type[Kind] | dict[str, Any], **options) -> Any:
        """By way of the score or the ratios; on a product name the leaves: `energy.to({"age": Noise})`."""
        if kind is type(self):
            return self
        return self.by_leaf().to(kind, **options)  # type: ignore[arg-type]

    def _slopes(self, graph: bool) -> tuple[Tensor, dict[Path, Tensor]]:
        """The energy at x_t and its gradient in each leaf of numbers; with a graph, to be differentiated again."""
        paths = [path for path, leaf in _paths(self.x_t) if leaf.dtype.is_floating_point]
        if not paths:
            return self.value, {}
        with torch.inference_mode(False), torch.enable_grad():
            x = self.x_t
            for path in paths:
                leaf = pick(x, path)
                x = replace(x, path, leaf if graph and leaf.requires_grad else leaf.detach().clone().requires_grad_())
            here, leaves = _at_least_single(self.function(x, None)), [pick(x, path) for path in paths]
            if here.requires_grad:
                found = torch.autograd.grad(here.sum(), leaves, create_graph=graph, materialize_grads=True)
            else:
                found = tuple(torch.zeros_like(leaf) for leaf in leaves)
        return here if graph else here.detach(), dict(zip(paths, found, strict=True))

    def _leaf(self, process: Process, path: Path, t: Tree, here: Tensor, slopes: dict[Path, Tensor]) -> Prediction:
        x = pick(self.x_t, path)
        if process.leaves:
            leaves = {
                name: self._leaf(part, (*path, name), leaf_time(t, name), here, slopes)
                for name, part in process.leaves.items()
            }
            return ProductPrediction(leaves, process, x, t)

        def ratios(to: Tensor, wanted: Tensor, unknown: float) -> Tensor:
            return self.ratios(path, to, wanted, here, unknown)

        def change(y: Tensor) -> Tensor:
            return self.change(path, y, here)

        return difference_kind(process).of_energy(EnergyLeaf(process, x, t, self.variance, slopes.get(path), ratios, change))

    def change(self, path: Path, y: Tensor, here: Tensor) -> Float[Tensor, "states"]:
        """E(y) - E(x_t) where a leaf goes to y, every row of the batch n times, one after another."""
        row = torch.arange(len(here), device=here.device).repeat_interleave(len(y) // len(here))
        around = replace(map_leaves(lambda leaf: leaf[row], self.x_t), path, y)
        return _at_least_single(self.function(around, row)) - here[row]

    def ratios(self, path: Path, to: Tensor, wanted: Tensor, here: Tensor, unknown: float) -> Tensor:
        """E(y) - E(x_t) where one coordinate of a leaf goes to each of its wanted destinations: [batch, *shape, size]."""
        rows, size = batch_size(self.x_t), to.shape[-1]
        possible = here.detach() > LOG_ZERO / 2  # an oracle's state without mass has no ratios, and is never visited
        index = (wanted.reshape(rows, -1, size) & possible.reshape(-1, 1, 1)).nonzero()
        to = to.reshape(rows, -1, size)
        ratios = torch.full(to.shape, unknown, dtype=here.dtype, device=here.device)
        if not len(index):
            return ratios.reshape(wanted.shape)
        parts = index.split(max(1, CHUNK // self.process.state_space.dimension))

        def energies(part: Tensor) -> Tensor:
            row, k, entry = part.unbind(1)
            y = pick(self.x_t, path)[row].flatten(1) if wanted.ndim > 2 else pick(self.x_t, path)[row].unsqueeze(1)
            y = y.scatter(1, k.unsqueeze(1), to[row, k, entry].unsqueeze(1))
            around = map_leaves(lambda leaf: leaf[row], self.x_t)
            around = replace(around, path, y.reshape(-1, *pick(self.x_t, path).shape[1:]))
            return _at_least_single(self.function(around, row)) - here[row]

        streamed = torch.is_grad_enabled() and len(parts) > 1
        found = [checkpoint(energies, part, use_reentrant=False) if streamed else energies(part) for part in parts]
        return ratios.index_put(tuple(index.unbind(1)), torch.cat(found)).reshape(wanted.shape)


def _paths(x: Tree, path: Path = ()) -> list[tuple[Path, Tensor]]:
    """The leaves of a state with the places they stand at."""
    if not isinstance(x, dict):
        return [(path, x)]
    return [found for name, part in x.items() for found in _paths(part, (*path, name))]


def _at_least_single(energy: Tensor) -> Tensor:
    """Differences of energies are no matter for half precision."""
    return energy if energy.dtype in (torch.float32, torch.float64) else energy.float()
