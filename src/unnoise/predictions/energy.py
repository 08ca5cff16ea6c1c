"""An energy: one number for the whole state, on any space.

    E(x, t) = log q_t(x) + any function of t

The marginal is not normalised and need not be: a reverse process asks for differences of log q_t alone,

    numbers      the score            grad_x E
    categories   the ratios           log q_t(y)/q_t(x_t) = E(y, t) - E(x_t, t),   y another category in one coordinate
    counts       the same             at x_t - 1 and x_t + 1

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
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from unnoise.checks import leaf_time
from unnoise.laws import LOG_ZERO, Law
from unnoise.predictions import variance as variances
from unnoise.predictions.base import Kind, Prediction
from unnoise.predictions.continuous import Score
from unnoise.predictions.counts import CountRatio
from unnoise.predictions.finite import Ratio
from unnoise.predictions.product import ProductPrediction
from unnoise.processes import FiniteProcess, Gaussian, Process, Product, Thinning
from unnoise.shapes import Float, Tree
from unnoise.spaces import Euclidean, tree_leaves
from unnoise.tree import batch_size, map_leaves, pick, replace

CHUNK = 2**20  # coordinates of the states that are put to the network at once

Function = Callable[[Tree, Tensor | None], Tensor]


class Energy(Prediction):
    """log q_t(x) + const(t) as a function of the state.

    `function(x, rows)` is the energy of each state of x, at the time and condition of the row of the batch that `rows` names
    for it; None names every row once.
    """

    joint = True

    def __init__(self, function: Function, process: Process, x_t: Tree, t: Tree, variance: variances.Variance | None = None):
        self.function, self.process, self.x_t, self.t, self.variance = function, process, x_t, t, variance
        self._differences: dict[bool, Prediction] = {}

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

    def local(self) -> Tree:
        return self.by_leaf().local()

    def step(self, s: Tree) -> Law:
        return self.by_leaf().step(s)

    def to(self, kind: type[Kind] | dict[str, Any], **options) -> Any:
        """By way of the score or the ratios; on a product name the leaves: `energy.to({"age": Noise})`."""
        if kind is type(self):
            return self
        return self.by_leaf().to(kind, **options)  # type: ignore[arg-type]

    def _slopes(self, graph: bool) -> tuple[Tensor, dict[tuple[str, ...], Tensor]]:
        """The energy at x_t and its gradient in each leaf of numbers; with a graph, to be differentiated again."""
        paths = [path for path, space in tree_leaves(self.process.state_space) if isinstance(space, Euclidean)]
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

    def _leaf(self, process: Process, path: tuple[str, ...], t: Tree, here: Tensor, slopes: dict) -> Prediction:
        x = pick(self.x_t, path)
        if isinstance(process, Product):
            leaves = {
                name: self._leaf(part, (*path, name), leaf_time(t, name), here, slopes)
                for name, part in process.leaves.items()
            }
            return ProductPrediction(leaves, process, x, t)
        if isinstance(process, Gaussian):
            return Score(slopes[path], process, x, t, self.variance)
        if isinstance(process, Thinning):
            to = torch.stack([x - 1, x + 1], -1)
            wanted = torch.stack([(x > 0) & (not process.pure_death), torch.ones_like(x, dtype=torch.bool)], -1)
            return CountRatio(self._ratios(path, to, wanted, here, 0.0), process, x, t)
        if isinstance(process, FiniteProcess):
            wanted = process.log_rates_into(x, process.times(t, x)) > LOG_ZERO / 2
            to = torch.arange(wanted.shape[-1], device=x.device).expand(wanted.shape)
            value = self._ratios(path, to, wanted, here, LOG_ZERO)
            return Ratio(value.scatter(-1, x.unsqueeze(-1), 0.0), process, x, t)
        raise TypeError(f"an energy has no differences on {type(process).__name__}: use numbers, categories or counts")

    def _ratios(self, path: tuple[str, ...], to: Tensor, wanted: Tensor, here: Tensor, unknown: float) -> Tensor:
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


def _at_least_single(energy: Tensor) -> Tensor:
    """Differences of energies are no matter for half precision."""
    return energy if energy.dtype in (torch.float32, torch.float64) else energy.float()
