"""Randomised Hamiltonian dynamics and the bouncy particle, with the target N(0, I).

    Hamiltonian    (x, v)' = (v, -x), a rotation, known exactly; v is drawn afresh at a constant rate
    bouncy         (x, v)' = (v, 0); v is reflected on the slope x at the rate (v . x)_+, and drawn afresh at a constant rate

Along a straight way v . x grows by s |v|^2, so the next bounce is found by inversion: with y = v . x an exponential E is
reached at s = (-y)_+/|v|^2 + 2E/(y_+ + sqrt(y_+^2 + 2 |v|^2 E)).  In one dimension a bounce turns v round, and between fresh
velocities the bouncy particle is the zig-zag of that speed.
"""

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.processes.finite_speed import rows_of
from unnoise.processes.refreshed import BOUNCE, REFRESH, RefreshedVelocity
from unnoise.shapes import Float


class RandomisedHamiltonian(RefreshedVelocity):
    """`RandomisedHamiltonian(shape, duration, refresh)`; `cap` is the largest N(v)/p(v | x) of the model."""

    def field(self, z: Tensor) -> Tensor:
        return torch.stack([z[:, 1], -z[:, 0]], 1)

    def flow(self, z: Tensor, h: Tensor) -> Tensor:
        angle = rows_of(self.clock * h, z[:, 0])
        cos, sin = angle.cos().to(z.dtype), angle.sin().to(z.dtype)
        return torch.stack([cos * z[:, 0] + sin * z[:, 1], cos * z[:, 1] - sin * z[:, 0]], 1)

    def next_jump(self, z: Tensor, noise: NoiseSource, times: float = 1.0) -> tuple[Tensor, Tensor]:
        wait = -noise.uniform().log() / (self.clock * self.refresh * times)
        return wait, torch.full((len(z),), REFRESH, device=z.device)


class BouncyParticle(RefreshedVelocity):
    """`BouncyParticle(shape, duration, refresh)`; `cap` is the largest ratio of densities of the model."""

    bounces = True

    def field(self, z: Tensor) -> Tensor:
        return torch.stack([z[:, 1], torch.zeros_like(z[:, 1])], 1)

    def flow(self, z: Tensor, h: Tensor) -> Tensor:
        way = rows_of(self.clock * h, z[:, 0]).to(z.dtype)
        return torch.stack([z[:, 0] + way * z[:, 1], z[:, 1]], 1)

    def _uphill(self, z: Tensor) -> Float[Tensor, "batch"]:
        """v . x."""
        return (z[:, 0].double() * z[:, 1].double()).reshape(len(z), -1).sum(1)

    def bounce_rate(self, z: Tensor) -> Float[Tensor, "batch"]:
        return self._uphill(z).clamp_min(0)

    def bounced(self, z: Tensor) -> Tensor:
        x = z[:, 0]
        along = self._uphill(z) / x.double().square().reshape(len(x), -1).sum(1).clamp_min(1e-300)
        return torch.stack([x, z[:, 1] - 2 * rows_of(along, x).to(x.dtype) * x], 1)

    def next_jump(self, z: Tensor, noise: NoiseSource, times: float = 1.0) -> tuple[Tensor, Tensor]:
        rises, anywhere = (-noise.uniform((2,)).log() / times).unbind(1)
        y, speed2 = self._uphill(z), z[:, 1].double().square().reshape(len(z), -1).sum(1).clamp_min(1e-300)
        uphill = y.clamp_min(0)
        bounce = (-y).clamp_min(0) / speed2 + 2 * rises / (uphill + (uphill**2 + 2 * speed2 * rises).sqrt())
        fresh = anywhere / self.refresh
        return torch.minimum(bounce, fresh) / self.clock, torch.where(fresh < bounce, REFRESH, BOUNCE)
