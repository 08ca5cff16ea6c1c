"""Spheres as a space: the curvature in its operators, the generator's identities, and steps that stay on it."""

import pytest
import torch

import unnoise as un
from unnoise.generators import Generator
from unnoise.verify.wrong import Perturbed

GLOBE = un.Sphere(2)


def points(rows, d=2):
    return un.SphereHeat(d).prior(rows, torch.float64).draw(un.NoiseSource(0, rows))


@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_coordinates_are_eigenfunctions(d):
    """L x_i = -(d/2) x_i: a Laplacian without the curvature has 0."""
    space, x = un.Sphere(d), un.Sphere(d).project(torch.randn(6, d + 1, dtype=torch.float64))
    brownian = Generator(space, lambda y: un.Local(diffusion=torch.ones(len(y), 1, dtype=torch.float64)))
    for i in range(d + 1):
        assert torch.allclose(brownian.act(lambda y, i=i: y[:, i], x), -d / 2 * x[:, i], atol=1e-12)

    class Flat(un.Sphere):
        """A mutant: the curvature is forgotten."""

        def surface(self, phi, x, second=True):
            gradient, laplacian = super().surface(phi, x, second)
            return gradient, laplacian + self.d * x[:, 0]  # x . D phi of the first coordinate

    wrong = Generator(Flat(d), brownian.local).act(lambda y: y[:, 0], x)
    assert not torch.allclose(wrong, -d / 2 * x[:, 0], atol=1e-3)


def drifting():
    def local(x):
        around = torch.stack([-x[:, 1], x[:, 0], torch.zeros_like(x[:, 0])], 1) * (1 + x[:, 2:])
        down = GLOBE.tangent(torch.tensor([0.3, 0.0, -0.5], dtype=x.dtype).expand_as(x), x)
        return un.Local(around + down, 0.7 + 0.3 * x[:, :1] * x[:, 2:])

    return Generator(GLOBE, local)


def phi(y):
    return torch.sin(y[:, 0] + 2 * y[:, 1]) * torch.cos(y[:, 2])


def log_q(y):
    return 0.8 * y[:, 0] - 0.5 * y[:, 1] * y[:, 2]


def test_the_adjoint_is_dual_and_keeps_mass():
    x, weight = GLOBE.nodes(24)
    generator = drifting()
    one = (weight * log_q(x).exp() * generator.act(phi, x)).sum()
    other = (weight * phi(x) * generator.adjoint(lambda y: log_q(y).exp(), x)).sum()
    assert torch.allclose(one, other, rtol=1e-9) and abs(float(one)) > 0.1
    assert abs(float((weight * generator.adjoint(lambda y: log_q(y).exp(), x)).sum())) < 1e-9


def test_the_reversed_generator_has_the_same_flux():
    x, weight = GLOBE.nodes(24)
    generator, q = drifting(), log_q(x).exp()

    def psi(y):
        return y[:, 1] + y[:, 0] * y[:, 2]

    gone = generator.adjoint(lambda y: log_q(y).exp(), x)
    forward = (weight * q * psi(x) * generator.act(phi, x)).sum()
    backward = (weight * (q * phi(x) * generator.reversed(log_q).act(psi, x) + gone * phi(x) * psi(x))).sum()
    assert torch.allclose(forward, backward, rtol=1e-8)


def test_steps_stay_on_the_sphere_and_have_the_curvature():
    """After h the first coordinate has faded by e^{-h}, to first order: E x = (1 - h) x."""
    x = torch.tensor([[1.0, 0.0, 0.0]], dtype=torch.float64).expand(200_000, 3)
    local = un.Local(diffusion=torch.ones(len(x), 1, dtype=torch.float64))
    moved = GLOBE.move(GLOBE.freeze(local, x), local, x, torch.tensor(0.01).double(), un.NoiseSource(0, len(x)))
    assert torch.allclose(moved.norm(dim=1), torch.ones(len(x)).double())
    assert float(moved[:, 0].mean()) == pytest.approx(0.99, abs=2e-4)


