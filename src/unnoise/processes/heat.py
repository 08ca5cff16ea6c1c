"""Heat flow: Brownian motion on a closed space, which forgets where it began.

    generator   1/2 g^2 Laplace,      v_t = int g^2 dt = sigma_t^2 of a schedule that keeps the signal, alpha = 1
    q(x_t | x_0) = h_{v_t}(x_t, x_0),     q(x_t | x_s) = h_{v_t - v_s}(x_t, x_s),     prior: uniform

with the heat kernel h_v of the space (`heat_laws`).  There is no drift, so reversed under a density q the drift is g^2 grad
log q, a tangent vector: how it is moved along, and what the curvature adds, is for the space to say.  Where the heat has
not spread for long enough the bound counts the mismatch: KL(h_{v_1} || uniform), the same from every point.

What a network predicts is the score in units of its own size (`UnitScore`),

    u_v^2 = (d + 1)/(e^{d v} - e^{-v})    per direction of a sphere of dimension d, a circle having d = 1:  1/sinh v,

which is the mean square of grad log h_v(x, m) over x where v is small (1/v) and where it is large ((d + 1) e^{-dv}, of the
slowest wave), and within an eighth of it between.

A step down from t to s by a score has, with w = v_t - v_s,

    mean: along w score,        variance: w (1 - w u^2),

which tends to w v_s/v_t at little noise, as of normal laws, and to w where the space is filled: the mean over x_t of the
variance that x_s has given x_t and x_0, by the law of total variance over the ways from one to the other (there u^2 is E
score^2).
"""

from collections.abc import Sequence
from math import ceil, log
from typing import cast

import torch
from torch import Tensor

from unnoise.checks import as_times, may_read, ordered
from unnoise.generators import Local
from unnoise.heat_laws import NARROW, SMALLEST, TURN, AngleBridge, HeatLaw, UniformAngles, WrappedLaw, wrap
from unnoise.laws import Law, sum_coordinates
from unnoise.processes.base import Process, valid_schedule
from unnoise.schedules import VE, Schedule
from unnoise.shapes import Clock, Float, Tree
from unnoise.spaces import Torus
from unnoise.spaces.manifold import Manifold

RANGE = 8.5  # standard deviations that are covered; the mass beyond is 2e-17


class HeatProcess(Process):
    """Brownian motion with the clock v_t on a closed space; a family says its laws, `law` and `uniform`."""

    space: Manifold
    state_space: Manifold
    schedule: Schedule
    has_density = True
    has_flow = True
    even_diffusion = True
    curvature = 1  # d of the rate e^{-d v/2} at which the slowest wave fades, of the unit sphere of that dimension
    strength: int | None = None  # of that wave, c of u_v^2 -> c e^{-d v}; on spheres d + 1

    def __init__(self, space: Manifold, schedule: Schedule | None, default: Schedule):
        super().__init__()
        self.space = self.state_space = space
        self.schedule = valid_schedule(schedule, default)
        self._known: dict[tuple[Schedule, float], float] = {}  # what `information` has worked out
        self._check_schedule()
        self.cutoff = 0.0 if float(self.schedule.sigma(0.0).detach().min()) > 0 else 1e-4

    def _check_schedule(self) -> None:
        if self.schedule.shape not in ((), self.space.shape):
            raise ValueError(
                f"a schedule of shape {self.schedule.shape} does not fit {self.space}: pass one for all, or one per angle"
            )
        held = next(iter((*self.schedule.parameters(), *self.schedule.buffers())), torch.empty(0))
        t = torch.linspace(0.0, 1.0, 5, dtype=torch.float64, device=held.device)
        alpha = self.schedule.alpha(t).detach()
        if not held.is_meta and bool(((alpha - 1).abs() > 1e-9).any()):
            raise ValueError(
                f"{type(self.schedule).__name__} scales the data by alpha = {float(alpha.min()):g}, and points of "
                f"{self.space} cannot be scaled: pass a schedule with alpha = 1, such as un.schedules.VE(0.01, 4.5)"
            )

    @property
    def integrable(self) -> bool:
        """Whether an exact expectation over the space, `support`, is within reach."""
        return self.space.dimension <= 2

    def law(self, mean: Tensor, variance: Tensor) -> HeatLaw:
        """Where Brownian motion from `mean` is; the variance is shaped to multiply it."""
        raise self.unanswered("law(mean, variance)", "its heat kernel")

    def uniform(self, like: Tensor) -> Law:
        raise self.unanswered("uniform(like)", "the uniform law of its space")

    def times(self, t: Clock, x: Tensor, name: str = "t") -> Tensor:
        return as_times(t, x.shape[0], x.device, name)

    def coefficient(self, value: Tensor, x: Tensor) -> Tensor:
        """A number per row (or per row and coordinate), shaped to multiply x, float64."""
        return value if self.schedule.shape else value.reshape(-1, *[1] * (x.ndim - 1))

    def variance(self, t: Clock, x: Tensor) -> Tensor:
        """v_t, shaped to multiply x."""
        return self.coefficient(self.schedule.sigma(self.times(t, x)).square(), x)

    def step_variance(self, s: Clock, t: Clock, x: Tensor) -> Tensor:
        """v_t - v_s."""
        s, t = self.times(s, x, "s"), self.times(t, x)
        ordered(s, t)
        return self.coefficient(self.schedule.step_variance(s, t), x)

    def score_size(self, t: Clock, x: Tensor) -> Tensor:
        """u_v: about the root of the mean square of the conditional score, per direction."""
        v, d = self.variance(t, x).clamp_min(SMALLEST), self.curvature
        c = d + 1 if self.strength is None else self.strength
        return (-0.5 * d * v).exp() * (c / -torch.expm1(-c * v)).sqrt()

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        return self.uniform(torch.zeros(rows, *self.space.shape, dtype=dtype, device=device))

    def information(self, t: float, x: Tensor) -> Float[Tensor, "batch"]:
        """KL(q(x_t | x_0) || uniform) at one time for all rows: worked out once, and kept where the schedule is fixed."""
        fixed = next(iter((*self.schedule.parameters(), *self.schedule.buffers())), None) is None
        if not fixed or not may_read(x):
            return self.law(x[:1], self.variance(t, x[:1])).information().expand(len(x))
        key = (self.schedule, t)
        if key not in self._known:
            self._known[key] = float(self.law(x[:1], self.variance(t, x[:1])).information())
        return torch.full((len(x),), self._known[key], dtype=torch.float64)

    def prior_kl(self, x0: Tree, t: Clock = 1.0) -> Tensor:
        x0 = self.space.check(x0, "x0")
        if isinstance(t, float):
            return self.information(t, x0)
        return self.law(x0, self.variance(t, x0)).information()

    def marginal(self, x0: Tree, t: Clock) -> HeatLaw:
        x0 = self.space.check(x0, "x0")
        return self.law(x0, self.variance(t, x0))

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> HeatLaw:
        x_s = self.space.check(x_s, "x_s")
        return self.law(x_s, self.step_variance(s, t, x_s))

    def local(self, x: Tensor, t: Clock) -> Local:
        return Local(diffusion=self.coefficient(self.schedule.diffusion(self.times(t, x)), x).to(x.dtype))

    def reverse_local(self, x_t: Tensor, score: Tensor, t: Clock) -> Local:
        """The generator run backwards under a density with this score (eq:reversed-generator)."""
        diffusion = self.local(x_t, t).diffusion
        return Local(cast(Tensor, diffusion) * score, diffusion)

    def reverse_step(self, x_t: Tensor, score: Tensor, s: Clock, t: Clock) -> Law:
        """The kernel of a step down by a score."""
        raise self.unanswered(
            "reverse_step(x_t, score, s, t)",
            "the kernel of a step by a score (sample by FromGenerator(), and for a likelihood take un.bound)",
        )

    def conditioned_local(self, x_t: Tensor, x0: Tensor, t: Clock) -> Local:
        return self.reverse_local(x_t, self.law(x0, self.variance(t, x_t)).score(x_t), t)

    def noiseless(self, t: float) -> bool:
        return bool((self.schedule.sigma(t) <= 0).all())

    def extra_repr(self) -> str:
        return repr(self.space)


