"""Drawing x_s where kernels are matrices: a clean law theta pushed to s, times what x_t says of x_s.

    p(y) ~ Q_{t|s}(x_t, y) (Q_{s|0} theta)(y),       theta = softmax(logits)

is one pass for the softmax, a product of the rows with one matrix, and one pass in which each entry meets its entry of the
evidence and the distribution function is inverted (`inversion`): nothing is normalised, no logarithm is taken, and no other
array of the logits' size is written.  On accelerators it is one pass altogether (`pushed_fused`).

All terms are positive, so float32 loses no digits by subtraction: at 256 states the law is right to 3e-7 in total variation,
fused to 4e-6 (rounding the logits to bfloat16 changes it by up to 1e-2).  What float32 cannot hold, terms below 1e-38, is
not missed as long as the total, which is the model's own probability of x_t, is above 2^-40: a uniform number tells no
category below 2^-52 of that.  Rows with less (x_t is what the network calls impossible) are drawn again in float64, whose
terms go down to 1e-308; below that the evidence alone decides.

Logits in float64 are worked on in float64.
"""

from contextlib import nullcontext
from functools import cached_property

import torch
from torch import Tensor

from unnoise.kernels import inversion, pushed_fused
from unnoise.shapes import Float, Int

LOW = 2.0**-40  # totals below are drawn again in float64
LEAST = 1e-280  # and below in float64 too: nothing is left but the evidence


class PushedTables:
    """The matrices of one step, for all rows or one pair for each: `push` is Q_{s|0} from the categories to the states,
    `evidence` Q_{t|s} with row x_t, both float64."""

    def __init__(self, push: Float[Tensor, "groups states size"], evidence: Float[Tensor, "groups states states"]):
        self.push, self.evidence = push.contiguous(), evidence.contiguous()

    def __getitem__(self, groups: slice) -> "PushedTables":
        return self if len(self.push) == 1 else PushedTables(self.push[groups], self.evidence[groups])

    @cached_property
    def single(self) -> "PushedTables":
        """Rounded to float32."""
        return PushedTables(self.push.float(), self.evidence.float())

    @cached_property
    def halves(self) -> tuple[Tensor, Tensor, Tensor]:
        """As the fused kernel reads them."""
        return pushed_fused.split(self.push, self.evidence)

    def weights(
        self, logits: Float[Tensor, "groups rows size"], x: Int[Tensor, "groups rows"]
    ) -> Float[Tensor, "drawn states"]:
        """Q_{t|s}(x_t, y) (Q_{s|0} theta)(y), in the tables' precision."""
        theta = logits.to(self.push.dtype).softmax(-1)
        kind = logits.device.type
        cast = torch.amp.autocast_mode.is_autocast_available(kind)
        with torch.autocast(kind, enabled=False) if cast else nullcontext():
            prior = theta @ self.push.mT
        return prior.flatten(0, 1).mul_(self.evidence_of(x))

    def evidence_of(self, x: Int[Tensor, "groups rows"]) -> Float[Tensor, "drawn states"]:
        return self.evidence.flatten(0, 1)[self.row_of(x)]

    def row_of(self, x: Int[Tensor, "groups rows"]) -> Int[Tensor, "drawn"]:
        """Where the evidence of a state stands, the matrices below each other."""
        groups, states = self.evidence.shape[:2]
        first = states * torch.arange(groups, device=x.device).unsqueeze(-1)
        return (x + first if groups > 1 else x).flatten()


def draw(
    tables: PushedTables,
    logits: Float[Tensor, "groups rows size"],
    x: Int[Tensor, "groups rows"],
    u: Float[Tensor, "groups rows"],
    readable: bool = True,
) -> Int[Tensor, "groups rows"]:
    """x_s of each row by its uniform number; `readable` says whether the host may look at values."""
    if logits.dtype is not torch.float64 and pushed_fused.available(logits, tables.evidence):
        return pushed_fused.draw(tables, logits, x, u, LOW, LEAST)
    single = logits.dtype is not torch.float64 and readable  # without a look at what was lost, nothing may be
    found, total = inversion.chosen((tables.single if single else tables).weights(logits, x), u.flatten())
    if single:
        low = (~(total > LOW)).nonzero().squeeze(-1)
        if len(low):
            found[low] = _again(tables, logits, x, u, low)
    else:
        found = _where_nothing_is_left(tables, x, found, total)
    return found.reshape(x.shape)


def _again(tables: PushedTables, logits: Tensor, x: Tensor, u: Tensor, low: Int[Tensor, "low"]) -> Int[Tensor, "low"]:
    """Some of the rows in float64, each with its own matrices."""
    group = low // x.shape[-1] if len(tables.push) > 1 else torch.zeros_like(low)
    some = PushedTables(tables.push[group], tables.evidence[group]) if len(tables.push) > 1 else tables
    shape = (-1, 1) if len(tables.push) > 1 else (1, -1)
    own_x, own_u = x.flatten()[low].reshape(shape), u.flatten()[low].reshape(shape)
    own_logits = logits.flatten(0, 1)[low].double().reshape(*own_x.shape, -1)
    found, total = inversion.chosen(some.weights(own_logits, own_x), own_u.flatten())
    return _where_nothing_is_left(some, own_x, found, total)


def _where_nothing_is_left(tables: PushedTables, x: Tensor, found: Tensor, total: Tensor) -> Tensor:
    return torch.where(total > LEAST, found, tables.evidence.argmax(-1).flatten()[tables.row_of(x)])
