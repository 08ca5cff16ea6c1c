"""Forward processes on finite spaces, from four primitives.

A family says, per coordinate and in logarithms,

    log_evidence(x_t, s, t)   log q(x_t | x_s = a) for every a       (a row of Q_{t|s})
    log_push(log_v, s, t)     log (Q_{t|s} v)                         (eq:t|s-dt-dp-transition, eq:marginal-with-Q)
    log_rates_into(x, t)      log R_t(x, y) for every y != x         (rates y -> x)
    log_rates_from(x, t)      log R_t(y, x) for every y != x         (rates x -> y; eq:def-transition-rate-matrix)

where s = None means from the data.  Everything else follows: with m = Q_t theta the law of x_t^k that a clean law theta
implies, and R(y, x) the rate x -> y (row = destination),

    q(x_s | x_t, x_0)   = q(x_t | x_s) q(x_s | x_0) / q(x_t | x_0)                          (eq:discrete-time-reversal)
    R0(y, x_t)          = R_t(x_t, y) q(y | x_0) / q(x_t | x_0)                                (eq:reverse-rate-matrix)
    reverse from theta:   R_t(x_t, y) m(y)/m(x_t),   and   q(x_t | x_s) (Q_s theta)(x_s), normalised.

The source y of a reverse jump is what one conditions on (the print of eq:seq-reverse-posterior has the target).
"""

from typing import Protocol, runtime_checkable

import torch
import torch.nn.functional as F
from torch import Tensor

from unnoise.checks import as_times, ordered
from unnoise.generators import Local
from unnoise.generators.local import without_self
from unnoise.laws import LOG_ZERO, Categorical
from unnoise.processes.base import Process, last_time
from unnoise.shapes import AnyState, Bool, Clock, Float, Int, Tree
from unnoise.spaces import Finite
from unnoise.spaces.finite import LOG_HUGE


def float_dtype(t: Clock) -> torch.dtype:
    """Laws of categories are computed in the dtype of the times they are asked for, but in float32 at least (half
    precision cannot hold LOG_ZERO); plain numbers mean float64."""
    if isinstance(t, Tensor) and t.dtype.is_floating_point:
        return torch.promote_types(t.dtype, torch.float32)
    return torch.float64


def at(log_values: Float[Tensor, "*batch size"], x: Int[Tensor, "*batch"]) -> Float[Tensor, "*batch 1"]:
    return log_values.gather(-1, x.unsqueeze(-1))


@runtime_checkable
class CleanLogits(Protocol):
    """A clean law of each coordinate, with logits that are made where they are asked for."""

    def log_theta(self) -> Float[Tensor, "batch *shape size"]: ...

    def output_at(self, index: Int[Tensor, "chosen"] | slice) -> Float[Tensor, "chosen size"]: ...


