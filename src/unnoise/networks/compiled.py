"""Compiled networks: for the one size of batch that is trained, and as written for all others."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import nn

from unnoise.denoiser import has_features
from unnoise.networks.blocks import Block
from unnoise.networks.precision import InPrecision


def compile_network(network: nn.Module) -> None:
    """Compile the blocks of a transformer, which are alike and so compiled once, or else the network as a whole."""
    blocks: list[nn.Module] = [part for part in network.modules() if isinstance(part, Block)]
    for part in blocks or [network]:
        part.compile()
    if not blocks and has_features(network):
        network.features = torch.compile(network.features)  # type: ignore


@contextmanager
def compiled(network: nn.Module) -> Iterator[None]:
    """For the length of a `with` a network is compiled; one that is already stays as it is, and what cannot be compiled
    runs as it is written."""
    network = network.network if isinstance(network, InPrecision) else network
    if any(part._compiled_call_impl is not None for part in network.modules()):
        yield
        return
    import torch._dynamo.config as dynamo  # it takes long to load

    own = vars(network).get("features")
    compile_network(network)
    try:
        with dynamo.patch(suppress_errors=True):  # type: ignore[attr-defined]
            yield
    finally:
        for part in network.modules():
            vars(part).pop("_compiled_call_impl", None)
        vars(network).pop("features", None)
        if own is not None:
            network.features = own


def uncompiled(network: nn.Module) -> AbstractContextManager:
    """What was compiled runs as it is written, for the length of a `with`: for batches of other sizes than those trained."""
    some = any(part._compiled_call_impl is not None for part in network.modules())
    return torch.compiler.set_stance("force_eager") if some else nullcontext()  # type: ignore[return-value]
