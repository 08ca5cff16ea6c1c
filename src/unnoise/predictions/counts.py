"""Predictions on counts, all in logarithms.

Robbins' mean of the noised law q at x, in one coordinate and with the others as they are,

    a(x) = (x + 1) q(x + 1)/q(x),        a(x - 1) = x q(x)/q(x - 1),

is all that the reverse process needs (R0 of `Thinning` with q in place of q(. | x_0)):

    x -> x + 1 at c a(x),       x -> x - 1 at c lam x/a(x - 1).

From the thinned law itself, x q(x | x_0) = mu q(x - 1 | x_0) + alpha x_0 q(x - 1 | x_0 - 1) with mu = lam (1 - alpha), so

    a(x) = mu + alpha m(x),     m(x) = E[x_0 q(x | x_0 - 1)/q(x | x_0)  |  x_t = x] >= 0.

m is the intensity of the data: the mean of a Poisson law of x_0 with the same a, exactly so for Poisson data, where it
is constant.  For pure death m(x) = E[x_0 - x_t | x_t = x]/(1 - alpha).

    Remaining   log m(x_t), one number per coordinate; pure death
    Intensity   (log m(x_t - 1), log m(x_t)), two numbers
    CountRatio  (log q(x_t - 1)/q(x_t), log q(x_t + 1)/q(x_t)): the concrete score

For pure death nothing leads down in reverse and the first entry is not read; nor is it ever at x_t = 0.

**Finite bounds.**  A bounded log m keeps the bound of any network finite from t = 0 to t = 1.  The rate up, c mu - alpha' m,
is bounded as t -> 0, where the true rate is of order 1/t on an event of probability t, so the integrand grows like
log(1/t); and where alpha -> 0 and c -> infinity an error of m moves the rates by a relative alpha, an integrand of order
c alpha^2.  (The expectation of x_0 - x_t itself would not do: as a rate it is multiplied by 1/t, and the integral of a
network that does not vanish with t diverges.)  A bounded log ratio is as good at t = 0 but must be right at t = 1, where its
errors are multiplied by c.

**Steps.**  The kernel to s of Poisson data is exact for any step: with a_s = lam (1 - alpha_s) + alpha_s m,

    x_s = Binomial(x_t, alpha_{t|s} a_s/a_t) + Poisson((1 - alpha_{t|s}) a_s),

with m at x_t - 1 in the first and at x_t in the second.
`Remaining` and `Intensity` use it for any data, where it is right to first order in t - s and a law for any network.
`CountRatio` freezes its rates over the step, where units die at c lam/a(x_t - 1) and new ones, which come at c a(x_t), at
c lam/a(x_t); that is first order as well.  s = None is the step to the data: the model's law of x_0.
"""

from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import as_times, may_read, ordered
from unnoise.count_laws import Thinned
from unnoise.generators import Local
from unnoise.laws import LOG_ZERO, log_coefficient, log_of
from unnoise.predictions.base import Kind, OutputReading, Prediction, check_output, refuse
from unnoise.processes import Process, Thinning
from unnoise.shapes import Clock, Float, Int

_ARRIVALS = "with immigration x_t also holds units that x_0 did not: predict Intensity or CountRatio"


