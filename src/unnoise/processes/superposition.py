"""One marginal path, two processes on it, in any proportion: a diffusion, and jumps to the law itself.

The path is the Gaussian one, q(x_t | x_0) = N(alpha x_0, sigma^2), with z = (x - alpha x_0)/sigma of d numbers, the linear
drift f x = (d log alpha/dt) x and g^2 of the schedule.  It changes by

    dq/dt + div(f x q) = 1/2 g^2 Laplace q = c (|z|^2 - d) q,          c = g^2/(2 sigma^2) = d log(sigma/alpha)/dt.

Backwards in time, given x_0, the right-hand side is undone by a diffusion, or by jumps: what has to go is c |z|^2 q, what
has to come is c d q, so that leaving x at the rate c |z|^2 for a fresh draw of q(. | x_0),

    J_0(x, y) = c |z(x)|^2 q(y | x_0),                        c |z|^2 q lost,   E_q c |z|^2 q(y | x_0) = c d q gained,

has the same marginals; with alpha = 1 nothing else moves.  So have, for any weight w in [0, 1] and any eta,

    drift      -f x + w 1/2 (1 + eta^2) g^2 grad log q
    diffusion  w eta^2 g^2                                                               (eta = 0: the flow, an ODE)
    jumps      (1 - w) J_0,

and, with the mean over x_0 given x_t, the processes that a model is to learn (Markov superposition).  A law of x_0 given x_t
that is a mixture of normal laws N(m, v) has both: the score is a mean, and J a sum of

    E_{x_0 ~ N(m, v)} J_0(x, y) = c N(y; alpha m, sigma^2 + alpha^2 v) [|x - mu(y)|^2 + d r]/sigma^2,        (`FreshJumps`)

alpha x_0 ~ N(mu(y), r) given y in it.  Their divergence per unit time is

    w (1/2) ((1 + eta^2)/(2 eta))^2 g^2 |s_0 - s|^2  +  (1 - w) int phi(J_0(x, y), J(x, y)) dy,

linear in w; the factor of eta is 1 for the reversal, eta = 1, and infinite for an ODE, which tells itself from any other.

**What is exact, and what only bounds.**  With the exact denoiser every w has the marginals q_t.  Its bound is -log q(x_0) at
w = 1 alone: given their end, the paths of the model's jump process are not those given x_0 (no jump process that knows no
x_0 has normal marginals from every x_0), and what they differ by is counted as well.  Towards t = 0 it grows with log 1/eps.
"""

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from math import log, pi
from typing import Any

import torch
from numpy.polynomial.hermite_e import hermegauss
from torch import Tensor

from unnoise.generators import Local
from unnoise.laws import draw_categories
from unnoise.noise import NoiseSource
from unnoise.processes.base import Conditioned
from unnoise.processes.gaussian import Gaussian
from unnoise.schedules import Schedule
from unnoise.shapes import Clock, Float, Tree
from unnoise.spaces import JumpKernel

NODES = {1: 32, 2: 12}  # to each direction, by dimension
HALVINGS, REACH = 60, 12.0  # of an inverted distribution function, and where its argument lies


@dataclass(frozen=True)
class NormalShares:
    """Laws N(mean, variance I) of x_0 and their shares given x_t, as logarithms."""

    means: Float[Tensor, "batch parts d"]
    variances: Float[Tensor, "batch parts"]
    log_share: Float[Tensor, "batch parts"]

    @classmethod
    def point(cls, x0: Tensor) -> "NormalShares":
        means = x0.double().reshape(len(x0), 1, -1)
        return cls(means, torch.zeros_like(means[..., 0]), torch.zeros_like(means[..., 0]))

    def given(self, x: Tensor, alpha: Tensor, sigma: Tensor) -> "NormalShares":
        """Each of alpha x_0 given x_t = x, so that at little noise none is wider than the noise."""
        alpha, noise = alpha.reshape(-1, 1), sigma.square().reshape(-1, 1)
        prior, centre = alpha.square() * self.variances, alpha.unsqueeze(2) * self.means
        gain = prior / (prior + noise)
        moved = centre + gain.unsqueeze(2) * (x.double().reshape(len(x), 1, -1) - centre)
        return NormalShares(moved, gain * noise, self.log_share)


