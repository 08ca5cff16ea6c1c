"""The example of a sphere: a space of one's own, a process that is a generator and nothing else."""

import numpy as np
import pytest
import torch
from examples_path import example

import unnoise as un

sphere = example("sphere")


def points(n, seed=0):
    x = un.NoiseSource(seed, n).normal((3,))
    return x / x.norm(dim=1, keepdim=True)


def phi(x):
    return torch.sin(x[:, 0] + 2 * x[:, 1]) + x[:, 2] * x[:, 1]


def density(x):
    return torch.exp(x[:, 0] + 0.5 * x[:, 2])


class Drifting(un.Process):
    """A drift that turns around an axis and pulls to a pole, and a diffusion that depends on the place."""

    def __init__(self):
        super().__init__()
        self.space = self.state_space = sphere.Sphere()

    def local(self, x, t):
        turn = torch.stack([-x[:, 1], x[:, 0], 0 * x[:, 0]], 1)
        pull = self.space.tangent(torch.tensor([0.0, 0.3, 0.9], dtype=x.dtype).expand_as(x), x)
        return un.Local(drift=turn + pull, diffusion=1 + 0.4 * x[:, 0])


@pytest.mark.parametrize("degree, harmonic", [(0, lambda x: 0 * x[:, 0] + 2), (1, lambda x: x[:, 1])])
def test_harmonics_are_eigenfunctions(degree, harmonic):
    x = points(20)
    exact = -0.5 * sphere.SPEED * degree * (degree + 1) * harmonic(x)
    torch.testing.assert_close(sphere.generator().act(harmonic, x), exact, rtol=0, atol=1e-12)


def test_a_harmonic_of_degree_two_and_the_heat_equation():
    x = points(20)
    ours = sphere.generator().act(lambda y: 3 * y[:, 2].square() - 1, x)
    torch.testing.assert_close(ours, -3 * sphere.SPEED * (3 * x[:, 2].square() - 1), rtol=0, atol=1e-11)
    process, t = sphere.Brownian(), torch.full((20,), 0.3, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(process.log_marginal(x, t).exp().sum(), t)[0]
    forward = process.generator(0.3).adjoint(lambda y: process.log_marginal(y, 0.3).exp(), x)
    torch.testing.assert_close(forward, slope, rtol=0, atol=1e-10)


def test_adjoint_is_dual_to_the_action():
    """By Gauss-Legendre in height and equal angles, exact for polynomials of the sphere."""
    z, w = (torch.as_tensor(v) for v in np.polynomial.legendre.leggauss(40))
    angle = torch.arange(80, dtype=torch.float64) * 2 * torch.pi / 80
    ring = (1 - z.square()).sqrt()
    x = torch.stack([(ring[:, None] * f(angle)).flatten() for f in (torch.cos, torch.sin)] + [z.repeat_interleave(80)], 1)
    weight, generator = w.repeat_interleave(80) * 2 * torch.pi / 80, Drifting().generator(0.5)
    left = (weight * density(x) * generator.act(phi, x)).sum()
    right = (weight * phi(x) * generator.adjoint(density, x)).sum()
    torch.testing.assert_close(left, right, rtol=0, atol=1e-10)


def test_reversal_is_the_identity_of_nelson_and_undoes_itself():
    x, generator = points(20), Drifting().generator(0.5)
    back = generator.reversed(lambda y: density(y).log())
    exact = generator.adjoint(lambda y: density(y) * phi(y), x) - phi(x) * generator.adjoint(density, x)
    torch.testing.assert_close(density(x) * back.act(phi, x), exact, rtol=0, atol=1e-10)
    again = back.reversed(lambda y: density(y).log())
    torch.testing.assert_close(again.act(phi, x), generator.act(phi, x), rtol=0, atol=1e-10)


def test_samples_by_the_generator_alone_have_the_law_of_the_data():
    """From the uniform law back to Brownian time 0.2: the mean vector is e^{-0.2} times that of the data, within 5 standard
    errors and the bias of 60 steps (false alarm below 1e-5); every state stays on the sphere; a reversal that moves without
    the score fails."""
    rows, end = 2000, 0.05
    x, _ = un.sample(sphere.Exact(), x=points(rows, 1), steps=60, sampler=un.samplers.FromGenerator(), end=end, seed=2)
    assert float((x.norm(dim=1) - 1).abs().max()) < 1e-12
    exact = np.exp(-sphere.SPEED * end) * (sphere.WEIGHTS @ sphere.POINTS)
    assert float((x.mean(0) - exact).abs().max()) < 5 / rows**0.5 + 0.02
    near = (x @ sphere.POINTS.T).amax(1)
    assert abs(float(near.mean()) - np.exp(-sphere.SPEED * end)) < 5 * float(near.std()) / rows**0.5 + 0.03

    class Blind(sphere.Exact):
        def forward(self, x_t, t, /, **condition):
            prediction = super().forward(x_t, t)
            still = un.Local(torch.zeros_like(x_t), prediction.local().diffusion)
            prediction.local = lambda: still
            return prediction

    blind, _ = un.sample(Blind(), x=points(rows, 1), steps=10, sampler=un.samplers.FromGenerator(), end=end, seed=2)
    assert float((blind.mean(0) - exact).abs().max()) > 0.3


def test_what_the_sphere_does_not_say_is_named():
    with pytest.raises(TypeError, match=r"space Sphere does not say .*coordinate\(local, x, k\)"):
        sphere.generator().coordinate((), 0).local(points(2))
    with pytest.raises(TypeError, match=r"process Brownian does not say the law q\(x_t \| x_0\): write the method marginal"):
        sphere.Brownian().marginal(points(2), 0.5)
