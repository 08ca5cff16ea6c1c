"""A network in half precision, and all arithmetic around it as it was.

A network that was trained in bfloat16 is drawn from in bfloat16, several times faster on an accelerator; but its states, and
what a step makes of its answers, stay as precise as they are.  So only the network's own calls stand under `torch.autocast`:
`half_precision(denoiser)` is the same denoiser with such a network.  Its answers come back in float32; features stay in half
precision until the head, in half precision too, is applied to the rows one asks for.

Weights are not kept in half precision between calls: a recording (`captured`) would go on reading them when they are gone.
"""

from contextlib import AbstractContextManager
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.denoiser import AnyDenoiser, Denoiser, has_features
from unnoise.shapes import Clock, Tree
from unnoise.tree import first_leaf, map_leaves


class HalfPrecision(nn.Module):
    """A network whose calls stand under `torch.autocast`."""

    def __init__(self, network: nn.Module, dtype: torch.dtype):
        super().__init__()
        self.network, self.dtype = network, dtype

    def forward(self, x: Tree, t: Clock, **condition: Any) -> Tree:
        with self._cast(first_leaf(x)):
            output = self.network(x, t, **condition)
        return map_leaves(lambda value: value.to(torch.promote_types(value.dtype, torch.float32)), output)

    def _cast(self, like: Tensor) -> AbstractContextManager[Any]:
        return torch.autocast(like.device.type, self.dtype, cache_enabled=False)


class HalfPrecisionFeatures(HalfPrecision):
    """The same for a network in two parts."""

    def features(self, x: Tree, t: Clock, **condition: Any) -> Tensor:
        with self._cast(first_leaf(x)):
            return self.network.features(x, t, **condition)  # type: ignore[operator]

    def head(self, h: Tensor) -> Tensor:
        with self._cast(h):
            return self.network.head(h)  # type: ignore[operator]


def half_precision(denoiser: AnyDenoiser, dtype: torch.dtype = torch.bfloat16) -> Denoiser:
    """The same denoiser with a network in half precision; the network itself, and its weights, are left as they are."""
    if not isinstance(denoiser, Denoiser):
        raise TypeError(f"a {type(denoiser).__name__} has no network to run in half precision: pass a Denoiser")
    if dtype not in (torch.bfloat16, torch.float16):
        raise ValueError(f"dtype = {dtype}: choose torch.bfloat16, or torch.float16")
    other = copy(denoiser)
    other._modules = dict(denoiser._modules)
    other.network = (HalfPrecisionFeatures if has_features(denoiser.network) else HalfPrecision)(denoiser.network, dtype)
    return other
