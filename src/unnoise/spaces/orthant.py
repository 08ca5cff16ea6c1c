"""Positive numbers, each under a noise that is the smaller the nearer it is to zero.

A generator is a drift b and a rate g^2 of the noise, of any shape that fits,

    L phi = sum_i [b_i d_i phi + 1/2 g^2 x_i d_i^2 phi],      L* q = sum_i [-d_i (b_i q) + 1/2 d_i^2 (g^2 x_i q)],
    reversed in time under q: drift -b + g^2 + x d g^2 + g^2 x d log q.

Two drifts are 1/2 sum (b - b')^2/(g^2 x) apart.  A step of the length h is a Gamma law of the mean m = x + h b and the
variance h g^2 m, and stays positive.  Densities are of the Lebesgue measure.
"""

import torch
from torch import Tensor

from unnoise.checks import unread
from unnoise.gamma_laws import LEAST, GammaLaw
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Float
from unnoise.spaces.base import ArraySpace, Field, Frozen, Function
from unnoise.spaces.euclidean import differentiable, diffusions_differ
from unnoise.spaces.local import Local

NO_JUMPS = "no jumps are known on the orthant"


class Orthant(ArraySpace):
    """Arrays of numbers above zero."""

    reference = "Lebesgue measure"

    def check(self, x: AnyState, name: str = "x") -> Tensor:
        x = self.check_shape(x, name)
        if not x.dtype.is_floating_point:
            raise TypeError(f"{name} has dtype {x.dtype}, but positive numbers are floats: pass {name}.float()")
        if unread(x, self):
            wrong = ~((x.detach() >= 0) & x.detach().isfinite())
            if bool(wrong.any()):
                found = float(x.detach()[wrong][0])
                remedy = (
                    "drop or impute what is not finite"
                    if found >= 0 or found != found
                    else "shift or leave out what is below 0"
                )
                raise ValueError(f"{name} has the number {found:g}, and numbers of {self} are at least 0: {remedy}")
        return x

    def project(self, x: Tensor) -> Tensor:
        """Numbers below zero are cut to the smallest that is told from it."""
        return x.clamp_min(LEAST)

    def act(self, local: Local, phi: Function, x: Tensor) -> Float[Tensor, "batch"]:
        self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        with torch.inference_mode(False), torch.enable_grad():
            leaf, again = differentiable(x)
            slope = _slope(phi(leaf), leaf)
            total = torch.zeros_like(slope) if local.drift is None else local.drift * slope
            if local.diffusion is not None:
                total = total + 0.5 * local.diffusion * leaf * _own_slopes(slope, leaf)
            total = total.flatten(1).sum(1) if total.ndim > 1 else total
            return total if again else total.detach()

    def adjoint(self, field: Field, q: Function, x: Tensor) -> Float[Tensor, "batch"]:
        self.refuse_parts(field(x), log_rates=NO_JUMPS, jumps=NO_JUMPS)
        with torch.inference_mode(False), torch.enable_grad():
            leaf, again = differentiable(x)
            local, density = field(leaf), q(leaf).reshape(-1, *[1] * (x.ndim - 1))
            current = torch.zeros_like(leaf) if local.drift is None else local.drift * density
            if local.diffusion is not None:
                current = current - 0.5 * _own_slopes(local.diffusion * leaf * density, leaf)
            total = -_own_slopes(current, leaf)
            total = total.flatten(1).sum(1) if total.ndim > 1 else total
            return total if again else total.detach()

    def reverse(self, field: Field, log_q: Function, x: Tensor) -> Local:
        with torch.inference_mode(False), torch.enable_grad():
            leaf, again = differentiable(x)
            slope = _slope(log_q(leaf), leaf)
        return self.backward(field, slope if again else slope.detach(), x)

    def backward(self, field: Field, slope: Tensor, x: Tensor) -> Local:
        forward = field(x)
        self.refuse_parts(forward, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        drift = None if forward.drift is None else -forward.drift
        if forward.diffusion is not None:
            with torch.inference_mode(False), torch.enable_grad():
                leaf, again = differentiable(x)
                change = _own_slopes((field(leaf).diffusion + 0.0 * leaf) * leaf, leaf)  # type: ignore[operator]
            back = (change if again else change.detach()) + forward.diffusion * x * slope
            drift = back if drift is None else drift + back
        return Local(drift, forward.diffusion)

    def slope_shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def freeze(self, local: Local, x: Tensor) -> Frozen:
        self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        zero = torch.zeros_like(x)
        drift = zero if local.drift is None else local.drift
        return {"drift": drift, "diffusion": zero if local.diffusion is None else local.diffusion.expand_as(x)}

    def move(self, frozen: Frozen, local: Local, x: Tensor, h: Tensor, noise: NoiseSource) -> Tensor:
        spread = h * frozen["diffusion"]
        return torch.where(spread > 0, self._law(frozen, x, h).draw(noise), self._mean(frozen, x, h).to(x.dtype))

    def step_law(self, local: Local, x: Tensor, h: Tensor) -> GammaLaw:
        return self._law(self.freeze(local, x), x, h)

    def _law(self, frozen: Frozen, x: Tensor, h: Tensor) -> GammaLaw:
        spread = (h * frozen["diffusion"]).double().clamp_min(1e-12)
        return GammaLaw(self._mean(frozen, x, h) / spread, spread, x)

    def _mean(self, frozen: Frozen, x: Tensor, h: Tensor) -> Tensor:
        return (x.double() + h * frozen["drift"].double()).clamp_min(LEAST)

    def divergence(self, true: Local, model: Local, x: Tensor) -> Float[Tensor, "batch"]:
        for local in (true, model):
            self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        first, second = (torch.zeros_like(x) if local.drift is None else local.drift for local in (true, model))
        gap = (first - second).flatten(1) if x.ndim > 1 else (first - second).unsqueeze(-1)
        if true.diffusion is None:
            total = torch.where((gap != 0).any(-1), torch.inf, 0.0)
        else:
            spread = (true.diffusion * x.clamp_min(LEAST)).reshape(gap.shape)
            total = 0.5 * (gap.square() / spread).sum(-1)
        return torch.where(diffusions_differ(true, model, x), torch.inf, total)


def _slope(value: Tensor, leaf: Tensor) -> Tensor:
    """The gradient of one number per row, differentiable again; 0 of what does not depend on it."""
    if not value.requires_grad:
        return torch.zeros_like(leaf)
    found = torch.autograd.grad(value.sum(), leaf, create_graph=True, allow_unused=True)[0]
    return torch.zeros_like(leaf) if found is None else found


def _own_slopes(field: Tensor, leaf: Tensor) -> Tensor:
    """d field_i/dx_i of each coordinate."""
    if leaf.ndim == 1:
        return _slope(field, leaf)
    flat = field.expand_as(leaf).flatten(1)
    each = [_slope(flat[:, i], leaf).flatten(1)[:, i] for i in range(flat.shape[1])]
    return torch.stack(each, 1).reshape(leaf.shape)
