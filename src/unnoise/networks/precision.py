"""A network in the precision that it was trained in, and everything else in that of the states.

A network that was trained under bfloat16 was validated under bfloat16: its products are rounded to 8 bits there, and it has
learned to live with that.  Samples are drawn the same way, on CUDA, where it is faster and takes half of the memory.  What
the network says is widened to float32 before it is used: the steps of a method, draws and normalisations keep the
precision they have.  In numbers, of a mixed table trained in bfloat16, docs/sampling.md.

    no      as the network is
    tf32    products of float32 numbers rounded to 11 bits, sums in float32
    bf16    products in bfloat16 (`torch.autocast`), sums in float32

On a processor the network runs as it is, whatever is asked.
"""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.denoiser import Denoiser, has_features
from unnoise.shapes import Clock, Tree
from unnoise.tree import first_leaf, map_leaves

PRECISIONS = ("no", "tf32", "bf16")


@contextmanager
def _tf32() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _wide(value: Any) -> Any:
    return value.float() if isinstance(value, Tensor) and value.dtype == torch.bfloat16 else value


class InPrecision(nn.Module):
    """A network that runs in another precision where its input is on one of `devices`."""

    devices: tuple[str, ...] = ("cuda",)

    def __init__(self, network: nn.Module, precision: str):
        super().__init__()
        self.network, self.precision = network, precision

    def context(self, device: str) -> AbstractContextManager:
        if device not in self.devices:
            return nullcontext()
        return torch.autocast(device, torch.bfloat16) if self.precision == "bf16" else _tf32()

    def forward(self, x: Tree, t: Clock, **condition: Any) -> Tree:
        with self.context(first_leaf(x).device.type):
            return map_leaves(_wide, self.network(x, t, **condition))


class FeaturesInPrecision(InPrecision):
    """The same for a network in two parts."""

    def features(self, x: Tree, t: Clock, **condition: Any) -> Tensor:
        with self.context(first_leaf(x).device.type):
            return self.network.features(x, t, **condition)  # type: ignore[operator]

    def head(self, h: Tensor) -> Tensor:
        with self.context(h.device.type):
            return _wide(self.network.head(h))  # type: ignore[operator]


def in_precision(denoiser: Denoiser, precision: str) -> Denoiser:
    """The same denoiser, with the same weights, its network in another precision."""
    if precision not in PRECISIONS:
        raise ValueError(f"precision = {precision!r}: choose from {', '.join(PRECISIONS)}")
    if precision == "no":
        return denoiser
    other = copy(denoiser)
    other._modules = dict(denoiser._modules)
    kind = FeaturesInPrecision if has_features(denoiser.network) else InPrecision
    other.network = kind(denoiser.network, precision)
    return other
