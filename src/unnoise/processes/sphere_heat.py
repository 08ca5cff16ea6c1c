"""Brownian motion on a sphere, which ends uniform (see `processes.heat` and `sphere_laws`).

There is no kernel over a step down by a score: it is drawn along great circles (`FromGenerator`).
"""

from math import log, sqrt

import torch
from torch import Tensor

from unnoise.heat_laws import TURN
from unnoise.processes.heat import HeatProcess
from unnoise.schedules import VE, Schedule
from unnoise.shapes import Clock
from unnoise.spaces import Sphere
from unnoise.sphere_laws import MOST, SphereLaw, UniformOnSphere, furthest, log_angle_density, rule

RINGS, AROUND = 28, 28  # nodes of an exact expectation on the globe: angles from x_0, and directions
ALONE = 128  # angles on a circle


class SphereHeat(HeatProcess):
    """Brownian motion of unit vectors of R^(d+1), d = 1, 2 or 3."""

    space: Sphere
    state_space: Sphere

    def __init__(self, d: int = 2, schedule: Schedule | None = None):
        space = Sphere(d)
        if d > MOST:
            raise ValueError(f"d = {d}: the heat kernel of a sphere is known for d = 1, 2 and 3; another is a HeatProcess")
        super().__init__(space, schedule, VE(0.01, 4.5 / sqrt(d)))
        if self.schedule.shape:
            raise ValueError(f"a schedule of shape {self.schedule.shape} does not fit {space}: its entries move together")
        self.curvature = d

    def law(self, mean: Tensor, variance: Tensor) -> SphereLaw:
        return SphereLaw(mean, variance)

    def uniform(self, like: Tensor) -> UniformOnSphere:
        return UniformOnSphere(like)

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        """Gauss's nodes in the angle from x_0, and even directions around it."""
        x0, d = self.space.check(x0, "x0"), self.space.d
        if d > 2:
            raise ValueError(f"an exact expectation over {self.space} is out of reach (at most d = 2): draw instead")
        place, weight = rule(ALONE if d == 1 else RINGS, x0)
        v = self.variance(t, x0)[:, 0]
        end = furthest(v, d)
        w = end * place.unsqueeze(-1)  # [rings, batch]
        log_weight = log_angle_density(w, v, d) + (end * weight.unsqueeze(-1)).log()
        first = _across(x0.double())
        if d == 1:
            directions = torch.stack([first, -first])
        else:
            second = torch.linalg.cross(x0.double(), first)
            turn = TURN / AROUND * torch.arange(AROUND, dtype=torch.float64, device=x0.device).reshape(-1, 1, 1)
            directions = torch.cos(turn) * first + torch.sin(turn) * second
        w = w[:, None, :, None]
        nodes = torch.cos(w) * x0.double() + torch.sin(w) * directions
        count = len(directions)
        log_weight = (log_weight.unsqueeze(1) - log(count)).expand(-1, count, -1)
        return nodes.flatten(0, 1).to(x0.dtype), log_weight.flatten(0, 1)


def _across(x: Tensor) -> Tensor:
    """A unit vector across each."""
    if x.shape[-1] == 2:
        return torch.stack([-x[:, 1], x[:, 0]], -1)
    axis = torch.nn.functional.one_hot(x.abs().argmin(-1), x.shape[-1]).to(x)
    first = axis - (axis * x).sum(-1, keepdim=True) * x
    return first / first.norm(dim=-1, keepdim=True)
