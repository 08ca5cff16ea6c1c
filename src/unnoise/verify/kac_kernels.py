"""The telegraph law on phase space, with its atom, by quadrature.

mass          e^{-ah} + int density = 1                                                              (1e-9)
composition   q(z_t | z_r) = sum over velocities of int q(z_s | z_r) q(z_t | z_s), atoms of both included     (1e-6)
forward       d/dt q(z | z_s) = L* q                beside the atom, and mass' = -a mass on it
backward      d/ds q(z_t | z) = -L q                beside the atom
reversal      given x_0 the reverse is the generator reversed under q(z | x_0) beside the atom, and never turns on it
"""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from unnoise.generators import Generator
from unnoise.processes import Kac
from unnoise.verify.generators import wave
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject

MASS, SUM, IDENTITY = 1e-9, 1e-6, 1e-8
NODES = 200
TIMES = (0.1, 0.5, 1.0)


def kac_kernels(subject: Subject, networks: int = 2) -> Iterator[Row]:
    process: Kac = subject.process  # type: ignore[assignment]
    place, one = Place(subject.name), Kac((1,), process.speed, process.rate)
    yield from _mass(one, place)
    yield from _composition(one, place)
    yield from _forward(one, place)
    yield from _backward(one, place)
    yield from _conditioned(one, place)


def states(x: Tensor, v: float | Tensor) -> Tensor:
    """[batch, 2, 1]."""
    return torch.stack([x, torch.as_tensor(v, dtype=x.dtype).expand_as(x)], 1).unsqueeze(2)


def rule(low: float, high: float) -> tuple[Tensor, Tensor]:
    x, w = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(NODES))
    return low + (high - low) * (x + 1) / 2, (high - low) / 2 * w


@guarded("mass of the telegraph law")
def _mass(process: Kac, place: Place) -> Iterator[Row]:
    c = process.speed
    for t in TIMES:
        y, weight = rule(-c * t, c * t)
        start = states(torch.zeros_like(y), c)
        found = process.atom(t)
        for v in (-c, c):
            found += float((weight * process.transition(start, 0.0, t).coordinates(states(y, v))[0].flatten().exp()).sum())
        yield place.equal(f"mass of the law with its atom, t={t:g}", 1.0, found, MASS)
        yield place.at_most(f"without its atom it is none, t={t:g}", 1 - process.atom(t) / 2, found - process.atom(t))


@guarded("composition of the telegraph law")
def _composition(process: Kac, place: Place, r: float = 0.1, s: float = 0.5, t: float = 1.0) -> Iterator[Row]:
    c = process.speed
    start = states(torch.zeros(1, dtype=torch.float64), c)
    for x, v in ((0.3 * c, c), (-0.5 * c, c), (0.4 * c, -c), (-0.7 * c, -c)):
        end = states(torch.tensor([x], dtype=torch.float64), v)
        y, weight = rule(max(-c * (s - r), x - c * (t - s)), min(c * (s - r), x + c * (t - s)))
        total = torch.zeros((), dtype=torch.float64)
        for w in (-c, c):
            middle = states(y, w)
            first = process.transition(start.expand_as(middle), r, s).coordinates(middle)[0]
            then = process.transition(middle, s, t).coordinates(end.expand_as(middle))[0]
            total = total + (weight * (first + then).exp().flatten()).sum()
        unturned = states(torch.tensor([c * (s - r)], dtype=torch.float64), c)  # in the first part
        total = total + (process.transition(unturned, s, t).coordinates(end)[0] - process.rate * (s - r)).exp().sum()
        origin = states(torch.tensor([x - v * (t - s)], dtype=torch.float64), v)  # in the second part
        total = total + (process.transition(start, r, s).coordinates(origin)[0] - process.rate * (t - s)).exp().sum()
        exact = process.transition(start, r, t).log_prob(end).exp()
        yield place.equal(f"composition of transitions with their atoms, x={x:g}, v={v:g}", exact, total, SUM)


def _beside(process: Kac, t: float) -> Tensor:
    """States with both velocities that may be reached by t, none on an atom."""
    x = process.speed * t * torch.tensor([-0.9, -0.3, 0.2, 0.7], dtype=torch.float64)
    return torch.cat([states(x, v) for v in (-process.speed, process.speed)])


@guarded("forward equation of the telegraph law")
def _forward(process: Kac, place: Place, t: float = 0.6) -> Iterator[Row]:
    z = _beside(process, t)
    start = states(torch.zeros(len(z), dtype=torch.float64), process.speed)

    def density(z: Tensor, t: Tensor | float = t) -> Tensor:
        return process.transition(start[:1].expand_as(z), 0.0, t).log_prob(z).exp()

    clock = torch.full((len(z),), t, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        slope = torch.autograd.grad(density(z, clock).sum(), clock)[0]
    flow = process.generator(t).adjoint(density, z)
    yield place.equal("forward equation of the kernel, beside the atom", slope, flow, IDENTITY)
    tip = states(torch.tensor([process.speed * t], dtype=torch.float64), process.speed)
    lost = process.transition(start[:1], 0.0, t).log_prob(tip) / t
    yield place.equal("rate at which the atom is left", -process.rate, lost, IDENTITY)


@guarded("backward equation of the telegraph law")
def _backward(process: Kac, place: Place, s: float = 0.2, t: float = 0.8) -> Iterator[Row]:
    z = _beside(process, t - s)
    end = states(torch.zeros(1, dtype=torch.float64), process.speed)

    def density(z: Tensor, s: Tensor | float = s) -> Tensor:
        return process.transition(z, s, t).log_prob(end.expand(len(z), 2, 1)).exp()

    clock = torch.full((len(z),), s, dtype=torch.float64, requires_grad=True)
    with torch.enable_grad():
        slope = torch.autograd.grad(density(z, clock).sum(), clock)[0]
    yield place.equal("backward equation of the kernel", -slope, process.generator(s).act(density, z), IDENTITY)


@guarded("reverse generator given x_0")
def _conditioned(process: Kac, place: Place, t: float = 0.6) -> Iterator[Row]:
    z = _beside(process, t)
    x0 = torch.zeros(len(z), 1, dtype=torch.float64)
    exact = process.generator(t).reversed(lambda y: process.marginal(x0[:1].expand(len(y), 1), t).log_prob(y))
    own = Generator(process.state_space, lambda y: process.conditioned_local(y, x0, t))
    for j in range(3):
        quantity = f"reverse given x_0 = reversed generator, on function {j}, t={t:g}"
        yield place.equal(quantity, exact.act(wave(j), z), own.act(wave(j), z), IDENTITY)
    tips = torch.cat([states(torch.tensor([v * t], dtype=torch.float64), v) for v in (-process.speed, process.speed)])
    rates = process.conditioned_local(tips, x0[:2], t).jumps.total(tips)  # type: ignore[union-attr]
    yield place.equal("the reverse never turns on the atom", 0.0, rates, 0.0)
