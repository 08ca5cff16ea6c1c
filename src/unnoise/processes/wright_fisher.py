"""The Wright-Fisher (Jacobi) diffusion of compositions, which ends in a Dirichlet law.

    generator   1/2 g^2 [ sum x_i (delta_ij - x_j) d_i d_j + sum (alpha_i - theta x_i) d_i ],       theta = |alpha|,
    alpha_i >= 1, tau_t = int g^2 dt = sigma_t^2  of a schedule that keeps the signal,
    q(x_t | x_0) = pi R_{tau_t}(x_t, x_0),      q(x_t | x_s) = pi R_{tau_t - tau_s}(x_t, x_s),      prior: pi =
    Dirichlet(alpha)

(see `simplex_laws`).  It is reversible under pi.  So reversed in time under the density q = pi r it has its own drift
again, and

    1/2 g^2 (alpha - theta x) + g^2 a grad log r,       a grad log r = l - x |l|,     l_i = x_i d_i log r,

in which nothing is singular: the slope of log pi has cancelled.  Given x_0 the `lines` l are expected numbers of ancestors,
E[L_i | x_t, x_0].

**Two kinds of data.**  With `vertices=True` x_0 is a category, as the composition e_k: then everything is a series in x_k,
the network says which vertices are likely, and the bound ends with a categorical law.  Else x_0 lies inside, data have a
density, and the bound ends with q(x_0 | x_eps) := pi(x_0) R(x_0, x_eps), a density in x_0 since R is symmetric.

A law has fluctuations of the size sqrt(x (1 - x) tau) around x_0.  In units of the noise the slope of log r is of the size

    u^2 = theta/(e^{theta tau} - 1)    per direction:  1/tau early, theta e^{-theta tau} of the slowest wave late.

**The prior's mismatch.**  KL(q(x_1 | x_0) || pi) <= log E_q R = log R_{2 tau}(x_0, x_0), the divergence of order two: in
closed form, and of the size e^{-theta tau_1} like the KL itself.  For vertices the KL is an integral over x_k alone, by
Gauss's nodes.
"""

from collections.abc import Sequence
from math import pi, sqrt

import numpy as np
import torch
from torch import Tensor

from unnoise.checks import as_times, ordered, unread
from unnoise.gamma_laws import Dirichlet
from unnoise.generators import Local
from unnoise.processes.base import Process, valid_schedule
from unnoise.schedules import VE, Schedule
from unnoise.shapes import Clock, Float, Tree
from unnoise.simplex_laws import WrightFisherLaw, log_ratio, log_vertex_ratio
from unnoise.spaces import Simplex

REACH = 7.5  # standard deviations of an angle that count
NODES = {2: 80, 3: 56}  # of an exact expectation, in each direction
LEAST_TAU = 1e-4  # of the first noise: fewer than 2e4 lines
ENTROPY_NODES = 160


