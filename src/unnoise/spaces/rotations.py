"""Rotations of space, the group SO(3): matrices x with x^T x = 1 and det x = 1.

A tangent vector at x is x hat(a) with a vector a (`rotation_matrices`); its length is |a|, so that a rotation by the angle w
is w away.  The sum of squares of its entries is 2 |a|^2: products of tangent vectors are half of those of their entries.

With phi_i the derivative of phi along x hat(e_i), and phi_ii the second one along x exp(s hat(e_i)),

    grad phi = x hat(phi_1, phi_2, phi_3),      Lap phi = sum_i phi_ii,      div x hat(b) = sum_i (b_i)_i,

since the fields x hat(e_i) turn all of the space and have no divergence themselves.  A generator is a tangent drift and a
diffusion g^2 of each row, [batch, 1, 1],

    L phi = drift . grad phi + 1/2 g^2 Lap phi,           L* q = -div(drift q) + 1/2 Lap(g^2 q),

and as sum_i hat(e_i)^2 = -2, the entries of a matrix fade: L x = -g^2 x.  Densities are of the uniform (Haar) law, whose
mass is 1.

A step goes by x exp(hat(a)), a = h b + sqrt(h g^2) z with z normal in three dimensions: it stays in the space.
"""

from math import log

import torch
from torch import Tensor

from unnoise.checks import may_read, unread
from unnoise.noise import NoiseSource
from unnoise.rotation_matrices import angle_of, exponential, from_quaternions, hat, identity, nearest, to_quaternions, vee
from unnoise.shapes import AnyState, Float
from unnoise.spaces.base import ArraySpace, Field, Frozen, Function
from unnoise.spaces.euclidean import differentiable, diffusions_differ, drift_divergence
from unnoise.spaces.geodesic_step import SMALLEST, GeodesicStep
from unnoise.spaces.local import Local
from unnoise.spaces.manifold import Manifold
from unnoise.sphere_laws import rule

NO_JUMPS = "rotations have no neighbours, and no jumps are known on them"
ROUNDING = 1e-4  # by which x^T x of a matrix in single precision may differ from 1