class WrappedNormal(HeatProcess):
    """Brownian motion of angles, x_t = x_0 + sigma_t eps (mod 2 pi), which ends uniform."""

    space: Torus
    state_space: Torus
    reparametrised = True

    def __init__(self, shape: int | Sequence[int] = (), schedule: Schedule | None = None):
        super().__init__(Torus(shape), schedule, VE(0.01, 4.5))

    @property
    def turns(self) -> int:
        """How often a way that is not all but impossible goes round."""
        widest = float(self.schedule.sigma(1.0).detach().max())
        return ceil(RANGE * widest / TURN) + 1

    def law(self, mean: Tensor, variance: Tensor) -> WrappedLaw:
        return WrappedLaw(mean, variance)

    def uniform(self, like: Tensor) -> UniformAngles:
        return UniformAngles(like)

    def posterior(self, x_t: Tree, x0: Tree, s: Clock, t: Clock) -> AngleBridge:
        x_t, x0 = self.space.check(x_t, "x_t"), self.space.check(x0, "x0")
        return AngleBridge(x0, x_t, self.variance(s, x_t), self.step_variance(s, t, x_t), self.turns)

    def reverse_step(self, x_t: Tensor, score: Tensor, s: Clock, t: Clock) -> WrappedLaw:
        """The kernel of a step by a score: along w score, with the variance w (1 - w u^2)."""
        step = self.step_variance(s, t, x_t)
        left = (1 - step * self.score_size(t, x_t).square()).clamp_min(0)
        return WrappedLaw(wrap(x_t + step.to(x_t.dtype) * score), step * left)

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        """The trapezoidal rule: in (x_t - x_0)/sigma where the law is narrow, else around the circle."""
        dimension = self.space.dimension
        if dimension > 2:
            raise ValueError(f"an exact expectation over {dimension} angles is out of reach (at most 2): draw instead")
        x0 = self.space.check(x0, "x0")
        h = 0.1 if dimension == 1 else 0.25
        z = torch.arange(-RANGE, RANGE + h / 2, h, dtype=torch.float64, device=x0.device)
        z = torch.cartesian_prod(*[z] * dimension).reshape(-1, 1, *self.space.shape)
        count = round(len(z) ** (1 / dimension))
        v = self.variance(t, x0).expand(x0.shape).unsqueeze(0)
        around = z * (TURN / (count * h))  # as many nodes, a whole turn
        gap = torch.where(v < NARROW, z * v.sqrt(), around)
        narrow = -0.5 * z.square() + log(h / TURN**0.5)
        wide = WrappedLaw(torch.zeros_like(gap), v).log_density(around) + log(TURN / count)
        log_weight = torch.where(v < NARROW, narrow, wide)
        log_weight = sum_coordinates(log_weight.flatten(0, 1)).reshape(gap.shape[:2])
        return wrap(x0.double() + gap).to(x0.dtype), log_weight
