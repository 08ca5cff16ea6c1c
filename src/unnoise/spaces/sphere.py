"""Spheres S^d of radius 1: unit vectors of R^(d+1).

A generator on the sphere is a tangent drift b and a diffusion g^2 of each row, [batch, 1],

    L phi = b . grad phi + 1/2 g^2 Lap phi

with the surface gradient and the Laplace-Beltrami operator.  For a function given around the sphere, with its ordinary
gradient D phi, its Hessian H and the projection P = 1 - x x^T onto the tangent plane,

    grad phi = P D phi,      Lap phi = tr(P H) - d x . D phi,      div b = tr(P D b).

The last term of the Laplacian is the curvature: the coordinates themselves fade, L x_i = -(d/2) g^2 x_i, as Brownian motion
forgets its place; without it, x would be a martingale and leave the sphere.  Densities are of the surface measure:

    L* q = -div(b q) + 1/2 Lap(g^2 q),      reversed in time under q: drift -b + grad g^2 + g^2 grad log q.

A step goes along a great circle, in the direction h b + sqrt(h g^2) z with z normal in the tangent plane: it stays on the
sphere, and its mean over z has the curvature to first order in h.
"""

from math import pi

import numpy as np
import torch
from torch import Tensor

from unnoise.checks import unread
from unnoise.laws import sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Float
from unnoise.spaces.base import ArraySpace, Field, Frozen, Function
from unnoise.spaces.euclidean import differentiable, diffusions_differ, drift_divergence
from unnoise.spaces.geodesic_step import GeodesicStep
from unnoise.spaces.local import Local
from unnoise.spaces.manifold import Manifold
from unnoise.sphere_laws import angle_between, log_volume

NO_JUMPS = "a sphere has no neighbours, and no jumps are known on it"
ROUNDING = 1e-4  # by which the length of a vector in single precision may differ from 1
SMALLEST = 1e-30


