"""Psi-samplers (Deschenaux, Gulcehre and Sahoo 2026): predictor and corrector in one kernel, for any noise on categories.

Any two kernels with the marginals of the process have mixtures that have them too.  The reversal is one, and to forget x_t
and noise x_0 afresh is another:

    Psi(x_s | x_t, x_0) = kappa q(x_s | x_t, x_0) + (1 - kappa) q(x_s | x_0)

has the process's own q(x_s | x_0): average over q(x_t | x_0).  It is linear in e_{x_0} once x_t is given, so the model's
kernel has the raw posterior theta = q(x_0^k | x_t) in its place,

    kappa p(x_s | x_t) + (1 - kappa) Q_s theta.

Which kappa?  Those in [0, 1], under every noise.  With one noise law p for all times also some beyond, since by Bayes
q(x_s | x_t, x_0)/q(x_s | x_0) = q(x_t | x_s)/q(x_t | x_0): with r its largest and l its least value, over all that can be,

    -1/(r - 1) <= kappa <= 1/(1 - l),

    1/r = min over z of  beta_t p(z)/(alpha_{t|s} + beta_{t|s} p(z)),  or alpha_s where p(z) = 0       (x_s = x_t = z)
    l   = min over z of  beta_{t|s} p(z)/(alpha_t + beta_t p(z))                                (x_0 = x_t = z, x_s another)

Under masking 1/r = min(beta_t, alpha_s) and l = 0, so that kappa goes from 1 - min(1, beta_s/alpha_t)/beta_s to 1.

What is it?  kappa = 1 is `Ancestral`.  Under masking a clean coordinate is masked with probability (1 - kappa) beta_s =
sigma, so that `Remasking` by the same sigma is the same kernel, and `CategoricalDDIM(eta)` that of kappa = 1 - eta.
Confidence chooses which coordinates are masked, and is none.  Under uniform noise DDIM is another family, and the same at
one point alone, where both forget x_t.

In law.  Exact for one coordinate.  For several kappa = 1 is of order 1; with any other constant, and with max-rescale, a
share is drawn anew in every step, however short: no order.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from math import isfinite
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.laws import Categorical, log_of
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction, RawPosterior
from unnoise.processes import FiniteProcess, FixedNoise, Process
from unnoise.samplers.base import OneStep
from unnoise.samplers.categorical_ddim import alpha_beta, over, raw_log_probs
from unnoise.samplers.problem import Problem, on_host
from unnoise.samplers.state import State
from unnoise.samplers.tokens import Tokens
from unnoise.shapes import Float, Int

SLACK = 1e-12  # by which rounding may carry kappa past an end


class KappaRule(ABC):
    """How much of the reversal there is in every step."""

    order: int | None = None

    @abstractmethod
    def kappa(self, process: FiniteProcess, t: Tensor, s: Tensor) -> Tensor:
        """Of every step from t to s, [steps] or [steps, *shape]."""


class ConstantKappa(KappaRule):
    def __init__(self, value: float):
        if not isfinite(value):
            raise ValueError(f"kappa = {value}: the share of the reversal is a number; 1 is the reversal itself")
        self.value, self.order = float(value), 1 if value == 1 else None

    def kappa(self, process, t, s):
        return torch.full_like(t, self.value)


class TimedKappa(KappaRule):
    """A function of the two times of a step, (s, t)."""

    def __init__(self, function: Callable[[Tensor, Tensor], Any]):
        self.function = function

    def kappa(self, process, t, s):
        found = torch.as_tensor(self.function(s, t), dtype=torch.float64)
        if found.shape not in ((), t.shape):
            raise ValueError(f"kappa(s, t) returned shape {tuple(found.shape)} for {len(t)} steps: return a number for each")
        return found.expand_as(t)


class MaxRescale(KappaRule):
    """Of published text models, where also top_p = 0.9: kappa = 1 - sigma/beta_s, cut to [0, 1], with the share
    sigma = eta min(1, beta_s/alpha_t) of the most that can be remasked."""

    def __init__(self, eta: float = 0.05):
        if not 0 <= eta <= 1:
            raise ValueError(f"eta = {eta:g}: choose it in [0, 1]; 0 is the reversal")
        self.eta = eta

    def kappa(self, process, t, s):
        times = torch.cat([t, s[-1:]])
        alpha, beta = alpha_beta(process, times)
        sigma = self.eta * over(beta[1:], alpha[:-1], 1.0).clamp_max(1.0)
        return (1 - over(sigma, beta[1:], 0.0)).clamp(0.0, 1.0)


def rule_of(kappa: Any) -> KappaRule:
    """A number, a function of (s, t), or a rule."""
    if isinstance(kappa, KappaRule):
        return kappa
    if isinstance(kappa, int | float) and not isinstance(kappa, bool):
        return ConstantKappa(float(kappa))
    if callable(kappa):
        return TimedKappa(kappa)
    raise TypeError(f"kappa = {kappa!r}: pass a number, a function of (s, t), or a rule such as MaxRescale(0.05)")


def admissible(process: FiniteProcess, times: Float[Tensor, "times"]) -> tuple[Tensor, Tensor]:
    """The least and the largest kappa of every step, [steps, *shape or ones], on the host."""
    wide = (len(times) - 1, *[1] * len(process.space.shape))
    if not isinstance(process, FixedNoise):
        return torch.zeros(wide, dtype=torch.float64), torch.ones(wide, dtype=torch.float64)
    alpha, beta = (part.unsqueeze(-1) for part in alpha_beta(process, times))
    p = process.noise.log_probs(torch.float64, torch.device("cpu")).exp()
    p = p.expand(*process.space.shape, p.shape[-1])
    valid = process.space.valid()
    if valid is not None:
        added = process.state_space.size - process.space.size
        p = torch.where(torch.nn.functional.pad(valid, (0, added), value=True), p, torch.nan)
    keep = over(alpha[:-1], alpha[1:], 1.0)  # alpha_{t|s}
    renew = 1 - keep
    drawn = p > 0
    inverse = torch.where(drawn, beta[:-1] * p / (keep + renew * p), alpha[1:])
    least = over(renew * p, alpha[:-1] + beta[:-1] * p, 0.0)
    least, inverse = (torch.where(p.isnan(), torch.inf, v).amin(-1).clamp(0.0, 1.0) for v in (least, inverse))
    still = (beta[1:] <= 0).squeeze(-1)  # x_s is x_0, whatever kappa is
    low = torch.where(still, -torch.inf, -over(inverse, 1 - inverse, torch.inf))
    return low, torch.where(still, torch.inf, over(torch.ones_like(least), 1 - least, torch.inf))


class Psi(OneStep):
    """kappa p(x_s | x_t) + (1 - kappa) Q_s theta: the reversal, and a fresh noising of what the model takes for x_0.

    `kappa` is a number, a function of the times (s, t) of a step, or a rule; unless told `MaxRescale(0.05)`.  `tokens`
    changes theta, in both parts.
    """

    def __init__(self, kappa: Any = None, tokens: Tokens | None = None):
        self.rule, self.tokens = rule_of(MaxRescale() if kappa is None else kappa), tokens or Tokens()
        self.order = self.rule.order if self.tokens.plain else None

    def refuse(self, process: Process) -> str | None:
        name, own = type(self).__name__, type(process).__name__
        if not isinstance(process, FiniteProcess):
            return f"{name} draws categories, and {own} has none"
        if isinstance(self.rule, MaxRescale) and not isinstance(process, FixedNoise):
            return f"max-rescale asks for alpha, which {own} does not have: pass kappa as a number or a function of (s, t)"
        return None

    def kappas(self, process: FiniteProcess, times: Float[Tensor, "times"]) -> Float[Tensor, "steps *shape"]:
        """Of every step, on the host; refused where a kernel would have negative probabilities."""
        low, high = admissible(process, times)
        kappa = self.rule.kappa(process, times[:-1], times[1:])
        kappa = kappa.reshape(-1, *[1] * len(process.space.shape)) if kappa.ndim == 1 else kappa
        low, high, kappa = torch.broadcast_tensors(low, high, kappa)
        bad = ~((kappa >= low - SLACK) & (kappa <= high + SLACK))
        if bool(bad.any()):
            where = tuple(bad.nonzero()[0].tolist())
            i = where[0]
            t, s, value, least, most = (float(v) for v in (times[i], times[i + 1], kappa[where], low[where], high[where]))
            raise ValueError(
                f"kappa = {value:.6g} in the step from t = {t:.4g} to {s:.4g}, where probabilities are negative outside "
                f"[{least:.6g}, {most:.6g}]: any value in [0, 1] will do"
            )
        return kappa

    def tables(self, problem: Problem) -> list[tuple[Tensor, bool, bool]]:
        """kappa of every step, whether it is a share of [0, 1], and whether it is 1."""
        kappa = self.kappas(cast(FiniteProcess, on_host(problem.process)), problem.times)
        flat = kappa.reshape(len(kappa), -1)
        share, whole = (what.all(1).tolist() for what in ((flat >= 0) & (flat <= 1), flat == 1))
        return list(zip(kappa.to(problem.device), share, whole, strict=True))

    def law(self, table: tuple[Tensor, bool, bool], prediction: Prediction, s: Tensor) -> Categorical:
        """Of x_s: of a step, from the prediction where it begins."""
        kappa, share, whole = table
        if whole and self.tokens.plain:
            return prediction.step(s)  # type: ignore[return-value]
        log_theta = raw_log_probs(prediction, self.tokens)
        if not self.tokens.plain:
            prediction = RawPosterior(log_theta, prediction.process, prediction.x_t, prediction.t)  # type: ignore[arg-type]
        return PsiLaw(prediction, log_theta, kappa, share, s)

    def no_law(self) -> str | None:
        return None

    def step_law(self, problem: Problem, tables: list, prediction: Prediction, i: int) -> Categorical:
        return self.law(tables[i], prediction, problem.clock[i + 1])

    def stage(
        self, problem: Problem, tables: list, prediction: Prediction, state: State, i: int, k: int, noise: NoiseSource
    ) -> State:
        moved = self.law(tables[i], prediction, problem.clock[i + 1]).draw(noise)
        return state.counted(moved, state.x).to(moved)


class PsiLaw(Categorical):
    """kappa p(x_s | x_t) + (1 - kappa) Q_s theta, kept as its parts."""

    def __init__(self, prediction: Prediction, log_theta: Tensor, kappa: Tensor, share: bool, s: Tensor):
        self.prediction, self.log_theta, self.share, self.s = prediction, log_theta, share, s
        self.process: FiniteProcess = prediction.process  # type: ignore[assignment]
        self.x: Tensor = prediction.x_t  # type: ignore[assignment]
        self.kappa = kappa.expand(self.x.shape)

    @property
    def log_probs(self) -> Float[Tensor, "batch *shape size"]:  # type: ignore[override]
        back = self.prediction.step(self.s).probs.double()  # type: ignore[attr-defined]
        afresh = self.process.log_push(self.process.widen(self.log_theta), None, self.s).exp()
        kappa = self.kappa.unsqueeze(-1)
        return log_of((kappa * back + (1 - kappa) * afresh).clamp_min(0.0))  # 0 but for rounding where it is negative

    def draw(self, noise: NoiseSource) -> Int[Tensor, "batch *shape"]:
        """Which part comes before where to; by their sum where one of them is taken off."""
        if not self.share:
            return Categorical.normalised(self.log_probs).draw(noise.at("both"))
        shape = tuple(self.x.shape[1:])
        whether = noise.at("whether").uniform(shape) < self.kappa
        back = cast(Tensor, self.prediction.step(self.s).draw(noise.at("back")))
        u = noise.at("token").uniform(shape).flatten()
        clean = Tokens().draw(self.log_theta.flatten(0, -2), u).reshape(self.x.shape)
        afresh = self.process.marginal(clean, self.s).draw(noise.at("noise"))
        return torch.where(whether, cast(Tensor, back), cast(Tensor, afresh))
