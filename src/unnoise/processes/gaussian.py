"""The Gaussian process: x_t = alpha_t x_0 + sigma_t eps for any schedule.

    q(x_t | x_0)      = N(alpha_t x_0, sigma_t^2)                                  (eq:interpolation-continuousdiff)
    q(x_t | x_s)      = N(alpha_{t|s} x_s, sigma_{t|s}^2)                                  (eq:t|s-dt-dp-transition)
    q(x_s | x_t, x_0) = N(alpha_{t|s} sigma_s^2/sigma_t^2 x_t + alpha_s sigma_{t|s}^2/sigma_t^2 x_0,
                          (sigma_{t|s} sigma_s/sigma_t)^2)                    (eq:discrete_time_reverse_mu_x0)
    dx = (d log alpha/dt) x dt + g dw,   g^2 = alpha^2 d(sigma^2/alpha^2)/dt       (eq:ct-alpha-sigma-relation)

The noise is independent over coordinates, or correlated: eps ~ N(0, C) with a fixed covariance C = L L^T.  All of the
above then holds with each variance times C, that is, per whitened coordinate L^-1 x; the diffusion is g^2 C and the
reverse drift

    -f + g^2 C score,    where    C score = -E[eps | x_t]/sigma

needs no inverse of C.  Coordinates with schedules of their own cannot share correlated noise: the covariance
diag(sigma) C diag(sigma) would turn with time.

The prior is N(0, sigma_1^2); with alpha_1 > 0 the bound counts the mismatch.  No variance preservation is assumed: the
appendix's "sigma^2 = 1 - alpha" reads 1 - alpha^2, holds for VP schedules only, and is not needed.
"""

from collections.abc import Sequence
from math import pi
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import as_times, may_read, ordered
from unnoise.covariance import Covariance
from unnoise.generators import Local
from unnoise.laws import Law, Normal, sum_coordinates
from unnoise.processes.base import Process, last_time, valid_schedule
from unnoise.schedules import Cosine, Schedule
from unnoise.shapes import Clock, Tree
from unnoise.spaces import Euclidean

_RANGE = 8.5  # standard deviations covered by `support`; the mass beyond is 2e-17


