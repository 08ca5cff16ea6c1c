"""Noise whose law changes with time: p_t = sum_j w_j(t) p_j, a time-varying mixture (eq:mixture-dtMC, read as cumulative).

    q(x_t | x_0) = alpha_t e_{x_0} + beta_t p_t,      Q_{t|s} = alpha_{t|s} I + f_{t|s} 1^T,
    f_{t|s}      = beta_t p_t - alpha_{t|s} beta_s p_s
                 = (1 - alpha_{t|s}) p_t + alpha_{t|s} beta_s (p_t - p_s)
    r_t          = -(alpha'/alpha) p_t + beta_t p_t'          (eq:Rate-matrix-expression with p_t put in lacks p_t')

alpha_t in [0, 1] and p_t a law are not enough: with p_t moving faster than noise is added f_{t|s} goes negative and no
process has these marginals.  Since f_{t|s} = int_s^t (alpha_t/alpha_u) r_u du, there is one iff r_t >= 0 at every time and
state.  That is what is checked, and an error names the time and the entry.
"""

from collections.abc import Callable, Sequence
from math import prod

import torch
from torch import Tensor

from unnoise.laws import LOG_ZERO, TINY, Categorical, Law, draw_categories, log_coefficient, log_of
from unnoise.processes import noise_laws
from unnoise.processes.rank_one import RankOne
from unnoise.schedules import Schedule
from unnoise.shapes import Clock, Float
from unnoise.spaces import Finite

Weights = Callable[[Tensor], Tensor]  # float64 times of any shape -> [..., laws]


