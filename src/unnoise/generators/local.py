"""The distance of two generators at the same states, leaf by leaf (see `spaces.base`)."""

from typing import Any

import torch
from torch import Tensor

from unnoise.shapes import AnyState, Float
from unnoise.spaces import Local, Space
from unnoise.spaces.local import JumpKernel, jump_divergence, without_self

__all__ = ["JumpKernel", "Local", "divergence_rate", "jump_divergence", "without_self"]


def divergence_rate(space: Space, true: Any, model: Any, x: AnyState) -> Float[Tensor, "batch"]:
    """The distance of two generators at the states x, in nats per unit time (eq:girsanov-kl, eq:ELBO-generator-Dynkin).

    Their data are a `Local` where the space is a leaf, and a dict of such trees where it is a product.
    """
    if space.leaves:
        parts = [divergence_rate(leaf, true[name], model[name], x[name]) for name, leaf in space.leaves.items()]
        return torch.stack(parts).sum(0)
    return space.divergence(true, model, x)
