"""Predictions on Euclidean space.  Each kind is one line: its target is a x_0 + b eps for known (a, b).

    Clean      x_0                                                                 (eq:ct-x0-to-score)
    Noise      eps, of x_t = alpha x_0 + sigma eps
    Score      s     = -eps / sigma                                                (eq:ct-eps-to-score)
    Velocity   v     = alpha eps - sigma x_0                                        (eq:ct-v-to-score)
    Flow       u     = alpha' x_0 + sigma' eps, the probability-flow velocity       (eq:ct-u-to-score)
    Mean       mu    = E[x_s | x_t, x_0] for the grid pair (s, t)               (eq:discrete_time_reverse_mu_x0)

Together with x_t = alpha x_0 + sigma eps that is two equations for (x_0, eps), so with D = alpha b - sigma a

    x_0 = (b x_t - sigma value)/D,    eps = (alpha value - a x_t)/D,               (eq:score-mean-eps-parameterisation)
    value_2 = [(a_2 b_1 - b_2 a_1) x_t + (alpha b_2 - sigma a_2) value_1] / D_1

for any schedule, and without a difference of large numbers near t = 0.  D vanishes for Noise and Score where alpha = 0:
there they say nothing of x_0, and only their own ratio remains.

Where the noise is correlated, eps ~ N(0, C), every line above stands with eps the correlated noise itself, but for the
score: grad log q = -C^-1 eps/sigma is not of the form a x_0 + b eps, and C times it is.  So a value has a linear
representative, C value for a score and the value itself for the others, and it is between these that conversions are made.
"""

from abc import abstractmethod
from collections.abc import Hashable
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.checks import as_times, may_read, ordered
from unnoise.generators import Local
from unnoise.laws import TINY, Law, Normal
from unnoise.predictions import variance as variances
from unnoise.predictions.base import KernelTable, Kind, OutputReading, Prediction, check_output, refuse
from unnoise.processes import Gaussian, Process
from unnoise.schedules import Schedule
from unnoise.shapes import Clock, Float

_POSTERIOR = variances.PosteriorVariance()
_MEAN_NEEDS_S = "a Mean belongs to a grid pair (s, t): pass s, as in prediction.to(Mean, s=s)"