class Gaussian(Process):
    """Gaussian noise of a schedule on Euclidean space; `covariance` is a [d, d] matrix, a `Covariance`, or the identity."""

    space: Euclidean
    state_space: Euclidean
    schedule: Schedule
    has_density = True
    has_flow = True
    even_diffusion = True
    reparametrised = True

    def __init__(self, shape: int | Sequence[int] = (), schedule: Schedule | None = None, covariance: Any = None):
        super().__init__()
        self.space = self.state_space = Euclidean(shape)
        self.schedule = valid_schedule(schedule, Cosine())
        if self.schedule.shape not in ((), self.space.shape):
            raise ValueError(
                f"a schedule of shape {self.schedule.shape} does not fit coordinates {self.space.shape}: "
                f"pass one schedule for all, or one per coordinate"
            )
        self.covariance = self._covariance(covariance)
        self.cutoff = 0.0 if float(self.schedule.sigma(0.0).detach().min()) > 0 else 1e-4

    def _covariance(self, given: Any) -> Covariance | None:
        if given is None:
            return None
        covariance = given if isinstance(given, Covariance) else Covariance(given)
        if covariance.dimension != self.space.dimension:
            raise ValueError(
                f"{covariance} does not fit the {self.space.dimension} coordinates of shape {self.space.shape}: "
                f"pass a matrix of [{self.space.dimension}, {self.space.dimension}]"
            )
        if self.schedule.shape:
            raise ValueError(
                "correlated noise with a schedule per coordinate: the covariance of x_t would turn with time; "
                "pass one schedule for all coordinates, or leave the covariance out"
            )
        return covariance

    @property
    def latest(self) -> float:
        """Where alpha_1 = 0, the time at which alpha/sigma is e^-5, as at the end of the usual schedules that keep some."""
        if float(self.schedule.alpha(1.0).detach().min()) > 0:
            return 1.0
        return last_time(lambda t: float(self.schedule.log_snr(t).detach().min()) >= -10)

    def whiten(self, x: Tensor) -> Tensor:
        """L^-1 x."""
        return x if self.covariance is None else self.covariance.whiten(x)

    def times(self, t: Clock, x: Tensor, name: str = "t") -> Tensor:
        return as_times(t, x.shape[0], x.device, name)

    def coefficient(self, value: Tensor, x: Tensor) -> Tensor:
        """A float64 schedule value per row (or per row and coordinate), shaped and rounded to multiply x."""
        return (value if self.schedule.shape else value.reshape(-1, *[1] * (x.ndim - 1))).to(x.dtype)

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        mean = torch.zeros(rows, *self.space.shape, dtype=dtype, device=device)
        one = torch.ones(rows, dtype=torch.float64, device=device)
        return Normal(mean, self.coefficient(self.schedule.sigma(one), mean), self.covariance)

    def prior_kl(self, x0: Tree, t: Clock = 1.0) -> Tensor:
        """At t = 1 the two laws differ in their means alone, and |mean/sigma|^2/2 is left: nothing, where alpha_1 = 0."""
        own = type(self).prior is Gaussian.prior and type(self).marginal is Gaussian.marginal
        if own and isinstance(t, float) and t >= 1.0:  # the last time
            x0 = self.space.check(x0, "x0")
            ends = self.schedule.numbers(1.0)
            if ends is not None and ends[0] == 0.0:
                return torch.zeros(len(x0), dtype=x0.dtype, device=x0.device)
            last = torch.ones(1, dtype=torch.float64, device=x0.device)
            alpha = self.schedule.alpha(last)
            sigma = self.schedule.sigma(last)
            if not (alpha.requires_grad or sigma.requires_grad):
                mean = self.coefficient(alpha, x0) * x0
                return sum_coordinates(0.5 * (self.whiten(mean) / self.coefficient(sigma, x0)).square())
        return super().prior_kl(x0, t)

    def marginal(self, x0: Tree, t: Clock) -> Normal:
        x0 = self.space.check(x0, "x0")
        t = self.times(t, x0)
        mean = self.coefficient(self.schedule.alpha(t), x0) * x0
        return Normal(mean, self.coefficient(self.schedule.sigma(t), x0), self.covariance)

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> Normal:
        x_s = self.space.check(x_s, "x_s")
        s, t = self.times(s, x_s, "s"), self.times(t, x_s)
        ordered(s, t)
        mean = self.coefficient(self.schedule.step_alpha(s, t), x_s) * x_s
        return Normal(mean, self.coefficient(self.schedule.step_variance(s, t).sqrt(), x_s), self.covariance)

    def transition_table(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor] | None:
        if type(self).transition is not Gaussian.transition:
            return None  # a class that says its own
        return self.schedule.step_alpha(s, t), self.schedule.step_variance(s, t).sqrt()

    def posterior_coefficients(self, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """(on x_t, on x_0, variance) of q(x_s | x_t, x_0), float64."""
        schedule = self.schedule
        variance_s, variance_t = schedule.sigma(s).square(), schedule.sigma(t).square()
        step = schedule.step_variance(s, t)
        on_x_t = schedule.step_alpha(s, t) * variance_s / variance_t
        return on_x_t, schedule.alpha(s) * step / variance_t, step * variance_s / variance_t

    def posterior(self, x_t: Tree, x0: Tree, s: Clock, t: Clock) -> Normal:
        x_t, x0 = self.space.check(x_t, "x_t"), self.space.check(x0, "x0")
        s, t = self.times(s, x_t, "s"), self.times(t, x_t)
        ordered(s, t)
        on_x_t, on_x0, variance = (self.coefficient(c, x_t) for c in self.posterior_coefficients(s, t))
        return Normal(on_x_t * x_t + on_x0 * x0, variance.sqrt(), self.covariance)

    def local(self, x: Tensor, t: Clock) -> Local:
        t = self.times(t, x)
        drift = self.coefficient(self.schedule.drift(t), x) * x
        return Local(drift, self.coefficient(self.schedule.diffusion(t), x), covariance=self.covariance)

    def reverse_local(self, x_t: Tensor, c_score: Tensor, t: Tensor) -> Local:
        """Drift -f + g^2 C score and diffusion g^2 C, coefficients and state at the same instant (eq:ct-score-param).

        `c_score` is C score, which is the score itself where the noise is independent.  With the true score this is the
        reversal (eq:reverse-SDE, eq:reversed-generator-closed-form).
        """
        forward = self.local(x_t, t)
        drift = forward.diffusion * c_score - forward.drift  # type: ignore[operator]
        return Local(drift, forward.diffusion, covariance=self.covariance)

    def conditioned_local(self, x_t: Tensor, x0: Tensor, t: Clock) -> Local:
        t = self.times(t, x_t)
        alpha, sigma = (self.coefficient(c, x_t) for c in (self.schedule.alpha(t), self.schedule.sigma(t)))
        return self.reverse_local(x_t, (alpha * x0 - x_t) / sigma.square(), t)

    def noiseless(self, t: float) -> bool:
        return bool((self.schedule.sigma(t) <= 0).all())

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        """The trapezoidal rule in eps, which converges geometrically for the smooth integrands met here."""
        dimension = self.space.dimension
        if dimension > 2:
            raise ValueError(f"an exact expectation over {dimension} numbers is out of reach (at most 2): draw instead")
        law = self.marginal(x0, t)
        h = 0.1 if dimension == 1 else 0.25
        line = torch.arange(-_RANGE, _RANGE + h / 2, h, dtype=x0.dtype, device=x0.device)
        eps = torch.cartesian_prod(*[line] * dimension).reshape(-1, 1, *self.space.shape)
        log_weight = -0.5 * eps.square().flatten(2).sum(2) if eps.ndim > 2 else -0.5 * eps.square()
        log_weight = log_weight + dimension * torch.tensor(h / (2 * pi) ** 0.5, dtype=torch.float64).log()
        return law.at(eps), log_weight.expand(-1, x0.shape[0])

    def push(self, q: tuple[Tensor, Tensor], s: Clock, t: Clock) -> tuple[Tensor, Tensor]:
        """Moments (mean, variance), the variance per whitened coordinate where the noise is correlated."""
        mean, variance = q
        s, t = self.times(s, mean, "s"), self.times(t, mean)
        a = self.coefficient(self.schedule.step_alpha(s, t), mean)
        return a * mean, a.square() * variance + self.coefficient(self.schedule.step_variance(s, t), mean)

    def inverse(self, q: tuple[Tensor, Tensor], s: Clock, t: Clock) -> tuple[Tensor, Tensor]:
        mean, variance = q
        s, t = self.times(s, mean, "s"), self.times(t, mean)
        wide = mean.double()  # a difference of nearly equal numbers, divided by a small one: rounded once, at the end
        a = self.coefficient(self.schedule.step_alpha(s, t), wide)
        if may_read(a) and not bool((a > 0).all()):
            raise ValueError("alpha_{t|s} = 0: nothing of x_s is left at t, the kernel has no inverse")
        step = self.coefficient(self.schedule.step_variance(s, t), wide)
        return (wide / a).to(mean.dtype), ((variance - step) / a.square()).to(mean.dtype)

    def extra_repr(self) -> str:
        return f"shape={self.space.shape}" + (f", covariance={self.covariance}" if self.covariance is not None else "")
