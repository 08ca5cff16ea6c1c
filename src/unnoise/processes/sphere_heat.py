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
LEAST = 0.01  # of the first noise in more than three dimensions
TURNS, AXES = 20, 12  # of unit quaternions: angles from x_0, and heights of directions


class SphereHeat(HeatProcess):
    """Brownian motion of unit vectors of R^(d+1)."""

    space: Sphere
    state_space: Sphere

    def __init__(self, d: int = 2, schedule: Schedule | None = None):
        space = Sphere(d)
        super().__init__(space, schedule, VE(0.01 if d <= MOST else 0.05, 4.5 / sqrt(d)))
        if self.schedule.shape:
            raise ValueError(f"a schedule of shape {self.schedule.shape} does not fit {space}: its entries move together")
        if d > MOST and float(self.schedule.sigma(0.0).detach()) < LEAST:
            raise ValueError(
                f"{type(self.schedule).__name__} begins with sigma = {float(self.schedule.sigma(0.0).detach()):g}, where "
                f"densities of {space} are sums over more than 2e4 lines: begin with at least {LEAST:g}"
            )
        self.curvature = d

    def law(self, mean: Tensor, variance: Tensor) -> SphereLaw:
        return SphereLaw(mean, variance)

    def uniform(self, like: Tensor) -> UniformOnSphere:
        return UniformOnSphere(like)

    @property
    def integrable(self) -> bool:
        return self.space.d <= MOST

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        """Gauss's nodes in the angle from x_0, and directions around it: even ones, or by a rule of the globe."""
        x0, d = self.space.check(x0, "x0"), self.space.d
        if d > MOST:
            raise ValueError(f"an exact expectation over {self.space} is out of reach (at most d = 3): draw instead")
        place, weight = rule((ALONE, RINGS, TURNS)[d - 1], x0)
        v = self.variance(t, x0)[:, 0]
        end = furthest(v, d)
        w = end * place.unsqueeze(-1)  # [rings, batch]
        log_weight = log_angle_density(w, v, d) + (end * weight.unsqueeze(-1)).log()
        directions, log_share = _directions(x0.double())
        w = w[:, None, :, None]
        nodes = torch.cos(w) * x0.double() + torch.sin(w) * directions
        log_weight = log_weight.unsqueeze(1) + log_share
        return nodes.flatten(0, 1).to(x0.dtype), log_weight.flatten(0, 1)


def _directions(x: Tensor) -> tuple[Tensor, Tensor]:
    """Unit vectors [directions, batch, d + 1] across each point, and the logarithms [directions, 1] of their shares."""
    if x.shape[-1] == 4:  # x i, x j and x k of a unit quaternion
        a, b, c, d = x.unbind(-1)
        frame = torch.stack([torch.stack(part, -1) for part in ((-b, a, d, -c), (-c, -d, a, b), (-d, c, -b, a))])
        axes, share = (part.to(x.device) for part in Sphere(2).nodes(AXES))
        return torch.einsum("ni,ibk->nbk", axes, frame), (share / (2 * TURN)).log().unsqueeze(-1)
    first = _across(x)
    if x.shape[-1] == 2:
        directions = torch.stack([first, -first])
    else:
        second = torch.linalg.cross(x, first)
        turn = TURN / AROUND * torch.arange(AROUND, dtype=torch.float64, device=x.device).reshape(-1, 1, 1)
        directions = torch.cos(turn) * first + torch.sin(turn) * second
    return directions, torch.full((len(directions), 1), -log(len(directions)), dtype=torch.float64, device=x.device)


def _across(x: Tensor) -> Tensor:
    """A unit vector across each."""
    if x.shape[-1] == 2:
        return torch.stack([-x[:, 1], x[:, 0]], -1)
    axis = torch.nn.functional.one_hot(x.abs().argmin(-1), x.shape[-1]).to(x)
    first = axis - (axis * x).sum(-1, keepdim=True) * x
    return first / first.norm(dim=-1, keepdim=True)
