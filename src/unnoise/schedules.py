"""Noise schedules: the pair (alpha_t, sigma_t) of x_t = alpha_t x_0 + sigma_t eps  (eq:interpolation-continuousdiff).

A schedule evaluates

    alpha(t), sigma(t), beta(t) = 1 - alpha(t), their derivatives, log_snr(t) = 2 log(alpha/sigma) and its inverse,

and over a step s < t

    alpha_{t|s} = alpha_t / alpha_s,    sigma^2_{t|s} = sigma_t^2 - alpha_{t|s}^2 sigma_s^2
                                                      = -sigma_t^2 expm1(log_snr_t - log_snr_s).

Finite spaces use alpha alone (the share of coordinates that kept their value) and beta, the share that did not.

Everything is computed in float64 from the time that was given and rounded once at the end, so a float32 time loses
nothing near either end.  Where alpha_1 = 0 or sigma_0 = 0 the forms are chosen so that no difference of nearly equal
numbers is taken: 1 - cos is 2 sin^2 of the half angle, 1 - exp is -expm1, cos near its zero is sin of the complement.

`FromSDE` goes the other way, from the drift f and the diffusion g^2 of dx = f x dt + g dw to (alpha, sigma), by quadrature.

Schedules are modules, so that a learned one is trained with the network.
"""

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import reduce
from math import log, pi
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

Number = float | int | Tensor


def _exact(*times: Number) -> tuple[list[Tensor], torch.dtype]:
    """The times in float64, and the dtype that they were given in (plain numbers: float64)."""
    dtypes = [t.dtype for t in times if isinstance(t, Tensor) and t.dtype.is_floating_point]
    exact = [t.double() if isinstance(t, Tensor) else torch.tensor(t, dtype=torch.float64) for t in times]
    return exact, reduce(torch.promote_types, dtypes) if dtypes else torch.float64


def _rounded(function):
    """Evaluate in float64, answer in the dtype of the time that was given."""

    def evaluate(self, t: Number) -> Tensor:
        exact, dtype = _exact(t)
        return function(self, *exact).to(dtype)

    evaluate.__doc__ = function.__doc__
    evaluate.__name__ = function.__name__
    return evaluate


def _rounded_step(function):
    """The same for a function of two times."""

    def evaluate(self, s: Number, t: Number) -> Tensor:
        exact, dtype = _exact(s, t)
        return function(self, *exact).to(dtype)

    evaluate.__doc__ = function.__doc__
    evaluate.__name__ = function.__name__
    return evaluate


