"""Cox-Ingersoll-Ross noise of positive numbers, which ends in Gamma laws.

    generator   1/2 g^2 [x d^2 + (alpha - x/s) d] for each number,       alpha >= 1,
    tau_t = int g^2 dt = sigma_t^2  of a schedule that keeps the signal,
    q(x_t | x_0) and q(x_t | x_s): `cir_laws` after the times tau_t and tau_t - tau_s,       prior: pi = Gamma(alpha, s)

It is reversible under pi, so that reversed in time under q = pi r it has its own drift again, and

    1/2 g^2 (alpha - x/s) + g^2 l,       l = x d log r.

A number fluctuates by sqrt(x tau): what is near zero is moved little, and stays positive.  In units of the noise the slope
of log r is of the size u^2 = (1/s)/(e^{tau/s} - 1) in the coordinate 2 sqrt(x).  Given both ends a bridge is drawn exactly.
Numbers that are 0 are points that the process may start from; data with a density have none.
"""

from math import sqrt

import numpy as np
import torch
from torch import Tensor

from unnoise.checks import as_times, may_read, ordered
from unnoise.cir_laws import CIRBridge, CIRLaw
from unnoise.gamma_laws import GammaLaw
from unnoise.generators import Local
from unnoise.laws import sum_coordinates
from unnoise.processes.base import Process, valid_schedule
from unnoise.schedules import VE, Schedule
from unnoise.shapes import Clock, Float, Tree
from unnoise.spaces import Orthant

NODES, REACH = 96, 9.0  # of an exact expectation; standard deviations of sqrt(x) that count
NODES_OF_TWO = 40  # in each of two directions
SEEN = 64  # different numbers of the data that are few