class Rotations(ArraySpace, Manifold):
    """Rotation matrices, 3 x 3."""

    reference = "the uniform law of rotations"

    def __init__(self) -> None:
        super().__init__((3, 3))

    @property
    def dimension(self) -> int:
        return 3

    @property
    def entries(self) -> int:
        return 9

    @property
    def log_volume(self) -> float:
        return 0.0

    @staticmethod
    def from_quaternions(q: Float[Tensor, "batch 4"]) -> Float[Tensor, "batch 3 3"]:
        """The rotations of quaternions (w, x, y, z), the real part first."""
        if q.shape[-1] != 4:
            raise ValueError(f"quaternions of shape {tuple(q.shape)}: the last axis holds (w, x, y, z)")
        if may_read(q) and bool(((length := q.detach().norm(dim=-1)) < ROUNDING).any() | ~length.isfinite().all()):
            raise ValueError("a quaternion is 0 or not finite, and is no rotation: drop such rows")
        return from_quaternions(q)

    @staticmethod
    def to_quaternions(x: Float[Tensor, "batch 3 3"]) -> Float[Tensor, "batch 4"]:
        """Unit quaternions (w, x, y, z) with w >= 0."""
        return to_quaternions(x)

    def check(self, x: AnyState, name: str = "x") -> Tensor:
        x = self.check_shape(x, name)
        if not x.dtype.is_floating_point:
            raise TypeError(f"{name} has dtype {x.dtype}, but entries of rotations are floats: pass {name}.float()")
        if unread(x, self):
            held = x.detach().double()
            gap = (held.mT @ held - identity(held)).abs().amax((1, 2))
            off = ~((gap < ROUNDING) & (torch.linalg.det(held) > 0))
            if bool(off.any()):
                self._refuse(held, gap, int(off.nonzero()[0, 0]), name)
        return x

    def _refuse(self, x: Tensor, gap: Tensor, i: int, name: str) -> None:
        if float(gap[i]) < ROUNDING:
            why = "is a reflection, of determinant -1: exchange two of its axes, or turn one of them round"
        else:
            why = f"is no rotation, as x^T x differs from 1 by {float(gap[i]):g}"
        raise ValueError(
            f"row {i} of {name} {why}; pass space.project({name}) for the nearest rotations, and drop rows that are not "
            f"finite"
        )

    def project(self, x: Tensor) -> Tensor:
        return nearest(x)

    def tangent(self, v: Tensor, x: Tensor) -> Tensor:
        turned = x.mT @ v
        return 0.5 * (x @ (turned - turned.mT))

    def gradient(self, slope: Tensor, x: Tensor) -> Tensor:
        return 2 * self.tangent(slope, x)

    def carry(self, x: Tensor, v: Tensor) -> Tensor:
        """With one step of Newton's towards x^T x = 1, so that rounding does not add up."""
        moved = x @ exponential(vee(x.mT @ v))
        return 1.5 * moved - 0.5 * (moved @ (moved.mT @ moved))

    def nodes(self, count: int) -> tuple[Tensor, Float[Tensor, "nodes"]]:
        """Turns about z, y and z again: even angles of the first and the last, Gauss's cosines of the middle one; exact for
        waves of degree below 2 count."""
        place, weight = rule(count, torch.empty(0))
        around = torch.arange(2 * count, dtype=torch.float64) * (torch.pi / count)
        first, middle, last = (
            exponential(angle.unsqueeze(-1) * axis)
            for angle, axis in zip((around, (2 * place - 1).arccos(), around), identity(place)[[2, 1, 2]], strict=True)
        )
        points = first[:, None, None] @ middle[None, :, None] @ last[None, None, :]
        weights = weight[None, :, None].expand(points.shape[:3]) / (2 * count) ** 2
        return points.reshape(-1, 3, 3), weights.reshape(-1)

    def act(self, local: Local, phi: Function, x: Tensor) -> Float[Tensor, "batch"]:
        self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        slope, laplacian = self.derivatives(phi, x)
        total = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        if local.diffusion is not None:
            total = total + 0.5 * local.diffusion.reshape(-1) * laplacian
        return total if local.drift is None else total + (vee(x.mT @ local.drift) * slope).sum(-1)

    def adjoint(self, field: Field, q: Function, x: Tensor) -> Float[Tensor, "batch"]:
        self.refuse_parts(field(x), log_rates=NO_JUMPS, jumps=NO_JUMPS)

        def flux(y: Tensor) -> Tensor:
            drift = field(y).drift
            return 0.0 * y[:, 0] if drift is None else vee(y.mT @ drift) * q(y).unsqueeze(-1)

        def spread(y: Tensor) -> Tensor:
            diffusion = field(y).diffusion
            return 0.0 * y[:, 0, 0] if diffusion is None else diffusion.reshape(-1) * q(y)

        return 0.5 * self.derivatives(spread, x)[1] - self.turning_divergence(flux, x)

    def reverse(self, field: Field, log_q: Function, x: Tensor) -> Local:
        forward = field(x)
        self.refuse_parts(forward, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        drift = None if forward.drift is None else -forward.drift
        if forward.diffusion is not None:

            def spread(y: Tensor) -> Tensor:
                return field(y).diffusion.reshape(-1) + 0.0 * y[:, 0, 0]  # type: ignore[union-attr]

            slope = self.derivatives(log_q, x, second=False)[0] * forward.diffusion.reshape(-1, 1)
            back = x @ hat(self.derivatives(spread, x, second=False)[0] + slope).to(x.dtype)
            drift = back if drift is None else drift + back
        return Local(drift, forward.diffusion)

    def freeze(self, local: Local, x: Tensor) -> Frozen:
        self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        drift = torch.zeros_like(x) if local.drift is None else local.drift
        diffusion = torch.zeros_like(x[:, :1, :1]) if local.diffusion is None else local.diffusion
        return {"drift": drift, "diffusion": diffusion.expand(len(x), 1, 1)}

    def move(self, frozen: Frozen, local: Local, x: Tensor, h: Tensor, noise: NoiseSource) -> Tensor:
        z = self.tangent_normal(x, noise)
        step = (h * frozen["drift"]).to(x.dtype) + (h * frozen["diffusion"]).sqrt().to(x.dtype) * z
        return self.carry(x, step)

    def step_law(self, local: Local, x: Tensor, h: Tensor) -> GeodesicStep:
        frozen = self.freeze(local, x)
        return GeodesicStep(self, x, (h * frozen["drift"]).to(x.dtype), h * frozen["diffusion"].reshape(-1))

    def towards(self, x: Tensor, y: Tensor) -> Tensor:
        between = x.mT @ y
        return x @ hat(vee(between) / torch.sinc(angle_of(between) / torch.pi).unsqueeze(-1))

    def log_stretch(self, length: Tensor) -> Tensor:
        """Of the uniform law's mass 1: all rotations have the volume 8 pi^2."""
        return 2 * torch.sinc(length / (2 * torch.pi)).abs().clamp_min(SMALLEST).log() - log(8 * torch.pi**2)

    def square_length(self, v: Tensor) -> Float[Tensor, "batch"]:
        return 0.5 * super().square_length(v)

    def tangent_normal(self, x: Tensor, noise: NoiseSource) -> Tensor:
        return x @ hat(noise.normal((3,), x.dtype))

    def divergence(self, true: Local, model: Local, x: Tensor) -> Float[Tensor, "batch"]:
        """Half of what the entries say: the length of x hat(a) is |a|."""
        for local in (true, model):
            self.refuse_parts(local, log_rates=NO_JUMPS, jumps=NO_JUMPS)
        total = torch.zeros(len(x), dtype=x.dtype, device=x.device)
        if true.drift is not None or model.drift is not None:
            total = 0.5 * drift_divergence(true, model)
        return torch.where(diffusions_differ(true, model, x), torch.inf, total)

    # derivatives along the turns x hat(e_i), of functions that are given around the space

    def derivatives(self, phi: Function, x: Tensor, second: bool = True) -> tuple[Float[Tensor, "batch 3"], Tensor]:
        """phi_i and sum_i phi_ii (else zeros) of a function; differentiable again where x is."""
        with torch.inference_mode(False), torch.enable_grad():
            turned, a, again = self._turned(x)
            value = phi(turned)
            if not value.requires_grad:
                return torch.zeros_like(a), torch.zeros_like(a[:, 0])
            slope = torch.autograd.grad(value.sum(), a, create_graph=second or again, materialize_grads=True)[0]
            laplacian = torch.zeros_like(a[:, 0])
            for i in range(3 if second and slope.requires_grad else 0):
                laplacian = laplacian + torch.autograd.grad(slope[:, i].sum(), a, None, True, again)[0][:, i]
            return (slope, laplacian) if again else (slope.detach(), laplacian.detach())

    def turning_divergence(self, field: Function, x: Tensor) -> Tensor:
        """sum_i (b_i)_i of x hat(b), b the function."""
        with torch.inference_mode(False), torch.enable_grad():
            turned, a, again = self._turned(x)
            value, total = field(turned), torch.zeros_like(a[:, 0])
            for i in range(3 if value.requires_grad else 0):
                slopes = torch.autograd.grad(value[:, i].sum(), a, create_graph=True, materialize_grads=True)[0]
                total = total + slopes[:, i]
            return total if again else total.detach()

    @staticmethod
    def _turned(x: Tensor) -> tuple[Tensor, Tensor, bool]:
        """x exp(hat(a)) to second order in a, a leaf at 0, and whether what follows is differentiated again."""
        base, again = differentiable(x)
        a = torch.zeros(len(x), 3, dtype=x.dtype, device=x.device, requires_grad=True)
        skew = hat(a)
        return base @ (identity(x) + skew + 0.5 * skew @ skew), a, again

    def __repr__(self) -> str:
        return "Rotations()"