class FiniteProcess(Process):
    """A process that noises categories independently per coordinate.

    So its kernels are Kronecker products (eq:seq-transition-matrix), and given x_0 so is the reverse
    (eq:reverse-kernel-factorised).
    """

    space: Finite
    state_space: Finite

    def log_evidence(self, x_t: Tensor, s: Clock | None, t: Clock) -> Float[Tensor, "batch *shape size"]:
        raise self.unanswered("log_evidence(x_t, s, t)", "log q(x_t | x_s = a) for every a")

    def log_push(self, log_v: Tensor, s: Clock | None, t: Clock) -> Float[Tensor, "batch *shape size"]:
        raise self.unanswered("log_push(log_v, s, t)", "log (Q_{t|s} v)")

    def log_rates_into(self, x: Tensor, t: Clock) -> Float[Tensor, "batch *shape size"]:
        raise self.unanswered("log_rates_into(x, t)", "the rates into x")

    def log_rates_from(self, x: Tensor, t: Clock) -> Float[Tensor, "batch *shape size"]:
        raise self.unanswered("log_rates_from(x, t)", "the rates out of x")

    @property
    def latest(self) -> float:
        """Where rates grow without limit, the last time at which they are e^5 per unit of time."""
        x = torch.zeros(1, *self.space.shape, dtype=torch.int64)

        def fastest(t: float) -> float:
            return float(self.log_rates_from(x, t).detach().max())

        if self.absorbing or not self.has_generator or fastest(1.0) < LOG_HUGE:
            return 1.0
        return last_time(lambda t: fastest(t) <= 5)

    def unfinished(self, x: AnyState) -> Bool[Tensor, "batch *shape"] | None:
        return x >= self.space.size if self.state_space.size > self.space.size else None

    def times(self, t: Clock, x: Tensor, name: str = "t") -> Tensor:
        return as_times(t, x.shape[0], x.device, name)

    def widen(self, log_v: Tensor) -> Tensor:
        """Log-probabilities over the data's categories, extended to the states that noise adds."""
        missing = self.state_space.size - log_v.shape[-1]
        return F.pad(log_v, (0, missing), value=LOG_ZERO) if missing else log_v

    def log_one_hot(self, x: Tensor, dtype: torch.dtype) -> Float[Tensor, "batch *shape size"]:
        zeros = torch.full((*x.shape, self.state_space.size), LOG_ZERO, dtype=dtype, device=x.device)
        return zeros.scatter(-1, x.unsqueeze(-1), 0.0)

    def marginal(self, x0: Tree, t: Clock) -> Categorical:
        x0 = self.state_space.check(x0, "x0")
        return Categorical(self.log_push(self.log_one_hot(x0, float_dtype(t)), None, t))

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> Categorical:
        x_s = self.state_space.check(x_s, "x_s")
        ordered(self.times(s, x_s, "s"), self.times(t, x_s))
        return Categorical(self.log_push(self.log_one_hot(x_s, float_dtype(t)), s, t))

    def posterior(self, x_t: Tree, x0: Tree, s: Clock, t: Clock) -> Categorical:
        x_t, x0 = self.state_space.check(x_t, "x_t"), self.state_space.check(x0, "x0")
        return self.reverse_step(x_t, self.log_one_hot(x0, float_dtype(t)), s, t)

    def reverse_step(self, x_t: Tensor, log_theta: Tensor, s: Clock, t: Clock) -> Categorical:
        """q(x_t | x_s) (Q_s theta)(x_s), normalised (eq:reversal-x0-cond-disc; exact for leave-one-out theta)."""
        ordered(self.times(s, x_t, "s"), self.times(t, x_t))
        return Categorical.normalised(self.log_evidence(x_t, s, t) + self.log_push(self.widen(log_theta), None, s))

    def lazy_reverse_step(self, x_t: Tensor, theta: CleanLogits, s: Clock, t: Clock) -> Categorical:
        """The same law of a theta that is still to be worked out: what it is drawn by may need less of it."""
        return self.reverse_step(x_t, theta.log_theta(), s, t)

    def step_from_ratio(self, x_t: Tensor, log_ratio: Tensor, s: Clock, t: Clock) -> tuple[Categorical, Tensor] | None:
        """q(x_t | x_s) (Q_{t|s}^-1 q_t)(x_s), normalised: the reverse kernel of one coordinate from log q_t(y)/q_t(x_t), and
        where that is one: not where Q^-1 of a network's ratios has negative entries, as of no law of x_s.

        None where the ratios of neighbours do not say it."""
        return None

    def log_ratio_scale(self, x_t: Tensor, t: Clock) -> Tensor | None:
        """What is known of log q_t(y)/q_t(x_t) before anything is learned, to be added to a network's output."""
        return None

    def local(self, x: Tensor, t: Clock) -> Local:
        return Local(log_rates=self.log_rates_from(x, t))

    def reverse_local(self, x_t: Tensor, log_theta: Tensor, t: Clock) -> Local:
        """Reverse rates R_t(x_t, y) m(y)/m(x_t) with m = Q_t theta.

        With the true leave-one-out theta they are eq:seq-reverse-posterior and eq:Reverse-R-with-posterior.
        """
        log_m = self.log_push(self.widen(log_theta), None, t)
        return self.reverse_local_from_ratio(x_t, log_m - at(log_m, x_t), t)

    def reverse_local_from_ratio(self, x_t: Tensor, log_ratio: Tensor, t: Clock) -> Local:
        """Reverse rates R_t(x_t, y) q(y)/q(x_t), zero where the forward process never goes y -> x_t.

        With the true ratios eq:seq-reverse-hamming1, with a model's eq:learned-reverse-rate-ratio.
        """
        into = self.log_rates_into(x_t, t)
        log_rates = torch.where(into > LOG_ZERO / 2, into + log_ratio, LOG_ZERO)
        return Local(log_rates=without_self(log_rates, x_t))

    def conditioned_local(self, x_t: Tensor, x0: Tensor, t: Clock) -> Local:
        return self.reverse_local(x_t, self.log_one_hot(x0, float_dtype(t)), t)

    def noiseless(self, t: float) -> bool:
        """The first categories are still themselves with probability one (a row each, never K of them)."""
        count = min(self.space.size, 4)
        x = torch.arange(count).reshape(-1, *[1] * len(self.space.shape)).expand(-1, *self.space.shape)
        x = x if self.space.sizes is None else torch.minimum(x, self.space.sizes - 1)
        return bool((at(self.log_evidence(x, None, t), x) >= 0).all())

    def carry_over(self, x_t: Tensor, log_theta: Tensor) -> Tensor:
        """Put into a clean law what x_t gives away: a coordinate that cannot move is what it is."""
        categories = torch.arange(log_theta.shape[-1], device=x_t.device)
        known = torch.where(categories == x_t.unsqueeze(-1), 0.0, LOG_ZERO).to(log_theta.dtype)
        return torch.where(self.movable(x_t).unsqueeze(-1), log_theta, known)

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        points = self.state_space.states().to(x0.device)
        log_q = self.marginal(x0, t).log_probs.reshape(x0.shape[0], -1, self.state_space.size)  # [batch, d, size]
        flat = points.reshape(len(points), -1)  # [nodes, d]
        picked = log_q[:, torch.arange(flat.shape[1], device=x0.device), flat]  # [batch, nodes, d]
        nodes = points.unsqueeze(1).expand(-1, x0.shape[0], *points.shape[1:])
        return nodes, picked.sum(-1).T

    def push(self, q: Tensor, s: Clock, t: Clock) -> Tensor:
        return self.log_push(q, s, t)


def log_mix(log_a: Tensor, log_u: Tensor, log_b: Tensor, log_v: Tensor) -> Tensor:
    """log(a u + b v), with finite gradients where a term is zero."""
    return torch.logaddexp(log_a + log_u, log_b + log_v)


def log_minus(log_a: Tensor, log_b: Tensor) -> tuple[Tensor, Tensor]:
    """log(a - b), LOG_ZERO where that is not positive; and where it is negative by more than rounding."""
    gap = log_b - log_a
    inside = (gap < 0) & (log_a > LOG_ZERO / 2)
    value = torch.where(inside, log_a + torch.log(-torch.expm1(torch.where(inside, gap, -1.0))), LOG_ZERO)
    return value, (gap > torch.finfo(gap.dtype).eps ** 0.5) & (log_b > LOG_ZERO / 2)
