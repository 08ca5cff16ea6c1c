"""Rank-one noise on categories: keep the value, or draw afresh.

    Q_{t|s} = alpha_{t|s} I + f_{t|s} 1^T,      f_{t|s} >= 0 sums to 1 - alpha_{t|s}
    R_t     = r_t 1^T - (sum r_t) I,            r_t(y) the rate of jumps to y, whatever the value was
    Q^-1 q  = (q - f sum q) / alpha_{t|s}                                                       (eq:Qt-inverse)

so a kernel, its inverse, its generator and the reverse of each cost O(K) per coordinate.  With one noise law p for all
times (eq:interpolation-discretediff) f_{t|s} = (1 - alpha_{t|s}) p and r_t = -(alpha'/alpha) p.

A state that noise never draws gives x_0 away: the coordinate is what it is and never moves again in reverse, so that
branch comes first (the print of eq:reversal-interpolation-zheng would re-mask).
"""

from abc import abstractmethod

import torch
from torch import Tensor

from unnoise.checks import may_read, ordered
from unnoise.generators.local import without_self
from unnoise.kernels.raised import Raised
from unnoise.laws import LOG_ZERO, Categorical, Law, finite_or_inf, log_coefficient, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.processes.base import valid_schedule
from unnoise.processes.finite import CleanLogits, FiniteProcess, float_dtype, log_minus, log_mix
from unnoise.processes.lazy_steps import RaisedStep, library_s_own
from unnoise.processes.noise_laws import NoiseLaw
from unnoise.schedules import Linear, Schedule
from unnoise.shapes import Clock, Float, Tree
from unnoise.spaces import Finite

LEAST, LARGEST = -700.0, 700.0  # below it a logarithm is that of nothing, beyond it of what no float holds


def check_fit(schedule: Schedule, space: Finite) -> Schedule:
    if schedule.shape not in ((), space.shape):
        raise ValueError(
            f"a schedule of shape {schedule.shape} does not fit coordinates {space.shape}: "
            f"pass one schedule for all, or one per coordinate"
        )
    last = float(schedule.alpha(1.0).detach().max())
    if last > 0.5:
        raise ValueError(
            f"{schedule} has alpha_1 = {last:g}: categories would hardly be noised; "
            f"use a schedule whose alpha goes to 0, such as Linear() or Cosine()"
        )
    return schedule


