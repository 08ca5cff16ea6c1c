"""Which category a uniform number falls on, in one pass over weights that need not sum to 1.

The category is the first whose cumulative weight exceeds u times the total.  A float64 cumulative sum over all categories
would be twice the bytes of float32 weights, written and read again.  So weights are summed by blocks of about the root of
their number; the block is found among the sums, in float64, and only its own weights are looked at again:

    target = u total,    block j with C_{j-1} <= target < C_j,    then within it, at the share (target - C_{j-1}) / mass_j.

A block's mass may be rounded to float32: its categories then share it as their weights do, in float64.  So no category is
cut off beside a large one, none of weight 0 is ever found, and every probability is right up to the rounding of float32
sums, some 1e-7 of itself.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from unnoise.shapes import Float, Int


def width(size: int) -> int:
    """Categories of a block: a power of two near the root of their number."""
    return 1 << ((size - 1).bit_length() + 1) // 2


def in_blocks(weights: Float[Tensor, "rows size"], block: int) -> Float[Tensor, "rows blocks block"]:
    """The same weights by blocks; zeros fill the last one."""
    missing = -weights.shape[-1] % block
    weights = torch.nn.functional.pad(weights, (0, missing)) if missing else weights
    return weights.unflatten(-1, (-1, block))


def invert(
    mass: Float[Tensor, "rows blocks"], inside: Callable[[Tensor], Tensor], u: Float[Tensor, "rows"]
) -> tuple[Int[Tensor, "rows"], Float[Tensor, "rows"]]:
    """The category of each row, and the total: `mass` of every block, float64, and `inside(block)` the weights of one."""
    cumulative = mass.cumsum(-1)
    total = cumulative[:, -1]
    target = below(u * total, total)
    block = torch.searchsorted(cumulative, target.unsqueeze(-1), right=True).clamp_max(mass.shape[-1] - 1)
    own = mass.gather(-1, block)
    share = (target.unsqueeze(-1) - (cumulative.gather(-1, block) - own)) / own
    weights = inside(block.squeeze(-1)).double()
    within = weights.cumsum(-1)
    sought = below(share.clamp(0.0, 1.0) * within[:, -1:], within[:, -1:])
    place = torch.searchsorted(within, sought, right=True).clamp_max(weights.shape[-1] - 1)
    return (block * weights.shape[-1] + place).squeeze(-1), total


def below(value: Tensor, limit: Tensor) -> Tensor:
    """The value, but less than the limit: what rounding has put on it belongs before it."""
    return torch.minimum(value, torch.nextafter(limit, torch.zeros_like(limit)))


def weights(logits: Float[Tensor, "rows size"]) -> Float[Tensor, "rows size"]:
    """Of the softmax, up to a factor of each row: at most 1, in float32 at least."""
    highest = logits.amax(-1, keepdim=True)
    return (logits - (highest if highest.dtype == torch.float64 else highest.float())).exp_()


def chosen(weights: Float[Tensor, "rows size"], u: Float[Tensor, "rows"]) -> tuple[Tensor, Tensor]:
    """The category of each row, and the total of its weights."""
    blocks = in_blocks(weights, width(weights.shape[-1]))
    rows = torch.arange(len(weights), device=weights.device)
    return invert(blocks.sum(-1).double(), lambda block: blocks[rows, block], u)
