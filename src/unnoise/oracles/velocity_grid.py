"""Mixtures of normal laws under processes that draw velocities afresh, in one dimension, on a grid of places and velocities.

A step of time splits into what is known exactly of each part:

    flow       three shears turn (x, v) by an angle, x += tan(a/2) v, v -= sin(a) x, x += tan(a/2) v; one is a straight way.
               A shear moves every line of the grid by its own distance: a phase for each wave, without any error of its own
    bounces    exchange v and -v at one place, a matrix of two by two
    refreshing p <- e^{-ah} p + (1 - e^{-ah}) N(v) int p dv

put together symmetrically, so that the error is of second order in time; log p is extrapolated from two such solutions.
Between places and velocities it is a cubic, and between times it is linear along the flow.
"""

from functools import cached_property

import torch
from torch import Tensor

from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.oracles.flights import FlightMixture
from unnoise.predictions import Prediction, VelocityDensity
from unnoise.processes.refreshed import RefreshedVelocity
from unnoise.shapes import AnyState, Clock, Float

FAR, FASTEST = 8.0, 6.4  # of places and velocities
TINY = 1e-15


def shifted(p: Tensor, way: Tensor, gap: float) -> Tensor:
    """Lines p [lines, places] moved by a distance each."""
    waves = 2 * torch.pi * torch.fft.rfftfreq(p.shape[1], gap, dtype=p.dtype)
    return torch.fft.irfft(torch.fft.rfft(p) * torch.exp(-1j * waves * way.unsqueeze(1)), n=p.shape[1])


