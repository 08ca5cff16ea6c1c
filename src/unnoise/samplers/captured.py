"""A network as a CUDA graph: its kernels are recorded once and started together.

A small network is a hundred kernels that each take less time than to be launched; as one graph it runs several times faster.
`captured(denoiser)` is the same denoiser with such a network.  A graph belongs to the shapes of its input: a new batch size
records another.  It reads the weights where they are, so updates in place are seen; a network whose course depends on values
(on the host's side) cannot be recorded.  Elsewhere than on CUDA, and where gradients are wanted, the network runs as it is.
"""

import gc
from collections.abc import Callable
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.denoiser import AnyDenoiser, Denoiser, has_features
from unnoise.shapes import Clock, Tree
from unnoise.tree import first_leaf, map_leaves

WARM_UP = 3  # runs before recording: libraries choose their algorithms and workspaces in the first ones


def tensors_of(tree: Any) -> list[Tensor]:
    """The tensors of a tree that may hold other things too, in order."""
    if isinstance(tree, dict):
        return [tensor for value in tree.values() for tensor in tensors_of(value)]
    return [tree] if isinstance(tree, Tensor) else []


def form_of(tree: Any) -> Any:
    """What a recording depends on: shapes and dtypes of tensors, other values as they are."""
    if isinstance(tree, dict):
        return tuple((name, form_of(value)) for name, value in tree.items())
    return (tuple(tree.shape), tree.dtype, tree.device) if isinstance(tree, Tensor) else tree


def put(place: Any, tree: Any, name: str) -> None:
    """Copy the tensors of a tree to where those of another like it lie, which a recording reads."""
    if _shapes(place) != _shapes(tree):
        raise ValueError(
            f"{name} has another form than that which the run was recorded with: pass the same names and shapes"
        )
    torch._foreach_copy_(tensors_of(place), tensors_of(tree))


def _shapes(tree: Any) -> Any:
    if isinstance(tree, dict):
        return {name: _shapes(value) for name, value in tree.items()}
    return tuple(tree.shape) if isinstance(tree, Tensor) else tree


def cuda_graph(work: Callable[[], None]) -> Callable[[], None]:
    """The kernels of a piece of work, recorded, as something to call."""
    graph, stream = torch.cuda.CUDAGraph(), torch.cuda.current_stream()
    gc.collect()  # a graph that is given up while another is recorded would end that recording
    try:
        with torch.cuda.graph(graph):
            work()
    finally:
        torch.cuda.set_stream(stream)  # a recording that fails leaves its own behind
    return graph.replay


class _Recording:
    def __init__(self, function, x: Tree, t: Clock, condition: dict[str, Any]):
        def held(tree: Any) -> Any:
            return map_leaves(lambda v: v.clone().contiguous() if isinstance(v, Tensor) else v, tree)

        self.inputs = held({"x": x, "t": t, "condition": condition})
        self.places, self.function = tensors_of(self.inputs), function
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP):
                function(self.inputs["x"], self.inputs["t"], **self.inputs["condition"])
        torch.cuda.current_stream().wait_stream(stream)
        self.replay = cuda_graph(self._once)

    def _once(self) -> None:
        self.output = self.function(self.inputs["x"], self.inputs["t"], **self.inputs["condition"])

    def __call__(self, x: Tree, t: Clock, condition: dict[str, Any]) -> Any:
        torch._foreach_copy_(self.places, tensors_of({"x": x, "t": t, "condition": condition}))
        self.replay()
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
        form = (name, half, self.network.training, form_of(x), form_of(t), form_of(condition))
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
