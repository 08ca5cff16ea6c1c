"""The law of a model's own reverse process where states are points of a circle, a globe or a segment.

A bound is above -log p of the law that the model's reverse process and decoder really have (eq:marginal-path-inequality).
Here this law is found by Galerkin's method.  With functions phi_k that are orthonormal under the prior pi, phi_0 = 1, the
law p = pi sum_k c_k phi_k starts from c = (1, 0, 0, ...) and obeys, down in time,

    dc_j/ds = sum_k A_jk c_k,      A_jk = int phi_k L phi_j dpi,

L being the model's reverse generator: all that is asked of it is its drift and its diffusion at nodes.  On a circle phi are
waves, on the globe spherical harmonics, on the simplex of two parts the polynomials that are orthogonal under the
prior.  Integrals over the space are sums over nodes, steps in time are Gauss's implicit ones of order
4: for what is smooth the law is right to rounding, and what is left of both is seen where the denoiser is exact, whose law
is the data's own.

At the cut-off the law is decoded around each data point, by the process's own nodes there,

    p(x_0) = int p(x_0 | y) p_eps(y) dy = E_{y ~ q_eps(. | x_0)} p(x_0 | y) p_eps(y)/q_eps(y | x_0).
"""

from collections.abc import Callable, Iterator
from functools import singledispatch
from typing import cast

import numpy as np
import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.objectives.decoders import Decoder
from unnoise.oracles import Oracle
from unnoise.processes import Process, SphereHeat, WrappedNormal, WrightFisher
from unnoise.shapes import Float
from unnoise.spaces import Local
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject

Basis = list[Callable[[Tensor], Tensor]]
WAVES, DEGREE, SHARES = 28, 11, 44  # functions: of a circle (twice), of the globe, of a share
NODES, GLOBE = 100, 20  # of a line, and of heights on the globe
STEPS = 64  # from the prior to the cut-off
SEEN, ACCURATE, SAME = 1e-3, 1e-5, 1e-4  # densities that are compared; errors of -log p there, and with the prior's mismatch


@singledispatch
def nodes_and_functions(process: Process) -> tuple[Tensor, Float[Tensor, "nodes"], Basis]:
    """Points, their weights in the space's reference measure, and functions up to the prior's own normalisation."""
    raise NotImplementedError(f"no functions are known on {process.space} by which a wrong network's law could be found")


@nodes_and_functions.register
def _(process: WrappedNormal) -> tuple[Tensor, Tensor, Basis]:
    if process.space.dimension > 1:
        raise NotImplementedError(f"the law of a wrong network on {process.space} takes too long here")
    points, weights = process.space.nodes(NODES)
    return points, weights, _waves(lambda x: x.reshape(len(x)))


