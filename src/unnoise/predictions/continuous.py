"""Predictions on Euclidean space.  Each kind is one line: its target is P x_0 + Q x_t for known (P, Q).

    Clean      x_0
    Noise      eps   = (x_t - alpha x_0) / sigma
    Score      s     = -eps / sigma                                                (eq:ct-eps-to-score)
    Velocity   v     = alpha eps - sigma x_0                                        (eq:ct-v-to-score)
    Flow       u     = alpha' x_0 + sigma' eps, the probability-flow velocity       (eq:ct-u-to-score)
    Mean       mu    = E[x_s | x_t, x_0] for the grid pair (s, t)               (eq:discrete_time_reverse_mu_x0)

so from kind 1 to kind 2:  value_2 = (P_2/P_1) (value_1 - Q_1 x_t) + Q_2 x_t, for any schedule.  The P of Noise and Score
vanish where alpha = 0: there they say nothing of x_0, and only their own ratio remains.
"""

from abc import abstractmethod

import torch
from torch import Tensor

from unnoise.checks import as_times, looks
from unnoise.generators import Local
from unnoise.laws import TINY, Law, Normal
from unnoise.predictions import variance as variances
from unnoise.predictions.base import Kind, Prediction, refuse
from unnoise.processes import Gaussian
from unnoise.schedules import Schedule
from unnoise.shapes import Float, Tree


class ContinuousPrediction(Prediction):
    """A number per coordinate, linear in (x_0, x_t)."""

    process: Gaussian

    def __init__(
        self,
        value: Float[Tensor, "batch *shape"],
        process: Gaussian,
        x_t: Float[Tensor, "batch *shape"],
        t: Tree,
        variance: variances.Variance | None = None,
        extra: Tensor | None = None,
    ):
        self.value, self.process, self.x_t = value, process, x_t
        self.t = as_times(t, x_t.shape[0], x_t.device)
        self.variance = variance or variances.Posterior()
        self.extra = extra

    @staticmethod
    @abstractmethod
    def target_coefficients(schedule: Schedule, t: Tensor) -> tuple[Tensor, Tensor]:
        """(P, Q) of the target P x_0 + Q x_t, float64."""

    def coefficients(self) -> tuple[Tensor, Tensor]:
        return self.target_coefficients(self.process.schedule, self.t)

    @classmethod
    def target(cls, process: Gaussian, x0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """What a perfect regression on x_0 would be trained towards."""
        p, q = cls.target_coefficients(process.schedule, t)
        return process.coefficient(p, x_t) * x0 + process.coefficient(q, x_t) * x_t

    def _as(self, p: Tensor, q: Tensor, target: type) -> Tensor:
        """The value of the kind with coefficients (p, q)."""
        p1, q1 = self.coefficients()
        ratio = p / p1
        if looks(ratio) and not bool((ratio.abs() < 1e100).all()):
            raise refuse(self, target, "alpha_t = 0 here, so x_t and the prediction carry nothing of x_0")
        ratio, q, q1 = (self.process.coefficient(c, self.x_t) for c in (ratio, q, q1))
        return ratio * (self.value - q1 * self.x_t) + q * self.x_t

    def to(self, kind: type[Kind], **options) -> Kind:
        if not issubclass(kind, ContinuousPrediction):
            raise refuse(self, kind, "one lives on numbers, the other on categories")
        if kind is type(self) and not options:
            return self  # type: ignore[return-value]
        if kind is Mean:
            return self.mean(**options)  # type: ignore[return-value]
        value = self._as(*kind.target_coefficients(self.process.schedule, self.t), kind)
        return kind(value, self.process, self.x_t, self.t, self.variance, self.extra)  # type: ignore[return-value]

    def mean(self, s: Tree) -> "Mean":
        s = as_times(s, self.x_t.shape[0], self.x_t.device, "s")
        on_x_t, on_x0, _ = self.process.posterior_coefficients(s, self.t)
        return Mean(self._as(on_x0, on_x_t, Mean), self.process, self.x_t, self.t, self.variance, self.extra, s=s)

    def local(self) -> Local:
        return self.process.reverse_local(self.x_t, self.to(Score).value, self.t)

    def step(self, s: Tree) -> Law:
        s = as_times(s, self.x_t.shape[0], self.x_t.device, "s")
        variance = self.variance.of(self.process, self.x_t, s, self.t, self.extra)
        return Normal(self.mean(s).value, variance.sqrt())


def _alpha_sigma(schedule: Schedule, t: Tensor) -> tuple[Tensor, Tensor]:
    return schedule.alpha(t).clamp_min(TINY), schedule.sigma(t)


class Clean(ContinuousPrediction):
    """x_0 itself."""

    @staticmethod
    def target_coefficients(schedule, t):
        one = torch.ones_like(schedule.alpha(t))
        return one, 0 * one


class Noise(ContinuousPrediction):
    """eps of x_t = alpha x_0 + sigma eps."""

    @staticmethod
    def target_coefficients(schedule, t):
        alpha, sigma = _alpha_sigma(schedule, t)
        return -alpha / sigma, 1 / sigma


class Score(ContinuousPrediction):
    """grad log q(x_t)."""

    @staticmethod
    def target_coefficients(schedule, t):
        alpha, sigma = _alpha_sigma(schedule, t)
        return alpha / sigma.square(), -1 / sigma.square()


class Velocity(ContinuousPrediction):
    """v = alpha eps - sigma x_0."""

    @staticmethod
    def target_coefficients(schedule, t):
        alpha, sigma = schedule.alpha(t), schedule.sigma(t)
        return -(alpha.square() / sigma + sigma), alpha / sigma


class Flow(ContinuousPrediction):
    """u = alpha' x_0 + sigma' eps: the velocity of the probability flow."""

    @staticmethod
    def target_coefficients(schedule, t):
        alpha, sigma, slope = schedule.alpha(t), schedule.sigma(t), schedule.d_sigma(t)
        return schedule.d_alpha(t) - slope * alpha / sigma, slope / sigma


class Mean(ContinuousPrediction):
    """The mean of x_s given x_t, for one grid pair (s, t)."""

    tied_to_grid = True

    def __init__(self, value, process, x_t, t, variance=None, extra=None, *, s: Tree):
        super().__init__(value, process, x_t, t, variance, extra)
        self.s = as_times(s, x_t.shape[0], x_t.device, "s")

    @staticmethod
    def target_coefficients(schedule, t):
        raise ValueError("a Mean belongs to a grid pair (s, t): pass s, as in prediction.to(Mean, s=s)")

    def coefficients(self):
        on_x_t, on_x0, _ = self.process.posterior_coefficients(self.s, self.t)
        return on_x0, on_x_t
