"""Compiled networks: for the one size of batch that is trained, and as written for all others."""

from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from unnoise.denoiser import has_features
from unnoise.networks.blocks import Block


def compile_network(network: nn.Module) -> None:
    """Compile the blocks of a transformer, which are alike and so compiled once, or else the network as a whole."""
    blocks: list[nn.Module] = [part for part in network.modules() if isinstance(part, Block)]
    for part in blocks or [network]:
        part.compile()
    if not blocks and has_features(network):
        network.features = torch.compile(network.features)  # type: ignore


def uncompiled(network: nn.Module) -> AbstractContextManager:
    """What was compiled runs as it is written, for the length of a `with`: for batches of other sizes than those trained."""
    compiled = any(part._compiled_call_impl is not None for part in network.modules())
    return torch.compiler.set_stance("force_eager") if compiled else nullcontext()  # type: ignore[return-value]