class CountPrediction(Prediction):
    """One or two logarithms per coordinate."""

    process: Thinning
    x_t: Tensor
    t: Tensor
    entries = 2  # numbers per coordinate; 1 means that there is no axis for them

    def __init__(self, value: Tensor, process: Thinning, x_t: Int[Tensor, "batch *shape"], t: Clock):
        self.value = value if value.dtype in (torch.float32, torch.float64) else value.float()
        self.process, self.x_t = process, x_t
        self.t = as_times(t, x_t.shape[0], x_t.device)

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        return None if isinstance(process, Thinning) else super().misfit(process)

    @classmethod
    def shapes(cls, process: Process, x_t: Tensor) -> list[tuple[int, ...]]:
        return [tuple(x_t.shape) if cls.entries == 1 else (*x_t.shape, cls.entries)]

    @classmethod
    def of_output(cls, output: Any, process: Process, x_t: Tensor, t: Tensor, reading: OutputReading) -> "CountPrediction":
        check_output(output, cls.shapes(process, x_t))
        return cls(output, process, x_t, t)  # type: ignore[arg-type]

    @abstractmethod
    def log_means(self) -> tuple[Tensor, Tensor]:
        """log a(x_t - 1) and log a(x_t)."""

    def local(self) -> Local:
        below, here = self.log_means()
        log_c = self.process.log_hazard(self.x_t, self.t)
        down = torch.full_like(here, LOG_ZERO)
        if not self.process.pure_death:
            down = log_c + log_of(here.new_tensor(self.process.immigration)) + log_of(self.x_t.double()) - below
        return Local(log_rates=torch.stack([torch.where(self.x_t > 0, down, LOG_ZERO), log_c + here], -1))

    def log_coefficients(self, s: Clock | None) -> tuple[Tensor, Tensor]:
        """log alpha and log mu at s; (0, log 0) for the data."""
        if s is None:
            zero = torch.zeros_like(self.x_t, dtype=torch.float64)
            return zero, torch.full_like(zero, LOG_ZERO)
        keep, lose = self.process.survival(self.x_t, None, s)
        return log_coefficient(keep), log_of(self.process.immigration * lose)

    def survival(self, s: Clock | None) -> tuple[Tensor, Tensor]:
        """alpha_{t|s} and 1 - alpha_{t|s}."""
        if s is not None:
            s = as_times(s, self.x_t.shape[0], self.x_t.device, "s")
            ordered(s, self.t)
        return self.process.survival(self.x_t, s, self.t)

    @abstractmethod
    def step(self, s: Clock | None) -> Thinned: ...

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        if not issubclass(kind, CountPrediction):
            raise refuse(self, kind, "one lives on counts, the other does not")
        return kind.converted(self)  # type: ignore[return-value]

    @classmethod
    @abstractmethod
    def converted(cls, other: "CountPrediction") -> "CountPrediction": ...


class _FromIntensity(CountPrediction):
    """A reverse process built from the intensity m."""

    @abstractmethod
    def log_intensity(self) -> tuple[Tensor, Tensor]:
        """log m(x_t - 1) and log m(x_t)."""

    def means_at(self, s: Clock | None) -> tuple[Tensor, Tensor]:
        """log(mu_s + alpha_s m) with the m of x_t - 1 and of x_t."""
        log_alpha, log_mu = self.log_coefficients(s)
        below, here = (torch.logaddexp(log_mu, log_alpha + log_m.double()) for log_m in self.log_intensity())
        return below, here

    def log_means(self) -> tuple[Tensor, Tensor]:
        return self.means_at(self.t)

    def step(self, s: Clock | None) -> Thinned:
        keep, lose = self.survival(s)
        (below, here), x = self.means_at(s), self.x_t
        births = lose * here.exp()
        if self.process.pure_death:
            return Thinned(x, mean=births)
        now = self.means_at(self.t)[0]
        stay, leave = keep * (below - now).exp(), self.process.immigration * lose * (-now).exp()
        return Thinned(torch.zeros_like(x), x, stay, leave, births)


class Remaining(_FromIntensity):
    """log of E[x_0 - x_t | x_t]/(1 - alpha_t): the units still to come back, per unit of signal lost; pure death."""

    entries = 1

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        if isinstance(process, Thinning) and not process.pure_death:
            return f"does not fit Thinning with immigration = {process.immigration:g}"
        return super().misfit(process)

    def __init__(self, value: Float[Tensor, "batch *shape"], process: Thinning, x_t: Int[Tensor, "batch *shape"], t: Clock):
        super().__init__(value, process, x_t, t)
        if not process.pure_death:
            raise refuse(self, Remaining, _ARRIVALS)

    def log_intensity(self) -> tuple[Tensor, Tensor]:
        return self.value, self.value

    def local(self) -> Local:
        """Up at -alpha' m, also where alpha = 0."""
        up = self.process.log_speed(self.x_t, self.t) + self.value
        return Local(log_rates=torch.stack([torch.full_like(up, LOG_ZERO), up], -1))

    @classmethod
    def converted(cls, other: CountPrediction) -> "Remaining":
        if not other.process.pure_death:
            raise refuse(other, cls, _ARRIVALS)
        return cls(other.to(Intensity).value[..., 1], other.process, other.x_t, other.t)