class RankOne(FiniteProcess):
    """Base of processes that replace a category by a fresh draw."""

    def __init__(self, space: Finite, states: int, schedule: Schedule | None):
        super().__init__()
        self.space = space
        self.state_space = space if states == space.size else Finite(states, space.shape)
        self.schedule = check_fit(valid_schedule(schedule, Linear()), space)
        self.cutoff = 0.0

    @abstractmethod
    def log_fresh(self, like: Tensor, s: Clock | None, t: Clock, dtype: torch.dtype) -> Tensor:
        """log f_{t|s} over the states, with the shape of `like` (or to broadcast with it) in front."""

    @abstractmethod
    def log_fresh_at(self, x: Tensor, s: Clock | None, t: Clock, dtype: torch.dtype) -> Tensor:
        """log f_{t|s}(x), in O(1) per coordinate."""

    @abstractmethod
    def log_jumps(self, like: Tensor, t: Clock, dtype: torch.dtype) -> Tensor:
        """log r_t over the states."""

    @abstractmethod
    def log_jumps_at(self, x: Tensor, t: Clock, dtype: torch.dtype) -> Tensor:
        """log r_t(x), in O(1) per coordinate."""

    @abstractmethod
    def draw_fresh(self, like: Tensor, s: Clock | None, t: Clock, noise: NoiseSource) -> Tensor:
        """A draw from f_{t|s}, normalised."""

    def coefficient(self, value: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
        return (value if self.schedule.shape else value.reshape(-1, *[1] * (x.ndim - 1))).to(dtype)

    def keep_and_renew(self, x: Tensor, s: Clock | None, t: Clock) -> tuple[Tensor, Tensor]:
        """alpha_{t|s} and 1 - alpha_{t|s}, float64."""
        return self.schedule.survival(None if s is None else self.times(s, x, "s"), self.times(t, x))

    def log_coefficients(self, x: Tensor, s: Clock | None, t: Clock, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """log alpha_{t|s} and log(1 - alpha_{t|s}), shaped like x (or to broadcast with it)."""
        keep, renew = (self.coefficient(log_coefficient(c), x, dtype) for c in self.keep_and_renew(x, s, t))
        return keep, renew

    def log_evidence(self, x_t: Tensor, s: Clock | None, t: Clock) -> Float[Tensor, "batch *shape size"]:
        dtype = float_dtype(t)
        keep, _ = self.log_coefficients(x_t, s, t, dtype)
        elsewhere = self.log_fresh_at(x_t, s, t, dtype)
        row = elsewhere.unsqueeze(-1).expand(*x_t.shape, self.state_space.size)
        return row.scatter(-1, x_t.unsqueeze(-1), torch.logaddexp(keep.expand_as(elsewhere), elsewhere).unsqueeze(-1))

    def log_push(self, log_v: Tensor, s: Clock | None, t: Clock) -> Float[Tensor, "batch *shape size"]:
        like = log_v[..., 0]
        keep, _ = self.log_coefficients(like, s, t, log_v.dtype)
        total = log_v.logsumexp(-1, keepdim=True)
        return log_mix(keep.unsqueeze(-1), log_v, total, self.log_fresh(like, s, t, log_v.dtype))

    def reverse_step(self, x_t: Tensor, log_theta: Tensor, s: Clock, t: Clock) -> Categorical:
        """q(x_t | x_s) is the same for every x_s but x_t itself: one entry of Q_s theta is raised.

        With theta = e_{x_0} it is eq:discrete-time-reversal-interpolationview.
        """
        ordered(self.times(s, x_t, "s"), self.times(t, x_t))
        log_prior = self.log_push(self.widen(log_theta), None, s)
        keep, _ = self.log_coefficients(x_t, s, t, torch.float64)
        elsewhere = self.log_fresh_at(x_t, s, t, torch.float64)
        bonus = torch.logaddexp(keep.expand_as(elsewhere), elsewhere) - elsewhere
        return Categorical.normalised(log_prior.scatter_add(-1, x_t.unsqueeze(-1), bonus.to(log_prior.dtype).unsqueeze(-1)))

    def lazy_reverse_step(self, x_t: Tensor, theta: CleanLogits, s: Clock, t: Clock) -> Categorical:
        if self.absorbing or not library_s_own(self, "reverse_step", "log_push", "carry_over"):
            return super().lazy_reverse_step(x_t, theta, s, t)
        return RaisedStep(self, x_t, theta, s, t)

    def raised(self, x_t: Tensor, s: Clock, t: Clock, u: Float[Tensor, "coordinates"]) -> Raised:
        """The same law as `reverse_step`, but for theta: by its parts, coordinate by coordinate."""
        alpha, _ = self.log_coefficients(x_t, None, s, torch.float64)
        keep, _ = self.log_coefficients(x_t, s, t, torch.float64)
        late, early = self.log_fresh_at(x_t, s, t, torch.float64), self.log_fresh_at(x_t, None, s, torch.float64)
        near = (late - torch.logaddexp(late, keep + early)).exp() * -torch.expm1(early.clamp_max(0.0))
        near = torch.where(late > LOG_ZERO / 2, near, 0.0)  # what noise never draws gives x_0 away: it stays
        gain = torch.where(near > 0, (keep - late).clamp_max(LARGEST).exp(), 0.0)
        fresh, which, scale = self.fresh_parts(x_t, s)
        own = {"x": x_t, "alpha": alpha.exp(), "scale": scale, "gain": gain, "near": near}
        parts = {name: part.expand(x_t.shape).flatten() for name, part in own.items()}
        return Raised(**parts, u=u, which=which, fresh=fresh)

    def fresh_parts(self, x_t: Tensor, s: Clock) -> tuple[Tensor, Tensor, Tensor]:
        """f_{s|0} as laws [laws, states], which of them is each coordinate's, and a factor, all float64."""
        times = self.times(s, x_t, "s")
        same = times.stride() == (0,)
        laws = self.log_fresh(x_t[:1] if same else x_t, None, times[:1] if same else times, torch.float64).exp()
        which = torch.arange(laws[..., 0].numel(), device=x_t.device).reshape(laws.shape[:-1])
        one = torch.ones((), dtype=torch.float64, device=x_t.device)
        return laws.flatten(0, -2), which.expand(x_t.shape).flatten(), one

    def step_from_ratio(self, x_t: Tensor, log_ratio: Tensor, s: Clock, t: Clock) -> tuple[Categorical, Tensor]:
        """p(y) ~ q(x_t | y) w(y) with w = q - f sum q, since Q^-1 q = w/alpha, and q is known up to a factor: q(x_t) = 1."""
        ordered(self.times(s, x_t, "s"), self.times(t, x_t))
        here, dtype = x_t.unsqueeze(-1), log_ratio.dtype
        keep, _ = self.log_coefficients(x_t, s, t, dtype)
        fresh = self.log_fresh(x_t, s, t, dtype).expand_as(log_ratio)
        log_q = self._valid_only(log_ratio).scatter(-1, here, 0.0)
        log_w, negative = log_minus(log_q, fresh + log_q.logsumexp(-1, keepdim=True))
        from_others = fresh.gather(-1, here).expand_as(log_w)
        from_itself = torch.logaddexp(keep.expand(x_t.shape).unsqueeze(-1), from_others[..., :1])
        law = Categorical.normalised(log_w + from_others.scatter(-1, here, from_itself))
        negative = (negative & self._valid_only(torch.zeros_like(log_w)).eq(0)).any(-1)
        return law, ~negative & (keep > LEAST).expand(x_t.shape)  # where alpha = 0 nothing of x_s is left

    def log_rates_into(self, x: Tensor, t: Clock) -> Float[Tensor, "batch *shape size"]:
        rates = self.log_jumps_at(x, t, float_dtype(t)).unsqueeze(-1).expand(*x.shape, self.state_space.size)
        return without_self(self._valid_only(rates), x)

    def log_rates_from(self, x: Tensor, t: Clock) -> Float[Tensor, "batch *shape size"]:
        return without_self(self.log_jumps(x, t, float_dtype(t)).expand(*x.shape, self.state_space.size), x)

    def _valid_only(self, log_values: Tensor) -> Tensor:
        valid = self.space.valid(log_values.device)
        if valid is None:
            return log_values
        valid = torch.nn.functional.pad(valid, (0, self.state_space.size - self.space.size), value=True)
        return torch.where(valid, log_values, LOG_ZERO)

    def marginal(self, x0: Tree, t: Clock) -> Categorical:
        return Interpolated(self, self.state_space.check(x0, "x0"), None, t)

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> Categorical:
        x_s = self.state_space.check(x_s, "x_s")
        ordered(self.times(s, x_s, "s"), self.times(t, x_s))
        return Interpolated(self, x_s, s, t)

    def inverse(self, q: Tensor, s: Clock, t: Clock) -> Tensor:
        """Q_{t|s}^{-1} q = (q - f sum q) / alpha_{t|s}, on probabilities; s = None: back to the data."""
        like, wide = q[..., 0], q.double()  # a difference of nearly equal numbers, divided by a small one: rounded once
        keep, _ = self.keep_and_renew(like, s, t)
        if may_read(keep) and not bool((keep > 0).all()):
            raise ValueError("alpha_{t|s} = 0: nothing of x_s is left at t, the kernel has no inverse")
        fresh = self.log_fresh(like, s, t, wide.dtype).exp()
        keep = self.coefficient(keep, like, wide.dtype).unsqueeze(-1)
        return ((wide - fresh * wide.sum(-1, keepdim=True)) / keep).to(q.dtype)

    def noiseless(self, t: float) -> bool:
        return bool((self.schedule.beta(t) <= 0).all())

    def extra_repr(self) -> str:
        size = self.space.size if self.space.sizes is None else self.space.sizes.tolist()
        return f"size={size}, shape={self.space.shape}"


class FixedNoise(RankOne):
    """One noise law p for all times: f_{t|s} = (1 - alpha_{t|s}) p (eq:Qt|s-formula)."""

    def __init__(self, space: Finite, noise: NoiseLaw, schedule: Schedule | None):
        super().__init__(space, noise.states, schedule)
        self.noise = noise.fitted(space)
        self._refuse_infinite_prior()

    def _refuse_infinite_prior(self) -> None:
        last = float(self.schedule.alpha(1.0).detach().max())
        missing = self._valid_only(self.noise.log_probs(torch.float64, torch.device("cpu")))[..., : self.space.size]
        valid = self.space.valid()
        never = (missing < LOG_ZERO / 2) if valid is None else (missing < LOG_ZERO / 2) & valid
        if last > 1e-9 and bool(never.any()):
            prior = "all MASK" if bool(never.all()) else f"without category {never.nonzero()[0, -1].item()}"
            raise ValueError(
                f"{self.schedule} has alpha_1 = {last:g} > 0, but the prior is {prior}: the bound would be infinite. "
                f"Use a schedule with alpha_1 = 0, such as Linear() or Cosine()"
            )

    def log_fresh(self, like, s, t, dtype):
        _, renew = self.log_coefficients(like, s, t, dtype)
        return renew.unsqueeze(-1) + self.noise.log_probs(dtype, like.device)

    def log_fresh_at(self, x, s, t, dtype):
        _, renew = self.log_coefficients(x, s, t, dtype)
        return renew + self.noise.log_prob(x, dtype)

    def log_jump(self, x: Tensor, t: Clock, dtype: torch.dtype) -> Tensor:
        """log of -alpha'/alpha, the rate at which values are drawn afresh (eq:Rate-matrix-expression)."""
        t = self.times(t, x)
        log_rate = log_coefficient(-self.schedule.d_alpha(t)) - log_coefficient(self.schedule.alpha(t))
        return self.coefficient(log_rate, x, dtype)

    def log_jumps(self, like, t, dtype):
        return self.log_jump(like, t, dtype).unsqueeze(-1) + self.noise.log_probs(dtype, like.device)

    def log_jumps_at(self, x, t, dtype):
        return self.log_jump(x, t, dtype) + self.noise.log_prob(x, dtype)

    def draw_fresh(self, like, s, t, noise):
        return self.noise.draw(like, noise)

    def fresh_parts(self, x_t, s):
        """The noise law itself, and 1 - alpha_s."""
        if not library_s_own(self, "log_fresh"):
            return super().fresh_parts(x_t, s)
        _, renew = self.log_coefficients(x_t, None, s, torch.float64)
        laws = self.noise.log_probs(torch.float64, x_t.device).exp().reshape(-1, self.state_space.size)
        which = torch.arange(x_t.numel(), device=x_t.device) % len(laws)  # one for all, or one for each coordinate
        return laws, which, renew.exp()

    def movable(self, x_t: Tensor) -> Tensor:
        """Where noise can have drawn the state."""
        return self.noise.log_prob(x_t, torch.float64) > LOG_ZERO / 2

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        x = torch.zeros(rows, *self.space.shape, dtype=torch.int64, device=device)
        return Prior(self.noise, x, dtype or torch.float64)

    def prior_kl(self, x0: Tensor, t: Clock = 1.0) -> Float[Tensor, "batch"]:
        """KL(alpha e_x + beta p || p) = (alpha + beta p_x) log((alpha + beta p_x)/p_x) + beta (1 - p_x) log beta."""
        dtype = float_dtype(t)
        keep, renew = self.log_coefficients(x0, None, t, dtype)
        log_p = self.noise.log_prob(x0, dtype)
        stay = torch.logaddexp(keep.expand_as(log_p), renew + log_p)
        terms = stay.exp() * (stay - log_p) + renew.exp() * -torch.expm1(log_p) * renew
        return finite_or_inf(sum_coordinates(terms))


class Interpolated(Categorical):
    """alpha e_x + f, kept as its parts: the dense vector is formed only when asked for.

    From the data it is eq:forward-transition-interpolation-discretediff.
    """

    def __init__(self, process: RankOne, x: Tensor, s: Clock | None, t: Clock):
        self.process, self.x, self.s, self.t, self.dtype = process, x, s, t, float_dtype(t)
        self.keep, self.renew = process.log_coefficients(x, s, t, self.dtype)

    @property
    def log_probs(self) -> Tensor:  # type: ignore[override]
        stayed = self.keep.unsqueeze(-1) + self.process.log_one_hot(self.x, self.dtype)
        return torch.logaddexp(stayed, self.process.log_fresh(self.x, self.s, self.t, self.dtype))

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        stayed = torch.where(x == self.x, self.keep, LOG_ZERO)
        total = sum_coordinates(torch.logaddexp(stayed, self.process.log_fresh_at(x, self.s, self.t, self.dtype)))
        return torch.where(total < LOG_ZERO / 2, -torch.inf, total)

    def draw(self, noise: NoiseSource) -> Tensor:
        """Whether to leave comes before where to go."""
        leaves = noise.at("whether").uniform(tuple(self.x.shape[1:])).log() < self.renew
        return torch.where(leaves, self.process.draw_fresh(self.x, self.s, self.t, noise.at("where")), self.x)


class Prior(Categorical):
    """A noise law itself, one copy per row."""

    def __init__(self, law: NoiseLaw, like: Tensor, dtype: torch.dtype):
        self.law, self.like, self.dtype = law, like, dtype

    @property
    def log_probs(self) -> Tensor:  # type: ignore[override]
        log_p = self.law.log_probs(self.dtype, self.like.device)
        return log_p.expand(*self.like.shape, log_p.shape[-1])

    def draw(self, noise: NoiseSource) -> Tensor:
        return self.law.draw(self.like, noise)
