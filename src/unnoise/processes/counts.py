"""Thinning: noise on counts 0, 1, 2, ... that have no largest value.

Each unit dies by itself, and is still there at t with probability alpha_t; new units immigrate so that a Poisson law of
mean lam stays as it is (lam = 0: pure death, which ends in 0).  With c(t) = -alpha'/alpha and mu = lam (1 - alpha),

    rates                x -> x - 1 at c x,     x -> x + 1 at c lam
    q(x_t | x_s)       = Binomial(x_s, alpha_{t|s}) + Poisson(lam (1 - alpha_{t|s}));    q(x_t | x_0) likewise with alpha_t
    q(x_s | x_t, x_0)  = q(x_t | x_s) q(x_s | x_0) / q(x_t | x_0)                          (eq:discrete-time-reversal)
                       = x_t + Binomial(x_0 - x_t, (alpha_s - alpha_t)/(1 - alpha_t))      for pure death

Reversal exchanges source and target of a jump: R0(y, x_t) = R(x_t, y) q(y | x_0)/q(x_t | x_0), so

    R0(x + 1, x) = c (x + 1) q(x + 1 | x_0)/q(x | x_0),      R0(x - 1, x) = c lam q(x - 1 | x_0)/q(x | x_0)

and for pure death R0(x + 1, x) = h (x_0 - x_t), h = -alpha'/(1 - alpha): the x_0 - x_t units that are gone come back, each
at rate h.  Under immigration a bridge stays below x_0 + x_t plus the units that came after 0 and left before t, a Poisson
number of mean lam (1 - alpha_s)(1 - alpha_{t|s}) at time s: so far its table runs.
"""

from collections.abc import Sequence
from math import isfinite

import torch
from torch import Tensor

from unnoise.checks import as_times, may_read, ordered
from unnoise.count_laws import CountLaw, Tabulated, Thinned, spread
from unnoise.generators import Local
from unnoise.laws import LOG_ZERO, log_coefficient, log_of
from unnoise.processes.base import Process, valid_schedule
from unnoise.processes.product import NODES
from unnoise.schedules import Linear, Schedule
from unnoise.shapes import Clock, Float, Tree
from unnoise.spaces import Counts


