"""A mixed state is a tree of processes, noised independently leaf by leaf.

Laws multiply, generators and divergences add (eq:generator-dimensional-sum).  Time is one value per row, or a tree of
them with one entry per leaf, so that leaves may stand at different noise levels: an observed leaf is at time 0.
"""

from typing import Any

import torch
from torch import Tensor, nn

from unnoise.checks import fits, fits_times, leaf_time
from unnoise.generators import Local, ProductReversal, Reversal
from unnoise.laws import Joint, Law
from unnoise.processes.base import Process
from unnoise.processes.chain import Chain
from unnoise.processes.finite_speed import FiniteSpeed
from unnoise.shapes import AnyState, Clock, Tree
from unnoise.spaces import ProductSpace
from unnoise.tree import repeat_rows, tile

NODES = 5_000_000  # nodes that `support` agrees to lay out


class Product(Process):
    """`Product(age=Gaussian((1,)), job=Uniform(size=12))`: a process whose states are dicts; nests to any depth."""

    def __init__(self, /, **leaves: Any):
        super().__init__()
        for name, process in leaves.items():
            if not isinstance(process, Process):
                raise TypeError(
                    f"leaf '{name}' is a {type(process).__name__}, not a process: pass one, such as Gaussian(...)"
                )
            if isinstance(process, Chain):
                remedy = (
                    "put the grid around the whole, Chain(Product(...), grid)"
                    if process.has_generator
                    else "a chain by matrices has no generator and stands alone"
                )
                raise TypeError(f"leaf '{name}' is a chain: {remedy}")
            if isinstance(process, FiniteSpeed):
                raise TypeError(
                    f"leaf '{name}' is a {type(process).__name__}: its bound is that of whole paths, which does not add to "
                    f"rates at single times; let it stand alone, with all numbers in one shape"
                )
        self.names = tuple(leaves)
        self.space = ProductSpace(**{name: process.space for name, process in leaves.items()})
        self.state_space = ProductSpace(**{name: process.state_space for name, process in leaves.items()})
        self._modules_in_order = nn.ModuleList(leaves.values())
        self.cutoff = max(process.cutoff for process in leaves.values())

    @property
    def leaves(self) -> dict[str, Process]:
        return dict(zip(self.names, self._modules_in_order, strict=True))  # type: ignore[arg-type]

    def _each(self, question: str, *trees: AnyState, times: tuple[Clock, ...]) -> dict[str, Any]:
        for tree in trees:
            fits(tree, self.names, "the state")
        for t in times:
            fits_times(t, self.names)
        return {
            name: getattr(leaf, question)(*[tree[name] for tree in trees], *[leaf_time(t, name) for t in times])
            for name, leaf in self.leaves.items()
        }

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        return Joint({name: leaf.prior(rows, dtype, device) for name, leaf in self.leaves.items()})

    def prior_kl(self, x0: Tree, t: Clock = 1.0) -> Tensor:
        return torch.stack(list(self._each("prior_kl", x0, times=(t,)).values())).sum(0)

    def marginal(self, x0: Tree, t: Clock) -> Law:
        return Joint(self._each("marginal", x0, times=(t,)))

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> Law:
        return Joint(self._each("transition", x_s, times=(s, t)))

    def posterior(self, x_t: Tree, x0: Tree, s: Clock, t: Clock) -> Law:
        return Joint(self._each("posterior", x_t, x0, times=(s, t)))

    def local(self, x: Tree, t: Clock) -> dict[str, Tree[Local]]:
        return self._each("local", x, times=(t,))

    def reverse(self, x_t: Tree, x0: Tree, t: Clock) -> Reversal:
        return ProductReversal(self._each("reverse", x_t, x0, times=(t,)))

    def noiseless(self, t: float) -> bool:
        return all(leaf.noiseless(t) for leaf in self.leaves.values())

    def movable(self, x_t: Tree) -> dict[str, Tree]:
        return self._each("movable", x_t, times=())

    def support(self, x0: Tree, t: Clock) -> tuple[Tree, Tensor]:
        """The tensor product of the leaves' nodes."""
        nodes: dict[str, Tree] = {}
        weights: Tensor | None = None
        for name, (points, log_weights) in self._each("support", x0, times=(t,)).items():
            if weights is None:
                nodes, weights = {name: points}, log_weights
                continue
            old, new = len(weights), len(log_weights)
            if old * new > NODES:
                raise ValueError(
                    f"an exact expectation over {list(self.names)} needs {old * new} nodes, more than {NODES}: draw instead"
                )
            nodes = {key: repeat_rows(part, new) for key, part in nodes.items()}
            nodes[name] = tile(points, old)
            weights = weights.repeat_interleave(new, 0) + log_weights.repeat(old, 1)
        assert weights is not None
        return nodes, weights

    def push(self, q: Any, s: Clock, t: Clock) -> dict[str, Any]:
        return self._each("push", q, times=(s, t))

    def inverse(self, q: Any, s: Clock, t: Clock) -> dict[str, Any]:
        return self._each("inverse", q, times=(s, t))

    def extra_repr(self) -> str:
        return f"names={list(self.names)}"
