"""Angles: numbers that close on themselves.

A torus is flat.  A generator acts on it as on numbers, for functions of period 2 pi, so that all of `Euclidean` holds as it
is, and only a step is wrapped around.  Angles are in radians, in [-pi, pi); densities are of arc length, with period 2 pi,
and the whole has the volume (2 pi)^d.
"""

from math import log, pi

import torch
from torch import Tensor

from unnoise.checks import unread, within
from unnoise.heat_laws import TURN, WrappedLaw, wrap
from unnoise.laws import Law, sum_coordinates
from unnoise.shapes import AnyState, Float
from unnoise.spaces.euclidean import Euclidean
from unnoise.spaces.local import Local
from unnoise.spaces.manifold import Manifold

ROUNDING = 1e-6  # by which the float32 that is nearest to pi lies outside, and a little more
STEPS = "the law of a step with jumps to anywhere is known on numbers alone"
MOST_AXES = 3  # angles of a rule for integrals


class Torus(Euclidean, Manifold):
    """Angles in radians, in an array of the given shape."""

    reference = "arc length"

    def check(self, x: AnyState, name: str = "x") -> Tensor:
        x = super().check(x, name)
        if unread(x, Torus) and not within(x, -pi - ROUNDING, pi + ROUNDING):
            largest = float(x.detach().abs().max())
            degrees = f", or {name} * torch.pi / 180 first if these are degrees" if largest > 2 * TURN else ""
            raise ValueError(
                f"{name} has the angle {largest:g} (in size), outside of [-pi, pi): pass space.project({name}), which wraps "
                f"it{degrees}"
            )
        return x

    def project(self, x: Tensor) -> Tensor:
        return wrap(x)

    def step_law(self, local: Local, x: Tensor, h: Tensor) -> WrappedLaw:
        """A normal step, wrapped around."""
        self.refuse_parts(local, jumps=STEPS)
        if local.covariance is not None:
            raise TypeError(f"noise with the covariance {local.covariance}: the law of a step on {self} is of single angles")
        frozen = self.freeze(local, x)
        return WrappedLaw(wrap(x + (h * frozen["drift"]).to(x.dtype)), (h * frozen["diffusion"]).expand(x.shape))

    def along(self, slope: Tensor, law: Law, x: Tensor, y: Tensor) -> Float[Tensor, "batch"]:
        """slope . (y - E y), the shorter way around: as likely one way as the other."""
        return sum_coordinates(slope * wrap(y - law.mean))  # type: ignore[attr-defined]  # of `step_law`

    @property
    def log_volume(self) -> float:
        return self.dimension * log(TURN)

    def tangent(self, v: Tensor, x: Tensor) -> Tensor:
        return v

    def carry(self, x: Tensor, v: Tensor) -> Tensor:
        return wrap(x + v)

    def nodes(self, count: int) -> tuple[Tensor, Float[Tensor, "nodes"]]:
        """Even ones: the rule converges geometrically for what is smooth."""
        if self.dimension > MOST_AXES:
            raise ValueError(f"a rule over {self.dimension} angles is out of reach (at most {MOST_AXES}): draw instead")
        line = TURN / count * torch.arange(count, dtype=torch.float64) - pi
        points = torch.cartesian_prod(*[line] * self.dimension).reshape(-1, *self.shape)
        return points, torch.full((len(points),), (TURN / count) ** self.dimension, dtype=torch.float64)


class Circle(Torus):
    """One angle, of shape ()."""

    def __init__(self) -> None:
        super().__init__(())

    def __repr__(self) -> str:
        return "Circle()"
