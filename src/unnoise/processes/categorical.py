"""Rank-one noise on categories: keep the value, or draw afresh from a noise law p.  Masking and uniform noise.

    Q_{t|s} = alpha_{t|s} I + (1 - alpha_{t|s}) p 1^T                            (eq:interpolation-discretediff)
    R_t     = -(alpha'/alpha) (p 1^T - I)
    Q_t^-1  = (I - (1 - alpha_t) p 1^T) / alpha_t

so a kernel, its inverse, its generator and the reverse of each cost O(K) per coordinate, and a draw O(1).

Masking adds one state, whose index is `size`, and has p = delta_MASK.  A coordinate that is not masked never moves
again in reverse, so the branch on x_t = MASK comes first (the print of eq:reversal-interpolation-zheng would re-mask).
Predictions carry no mass on MASK.  `Uniform` has p = 1/K over the data's own categories.
"""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.checks import looks, ordered
from unnoise.generators.local import without_self
from unnoise.laws import LOG_ZERO, Categorical, Law, finite_or_inf, log_coefficient, sum_coordinates
from unnoise.noise import Noise
from unnoise.processes.finite import FiniteProcess, float_dtype, log_mix
from unnoise.schedules import Linear, Schedule
from unnoise.shapes import Float, Tree
from unnoise.spaces import Finite


