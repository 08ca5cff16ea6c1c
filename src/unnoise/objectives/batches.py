"""The rows of all processes that train together."""

import torch
from torch import Tensor, distributed


def _together() -> bool:
    return distributed.is_available() and distributed.is_initialized()


def rank() -> int:
    return distributed.get_rank() if _together() else 0


def world() -> int:
    return distributed.get_world_size() if _together() else 1


def gathered(values: Tensor) -> Tensor:
    """The entries of every process, one after another; each has as many.  No gradient."""
    if world() == 1:
        return values
    parts = [torch.empty_like(values) for _ in range(world())]
    distributed.all_gather(parts, values.contiguous())
    return torch.cat(parts)
