"""Jump-diffusion: numbers that are noised, scaled, and now and then thrown.

    x_t = a_t (x_0 + sqrt(tau_t) eps + s sum_{i <= N_t} xi_i),      N_t ~ Poisson(L_t),      L_t = l t

with a = alpha and tau = sigma^2/alpha^2 of a schedule, eps and xi standard normal.  A throw moves the whole vector.  Given
the number of throws everything is normal:

    q(x_t | x_0)      = sum_n Poisson(n; L_t) N(a_t x_0, sigma_t^2 + n a_t^2 s^2)
    q(x_t | x_s)      = sum_n Poisson(n; L_t - L_s) N(alpha_{t|s} x_s, sigma_{t|s}^2 + n a_t^2 s^2)
    q(x_s | x_t, x_0) = sum over n throws before s and m after, with the weight
                        Poisson(n; L_s) Poisson(m; L_t - L_s) N(x_t; a_t x_0, r^2 V_n + W_m),     r = alpha_{t|s},
                        of N((W_m a_s x_0 + r V_n x_t)/(r^2 V_n + W_m), V_n W_m/(r^2 V_n + W_m))

where V_n = sigma_s^2 + n a_s^2 s^2 and W_m = sigma_{t|s}^2 + m a_t^2 s^2.  The generator is

    L phi = (d log a/dt) x . grad phi + 1/2 g^2 Laplace phi + l int N(y; x, a^2 s^2) [phi(y) - phi(x)] dy;

its jumps have the scale a s, since a throw by s of what stands in the brackets is one by a s of x_t.  Run backwards given
x_0 it has the drift -(d log a/dt) x + g^2 grad log q(x | x_0), the same diffusion, and the jumps

    l N(x; y, a^2 s^2) q(y | x_0)/q(x | x_0)                                                            (`jump_kernels`),

a throw being undone at the rate E[N_t | x_t, x_0]/t in all.

The prior is the noise alone, q(x_1 | x_0 = 0).  What it misses is counted in the bound: KL(q(x_1 | x_0) || prior), of one
number by quadrature, of several by

    KL <= sum_n Poisson(n; L_1) |x_0|^2/(2 (tau_1 + n s^2)),

which is never too small (the log-sum inequality over n), and 0 where alpha_1 = 0.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from math import inf

import torch
from torch import Tensor

from unnoise.checks import as_times, ordered
from unnoise.generators import Local
from unnoise.jump_laws import IsotropicMixture, graded_nodes, log_normal, poisson_log_weights, poisson_terms, squared
from unnoise.processes.base import Process, last_time, valid_schedule
from unnoise.processes.jump_kernels import NormalJumps, ReturnJumps
from unnoise.schedules import Cosine, Schedule
from unnoise.shapes import Clock, Float, Tree
from unnoise.spaces import Euclidean

RANGE = 8.5  # standard deviations that an exact expectation covers
DRAWS = 4  # destinations that stand for an integral over several numbers


@dataclass(frozen=True)
class Clouds:
    """Where the data may have been: normal laws N(centre, variance) of x_0 with shares given x_t, log c_k."""

    centres: Float[Tensor, "batch k d"]
    variances: Float[Tensor, "batch k"]
    log_share: Float[Tensor, "batch k"]

    @classmethod
    def point(cls, x0: Tensor) -> "Clouds":
        """All at x_0."""
        centres = x0.double().reshape(len(x0), 1, -1)
        zero = torch.zeros(len(x0), 1, dtype=torch.float64, device=x0.device)
        return cls(centres, zero, zero)


def _checked_cap(cap: float | int) -> float:
    if not 1 <= cap < inf:
        raise ValueError(f"cap = {cap:g}: ratios of densities exceed 1 somewhere, so pass a finite cap of several")
    return float(cap)


class JumpDiffusion(Process):
    """Gaussian noise of a schedule, and `jumps` normal throws on average by t = 1, each of standard deviation `scale` in
    the data's own units.

    `draws` destinations stand for the bound's integral over the way back of throws (0: nodes, of one or two numbers); by
    default nodes for one number, and draws for several.  `cap` is the largest ratio of densities of a model that says no
    rates in closed form (`Energy`): part of it, for bound and sampler alike."""

    space: Euclidean
    state_space: Euclidean
    schedule: Schedule
    has_density = True
    reparametrised = True

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        schedule: Schedule | None = None,
        jumps: float | int = 2.0,
        scale: float | int = 2.0,
        draws: int | None = None,
        cap: float | int = 50.0,
    ):
        super().__init__()
        self.space = self.state_space = Euclidean(shape)
        self.schedule = valid_schedule(schedule, Cosine())
        if self.schedule.shape:
            raise ValueError(
                f"a schedule of shape {self.schedule.shape}: a throw moves all coordinates at once, so pass one for all"
            )
        for name, value in (("jumps", jumps), ("scale", scale)):
            if not 0 < value < inf:
                raise ValueError(f"{name} = {value:g}: pass a positive number, or un.Gaussian(...) for noise without jumps")
        self.jumps, self.scale = float(jumps), float(scale)
        self.terms = poisson_terms(self.jumps)
        self.draws = DRAWS * (self.space.dimension > 1) if draws is None else draws
        if self.draws < 0:
            raise ValueError(f"draws = {draws}: pass a number of destinations, or 0 for nodes (of one or two numbers)")
        self.cap = _checked_cap(cap)
        self.cutoff = 0.0 if float(self.schedule.sigma(0.0).detach()) > 0 else 1e-4

    def with_cap(self, cap: float | int) -> "JumpDiffusion":
        """The same process, with ratios up to another cap."""
        other = copy(self)
        other.cap = _checked_cap(cap)
        return other

    @property
    def latest(self) -> float:
        """Where alpha_1 = 0, the time at which alpha/sigma is e^-5: beyond, the drift is infinite."""
        if float(self.schedule.alpha(1.0).detach()) > 0:
            return 1.0
        return last_time(lambda t: float(self.schedule.log_snr(t).detach()) >= -10)

    def times(self, t: Clock, x: Tensor, name: str = "t") -> Tensor:
        return as_times(t, x.shape[0], x.device, name)

    def thrown(self, t: Tensor) -> Float[Tensor, "batch"]:
        """a^2 s^2, the variance of a throw at the time t, float64."""
        return (self.schedule.alpha(t) * self.scale).square()

    def step(self, s: Tensor | None, t: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Of x_t given x_s (the data, where s is None): alpha_{t|s}, the log-weights of n throws, their variances."""
        alpha = self.schedule.alpha(t) if s is None else self.schedule.step_alpha(s, t)
        still = self.schedule.sigma(t).square() if s is None else self.schedule.step_variance(s, t)
        n = torch.arange(self.terms, dtype=torch.float64, device=t.device)
        variance = still.unsqueeze(1) + n * self.thrown(t).unsqueeze(1)
        return alpha, poisson_log_weights(self.jumps * (t if s is None else t - s), self.terms), variance

    def _law(self, x: Tensor, s: Tensor | None, t: Tensor) -> IsotropicMixture:
        alpha, log_weight, variance = self.step(s, t)
        mean = alpha.reshape(-1, 1, 1) * x.double().reshape(len(x), 1, -1)
        return IsotropicMixture(log_weight, mean, variance, self.space.shape, x.dtype)

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None):
        return self.marginal(torch.zeros(rows, *self.space.shape, dtype=dtype, device=device), 1.0)

    def prior_kl(self, x0: Tree, t: Clock = 1.0) -> Tensor:
        """KL(q(x_t | x_0) || prior) of one number; of several a bound from above."""
        x0 = self.space.check(x0, "x0")
        law, prior = self.marginal(x0, t), self.prior(len(x0), x0.dtype, x0.device)
        if self.space.dimension > 1:
            return law.kl_bound(prior)
        nodes, log_weight = self.support(x0, t)
        return (log_weight.exp() * (law.log_prob_at(nodes) - prior.log_prob_at(nodes))).sum(0)

    def marginal(self, x0: Tree, t: Clock) -> IsotropicMixture:
        x0 = self.space.check(x0, "x0")
        return self._law(x0, None, self.times(t, x0))

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> IsotropicMixture:
        x_s = self.space.check(x_s, "x_s")
        s, t = self.times(s, x_s, "s"), self.times(t, x_s)
        ordered(s, t)
        return self._law(x_s, s, t)

    def posterior(self, x_t: Tree, x0: Tree, s: Clock, t: Clock) -> IsotropicMixture:
        x0 = self.space.check(x0, "x0")
        return self.backwards(x_t, Clouds.point(x0), s, t)

    def backwards(self, x_t: Tree, clouds: Clouds, s: Clock, t: Clock) -> IsotropicMixture:
        """q(x_s | x_t) where x_0 is in one of the clouds: V_n has the cloud's variance a_s^2 v too."""
        x_t = self.space.check(x_t, "x_t")
        s, t = self.times(s, x_t, "s"), self.times(t, x_t)
        ordered(s, t)
        on_x0, log_before, still = self.step(None, s)
        ratio, log_after, after = self.step(s, t)
        rows, d = len(x_t), self.space.dimension
        flat, centres = x_t.double().reshape(rows, 1, -1), on_x0.reshape(-1, 1, 1) * clouds.centres
        r, v = ratio.reshape(-1, 1, 1, 1), on_x0.square().unsqueeze(1) * clouds.variances
        before = (v.unsqueeze(2) + still.unsqueeze(1)).unsqueeze(3)  # V_n: [batch, k, n, 1]
        after = after[:, None, None]  # W_m: [batch, 1, 1, m]
        whole = r.square() * before + after
        evidence = (
            log_before[:, None, :, None]
            + log_after[:, None, None]
            + log_normal(squared(flat - ratio.reshape(-1, 1, 1) * centres)[:, :, None, None], whole, d)
        )
        log_weight = clouds.log_share[:, :, None, None] + evidence.flatten(2).log_softmax(2).reshape(evidence.shape)
        on_centre, on_state = ((part / whole).unsqueeze(4) for part in (after, r * before))
        mean = on_centre * centres[:, :, None, None] + on_state * flat[:, :, None, None]
        variance = before * after / whole
        return IsotropicMixture(log_weight.flatten(1), mean.flatten(1, 3), variance.flatten(1), self.space.shape, x_t.dtype)

    # the generator

    def _rates(self, t: Tensor) -> NormalJumps:
        return NormalJumps(torch.full_like(t, self.jumps), self.thrown(t))

    def _parts(self, x: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        ones = [1] * (x.ndim - 1)
        drift, diffusion = self.schedule.drift(t), self.schedule.diffusion(t)
        return drift.reshape(-1, *ones).to(x.dtype) * x, diffusion.reshape(-1, *ones).to(x.dtype)

    def local(self, x: Tensor, t: Clock) -> Local:
        t = self.times(t, x)
        drift, diffusion = self._parts(x, t)
        return Local(drift, diffusion, jumps=self._rates(t))

    def reverse_local(self, x_t: Tensor, clouds: Clouds, t: Clock) -> Local:
        """The generator run backwards where x_0 is in one of the clouds (eq:reversed-generator)."""
        t = self.times(t, x_t)
        drift, diffusion = self._parts(x_t, t)
        jumps = self.way_back(clouds, t)
        return Local(-drift + diffusion * self.score(x_t, clouds, t), diffusion, jumps=jumps)

    def way_back(self, clouds: Clouds, t: Tensor) -> ReturnJumps:
        alpha = self.schedule.alpha(t)
        variances = alpha.square().unsqueeze(1) * clouds.variances + self.schedule.sigma(t).square().unsqueeze(1)
        centres = alpha.reshape(-1, 1, 1) * clouds.centres
        return ReturnJumps(self._rates(t), centres, variances, clouds.log_share, self.jumps * t, self.terms, self.draws)

    def log_evidence(self, x_t: Tensor, clouds: Clouds, t: Clock) -> Float[Tensor, "batch k"]:
        """log q(x_t) for data in each of the clouds."""
        flat = x_t.double().reshape(len(x_t), 1, -1)
        return self.way_back(clouds, self.times(t, x_t)).log_densities(flat).squeeze(1)

    def score(self, x_t: Tensor, clouds: Clouds, t: Clock) -> Tensor:
        """sum_k c_k grad log q_k(x_t)."""
        t = self.times(t, x_t)
        back, flat = self.way_back(clouds, t), x_t.double().reshape(len(x_t), 1, -1)
        weight = back.log_terms(flat).squeeze(1).softmax(2)
        pull = clouds.log_share.exp() * (weight / back.per_throws()).sum(2)
        return (pull.unsqueeze(2) * (back.centres - flat)).sum(1).reshape(x_t.shape).to(x_t.dtype)

    def conditioned_local(self, x_t: Tensor, x0: Tensor, t: Clock) -> Local:
        return self.reverse_local(x_t, Clouds.point(x0), t)

    def noiseless(self, t: float) -> bool:
        return t == 0 and bool(self.schedule.sigma(t) <= 0)

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        """Nodes that crowd around a x_0, where x_t is if nothing was thrown."""
        law = self.marginal(x0, t)
        if self.space.dimension > 1:
            raise ValueError(f"an exact expectation over {self.space.dimension} numbers is out of reach: draw instead")
        x, log_weight = graded_nodes(
            law.mean[:, 0], law.variance[:, 0].sqrt(), RANGE * law.variance[:, -1].sqrt(), self.space.dimension
        )
        x = x.transpose(0, 1).reshape(-1, *x0.shape)
        return x.to(x0.dtype), log_weight.T + law.log_prob_at(x)

    def extra_repr(self) -> str:
        return f"{self.space}, jumps={self.jumps:g}, scale={self.scale:g}"
