"""Drawing x_s where noise is rank-one: a clean law mixed with noise, and the entry of x_t raised.

    p(y) ~ m(y) (1 + gain [y = x_t]),      m = alpha theta + scale f,      theta = softmax(logits)

with alpha = alpha_s, scale f the law of fresh draws by the time s, and gain = alpha_{t|s}/f_{t|s}(x_t).  Since m sums to 1,
the total is 1 + gain m(x_t).

*Whether comes before where.*  Of the total, what stands before x_t weighs 1 - m(x_t) at most, and so does what stands after:
a uniform number u can fall elsewhere only if min(u, 1 - u) is at most (1 - m(x_t))/(1 + gain m(x_t)).  That falls as m(x_t)
grows, and m(x_t) is at least scale f(x_t), whatever the network says.  So a coordinate can move only if it is at most

    near = (1 - scale f(x_t))/(1 + gain scale f(x_t)) = (1 - f_s(x_t)) f_{t|s}(x_t)/f_t(x_t),

which in a run of n steps holds some 4 log n times, not n: the others need no logits.

Where it may, the logits are read once: exponentials are summed by blocks, of which one is looked at again (`inversion`), and
noise and the raised entry are added in float64.  Every probability is right up to some 1e-6 of itself.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from unnoise.kernels import inversion, raised_fused
from unnoise.shapes import Bool, Float, Int

SLACK = 1e-9  # of `near`, for rounding


@dataclass(frozen=True)
class Raised:
    """What is known of every coordinate before its logits are, float64."""

    x: Int[Tensor, "rows"]  # x_t
    alpha: Float[Tensor, "rows"]
    scale: Float[Tensor, "rows"]
    gain: Float[Tensor, "rows"]
    near: Float[Tensor, "rows"]
    u: Float[Tensor, "rows"]
    which: Int[Tensor, "rows"]  # its law of fresh draws
    fresh: Float[Tensor, "laws states"]  # f

    def __getitem__(self, rows: slice | Tensor) -> "Raised":
        parts = {name: getattr(self, name)[rows] for name in ("x", "alpha", "scale", "gain", "near", "u", "which")}
        return replace(self, **parts)

    def may_move(self) -> Bool[Tensor, "rows"]:
        return torch.minimum(self.u, 1 - self.u) <= self.near * (1 + SLACK)

    @property
    def raised_by(self) -> Float[Tensor, "rows"]:
        """scale f(x_t)."""
        return self.scale * self.fresh[self.which, self.x]


def draw(logits: Float[Tensor, "rows size"], raised: Raised) -> Int[Tensor, "rows"]:
    """x_s of each row."""
    if logits.dtype is not torch.float64 and raised_fused.available(logits):
        return raised_fused.draw(logits, raised, SLACK)
    logits = logits if logits.dtype in (torch.float32, torch.float64) else logits.float()
    (rows, size), states = logits.shape, raised.fresh.shape[-1]
    every, block = torch.arange(rows, device=logits.device), inversion.width(states)
    fresh = inversion.in_blocks(raised.fresh, block)  # [laws, blocks, block]
    theta = logits.new_zeros(rows, fresh.shape[1] * block)
    torch.sub(logits, logits.amax(-1, keepdim=True), out=theta[:, :size])
    theta[:, :size].exp_()
    exponentials = theta.unflatten(-1, (-1, block))
    mass = exponentials.sum(-1).double()
    weight, scale = (raised.alpha / mass.sum(-1)).unsqueeze(-1), raised.scale.unsqueeze(-1)
    at_x = theta.gather(-1, raised.x.unsqueeze(-1)).double() * weight
    bonus = raised.gain.unsqueeze(-1) * (at_x + raised.raised_by.unsqueeze(-1))
    home, place = raised.x.unsqueeze(-1) // block, raised.x.unsqueeze(-1) % block
    mass = (mass * weight + scale * fresh.sum(-1)[raised.which]).scatter_add(-1, home, bonus)

    def inside(found: Tensor) -> Tensor:
        own = exponentials[every, found].double() * weight + scale * fresh[raised.which, found]
        return own.scatter_add(-1, place, torch.where(home == found.unsqueeze(-1), bonus, 0.0))

    return inversion.invert(mass, inside, raised.u)[0]
