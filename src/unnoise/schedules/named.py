"""The named schedules."""

from abc import abstractmethod
from math import log, pi

import torch

from unnoise.schedules.base import Schedule, rounded


class Linear(Schedule):
    """alpha = 1 - t, sigma = t: the straight path of flow matching, and linear masking."""

    plain = True

    def exact_alpha(self, t):
        return 1 - t

    def exact_beta(self, t):
        return t

    def exact_sigma(self, t):
        return t

    def exact_d_alpha(self, t):
        return -torch.ones_like(t)

    def exact_d_sigma(self, t):
        return torch.ones_like(t)

    def exact_time_of_log_snr(self, value):
        return torch.sigmoid(-value / 2)

    def exact_time_of_beta(self, value):
        return value


class Cosine(Schedule):
    """alpha = cos(pi t/2), sigma = sin(pi t/2)."""

    plain = True

    def exact_alpha(self, t):
        return torch.sin(pi / 2 * torch.rsub(t, 1))

    def exact_beta(self, t):
        return 2 * torch.sin(pi / 4 * t).square()

    def exact_sigma(self, t):
        return torch.sin(pi / 2 * t)

    def exact_d_alpha(self, t):
        return -pi / 2 * self.sigma(t)

    def exact_d_sigma(self, t):
        return pi / 2 * self.alpha(t)

    def exact_time_of_log_snr(self, value):
        return torch.atan(torch.exp(-value / 2)) * (2 / pi)

    def exact_time_of_beta(self, value):
        return 4 / pi * torch.asin((value / 2).sqrt())


class Polynomial(Schedule):
    """alpha = 1 - t^power, sigma = t^power."""

    plain = True

    def __init__(self, power: float = 2.0):
        super().__init__()
        if not power > 0:
            raise ValueError(f"power = {power} must be positive")
        self.power = power

    def exact_alpha(self, t):
        return -torch.expm1(self.power * t.log())

    def exact_beta(self, t):
        return t**self.power

    exact_sigma = exact_beta

    def exact_d_sigma(self, t):
        return self.power * t ** (self.power - 1)

    def exact_d_alpha(self, t):
        return -self.exact_d_sigma(t)

    def exact_time_of_log_snr(self, value):
        return torch.sigmoid(-value / 2) ** (1 / self.power)

    def exact_time_of_beta(self, value):
        return value ** (1 / self.power)

    def extra_repr(self) -> str:
        return f"power={self.power}"


class LinearBeta(Schedule):
    """Variance preserving with rate b(t) = b_min + t (b_max - b_min): log alpha = -int b/2, sigma^2 = 1 - alpha^2."""

    plain = True

    def __init__(self, beta_min: float = 0.1, beta_max: float = 20.0):
        super().__init__()
        self.beta_min, self.beta_max = beta_min, beta_max
        self.validate()

    def _rate(self, t):
        return self.beta_min + t * (self.beta_max - self.beta_min)

    def _log_alpha(self, t):
        return -0.5 * t * self.beta_min - 0.25 * t * t * (self.beta_max - self.beta_min)

    def exact_alpha(self, t):
        return self._log_alpha(t).exp()

    def exact_beta(self, t):
        return -torch.expm1(self._log_alpha(t))

    def exact_sigma(self, t):
        return (-torch.expm1(2 * self._log_alpha(t))).sqrt()

    def exact_d_alpha(self, t):
        return -0.5 * self._rate(t) * self.exact_alpha(t)

    def exact_d_sigma(self, t):
        return 0.5 * self._rate(t) * self.exact_alpha(t).square() / self.exact_sigma(t)

    def exact_d_log_snr(self, t):
        return -self._rate(t) / self.exact_sigma(t).square()

    def _time_of_log_alpha(self, value):
        slope = self.beta_max - self.beta_min
        root = (self.beta_min**2 - 4 * slope * value).sqrt()
        return -4 * value / (self.beta_min + root)

    def exact_time_of_log_snr(self, value):
        return self._time_of_log_alpha(0.5 * torch.nn.functional.logsigmoid(value))

    def exact_time_of_beta(self, value):
        return self._time_of_log_alpha(torch.log1p(-value))

    @rounded
    def diffusion(self, t):
        """g^2 = b(t)."""
        return self._rate(t)

    def extra_repr(self) -> str:
        return f"beta_min={self.beta_min}, beta_max={self.beta_max}"