class ContinuousPrediction(Prediction):
    """A number per coordinate, linear in (x_0, x_t); its kernel is eq:reversal-x0-cond-cont."""

    process: Gaussian
    x_t: Tensor
    t: Tensor

    def __init__(
        self,
        value: Float[Tensor, "batch *shape"],
        process: Gaussian,
        x_t: Float[Tensor, "batch *shape"],
        t: Clock,
        variance: variances.Variance | None = None,
        extra: Tensor | None = None,
    ):
        self.value, self.process, self.x_t = value, process, x_t
        self.t = as_times(t, x_t.shape[0], x_t.device)
        self.variance = variance or _POSTERIOR
        self.extra = extra

    def __init_subclass__(cls, **options: Any) -> None:
        """A kind with coefficients of its own has the weight that follows from them, not that of the kind it extends."""
        super().__init_subclass__(**options)
        own = vars(cls)
        if "target_coefficients" in own and "squared_error_weight" not in own:
            cls.squared_error_weight = ContinuousPrediction.__dict__["squared_error_weight"]  # type: ignore[method-assign]

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        return None if isinstance(process, Gaussian) else super().misfit(process)

    @classmethod
    def shapes(cls, process: Process, x_t: Tensor) -> list[tuple[int, ...]]:
        return [tuple(x_t.shape)]

    @classmethod
    def of_output(
        cls, output: Any, process: Process, x_t: Tensor, t: Tensor, reading: OutputReading
    ) -> "ContinuousPrediction":
        """A number per coordinate; or a pair (prediction, v), where v chooses a learned variance."""
        extra = None
        if isinstance(output, tuple):
            if len(output) != 2:
                raise ValueError(f"the network returned {len(output)} outputs; expected a tensor, or a pair (prediction, v)")
            if reading.variance is None:
                raise ValueError(
                    "the network returned a pair (prediction, v), but nothing reads v: return the prediction alone, or pass "
                    "Denoiser(..., variance=LearnedVariance())"
                )
            output, extra = output
        check_output(output, [tuple(x_t.shape)])
        return cls(output, process, x_t, t, reading.variance, extra, **reading.grid_pair(cls, t))  # type: ignore[arg-type]

    @staticmethod
    @abstractmethod
    def target_coefficients(schedule: Schedule, t: Tensor) -> tuple[Tensor, Tensor]:
        """(a, b) of the target a x_0 + b eps, float64."""

    def coefficients(self) -> tuple[Tensor, Tensor]:
        return self.target_coefficients(self.process.schedule, self.t)

    def determinant(self) -> Tensor:
        """D = alpha b - sigma a."""
        a, b = self.coefficients()
        return self.process.schedule.alpha(self.t).clamp_min(TINY) * b - self.process.schedule.sigma(self.t) * a

    @classmethod
    def squared_error_weight(cls, schedule: Schedule, t: Tensor) -> Tensor:
        """The bound's weight on the squared error of this kind, g^2/2 (alpha/(sigma D))^2.

        The bound's rate is -SNR'/2 |x_0 - x_model|^2 with -SNR'/2 = g^2/2 (alpha/sigma^2)^2, and by x_0 = (b x_t - sigma
        value)/D an error e of the value is an error sigma e/D of x_0.  Where D vanishes the weight is infinite.
        """
        a, b = cls.target_coefficients(schedule, t)
        alpha, sigma = schedule.alpha(t).clamp_min(TINY), schedule.sigma(t)
        return 0.5 * schedule.diffusion(t) * (alpha / (sigma * (alpha * b - sigma * a))).square()

    @classmethod
    def tells_clean(cls, process: Process) -> bool:
        """Whether D is nowhere 0, so that x_0 = (b x_t - sigma value)/D exists at all times, those with alpha = 0 too."""
        schedule = cast(Gaussian, process).schedule  # no other fits
        held = next((value for value in (*schedule.parameters(), *schedule.buffers())), torch.empty(0))
        if held.is_meta:
            return True  # nothing to look at
        t = torch.linspace(0.0, 1.0, 257, dtype=torch.float64, device=held.device)[1:]
        with torch.no_grad():
            a, b = cls.target_coefficients(schedule, t)
            d = schedule.alpha(t) * b - schedule.sigma(t) * a
            seen = d * d[:1].sign() > 1e-9 * (a.square() + b.square()).sqrt()
            return bool((seen | ~d.isfinite()).all())  # a derivative may be infinite at t = 1

    @classmethod
    def latest(cls, process: Process) -> float:
        """Where alpha = 0 the noise, or the score, says nothing of x_0."""
        return 1.0 if cls.tied_to_grid or cls.tells_clean(process) else process.latest

    def clean(self) -> Tensor:
        return self.to(Clean).value

    def flow_velocity(self) -> Tensor:
        return self.to(Flow).value

    def flow_step(self, s: Tensor) -> Tensor:
        """DDIM: sigma_s/sigma_t x_t + (alpha_s - alpha_t sigma_s/sigma_t) x_0."""
        schedule, process = self.process.schedule, self.process
        ratio = schedule.sigma(s) / schedule.sigma(self.t)
        on_clean = schedule.alpha(s) - ratio * schedule.alpha(self.t)
        return process.coefficient(ratio, self.x_t) * self.x_t + process.coefficient(on_clean, self.x_t) * self.clean()

    @staticmethod
    def to_linear(process: Gaussian, value: Tensor) -> Tensor:
        """The linear representative a x_0 + b eps of a value."""
        return value

    @staticmethod
    def from_linear(process: Gaussian, linear: Tensor) -> Tensor:
        """The value with this linear representative."""
        return linear

    @classmethod
    def linear_target(cls, process: Gaussian, x0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """The linear representative of `target`."""
        a, b = cls.target_coefficients(process.schedule, t)
        on_x_t = b / process.schedule.sigma(t)
        on_x0 = a - on_x_t * process.schedule.alpha(t)
        return process.coefficient(on_x0, x_t) * x0 + process.coefficient(on_x_t, x_t) * x_t

    @classmethod
    def target(cls, process: Gaussian, x0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """What a perfect regression on x_0 would be trained towards."""
        return cls.from_linear(process, cls.linear_target(process, x0, x_t, t))

    def error(self, x0: Tensor) -> Float[Tensor, "batch *shape"]:
        """Target minus value, in their linear representatives."""
        return self.linear_target(self.process, x0, self.x_t, self.t) - self.to_linear(self.process, self.value)

    def _as(self, a: Tensor, b: Tensor, target: type) -> Tensor:
        """The linear representative of the kind with coefficients (a, b)."""
        d = self.determinant()
        on_x_t, on_value = _conversion(self.process.schedule, self.t, self.coefficients(), (a, b), d)
        if may_read(on_value) and not bool((on_value.abs() < 1e100).all()):
            alpha = self.process.schedule.alpha(self.t).clamp_min(TINY)
            raise refuse(self, target, _nothing_said(type(self).__name__, alpha, d))
        on_x_t, on_value = (self.process.coefficient(c, self.x_t) for c in (on_x_t, on_value))
        return on_x_t * self.x_t + on_value * self.to_linear(self.process, self.value)

    def to(self, kind: type[Kind], **options) -> Kind:
        if not issubclass(kind, ContinuousPrediction):
            raise refuse(self, kind, "one lives on numbers, the other on categories")
        if kind is type(self) and not options:
            return self  # type: ignore[return-value]
        if kind is Mean:
            if "s" not in options:
                raise ValueError(_MEAN_NEEDS_S)
            return self.mean(**options)  # type: ignore[return-value]
        linear = self._as(*kind.target_coefficients(self.process.schedule, self.t), kind)
        value = kind.from_linear(self.process, linear)
        return kind(value, self.process, self.x_t, self.t, self.variance, self.extra)  # type: ignore[return-value]

    def mean(self, s: Clock) -> "Mean":
        s = as_times(s, self.x_t.shape[0], self.x_t.device, "s")
        ordered(s, self.t)
        return Mean(
            self._as(*_mean_coefficients(self.process, s, self.t), Mean),
            self.process,
            self.x_t,
            self.t,
            self.variance,
            self.extra,
            s=s,
        )

    def local(self) -> Local:
        a, b = Score.target_coefficients(self.process.schedule, self.t)
        return self.process.reverse_local(self.x_t, self._as(a, b, Score), self.t)

    def step(self, s: Clock) -> Law:
        s = as_times(s, self.x_t.shape[0], self.x_t.device, "s")
        ordered(s, self.t)
        variance = self.variance.of(self.process, self.x_t, s, self.t, self.extra)
        return Normal(self.mean(s).value, variance.sqrt(), self.process.covariance)

    @property
    def kernel_key(self) -> Hashable | None:
        return type(self), self.process, self.variance

    def kernel_table(self, process: Process, s: Tensor, t: Tensor) -> KernelTable | None:
        """That of `step`; a class with a step of its own, as a `Mean` that belongs to one pair of times, has none."""
        own, process = type(self), cast(Gaussian, process)
        if any(getattr(own, name) is not getattr(ContinuousPrediction, name) for name in _MAKES_STEPS):
            return None
        known = self.variance.table(process, s, t)
        if known is None:
            return None
        schedule, (a, b) = process.schedule, self.target_coefficients(process.schedule, t)
        d = schedule.alpha(t).clamp_min(TINY) * b - schedule.sigma(t) * a
        return KernelTable(*_conversion(schedule, t, (a, b), _mean_coefficients(process, s, t), d), known)

    def kernel_terms(self, known: tuple[Any, ...]) -> tuple[Tensor, Any]:
        return self.to_linear(self.process, self.value), self.variance.from_table(known, self.extra)


_MAKES_STEPS = ("step", "mean", "_as", "coefficients", "determinant")  # what the kernels' table is worked out from


def _conversion(
    schedule: Schedule, t: Tensor, own: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor], d: Tensor
) -> tuple[Tensor, Tensor]:
    """(on x_t, on value) of the linear representative with the coefficients `wanted`, from that with `own` and D = d."""
    (a_1, b_1), (a, b) = own, wanted
    alpha, sigma = schedule.alpha(t).clamp_min(TINY), schedule.sigma(t)
    return (a * b_1 - b * a_1) / d, (alpha * b - sigma * a) / d


def _nothing_said(kind: str, alpha: Tensor, d: Tensor) -> str:
    """Why x_0 does not follow where D = 0: alpha is, or the kind's own coefficients make it so."""
    if bool((alpha.expand_as(d)[d.abs() < 1e-100] > 1e-12).any()):
        return f"D = alpha b - sigma a is 0 here though alpha is not: the target of {kind} is a multiple of x_t, no more"
    return "alpha_t = 0 here, so x_t and the prediction carry nothing of x_0"


class Clean(ContinuousPrediction):
    """x_0 itself."""

    @staticmethod
    def target_coefficients(schedule, t):
        one = torch.ones_like(schedule.alpha(t))
        return one, 0 * one

    @classmethod
    def squared_error_weight(cls, schedule, t):
        """-SNR'/2."""
        return _half_snr_slope(schedule, t)


class Noise(ContinuousPrediction):
    """eps of x_t = alpha x_0 + sigma eps."""

    @staticmethod
    def target_coefficients(schedule, t):
        one = torch.ones_like(schedule.alpha(t))
        return 0 * one, one

    @classmethod
    def squared_error_weight(cls, schedule, t):
        return 0.5 * schedule.diffusion(t) / schedule.sigma(t).square()


class Score(ContinuousPrediction):
    """grad log q(x_t)."""

    @classmethod
    def of_energy(cls, leaf):
        return cls(leaf.slope, leaf.process, leaf.x, leaf.t, leaf.variance)

    @staticmethod
    def to_linear(process, value):
        return value if process.covariance is None else process.covariance.apply(value)

    @staticmethod
    def from_linear(process, linear):
        return linear if process.covariance is None else process.covariance.solve(linear)

    @staticmethod
    def target_coefficients(schedule, t):
        b = -1 / schedule.sigma(t)
        return 0 * b, b

    @classmethod
    def squared_error_weight(cls, schedule, t):
        return 0.5 * schedule.diffusion(t)


class Velocity(ContinuousPrediction):
    """v = alpha eps - sigma x_0."""

    @staticmethod
    def target_coefficients(schedule, t):
        return -schedule.sigma(t), schedule.alpha(t)

    @classmethod
    def squared_error_weight(cls, schedule, t):
        alpha, sigma = schedule.alpha(t), schedule.sigma(t)
        return _half_snr_slope(schedule, t) * (sigma / (alpha.square() + sigma.square())).square()


class Flow(ContinuousPrediction):
    """u = alpha' x_0 + sigma' eps: the velocity of the probability flow."""

    @staticmethod
    def target_coefficients(schedule, t):
        return schedule.d_alpha(t), schedule.d_sigma(t)

    @classmethod
    def squared_error_weight(cls, schedule, t):
        """2/g^2, since D = alpha g^2/(2 sigma)."""
        return 2 / schedule.diffusion(t)


def _half_snr_slope(schedule: Schedule, t: Tensor) -> Tensor:
    """-SNR'/2 = g^2/2 (alpha/sigma^2)^2."""
    return 0.5 * schedule.diffusion(t) * (schedule.alpha(t) / schedule.sigma(t).square()).square()


def _mean_coefficients(process: Gaussian, s: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
    """mu = alpha_s x_0 + (its factor on x_t) sigma_t eps."""
    return process.schedule.alpha(s), process.posterior_coefficients(s, t)[0] * process.schedule.sigma(t)


class Mean(ContinuousPrediction):
    """The mean of x_s given x_t, for one grid pair (s, t) (eq:condition-reversal-nn-cont)."""

    tied_to_grid = True

    def __init__(self, value, process, x_t, t, variance=None, extra=None, *, s: Clock):
        super().__init__(value, process, x_t, t, variance, extra)
        self.s = as_times(s, x_t.shape[0], x_t.device, "s")

    @staticmethod
    def target_coefficients(schedule, t):
        raise ValueError(_MEAN_NEEDS_S)

    @classmethod
    def squared_error_weight(cls, schedule, t):
        raise TypeError(f"{cls.__name__} has no continuous-time squared error")

    @classmethod
    def tells_clean(cls, process):
        return False

    def coefficients(self):
        return _mean_coefficients(self.process, self.s, self.t)

    def determinant(self):
        """-sigma times the mean's factor on x_0: the same number, without the difference."""
        return -self.process.schedule.sigma(self.t) * self.process.posterior_coefficients(self.s, self.t)[1]
