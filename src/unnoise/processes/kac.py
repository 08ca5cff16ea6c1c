"""The Kac (telegraph) process: every coordinate moves at the speed c, and turns round at rate a.

    generator    L f = v . grad_x f + a sum_i [f(x, R_i v) - f(x, v)],         v_i = +-c

Its speed is bounded, and its kernels are known in closed form (`processes.kac_law`), with an atom for the coordinates that
have not turned.  Var x_t = Var x_0 + (c^2/a) (t - (1 - e^{-2at})/2a); as a and c grow with c^2/a fixed it becomes Brownian
motion of the variance (c^2/a) t.  Reversed under the densities p_t it moves with -v and turns at the rate
a p_t(x, R_i v)/p_t(x, v).

There is no force that would make it forget: as with noise of growing variance the prior is wide, normal with the variance of
data of unit variance at t = 1, and fair signs.
"""

from collections.abc import Callable, Sequence
from math import exp, expm1, sqrt

import torch
from torch import Tensor

from unnoise.checks import as_times, ordered
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.processes.finite_speed import Flights, rows_of
from unnoise.processes.flips import FlippingVelocity, NormalAndCoins, flipped
from unnoise.processes.kac_law import KacLaw, poisson
from unnoise.processes.ratio_flips import RatioFlips
from unnoise.shapes import AnyState, Clock
from unnoise.spaces import Local


class Kac(FlippingVelocity):
    """`Kac(shape, speed=c, rate=a)`; `prior(rows)` a law of (x_1, v_1), `cap` the largest ratio of densities of the
    model."""

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        speed: float = 5.0,
        rate: float = 5.0,
        cap: float = 30.0,
        visits: int | None = None,
        prior: Callable[[int], Law] | None = None,
    ):
        super().__init__(shape, speed, cap, visits, prior)
        if not 0 < rate < torch.inf:
            raise ValueError(f"rate = {rate:g}: a velocity turns round at a positive rate")
        self.rate = float(rate)

    def spread(self, t: float) -> float:
        """The variance of x_t given x_0."""
        c, a = self.speed, self.rate
        if a * t < 1e-4:
            return c**2 * t**2 * (1 - 2 * a * t / 3)
        return c**2 / a * (t + expm1(-2 * a * t) / (2 * a))

    def atom(self, t: float) -> float:
        """The mass that has not turned by t, of one coordinate."""
        return exp(-self.rate * t)

    def rest(self, rows: int, dtype: torch.dtype | None, device: torch.device | str | None) -> Law:
        like = torch.zeros(rows, *self.space.shape, dtype=dtype, device=device)
        return NormalAndCoins(like, sqrt(1 + self.spread(1.0)), self.speed)

    def rates(self, z: Tensor) -> Tensor:
        return torch.full_like(z[:, 0], self.rate, dtype=torch.float64)

    def next_jump(self, z: Tensor, noise: NoiseSource, times: float = 1.0) -> tuple[Tensor, Tensor]:
        u, count = noise.uniform((2,)), self.space.dimension
        wait = -u[:, 0].log() / (self.rate * count * times)
        return wait, (u[:, 1] * count).long().clamp_max(count - 1)

    def flights(self, x0: Tensor, noise: NoiseSource) -> Flights:
        """Poisson(a d) turns at ordered uniform times, each of any coordinate."""
        z, count = self.started(x0, noise.at("velocity")), self.space.dimension
        mean = torch.full((len(z),), self.rate * count, dtype=torch.float64, device=z.device)
        turns = poisson(mean, noise.at("turns").uniform())
        most = int(turns.max())
        none = torch.arange(most, device=z.device) >= turns.unsqueeze(1)
        times = torch.where(none, 1.0, noise.at("times").uniform((most,))).sort(1).values
        which = (noise.at("which").uniform((most,)) * count).long().clamp_max(count - 1)
        marks = torch.where(none, -1, which)
        now, states = torch.zeros_like(mean), [z]
        for k in range(most):
            moved = self.flow(states[-1], times[:, k] - now)
            turned = flipped(moved, marks[:, k].clamp_min(0))
            states.append(torch.where(rows_of(none[:, k], z), moved, turned))
            now = times[:, k]
        ended = torch.full_like(marks[:, :1], -1) if most else torch.full((len(z), 1), -1, device=z.device)
        return Flights(
            torch.cat([torch.zeros_like(mean).unsqueeze(1), times], 1),
            torch.stack(states, 1),
            torch.cat([marks, ended], 1),
            self.flow(states[-1], 1 - now),
        )

    def marginal(self, x0: AnyState, t: Clock) -> KacLaw:
        x0 = self.space.check(x0, "x0")
        return KacLaw(x0, None, rows_of(as_times(t, len(x0), x0.device), x0), self.rate, self.speed)

    def transition(self, x_s: AnyState, s: Clock, t: Clock) -> KacLaw:
        z = self.state_space.check(x_s, "x_s")
        s, t = as_times(s, len(z), z.device, "s"), as_times(t, len(z), z.device)
        ordered(s, t)
        return KacLaw(z[:, 0], z[:, 1], rows_of(t - s, z[:, 0]), self.rate, self.speed)

    def conditioned_local(self, x_t: AnyState, x0: AnyState, t: Clock) -> Local:
        """Moving with -v, turning at a q(R_i z | x_0)/q(z | x_0): never on the atom."""
        law = self.marginal(x0, t)
        return Local(drift=-self.local(x_t, t).drift, jumps=RatioFlips(self, x_t, law.log_flip(x_t)))  # type: ignore[operator]