class Thinning(Process):
    """`Thinning(shape, schedule, immigration)`: units die, and arrive so as to leave Poisson(immigration) as it is."""

    space: Counts
    state_space: Counts
    schedule: Schedule

    def __init__(self, shape: int | Sequence[int] = (), schedule: Schedule | None = None, immigration: float = 0.0):
        super().__init__()
        self.space = self.state_space = Counts(shape)
        self.schedule = valid_schedule(schedule, Linear())
        if self.schedule.shape not in ((), self.space.shape):
            raise ValueError(
                f"a schedule of shape {self.schedule.shape} does not fit coordinates {self.space.shape}: "
                f"pass one schedule for all, or one per coordinate"
            )
        self.immigration = float(immigration)
        if not (self.immigration >= 0 and isfinite(self.immigration)):
            raise ValueError(f"immigration = {immigration}: it is the mean count at t = 1, so pass 0 or a positive number")
        self.cutoff = 0.0
        last = float(self.schedule.alpha(1.0).detach().max())
        if last > 0.5:
            raise ValueError(
                f"{self.schedule} has alpha_1 = {last:g}: counts would hardly be noised; "
                f"use a schedule whose alpha goes to 0, such as Linear() or Cosine()"
            )
        if self.pure_death and last > 1e-9:
            raise ValueError(
                f"{self.schedule} has alpha_1 = {last:g} > 0, but the prior without immigration is 0: the bound would be "
                f"infinite. Use a schedule with alpha_1 = 0, such as Linear() or Cosine(), or immigration > 0"
            )

    @property
    def pure_death(self) -> bool:
        return self.immigration == 0

    def times(self, t: Clock, x: Tensor, name: str = "t") -> Tensor:
        return as_times(t, x.shape[0], x.device, name)

    def coefficient(self, value: Tensor, x: Tensor) -> Tensor:
        """A float64 schedule value per row (or per row and coordinate), shaped to broadcast with x."""
        return value if self.schedule.shape else value.reshape(-1, *[1] * (x.ndim - 1))

    def survival(self, x: Tensor, s: Clock | None, t: Clock) -> tuple[Tensor, Tensor]:
        """alpha_{t|s} and 1 - alpha_{t|s}, to broadcast with x; s = None means from the data."""
        keep, lose = self.schedule.survival(None if s is None else self.times(s, x, "s"), self.times(t, x))
        return self.coefficient(keep, x), self.coefficient(lose, x)

    def log_hazard(self, x: Tensor, t: Clock) -> Tensor:
        """log c = log(-alpha'/alpha), to broadcast with x."""
        t = self.times(t, x)
        return self.coefficient(log_coefficient(-self.schedule.d_alpha(t)) - log_coefficient(self.schedule.alpha(t)), x)

    def log_speed(self, x: Tensor, t: Clock) -> Tensor:
        """log -alpha', to broadcast with x."""
        return self.coefficient(log_coefficient(-self.schedule.d_alpha(self.times(t, x))), x)

    def _noised(self, x: Tensor, keep: Tensor, lose: Tensor) -> Thinned:
        return Thinned(torch.zeros_like(x), x, keep, lose, None if self.pure_death else self.immigration * lose)

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Thinned:
        zero = torch.zeros(rows, *self.space.shape, dtype=torch.int64, device=device)
        mean = torch.tensor(self.immigration, dtype=torch.float64, device=device)
        return Thinned(zero, mean=None if self.pure_death else mean)

    def marginal(self, x0: Tree, t: Clock) -> Thinned:
        x0 = self.space.check(x0, "x0")
        return self._noised(x0, *self.survival(x0, None, t))

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> Thinned:
        x_s = self.space.check(x_s, "x_s")
        ordered(self.times(s, x_s, "s"), self.times(t, x_s))
        return self._noised(x_s, *self.survival(x_s, s, t))

    def posterior(self, x_t: Tree, x0: Tree, s: Clock, t: Clock) -> CountLaw:
        x_t, x0 = self.space.check(x_t, "x_t"), self.space.check(x0, "x0")
        s, t = self.times(s, x_t, "s"), self.times(t, x_t)
        ordered(s, t)
        if self.pure_death:
            beta_s, beta_t = (self.coefficient(self.schedule.beta(v), x_t) for v in (s, t))
            return Thinned(x_t, (x0 - x_t).clamp_min(0), (beta_t - beta_s) / beta_t, beta_s / beta_t)
        lose, lose_s = self.survival(x_t, s, t)[1], self.survival(x_t, None, s)[1]
        passing = self.immigration * float((lose * lose_s).detach().max())
        size = int((x0 + x_t).max()) + spread(passing) + int(passing) + 1
        x_s = torch.arange(size, device=x_t.device).expand(*x_t.shape, size)
        log_q = self._into(x_t, size, s, t) + self.marginal(x0, s).log_terms(x_s)
        return Tabulated(log_q.log_softmax(-1))

    def _into(self, x_t: Tensor, size: int, s: Clock | None, t: Clock) -> Float[Tensor, "batch *shape size"]:
        """log q(x_t | x_s) for x_s = 0 ... size - 1."""
        keep, lose = (c.unsqueeze(-1) for c in self.survival(x_t, s, t))
        sources = torch.arange(size, device=x_t.device).expand(*x_t.shape, size)
        law = self._noised(sources, keep, lose)
        return law.log_terms(x_t[..., None, None].expand(*x_t.shape, size, 1)).squeeze(-1)

    def local(self, x: Tensor, t: Clock) -> Local:
        log_c = self.log_hazard(x, t)
        up = torch.full_like(log_c, LOG_ZERO) if self.pure_death else log_c + log_of(log_c.new_tensor(self.immigration))
        return Local(log_rates=torch.stack([log_c + log_of(x.double()), up.expand(x.shape)], -1))

    def conditioned_local(self, x_t: Tensor, x0: Tensor, t: Clock) -> Local:
        if self.pure_death:
            beta = self.coefficient(self.schedule.beta(self.times(t, x_t)), x_t)
            up = self.log_speed(x_t, t) - log_coefficient(beta) + log_of((x0 - x_t).double())
            return Local(log_rates=torch.stack([torch.full_like(up, LOG_ZERO), up], -1))
        around = torch.stack([x_t - 1, x_t, x_t + 1], -1)
        below, here, above = self.marginal(x0, t).log_terms(around).unbind(-1)
        possible = here > LOG_ZERO / 2
        log_c, log_lam = self.log_hazard(x_t, t), log_of(here.new_tensor(self.immigration))
        down = torch.where(possible, log_c + log_lam + below - here, LOG_ZERO)
        up = torch.where(possible, log_c + log_of((x_t + 1).double()) + above - here, LOG_ZERO)
        return Local(log_rates=torch.stack([torch.where(x_t > 0, down, LOG_ZERO), up], -1))

    def noiseless(self, t: float) -> bool:
        return bool((self.schedule.beta(t) <= 0).all())

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        """Every count from 0 to where less than 1e-17 of the mass is left."""
        law, size, dimension = self.marginal(x0, t), int(x0.max()) + 1, self.space.dimension
        if not self.pure_death:
            arriving = float(law.mean.detach().max())  # type: ignore[union-attr]
            size = size + int(arriving) + spread(arriving)
        if size**dimension > NODES:
            raise ValueError(
                f"an exact expectation over {dimension} counts up to {size - 1} needs {size}^{dimension} nodes, more than "
                f"{NODES}: draw instead"
            )
        line = torch.arange(size, device=x0.device)
        points = torch.cartesian_prod(*[line] * dimension).reshape(-1, *self.space.shape)
        each = law.log_terms(line.expand(*x0.shape, size)).reshape(len(x0), dimension, size)
        flat = points.reshape(len(points), dimension)
        picked = each[:, torch.arange(dimension, device=x0.device), flat]  # [batch, nodes, d]
        return points.unsqueeze(1).expand(-1, len(x0), *self.space.shape), picked.sum(-1).T

    def push(self, q: Tensor, s: Clock, t: Clock) -> Tensor:
        """Log-probabilities over 0 ... M; immigration widens the table by the units that may arrive."""
        like, size = q[..., 0], q.shape[-1]
        if not self.pure_death:
            arriving = self.immigration * float(self.survival(like, s, t)[1].detach().max())
            size = size + int(arriving) + spread(arriving)
        targets = torch.arange(size, device=q.device).expand(*like.shape, size)
        kernel = self._into_each(targets, q.shape[-1], s, t)
        return (kernel + q.double().unsqueeze(-2)).logsumexp(-1).clamp_min(LOG_ZERO).to(q.dtype)

    def _into_each(self, targets: Tensor, size: int, s: Clock | None, t: Clock) -> Float[Tensor, "batch *shape to size"]:
        """log q(x_t | x_s) for the targets in the last axis, and x_s = 0 ... size - 1."""
        keep, lose = (c[..., None, None] for c in self.survival(targets[..., 0], s, t))
        sources = torch.arange(size, device=targets.device).expand(*targets.shape, size)
        return self._noised(sources, keep, lose).log_terms(targets[..., None, None].expand(*sources.shape, 1)).squeeze(-1)

    def inverse(self, q: Tensor, s: Clock, t: Clock) -> Tensor:
        """Undo thinning, on probabilities over 0 ... M, by substitution in its triangular kernel.

        An error of relative size e in each entry of q grows to at most 3^M e: with generating functions thinning is
        z -> 1 - a + a z, the absolute values of its inverse are z -> (z + 1 - a)/a, and together z -> z + 2 (1 - a).
        Immigration spreads a law over all counts, and no finite table of it can be carried back: refused.
        """
        if not self.pure_death:
            raise ValueError(
                f"immigration = {self.immigration:g} spreads a law over all counts: no table of it can be carried back; "
                f"use immigration = 0, or the posterior q(x_s | x_t, x_0)"
            )
        keep = self.survival(q[..., 0], s, t)[0]
        if may_read(keep) and not bool((keep > 0).all()):
            raise ValueError("alpha_{t|s} = 0: nothing of x_s is left at t, the kernel has no inverse")
        size = q.shape[-1]
        kernel = self._into_each(torch.arange(size, device=q.device).expand(q.shape), size, s, t).exp()
        return torch.linalg.solve_triangular(kernel, q.double().unsqueeze(-1), upper=True).squeeze(-1).to(q.dtype)

    def extra_repr(self) -> str:
        return f"shape={self.space.shape}, immigration={self.immigration:g}"