class VelocityGrid(FlightMixture):
    """Weights [components], means and stds [components, 1]; `steps` of time and `places`, of velocities as many."""

    process: RefreshedVelocity
    accuracy = 1e-2

    def __init__(
        self, process: RefreshedVelocity, weights: Tensor, means: Tensor, stds: Tensor, steps: int = 160, places: int = 160
    ):
        super().__init__(process, weights, means, stds)
        if process.space.dimension != 1:
            raise ValueError(f"{process.space}: the grid has one place and one velocity: build the process on (1,)")
        self.steps, self.places = steps, places
        self.x = (torch.arange(places, dtype=torch.float64) - places // 2) * (2 * FAR / places)
        self.v = (torch.arange(places, dtype=torch.float64) - (places - 1) / 2) * (2 * FASTEST / places)
        self.gap_x, self.gap_v = 2 * FAR / places, 2 * FASTEST / places
        self.normal = (-0.5 * self.v.square()).exp() / (2 * torch.pi) ** 0.5

    @cached_property
    def table(self) -> Float[Tensor, "times places velocities"]:
        """log p, solved for when it is first asked for."""
        return (4 * self._solved(2 * self.steps)[::2] - self._solved(self.steps)) / 3

    @cached_property
    def below(self) -> Tensor:
        """Of each place the sums of p up to a velocity."""
        return self.table.exp().cumsum(2)

    @cached_property
    def rho(self) -> Tensor:
        """log p_t(x)."""
        return (self.below[:, :, -1] * self.gap_v).log()

    def _solved(self, steps: int) -> Tensor:
        h = self.process.clock / steps
        p = self.log_prob(self.x.unsqueeze(1)).exp().unsqueeze(1) * self.normal
        grid = torch.stack(torch.meshgrid(self.x, self.v, indexing="ij"), 2).reshape(-1, 2, 1)
        bounce = self.process.bounce_rate(grid).reshape(p.shape)
        table = [p]
        for _ in range(steps):
            p = self._jumped(self._flown(self._jumped(p, bounce, h / 2, True), h), bounce, h / 2, False)
            table.append(p)
        return torch.stack(table).clamp_min(TINY).log()

    def _flown(self, p: Tensor, h: float) -> Tensor:
        if self.process.bounces:
            return shifted(p.T, self.v * h, self.gap_x).T
        half, whole = torch.tan(torch.tensor(h / 2)), torch.sin(torch.tensor(h))
        p = shifted(p.T, self.v * half, self.gap_x).T
        p = shifted(p, -self.x * whole, self.gap_v)
        return shifted(p.T, self.v * half, self.gap_x).T

    def _jumped(self, p: Tensor, bounce: Tensor, h: float, first: bool) -> Tensor:
        p = p if first else self._refreshed(p, h)
        if self.process.bounces:
            back = bounce.flip(1)
            total = (bounce + back).clamp_min(1e-300)
            moved = -torch.expm1(-total * h) * (bounce * p - back * p.flip(1)) / total
            p = p - moved
        return self._refreshed(p, h) if first else p

    def _refreshed(self, p: Tensor, h: float) -> Tensor:
        stay = float(torch.exp(torch.tensor(-self.process.refresh * h, dtype=torch.float64)))
        return stay * p + (1 - stay) * (p.sum(1, keepdim=True) * self.gap_v) * self.normal

    def _log_density(self, z: Tensor, t: Tensor) -> Float[Tensor, "batch"]:
        clock = (t * self.steps).clamp(0, self.steps - 1e-6)
        k = clock.long()
        later = clock - k
        begin = self.process.flow(z, -later / self.steps)
        end = self.process.flow(z, (1 - later) / self.steps)
        return torch.lerp(self._cubic(k, begin), self._cubic(k + 1, end), later)

    def _cubic(self, k: Tensor, z: Tensor) -> Tensor:
        at_x, at_v = z[:, 0, 0] / self.gap_x + self.places // 2, z[:, 1, 0] / self.gap_v + (self.places - 1) / 2
        (i, weight_x), (j, weight_v) = cubic_weights(at_x, self.places), cubic_weights(at_v, self.places)
        begin, total = k * self.places**2, torch.zeros_like(at_x)
        for a in range(4):
            for b in range(4):
                entry = begin + (i + a - 1) * self.places + j + b - 1
                total = total + weight_x[a] * weight_v[b] * self.table.reshape(-1)[entry]
        return total

    def _log_place(self, x: Tensor, t: Tensor) -> Tensor:
        clock = (t * self.steps).clamp(0, self.steps - 1e-6)
        k = clock.long()
        i, weights = cubic_weights(x / self.gap_x + self.places // 2, self.places)
        now, then = (
            torch.stack([w * self.rho[k + step, i + a - 1] for a, w in enumerate(weights)]).sum(0) for step in (0, 1)
        )
        return torch.lerp(now, then, clock - k)

    def native(self, x_t: AnyState, t: AnyState) -> Prediction:
        clock = torch.as_tensor(t, dtype=torch.float64).expand(len(x_t))
        return VelocityDensity(x_t.new_zeros(len(x_t)), self.process, x_t, t, VelocityGivenPlace(self, x_t, clock))

    def log_marginal(self, x_t: AnyState, t: Clock) -> Float[Tensor, "batch"]:
        return self._log_density(x_t.double(), torch.as_tensor(t, dtype=torch.float64).expand(len(x_t)))


def cubic_weights(place: Tensor, count: int) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor, Tensor]]:
    """The point before a place, and the weights of the four nearest."""
    i = place.long().clamp(1, count - 3)
    f = (place - i).clamp(-1, 2)
    below, above, beyond = f + 1, f - 1, f - 2
    return i, (-f * above * beyond / 6, below * above * beyond / 2, -below * f * beyond / 2, below * f * above / 6)


class VelocityGivenPlace(Law):
    """p_t(v | x) of a grid, at the places and times of a batch."""

    def __init__(self, oracle: VelocityGrid, z: Tensor, t: Tensor):
        self.oracle, self.x, self.t = oracle, z[:, 0].double(), t

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        times = len(x) // len(self.x)
        place, t = self.x.repeat_interleave(times, 0), self.t.repeat_interleave(times)
        z = torch.stack([place, x.double()], 1)
        return self.oracle._log_density(z, t) - self.oracle._log_place(place[:, 0], t)

    def draw(self, noise: NoiseSource) -> Tensor:
        """From one of the nearest places and times, as likely as it is near, by the distribution function on the grid."""
        oracle, u = self.oracle, noise.uniform((3,))
        i = (self.x[:, 0] / oracle.gap_x + oracle.places // 2 + u[:, 0]).floor().long().clamp(0, oracle.places - 1)
        k = (self.t * oracle.steps + u[:, 1]).floor().long().clamp(0, oracle.steps)
        below = oracle.below[k, i]
        j = torch.searchsorted(below, u[:, 2:] * below[:, -1:]).clamp_max(oracle.places - 1)
        before = torch.where(j > 0, below.gather(1, (j - 1).clamp_min(0)), 0.0)
        share = (u[:, 2:] * below[:, -1:] - before) / (below.gather(1, j) - before).clamp_min(1e-300)
        return oracle.v[j] + (share - 0.5) * oracle.gap_v

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError("a law on a grid has no divergence in closed form")
