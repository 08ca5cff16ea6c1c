"""Real numbers.

    L phi  = b . grad phi + 1/2 tr(a grad^2 phi)
    L* q   = -div(b q) + 1/2 sum_k d_k^2 (a_k q)                                                          (eq:KFE-eq)
    reversed under q: drift -b + div a + a grad log q, the same a                                 (eq:reversed-generator)

by autograd.  Correlated noise, a = L diag(g^2) L^T, is independent in the coordinates y = L^-1 x, where the second-order
parts are taken:

    tr(a grad^2 phi) = sum_k g_k^2 d^2/dy_k^2 phi(L y),    sum_ij d_i d_j (a_ij q) = sum_k d^2/dy_k^2 [g_k^2 q](L y),
    div a + a grad log q = L [d/dy_k g_k^2 + g_k^2 d/dy_k log q(L y)].

A frozen generator moves x to x + h b + sqrt(h a) z, and with jumps to anywhere one of them comes first with probability
1 - exp(-h total): whether, then where.

A space whose points are numbers but that closes on itself (an angle) subclasses this one and says `project`.
"""

from dataclasses import replace
from math import isfinite

import torch
from torch import Tensor

from unnoise.checks import unread, within
from unnoise.covariance import Covariance
from unnoise.laws import Law, Normal, draw_categories, log_of, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Bool, Float
from unnoise.spaces.base import (
    ArraySpace,
    Field,
    Frozen,
    Function,
    flat,
    kernel_action,
    kernel_adjoint,
    kernel_divergence,
    rows_like,
)
from unnoise.spaces.local import Local, ReversedJumps, TiltedJumps

NO_NEIGHBOURS = "numbers have no neighbours; give jumps=, a JumpKernel"
LARGEST = torch.finfo(torch.float64).max
DIGITS = 64.0  # units of rounding by which two diffusions may differ and be one


