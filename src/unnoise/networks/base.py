"""Networks from plain data.

A network is a module with `forward(x, t, **condition)`, built from a keyword-only dataclass beside it, which it keeps as
`config`.  The registry holds those that a saved run may name, and no others: loading a run builds nothing else.

A network that is to be chosen by name for a process, `unnoise train --network NAME`, also says what it must know of that:
`@register(Options, needs=lambda process: {"shape": process.space.shape})`.
"""

import json
from collections.abc import Callable
from dataclasses import asdict, is_dataclass
from typing import Any, TypeVar

import torch
from torch import nn

from unnoise.extensions import refuse_other, unknown
from unnoise.processes import Process

REGISTRY: dict[str, tuple[type, type[nn.Module]]] = {}  # name -> (configuration, network)
NEEDS: dict[str, Callable[[Process], dict[str, Any]]] = {}  # name -> what of its configuration a process decides
Class = TypeVar("Class", bound=type[nn.Module])


def register(configuration: type, needs: Callable[[Process], dict[str, Any]] | None = None) -> Callable[[Class], Class]:
    """Decorate a network class with the dataclass it is built from; its name is the class's.  `needs` are the fields that a
    process decides."""
    if not (isinstance(configuration, type) and is_dataclass(configuration)):
        raise TypeError(f"{configuration!r} is no dataclass: write @register(Options) above the class, Options a dataclass")

    def add(network: Class) -> Class:
        refuse_other("network", network.__name__, network, REGISTRY.get(network.__name__, (None, None))[1])
        REGISTRY[network.__name__] = (configuration, network)
        if needs is not None:
            NEEDS[network.__name__] = needs
        return network

    return add


def configured(name: str, options: dict[str, Any]) -> Any:
    """The configuration of a network of that name; what does not fit is refused, and nothing is built."""
    if name not in REGISTRY:
        raise ValueError(unknown("network", name, REGISTRY))
    try:
        return REGISTRY[name][0](**options)
    except TypeError as error:
        fields = ", which is told nothing: give its options a field conditions" if "'conditions'" in str(error) else ""
        raise ValueError(f"the options {sorted(options)} do not fit the network {name}{fields}: {error}") from error


def build(name: str, options: dict[str, Any], seed: int | None = None) -> nn.Module:
    """The network of a name and its options.  With a seed its first weights are a function of the seed alone."""
    config = configured(name, options)
    network = REGISTRY[name][1]
    if seed is None:
        return network(config)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return network(config)


def described(network: nn.Module) -> dict[str, Any]:
    """What `build` needs to make it again, as JSON holds it: `build(**described(network))`."""
    name, config = type(network).__name__, getattr(network, "config", None)
    if name not in REGISTRY or not isinstance(config, REGISTRY[name][0]):
        raise ValueError(f"a {name} cannot be described: decorate its class with `register`, and keep its `config`")
    return plan(name, config)


def plan(name: str, config: Any) -> dict[str, Any]:
    """A name and a configuration as JSON holds them."""
    return {"name": name, "options": json.loads(json.dumps(asdict(config)))}


def count_parameters(network: nn.Module) -> int:
    return sum(p.numel() for p in network.parameters())


def require(fits: bool, message: str) -> None:
    """Refuse a configuration that makes no network."""
    if not fits:
        raise ValueError(message)
