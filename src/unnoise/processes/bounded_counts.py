"""Counts on {0, ..., N}: N units, each present or absent, that come and go independently.

A unit that is drawn afresh is present with probability rho, so over a step with a = alpha_{t|s}

    a present unit is present afterwards with probability a + (1 - a) rho,   an absent one with b = (1 - a) rho,
    x_t = Binomial(x_s, a + (1 - a) rho) + Binomial(N - x_s, b),
    x -> x - 1 at rate c (1 - rho) x,    x -> x + 1 at rate c rho (N - x),    c = -alpha'/alpha.

rho = 0 is pure death: x_t | x_0 is Binomial(x_0, alpha_t), and the bridge is x_s = x_t + Binomial(x_0 - x_t,
(alpha_s - alpha_t)/(1 - alpha_t)).  Otherwise the process relaxes to Binomial(N, rho).

First every present unit dies with probability (1 - a)(1 - rho)/(1 - b), then every absent one is born with probability b:
so the kernel is a product of two triangular matrices of binomial laws, with no negative term.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.laws import log_coefficient
from unnoise.processes.base import valid_schedule
from unnoise.processes.dense import Full, TimeScaled
from unnoise.processes.rank_one import check_fit
from unnoise.schedules import Linear, Schedule
from unnoise.shapes import Float
from unnoise.spaces import Finite


class BirthDeath(TimeScaled):
    """`BirthDeath(most=20, shape=(3,), occupancy=0.3)`; categories are the counts 0 ... most."""

    def __init__(
        self,
        most: int,
        shape: int | Sequence[int] = (),
        schedule: Schedule | None = None,
        occupancy: float = 0.5,
    ):
        super().__init__()
        if most < 1:
            raise ValueError(f"most = {most}: counts up to at least 1 are needed")
        if not 0 <= occupancy < 1:
            raise ValueError(f"occupancy = {occupancy:g} is the chance that a fresh unit is present: choose it in [0, 1)")
        self.most, self.occupancy = most, occupancy
        self.space = self.state_space = Finite(most + 1, shape)
        self.schedule = check_fit(valid_schedule(schedule, Linear()), self.space)
        if self.schedule.shape:
            raise ValueError("counts take one schedule for all coordinates")
        last = float(self.schedule.alpha(1.0).detach())
        if occupancy == 0 and last > 1e-9:
            raise ValueError(
                f"{self.schedule} has alpha_1 = {last:g} > 0, but pure death ends with no unit left: the bound would be "
                f"infinite. Use a schedule with alpha_1 = 0, such as Linear() or Cosine()"
            )
        self.cutoff = 0.0
        x = torch.arange(most + 1, dtype=torch.float64)
        births, deaths = occupancy * (most - x), (1 - occupancy) * x
        self.rate_table = Full(torch.diag(births[:-1], -1) + torch.diag(deaths[1:], 1))
        n, k = x[None, :], x[:, None]
        choose = torch.lgamma(n + 1) - torch.lgamma(k + 1) - torch.lgamma((n - k).clamp_min(0) + 1)
        self.register_buffer("log_choose", torch.where(k <= n, choose, -torch.inf), persistent=False)

    def _binomial(self, log_p: Tensor, log_rest: Tensor) -> Float[Tensor, "batch size size"]:
        """[k, n]: the probability of k successes in n trials."""
        x = torch.arange(self.most + 1, dtype=torch.float64, device=log_p.device)
        log_p, log_rest = log_p[:, None, None], log_rest[:, None, None]
        failures = (x[None, :] - x[:, None]).clamp_min(0)
        return (self.log_choose + x[:, None] * log_p + failures * log_rest).exp()  # type: ignore[operator]

    def kernel(self, s: Tensor | None, t: Tensor) -> Float[Tensor, "batch size size"]:
        death, *birth = self.factors(s, t)
        return birth[0] @ death if birth else death

    def factors(self, s: Tensor | None, t: Tensor) -> list[Float[Tensor, "batch size size"]]:
        keep, renew = self.schedule.survival(s, t)
        born = renew * self.occupancy
        survive, die = (log_coefficient(c / (1 - born)) for c in (keep, renew * (1 - self.occupancy)))
        death = self._binomial(survive, die)  # [present afterwards, present before]
        if self.occupancy == 0:
            return [death]
        # in terms of the absent units, of which Binomial(N - x, 1 - b) remain
        return [death, self._binomial(torch.log1p(-born), log_coefficient(born)).flip(1, 2)]