class WrightFisher(Process):
    """Compositions under the Wright-Fisher diffusion; `alpha` is a size (alpha = 1) or a number of at least 1 for each
    part.
    """

    space: Simplex
    state_space: Simplex
    schedule: Schedule
    alpha: Tensor
    has_density = True

    def __init__(self, alpha: int | Sequence[float] | Tensor, schedule: Schedule | None = None, vertices: bool = False):
        super().__init__()
        values = [1.0] * alpha if isinstance(alpha, int) and not isinstance(alpha, bool) else alpha
        found = torch.as_tensor(values, dtype=torch.float64).reshape(-1)
        if len(found) < 2 or not bool((found >= 1).all()):
            raise ValueError(f"alpha = {alpha}: pass a size of at least 2, or for each part a number of at least 1")
        self.register_buffer("alpha", found, persistent=False)
        self.theta, self.vertices = float(found.sum()), bool(vertices)
        self.space = self.state_space = Simplex(len(found))
        self.schedule = valid_schedule(schedule, VE(0.15 if vertices else 0.06, sqrt(18 / self.theta)))
        self._check_schedule()
        self.has_density = self.has_flow = not self.vertices

    def _check_schedule(self) -> None:
        name = type(self.schedule).__name__
        if self.schedule.shape:
            raise ValueError(
                f"a schedule of shape {self.schedule.shape} does not fit {self.space}: its shares move together"
            )
        t = torch.linspace(0.0, 1.0, 5, dtype=torch.float64)
        alpha, sigma = self.schedule.alpha(t).detach(), self.schedule.sigma(t).detach()
        if bool(((alpha - 1).abs() > 1e-9).any()):
            raise ValueError(
                f"{name} scales the data by alpha = {float(alpha.min()):g}, and compositions cannot be scaled: pass a "
                f"schedule with alpha = 1, such as un.schedules.VE(0.06, 2.0)"
            )
        if float(sigma[0]) ** 2 < LEAST_TAU:
            raise ValueError(
                f"{name} begins with sigma = {float(sigma[0]):g}, where densities of {self.space} are sums over more than "
                f"2e4 lines: begin with at least {sqrt(LEAST_TAU):g}"
            )

    # time

    def times(self, t: Clock, x: Tensor, name: str = "t") -> Tensor:
        return as_times(t, x.shape[0], x.device, name)

    def tau(self, t: Clock, x: Tensor) -> Float[Tensor, "batch"]:
        return self.schedule.sigma(self.times(t, x)).square().double()

    def rate(self, t: Clock, x: Tensor) -> Float[Tensor, "batch 1"]:
        """g^2."""
        return self.schedule.diffusion(self.times(t, x)).to(x.dtype).unsqueeze(-1)

    def score_size(self, t: Clock, x: Tensor) -> Float[Tensor, "batch 1"]:
        """u."""
        return (self.theta / torch.expm1(self.theta * self.tau(t, x))).sqrt().unsqueeze(-1)

    # laws

    def law(self, start: Tensor, tau: Tensor) -> WrightFisherLaw:
        """The diffusion from points of the simplex."""
        return WrightFisherLaw(start, tau, self.alpha)

    def check_data(self, x0: Tree, name: str = "x0") -> Tensor:
        x0 = self.space.check(x0, name)
        if not self.vertices or not unread(x0, self):
            return x0
        off = ~(x0.detach().amax(-1) > 1 - 1e-4)
        if bool(off.any()):
            i = int(off.nonzero()[0, 0])
            raise ValueError(
                f"row {i} of {name} has the largest share {float(x0[i].detach().max()):g}, and data of vertices=True are "
                f"categories: pass space.vertices(category), or vertices=False for compositions"
            )
        return x0

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> Dirichlet:
        like = torch.empty(rows, self.space.size, dtype=dtype, device=device)
        return Dirichlet(self.alpha.to(like.device).expand(rows, -1), like)

    def marginal(self, x0: Tree, t: Clock) -> WrightFisherLaw:
        x0 = self.check_data(x0)
        return WrightFisherLaw(x0, self.tau(t, x0), self.alpha, self.vertices)

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> WrightFisherLaw:
        x_s = self.space.check(x_s, "x_s")
        early, late = self.times(s, x_s, "s"), self.times(t, x_s)
        ordered(early, late)
        return self.law(x_s, self.schedule.step_variance(early, late))

    def log_evidence(self, x_t: Tensor, t: Clock) -> Float[Tensor, "batch size"]:
        """log R(x_t, e_k) for every vertex."""
        tau = self.tau(t, x_t).unsqueeze(-1).expand_as(x_t).reshape(-1)
        alpha = self.alpha.to(x_t.device).expand_as(x_t).reshape(-1)
        return log_vertex_ratio(x_t.double().reshape(-1), tau, alpha, self.theta).reshape(x_t.shape)

    def prior_kl(self, x0: Tree, t: Clock = 1.0) -> Tensor:
        x0 = self.check_data(x0)
        tau = self.tau(t, x0)
        if not self.vertices:
            return log_ratio(x0.double().square(), 2 * tau, self.alpha.to(x0.device)).clamp_min(0)
        return self._vertex_information(tau, self.alpha.to(x0.device)[x0.argmax(-1)])

    def _vertex_information(self, tau: Tensor, own: Tensor) -> Tensor:
        """E log R(x, e_k), x_k = sin^2(w/2) by Gauss's nodes in the angle."""
        z, w = np.polynomial.legendre.leggauss(ENTROPY_NODES)
        angle = pi / 2 * (torch.as_tensor(z, device=tau.device) + 1)
        x, rest = torch.sin(angle / 2).square(), self.theta - own
        rows, count = len(tau), len(x)
        many_tau, many_own = (part.repeat_interleave(count) for part in (tau, own))
        log_r = log_vertex_ratio(x.repeat(rows), many_tau, many_own, self.theta).reshape(rows, count)
        beta = torch.lgamma(own + rest) - torch.lgamma(own) - torch.lgamma(rest)
        log_pi = (
            beta[:, None] + (own[:, None] - 0.5) * x.log() + (rest[:, None] - 0.5) * torch.log1p(-x)
        )  # dx = sqrt(x(1-x)) dw
        weight = pi / 2 * torch.as_tensor(w, device=tau.device)
        return (weight * (log_pi + log_r).exp() * log_r).sum(-1).clamp_min(0)

    # generators

    def local(self, x: Tensor, t: Clock) -> Local:
        rate = self.rate(t, x)
        return Local(0.5 * rate * (self.alpha - self.theta * x).to(x.dtype), rate)

    def reverse_local(self, x_t: Tensor, lines: Float[Tensor, "batch size"], t: Clock) -> Local:
        """The generator run backwards under pi r, by l = x grad log r."""
        rate = self.rate(t, x_t)
        pull = (lines - x_t * lines.sum(-1, keepdim=True)).to(x_t.dtype)
        return Local(0.5 * rate * (self.alpha - self.theta * x_t).to(x_t.dtype) + rate * pull, rate)

    def conditioned_local(self, x_t: Tensor, x0: Tensor, t: Clock) -> Local:
        return self.reverse_local(x_t, self.marginal(x0, t).lines(x_t), t)

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        """Gauss's nodes in the angles of shares of what is left, s = sin^2(w/2), around those of x_0."""
        x0, size = self.check_data(x0), self.space.size
        if size not in NODES:
            raise ValueError(f"an exact expectation over {self.space} is out of reach (at most size 3): draw instead")
        z, w = (torch.as_tensor(part, device=x0.device) for part in np.polynomial.legendre.leggauss(NODES[size]))
        start, tau = x0.double(), self.tau(t, x0)
        left, before = torch.ones(1, len(x0), dtype=torch.float64, device=x0.device), torch.ones_like(tau)
        log_weight = torch.zeros_like(left)
        parts: list[Tensor] = []
        for i in range(size - 1):
            own = (start[:, i] / before.clamp_min(1e-300)).clamp(0, 1).sqrt()
            reach = REACH * (tau / left.clamp_min(1e-12)).sqrt()
            middle = 2 * torch.asin(own)
            low, high = (middle - reach).clamp_min(0), (middle + reach).clamp_max(pi)
            half = (high - low) / 2
            angle = low + half * (z.reshape(-1, 1, 1) + 1)  # [nodes, so far, batch]
            s = torch.sin(angle / 2).square()
            weight = half * w.reshape(-1, 1, 1) * left * (0.5 * torch.sin(angle))
            parts = [part.expand(s.shape).reshape(-1, len(x0)) for part in parts] + [(left * s).reshape(-1, len(x0))]
            log_weight = (log_weight + weight.clamp_min(1e-300).log()).reshape(-1, len(x0))
            left = (left * torch.cos(angle / 2).square()).reshape(-1, len(x0))
            before = before - start[:, i]
        nodes = torch.stack([*parts, left], -1)
        count = len(nodes)
        rows = start.expand(count, -1, -1).reshape(-1, size)
        law = WrightFisherLaw(rows, tau.repeat(count), self.alpha, self.vertices)
        return nodes.to(x0.dtype), log_weight + law.log_prob(nodes.reshape(-1, size)).reshape(count, -1)

    def extra_repr(self) -> str:
        return f"{self.space}, theta = {self.theta:g}{', vertices' if self.vertices else ''}"
