"""A network as a CUDA graph: its kernels are recorded once and started together.

A small network is a hundred kernels that each take less time than to be launched; as one graph it runs several times faster.
`captured(denoiser)` is the same denoiser with such a network.  A graph belongs to the shapes of its input: a new batch size
records another.  It reads the weights where they are, so updates in place are seen; a network whose course depends on values
(on the host's side) cannot be recorded.  Elsewhere than on CUDA, and where gradients are wanted, the network runs as it is.
"""

from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.denoiser import AnyDenoiser, Denoiser, has_features
from unnoise.shapes import Clock, Tree
from unnoise.tree import first_leaf, map_leaves

WARM_UP = 3  # runs before recording: libraries choose their algorithms and workspaces in the first ones


def _tensors(tree: Any) -> list[Tensor]:
    if isinstance(tree, dict):
        return [tensor for value in tree.values() for tensor in _tensors(value)]
    return [tree] if isinstance(tree, Tensor) else []


def _form(tree: Any) -> Any:
    """What a recording depends on: shapes and dtypes of tensors, other values as they are."""
    if isinstance(tree, dict):
        return tuple((name, _form(value)) for name, value in tree.items())
    return (tuple(tree.shape), tree.dtype, tree.device) if isinstance(tree, Tensor) else tree


class _Recording:
    def __init__(self, function, x: Tree, t: Clock, condition: dict[str, Any]):
        def held(tree: Any) -> Any:
            return map_leaves(lambda v: v.clone().contiguous() if isinstance(v, Tensor) else v, tree)

        self.inputs = held({"x": x, "t": t, "condition": condition})
        self.places, self.graph = _tensors(self.inputs), torch.cuda.CUDAGraph()
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                function(self.inputs["x"], self.inputs["t"], **self.inputs["condition"])
        torch.cuda.current_stream().wait_stream(stream)
        with torch.cuda.graph(self.graph):
            self.output = function(self.inputs["x"], self.inputs["t"], **self.inputs["condition"])

    def __call__(self, x: Tree, t: Clock, condition: dict[str, Any]) -> Any:
        torch._foreach_copy_(self.places, _tensors({"x": x, "t": t, "condition": condition}))
        self.graph.replay()
        if isinstance(self.output, tuple):
            return tuple(value.clone() for value in self.output)
        return map_leaves(Tensor.clone, self.output)  # the next replay writes over it


class Recorded(nn.Module):
    """A network that records itself on its first call with each form of input."""

    def __init__(self, network: nn.Module):
        super().__init__()
        self.network = network
        self.recordings: dict[Any, _Recording] = {}

    def forward(self, x: Tree, t: Clock, **condition: Any) -> Tree:
        return self._run("forward", self.network, x, t, condition)

    def _run(self, name: str, function, x: Tree, t: Clock, condition: dict[str, Any]) -> Any:
        device = first_leaf(x).device.type
        if device != "cuda" or torch.is_grad_enabled():
            return function(x, t, **condition)
        half = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else None
        form = (name, half, self.network.training, _form(x), _form(t), _form(condition))
        if form not in self.recordings:
            self.recordings[form] = _Recording(function, x, t, condition)
        return self.recordings[form](x, t, condition)


class RecordedFeatures(Recorded):
    """The same for a network in two parts: its features are recorded, its head is applied to the rows one asks for."""

    def features(self, x: Tree, t: Clock, **condition: Any) -> Tensor:
        return self._run("features", self.network.features, x, t, condition)

    def head(self, h: Tensor) -> Tensor:
        return self.network.head(h)  # type: ignore[operator]


def captured(denoiser: AnyDenoiser) -> Denoiser:
    """The same denoiser with a network that is recorded as a CUDA graph."""
    if not isinstance(denoiser, Denoiser):
        raise TypeError(f"a {type(denoiser).__name__} has no network to record: pass a Denoiser")
    other = copy(denoiser)
    other._modules = dict(denoiser._modules)
    other.network = (RecordedFeatures if has_features(denoiser.network) else Recorded)(denoiser.network)
    return other