class Euclidean(ArraySpace):
    """Real numbers in an array of the given shape."""

    reference = "Lebesgue measure"

    def check(self, x: AnyState, name: str = "x") -> Tensor:
        x = self.check_shape(x, name)
        if not x.dtype.is_floating_point:
            raise TypeError(
                f"{name} has dtype {x.dtype}, but a {type(self).__name__} space holds floats: pass {name}.float()"
            )
        if unread(x, self) and not isfinite(x.detach().sum().item()) and not within(x, -LARGEST, LARGEST):
            i = (~x.isfinite()).nonzero()[0].tolist()
            away = (
                "; where a sampler came here, it ran away: guide less, or take more steps" if name.startswith("x_t") else ""
            )
            raise ValueError(f"{name}{i} is {x[tuple(i)].item()}; drop or impute non-finite values first{away}")
        return x

    def project(self, x: Tensor) -> Tensor:
        return x

    def act(self, local: Local, phi: Function, x: Tensor) -> Float[Tensor, "batch"]:
        self.refuse_parts(local, log_rates=NO_NEIGHBOURS)
        self.check_parts(local, x)
        total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        if local.drift is not None or local.diffusion is not None:
            gradient, curvature = derivatives(*whitened(phi, x, local.covariance))
            if local.drift is not None:
                drift = local.drift if local.covariance is None else local.covariance.whiten(local.drift)
                total = total + sum_coordinates(drift * gradient)
            if local.diffusion is not None:
                total = total + sum_coordinates(0.5 * local.diffusion * curvature)
        return total if local.jumps is None else total + kernel_action(local.jumps, phi, x)

    def adjoint(self, field: Field, q: Function, x: Tensor) -> Float[Tensor, "batch"]:
        here = field(x)
        self.refuse_parts(here, log_rates=NO_NEIGHBOURS)

        def flux(y: Tensor) -> Tensor:
            drift = field(y).drift
            return 0.0 * y if drift is None else drift * rows_like(q(y), drift)

        def spread(y: Tensor) -> Tensor:
            diffusion = field(y).diffusion
            return 0.0 * y if diffusion is None else diffusion * rows_like(q(y), y) + 0.0 * y

        total = -sum_coordinates(diagonal(flux, x, order=1))
        total = total + 0.5 * sum_coordinates(diagonal(*whitened(spread, x, here.covariance), order=2))
        return total if here.jumps is None else total + kernel_adjoint(here.jumps, q, x)

    def reverse(self, field: Field, log_q: Function, x: Tensor) -> Local:
        forward = field(x)
        self.refuse_parts(forward, log_rates=NO_NEIGHBOURS)
        slope = None
        if forward.diffusion is not None:
            slope = derivatives(*whitened(log_q, x, forward.covariance), second=False)[0]
        back = self._turned(forward, field, slope, x)
        return back if forward.jumps is None else replace(back, jumps=ReversedJumps(forward.jumps, log_q))

    def backward(self, field: Field, slope: Tensor, x: Tensor) -> Local:
        """Drift -b + div a + a slope; with correlated noise the slope is that in the whitened coordinates."""
        forward = field(x)
        self.refuse_parts(forward, log_rates=NO_NEIGHBOURS, jumps="a slope says nothing of far places; say log q itself")
        return self._turned(forward, field, slope, x)

    def slope_shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def _turned(self, forward: Local, field: Field, slope: Tensor | None, x: Tensor) -> Local:
        a, covariance = forward.diffusion, forward.covariance
        drift = None if forward.drift is None else -forward.drift
        if a is not None and slope is not None:

            def spread(y: Tensor) -> Tensor:
                return field(y).diffusion + 0.0 * y  # type: ignore[operator]

            back = diagonal(*whitened(spread, x, covariance), order=1) + a * slope
            back = back if covariance is None else covariance.colour(back)
            drift = back if drift is None else drift + back
        return Local(drift, a, covariance=covariance)

    def tilt(self, local: Local, log_h: Function, x: Tensor) -> Local:
        """Drift b + a grad log h; jumps J(x, y) h(y)/h(x)."""
        self.refuse_parts(local, log_rates=NO_NEIGHBOURS)
        drift, a, covariance = local.drift, local.diffusion, local.covariance
        if a is not None:
            pull = a * derivatives(*whitened(log_h, x, covariance), second=False)[0]
            pull = pull if covariance is None else covariance.colour(pull)
            drift = pull if drift is None else drift + pull
        jumps = None if local.jumps is None else TiltedJumps(local.jumps, log_h)
        return Local(drift, a, covariance=covariance, jumps=jumps)

    def freeze(self, local: Local, x: Tensor) -> Frozen:
        self.refuse_parts(local, log_rates=NO_NEIGHBOURS)
        self.check_parts(local, x)
        drift = torch.zeros_like(x) if local.drift is None else local.drift
        diffusion = torch.zeros_like(x) if local.diffusion is None else local.diffusion
        return {"drift": drift, "diffusion": diffusion.expand_as(x)}

    def check_parts(self, local: Local, x: Tensor) -> None:
        """A drift or a diffusion that is no array of the states' shape would be spread over other rows."""
        for name, part in (("drift", local.drift), ("diffusion", local.diffusion)):
            if part is None or part.shape == x.shape:
                continue
            lengths = zip(reversed(part.shape), reversed(x.shape), strict=False)
            if part.ndim > x.ndim or any(own not in (1, wanted) for own, wanted in lengths):
                raise ValueError(
                    f"the generator has a {name} of shape {tuple(part.shape)} at states of shape {tuple(x.shape)}: return "
                    f"one number for each coordinate of each row, shape {tuple(x.shape)}"
                )

    def move(self, frozen: Frozen, local: Local, x: Tensor, h: Tensor, noise: NoiseSource) -> Tensor:
        start = x if local.jumps is None else local.jumps.leap(x, h, noise.at("jump"))
        z = noise.normal(tuple(x.shape[1:]), x.dtype)
        spread = (h * frozen["diffusion"]).sqrt().to(x.dtype) * z
        step = (h * frozen["drift"]).to(x.dtype)
        return self.project(start + step + (spread if local.covariance is None else local.covariance.colour(spread)))

    def step_law(self, local: Local, x: Tensor, h: Tensor) -> Law:
        frozen = self.freeze(local, x)
        still = Normal(x + h * frozen["drift"], (h * frozen["diffusion"]).sqrt(), local.covariance)
        if local.jumps is None:
            return still
        y, rates = local.jumps.rates(x)
        return JumpThenStep(still, y - x.unsqueeze(1), rates, h)

    def along(self, slope: Tensor, law: Law, x: Tensor, y: Tensor) -> Float[Tensor, "batch"]:
        """slope . (y - E y); of a slope in the whitened coordinates the step there."""
        step: Normal = law  # type: ignore[assignment]  # there are no jumps where slopes say the reverse
        gap = y - step.mean
        return sum_coordinates(slope * (gap if step.covariance is None else step.covariance.whiten(gap)))

    def divergence(self, true: Local, model: Local, x: Tensor) -> Float[Tensor, "batch"]:
        for local in (true, model):
            self.refuse_parts(local, log_rates=NO_NEIGHBOURS)
        total = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        if true.drift is not None or model.drift is not None:
            total = drift_divergence(true, model)
        if true.jumps is not None or model.jumps is not None:
            total = total + kernel_divergence(true.jumps, model.jumps, x)
        if true.diffusion is model.diffusion and true.covariance is model.covariance:
            return total
        return torch.where(diffusions_differ(true, model, x), torch.inf, total)

    def no_turn(self, turn: float | Tensor) -> str | None:
        d = self.dimension
        if isinstance(turn, Tensor):
            return (
                None if tuple(turn.shape) == (d, d) else f"turn has shape {tuple(turn.shape)}, and {self} wants ({d}, {d})"
            )
        why = "nothing turns in one dimension" if d == 1 else f"pass an antisymmetric matrix of ({d}, {d})"
        return None if d == 2 else f"turn = {turn:g} is for two dimensions, and {self} has {d}: {why}"

    def turned(self, v: Tensor, x: Tensor, turn: float | Tensor) -> Tensor:
        """A v, with a constant A."""
        matrix = turn if isinstance(turn, Tensor) else torch.tensor([[0.0, -turn], [turn, 0.0]], dtype=torch.float64)
        return (v.reshape(len(v), -1) @ matrix.to(v.dtype).to(v.device).T).reshape(v.shape)

    def coordinate(self, local: Local, x: Tensor, k: int | None) -> Local:
        if local.covariance is not None:
            raise ValueError(
                f"the noise is correlated ({local.covariance}): its coordinates do not decouple, and no part of the "
                f"generator moves one alone"
            )
        self.refuse_parts(local, jumps="a jump to anywhere moves all coordinates at once")

        def keep(value: Tensor | None) -> Tensor | None:
            if value is None:
                return None
            columns = flat(value.expand(x.shape))
            chosen = torch.arange(columns.shape[1], device=x.device) == (-1 if k is None else k)
            return torch.where(chosen, columns, 0.0).reshape(x.shape)

        return Local(keep(local.drift), keep(local.diffusion))