class Sphere(ArraySpace, Manifold):
    """Unit vectors of R^(d+1)."""

    reference = "surface measure"

    def __init__(self, d: int = 2):
        if isinstance(d, bool) or not isinstance(d, int) or d < 1:
            raise ValueError(f"d = {d!r}: a sphere has a whole dimension of at least 1, 2 for the globe")
        super().__init__((d + 1,))
        self.d = d

    @property
    def dimension(self) -> int:
        return self.d

    @property
    def entries(self) -> int:
        return self.d + 1

    @property
    def log_volume(self) -> float:
        return log_volume(self.d)

    def check(self, x: AnyState, name: str = "x") -> Tensor:
        x = self.check_shape(x, name)
        if not x.dtype.is_floating_point:
            raise TypeError(f"{name} has dtype {x.dtype}, but points of a sphere are floats: pass {name}.float()")
        if unread(x, self):
            off = ~((x.detach().norm(dim=-1) - 1).abs() < ROUNDING)
            if bool(off.any()):
                i = int(off.nonzero()[0, 0])
                raise ValueError(
                    f"row {i} of {name} has the length {float(x[i].detach().norm()):g}, and points of {self} are unit "
                    f"vectors: pass space.project({name}), and drop rows that are 0 or not finite"
                )
        return x

    def project(self, x: Tensor) -> Tensor:
        return x / x.norm(dim=-1, keepdim=True).clamp_min(SMALLEST)

    def tangent(self, v: Tensor, x: Tensor) -> Tensor:
        return v - (v * x).sum(-1, keepdim=True) * x

    def carry(self, x: Tensor, v: Tensor) -> Tensor:
        length = v.norm(dim=-1, keepdim=True)
        return self.project(torch.cos(length) * x + torch.sinc(length / pi) * v)

    def nodes(self, count: int) -> tuple[Tensor, Float[Tensor, "nodes"]]:
        """Even ones around a circle; on the globe Gauss's heights, twice as many around each.  A unit quaternion is a pair
        of complex numbers of the squares 1 - s and s: Gauss's s, twice as many around for either."""
        around = 2 * pi / (2 * count) * torch.arange(2 * count, dtype=torch.float64)
        ring = torch.stack([around.cos(), around.sin()], -1)
        if self.d == 1:
            return ring, torch.full((2 * count,), pi / count, dtype=torch.float64)
        if self.d > 3:
            return super().nodes(count)
        z, w = (torch.as_tensor(part) for part in np.polynomial.legendre.leggauss(count))
        if self.d == 3:
            first, second = (((1 + part) / 2).sqrt()[:, None, None] * ring for part in (-z, z))
            each = (count, 2 * count, 2 * count, 2)
            points = torch.cat([first[:, :, None].expand(each), second[:, None].expand(each)], -1)
            return points.reshape(-1, 4), (w * (pi / count) ** 2 / 4).repeat_interleave(4 * count**2)
        wide = (1 - z.square()).sqrt()[:, None, None] * ring
        points = torch.cat([wide, z[:, None, None].expand(-1, 2 * count, 1)], -1).reshape(-1, 3)
        return points, (w[:, None] * (pi / count)).expand(-1, 2 * count).flatten()

    def act(self, local: Local, phi: Function, x: Tensor) -> Float[Tensor, "batch"]:
        self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        gradient, laplacian = self.surface(phi, x)
        total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        if local.diffusion is not None:
            total = total + 0.5 * local.diffusion.squeeze(-1) * laplacian
        return total if local.drift is None else total + (local.drift * gradient).sum(-1)

    def adjoint(self, field: Field, q: Function, x: Tensor) -> Float[Tensor, "batch"]:
        self.refuse_parts(field(x), log_rates=NO_JUMPS, jumps=NO_JUMPS)

        def flux(y: Tensor) -> Tensor:
            drift = field(y).drift
            return 0.0 * y if drift is None else drift * q(y).unsqueeze(-1)

        def spread(y: Tensor) -> Tensor:
            diffusion = field(y).diffusion
            return 0.0 * y[:, 0] if diffusion is None else diffusion.squeeze(-1) * q(y)

        return 0.5 * self.surface(spread, x)[1] - self.surface_divergence(flux, x)

    def reverse(self, field: Field, log_q: Function, x: Tensor) -> Local:
        slope = None if field(x).diffusion is None else self.surface(log_q, x, second=False)[0]
        return self.backward(field, slope, x)

    def backward(self, field: Field, slope: Tensor | None, x: Tensor) -> Local:
        """Drift -b + grad g^2 + g^2 slope, the slope's tangent part."""
        forward = field(x)
        self.refuse_parts(forward, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        drift = None if forward.drift is None else -forward.drift
        if forward.diffusion is not None and slope is not None:

            def spread(y: Tensor) -> Tensor:
                return field(y).diffusion.squeeze(-1) + 0.0 * y[:, 0]  # type: ignore[union-attr]

            back = self.surface(spread, x, second=False)[0] + forward.diffusion * self.tangent(slope, x)
            drift = back if drift is None else drift + back
        return Local(drift, forward.diffusion)

    def slope_shape(self, x: Tensor) -> tuple[int, ...]:
        return tuple(x.shape)

    def tilt(self, local: Local, log_h: Function, x: Tensor) -> Local:
        """Drift b + g^2 grad log h."""
        self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        drift = local.drift
        if local.diffusion is not None:
            pull = local.diffusion * self.surface(log_h, x, second=False)[0]
            drift = pull if drift is None else drift + pull
        return Local(drift, local.diffusion)

    def freeze(self, local: Local, x: Tensor) -> Frozen:
        self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        drift = torch.zeros_like(x) if local.drift is None else local.drift
        diffusion = torch.zeros_like(x[:, :1]) if local.diffusion is None else local.diffusion
        return {"drift": drift, "diffusion": diffusion.expand(len(x), 1)}

    def move(self, frozen: Frozen, local: Local, x: Tensor, h: Tensor, noise: NoiseSource) -> Tensor:
        z = noise.normal(tuple(x.shape[1:]), x.dtype)
        step = (h * frozen["drift"]).to(x.dtype) + (h * frozen["diffusion"]).sqrt().to(x.dtype) * z
        return self.carry(x, self.tangent(step, x))

    def step_law(self, local: Local, x: Tensor, h: Tensor) -> GeodesicStep:
        frozen = self.freeze(local, x)
        return GeodesicStep(self, x, (h * frozen["drift"]).to(x.dtype), h * frozen["diffusion"][:, 0])

    def towards(self, x: Tensor, y: Tensor) -> Tensor:
        w = angle_between(y, x).unsqueeze(-1)
        return self.tangent(y, x) / torch.sinc(w / pi)

    def log_stretch(self, length: Tensor) -> Tensor:
        return (self.d - 1) * torch.sinc(length / pi).abs().clamp_min(SMALLEST).log()

    def divergence(self, true: Local, model: Local, x: Tensor) -> Float[Tensor, "batch"]:
        for local in (true, model):
            self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        total = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        if true.drift is not None or model.drift is not None:
            total = drift_divergence(true, model)
        return torch.where(diffusions_differ(true, model, x), torch.inf, sum_coordinates(total))

    def no_turn(self, turn: float | Tensor) -> str | None:
        if isinstance(turn, Tensor):
            return f"turn is a matrix, and on {self} all directions are alike: pass a number"
        return None if self.d == 2 else f"tangent vectors have a right angle to turn by on the globe alone, not on {self}"

    def turned(self, v: Tensor, x: Tensor, turn: float | Tensor) -> Tensor:
        """x cross v: of a gradient, its rotation around the surface, without divergence."""
        return turn * torch.linalg.cross(x.to(v.dtype), v)

    # derivatives along the surface, of functions that are given around it

    def surface(self, phi: Function, x: Tensor, second: bool = True) -> tuple[Tensor, Tensor]:
        """The surface gradient and the Laplacian (else zeros) of a function; differentiable again where x is."""
        with torch.inference_mode(False), torch.enable_grad():
            leaf, again = differentiable(x)
            value = phi(leaf)
            if not value.requires_grad:
                return torch.zeros_like(leaf), torch.zeros_like(leaf[:, 0])
            slope = torch.autograd.grad(value.sum(), leaf, create_graph=second or again)[0]
            columns = []
            for i in range(leaf.shape[-1] if second else 0):
                known = slope.requires_grad
                columns.append(torch.autograd.grad(slope[:, i].sum(), leaf, None, True, again)[0] if known else 0 * leaf)
            laplacian = torch.zeros_like(leaf[:, 0])
            if second:
                hessian = torch.stack(columns, 1)
                across = torch.einsum("bi,bij,bj->b", leaf, hessian, leaf)
                laplacian = hessian.diagonal(dim1=1, dim2=2).sum(1) - across - self.d * (leaf * slope).sum(1)
            gradient = self.tangent(slope, leaf)
            return (gradient, laplacian) if again else (gradient.detach(), laplacian.detach())

    def surface_divergence(self, field: Function, x: Tensor) -> Tensor:
        """tr(P D v) of a tangent field."""
        with torch.inference_mode(False), torch.enable_grad():
            leaf, again = differentiable(x)
            value, rows = field(leaf), []
            for i in range(leaf.shape[-1]):
                known = value.requires_grad
                rows.append(torch.autograd.grad(value[:, i].sum(), leaf, create_graph=True)[0] if known else 0 * leaf)
            slopes = torch.stack(rows, 1)
            total = slopes.diagonal(dim1=1, dim2=2).sum(1) - torch.einsum("bi,bij,bj->b", leaf, slopes, leaf)
            return total if again else total.detach()

    def __repr__(self) -> str:
        return f"Sphere({self.d})"
