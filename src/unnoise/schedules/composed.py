"""Schedules made from something else: two functions, an SDE, one schedule per coordinate."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from unnoise.schedules.base import Schedule, one_per_time, rounded


class Custom(Schedule):
    """A schedule from two functions of a float64 time tensor; derivatives by autograd, inverses by bisection."""

    def __init__(self, alpha: Callable[[Tensor], Tensor], sigma: Callable[[Tensor], Tensor]):
        super().__init__()
        self._alpha_function, self._sigma_function = alpha, sigma
        for name, function in (("alpha", alpha), ("sigma", sigma)):
            t = torch.linspace(0, 1, 3, dtype=torch.float64)
            one_per_time(function(t), t, name)
        self.validate()

    def exact_alpha(self, t):
        return self._alpha_function(t)

    def exact_sigma(self, t):
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

    def exact_alpha(self, t):
        return self._log_alpha(t).exp()

    def exact_beta(self, t):
        return -torch.expm1(self._log_alpha(t))

    def exact_sigma(self, t):
        end = self._log_alpha(t).unsqueeze(-1)
        return self._integral(lambda u: self._g2(u) * (2 * (end - self._log_alpha(u))).exp(), t).sqrt()

    def exact_d_alpha(self, t):
        return self._f(t) * self.exact_alpha(t)

    def exact_d_sigma(self, t):
        sigma = self.exact_sigma(t)
        return (0.5 * self._g2(t) + self._f(t) * sigma.square()) / sigma

    def exact_d_log_snr(self, t):
        return -self._g2(t) / self.exact_sigma(t).square()

    @rounded
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

    def exact_alpha(self, t):
        return self._stack("exact_alpha", t)

    def exact_sigma(self, t):
        return self._stack("exact_sigma", t)

    def exact_beta(self, t):
        return self._stack("exact_beta", t)

    def exact_d_alpha(self, t):
        return self._stack("exact_d_alpha", t)

    def exact_d_sigma(self, t):
        return self._stack("exact_d_sigma", t)

    def exact_log_snr(self, t):
        return self._stack("exact_log_snr", t)

    def exact_d_log_snr(self, t):
        return self._stack("exact_d_log_snr", t)

    def exact_time_of_log_snr(self, value):
        raise ValueError("coordinates with schedules of their own share no inverse: ask one of `schedules`")

    exact_time_of_beta = exact_time_of_log_snr


class Staggered(Schedule):
    """The log-SNR of another schedule, and a number more at each coordinate; variance preserving.

    With c = e^shift and n^2 = c alpha^2 + sigma^2 of the other they are sqrt(c) alpha/n and sigma/n, with the derivatives
    sqrt(c) sigma w/n^3 and -c alpha w/n^3, where w = sigma alpha' - alpha sigma'.
    """

    shifts: Tensor

    def __init__(self, schedule: Schedule, shifts: Tensor):
        super().__init__()
        shifts = torch.as_tensor(shifts, dtype=torch.float64)
        if schedule.shape or not bool(shifts.isfinite().all()):
            raise ValueError(
                "Staggered takes one schedule for all coordinates, and for each a finite number to add to log-SNR"
            )
        self.schedule, self.shape = schedule, tuple(shifts.shape)
        self.register_buffer("shifts", shifts.clone(), persistent=False)

    def _parts(self, t: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """sqrt(c), and alpha, sigma and n, one axis for each of the coordinates'."""
        root = (0.5 * self.shifts).exp().to(t.device)
        alpha, sigma = (self._aligned(v(t)) for v in (self.schedule.exact_alpha, self.schedule.exact_sigma))
        return root, alpha, sigma, ((root * alpha).square() + sigma.square()).sqrt()

    def _aligned(self, value: Tensor) -> Tensor:
        return value.reshape(*value.shape, *[1] * len(self.shape))

    def _turn(self, t: Tensor, alpha: Tensor, sigma: Tensor) -> Tensor:
        d_alpha, d_sigma = (self._aligned(v(t)) for v in (self.schedule.exact_d_alpha, self.schedule.exact_d_sigma))
        return sigma * d_alpha - alpha * d_sigma

    def exact_alpha(self, t):
        root, alpha, _, n = self._parts(t)
        return root * alpha / n

    def exact_sigma(self, t):
        _, _, sigma, n = self._parts(t)
        return sigma / n

    def exact_beta(self, t):
        return self.exact_sigma(t).square() / (1 + self.exact_alpha(t))

    def exact_d_alpha(self, t):
        root, alpha, sigma, n = self._parts(t)
        return root * sigma * self._turn(t, alpha, sigma) / n**3

    def exact_d_sigma(self, t):
        root, alpha, sigma, n = self._parts(t)
        return -root.square() * alpha * self._turn(t, alpha, sigma) / n**3

    def exact_log_snr(self, t):
        return self._aligned(self.schedule.exact_log_snr(t)) + self.shifts.to(t.device)

    def exact_d_log_snr(self, t):
        return self._aligned(self.schedule.exact_d_log_snr(t)).expand(*t.shape, *self.shape)

    def exact_time_of_log_snr(self, value):
        raise ValueError("coordinates with schedules of their own share no inverse: ask `schedule`")

    exact_time_of_beta = exact_time_of_log_snr