class JumpThenStep(Law):
    """A step that begins with a jump, or with none: the normal law of the step from where the jump leads, over the nodes
    that it may lead to."""

    def __init__(self, still: Normal, jumps: Float[Tensor, "batch nodes *shape"], rates: Tensor, h: Tensor):
        self.still, self.jumps, self.rates = still, jumps, rates.double()
        self.events = h * self.rates.sum(1)

    def log_prob(self, x: Tensor) -> Float[Tensor, "batch"]:
        share = log_of(self.rates) - log_of(self.rates.sum(1, keepdim=True))
        leaves = log_of(-torch.expm1(-self.events)).unsqueeze(1) + share
        there = self._moved().log_prob(x.repeat_interleave(self.jumps.shape[1], 0)).reshape(share.shape)
        stays = self.still.log_prob(x) - self.events
        return torch.logsumexp(torch.cat([stays.unsqueeze(1).double(), leaves + there.double()], 1), 1)

    def _moved(self) -> Normal:
        """After each of the jumps, one after another."""
        std = self.still.std.expand_as(self.still.mean).unsqueeze(1).expand_as(self.jumps)
        return Normal((self.still.mean.unsqueeze(1) + self.jumps).flatten(0, 1), std.flatten(0, 1), self.still.covariance)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError("the divergence of two steps with jumps has no closed form: take it along paths")

    def draw(self, noise: NoiseSource) -> Tensor:
        leaves = noise.at("jump", "whether").uniform() < -torch.expm1(-self.events)
        which = draw_categories(log_of(self.rates), noise.at("jump", "where"))
        moved = self.still.draw(noise)
        jump = self.jumps[torch.arange(len(which), device=which.device), which]
        return torch.where(rows_like(leaves, moved), moved + jump, moved)