class CoxIngersollRoss(Process):
    """Independent positive numbers; `alpha`, at least 1, and `scale` are those of the Gamma law that they end in."""

    space: Orthant
    state_space: Orthant
    schedule: Schedule
    alpha: Tensor
    scale: Tensor
    has_density = has_flow = True

    def __init__(
        self,
        shape: int | tuple[int, ...] = (),
        alpha: float | Tensor = 2.0,
        scale: float | Tensor = 1.0,
        schedule: Schedule | None = None,
    ):
        super().__init__()
        self.space = self.state_space = Orthant(shape)
        for name, value, least in (("alpha", alpha, 1.0), ("scale", scale, 1e-12)):
            found = torch.as_tensor(value, dtype=torch.float64)
            if not bool(((found >= least) & found.isfinite()).all()):
                raise ValueError(f"{name} = {value}: pass {'a number of at least 1' if least == 1 else 'a positive number'}")
            self.register_buffer(name, found.expand(self.space.shape).clone(), persistent=False)
        pairs = {(float(a), float(b)) for a, b in zip(self.alpha.flatten(), self.scale.flatten(), strict=True)}
        self.alike = pairs.pop() if len(pairs) == 1 else None  # (alpha, scale), where all numbers have the same
        size = float(self.scale.max())
        self.schedule = valid_schedule(schedule, VE(0.05 * sqrt(size), 6.0 * sqrt(size)))
        name = type(self.schedule).__name__
        if self.schedule.shape:
            raise ValueError(f"a schedule of shape {self.schedule.shape} is not known here: pass one for all numbers")
        keeps = self.schedule.alpha(torch.linspace(0.0, 1.0, 5, dtype=torch.float64)).detach()
        if bool(((keeps - 1).abs() > 1e-9).any()):
            raise ValueError(
                f"{name} scales the data by alpha = {float(keeps.min()):g}, and here the drift does that: pass a "
                f"schedule with alpha = 1, such as un.schedules.VE(0.05, 6.0)"
            )
        if not float(self.schedule.sigma(torch.zeros(1, dtype=torch.float64))[0]) > 0:
            raise ValueError(f"{name} begins with sigma = 0, where nothing has a density: begin above, such as at 0.05")

    def times(self, t: Clock, x: Tensor, name: str = "t") -> Tensor:
        return as_times(t, x.shape[0], x.device, name)

    def tau(self, t: Clock, x: Tensor) -> Float[Tensor, "batch"]:
        return self.schedule.sigma(self.times(t, x)).square().double()

    def spread(self, value: Float[Tensor, "batch"], x: Tensor) -> Tensor:
        return value.reshape(-1, *[1] * (x.ndim - 1))

    def rate(self, t: Clock, x: Tensor) -> Tensor:
        """g^2."""
        return self.spread(self.schedule.diffusion(self.times(t, x)).to(x.dtype), x)

    def score_size(self, t: Clock, x: Tensor) -> Tensor:
        """u."""
        return (1 / (self.scale * torch.expm1(self.spread(self.tau(t, x), x) / self.scale))).sqrt()

    # laws

    def law(self, start: Tensor, tau: Tensor) -> CIRLaw:
        return CIRLaw(start, tau, self.alpha, self.scale)

    def prior(self, rows: int, dtype: torch.dtype | None = None, device: torch.device | str | None = None) -> GammaLaw:
        like = torch.empty(rows, *self.space.shape, dtype=dtype, device=device)
        return GammaLaw(self.alpha.to(like.device), self.scale.to(like.device).expand(like.shape), like)

    def marginal(self, x0: Tree, t: Clock) -> CIRLaw:
        x0 = self.space.check(x0, "x0")
        return self.law(x0, self.tau(t, x0))

    def transition(self, x_s: Tree, s: Clock, t: Clock) -> CIRLaw:
        x_s = self.space.check(x_s, "x_s")
        early, late = self.times(s, x_s, "s"), self.times(t, x_s)
        ordered(early, late)
        return self.law(x_s, self.schedule.step_variance(early, late))

    def posterior(self, x_t: Tensor, x0: Tensor, s: Clock, t: Clock) -> CIRBridge:
        x_t, x0 = self.space.check(x_t, "x_t"), self.space.check(x0, "x0")
        early, late = self.times(s, x_t, "s"), self.times(t, x_t)
        ordered(early, late)
        gone = self.schedule.step_variance(early, late)
        return CIRBridge(self.marginal(x0, early), self.law(x0, gone), x_t, gone)

    def prior_kl(self, x0: Tree, t: Clock = 1.0) -> Tensor:
        """By Gauss's nodes of every number, which are independent; numbers that often recur are looked at once."""
        x0 = self.space.check(x0, "x0")
        if self.alike is not None and isinstance(t, float) and may_read(x0) and not x0.requires_grad:
            different, places = x0.unique(return_inverse=True)
            if len(different) <= SEEN < x0.numel():
                one = CoxIngersollRoss((), *self.alike, self.schedule)
                return sum_coordinates(one.prior_kl(different, t)[places])
        law = self.marginal(x0, t)
        nodes, weight = self._rule(law)
        value = torch.zeros_like(law.centre)
        for x, w in zip(nodes, weight, strict=True):
            log_r = law.log_ratios(x)
            value = value + w * (log_r + law.stationary.log_probs(x)).exp() * log_r
        return sum_coordinates(value).clamp_min(0)

    def _rule(self, law: CIRLaw, count: int = NODES) -> tuple[Tensor, Tensor]:
        """Nodes and weights of dx [nodes, batch, *shape], in y = sqrt(2x/S), whose law is as wide as a normal one."""
        z, w = (torch.as_tensor(v, device=law.centre.device) for v in np.polynomial.legendre.leggauss(count))
        middle = (2 * law.centre).sqrt()
        low, high = (middle - REACH).clamp_min(0), middle + (2 * law.alpha).sqrt() + REACH
        half, each = (high - low) / 2, (-1, *[1] * low.ndim)
        y = low + half * (z.reshape(each) + 1)
        return law.width * y.square() / 2, law.width * y * half * w.reshape(each)

    def support(self, x0: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        dimension = self.space.dimension
        if dimension > 2:
            raise ValueError(f"an exact expectation over {self.space} is out of reach (two numbers at most): draw instead")
        law = self.marginal(x0, t)
        nodes, weight = self._rule(law, NODES if dimension == 1 else NODES_OF_TWO)
        density = torch.stack([law.log_ratios(x) + law.stationary.log_probs(x) for x in nodes])
        log_weight = weight.clamp_min(1e-300).log() + density
        if dimension == 1:
            return nodes.to(x0.dtype), log_weight.reshape(len(nodes), -1)
        rows = len(x0)
        first, second = torch.cartesian_prod(*[torch.arange(len(nodes), device=x0.device)] * 2).unbind(1)
        nodes, log_weight = nodes.reshape(len(nodes), rows, 2), log_weight.reshape(len(nodes), rows, 2)
        both = torch.stack([nodes[first, :, 0], nodes[second, :, 1]], -1)
        return both.reshape(-1, *x0.shape).to(x0.dtype), log_weight[first, :, 0] + log_weight[second, :, 1]

    # generators

    def local(self, x: Tensor, t: Clock) -> Local:
        rate = self.rate(t, x)
        return Local((0.5 * rate * (self.alpha - x / self.scale)).to(x.dtype), rate.expand_as(x))

    def reverse_local(self, x_t: Tensor, lines: Tensor, t: Clock) -> Local:
        """The generator run backwards under pi r, by l = x d log r."""
        rate = self.rate(t, x_t)
        drift = 0.5 * rate * (self.alpha - x_t / self.scale) + rate * lines
        return Local(drift.to(x_t.dtype), rate.expand_as(x_t))

    def conditioned_local(self, x_t: Tensor, x0: Tensor, t: Clock) -> Local:
        return self.reverse_local(x_t, self.marginal(x0, t).lines(x_t), t)

    def extra_repr(self) -> str:
        return f"{self.space}, alpha = {float(self.alpha.min()):g}, scale = {float(self.scale.max()):g}"
