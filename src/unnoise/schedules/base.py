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

from collections.abc import Callable
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.checks import Unanswered, memory

Number = float | int | Tensor


def _exact(*times: Number) -> tuple[list[Tensor], torch.dtype]:
    """The times in float64, and the dtype that they were given in (plain numbers: float64)."""
    dtypes = [t.dtype for t in times if isinstance(t, Tensor) and t.dtype.is_floating_point]
    exact = [t.double() if isinstance(t, Tensor) else torch.tensor(t, dtype=torch.float64) for t in times]
    return exact, reduce(torch.promote_types, dtypes) if dtypes else torch.float64


def rounded(function):
    """Evaluate in float64, answer in the dtype of the time that was given; once per step where nothing is learned."""
    name = function.__name__

    def plain(self, t: Number) -> Tensor:
        if isinstance(t, Tensor) and t.dtype is torch.float64:
            return function(self, t)
        exact, dtype = _exact(t)
        return function(self, *exact).to(dtype)

    def evaluate(self, t: Number) -> Tensor:
        kept = memory()
        if kept is None or not isinstance(t, Tensor):
            return plain(self, t)
        key = (id(self), name, id(t))
        found = kept.get(key)
        if found is None:
            value = plain(self, t)
            if value.requires_grad:
                return value
            found = kept[key] = (value, self, t)
        return found[0]

    evaluate.__doc__ = function.__doc__
    evaluate.__name__ = function.__name__
    return evaluate


def rounded_step(function):
    """The same for a function of two times."""

    def evaluate(self, s: Number, t: Number) -> Tensor:
        exact, dtype = _exact(s, t)
        return function(self, *exact).to(dtype)

    evaluate.__doc__ = function.__doc__
    evaluate.__name__ = function.__name__
    return evaluate


