"""Heads that are linear, head(h) = h W^T + b, and say so: then a loss need not hold the logits of all coordinates.

`linear_weights(head)` is an open question (`functools.singledispatch`).  An `nn.Linear` answers it as long as all that it
does is to multiply: no hooks, and its own `forward`.  `LinearHead` is for weights that are no layer's own, such as those of
an embedding.  A head of one's own is registered by its class, from outside:

    @un.predictions.linear_weights.register(MyHead)
    def _(head):
        return head.matrix, None

Any other head is a function like all functions, and its logits are made as they are asked for.
"""

from functools import singledispatch

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.kernels.head import head_terms, product_dtype
from unnoise.predictions.finite import Posterior
from unnoise.shapes import Bool, Float, Int

Weights = tuple[Tensor, Tensor | None]  # [size, width] and [size]
FEW = {"cpu": 2**26}  # logits that are made at once, by device: to make them again for a gradient takes time
FEW_ELSEWHERE = 2**24
SMALL_HEAD = 1024  # categories whose logits cost less than to wait for the list of masked coordinates
HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


class LinearHead:
    """h W^T + b, for weights [size, width] that belong to something else."""

    def __init__(self, weight: Float[Tensor, "size width"], bias: Float[Tensor, "size"] | None = None):
        self.weight, self.bias = weight, bias

    def __call__(self, h: Float[Tensor, "*rows width"]) -> Float[Tensor, "*rows size"]:
        return F.linear(h, self.weight, self.bias)


@singledispatch
def linear_weights(head: object) -> Weights | None:
    """W and b of a head that is h W^T + b; None where it is not known to be."""
    return None


@linear_weights.register(LinearHead)
def _(head: LinearHead) -> Weights | None:
    return head.weight, head.bias


@linear_weights.register(nn.Linear)
def _(head: nn.Linear) -> Weights | None:
    own = type(head).forward is nn.Linear.forward and "forward" not in vars(head)
    return (head.weight, head.bias) if own and not any(getattr(head, name) for name in HOOKS) else None


def streamed_weights(prediction: Posterior, few: int | None = None) -> Weights | None:
    """The weights of a linear head whose logits are made in chunks; None where they are made as for any other head.

    In chunks they are where they are more than `few`, and on an accelerator where to list the masked coordinates would make
    the host wait.  A traced graph has all of them: what is made when is its compiler's affair.
    """
    features, space = prediction.features, prediction.process.space
    kind, logits = features.device.type, prediction.x_t.numel() * space.size
    few = FEW.get(kind, FEW_ELSEWHERE) if few is None else few
    waits = kind != "cpu" and space.size > SMALL_HEAD
    if torch.compiler.is_compiling() or not (waits or logits > few):
        return None
    weights = linear_weights(prediction.head)
    if weights is None or space.sizes is not None:
        return None
    given = [value for value in (features, *weights) if value is not None]
    plain = all(type(value) in (Tensor, nn.Parameter) and value.device == features.device for value in given)
    fits = plain and tuple(weights[0].shape) == (space.size, features.shape[-1])
    return weights if fits and product_dtype(features, weights[0]) is not None else None


def chosen_log_prob(
    prediction: Posterior, x0: Int[Tensor, "batch *shape"], chosen: Bool[Tensor, "batch *shape"]
) -> Float[Tensor, "batch *shape"] | None:
    """log theta(x_0^k) of the chosen coordinates and 0 elsewhere, from logits in chunks; None where they are not so made."""
    weights = streamed_weights(prediction)
    if weights is None:
        return None
    rows = prediction.features.flatten(0, x0.ndim - 1)
    return head_terms(rows, *weights, x0.reshape(-1, 1), chosen=chosen.flatten())[0].reshape(x0.shape)