class Superposition(Gaussian):
    """Gaussian noise, undone by a diffusion with the weight w and by jumps with 1 - w."""

    has_flow = False  # what has a flow is the diffusion part

    def __init__(
        self,
        shape: int | Sequence[int] = (),
        schedule: Schedule | None = None,
        weight: float | int = 0.5,
        eta: float | int = 1.0,
    ):
        super().__init__(shape, schedule)
        if self.schedule.shape:
            raise ValueError("a schedule per coordinate: a jump moves all coordinates at once, so pass one schedule for all")
        self._set(weight, eta)

    def _set(self, weight: float | int, eta: float | int) -> None:
        if not 0 <= weight <= 1:
            raise ValueError(f"weight = {weight:g}: choose it in [0, 1], 0 for jumps alone and 1 for the diffusion")
        if not 0 <= eta < float("inf"):
            raise ValueError(f"eta = {eta:g}: choose 1 for the reversed diffusion, 0 for its flow, or another number >= 0")
        self.weight, self.eta = float(weight), float(eta)

    def mixed(self, weight: float | int, eta: float | int | None = None) -> "Superposition":
        """The same path in another proportion: networks trained under one serve under all."""
        other = copy(self)
        other._set(weight, self.eta if eta is None else eta)
        return other

    def speed(self, t: Tensor) -> Float[Tensor, "batch"]:
        """c = g^2/(2 sigma^2)."""
        return 0.5 * self.schedule.diffusion(t) / self.schedule.sigma(t).square()

    def shares_local(self, x_t: Tensor, shares: NormalShares, t: Clock) -> Local:
        """The process backwards where x_0 is in one of these laws."""
        t = self.times(t, x_t)
        alpha, sigma, w = self.schedule.alpha(t), self.schedule.sigma(t), self.weight
        here = shares.given(x_t, alpha, sigma)
        forward = super().local(x_t, t)
        drift, jumps = -forward.drift, None  # type: ignore[operator]
        diffusion: Tensor | None = None
        if w > 0:
            mean = (here.log_share.exp().unsqueeze(2) * here.means).sum(1).reshape(x_t.shape)
            score = (mean - x_t) / self.coefficient(sigma, mean).square()
            drift = drift + (0.5 * w * (1 + self.eta**2)) * forward.diffusion * score.to(x_t.dtype)  # type: ignore[operator]
            diffusion = None if self.eta == 0 or forward.diffusion is None else (w * self.eta**2) * forward.diffusion
        if w < 1:
            jumps = FreshJumps(here, sigma.square(), (1 - w) * self.speed(t))
        return Local(drift, diffusion, jumps=jumps)

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        if self.weight < 1 and self.space.dimension > 1:
            raise ValueError(
                f"an exact expectation over {self.space} of integrals over where jumps lead is out of reach: draw instead"
            )
        return super().support(x0, t)

    def conditioned_local(self, x_t: Tensor, x0: Tensor, t: Clock) -> Local:
        return self.shares_local(x_t, NormalShares.point(x0), t)

    def reverse(self, x_t: Tree, x0: Tree, t: Clock) -> Conditioned:
        if self.weight > 0 and self.eta == 0:
            raise ValueError(
                "eta = 0 makes the diffusion part an ODE, whose bound is infinite for every network that is not exact: take "
                "the bound of process.mixed(weight, eta=1), or of weight 0"
            )
        return Conditioned(self, x_t, x0, t)

    def reverse_local(self, x_t: Tensor, c_score: Tensor, t: Tensor) -> Local:
        if self.weight == 1 and self.eta == 1:
            return super().reverse_local(x_t, c_score, t)
        raise TypeError("a number for each coordinate says nothing of jumps: predict a MixturePosterior, or take weight = 1")

    def local(self, x: Tensor, t: Clock) -> Local:
        if self.weight == 1 and self.eta == 1:
            return super().local(x, t)
        raise self.unanswered(
            "local(x, t)", "a forward generator that knows no x_0: there is none but the diffusion's, which"
        )

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> Any:
        if self.weight == 1 and self.eta == 1:
            return super().transition(x_s, s, t)
        raise self.unanswered(
            "transition(x_s, s, t)", "q(x_t | x_s): its paths are known backwards from x_t to x_0 alone, and"
        )

    def posterior(self, x_t: Tree, x0: Tree, s: Clock, t: Clock) -> Any:
        if self.weight == 1 and self.eta == 1:
            return super().posterior(x_t, x0, s, t)
        raise self.unanswered("posterior(x_t, x0, s, t)", "the law of steps with jumps, which has no closed form, and")

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, weight={self.weight:g}, eta={self.eta:g}"