class RankOne(FiniteProcess):
    """Base of processes that replace a category by a draw from a fixed noise law."""

    def __init__(self, space: Finite, state_space: Finite, schedule: Schedule | None):
        super().__init__()
        self.space, self.state_space = space, state_space
        self.schedule = (schedule or Linear()).validate()
        if self.schedule.shape not in ((), space.shape):
            raise ValueError(
                f"a schedule of shape {self.schedule.shape} does not fit coordinates {space.shape}: "
                f"pass one schedule for all, or one per coordinate"
            )
        self.cutoff = 0.0
        last = float(self.schedule.alpha(1.0).detach().max())
        if last > 0.5:
            raise ValueError(
                f"{self.schedule} has alpha_1 = {last:g}: categories would hardly be noised; "
                f"use a schedule whose alpha goes to 0, such as Linear() or Cosine()"
            )

    @abstractmethod
    def log_noise(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        """log p over the states: [size] or [*shape, size]."""

    @abstractmethod
    def log_noise_at(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        """log p(x), in O(1) per coordinate."""

    @abstractmethod
    def draw_noise(self, like: Tensor, noise: Noise) -> Tensor: ...

    def coefficient(self, value: Tensor, x: Tensor, dtype: torch.dtype) -> Tensor:
        return (value if self.schedule.shape else value.reshape(-1, *[1] * (x.ndim - 1))).to(dtype)

    def log_coefficients(self, x: Tensor, s: Tree | None, t: Tree, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
        """log alpha_{t|s} and log(1 - alpha_{t|s}), shaped like x (or to broadcast with it)."""
        t = self.times(t, x)
        if s is None:
            keep, fresh = self.schedule.alpha(t), self.schedule.beta(t)
        else:
            s = self.times(s, x, "s")
            keep, fresh = self.schedule.step_alpha(s, t), self.schedule.step_beta(s, t)
        return tuple(self.coefficient(log_coefficient(c), x, dtype) for c in (keep, fresh))  # type: ignore

    def log_evidence(self, x_t: Tensor, s: Tree | None, t: Tree) -> Float[Tensor, "batch *shape size"]:
        dtype = float_dtype(t)
        keep, fresh = self.log_coefficients(x_t, s, t, dtype)
        elsewhere = fresh + self.log_noise_at(x_t, dtype)
        row = elsewhere.unsqueeze(-1).expand(*x_t.shape, self.state_space.size)
        return row.scatter(-1, x_t.unsqueeze(-1), torch.logaddexp(keep.expand_as(elsewhere), elsewhere).unsqueeze(-1))

    def log_push(self, log_v: Tensor, s: Tree | None, t: Tree) -> Float[Tensor, "batch *shape size"]:
        keep, fresh = self.log_coefficients(log_v[..., 0], s, t, log_v.dtype)
        total = log_v.logsumexp(-1, keepdim=True)
        noise = self.log_noise(log_v.dtype, log_v.device) + total
        return log_mix(keep.unsqueeze(-1), log_v, fresh.unsqueeze(-1), noise)

    def log_jump(self, x: Tensor, t: Tree, dtype: torch.dtype) -> Tensor:
        """log of -alpha'/alpha, the rate at which values are drawn afresh."""
        t = self.times(t, x)
        log_rate = log_coefficient(-self.schedule.d_alpha(t)) - log_coefficient(self.schedule.alpha(t))
        return self.coefficient(log_rate, x, dtype)

    def log_rates_into(self, x: Tensor, t: Tree) -> Float[Tensor, "batch *shape size"]:
        dtype = float_dtype(t)
        rate = self.log_jump(x, t, dtype) + self.log_noise_at(x, dtype)
        rates = rate.unsqueeze(-1).expand(*x.shape, self.state_space.size)
        return without_self(self._valid_only(rates), x)

    def log_rates_from(self, x: Tensor, t: Tree) -> Float[Tensor, "batch *shape size"]:
        dtype = float_dtype(t)
        rates = self.log_jump(x, t, dtype).unsqueeze(-1) + self.log_noise(dtype, x.device)
        return without_self(rates.expand(*x.shape, self.state_space.size), x)

    def _valid_only(self, log_values: Tensor) -> Tensor:
        valid = self.space.valid(log_values.device)
        if valid is None:
            return log_values
        extra = self.state_space.size - self.space.size
        valid = torch.nn.functional.pad(valid, (0, extra), value=True)
        return torch.where(valid, log_values, LOG_ZERO)

    def marginal(self, x0: Tree, t: Tree) -> Categorical:
        return Interpolated(self, self.state_space.check(x0, "x0"), None, t)

    def transition(self, x_s: Tree, s: Tree, t: Tree) -> Categorical:
        x_s = self.state_space.check(x_s, "x_s")
        ordered(self.times(s, x_s, "s"), self.times(t, x_s))
        return Interpolated(self, x_s, s, t)

    def inverse(self, q: Tree, s: Tree, t: Tree) -> Tree:
        """Q_{t|s}^{-1} q = (q - (1 - alpha_{t|s}) p sum q) / alpha_{t|s}, on probabilities; s = None: back to the data."""
        t = self.times(t, q)
        if s is None:
            keep, fresh = self.schedule.alpha(t), self.schedule.beta(t)
        else:
            s = self.times(s, q, "s")
            keep, fresh = self.schedule.step_alpha(s, t), self.schedule.step_beta(s, t)
        if looks(keep) and not bool((keep > 0).all()):
            raise ValueError("alpha_{t|s} = 0: nothing of x_s is left at t, the kernel has no inverse")
        like = q[..., 0]
        wide = q.double()  # a difference of nearly equal numbers, divided by a small one: rounded once, at the end
        keep, fresh = (self.coefficient(c, like, wide.dtype).unsqueeze(-1) for c in (keep, fresh))
        noise = self.log_noise(wide.dtype, q.device).exp()
        return ((wide - fresh * noise * wide.sum(-1, keepdim=True)) / keep).to(q.dtype)

    def noiseless(self, t: float) -> bool:
        return bool((self.schedule.beta(t) <= 0).all())

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        x = torch.zeros(rows, *self.space.shape, dtype=torch.int64, device=device)
        return NoiseLaw(self, x, dtype or torch.float64)

    def prior_kl(self, x0: Tree, t: Tree = 1.0) -> Float[Tensor, "batch"]:
        """KL(alpha e_x + beta p || p) = (alpha + beta p_x) log((alpha + beta p_x)/p_x) + beta (1 - p_x) log beta."""
        dtype = float_dtype(t)
        keep, fresh = self.log_coefficients(x0, None, t, dtype)
        log_p = self.log_noise_at(x0, dtype)
        stay = torch.logaddexp(keep.expand_as(log_p), fresh + log_p)
        terms = stay.exp() * (stay - log_p) + fresh.exp() * -torch.expm1(log_p) * fresh
        return finite_or_inf(sum_coordinates(terms))


class Interpolated(Categorical):
    """alpha e_x + (1 - alpha) p, kept as its three parts: the dense vector is formed only when asked for."""

    def __init__(self, process: RankOne, x: Tensor, s: Tree | None, t: Tree):
        self.process, self.x, self.dtype = process, x, float_dtype(t)
        self.keep, self.fresh = process.log_coefficients(x, s, t, self.dtype)

    @property
    def log_probs(self) -> Tensor:  # type: ignore[override]
        noise = self.process.log_noise(self.dtype, self.x.device)
        return log_mix(
            self.keep.unsqueeze(-1), self.process.log_one_hot(self.x, self.dtype), self.fresh.unsqueeze(-1), noise
        )

    def log_prob(self, x: Tree) -> Float[Tensor, "batch"]:
        noise = self.fresh + self.process.log_noise_at(x, self.dtype)
        stayed = torch.where(x == self.x, self.keep, LOG_ZERO)
        total = sum_coordinates(torch.logaddexp(stayed, noise))
        return torch.where(total < LOG_ZERO / 2, -torch.inf, total)

    def draw(self, noise: Noise) -> Tree:
        """Whether to leave comes before where to go."""
        leaves = noise.at("whether").uniform(tuple(self.x.shape[1:])).log() < self.fresh
        return torch.where(leaves, self.process.draw_noise(self.x, noise.at("where")), self.x)


class NoiseLaw(Categorical):
    """The noise law p itself, one copy per row."""

    def __init__(self, process: RankOne, like: Tensor, dtype: torch.dtype):
        self.process, self.like, self.dtype = process, like, dtype

    @property
    def log_probs(self) -> Tensor:  # type: ignore[override]
        log_p = self.process.log_noise(self.dtype, self.like.device)
        return log_p.expand(*self.like.shape, log_p.shape[-1])

    def draw(self, noise: Noise) -> Tree:
        return self.process.draw_noise(self.like, noise)


class Masking(RankOne):
    """Absorbing noise: each coordinate is replaced by MASK, index `size`, at a time of its own."""

    def __init__(
        self,
        size: int | Sequence[int],
        shape: int | Sequence[int] | None = None,
        schedule: Schedule | None = None,
    ):
        space = Finite(size, shape)
        super().__init__(space, Finite(space.size + 1, space.shape), schedule)
        last = float(self.schedule.alpha(1.0).detach().max())
        if last > 1e-9:
            raise ValueError(
                f"{self.schedule} has alpha_1 = {last:g} > 0, but the prior is all MASK: the bound would be infinite. "
                f"Use a schedule with alpha_1 = 0, such as Linear() or Cosine()"
            )
        self.mask = space.size

    def log_noise(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        log_p = torch.full((self.state_space.size,), LOG_ZERO, dtype=dtype, device=device)
        log_p[self.mask] = 0.0
        return log_p

    def log_noise_at(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        return torch.where(x == self.mask, 0.0, LOG_ZERO).to(dtype)

    def draw_noise(self, like: Tensor, noise: Noise) -> Tensor:
        return torch.full_like(like, self.mask)

    def movable(self, x_t: Tree) -> Tree:
        return x_t == self.mask

    def carry_over(self, x_t: Tensor, log_theta: Tensor) -> Tensor:
        """A coordinate that is not masked is what it is."""
        categories = torch.arange(log_theta.shape[-1], device=x_t.device)
        known = torch.where(categories == x_t.unsqueeze(-1), 0.0, LOG_ZERO).to(log_theta.dtype)
        return torch.where((x_t == self.mask).unsqueeze(-1), log_theta, known)

    def extra_repr(self) -> str:
        return f"size={self.space.size}, shape={self.space.shape}"


class Uniform(RankOne):
    """Each coordinate is replaced by a uniform draw from its own categories."""

    def __init__(
        self,
        size: int | Sequence[int],
        shape: int | Sequence[int] | None = None,
        schedule: Schedule | None = None,
    ):
        space = Finite(size, shape)
        super().__init__(space, space, schedule)

    def sizes(self, device: torch.device) -> Tensor:
        sizes = torch.tensor(self.space.size) if self.space.sizes is None else self.space.sizes
        return sizes.to(device)

    def log_noise(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        log_p = -self.sizes(device).to(dtype).log().unsqueeze(-1)
        return self._valid_only(log_p.expand(*log_p.shape[:-1], self.space.size))

    def log_noise_at(self, x: Tensor, dtype: torch.dtype) -> Tensor:
        sizes = self.sizes(x.device)
        log_p = -sizes.to(dtype).log().expand(x.shape)
        return log_p if self.space.sizes is None else torch.where(x < sizes, log_p, LOG_ZERO)

    def draw_noise(self, like: Tensor, noise: Noise) -> Tensor:
        sizes = self.sizes(like.device)
        return (noise.uniform(tuple(like.shape[1:])) * sizes).long().clamp_max(sizes - 1)

    def movable(self, x_t: Tree) -> Tree:
        return torch.ones_like(x_t, dtype=torch.bool)

    def extra_repr(self) -> str:
        size = self.space.size if self.space.sizes is None else self.space.sizes.tolist()
        return f"size={size}, shape={self.space.shape}"
