"""Mixtures of normal laws under any rates of flips, on a grid of places: a transport solver in one dimension.

The densities of the two velocities are carried to and fro and exchanged,

    d/dt p_+ = -c d/dx p_+ + lambda_- p_- - lambda_+ p_+,        d/dt p_- = c d/dx p_- + lambda_+ p_+ - lambda_- p_-,

with lambda_+-(x) the rates at which they flip.  A step of time dt and places dx = c dt apart carry both without any error,
by one place; the exchange at one place is a matrix of two by two, whose exponential is known.  Half an exchange, the
carrying and half an exchange are of second order in dt, keep the mass and every density positive.  The oracle extrapolates
log p from two such solutions.

Backwards in time the same steps solve for the law of a model, whose rates change with time: they are asked for half-way.

Coordinates are independent within a component, so each has a grid of its own.  Between places log p is a cubic, and
between times it is linear along the way of the velocity.
"""

from functools import cached_property

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.oracles.flips import FlipMixture
from unnoise.predictions import FlipRatios
from unnoise.processes import FlippingVelocity
from unnoise.processes.ratio_flips import back_rates
from unnoise.shapes import Float

TINY = 1e-300
STDS = 8.0  # of a component, within which the grid begins
DRIFTED = 4.0  # how much further paths may come, at most: rates of a target grow with the distance


class PhaseGrid:
    """Equally spaced, one where x = 0, with both velocities."""

    def __init__(self, process: FlippingVelocity, steps: int, half: int):
        self.process, self.steps, self.half = process, steps, half
        self.gap = process.clock * process.speed / steps
        self.low = -half * self.gap
        self.x = torch.arange(-half, half + 1, dtype=torch.float64) * self.gap

    @classmethod
    def within(cls, process: FlippingVelocity, steps: int, far: float) -> "PhaseGrid":
        return cls(process, steps, int(far * steps / (process.clock * process.speed)) + 1)

    def finer(self) -> "PhaseGrid":
        """The same places and those between, at twice as many times."""
        return PhaseGrid(self.process, 2 * self.steps, 2 * self.half)

    def states(self) -> Tensor:
        """[2 places, 2, 1]: all with -c, then all with c."""
        v = torch.full_like(self.x, self.process.speed)
        return torch.cat([torch.stack([self.x, w], 1) for w in (-v, v)]).unsqueeze(2)

    def exchanged(self, p: Tensor, rates: Tensor) -> Tensor:
        """Densities [2, places] after half a step of flips at the rates [2, places]."""
        down, up = rates.unbind(0)  # from -c to c, and from c to -c
        total = (down + up).clamp_min(TINY)
        moved = -torch.expm1(-total * 0.5 / self.steps) * (up * p[1] - down * p[0]) / total
        return torch.stack([p[0] + moved, p[1] - moved])

    def carried(self, p: Tensor, way: int) -> Tensor:
        """One place on, along the velocities (way 1) or against them (-1)."""
        out = torch.zeros_like(p)
        left, right = (p[0], p[1]) if way > 0 else (p[1], p[0])
        out[0 if way > 0 else 1, :-1] = left[1:]
        out[1 if way > 0 else 0, 1:] = right[:-1]
        return out

    def forward(self, density: Tensor) -> Float[Tensor, "times two places"]:
        """p_t at all times, of positions with this density and fair signs."""
        p, rates = 0.5 * density.expand(2, -1), self.process.rates(self.states()).reshape(2, -1)
        table = [p]
        for _ in range(self.steps):
            p = self.exchanged(self.carried(self.exchanged(p, rates), 1), rates)
            table.append(p)
        return torch.stack(table)

    def backward(self, model: AnyDenoiser) -> Float[Tensor, "places"]:
        """The density of x_0 under a model of one coordinate, from its prior."""
        states = self.states()
        p = model.process.prior(len(states), torch.float64).log_prob(states).exp().reshape(2, -1)
        for k in range(self.steps, 0, -1):
            prediction: FlipRatios = model(states, (k - 0.5) / self.steps)  # type: ignore[assignment]
            rates = (back_rates(self.process, states) * prediction.log_ratios.exp()).reshape(2, -1)
            p = self.exchanged(self.carried(self.exchanged(p, rates), -1), rates)
        return p.sum(0)


def carried_normal(places: PhaseGrid, m: float, s: float) -> Float[Tensor, "times two places"]:
    """log p_t from the positions N(m, s^2), of the steps at hand and of half of them: the error of second order cancels."""

    def solved(places: PhaseGrid) -> Tensor:
        density = (-0.5 * ((places.x - m) / s).square()).exp() / (s * (2 * torch.pi) ** 0.5)
        return places.forward(density).clamp_min(TINY).log()

    return (4 * solved(places.finer())[::2, :, ::2] - solved(places)) / 3


class FlipGrid(FlipMixture):
    """Weights [components], means and stds [components, *shape]; `steps` of the solver in the time of the model."""

    accuracy = 3e-3

    def __init__(self, process: FlippingVelocity, weights: Tensor, means: Tensor, stds: Tensor, steps: int = 400):
        super().__init__(process, weights, means, stds)
        one = process.alone()
        far = float((self.means.abs() + STDS * self.stds).max()) + min(process.clock * process.speed, DRIFTED)
        self.places = PhaseGrid.within(one, steps, far)
        pairs = list(zip(self.means.flatten().tolist(), self.stds.flatten().tolist(), strict=True))
        self.apart = list(dict.fromkeys(pairs))  # components of coordinates that are not alike
        self.which = torch.tensor([self.apart.index(pair) for pair in pairs]).reshape(self.means.shape)

    @cached_property
    def table(self) -> Tensor:
        """log p of each, one after another, solved for when it is first asked for."""
        return torch.stack([carried_normal(self.places, m, s) for m, s in self.apart]).flatten()

    def _coordinates(self, x: Tensor, sign: Tensor, t: Float[Tensor, "batch"]) -> tuple[Tensor, Tensor]:
        n, count = self.places.steps, len(self.places.x)
        place = ((x - self.places.low) / self.places.gap).unsqueeze(1)
        clock = (t * n).clamp(0, n - 1e-6).reshape(-1, *[1] * x.ndim)
        k = clock.long()
        later, up = clock - k, (sign > 0).long().unsqueeze(1)

        def at(v: Tensor) -> Tensor:
            begin, way = ((self.which * (n + 1) + k) * 2 + v) * count, 2 * v - 1
            now = self._between(begin, (place - way * later).expand(begin.shape), count)
            then = self._between(begin + 2 * count, (place + way * (1 - later)).expand(begin.shape), count)
            return torch.lerp(now, then, later.expand_as(now))

        return at(up), at(1 - up)

    def _between(self, begin: Tensor, place: Tensor, count: int) -> Tensor:
        """Of the entries that begin there, by the cubic through the four that are nearest."""
        i = place.long().clamp(1, count - 3)
        f = (place - i).clamp(-1, 2)
        below, above = f + 1, f - 1
        weights = (-f * above * (f - 2) / 6, below * above * (f - 2) / 2, -below * f * (f - 2) / 2, below * f * above / 6)
        return sum(w * self.table[begin + i + j] for w, j in zip(weights, (-1, 0, 1, 2), strict=True))  # type: ignore[return-value]
