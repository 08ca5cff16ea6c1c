"""Velocities that flip one by one: every coordinate of v is +c or -c, and R_i turns the sign of the i-th.

    rates        lambda_i(x, v), coordinate by coordinate
    generator    L f = v . grad_x f + sum_i lambda_i(z) [f(R_i z) - f(z)]

R_i is its own inverse and keeps volumes, so the reverse flips i at the rate lambda_i(R_i z) p_t(R_i z)/p_t(z).
"""

from abc import abstractmethod
from copy import copy
from math import log

import torch
from torch import Tensor

from unnoise.laws import LOG_ZERO, Law, Normal, log_of
from unnoise.noise import NoiseSource
from unnoise.processes.finite_speed import LONGEST, FiniteSpeed, rows_of
from unnoise.shapes import AnyState, Clock, Float, Int
from unnoise.spaces import Euclidean, JumpKernel, Local
from unnoise.spaces.phase import PhaseSpace


def flipped(z: Tensor, mark: Int[Tensor, "batch"]) -> Tensor:
    """R_i z, with one coordinate for each row."""
    x, v = z[:, 0], z[:, 1]
    flat = v.reshape(len(v), -1)
    sign = torch.ones_like(flat).scatter(1, mark.unsqueeze(1), -1.0)
    return torch.stack([x, (flat * sign).reshape(v.shape)], 1)


class FlippingVelocity(FiniteSpeed):
    """Flips of single coordinates; `clock` is how fast the process runs."""

    clock: float = 1.0
    separate: bool = True  # whether rates know of their own coordinate of x alone

    @property
    def longest(self) -> float:
        return LONGEST / self.clock

    @property
    def speed(self) -> float:
        return float(self.state_space.speed)  # type: ignore[arg-type]

    @abstractmethod
    def rates(self, z: Tensor) -> Tensor:
        """lambda_i(z), the shape of x, float64; of v it knows its own coordinate alone."""

    def alone(self) -> "FlippingVelocity":
        """The same process of one coordinate, where coordinates are alike and know of none but themselves."""
        if not self.separate:
            raise ValueError(f"the coordinates of {self} do not move by themselves: no single one has a process of its own")
        other = copy(self)
        other.space, other.state_space = Euclidean((1,)), PhaseSpace((1,), self.speed)
        return other

    def flow(self, z: Tensor, h: Tensor) -> Tensor:
        way = rows_of(self.clock * h, z[:, 0]).to(z.dtype)
        return torch.stack([z[:, 0] + way * z[:, 1], z[:, 1]], 1)

    def exit_rate(self, z: Tensor) -> Float[Tensor, "batch"]:
        return self.rates(z).reshape(len(z), -1).sum(1)

    def jump(self, z: Tensor, mark: Int[Tensor, "batch"], noise: NoiseSource) -> Tensor:
        return flipped(z, mark)

    def trial(self, z: Tensor, noise: NoiseSource) -> tuple[Tensor, Tensor, Tensor]:
        count = self.space.dimension
        mark = (noise.uniform() * count).long().clamp_max(count - 1)
        rate = self.rates(z).reshape(len(z), -1).gather(1, mark.unsqueeze(1)).squeeze(1)
        return flipped(z, mark), mark, count * rate

    def start_velocity(self, x0: Tensor, noise: NoiseSource) -> Tensor:
        return coins(noise, tuple(x0.shape[1:])) * self.speed

    def log_start(self, v: Tensor) -> Float[Tensor, "batch"]:
        return torch.full((len(v),), -log(2.0) * self.space.dimension, dtype=torch.float64, device=v.device)

    def local(self, x: AnyState, t: Clock) -> Local:
        drift = torch.stack([self.clock * x[:, 1], torch.zeros_like(x[:, 1])], 1)
        return Local(drift=drift, jumps=Flips(self))


class Flips(JumpKernel):
    """The flips of all coordinates, as a kernel whose measure counts them."""

    def __init__(self, process: FlippingVelocity):
        self.process = process

    def log_rate(self, x: Tensor, y: Tensor) -> Tensor:
        changed = (x[:, 1] * y[:, 1] < 0).reshape(len(x), -1)
        rate = (self.process.rates(x).reshape(len(x), -1) * changed).sum(1)
        return torch.where(changed.sum(1) == 1, log_of(rate), LOG_ZERO)

    def nodes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        count = self.process.space.dimension
        each = [flipped(x, torch.full((len(x),), i, device=x.device)) for i in range(count)]
        return torch.stack(each, 1), torch.zeros(len(x), count, dtype=torch.float64, device=x.device)


class NormalAndCoins(Law):
    """Independent normal positions N(0, std^2), and a fair sign for each velocity."""

    def __init__(self, like: Tensor, std: float, speed: float):
        self.like, self.std, self.speed = like, std, speed

    def _place(self) -> Normal:
        return Normal(self.like, torch.tensor(self.std, dtype=self.like.dtype, device=self.like.device))

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        return self._place().log_prob(x[:, 0]).double() - log(2.0) * self.like[0].numel()

    def draw(self, noise: NoiseSource) -> Tensor:
        v = coins(noise.at("velocity"), tuple(self.like.shape[1:])) * self.speed
        return torch.stack([self._place().draw(noise.at("place")), v.to(self.like.dtype)], 1)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        if not isinstance(other, NormalAndCoins):
            raise TypeError(f"the divergence from a {type(other).__name__} has no closed form here")
        return self._place().kl(other._place())


def coins(noise: NoiseSource, shape: tuple[int, ...]) -> Tensor:
    """-1 or 1, float64."""
    return torch.where(noise.uniform(shape) < 0.5, -1.0, 1.0).double()