class FreshJumps(JumpKernel):
    """speed E |x - alpha x_0|^2/sigma^2 N(y; alpha x_0, sigma^2) over the laws of alpha x_0 given x_t (see above)."""

    known_total = True

    def __init__(self, here: NormalShares, noise: Float[Tensor, "batch"], speed: Float[Tensor, "batch"]):
        self.here, self.noise, self.speed = here, noise, speed

    def _rows(self, x: Tensor) -> tuple[Tensor, ...]:
        """Means, variances, log-shares, noise, speed and states, the rows as often as x has them."""
        times = len(x) // len(self.noise)
        held = (self.here.means, self.here.variances, self.here.log_share, self.noise.unsqueeze(1), self.speed.unsqueeze(1))
        if times > 1:
            held = tuple(part.repeat_interleave(times, 0) for part in held)  # type: ignore[assignment]
        return *held, x.double().reshape(len(x), 1, -1)

    def _log_terms(self, x: Tensor, y: Tensor) -> Float[Tensor, "rows parts"]:
        means, v, log_share, noise, speed, at = self._rows(x)
        to, d = y.double().reshape(len(y), 1, -1), means.shape[2]
        wide = noise + v
        log_arrive = -0.5 * ((to - means).square().sum(2) / wide + d * (wide.log() + log(2 * pi)))
        mu = means + (v / wide).unsqueeze(2) * (to - means)
        leave = ((at - mu).square().sum(2) + d * v * noise / wide) / noise
        return log_share + log_arrive + (speed * leave).clamp_min(1e-300).log()

    def log_rate(self, x: Tensor, y: Tensor) -> Float[Tensor, "batch"]:
        return self._log_terms(x, y).logsumexp(1)

    def _totals(self, x: Tensor) -> Float[Tensor, "rows parts"]:
        means, v, log_share, noise, speed, at = self._rows(x)
        return speed * log_share.exp() * ((at - means).square().sum(2) + means.shape[2] * v) / noise

    def total(self, x: Tensor) -> Float[Tensor, "batch"]:
        return self._totals(x).sum(1)

    def nodes(self, x: Tensor) -> tuple[Tensor, Float[Tensor, "batch nodes"]]:
        """Gauss and Hermite's of each law of y, weighted by the share that it has in the rate there."""
        means, v, _, noise, _, _ = self._rows(x)
        rows, parts, d = means.shape
        if d not in NODES:
            raise ValueError(
                f"the bound integrates over where jumps lead, and {d} numbers are out of reach (at most 2): take the bound "
                f"at weight = 1; samples need no such integral"
            )
        line, weight = (torch.as_tensor(part, dtype=torch.float64, device=x.device) for part in hermegauss(NODES[d]))
        grid = torch.cartesian_prod(*[line] * d).reshape(-1, d)
        log_weight = torch.cartesian_prod(*[weight.log()] * d).reshape(-1, d).sum(1) + 0.5 * grid.square().sum(1)
        spread = (noise + v).sqrt()
        y = means.unsqueeze(2) + spread[:, :, None, None] * grid
        count = parts * len(grid)
        places, here = y.reshape(rows * count, *x.shape[1:]), x.repeat_interleave(count, 0)
        terms = self._log_terms(here, places).reshape(rows, parts, len(grid), parts)
        own = terms.diagonal(dim1=1, dim2=3).transpose(1, 2)  # [rows, parts, nodes]
        log_weight = log_weight + d * spread.log().unsqueeze(2) + own - terms.logsumexp(3)
        return places.reshape(rows, count, *x.shape[1:]).to(x.dtype), log_weight.reshape(rows, count)

    def draw(self, x: Tensor, noise: NoiseSource) -> Tensor:
        """Which law, then alpha x_0 with the density |x - alpha x_0|^2 N, and y from there.

        Of |u|^2 N(u; m, v I) one coordinate has the density u^2 N(u; m_i, v), chosen with m_i^2 + v, and the others are
        normal.  With u = m_i + sqrt(v) h and F the normal distribution function, that of h is
        F(h) - (2 m_i sqrt(v) + v h) phi(h)/(m_i^2 + v), inverted by halves.
        """
        means, v, _, scale, _, at = self._rows(x)
        row = torch.arange(len(x), device=x.device)
        which = draw_categories(self._totals(x).clamp_min(1e-300).log(), noise.at("law"))
        m, v = at[:, 0] - means[row, which], v[row, which].unsqueeze(1)
        i = draw_categories((m.square() + v).clamp_min(1e-300).log(), noise.at("coordinate"))
        h = noise.at("clean").normal((m.shape[1],))
        h = h.scatter(1, i.unsqueeze(1), tilted(m[row, i], v[:, 0], noise.at("tilted").uniform()).unsqueeze(1))
        clean = at[:, 0] - m - v.sqrt() * h
        y = clean + scale.sqrt() * noise.at("fresh").normal((m.shape[1],))
        return y.reshape(x.shape).to(x.dtype)


def tilted(m: Float[Tensor, "batch"], v: Tensor, u: Tensor) -> Float[Tensor, "batch"]:
    """h at which the distribution function of (m + sqrt(v) h)^2 phi(h) is u."""
    low, high = torch.full_like(m, -REACH), torch.full_like(m, REACH)
    size = (m.square() + v).clamp_min(1e-300)
    for _ in range(HALVINGS):
        h = (low + high) / 2
        density = (-0.5 * h.square()).exp() / (2 * pi) ** 0.5
        below = torch.special.ndtr(h) - (2 * m * v.sqrt() + v * h) / size * density < u
        low, high = torch.where(below, h, low), torch.where(below, high, h)
    return (low + high) / 2