class Mixture(RankOne):
    """`Mixture(size, shape, laws=[...], weights=function)`: at time t the noise law is sum_j w_j(t) p_j."""

    def __init__(
        self,
        size: int | Sequence[int],
        shape: int | Sequence[int] | None = None,
        *,
        laws: Sequence[noise_laws.NoiseLaw | Tensor],
        weights: Weights,
        schedule: Schedule | None = None,
    ):
        space = Finite(size, shape)
        given = [law if isinstance(law, noise_laws.NoiseLaw) else noise_laws.given(law) for law in laws]
        if not given:
            raise ValueError("a mixture needs at least one noise law")
        super().__init__(space, max(law.states for law in given), schedule)
        if self.schedule.shape:
            raise ValueError("a mixture takes one schedule for all coordinates: its weights are functions of one time")
        self._laws = torch.nn.ModuleList(law.fitted(space) for law in given)
        self.weights = weights
        self.mask = space.size if self.state_space.size > space.size else None
        self._validate()

    @classmethod
    def uniform_and_mask(
        cls, size: int, shape: int | Sequence[int] | None = None, uniform: float = 0.2, gamma: float = 1.0
    ) -> "Mixture":
        """Masking with a share of uniform noise, `uniform` at t = 1/2 and none at either end.

        With c_t = B (t (1 - t))^(gamma/2), B = 2^gamma u/(1 - u):  alpha = (1 - t)/(1 + c), mass t/(1 + c) on MASK and
        c/(1 + c) spread over the categories: the noise of generalised interpolating discrete diffusion.
        """
        if not 0 < uniform < 1:
            raise ValueError(f"uniform = {uniform:g} is the share of uniform noise at t = 1/2: choose it in (0, 1)")
        if not 0 < gamma <= 2:
            raise ValueError(f"gamma = {gamma:g} must lie in (0, 2]")
        schedule = _Blend(uniform, gamma)
        return cls(
            size, shape, laws=[noise_laws.uniform(size), noise_laws.mask(size)], weights=schedule.weights, schedule=schedule
        )

    @property
    def laws(self) -> list[noise_laws.NoiseLaw]:
        return list(self._laws)  # type: ignore[arg-type]

    # the weights, their slope, and what follows for f and r: float64, [batch, laws]

    def shares(self, t: Tensor) -> Float[Tensor, "batch laws"]:
        w = self.weights(t)
        if not isinstance(w, Tensor) or tuple(w.shape) != (*t.shape, len(self.laws)):
            found = f"shape {tuple(w.shape)}" if isinstance(w, Tensor) else f"a {type(w).__name__}"
            raise TypeError(
                f"weights(t) returned {found} for t of shape {tuple(t.shape)}: "
                f"return one weight per law in the last axis, {(*t.shape, len(self.laws))}"
            )
        return w

    def share_slopes(self, t: Tensor) -> Float[Tensor, "batch laws"]:
        with torch.inference_mode(False), torch.enable_grad():
            inner = t.detach().clone().clamp(TINY, 1 - 2.0**-53).requires_grad_()  # the slope may be infinite at the ends
            columns = self.shares(inner).unbind(-1)
            slopes = [
                torch.autograd.grad(c.sum(), inner, retain_graph=True)[0] if c.requires_grad else 0 * t for c in columns
            ]
        return torch.stack(slopes, -1).detach()

    def fresh_shares(self, like: Tensor, s: Clock | None, t: Clock) -> Float[Tensor, "batch laws"]:
        """The coefficients of the laws in f_{t|s}."""
        keep, renew = (c.unsqueeze(-1) for c in self.keep_and_renew(like, s, t))
        now = self.shares(self.times(t, like))
        if s is None:
            return renew * now
        s = self.times(s, like, "s")
        return renew * now + keep * self.schedule.beta(s).unsqueeze(-1) * (now - self.shares(s))

    def jump_shares(self, t: Tensor) -> Float[Tensor, "batch laws"]:
        """The coefficients of the laws in alpha r_t = -alpha' p_t + alpha beta p_t', which is finite where alpha = 0."""
        slope, alpha, beta = (
            c.unsqueeze(-1) for c in (-self.schedule.d_alpha(t), self.schedule.alpha(t), self.schedule.beta(t))
        )
        return slope * self.shares(t) + alpha * beta * self.share_slopes(t)

    def _validate(self) -> None:
        t = torch.linspace(0, 1, 2049, dtype=torch.float64)[1:-1]
        w = self.shares(t)
        off = (~(w >= -1e-12)).any(-1) | ((w.sum(-1) - 1).abs() > 1e-9) | w.isnan().any(-1)
        if bool(off.any()):
            first = int(off.nonzero()[0, 0])
            raise ValueError(f"the weights at t = {t[first].item():.4f} are {w[first].tolist()}: they must be a law")
        shares = self.jump_shares(t)
        self.separable = bool((shares >= -1e-12).all())  # then a fresh draw is a draw of the law, then from it
        if self.separable:
            return
        shape = next((law.shape for law in self.laws if law.shape), ())
        together = max(1, 2**22 // (prod(shape) * self.state_space.size))  # times whose rates are formed at once
        for start in range(0, len(t), together):
            self._refuse_negative(shares[start : start + together], t[start : start + together])

    def _refuse_negative(self, shares: Float[Tensor, "times laws"], t: Float[Tensor, "times"]) -> None:
        rates = self._combine(shares, torch.device("cpu"))  # [times, *shape or (), states]
        bad = rates < -1e-12
        if bool(bad.any()):
            i: list[int] = bad.nonzero()[0].tolist()
            entry = f"state {i[-1]}" + (f" of coordinate {i[1:-1]}" if len(i) > 2 else "")
            value = rates[tuple(i)].item() / float(self.schedule.alpha(t[i[0]]))
            raise ValueError(
                f"this mixture is no Markov process: at t = {t[i[0]].item():.4f} the rate of jumps to {entry} would be "
                f"{value:.4g}.  Its law moves away from that state faster than noise is added: slow the weights down, "
                f"or use a schedule that adds noise faster"
            )

    def _combine(self, shares: Float[Tensor, "batch laws"], device: torch.device) -> Tensor:
        """sum_j shares_j p_j over the states: [batch, *shape, states], shape [batch, states] where all laws are shared."""
        total: Tensor | None = None
        shape = next((law.shape for law in self.laws if law.shape), ())
        for share, law in zip(shares.unbind(-1), self.laws, strict=True):
            p = law.log_probs(torch.float64, device).exp()
            p = torch.nn.functional.pad(p, (0, self.state_space.size - p.shape[-1]))
            p = p if law.shape or not shape else p.reshape(*[1] * len(shape), -1)
            term = share.reshape(-1, *[1] * p.ndim) * p
            total = term if total is None else total + term
        assert total is not None
        return total

    def _over_states(self, shares: Tensor, like: Tensor) -> Tensor:
        """The same, ready to broadcast with [batch, *shape, states]."""
        total = self._combine(shares, like.device)
        return total if total.ndim > 2 else total.reshape(len(total), *[1] * (like.ndim - 1), -1)

    def _at(self, shares: Tensor, x: Tensor) -> Tensor:
        """sum_j shares_j p_j(x), shaped like x."""
        total = torch.zeros(x.shape, dtype=torch.float64, device=x.device)
        for share, law in zip(shares.unbind(-1), self.laws, strict=True):
            known = x < law.states  # laws of fewer states give the others nothing
            p = torch.where(known, law.log_prob(x.clamp_max(law.states - 1), torch.float64), LOG_ZERO).exp()
            total = total + share.reshape(-1, *[1] * (x.ndim - 1)) * p
        return total

    def log_fresh(self, like, s, t, dtype):
        return log_of(self._over_states(self.fresh_shares(like, s, t), like)).to(dtype)

    def log_fresh_at(self, x, s, t, dtype):
        return log_of(self._at(self.fresh_shares(x, s, t), x)).to(dtype)

    def _log_alpha(self, like: Tensor, t: Clock) -> Tensor:
        return log_coefficient(self.schedule.alpha(self.times(t, like))).reshape(-1, *[1] * (like.ndim - 1))

    def log_jumps(self, like, t, dtype):
        rates = self._over_states(self.jump_shares(self.times(t, like)), like)
        return self._scaled(log_of(rates), self._log_alpha(like, t).unsqueeze(-1)).to(dtype)

    def log_jumps_at(self, x, t, dtype):
        return self._scaled(log_of(self._at(self.jump_shares(self.times(t, x)), x)), self._log_alpha(x, t)).to(dtype)

    def _scaled(self, log_rates: Tensor, log_alpha: Tensor) -> Tensor:
        return torch.where(log_rates > LOG_ZERO / 2, log_rates - log_alpha, LOG_ZERO)

    def draw_fresh(self, like, s, t, noise):
        """The law first, then a state from it; one table where a law's own share may be negative though no rate is."""
        if not self.separable:
            log_f = self.log_fresh(like, s, t, torch.float64)
            return draw_categories(log_f.expand(*like.shape, log_f.shape[-1]), noise)
        shares = self.fresh_shares(like, s, t).clamp_min(0)
        log_shares = log_of(shares).reshape(len(shares), *[1] * (like.ndim - 1), -1)
        which = draw_categories(log_shares.expand(*like.shape, len(self.laws)), noise.at("law"))
        x = like
        for j, law in enumerate(self.laws):
            x = torch.where(which == j, law.draw(like, noise.at("state", j)), x)
        return x

    def movable(self, x_t: Tensor) -> Tensor:
        """Where one of the laws can have drawn the state."""
        return self._at(torch.ones(len(x_t), len(self.laws), dtype=torch.float64, device=x_t.device), x_t) > 0

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Law:
        x = torch.zeros(rows, *self.space.shape, dtype=torch.int64, device=device)
        log_p = log_of(self._over_states(self.shares(self.times(1.0, x)), x)).to(dtype or torch.float64)
        return Categorical(log_p.expand(*x.shape, log_p.shape[-1]))


class _Blend(Schedule):
    """alpha = (1 - t)/(1 + c), c = B (t (1 - t))^(gamma/2)."""

    def __init__(self, uniform: float, gamma: float):
        super().__init__()
        self.uniform, self.gamma = uniform, gamma
        self.scale = 2**gamma * uniform / (1 - uniform)

    def _c(self, t):
        return self.scale * (t * (1 - t)).clamp_min(0) ** (self.gamma / 2)

    def weights(self, t: Tensor) -> Tensor:
        """(uniform, mask): c and t over their sum, divided through by t^(gamma/2) so that both ends are finite."""
        c = self.scale * (1 - t) ** (self.gamma / 2)
        m = t ** (1 - self.gamma / 2)
        return torch.stack([c, m], -1) / (c + m).unsqueeze(-1)

    def exact_alpha(self, t):
        return (1 - t) / (1 + self._c(t))

    def exact_beta(self, t):
        c = self._c(t)
        return (t + c) / (1 + c)

    def exact_sigma(self, t):
        return (self.exact_beta(t) * (1 + self.exact_alpha(t))).sqrt()

    def exact_d_alpha(self, t):
        half, c = self.gamma / 2, self._c(t)
        rise = (
            self.scale * half * ((1 - t) ** (half + 1) * t.clamp_min(TINY) ** (half - 1) - (t * (1 - t)) ** half)
        )  # (1-t) c'
        return -(1 + c + rise) / (1 + c).square()

    def extra_repr(self) -> str:
        return f"uniform={self.uniform}, gamma={self.gamma}"
