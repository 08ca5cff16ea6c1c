"""Brownian motion on circles, spheres and rotations alike: kernels compose, solve both equations and Dynkin's formula, steps
have their densities, and mutants of the operators and laws do not."""

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.generators import Generator
from unnoise.noise import NoiseSource

PROCESSES = {
    "torus": un.WrappedNormal((2,)),
    "S1": un.SphereHeat(1),
    "S2": un.SphereHeat(2),
    "S3": un.SphereHeat(3),
    "SO3": un.RotationHeat(),
}
NODES = {"torus": 24, "S1": 40, "S2": 24, "S3": 12, "SO3": 12}
T = 0.85  # where the law is a few tenths of a turn wide


def nodes(name):
    """Points and weights; those of unit quaternions are the rotations' with both signs."""
    if name != "S3":
        return PROCESSES[name].space.nodes(NODES[name])
    x, weight = un.Rotations().nodes(NODES[name])
    q = un.Rotations.to_quaternions(x)
    return torch.cat([q, -q]), torch.cat([weight, weight]) * torch.pi**2


def points(process, rows, seed=0):
    return process.prior(rows, torch.float64).draw(NoiseSource(seed, rows))


def phi(y):
    flat = y.reshape(len(y), -1)
    return torch.sin(flat[:, 0] + 2 * flat[:, 1]) + torch.cos(flat[:, 1])


def law_at(process, x0, t, rows):
    return process.marginal(x0.expand(rows, *x0.shape[1:]), t)


@pytest.mark.parametrize("name", PROCESSES)
def test_kernels_compose(name):
    """q(x_t | x_0) = int q(x_t | x_s) q(x_s | x_0) dx_s: the normaliser of Bayes' rule; another scale of the clock fails."""
    process, (y, weight) = PROCESSES[name], nodes(name)
    x0, x_t, s, t = points(process, 1, 1), points(process, 1, 2), 0.8, 0.9
    first = law_at(process, x0, s, len(y)).log_prob(y)

    def total(law):
        return float((weight * (first + law(y).log_prob(x_t.expand_as(y))).exp()).sum())

    whole = float(process.marginal(x0, t).log_prob(x_t).exp())
    assert total(lambda y: process.transition(y, s, t)) == pytest.approx(whole, rel=1e-6)
    assert float((weight * first.exp()).sum()) == pytest.approx(1, rel=1e-6)
    assert abs(total(lambda y: process.law(y, 2 * process.step_variance(s, t, y))) / whole - 1) > 0.01


@pytest.mark.parametrize("name", [*PROCESSES, "S5"])
def test_both_equations_and_the_mutant_of_a_doubled_clock(name):
    """d/dt q = L* q in x_t, and d/ds q = -L q in x_s; the noise of e^{-l (l + 1) v} instead of v/2 solves neither."""
    process = PROCESSES.get(name, un.SphereHeat(5))
    x0, x = points(process, 3, 3), points(process, 3, 4)

    def gaps(law):
        def q(y, clock):
            return law(x0, process.variance(clock, x0)).log_prob(y).exp()

        clock = torch.full((3,), T, dtype=torch.float64, requires_grad=True)
        slope = torch.autograd.grad(q(x, clock).sum(), clock)[0]
        flow = process.generator(T).adjoint(lambda y: q(y, T), x)
        early = torch.full((3,), 0.8, dtype=torch.float64, requires_grad=True)
        back = torch.autograd.grad(law(x, process.step_variance(early, 0.9, x)).log_prob(x0).exp().sum(), early)[0]
        acted = process.generator(0.8).act(lambda y: law(y, process.step_variance(0.8, 0.9, y)).log_prob(x0).exp(), x)
        return [float((a / b - 1).abs().max()) for a, b in ((slope, flow), (back, -acted))]

    assert max(gaps(process.law)) < 1e-6
    assert min(gaps(lambda mean, v: process.law(mean, 2 * v))) > 0.1


@pytest.mark.parametrize("name", PROCESSES)
def test_dynkins_formula(name):
    """E phi(x_t) - E phi(x_s) = int E (L phi)(x_u) du, by nodes of the space and Gauss's in time."""
    process, (y, weight) = PROCESSES[name], nodes(name)
    x0, low, high = points(process, 1, 1), 0.8, 0.9

    def mean(values, t):
        return float((weight * law_at(process, x0, t, len(y)).log_prob(y).exp() * values).sum())

    line, share = np.polynomial.legendre.leggauss(10)
    acted = Generator(process.state_space, lambda x: process.local(x, low)).act(phi, y) / process.schedule.diffusion(low)
    times = low + (high - low) * (line + 1) / 2
    rates = [float(process.schedule.diffusion(float(t))) * mean(acted, float(t)) for t in times]
    change = (high - low) / 2 * float((share * np.array(rates)).sum())
    assert change == pytest.approx(mean(phi(y), high) - mean(phi(y), low), rel=1e-6)
    assert abs(change) > 1e-3


@pytest.mark.parametrize("name", PROCESSES)
def test_steps_have_their_densities(name):
    """One step from a point: mass 1 by nodes, and the mean of a function over 20,000 draws within four standard errors; a
    step of half the length is not."""
    process, (y, weight) = PROCESSES[name], nodes(name)
    x = points(process, 1, 5)
    space, h = process.space, torch.tensor(0.25, dtype=torch.float64)

    def law(rows, g=1.0):
        at = x.expand(rows, *x.shape[1:])
        drift = space.tangent(torch.full_like(at, 0.8), at)
        return space.step_law(un.Local(drift, torch.full_like(process.local(at, T).diffusion, g)), at, h)

    density = law(len(y)).log_prob(y).exp()
    assert float((weight * density).sum()) == pytest.approx(1, abs=2e-3)
    exact = float((weight * density * phi(y)).sum())

    def errors(g):
        values = phi(law(20_000, g).draw(NoiseSource(6, 20_000)))
        return abs(float(values.mean()) - exact) / (float(values.std()) / 20_000**0.5)

    assert errors(1.0) < 4 < errors(0.25)
