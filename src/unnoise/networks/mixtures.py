"""Mixtures of tokens as a network's input: weights over the categories in place of a category.

A mixture is a tensor of weights [..., size], or a dict of few tokens with weights and one weight that all others share,

    {"ids": [..., k], "weights": [..., k], "rest": [...]}        ids distinct, sum of weights + (size - k) rest = 1

and becomes  sum_v weight(v) E(v) = sum_i (weight_i - rest) E(id_i) + rest sum_v E(v),  at the cost of k rows of the table.
A one-hot mixture is the token.
"""

from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.shapes import Float


def mixed_tokens(table: nn.Embedding, mixture: Any, size: int) -> Float[Tensor, "*batch width"]:
    """The mean of the table's first `size` rows under a mixture."""
    weight = table.weight[:size]
    if isinstance(mixture, Tensor):
        if mixture.shape[-1] != size:
            raise ValueError(f"a mixture of {mixture.shape[-1]} weights does not fit {size} tokens: pass one for each")
        return mixture.to(weight.dtype) @ weight
    ids, rest = mixture["ids"], mixture["rest"].to(weight.dtype).unsqueeze(-1)
    own = mixture["weights"].to(weight.dtype) - rest
    few = F.embedding_bag(ids.flatten(0, -2), weight, per_sample_weights=own.flatten(0, -2), mode="sum")
    return few.reshape(*ids.shape[:-1], -1) + rest * weight.sum(0)


def flattened(mixture: Any, rows: int) -> Any:
    """With one axis of coordinates: those of a mixture on any shape."""
    if isinstance(mixture, Tensor):
        return mixture.reshape(rows, -1, mixture.shape[-1])
    many = {name: mixture[name].reshape(rows, -1, mixture[name].shape[-1]) for name in ("ids", "weights")}
    return {**many, "rest": mixture["rest"].reshape(rows, -1)}
