"""Phase space: a position and a velocity, of the same shape, in one array [batch, 2, *shape].

    z = (x, v),   x = z[:, 0],   v = z[:, 1]

Where a process has a single speed c, every coordinate of v is +c or -c, and densities are of Lebesgue measure in x times
counting measure in v; else velocities are any numbers, and densities are of Lebesgue measure in both.  A generator acts as
on numbers: its drift is the flow of (x, v), and its jumps change v alone (`JumpKernel`).
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.checks import unread
from unnoise.shapes import AnyState
from unnoise.spaces.euclidean import Euclidean

ROUNDING = 1e-5  # relative, of a speed in float32


class PhaseSpace(Euclidean):
    """Positions and velocities of the given shape; with `speed` every velocity is one of -speed and +speed."""

    def __init__(self, shape: int | Sequence[int] = (), speed: float | None = None):
        place = (shape,) if isinstance(shape, int) else tuple(shape)
        if speed is not None and not 0 < speed < torch.inf:
            raise ValueError(f"speed = {speed:g}: pass a positive number, or None where velocities are any numbers")
        super().__init__((2, *place))
        self.positions, self.speed = Euclidean(place), speed

    @property
    def reference(self) -> str:  # type: ignore[override]
        return "Lebesgue measure" if self.speed is None else "Lebesgue measure in x, counting measure in v"

    def check(self, x: AnyState, name: str = "x") -> Tensor:
        x = super().check(x, name)
        if self.speed is not None and unread(x, self.positions):
            gap = (x[:, 1].detach().abs() - self.speed).abs()
            if bool((gap > ROUNDING * self.speed).any()):
                wrong = float(x[:, 1].detach().flatten()[gap.flatten().argmax()])
                raise ValueError(
                    f"{name} has the velocity {wrong:g}, and here all are -{self.speed:g} or {self.speed:g}: pass "
                    f"torch.stack([x, v], 1) with such v"
                )
        return x

    def project(self, x: Tensor) -> Tensor:
        if self.speed is None:
            return x
        return torch.stack([x[:, 0], torch.where(x[:, 1] < 0, -self.speed, self.speed).to(x.dtype)], 1)

    def __repr__(self) -> str:
        speed = "" if self.speed is None else f", speed={self.speed:g}"
        return f"PhaseSpace({self.positions.shape}{speed})"


def turned(z: Tensor) -> Tensor:
    """The same places with the opposite velocities."""
    return torch.stack([z[:, 0], -z[:, 1]], 1)