class Schedule(nn.Module):
    """Base of all schedules.  A family answers `_alpha` and `_sigma` for float64 times; the rest has defaults."""

    shape: tuple[int, ...] = ()  # () for one schedule, the coordinates' shape where each has its own

    @property
    def _learned(self) -> bool:
        return any(parameter.requires_grad for parameter in self.parameters())

    @abstractmethod
    def _alpha(self, t: Tensor) -> Tensor: ...

    @abstractmethod
    def _sigma(self, t: Tensor) -> Tensor: ...

    def _beta(self, t: Tensor) -> Tensor:
        return 1 - self._alpha(t)

    def _d_alpha(self, t: Tensor) -> Tensor:
        return _derivative(self._alpha, t, self._learned)

    def _d_sigma(self, t: Tensor) -> Tensor:
        return _derivative(self._sigma, t, self._learned)

    def _log_snr(self, t: Tensor) -> Tensor:
        return 2 * (self._alpha(t).log() - self._sigma(t).log())

    def _d_log_snr(self, t: Tensor) -> Tensor:
        return 2 * (self._d_alpha(t) / self._alpha(t) - self._d_sigma(t) / self._sigma(t))

    def _time_of_log_snr(self, value: Tensor) -> Tensor:
        return self._inverse(self._log_snr, value)

    def _time_of_beta(self, value: Tensor) -> Tensor:
        return self._inverse(lambda t: -self._beta(t), -value)

    def _inverse(self, decreasing: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
        """The time at which a decreasing function has this value; it moves with the value and with what is learned."""
        t = _bisect(decreasing, value.detach()).detach()
        if not (torch.is_grad_enabled() and (self._learned or value.requires_grad)):
            return t
        here, slope = decreasing(t), _derivative(decreasing, t, learned=False).detach()
        change = (value - value.detach() - (here - here.detach())) / slope  # zero, with the implicit function's gradient
        return t + torch.where((slope < 0) & slope.isfinite(), change, 0.0)

    @_rounded
    def alpha(self, t: Any) -> Tensor:
        """The signal coefficient."""
        return self._alpha(t)

    @_rounded
    def sigma(self, t: Any) -> Tensor:
        """The noise coefficient."""
        return self._sigma(t)

    @_rounded
    def beta(self, t: Any) -> Tensor:
        """1 - alpha, accurate where alpha is near 1."""
        return self._beta(t)

    @_rounded
    def d_alpha(self, t: Any) -> Tensor:
        """d alpha / dt."""
        return self._d_alpha(t)

    @_rounded
    def d_sigma(self, t: Any) -> Tensor:
        """d sigma / dt."""
        return self._d_sigma(t)

    @_rounded
    def log_snr(self, t: Any) -> Tensor:
        """log(alpha^2 / sigma^2)."""
        return self._log_snr(t)

    @_rounded
    def d_log_snr(self, t: Any) -> Tensor:
        """d log_snr / dt, never positive."""
        return self._d_log_snr(t)

    @_rounded
    def time_of_log_snr(self, value: Any) -> Tensor:
        """The time at which log_snr has this value."""
        return self._time_of_log_snr(value)

    @_rounded
    def time_of_beta(self, value: Any) -> Tensor:
        """The time at which 1 - alpha has this value."""
        return self._time_of_beta(value)

    @_rounded
    def time_of_alpha(self, value: Any) -> Tensor:
        """The time at which alpha has this value."""
        return self._time_of_beta(1 - value)

    @_rounded
    def drift(self, t: Any) -> Tensor:
        """d log alpha / dt: the linear SDE's drift is this times x  (eq:ct-alpha-sigma-relation)."""
        return self._d_alpha(t) / self._alpha(t)

    @_rounded
    def diffusion(self, t: Any) -> Tensor:
        """g^2 = alpha^2 d(sigma^2/alpha^2)/dt = -sigma^2 d log_snr/dt  (eq:ct-alpha-sigma-relation)."""
        return 2 * self._sigma(t) * (self._d_sigma(t) - self._sigma(t) * self._d_alpha(t) / self._alpha(t))

    @_rounded_step
    def step_alpha(self, s: Any, t: Any) -> Tensor:
        """alpha_{t|s} = alpha_t / alpha_s."""
        return self._alpha(t) / self._alpha(s)

    @_rounded_step
    def step_beta(self, s: Any, t: Any) -> Tensor:
        """1 - alpha_{t|s}, by (beta_t - beta_s) / alpha_s."""
        return (self._beta(t) - self._beta(s)) / self._alpha(s)

    @_rounded_step
    def step_variance(self, s: Any, t: Any) -> Tensor:
        """sigma^2_{t|s} = -sigma_t^2 expm1(log_snr_t - log_snr_s)."""
        return -self._sigma(t).square() * torch.expm1(self._log_snr(t) - self._log_snr(s))

    def validate(self) -> "Schedule":
        """Refuse a schedule that no forward process has, with the time at which it fails."""
        t = torch.linspace(0, 1, 1025, dtype=torch.float64)
        with torch.no_grad():
            alpha, sigma = (f(t).flatten(1) if self.shape else f(t).unsqueeze(-1) for f in (self._alpha, self._sigma))
        for name, bad, value, remedy in (
            ("alpha", ~((alpha >= 0) & (alpha <= 1 + 1e-12)), alpha, "alpha must stay in [0, 1]"),
            ("sigma", ~((sigma >= 0) & sigma.isfinite()), sigma, "sigma must be finite and not negative"),
        ):
            if bool(bad.any()):
                i = bad.nonzero()[0]
                raise ValueError(f"{self}: {name} = {value[tuple(i)].item():.6g} at t = {t[i[0]].item():.4f}; {remedy}")
        # sigma^2/alpha^2 may not decrease: cross-multiplied, since alpha_1 = 0 is allowed
        fall = sigma[1:] * alpha[:-1] < sigma[:-1] * alpha[1:] * (1 - 1e-9) - 1e-300
        if bool(fall.any()):
            at = t[int(fall.nonzero()[0, 0]) + 1].item()
            raise ValueError(f"{self}: sigma^2/alpha^2 decreases at t = {at:.4f}; noise can only be added, never removed")
        return self


def _derivative(function: Callable[[Tensor], Tensor], t: Tensor, learned: bool) -> Tensor:
    """d function/dt by autograd; differentiable again where t or the schedule's parameters are."""
    create = torch.is_grad_enabled() and (learned or t.requires_grad)
    with torch.enable_grad():
        leaf = t if t.requires_grad else t.detach().requires_grad_()
        value = function(leaf)
        if not value.requires_grad:
            return torch.zeros_like(value)
        return torch.autograd.grad(value.sum(), leaf, create_graph=create)[0]


def _bisect(decreasing: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
    """Solve decreasing(t) = value on [0, 1]; a value beyond an end gives that end."""
    low, high = torch.zeros_like(value), torch.ones_like(value)
    for _ in range(80):
        middle = (low + high) / 2
        above = decreasing(middle) > value
        low, high = torch.where(above, middle, low), torch.where(above, high, middle)
    return (low + high) / 2


class Linear(Schedule):
    """alpha = 1 - t, sigma = t: the straight path of flow matching, and linear masking."""

    def _alpha(self, t):
        return 1 - t

    def _beta(self, t):
        return t

    def _sigma(self, t):
        return t

    def _d_alpha(self, t):
        return -torch.ones_like(t)

    def _d_sigma(self, t):
        return torch.ones_like(t)

    def _time_of_log_snr(self, value):
        return torch.sigmoid(-value / 2)

    def _time_of_beta(self, value):
        return value


class Cosine(Schedule):
    """alpha = cos(pi t/2), sigma = sin(pi t/2)."""

    def _alpha(self, t):
        return torch.sin(pi / 2 * (1 - t))

    def _beta(self, t):
        return 2 * torch.sin(pi / 4 * t).square()

    def _sigma(self, t):
        return torch.sin(pi / 2 * t)

    def _d_alpha(self, t):
        return -pi / 2 * self._sigma(t)

    def _d_sigma(self, t):
        return pi / 2 * self._alpha(t)

    def _time_of_log_snr(self, value):
        return torch.atan(torch.exp(-value / 2)) * (2 / pi)

    def _time_of_beta(self, value):
        return 4 / pi * torch.asin((value / 2).sqrt())


class Polynomial(Schedule):
    """alpha = 1 - t^power, sigma = t^power."""

    def __init__(self, power: float = 2.0):
        super().__init__()
        if not power > 0:
            raise ValueError(f"power = {power} must be positive")
        self.power = power

    def _alpha(self, t):
        return -torch.expm1(self.power * t.log())

    def _beta(self, t):
        return t**self.power

    _sigma = _beta

    def _d_sigma(self, t):
        return self.power * t ** (self.power - 1)

    def _d_alpha(self, t):
        return -self._d_sigma(t)

    def _time_of_log_snr(self, value):
        return torch.sigmoid(-value / 2) ** (1 / self.power)

    def _time_of_beta(self, value):
        return value ** (1 / self.power)

    def extra_repr(self) -> str:
        return f"power={self.power}"


class LinearBeta(Schedule):
    """Variance preserving with rate b(t) = b_min + t (b_max - b_min): log alpha = -int b/2, sigma^2 = 1 - alpha^2."""

    def __init__(self, beta_min: float = 0.1, beta_max: float = 20.0):
        super().__init__()
        self.beta_min, self.beta_max = beta_min, beta_max
        self.validate()

    def _rate(self, t):
        return self.beta_min + t * (self.beta_max - self.beta_min)

    def _log_alpha(self, t):
        return -0.5 * t * self.beta_min - 0.25 * t * t * (self.beta_max - self.beta_min)

    def _alpha(self, t):
        return self._log_alpha(t).exp()

    def _beta(self, t):
        return -torch.expm1(self._log_alpha(t))

    def _sigma(self, t):
        return (-torch.expm1(2 * self._log_alpha(t))).sqrt()

    def _d_alpha(self, t):
        return -0.5 * self._rate(t) * self._alpha(t)

    def _d_sigma(self, t):
        return 0.5 * self._rate(t) * self._alpha(t).square() / self._sigma(t)

    def _d_log_snr(self, t):
        return -self._rate(t) / self._sigma(t).square()

    def _time_of_log_alpha(self, value):
        slope = self.beta_max - self.beta_min
        root = (self.beta_min**2 - 4 * slope * value).sqrt()
        return -4 * value / (self.beta_min + root)

    def _time_of_log_snr(self, value):
        return self._time_of_log_alpha(0.5 * torch.nn.functional.logsigmoid(value))

    def _time_of_beta(self, value):
        return self._time_of_log_alpha(torch.log1p(-value))

    @_rounded
    def diffusion(self, t):
        """g^2 = b(t)."""
        return self._rate(t)

    def extra_repr(self) -> str:
        return f"beta_min={self.beta_min}, beta_max={self.beta_max}"


class _Exploding(Schedule):
    """alpha = 1: noise is added and the signal stays."""

    def __init__(self, sigma_min: float, sigma_max: float):
        super().__init__()
        if not 0 < sigma_min < sigma_max:
            raise ValueError(f"sigma_min = {sigma_min}, sigma_max = {sigma_max}: need 0 < sigma_min < sigma_max")
        self.sigma_min, self.sigma_max = sigma_min, sigma_max

    def _alpha(self, t):
        return torch.ones_like(t)

    def _beta(self, t):
        return torch.zeros_like(t)

    def _d_alpha(self, t):
        return torch.zeros_like(t)

    @abstractmethod
    def _time_of_sigma(self, value): ...

    def _time_of_log_snr(self, value):
        return self._time_of_sigma(torch.exp(-value / 2))

    def _time_of_beta(self, value):
        raise ValueError(f"{self} has alpha = 1 throughout: no time belongs to a value of alpha")

    def extra_repr(self) -> str:
        return f"sigma_min={self.sigma_min}, sigma_max={self.sigma_max}"


class VE(_Exploding):
    """Variance exploding: alpha = 1, sigma = sigma_min (sigma_max/sigma_min)^t."""

    def __init__(self, sigma_min: float = 0.01, sigma_max: float = 50.0):
        super().__init__(sigma_min, sigma_max)

    def _sigma(self, t):
        return self.sigma_min * torch.exp(t * log(self.sigma_max / self.sigma_min))

    def _d_sigma(self, t):
        return self._sigma(t) * log(self.sigma_max / self.sigma_min)

    def _time_of_sigma(self, value):
        return torch.log(value / self.sigma_min) / log(self.sigma_max / self.sigma_min)


class EDM(_Exploding):
    """alpha = 1, sigma^(1/rho) linear in t from sigma_min to sigma_max."""

    def __init__(self, sigma_min: float = 0.002, sigma_max: float = 80.0, rho: float = 7.0):
        super().__init__(sigma_min, sigma_max)
        if not rho > 0:
            raise ValueError(f"rho = {rho} must be positive (7 is usual)")
        self.rho = rho

    def _root(self, t):
        low, high = self.sigma_min ** (1 / self.rho), self.sigma_max ** (1 / self.rho)
        return low + t * (high - low), high - low

    def _sigma(self, t):
        return self._root(t)[0] ** self.rho

    def _d_sigma(self, t):
        root, slope = self._root(t)
        return self.rho * slope * root ** (self.rho - 1)

    def _time_of_sigma(self, value):
        root, slope = self._root(torch.zeros_like(value))
        return (value ** (1 / self.rho) - root) / slope

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rho={self.rho}"


class LogSNRLinear(Schedule):
    """Variance preserving with log_snr linear in t, from `high` (data) to `low` (noise)."""

    def __init__(self, high: float = 13.3, low: float = -5.0):
        super().__init__()
        if not high > low:
            raise ValueError(f"high = {high} must exceed low = {low}: log-SNR falls with time")
        self.high, self.low = high, low

    def _log_snr(self, t):
        return self.high + t * (self.low - self.high)

    def _d_log_snr(self, t):
        return torch.full_like(t, self.low - self.high)

    def _alpha(self, t):
        return torch.sigmoid(self._log_snr(t)).sqrt()

    def _sigma(self, t):
        return torch.sigmoid(-self._log_snr(t)).sqrt()

    def _beta(self, t):  # 1 - sqrt(1 - v) = v / (1 + sqrt(1 - v))
        return torch.sigmoid(-self._log_snr(t)) / (1 + self._alpha(t))

    def _d_alpha(self, t):
        return 0.5 * (self.low - self.high) * self._alpha(t) * self._sigma(t).square()

    def _d_sigma(self, t):
        return -0.5 * (self.low - self.high) * self._sigma(t) * self._alpha(t).square()

    def _time_of_log_snr(self, value):
        return (value - self.high) / (self.low - self.high)

    def _time_of_beta(self, value):
        variance = value * (2 - value)
        return self._time_of_log_snr(torch.log1p(-variance) - variance.log())

    def extra_repr(self) -> str:
        return f"high={self.high}, low={self.low}"


class Custom(Schedule):
    """A schedule from two functions of a float64 time tensor; derivatives by autograd, inverses by bisection."""

    def __init__(self, alpha: Callable[[Tensor], Tensor], sigma: Callable[[Tensor], Tensor]):
        super().__init__()
        self._alpha_function, self._sigma_function = alpha, sigma
        for name, function in (("alpha", alpha), ("sigma", sigma)):
            value = function(torch.linspace(0, 1, 3, dtype=torch.float64))
            if not (isinstance(value, Tensor) and value.shape == (3,)):
                found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
                raise TypeError(
                    f"{name}(t) returned {found} for t of shape (3,): return one number per time, as torch.ones_like(t) does"
                )
        self.validate()

    def _alpha(self, t):
        return self._alpha_function(t)

    def _sigma(self, t):
        return self._sigma_function(t)


class FromSDE(Schedule):
    """The schedule of dx = f(t) x dt + g(t) dw, from f and g^2 as functions of a float64 time tensor, smooth on [0, 1]:

        alpha = exp(int_0^t f),    sigma^2 = int_0^t g^2(u) (alpha_t/alpha_u)^2 du,

    by Gauss-Legendre quadrature, the inner integral at the nodes of the outer.  There is no noise at t = 0.
    """

    def __init__(self, drift: Callable[[Tensor], Any], diffusion: Callable[[Tensor], Any], nodes: int = 32):
        super().__init__()
        self._drift_function, self._diffusion_function = drift, diffusion
        points, weights = np.polynomial.legendre.leggauss(nodes)
        self._nodes, self._weights = torch.as_tensor((points + 1) / 2), torch.as_tensor(weights / 2)
        t = torch.linspace(0, 1, 1025, dtype=torch.float64)
        for name, value in (("drift", self._f(t)), ("diffusion", self._g2(t))):
            bad = ~value.isfinite() | ((value < 0) if name == "diffusion" else False)
            if bool(bad.any()):
                i = int(bad.nonzero()[0, 0])
                raise ValueError(
                    f"{name} = {value[i].item():g} at t = {t[i].item():.4f}; "
                    f"the drift must be finite on [0, 1], and the diffusion g^2 finite and not negative"
                )
        self.validate()

    def _f(self, t):
        return self._drift_function(t) + torch.zeros_like(t)

    def _g2(self, t):
        return self._diffusion_function(t) + torch.zeros_like(t)

    def _integral(self, function: Callable[[Tensor], Tensor], t: Tensor) -> Tensor:
        """int_0^t of a function."""
        return t * (function(t.unsqueeze(-1) * self._nodes.to(t.device)) * self._weights.to(t.device)).sum(-1)

    def _log_alpha(self, t):
        return self._integral(self._f, t)

    def _alpha(self, t):
        return self._log_alpha(t).exp()

    def _beta(self, t):
        return -torch.expm1(self._log_alpha(t))

    def _sigma(self, t):
        end = self._log_alpha(t).unsqueeze(-1)
        return self._integral(lambda u: self._g2(u) * (2 * (end - self._log_alpha(u))).exp(), t).sqrt()

    def _d_alpha(self, t):
        return self._f(t) * self._alpha(t)

    def _d_sigma(self, t):
        sigma = self._sigma(t)
        return (0.5 * self._g2(t) + self._f(t) * sigma.square()) / sigma

    def _d_log_snr(self, t):
        return -self._g2(t) / self._sigma(t).square()

    @_rounded
    def diffusion(self, t):
        """g^2, as given."""
        return self._g2(t)


class PerCoordinate(Schedule):
    """One schedule per coordinate: `alpha(t)` has the shape of t followed by the coordinates' shape."""

    def __init__(self, schedules: Sequence[Schedule], shape: Sequence[int] | None = None):
        super().__init__()
        if not schedules or any(schedule.shape for schedule in schedules):
            raise ValueError("PerCoordinate takes one scalar schedule per coordinate")
        self.schedules = nn.ModuleList(schedules)
        self.shape = (len(schedules),) if shape is None else tuple(shape)
        if torch.Size(self.shape).numel() != len(schedules):
            raise ValueError(f"{len(schedules)} schedules do not fill the shape {self.shape}")

    def _stack(self, name: str, t: Tensor) -> Tensor:
        columns = [getattr(schedule, name)(t) for schedule in self.schedules]
        return torch.stack(columns, -1).reshape(*t.shape, *self.shape)

    def _alpha(self, t):
        return self._stack("_alpha", t)

    def _sigma(self, t):
        return self._stack("_sigma", t)

    def _beta(self, t):
        return self._stack("_beta", t)

    def _d_alpha(self, t):
        return self._stack("_d_alpha", t)

    def _d_sigma(self, t):
        return self._stack("_d_sigma", t)

    def _log_snr(self, t):
        return self._stack("_log_snr", t)

    def _d_log_snr(self, t):
        return self._stack("_d_log_snr", t)

    def _time_of_log_snr(self, value):
        raise ValueError("coordinates with schedules of their own share no inverse: ask one of `schedules`")

    _time_of_beta = _time_of_log_snr