def test_what_is_no_point_is_refused():
    with pytest.raises(ValueError, match=r"row 1 of x0 has the length 2, and points of Sphere\(2\)"):
        GLOBE.check(torch.tensor([[1.0, 0, 0], [2.0, 0, 0]]), "x0")
    with pytest.raises(ValueError, match="length nan"):
        GLOBE.check(torch.full((1, 3), float("nan")))
    with pytest.raises(TypeError, match="floats"):
        GLOBE.check(torch.eye(3, dtype=torch.int64))
    with pytest.raises(ValueError, match="d = 0"):
        un.Sphere(0)
    with pytest.raises(TypeError, match="Sphere does not say the nodes"):
        un.Sphere(4).nodes(4)
    with pytest.raises(TypeError, match="has log_rates, which Sphere"):
        GLOBE.act(un.Local(log_rates=torch.zeros(1, 3, 2)), phi, points(1))


def test_the_rule_of_unit_quaternions():
    """Of x_0^4 x_2^2 the mean is 3/(4 6 8); and around a point the mean of x is e^{-3v/2} of it."""
    x, weight = un.Sphere(3).nodes(4)
    assert float((weight * x[:, 0] ** 4 * x[:, 2] ** 2).sum()) == pytest.approx(2 * torch.pi**2 * 3 / 192, rel=1e-12)
    process, x0 = un.SphereHeat(3), points(2, 3)
    nodes, log_weight = process.support(x0, 0.8)
    mean = (log_weight.exp().unsqueeze(-1) * nodes).sum(0)
    assert torch.allclose(mean, torch.exp(-1.5 * process.variance(0.8, x0)) * x0, rtol=1e-9)


def globe():
    from unnoise.verify.subjects import heat_subject

    return heat_subject(un.SphereHeat(2), "globe").oracle


def waves(x):
    return torch.cat([x, (x * x.roll(1, 1)), x.square()[:, :2]], 1)


def worst(x, truth):
    nodes, weight = GLOBE.nodes(40)
    exact = ((weight * truth.log_prob(nodes).exp()).unsqueeze(1) * waves(nodes)).sum(0)
    drawn = waves(x.double())
    return float(((drawn.mean(0) - exact).abs() / (drawn.std(0) / len(x) ** 0.5)).max())


@pytest.mark.conformance
def test_the_reverse_run_returns_the_data():
    """Eight moments within 4.5 standard errors, a false alarm in 18,000 seeds; a quarter of the score is far off."""

    class QuarterScore(un.SphereHeat):
        def reverse_local(self, x_t, score, t):
            return super().reverse_local(x_t, 0.25 * score, t)

    truth = globe()
    x, _ = un.sample(truth, n=1000, steps=96, seed=3, dtype=torch.float64)
    assert worst(x, truth) < 4.5
    wrong = truth.predicting(process=QuarterScore(2))
    y, _ = un.sample(wrong, n=1000, steps=96, seed=3, dtype=torch.float64)
    assert worst(y, truth) > 8


def test_densities_along_the_flow_are_those_of_the_data():
    truth = globe()
    x = truth.draw(un.NoiseSource(4, 2))
    ours, info = un.likelihood(truth, x, un.ProbabilityFlow(rtol=1e-4, atol=1e-4))
    assert torch.allclose(ours, truth.log_marginal(x, 0.0), atol=2e-3) and info.dimension == 2


@pytest.mark.conformance
def test_bounds_of_wrong_networks_integrate_to_at_most_one(monkeypatch):
    import unnoise.processes.sphere_heat as module

    monkeypatch.setattr(module, "RINGS", 12)
    monkeypatch.setattr(module, "AROUND", 12)
    x, weight = GLOBE.nodes(5)
    for scale, least in ((0.1, 0.5), (1.5, 0.0)):
        model = Perturbed(globe(), scale, 100)
        ours = un.bound(model, x, exact=True, times=un.Quadrature(16), cutoff=0.3).total
        mass = float((weight * (-ours).exp()).sum())
        assert least < mass <= 1 + 1e-3


def test_a_network_trains_on_the_globe():
    process = un.SphereHeat(2)
    denoiser = un.Denoiser(un.networks.default_network(process, "tiny", seed=0), process)
    x0 = globe().draw(un.NoiseSource(1, 64)).float()
    terms = un.Objective(denoiser)(x0, un.NoiseSource(2, 64))
    terms.loss.mean().backward()
    assert bool(terms.total.isfinite().all()) and all(
        p.grad is None or bool(p.grad.isfinite().all()) for p in denoiser.parameters()
    )
    x, _ = un.sample(denoiser, n=5, steps=4, seed=0)
    assert torch.allclose(x.norm(dim=1), torch.ones(5), atol=1e-5) and x.dtype == torch.float32
