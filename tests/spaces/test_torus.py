"""Angles as a space: what is refused, what is wrapped, and the generator's identities around the circle."""

from math import pi

import pytest
import torch

import unnoise as un
from unnoise.generators import Generator


def test_angles_outside_are_refused_with_a_remedy():
    torus = un.Torus((2,))
    inside = torch.tensor([[-pi, 3.14]])
    assert torus.check(inside) is inside
    torus.check(torch.full((1, 2), pi))  # the float32 next to pi lies a little outside
    with pytest.raises(ValueError, match=r"angle 4 .*space.project\(x0\)"):
        torus.check(torch.tensor([[4.0, 0.0]]), "x0")
    with pytest.raises(ValueError, match="180 first if these are degrees"):
        torus.check(torch.tensor([[170.0, 0.0]]))
    with pytest.raises(ValueError, match="nan"):
        torus.check(torch.tensor([[float("nan"), 0.0]]))
    with pytest.raises(TypeError, match="a Torus space holds floats"):
        torus.check(torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(TypeError, match="not finite"):
        torus.states()


def test_a_circle_is_a_torus_of_one_angle():
    circle = un.Circle()
    assert circle.shape == () and circle.dimension == 1 and repr(circle) == "Circle()"
    assert circle.log_volume == pytest.approx(un.Torus((1,)).log_volume) == pytest.approx(torch.log(torch.tensor(2 * pi)))
    assert un.Torus((2, 3)).log_volume == pytest.approx(6 * circle.log_volume)


def test_steps_stay_on_the_circle():
    circle = un.Circle()
    outside, inside = torch.tensor([3.5, -3.5, 10.0]), torch.tensor([3.5 - 2 * pi, 2 * pi - 3.5, 10.0 - 4 * pi])
    assert torch.allclose(circle.project(outside), inside, atol=1e-5)
    assert torch.allclose(circle.carry(torch.tensor([3.0]), torch.tensor([1.0])), torch.tensor([4.0 - 2 * pi]), atol=1e-6)
    x, local = (
        torch.full((1000,), 3.0).double(),
        un.Local(torch.full((1000,), 0.5).double(), torch.full((1000,), 4.0).double()),
    )
    moved = circle.move(circle.freeze(local, x), local, x, torch.tensor(1.0).double(), un.NoiseSource(0, 1000))
    assert bool((moved.abs() <= pi).all()) and float(moved.std()) > 1


def nodes(count=256):
    return un.Torus((1,)).nodes(count)


def drifting():
    """A generator with a drift and a diffusion of period 2 pi."""
    return Generator(un.Torus((1,)), lambda x: un.Local(torch.sin(x) + 0.3 * torch.cos(2 * x), 0.7 + 0.2 * torch.cos(x)))


def test_the_adjoint_is_dual_to_the_generator():
    x, weight = nodes()
    generator = drifting()

    def phi(y):
        return torch.sin(y[:, 0] + 0.4) + 0.5 * torch.cos(3 * y[:, 0])

    def q(y):
        return torch.exp(torch.cos(y[:, 0] - 1))

    one, other = (weight * q(x) * generator.act(phi, x)).sum(), (weight * phi(x) * generator.adjoint(q, x)).sum()
    assert torch.allclose(one, other, rtol=1e-12) and abs(float(one)) > 0.1
    assert abs(float((weight * generator.adjoint(q, x)).sum())) < 1e-12  # mass is kept


def test_the_reversed_generator_has_the_same_flux():
    """int q psi L phi = int q phi L^ psi: reversal is the adjoint in L^2(q), less the part that keeps q moving."""
    x, weight = nodes()
    generator = drifting()

    def log_q(y):
        return 0.8 * torch.cos(y[:, 0] - 1) + 0.2 * torch.sin(2 * y[:, 0])

    def phi(y):
        return torch.sin(y[:, 0] + 0.4)

    def psi(y):
        return torch.cos(2 * y[:, 0])

    q = log_q(x).exp()
    gone = generator.adjoint(lambda y: log_q(y).exp(), x)
    forward = (weight * q * psi(x) * generator.act(phi, x)).sum()
    backward = (weight * (q * phi(x) * generator.reversed(log_q).act(psi, x) + gone * phi(x) * psi(x))).sum()
    assert torch.allclose(forward, backward, rtol=1e-10)


def test_a_rule_for_too_many_angles_is_refused():
    with pytest.raises(ValueError, match="a rule over 4 angles"):
        un.Torus((4,)).nodes(8)
    points, weights = un.Torus((2,)).nodes(6)
    assert points.shape == (36, 2) and float(weights.sum()) == pytest.approx((2 * pi) ** 2)
