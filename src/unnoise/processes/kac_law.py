"""Where a particle is that moves at the speed c and turns round at rate a: the telegraph law, with its atom.

Along its first direction it has gone e in [-ch, ch] after a time h.  With zeta = (a/c) sqrt(c^2 h^2 - e^2)

    still the first velocity     e^{-ah} delta(e - ch)  +  (a/2c) e^{-ah} sqrt((ch + e)/(ch - e)) I_1(zeta)
    the opposite one             (a/2c) e^{-ah} I_0(zeta)

The atom is the particle that has not turned.  In the densities sqrt((ch + e)/(ch - e)) = (a/c)(ch + e)/zeta, and
I_1(zeta)/zeta is 1/2 at 0, so nothing diverges at the edge; e^{-ah} goes with the scaled Bessel functions, as zeta - ah =
-(a/c) e^2/(ch + sqrt(c^2 h^2 - e^2)), without a difference of large numbers.

Drawn exactly: Poisson(ah) turns, at times that are ordered uniforms.
"""

from math import log

import torch
from torch import Tensor

from unnoise.laws import LOG_ZERO, Law, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Bool, Float

NEAR = {torch.float32: 3e-6, torch.float64: 1e-13}  # a place on the atom, relative to the sizes that were added


def log_i1_ratio(zeta: Tensor) -> Tensor:
    """log(e^{-zeta} I_1(zeta)/zeta)."""
    small = zeta < 1e-3
    safe = torch.where(small, 1.0, zeta)
    series = torch.log1p(zeta.square() / 8) - zeta - log(2.0)
    return torch.where(small, series, (torch.special.i1e(safe) / safe).log())


def log_densities(e: Tensor, h: Tensor, rate: float, speed: float) -> tuple[Tensor, Tensor]:
    """Of the places without the atom, in pairs: with the first velocity, and with the opposite one; LOG_ZERO out of
    reach."""
    reach = speed * h
    inside = (e.abs() <= reach) & (reach > 0)
    e = torch.where(inside, e, 0.0)
    root = ((reach - e) * (reach + e)).clamp_min(0).sqrt()
    zeta = (rate / speed) * root
    fade = -(rate / speed) * e.square() / (reach + root).clamp_min(1e-300)  # zeta - ah
    common = log(rate / (2 * speed)) + fade
    same = common + log_i1_ratio(zeta) + (rate / speed * (reach + e)).clamp_min(1e-300).log()
    other = common + torch.special.i0e(zeta).log()
    return torch.where(inside, same, LOG_ZERO), torch.where(inside, other, LOG_ZERO)


class KacLaw(Law):
    """(x, v) a time h after x_s with the velocities v_s, or with a fair sign for each where v_s is None; h per row, shaped
    to multiply x.

    `log_prob` is the log of a mass on the atom, and of a density beside it.
    """

    def __init__(self, x_s: Tensor, v_s: Tensor | None, h: Tensor, rate: float, speed: float):
        self.x_s, self.v_s, self.h, self.rate, self.speed = x_s, v_s, h, rate, speed

    def _gone(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """How far along the direction that z has now, and whether that place is the end of an unbroken way."""
        way = (z[:, 0].double() - self.x_s.double()) * z[:, 1].sign().double()
        reach = self.speed * self.h
        sizes = z[:, 0].abs().double() + self.x_s.abs().double() + reach
        return way, (way - reach).abs() <= NEAR.get(z.dtype, 1e-2) * sizes

    def on_atom(self, z: Tensor) -> Bool[Tensor, "batch *shape"]:
        """Which coordinates have not turned."""
        _, unbroken = self._gone(z)
        return unbroken if self.v_s is None else unbroken & (self.v_s.sign() == z[:, 1].sign())

    def coordinates(self, z: Tensor) -> tuple[Tensor, Tensor]:
        """The log-density of each coordinate as it is, and with its velocity turned; the atom is left out."""
        way, _ = self._gone(z)
        same, other = log_densities(way, self.h, self.rate, self.speed)
        back, _ = log_densities(-way, self.h, self.rate, self.speed)
        if self.v_s is None:  # the first velocity was the one at hand, or the opposite one
            return torch.logaddexp(same, other) - log(2.0), torch.logaddexp(back, other) - log(2.0)
        kept = self.v_s.sign() == z[:, 1].sign()
        return torch.where(kept, same, other), torch.where(kept, other, back)

    def log_coordinates(self, z: Tensor) -> Tensor:
        """Of each coordinate the log of its density, or of the atom's mass."""
        mass = -self.rate * self.h - (log(2.0) if self.v_s is None else 0.0)
        return torch.where(self.on_atom(z), mass, self.coordinates(z)[0])

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        return sum_coordinates(self.log_coordinates(x))

    def log_flip(self, z: Tensor) -> Tensor:
        """log q(R_i z)/q(z) of each coordinate: the reverse never turns on the atom."""
        here, there = self.coordinates(z)
        return torch.where(self.on_atom(z), LOG_ZERO, there - here)

    def draw(self, noise: NoiseSource) -> Tensor:
        shape, x_s = tuple(self.x_s.shape[1:]), self.x_s.double()
        v = self.v_s
        if v is None:
            v = torch.where(noise.at("velocity").uniform(shape) < 0.5, -self.speed, self.speed)
        h = self.h.expand_as(x_s)
        turns = poisson(self.rate * h, noise.at("turns").uniform(shape))
        most = int(turns.max())
        order = noise.at("times").uniform((most, *shape)).movedim(1, -1)  # the number of turns of others moves none
        none = torch.arange(most, device=order.device) >= turns.unsqueeze(-1)
        order = torch.where(none, 1.0, order).sort(-1).values
        edge = torch.ones_like(x_s).unsqueeze(-1)
        gaps = torch.cat([order, edge], -1) - torch.cat([0 * edge, order], -1)
        signs = 1 - 2 * (torch.arange(most + 1, device=order.device) % 2)
        way = h * (gaps * signs).sum(-1)
        place = x_s + v.double() * torch.where(turns == 0, h, way)
        return torch.stack([place, v.double() * (1 - 2 * (turns % 2))], 1).to(self.x_s.dtype)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError("a law with atoms is infinitely far from one with a density: use the bound of the paths")


def poisson(mean: Tensor, u: Tensor) -> Tensor:
    """Quantiles of the Poisson law: int64."""
    most = float(mean.max())
    k = torch.arange(int(most + 12 * most**0.5 + 40), dtype=torch.float64, device=mean.device)
    below = torch.special.gammaincc(k + 1, mean.double().unsqueeze(-1).expand(*mean.shape, len(k)))  # P(N <= k)
    return (u.unsqueeze(-1) > below).sum(-1)
