"""The transition matrices of D3PM, for a sequence of betas, one per step: [steps, states, states], entry [y, x] of x -> y.

    uniform      (1 - beta) I + beta/K 1 1^T
    absorbing    to MASK with probability beta
    gaussian     Gaussian weights in |y - x|, wider as beta grows
    banded       equal weights for |y - x| <= width

They need not commute nor come from one rate matrix: `MatrixChain` takes them as they are.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.shapes import Float


def _betas(betas: Sequence[float] | Tensor) -> Tensor:
    values = torch.as_tensor(betas, dtype=torch.float64)
    if values.ndim != 1 or not len(values) or not bool(((values >= 0) & (values <= 1)).all()):
        raise ValueError("betas must be numbers in [0, 1], one per step")
    return values[:, None, None]


def uniform(size: int, betas: Sequence[float] | Tensor) -> Float[Tensor, "steps size size"]:
    """(1 - beta) I + beta/K 1 1^T."""
    b, eye = _betas(betas), torch.eye(size, dtype=torch.float64)
    return (1 - b) * eye + b / size


def absorbing(size: int, betas: Sequence[float] | Tensor) -> Float[Tensor, "steps states states"]:
    """Every category goes to MASK, state `size`, with probability beta; pass `size=size` to the chain."""
    b, eye = _betas(betas), torch.eye(size + 1, dtype=torch.float64)
    mask = torch.zeros(size + 1, size + 1, dtype=torch.float64)
    mask[size] = 1.0
    return (1 - b) * eye + b * mask


def gaussian(size: int, betas: Sequence[float] | Tensor) -> Float[Tensor, "steps size size"]:
    """Off the diagonal exp(-4 (y - x)^2/((K - 1)^2 beta)), over the sum of these weights at all distances up to K - 1 either
    side; the diagonal takes the rest."""
    b = _betas(betas).clamp_min(1e-12)
    x = torch.arange(size, dtype=torch.float64)
    scale = 4 / (max(size - 1, 1) ** 2 * b)
    weight = (-scale * (x[:, None] - x[None, :]).square()).exp()
    reach = torch.arange(-(size - 1), size, dtype=torch.float64)
    weight = weight / (-scale * reach.square()).exp().sum(-1, keepdim=True)
    return _fill(weight)


def banded(size: int, betas: Sequence[float] | Tensor, width: int) -> Float[Tensor, "steps size size"]:
    """beta/K to every state within `width` steps; the diagonal takes the rest."""
    if not width >= 1:
        raise ValueError(f"width = {width} must be at least 1")
    x = torch.arange(size)
    near = ((x[:, None] - x[None, :]).abs() <= width).double()
    return _fill(_betas(betas) / size * near)


def _fill(off: Tensor) -> Tensor:
    off = off - torch.diag_embed(off.diagonal(dim1=1, dim2=2))
    return off + torch.diag_embed(1 - off.sum(1))