def drift_divergence(true: Local, model: Local) -> Float[Tensor, "batch"]:
    """1/2 gap . a^-1 gap (eq:score-diff-squared); infinite where there is a gap and no diffusion."""
    first, second = (0.0 if local.drift is None else local.drift for local in (true, model))
    gap: Tensor = first - second  # type: ignore[assignment,operator]
    if true.covariance is not None:
        gap = true.covariance.whiten(gap)
    if true.diffusion is None:
        return sum_coordinates(torch.zeros_like(gap).masked_fill(gap != 0, torch.inf))
    a = true.diffusion.expand_as(gap)
    quotient = torch.where(gap == 0, 0.0, 0.5 * gap.square() / torch.where(a == 0, 1.0, a))
    return sum_coordinates(torch.where((a == 0) & (gap != 0), torch.inf, quotient))


def diffusions_differ(true: Local, model: Local, x: Tensor) -> Bool[Tensor, "batch"]:
    """Where two diffusions differ by more than rounding."""
    if true.covariance is not model.covariance and not same_covariance(true.covariance, model.covariance):
        return torch.ones(len(x), dtype=torch.bool, device=x.device)
    first, second = (torch.zeros_like(x) if a.diffusion is None else a.diffusion.expand_as(x) for a in (true, model))
    limit = DIGITS * max(torch.finfo(first.dtype).eps, torch.finfo(second.dtype).eps)
    differs = (first - second).abs() > limit * torch.maximum(first.abs(), second.abs())
    return flat(differs).any(1)


def same_covariance(first: Covariance | None, second: Covariance | None) -> bool:
    if first is None or second is None or type(first) is not type(second):
        return False
    return first.root.shape == second.root.shape and torch.allclose(first.root, second.root, rtol=1e-12, atol=0)


def whitened(function: Function, x: Tensor, covariance: Covariance | None) -> tuple[Function, Tensor]:
    """A function and a state in the coordinates y = L^-1 x."""
    if covariance is None:
        return function, x
    return lambda y: function(covariance.colour(y)), covariance.whiten(x)


def derivatives(phi: Function, x: Tensor, second: bool = True) -> tuple[Tensor, Tensor]:
    """Gradient and diagonal of the Hessian of phi; differentiable again where x is."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf, again = differentiable(x)
        value = phi(leaf)
        if not value.requires_grad:
            return torch.zeros_like(leaf), torch.zeros_like(leaf)
        gradient = torch.autograd.grad(value.sum(), leaf, create_graph=second or again)[0]
        if not second:
            return gradient, gradient
        columns = []
        for column in flat(gradient).unbind(1):
            known = column.requires_grad
            columns.append(torch.autograd.grad(column.sum(), leaf, None, True, again)[0] if known else 0 * leaf)
        k = range(len(columns))
        curvature = torch.stack([flat(columns[i])[:, i] for i in k], 1).reshape(leaf.shape)
        return (gradient, curvature) if again else (gradient.detach(), curvature.detach())


def differentiable(x: Tensor) -> tuple[Tensor, bool]:
    """A leaf to differentiate by, and whether what follows is differentiated again: the drift of a reversed generator
    holds a score, and its adjoint the derivative of that."""
    return (x, True) if x.requires_grad else (x.detach().clone().requires_grad_(), False)


def diagonal(field: Function, x: Tensor, order: int) -> Tensor:
    """d^order field_k / dx_k^order for each coordinate k."""
    with torch.inference_mode(False), torch.enable_grad():
        leaf, again = differentiable(x)
        value = flat(field(leaf))
        out = []
        for i in range(value.shape[1]):
            entry = value[:, i]
            for _ in range(order):
                if not entry.requires_grad:
                    entry = torch.zeros_like(entry)
                    break
                entry = flat(torch.autograd.grad(entry.sum(), leaf, create_graph=True)[0])[:, i]
            out.append(entry if again else entry.detach())
        return torch.stack(out, 1).reshape(leaf.shape)
