"""The distance of two generators at the same states, leaf by leaf (see `spaces.base`)."""

import torch
from torch import Tensor

from unnoise.shapes import Float, Tree
from unnoise.spaces import Local, Space
from unnoise.spaces.local import JumpKernel, jump_divergence, without_self

__all__ = ["JumpKernel", "Local", "divergence_rate", "jump_divergence", "without_self"]


def divergence_rate(space: Space, true: Tree, model: Tree, x: Tree) -> Float[Tensor, "batch"]:
    """The distance of two generators at the states x, in nats per unit time (eq:girsanov-kl, eq:ELBO-generator-Dynkin)."""
    if space.leaves:
        parts = [divergence_rate(leaf, true[name], model[name], x[name]) for name, leaf in space.leaves.items()]
        return torch.stack(parts).sum(0)
    return space.divergence(true, model, x)
