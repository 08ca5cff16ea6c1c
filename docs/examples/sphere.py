"""A sphere of one's own, and Brownian motion on it given by its generator alone.

Points are unit vectors of R^3.  A generator on the sphere is a tangent drift b and a diffusion g^2 per row,

    L phi = b . grad phi + 1/2 g^2 Lap phi,

with the surface gradient and the Laplace-Beltrami operator.  For a function given around the sphere, with its ordinary
gradient D phi, its Hessian H and the projection P = 1 - x x^T onto the tangent plane,

    grad phi = P D phi,      Lap phi = tr(P H) - 2 x . D phi,      div v = tr(P D v).

Densities are of the surface measure: L* q = -div(b q) + 1/2 Lap(g^2 q), and reversed in time the drift is
-b + grad g^2 + g^2 grad log q.  A step goes along a great circle, so it stays on the sphere.

Brownian motion from a point m has the density p_t(x | m) = sum_l (2 l + 1)/(4 pi) e^{-l (l + 1) t/2} P_l(x . m).
"""

from math import pi

import numpy as np
import torch

import unnoise as un
from unnoise.verify import Operators

TERMS = 40  # of the series; from t = 0.05 on they leave out 1e-16
SPEED = 4.0  # g^2: time runs from 0 to 1, and Brownian motion from 0 to 4


class Sphere(un.Space):
    reference = "surface measure"
    shape = (3,)
    dimension = 2

    def check(self, x, name="x"):
        if x.shape[1:] != (3,) or not bool(((x.norm(dim=1) - 1).abs() < 1e-5).all()):
            raise ValueError(
                f"{name} has rows that are no unit vectors of R^3: pass {name} / {name}.norm(dim=1, keepdim=True)"
            )
        return x

    def project(self, x):
        return x / x.norm(dim=1, keepdim=True)

    def tangent(self, v, x):
        return v - (v * x).sum(1, keepdim=True) * x

    def act(self, local, phi, x):
        self.refuse_parts(local, log_rates="a sphere has no neighbours", jumps="no jumps are known here")
        gradient, laplacian = surface(phi, x)
        total = 0.5 * local.diffusion * laplacian if local.diffusion is not None else 0 * laplacian
        return total if local.drift is None else total + (local.drift * gradient).sum(1)

    def adjoint(self, field, q, x):
        def flux(y):
            drift = field(y).drift
            return 0 * y if drift is None else drift * q(y).unsqueeze(1)

        def spread(y):
            return field(y).diffusion * q(y)

        return 0.5 * surface(spread, x)[1] - surface_divergence(flux, x)

    def reverse(self, field, log_q, x):
        forward = field(x)
        back = surface(lambda y: field(y).diffusion + 0 * y[:, 0], x)[0]
        back = back + forward.diffusion.unsqueeze(1) * surface(log_q, x)[0]
        return un.Local(back if forward.drift is None else back - forward.drift, forward.diffusion)

    def freeze(self, local, x):
        drift = torch.zeros_like(x) if local.drift is None else local.drift
        return {"drift": drift, "diffusion": local.diffusion}

    def move(self, frozen, local, x, h, noise):
        """Along the great circle in the direction of h b + sqrt(h g^2) z, z normal in the tangent plane."""
        z = self.tangent(noise.normal((3,), x.dtype), x)
        step = h * frozen["drift"] + (h * frozen["diffusion"]).sqrt().unsqueeze(1) * z
        length = step.norm(dim=1, keepdim=True)
        return self.project(torch.cos(length) * x + torch.sinc(length / pi) * step)

    def divergence(self, true, model, x):
        gap = (true.drift - model.drift).square().sum(1)
        return torch.where(true.diffusion == model.diffusion, 0.5 * gap / true.diffusion, torch.inf)


def ordinary(phi, x):
    """D phi and the columns of its Hessian in R^3, by autograd; differentiable again where x is, for a reversed drift holds
    a score, and its adjoint the derivative of that."""
    with torch.enable_grad():
        again = x.requires_grad
        x = x if again else x.detach().clone().requires_grad_()
        value = phi(x)
        if not value.requires_grad:
            return torch.zeros_like(x), [torch.zeros_like(x)] * 3
        slope = torch.autograd.grad(value.sum(), x, create_graph=True)[0]
        columns = [
            torch.autograd.grad(slope[:, k].sum(), x, None, True, again)[0] if slope.requires_grad else 0 * x
            for k in range(3)
        ]
        return slope if again else slope.detach(), columns


def surface(phi, x):
    """The surface gradient and the Laplacian of a function."""
    slope, columns = ordinary(phi, x)
    hessian = torch.stack(columns, 1)
    trace = hessian.diagonal(dim1=1, dim2=2).sum(1) - torch.einsum("bi,bij,bj->b", x, hessian, x)
    return slope - (slope * x).sum(1, keepdim=True) * x, trace - 2 * (x * slope).sum(1)


def surface_divergence(field, x):
    """tr(P D v)."""
    rows = torch.stack([ordinary(lambda y, k=k: field(y)[:, k], x)[0] for k in range(3)], 1)  # D_j v_k
    return rows.diagonal(dim1=1, dim2=2).sum(1) - torch.einsum("bk,bkj,bj->b", x, rows, x)


def log_heat(cosine, t):
    """log p_t of Brownian motion on the sphere, by Legendre polynomials."""
    before, now = torch.ones_like(cosine), cosine
    total = 1 + 3 * torch.exp(-t) * cosine
    for n in range(2, TERMS):
        before, now = now, ((2 * n - 1) * cosine * now - (n - 1) * before) / n
        total = total + (2 * n + 1) * torch.exp(-n * (n + 1) * t / 2) * now
    return (total / (4 * pi)).clamp_min(1e-300).log()


POINTS = torch.tensor(
    [[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]], dtype=torch.float64
)  # the data: two places, with these probabilities
WEIGHTS = torch.tensor([0.25, 0.75], dtype=torch.float64)


class Brownian(un.Process):
    """Brownian motion of speed g^2 = 4: all that is said of it is the generator, and the law it ends in."""

    def __init__(self):
        super().__init__()
        self.space = self.state_space = Sphere()
        self.cutoff = 0.02

    def local(self, x, t):
        return un.Local(diffusion=torch.full((len(x),), SPEED, dtype=x.dtype))

    def log_marginal(self, x, t):
        t = SPEED * torch.as_tensor(t, dtype=x.dtype).reshape(-1, 1)
        return (log_heat(x @ POINTS.T, t) + WEIGHTS.log()).logsumexp(1)


class Exact(un.AnyDenoiser):
    """The reverse process of the two places."""

    def __init__(self):
        super().__init__()
        self.process = Brownian()

    def forward(self, x_t, t, /, **condition):
        return un.FromMarginal(self.process.log_marginal, self.process, x_t, t)


def generator():
    return Brownian().generator(0.5)


def operators():
    """For `unnoise verify --generator sphere:operators`: points at Gauss's heights and even angles, with their weights."""
    z, w = (torch.as_tensor(v) for v in np.polynomial.legendre.leggauss(24))
    angle = torch.arange(48, dtype=torch.float64) * 2 * pi / 48
    ring = (1 - z.square()).sqrt().unsqueeze(1)
    x = torch.stack([ring * angle.cos(), ring * angle.sin(), z.unsqueeze(1).expand(-1, 48)], -1)
    weights = (w.unsqueeze(1) * (2 * pi / 48)).expand(-1, 48)
    return Operators(generator(), x.reshape(-1, 3), lambda y: Brownian().log_marginal(y, 0.2), weights.flatten())
