"""An update recorded once and launched as a whole: for networks that the device runs faster than the host can launch them.

After a few plain updates, which allocate and compile what is needed, the next one is recorded as a CUDA graph: every kernel
of the loss, its gradient, the optimiser and the averaged copies.  What differs between updates lies in buffers that are
filled before each replay: the data, the numbers of its rows, the key of their noise, the learning rate, the weights of the
copies.  Noise is a function of row and key, so the numbers are those of a plain update.

What cannot be recorded, such as a network that asks the device for a value, is said once and run in the plain way.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.samplers.captured import cuda_graph
from unnoise.shapes import AnyState, Tree
from unnoise.tree import map_leaves

PLAIN = 3  # updates before one is recorded

Apply = Callable[[list[tuple[Tree, NoiseSource]], int, float | Tensor, Mapping[float, float | Tensor]], None]


class _Recorded:
    """The buffers of one kind of update, and its replay."""

    def __init__(self, apply: Apply, x0: Tree, rows: Tensor, rates: list[float], record: Callable):
        device = rows.device
        self.x0, self.rows = map_leaves(Tensor.clone, x0), rows.clone()
        self.key, self.lr = torch.zeros((), dtype=torch.int64, device=device), torch.zeros((), device=device)
        self.weights: dict[float, float | Tensor] = {rate: torch.zeros((), device=device) for rate in rates}
        self.replay = record(lambda: apply([(self.x0, NoiseSource.keyed(self.key, self.rows))], 1, self.lr, self.weights))

    def __call__(self, x0: Tree, noise: NoiseSource, lr: float, weights: Mapping[float, float]) -> None:
        _copy(self.x0, x0)
        self.rows.copy_(noise.rows)
        self.key.fill_(noise.key)
        self.lr.fill_(lr)
        for rate, weight in weights.items():
            self.weights[rate].fill_(weight)  # type: ignore[union-attr]
        self.replay()


class Captured:
    """Updates of a learner: the first few plainly, the others by replay.  `parameters` are those that it moves."""

    def __init__(
        self,
        apply: Apply,
        record: Callable[[Callable[[], None]], Callable[[], None]] = cuda_graph,
        parameters: Sequence[Tensor] = (),
    ):
        self.apply, self.record, self.parameters = apply, record, parameters
        self.seen: dict[Any, int] = {}
        self.recorded: dict[Any, _Recorded] = {}
        self.refused = False
        self.seconds = 0.0  # that recordings took

    def __call__(self, x0: Tree, noise: NoiseSource, lr: float, weights: Mapping[float, float], kind: int = 1) -> None:
        """`kind` tells updates apart that launch different kernels."""
        shapes: list[tuple[int, ...]] = []
        map_leaves(lambda leaf: shapes.append(tuple(leaf.shape)), x0)
        which = (kind, *shapes)
        self.seen[which] = self.seen.get(which, 0) + 1
        if self.seen[which] > PLAIN and which not in self.recorded and not self.refused:
            began = perf_counter()
            try:
                self.recorded[which] = _Recorded(self.apply, x0, noise.rows, list(weights), self.record)
            except RuntimeError as error:
                self.refused = True
                for p in self.parameters:  # what a backward pass left would be added to
                    p.grad = None
                reason = str(error).strip().splitlines()[0]
                warnings.warn(f"the update cannot be recorded and is launched kernel by kernel: {reason}", stacklevel=2)
            self.seconds += perf_counter() - began
        if which in self.recorded:
            self.recorded[which](x0, noise, lr, weights)
        else:
            self.apply([(x0, noise)], 1, lr, weights)


def _copy(to: Tree, source: AnyState) -> None:
    if isinstance(to, dict):
        for name in to:
            _copy(to[name], source[name])
    else:
        to.copy_(source)
