"""Velocities that are drawn afresh: at a constant rate v is replaced by a draw of N(0, I).

    generator    L f = clock [ b . grad f + refresh (E_{v' ~ N(0, I)} f(x, v') - f(x, v)) + bounce(z) (f(x, R v) - f(x, v)) ]

b is a flow that keeps volumes and is undone by turning v round; where there are bounces, R keeps |v| and is its own inverse.
The law N(0, I) of x and of v is left as it is.  The model's time [0, 1] is `duration` of the process's own.

Backwards, under the densities p_t, a velocity v is given up at the rate refresh N(v)/p_t(v | x), for one drawn from
p_t(. | x), and bounces come at the rate bounce(R z) p_t(R v | x)/p_t(v | x).  One law p_t(v | x) says both.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from itertools import product
from math import log, pi

import numpy as np
import torch
from torch import Tensor

from unnoise.laws import LOG_ZERO, Law, Normal, log_of
from unnoise.noise import NoiseSource
from unnoise.processes.finite_speed import LONGEST, FiniteSpeed, rows_of
from unnoise.shapes import AnyState, Clock, Float, Int
from unnoise.spaces import JumpKernel, Local

REFRESH, BOUNCE = 0, 1  # marks
NODES = 32  # of the rule over fresh velocities, for each coordinate
MOST_NODES = 1100


class RefreshedVelocity(FiniteSpeed):
    """Base: `duration` of the process's own time, `refresh` the rate of fresh velocities."""

    bounces: bool = False

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        duration: float = 6.0,
        refresh: float = 1.0,
        cap: float = 30.0,
        visits: int | None = None,
        prior: Callable[[int], Law] | None = None,
    ):
        super().__init__(shape, None, cap, visits, prior)
        if not 0 < duration < torch.inf:
            raise ValueError(f"duration = {duration:g}: pass how long the process runs in all, such as 6")
        if not 0 < refresh < torch.inf:
            raise ValueError(f"refresh = {refresh:g}: velocities are drawn afresh at a positive rate")
        self.clock, self.refresh = float(duration), float(refresh)

    @abstractmethod
    def field(self, z: Tensor) -> Tensor:
        """The flow's direction at z, in the process's own time."""

    def bounce_rate(self, z: Tensor) -> Float[Tensor, "batch"]:
        """float64."""
        return torch.zeros(len(z), dtype=torch.float64, device=z.device)

    def bounced(self, z: Tensor) -> Tensor:
        """R z."""
        return z

    @property
    def longest(self) -> float:
        return LONGEST / self.clock

    def rest(self, rows: int, dtype: torch.dtype | None, device: torch.device | str | None) -> Law:
        return Normal(torch.zeros(rows, 2, *self.space.shape, dtype=dtype, device=device), torch.ones((), device=device))

    def rate_of(self, z: Tensor, mark: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
        return self.clock * torch.where(mark == REFRESH, self.refresh, self.bounce_rate(z))

    def exit_rate(self, z: Tensor) -> Float[Tensor, "batch"]:
        return self.clock * (self.refresh + self.bounce_rate(z))

    def jump(self, z: Tensor, mark: Int[Tensor, "batch"], noise: NoiseSource) -> Tensor:
        fresh = torch.stack([z[:, 0], noise.normal(self.space.shape).to(z.dtype)], 1)
        return torch.where(rows_of(mark == REFRESH, z), fresh, self.bounced(z))

    def trial(self, z: Tensor, noise: NoiseSource) -> tuple[Tensor, Tensor, Tensor]:
        kinds = 2 if self.bounces else 1
        mark = (noise.at("which").uniform() * kinds).long().clamp_max(kinds - 1)
        return self.jump(z, mark, noise.at("jump")), mark, kinds * self.rate_of(z, mark)

    def start_velocity(self, x0: Tensor, noise: NoiseSource) -> Tensor:
        return noise.normal(tuple(x0.shape[1:]))

    def log_start(self, v: Tensor) -> Float[Tensor, "batch"]:
        return log_normal(v)

    def local(self, x: AnyState, t: Clock) -> Local:
        return Local(drift=self.clock * self.field(x), jumps=Refreshments(self))


def log_normal(v: Tensor) -> Float[Tensor, "batch"]:
    """log N(v; 0, I), float64."""
    flat = v.double().reshape(len(v), -1)
    return -0.5 * (flat.square() + log(2 * pi)).sum(1)


class Refreshments(JumpKernel):
    """Fresh velocities, as a density in v, and bounces, which lead to one of them: a node more, of weight one."""

    def __init__(self, process: RefreshedVelocity):
        self.process = process

    def log_rate(self, x: Tensor, y: Tensor) -> Tensor:
        stays = ((x[:, 0] - y[:, 0]).abs() < 1e-12).reshape(len(x), -1).all(1)
        fresh = log(self.process.clock * self.process.refresh) + log_normal(y[:, 1])
        rate = torch.where(self._bounces(x, y), log_of(self.process.clock * self.process.bounce_rate(x)), fresh)
        return torch.where(stays, rate, LOG_ZERO)

    def _bounces(self, x: Tensor, y: Tensor) -> Tensor:
        near = (self.process.bounced(x) - y).abs() < 1e-12
        return near.reshape(len(x), -1).all(1) & self.process.bounces

    def nodes(self, x: Tensor) -> tuple[Tensor, Tensor]:
        count = self.process.space.dimension
        if NODES**count > MOST_NODES:
            raise TypeError(f"{count} coordinates: integrals over fresh velocities are laid out for one or two")
        node, weight = np.polynomial.hermite_e.hermegauss(NODES)
        each = torch.tensor(list(product(node.tolist(), repeat=count)), dtype=x.dtype)
        log_weights = torch.tensor([sum(np.log(w)) for w in product(weight.tolist(), repeat=count)], dtype=torch.float64)
        v = each.reshape(1, -1, *self.process.space.shape).expand(len(x), -1, *x.shape[2:])
        y = torch.stack([x[:, :1].expand_as(v), v], 2)
        log_weight = (log_weights + 0.5 * each.double().square().sum(1)).expand(len(x), -1)
        if self.process.bounces:
            y = torch.cat([y, self.process.bounced(x).unsqueeze(1)], 1)
            log_weight = torch.cat([log_weight, torch.zeros(len(x), 1, dtype=torch.float64)], 1)
        return y, log_weight