class Intensity(_FromIntensity):
    """log m at x_t - 1 and at x_t: the data's intensity, with the noise's own share taken out."""

    def log_intensity(self) -> tuple[Tensor, Tensor]:
        below, here = self.value.unbind(-1)
        return below, here

    @classmethod
    def converted(cls, other: CountPrediction) -> "Intensity":
        if isinstance(other, Remaining):
            value = torch.stack([torch.zeros_like(other.value), other.value], -1)
            return cls(value, other.process, other.x_t, other.t)
        log_alpha, log_mu = other.log_coefficients(other.t)
        if may_read(log_alpha) and bool((log_alpha < -700).any()):
            raise refuse(other, cls, "alpha_t = 0 here, so the ratios carry nothing of x_0")
        log_m = []
        for log_a in other.log_means():
            if other.process.pure_death:
                log_m.append(log_a - log_alpha)
                continue
            share = -torch.expm1(log_mu - log_a)  # (a - mu)/a
            log_m.append(log_of(share.clamp_min(0)) + log_a - log_alpha)
            read = torch.ones_like(share, dtype=torch.bool) if len(log_m) == 2 else other.x_t > 0
            if may_read(share) and bool((read & (share < -1e-9)).any()):
                raise refuse(other, cls, "these ratios belong to no law of x_0 (its intensity would be negative)")
        unread = torch.where(other.x_t > 0, log_m[0], 0.0) if not other.process.pure_death else torch.zeros_like(log_m[1])
        return cls(torch.stack([unread, log_m[1]], -1), other.process, other.x_t, other.t)


class CountRatio(CountPrediction):
    """log q(x_t - 1)/q(x_t) and log q(x_t + 1)/q(x_t)."""

    @classmethod
    def of_energy(cls, leaf):
        x, process = leaf.x, leaf.process
        to = torch.stack([x - 1, x + 1], -1)
        wanted = torch.stack([(x > 0) & (not process.pure_death), torch.ones_like(x, dtype=torch.bool)], -1)
        return cls(leaf.ratios(to, wanted, 0.0), process, x, leaf.t)

    def log_means(self) -> tuple[Tensor, Tensor]:
        down, up = self.value.double().unbind(-1)
        return log_of(self.x_t.double()) - down, log_of((self.x_t + 1).double()) + up

    def step(self, s: Clock | None) -> Thinned:
        keep, lose = self.survival(s)
        time = -torch.where(lose < 0.5, torch.log1p(-lose.clamp_max(0.5)), log_of(keep))  # the integral of c
        below, here = (log_a.clamp_min(-200.0).exp() for log_a in self.log_means())
        lam, x = self.process.immigration, self.x_t
        if self.process.pure_death:
            if may_read(time) and bool((time > 1e20).any()):
                raise ValueError(
                    f"the rate at t = {self.t.max().item():g} is infinite, since alpha is 0 there: predict Remaining, "
                    f"or use immigration > 0"
                )
            return Thinned(x, mean=here * time)
        deaths, newborn = lam * time / below, lam * time / here
        births = here.square() / lam * -torch.expm1(-newborn)
        return Thinned(torch.zeros_like(x), x, (-deaths).exp(), -torch.expm1(-deaths), births)

    @classmethod
    def converted(cls, other: CountPrediction) -> "CountRatio":
        below, here = other.log_means()
        up = here - log_of((other.x_t + 1).double())
        down = torch.where(other.x_t > 0, log_of(other.x_t.double()) - below, 0.0)
        down = torch.zeros_like(up) if other.process.pure_death else down
        return cls(torch.stack([down, up], -1), other.process, other.x_t, other.t)