class _Exploding(Schedule):
    """alpha = 1: noise is added and the signal stays."""

    plain = True

    def __init__(self, sigma_min: float, sigma_max: float):
        super().__init__()
        if not 0 < sigma_min < sigma_max:
            raise ValueError(f"sigma_min = {sigma_min}, sigma_max = {sigma_max}: need 0 < sigma_min < sigma_max")
        self.sigma_min, self.sigma_max = sigma_min, sigma_max

    def exact_alpha(self, t):
        return torch.ones_like(t)

    def exact_beta(self, t):
        return torch.zeros_like(t)

    def exact_d_alpha(self, t):
        return torch.zeros_like(t)

    @abstractmethod
    def _time_of_sigma(self, value): ...

    def exact_time_of_log_snr(self, value):
        return self._time_of_sigma(torch.exp(-value / 2))

    def exact_time_of_beta(self, value):
        raise ValueError(f"{self} has alpha = 1 throughout: no time belongs to a value of alpha")

    def extra_repr(self) -> str:
        return f"sigma_min={self.sigma_min}, sigma_max={self.sigma_max}"


class VE(_Exploding):
    """Variance exploding: alpha = 1, sigma = sigma_min (sigma_max/sigma_min)^t."""

    def __init__(self, sigma_min: float = 0.01, sigma_max: float = 50.0):
        super().__init__(sigma_min, sigma_max)

    def exact_sigma(self, t):
        return self.sigma_min * torch.exp(t * log(self.sigma_max / self.sigma_min))

    def exact_d_sigma(self, t):
        return self.exact_sigma(t) * log(self.sigma_max / self.sigma_min)

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

    def exact_sigma(self, t):
        return self._root(t)[0] ** self.rho

    def exact_d_sigma(self, t):
        root, slope = self._root(t)
        return self.rho * slope * root ** (self.rho - 1)

    def _time_of_sigma(self, value):
        root, slope = self._root(torch.zeros_like(value))
        return (value ** (1 / self.rho) - root) / slope

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, rho={self.rho}"


class LogSNRLinear(Schedule):
    """Variance preserving with log_snr linear in t, from `high` (data) to `low` (noise)."""

    plain = True

    def __init__(self, high: float = 13.3, low: float = -5.0):
        super().__init__()
        if not high > low:
            raise ValueError(f"high = {high} must exceed low = {low}: log-SNR falls with time")
        self.high, self.low = high, low

    def exact_log_snr(self, t):
        return self.high + t * (self.low - self.high)

    def exact_d_log_snr(self, t):
        return torch.full_like(t, self.low - self.high)

    def exact_alpha(self, t):
        return torch.sigmoid(self.exact_log_snr(t)).sqrt()

    def exact_sigma(self, t):
        return torch.sigmoid(-self.exact_log_snr(t)).sqrt()

    def exact_beta(self, t):  # 1 - sqrt(1 - v) = v / (1 + sqrt(1 - v))
        return torch.sigmoid(-self.exact_log_snr(t)) / (1 + self.exact_alpha(t))

    def exact_d_alpha(self, t):
        return 0.5 * (self.low - self.high) * self.exact_alpha(t) * self.exact_sigma(t).square()

    def exact_d_sigma(self, t):
        return -0.5 * (self.low - self.high) * self.exact_sigma(t) * self.exact_alpha(t).square()

    def exact_time_of_log_snr(self, value):
        return (value - self.high) / (self.low - self.high)

    def exact_time_of_beta(self, value):
        variance = value * (2 - value)
        return self.exact_time_of_log_snr(torch.log1p(-variance) - variance.log())

    def extra_repr(self) -> str:
        return f"high={self.high}, low={self.low}"