class Schedule(nn.Module):
    """Base of all schedules.  A family answers `exact_alpha` and `exact_sigma` for float64 times; the rest has defaults."""

    plain = False  # whether its values follow from its attributes, numbers all of them
    shape: tuple[int, ...] = ()  # () for one schedule, the coordinates' shape where each has its own

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        self.__dict__.pop("_numbers", None)

    def numbers(self, t: float) -> tuple[float, float] | None:
        """(alpha, sigma) at a time that is asked for in every step, such as the cut-off.  A `plain` schedule keeps them
        until an attribute is set; None where they may change otherwise."""
        if not self.plain or torch.compiler.is_compiling() or self._parameters or self._buffers or self._modules:
            return None
        kept = self.__dict__.setdefault("_numbers", {})
        if t not in kept:
            exact = torch.tensor([t], dtype=torch.float64)
            kept[t] = (self.exact_alpha(exact).item(), self.exact_sigma(exact).item())
        return kept[t]

    @property
    def _learned(self) -> bool:
        return any(parameter.requires_grad for parameter in self.parameters())

    def exact_alpha(self, t: Tensor) -> Tensor:
        raise self._unanswered("exact_alpha(t)", "its signal coefficient alpha")

    def exact_sigma(self, t: Tensor) -> Tensor:
        raise self._unanswered("exact_sigma(t)", "its noise coefficient sigma")

    def _unanswered(self, method: str, what: str) -> Unanswered:
        name = type(self).__name__
        return Unanswered(f"the schedule {name} does not say {what}: write the method {method} of the class {name}")

    def exact_beta(self, t: Tensor) -> Tensor:
        return 1 - self.exact_alpha(t)

    def exact_d_alpha(self, t: Tensor) -> Tensor:
        return _derivative(self.exact_alpha, t, self._learned)

    def exact_d_sigma(self, t: Tensor) -> Tensor:
        return _derivative(self.exact_sigma, t, self._learned)

    def exact_log_snr(self, t: Tensor) -> Tensor:
        return 2 * (self.exact_alpha(t).log() - self.exact_sigma(t).log())

    def exact_d_log_snr(self, t: Tensor) -> Tensor:
        return 2 * (self.exact_d_alpha(t) / self.exact_alpha(t) - self.exact_d_sigma(t) / self.exact_sigma(t))

    def exact_time_of_log_snr(self, value: Tensor) -> Tensor:
        return self._inverse(self.exact_log_snr, value)

    def exact_time_of_beta(self, value: Tensor) -> Tensor:
        return self._inverse(lambda t: -self.exact_beta(t), -value)

    def _inverse(self, decreasing: Callable[[Tensor], Tensor], value: Tensor) -> Tensor:
        """The time at which a decreasing function has this value; it moves with the value and with what is learned."""
        t = _bisect(decreasing, value.detach()).detach()
        if not (torch.is_grad_enabled() and (self._learned or value.requires_grad)):
            return t
        here, slope = decreasing(t), _derivative(decreasing, t, learned=False).detach()
        change = (value - value.detach() - (here - here.detach())) / slope  # zero, with the implicit function's gradient
        return t + torch.where((slope < 0) & slope.isfinite(), change, 0.0)

    @rounded
    def alpha(self, t: Any) -> Tensor:
        """The signal coefficient."""
        return self.exact_alpha(t)

    @rounded
    def sigma(self, t: Any) -> Tensor:
        """The noise coefficient."""
        return self.exact_sigma(t)

    @rounded
    def beta(self, t: Any) -> Tensor:
        """1 - alpha, accurate where alpha is near 1."""
        return self.exact_beta(t)

    @rounded
    def d_alpha(self, t: Any) -> Tensor:
        """d alpha / dt."""
        return self.exact_d_alpha(t)

    @rounded
    def d_sigma(self, t: Any) -> Tensor:
        """d sigma / dt."""
        return self.exact_d_sigma(t)

    @rounded
    def log_snr(self, t: Any) -> Tensor:
        """log(alpha^2 / sigma^2)."""
        return self.exact_log_snr(t)

    @rounded
    def d_log_snr(self, t: Any) -> Tensor:
        """d log_snr / dt, never positive."""
        return self.exact_d_log_snr(t)

    @rounded
    def time_of_log_snr(self, value: Any) -> Tensor:
        """The time at which log_snr has this value."""
        return self.exact_time_of_log_snr(value)

    @rounded
    def time_of_beta(self, value: Any) -> Tensor:
        """The time at which 1 - alpha has this value."""
        return self.exact_time_of_beta(value)

    @rounded
    def time_of_alpha(self, value: Any) -> Tensor:
        """The time at which alpha has this value."""
        return self.exact_time_of_beta(1 - value)

    @rounded
    def drift(self, t: Any) -> Tensor:
        """d log alpha / dt: the linear SDE's drift is this times x  (eq:ct-alpha-sigma-relation)."""
        return self.d_alpha(t) / self.alpha(t)

    @rounded
    def diffusion(self, t: Any) -> Tensor:
        """g^2 = alpha^2 d(sigma^2/alpha^2)/dt = -sigma^2 d log_snr/dt  (eq:ct-alpha-sigma-relation)."""
        sigma = self.sigma(t)
        return 2 * sigma * (self.d_sigma(t) - sigma * self.d_alpha(t) / self.alpha(t))

    @rounded_step
    def step_alpha(self, s: Any, t: Any) -> Tensor:
        """alpha_{t|s} = alpha_t / alpha_s."""
        return self.exact_alpha(t) / self.exact_alpha(s)

    @rounded_step
    def step_beta(self, s: Any, t: Any) -> Tensor:
        """1 - alpha_{t|s} = (beta_t - beta_s) / alpha_s, or (alpha_s - alpha_t) / alpha_s where alpha is the smaller."""
        alpha_s = self.exact_alpha(s)
        return torch.where(alpha_s > 0.5, self.exact_beta(t) - self.exact_beta(s), alpha_s - self.exact_alpha(t)) / alpha_s

    @rounded_step
    def step_variance(self, s: Any, t: Any) -> Tensor:
        """sigma^2_{t|s} = -sigma_t^2 expm1(log_snr_t - log_snr_s)."""
        return -self.exact_sigma(t).square() * torch.expm1(self.exact_log_snr(t) - self.exact_log_snr(s))

    def survival(self, s: Number | None, t: Number) -> tuple[Tensor, Tensor]:
        """alpha_{t|s} and 1 - alpha_{t|s}; s = None means from the data."""
        if s is None:
            return self.alpha(t), self.beta(t)
        return self.step_alpha(s, t), self.step_beta(s, t)

    def validate(self) -> "Schedule":
        """Refuse a schedule that no forward process has, with the time at which it fails."""
        t = torch.linspace(0, 1, 1025, dtype=torch.float64)
        with torch.no_grad():
            alpha, sigma = (
                one_per_time(f(t), t, f.__name__, self.shape).reshape(len(t), -1)
                for f in (self.exact_alpha, self.exact_sigma)
            )
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


def one_per_time(value: Any, t: Tensor, name: str, shape: tuple[int, ...] = ()) -> Tensor:
    """What a function of times returned, if it is a number for each (and each coordinate of the shape)."""
    if isinstance(value, Tensor) and tuple(value.shape) == (*t.shape, *shape):
        return value
    found = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"a {type(value).__name__}"
    raise TypeError(
        f"{name}(t) returned {found} for t of shape {tuple(t.shape)}: return one number per time"
        + (f" and coordinate of {shape}" if shape else ", as torch.ones_like(t) does")
    )


def _derivative(function: Callable[[Tensor], Tensor], t: Tensor, learned: bool) -> Tensor:
    """d function/dt by autograd; differentiable again where t or the schedule's parameters are."""
    create = torch.is_grad_enabled() and (learned or t.requires_grad)
    with torch.inference_mode(False), torch.enable_grad():
        leaf = t if t.requires_grad else t.detach().clone().requires_grad_()
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
