"""Brownian motion on rotations, which ends uniform (see `processes.heat` and `rotation_laws`).

The slowest wave fades like e^{-v}, and with it the score: f_v is about 1 + 3 e^{-v} (1 + 2 cos w), so that the mean square
of its slope per direction is 1/3 36 e^{-2v} E sin^2 w = 6 e^{-2v}, where the space is filled; and 1/v at little noise.
Both has

    u_v^2 = 6/(e^{2v} - e^{-4v}).

There is no kernel over a step down by a score: it is drawn along geodesics (`FromGenerator`).
"""

from math import log, sqrt

import torch
from torch import Tensor

from unnoise.processes.heat import HeatProcess
from unnoise.rotation_laws import RotationLaw, UniformRotations, furthest, log_angle_density
from unnoise.rotation_matrices import exponential
from unnoise.schedules import VE, Schedule
from unnoise.shapes import Clock
from unnoise.spaces import Rotations, Sphere
from unnoise.sphere_laws import rule

RINGS, AXES = 20, 12  # nodes of an exact expectation: angles from x_0, and heights of their axes; 8 leave 1e-5 of a bound


class RotationHeat(HeatProcess):
    """Brownian motion of rotation matrices."""

    space: Rotations
    state_space: Rotations
    curvature = 2
    strength = 6
    integrable = True

    def __init__(self, schedule: Schedule | None = None):
        super().__init__(Rotations(), schedule, VE(0.01, 4.5 / sqrt(2)))
        if self.schedule.shape:
            raise ValueError(
                f"a schedule of shape {self.schedule.shape} does not fit {self.space}: its entries move together"
            )

    def law(self, mean: Tensor, variance: Tensor) -> RotationLaw:
        return RotationLaw(mean, variance)

    def uniform(self, like: Tensor) -> UniformRotations:
        return UniformRotations(like)

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        """Gauss's nodes in the angle from x_0, and axes by a rule of the sphere."""
        x0 = self.space.check(x0, "x0")
        place, weight = rule(RINGS, x0)
        axes, share = (part.to(x0.device) for part in Sphere(2).nodes(AXES))
        v = self.variance(t, x0).reshape(-1)
        end = furthest(v)
        w = end * place.unsqueeze(-1)  # [rings, batch]
        log_weight = log_angle_density(w, v) + (end * weight.unsqueeze(-1)).log()
        turn = exponential(w[:, None, :, None] * axes[None, :, None, :])
        nodes = x0.double() @ turn
        log_weight = log_weight.unsqueeze(1) + (share.log() - log(4 * torch.pi))[None, :, None]
        return nodes.flatten(0, 1).to(x0.dtype), log_weight.flatten(0, 1)
