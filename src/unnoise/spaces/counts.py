"""Whole numbers without end: a frozen generator lets each unit die by itself, and new ones come.

each unit dies with probability 1 - e^{-h death};  Poisson(h birth) come.
"""

import torch
from torch import Tensor

from unnoise.checks import may_read
from unnoise.count_laws import Thinned
from unnoise.laws import LOG_ZERO, Law, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Float, Int
from unnoise.spaces.base import INTEGERS, Frozen
from unnoise.spaces.finite import LOG_HUGE, STEEP, WHOLE
from unnoise.spaces.jumping import JumpingSpace
from unnoise.spaces.local import Local


class Counts(JumpingSpace):
    """Whole numbers 0, 1, 2, ... without end, in an array of the given shape."""

    def check(self, x: AnyState, name: str = "x") -> Tensor:
        x = self.check_shape(x, name)
        if x.dtype not in INTEGERS:
            raise TypeError(f"{name} has dtype {x.dtype}, but counts are whole numbers: pass {name}.round().long()")
        if may_read(x) and bool((x < 0).any()):
            i = (x < 0).nonzero()[0].tolist()
            raise ValueError(f"{name}{i} = {int(x[tuple(i)])} is no count: use 0, 1, 2, ...; shift or drop negative values")
        return x.long()

    def destinations(self, x: Tensor) -> Int[Tensor, "batch d size"]:
        """x - 1 and x + 1; 0 repeats itself for -1: no function is asked for a value off the space."""
        return torch.stack([(x - 1).clamp_min(0), x + 1], -1)

    def inflow(self, own, x):
        """x - 1 steps up to x, x + 1 down to it."""
        below = torch.where(x > 0, own[..., 0, 1], LOG_ZERO)
        return torch.stack([below, own[..., 1, 0]], -1)

    def freeze(self, local: Local, x: Tensor) -> Frozen:
        self.refuse_parts(local, jumps=WHOLE)
        down, up = self._rates(local).double().clamp_max(LOG_HUGE).exp().unbind(-1)
        return {"deaths": down / x.clamp_min(1), "births": up}

    def move(self, frozen: Frozen, local: Local, x: Tensor, h: Tensor, noise: NoiseSource) -> Tensor:
        return thinned(frozen, x, h).draw(noise)

    def step_law(self, local: Local, x: Tensor, h: Tensor) -> Thinned:
        return thinned(self.freeze(local, x), x, h)

    def along(self, slope: Tensor, law: Law, x: Tensor, y: Tensor) -> Float[Tensor, "batch"]:
        """(y - E y) times the mean of the slope up and the slope down turned round; at 0 the slope up alone."""
        down, up = slope.double().unbind(-1)
        told = torch.where(x > 0, 0.5 * (up - down), up).clamp(-STEEP, STEEP)
        return sum_coordinates(told * (y - law.expected))  # type: ignore[attr-defined]  # of `step_law`


def thinned(frozen: Frozen, x: Tensor, h: Tensor) -> Thinned:
    """Where a frozen generator leads in a time h."""
    deaths = h * frozen["deaths"]
    return Thinned(torch.zeros_like(x), x, (-deaths).exp(), -torch.expm1(-deaths), h * frozen["births"])