@nodes_and_functions.register
def _(process: SphereHeat) -> tuple[Tensor, Tensor, Basis]:
    if process.space.d == 1:
        points, weights = process.space.nodes(NODES // 2)
        return points, weights, _waves(lambda x: torch.atan2(x[:, 1], x[:, 0]))
    if process.space.d > 2:
        raise NotImplementedError(f"the law of a wrong network on {process.space} takes too long here")
    points, weights = process.space.nodes(GLOBE)
    return points, weights, [_harmonic(n, m) for n in range(DEGREE + 1) for m in range(-n, n + 1)]


@nodes_and_functions.register
def _(process: WrightFisher) -> tuple[Tensor, Tensor, Basis]:
    if process.space.dimension > 1:
        raise NotImplementedError(f"the law of a wrong network on {process.space} takes too long here")
    z, share = (torch.as_tensor(part) for part in np.polynomial.legendre.leggauss(NODES))
    w = torch.pi / 2 * (z + 1)  # x_1 = sin^2(w/2), in which also fractional powers of the prior are smooth
    points = torch.stack([(w / 2).sin().square(), (w / 2).cos().square()], 1)
    weights = torch.pi / 2 * share * 0.5 * w.sin()
    return points, weights, _polynomials(process, points, weights, SHARES)


def _waves(angle: Callable[[Tensor], Tensor]) -> Basis:
    def wave(k: int, shift: float) -> Callable[[Tensor], Tensor]:
        return lambda x: torch.cos(k * angle(x) - shift)

    return [wave(0, 0.0)] + [wave(k, shift) for k in range(1, WAVES + 1) for shift in (0.0, torch.pi / 2)]


def _harmonic(n: int, m: int) -> Callable[[Tensor], Tensor]:
    """Of degree n: the derivative of Legendre's polynomial in the height times a wave around, up to a factor."""
    order = abs(m)
    height = np.polynomial.legendre.leg2poly(np.polynomial.legendre.legder([0] * n + [1], order))

    def harmonic(x: Tensor) -> Tensor:
        value, around = torch.zeros_like(x[:, 2]), torch.complex(x[:, 0], x[:, 1]) ** order
        for coefficient in reversed(height.tolist()):
            value = value * x[:, 2] + coefficient
        return value * (around.imag if m < 0 else around.real)

    return harmonic


def _polynomials(process: Process, points: Tensor, weights: Tensor, count: int) -> Basis:
    """Of the first entry, orthonormal under the prior: b_k p_k = (x - a_k) p_{k-1} - b_{k-1} p_{k-2}."""
    mass = weights * process.prior(len(points), torch.float64).log_prob(points).exp()
    x = points.reshape(len(points), -1)[:, 0]
    columns, steps = [torch.ones_like(x) / mass.sum().sqrt()], []
    for _ in range(count):
        value = x * columns[-1]
        middle = (mass * value * columns[-1]).sum()
        for _ in range(2):
            for column in columns:
                value = value - (mass * value * column).sum() * column
        size = (mass * value.square()).sum().sqrt()
        columns.append(value / size)
        steps.append((float(middle), float(size)))

    def polynomial(k: int) -> Callable[[Tensor], Tensor]:
        def value(x: Tensor) -> Tensor:
            x = x.reshape(len(x), -1)[:, 0]
            before, now, back = torch.zeros_like(x), torch.ones_like(x) * columns[0][0], 0.0
            for middle, size in steps[:k]:
                before, now, back = now, ((x - middle) * now - back * before) / size, size
            return now

        return value

    return [polynomial(k) for k in range(count + 1)]


class OwnLaw:
    """The laws of models of one process: its functions are put to the generator once."""

    def __init__(self, process: Process):
        self.process = process
        self.points, weights, functions = nodes_and_functions(process)
        mass = weights * process.prior(len(weights), torch.float64).log_prob(self.points).exp()
        values = torch.stack([phi(self.points) for phi in functions], 1)
        self.size = (mass.unsqueeze(1) * values.square()).sum(0).sqrt()
        self.functions, self.weighted = functions, mass.unsqueeze(1) * values / self.size
        one, flat = torch.ones_like(self.points), torch.zeros(len(weights), self.points[0].numel(), dtype=torch.float64)
        self.spread = self._acted(Local(diffusion=one if one.ndim == 1 else one.reshape(len(one), -1)[:, :1]))
        self.along = []  # of a drift of size one along each entry
        for i in range(flat.shape[1]):
            own = flat.clone()
            own[:, i] = 1.0
            self.along.append(self._acted(Local(drift=own.reshape(self.points.shape))))

    def _acted(self, local: Local) -> Float[Tensor, "nodes functions"]:
        space = self.process.state_space
        return torch.stack([space.act(local, phi, self.points) for phi in self.functions], 1) / self.size

    def matrix(self, model: AnyDenoiser, t: float) -> Float[Tensor, "functions functions"]:
        """A_jk at a time."""
        local = model(self.points, torch.tensor(t, dtype=torch.float64)).local()
        rows = len(self.points)
        drift, diffusion = (part.double().detach().reshape(rows, -1) for part in (local.drift, local.diffusion))
        acted = diffusion[:, :1] * self.spread
        for i, along in enumerate(self.along):
            acted = acted + drift[:, i : i + 1] * along
        return acted.T @ self.weighted

    def at(self, model: AnyDenoiser, eps: float, steps: int = STEPS) -> Float[Tensor, "functions"]:
        """The coefficients c of the law at the time eps."""
        count, h, root = len(self.functions), (1 - eps) / steps, 3**0.5 / 6
        c, eye = torch.zeros(count, dtype=torch.float64), torch.eye(2 * count, dtype=torch.float64)
        c[0] = 1.0
        own = h * torch.tensor([[0.25, 0.25 - root], [0.25 + root, 0.25]], dtype=torch.float64)
        for i in range(steps):
            first, second = (self.matrix(model, 1 - h * (i + place)) for place in (0.5 - root, 0.5 + root))
            blocks = [torch.cat([own[k, 0] * part, own[k, 1] * part], 1) for k, part in enumerate((first, second))]
            slopes = torch.linalg.solve(eye - torch.cat(blocks), torch.cat([first @ c, second @ c]))
            c = c + h / 2 * (slopes[:count] + slopes[count:])
        return c

    def density(self, c: Float[Tensor, "functions"], x: Tensor) -> Float[Tensor, "batch"]:
        total = torch.zeros(len(x), dtype=torch.float64)
        for coefficient, phi, size in zip(c, self.functions, self.size, strict=True):
            total = total + coefficient / size * phi(x)
        return total * self.process.prior(len(x), torch.float64).log_prob(x).exp()

    def log_prob(self, model: AnyDenoiser, x0: Tensor, eps: float, decoder: Decoder) -> Float[Tensor, "batch"]:
        """log p(x_0) of the model with this decoder."""
        process, rows = self.process, len(x0)
        nodes, log_weight = process.support(x0, eps)
        flat, many = cast(Tensor, nodes).flatten(0, 1), x0.repeat(len(nodes), *[1] * (x0.ndim - 1))
        t = torch.tensor(eps, dtype=torch.float64)
        told = decoder.log_prob(process, model(flat, t) if decoder.needs_network else None, many, flat, eps)
        gap = told.detach() - process.marginal(many, eps).log_prob(flat)
        weight = (log_weight.flatten() + gap).exp().nan_to_num(0.0)
        return (weight * self.density(self.at(model, eps), flat)).reshape(-1, rows).sum(0).log()


@guarded("the law of the exact denoiser's own reverse")
def exact_law(own: OwnLaw, subject: Subject, place: Place) -> Iterator[Row]:
    """Run backwards from the prior, with its decoder, the exact denoiser has the data law; nothing is drawn."""
    oracle, x = cast(Oracle, subject.oracle), cast(Tensor, subject.points)
    exact, ours = -oracle.log_prob(x), -own.log_prob(oracle, x, subject.cutoffs[-1], oracle.decoder)
    yield place.equal("-log p(x) of the exact denoiser's own law = -log q(x)", exact, ours, SAME)


def above_own_law(
    own: OwnLaw, model: AnyDenoiser, place: Place, which: str, x0: Tensor, eps: float, decoder: Decoder, ours: Tensor
) -> Row:
    """The bound is above -log p of the model's own law, wherever that has a density to speak of."""
    log_p = own.log_prob(model, x0, eps, decoder).nan_to_num(-torch.inf)
    seen = log_p.exp() > SEEN
    return place.at_most(f"-log p(x) of the model's own law <= bound, {which}", ours[seen], -log_p[seen], ACCURATE)
