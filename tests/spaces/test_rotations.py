"""Rotations as a space: its operators, the generator's identities, steps that stay in it, and what it refuses."""

import pytest
import torch

import unnoise as un
from unnoise.generators import Generator
from unnoise.rotation_laws import UniformRotations
from unnoise.rotation_matrices import angle_of, exponential, hat, vee
from unnoise.verify.wrong import Perturbed

SPACE = un.Rotations()


def points(rows, seed=0):
    return un.RotationHeat().prior(rows, torch.float64).draw(un.NoiseSource(seed, rows))


def brownian(space=SPACE):
    return Generator(space, lambda y: un.Local(diffusion=torch.ones(len(y), 1, 1, dtype=torch.float64)))


def test_entries_are_eigenfunctions():
    """L x_ij = -x_ij, and the characters: L chi_l = -l (l + 1)/2 chi_l."""
    x = points(6)
    for i in range(3):
        for j in range(3):
            assert torch.allclose(brownian().act(lambda y, i=i, j=j: y[:, i, j], x), -x[:, i, j], atol=1e-12)

    def second(y):
        return 4 * angle_of(y).cos().square() + 2 * angle_of(y).cos() - 1

    assert torch.allclose(brownian().act(second, x), -3 * second(x), atol=1e-10)


def drifting():
    def local(x):
        b = torch.stack([x[:, 0, 1], 0.4 * x[:, 2, 2], -x[:, 1, 0] * x[:, 0, 0]], 1)
        return un.Local(x @ hat(b), (0.7 + 0.3 * x[:, 0, 0] * x[:, 1, 2])[:, None, None])

    return Generator(SPACE, local)


def phi(y):
    return torch.sin(y[:, 0, 0] + 2 * y[:, 1, 2]) * torch.cos(y[:, 2, 1])


def log_q(y):
    return 0.8 * y[:, 0, 0] - 0.5 * y[:, 1, 1] * y[:, 2, 0]


def test_the_adjoint_is_dual_and_keeps_mass():
    x, weight = SPACE.nodes(9)
    generator = drifting()
    one = (weight * log_q(x).exp() * generator.act(phi, x)).sum()
    gone = generator.adjoint(lambda y: log_q(y).exp(), x)
    assert torch.allclose(one, (weight * phi(x) * gone).sum(), rtol=1e-6) and abs(float(one)) > 0.05
    assert abs(float((weight * gone).sum())) < 1e-8


def test_the_reversed_generator_has_the_same_flux():
    x, weight = SPACE.nodes(9)
    generator, q = drifting(), log_q(x).exp()

    def psi(y):
        return y[:, 1, 0] + y[:, 0, 0] * y[:, 2, 2]

    gone = generator.adjoint(lambda y: log_q(y).exp(), x)
    forward = (weight * q * psi(x) * generator.act(phi, x)).sum()
    backward = (weight * (q * phi(x) * generator.reversed(log_q).act(psi, x) + gone * phi(x) * psi(x))).sum()
    assert torch.allclose(forward, backward, rtol=1e-6)


def test_a_turn_has_the_length_of_its_angle():
    x, a = points(4), torch.tensor([[0.4, -1.0, 2.0]]).double().expand(4, 3)
    there = SPACE.carry(x, x @ hat(a))
    assert torch.allclose(angle_of(x.mT @ there), a.norm(dim=1)) and torch.allclose(there, x @ exponential(a))
    local = [un.Local(x @ hat(k * a), torch.ones(4, 1, 1).double()) for k in (1.0, 0.0)]
    assert torch.allclose(SPACE.divergence(*local, x), 0.5 * a.square().sum(1))


def test_steps_stay_rotations_and_fade():
    """After h the entries have faded by e^{-h}, to first order."""
    x = torch.eye(3, dtype=torch.float64).expand(100_000, 3, 3)
    local = un.Local(diffusion=torch.ones(len(x), 1, 1, dtype=torch.float64))
    moved = SPACE.move(SPACE.freeze(local, x), local, x, torch.tensor(0.01).double(), un.NoiseSource(0, len(x)))
    assert torch.allclose(moved.mT @ moved, x, atol=1e-12)
    assert float(moved.diagonal(dim1=1, dim2=2).mean()) == pytest.approx(0.99, abs=2e-4)


def test_quaternions_and_back():
    x = torch.cat([points(50), exponential(torch.tensor([[torch.pi, 0, 0], [0, torch.pi - 1e-9, 0], [0, 0, 0]]).double())])
    q = SPACE.to_quaternions(x)
    assert torch.allclose(SPACE.from_quaternions(q), x, atol=1e-14) and bool((q[:, 0] >= 0).all())
    assert torch.allclose(SPACE.from_quaternions(-3 * q), x, atol=1e-14)
    assert torch.allclose(2 * q[:, 0].clamp_max(1).arccos(), angle_of(x), atol=1e-7)


def test_the_nearest_rotation_and_its_derivative():
    x = points(3)
    near = x + 0.05 * torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(0)).double()
    r, h = SPACE.project(near), 1e-6
    assert torch.allclose(r.mT @ near, near.mT @ r, atol=1e-12) and torch.allclose(
        torch.linalg.det(r), torch.ones(3).double()
    )
    assert torch.allclose(torch.linalg.det(SPACE.project(-x)), torch.ones(3).double())
    step = torch.randn(3, 3, 3, generator=torch.Generator().manual_seed(1)).double()
    numeric = (SPACE.project(near + h * step) - SPACE.project(near - h * step)) / (2 * h)
    leaf = near.clone().requires_grad_()
    weights = torch.arange(27.0).double().reshape(3, 3, 3)
    slope = torch.autograd.grad((weights * SPACE.project(leaf)).sum(), leaf)[0]
    assert torch.allclose((slope * step).sum(), (weights * numeric).sum(), rtol=1e-6)


def test_what_is_no_rotation_is_refused():
    with pytest.raises(ValueError, match="row 1 of x0 is a reflection, of determinant -1.*space.project"):
        SPACE.check(torch.stack([torch.eye(3), -torch.eye(3)]), "x0")
    with pytest.raises(ValueError, match=r"row 0 of x is no rotation, as x\^T x differs from 1 by 3"):
        SPACE.check(2 * torch.eye(3).unsqueeze(0))
    with pytest.raises(ValueError, match="row 0 of x is no rotation.*nan.*not finite"):
        SPACE.check(torch.full((1, 3, 3), float("nan")))
    with pytest.raises(TypeError, match="floats"):
        SPACE.check(torch.eye(3, dtype=torch.int64).unsqueeze(0))
    with pytest.raises(TypeError, match="has log_rates, which Rotations"):
        SPACE.act(un.Local(log_rates=torch.zeros(1, 3, 2)), phi, points(1))


def mixture():
    from unnoise.verify.subjects import heat_subject

    return heat_subject(un.RotationHeat(), "rotations").oracle


def worst(x, truth):
    """Of the nine entries and five products, in standard errors."""

    def waves(y):
        flat = y.reshape(-1, 9)
        return torch.cat([flat, flat[:, :5] * flat.roll(2, 1)[:, :5]], 1)

    nodes, weight = SPACE.nodes(16)
    exact = ((weight * truth.log_prob(nodes).exp()).unsqueeze(1) * waves(nodes)).sum(0)
    drawn = waves(x.double())
    return float(((drawn.mean(0) - exact).abs() / (drawn.std(0) / len(x) ** 0.5)).max())


def test_the_reverse_run_returns_the_data():
    """Fourteen moments within 4.5 standard errors, a false alarm in 10,000 seeds; a quarter of the score is far off."""

    class QuarterTurn(un.RotationHeat):
        def reverse_local(self, x_t, score, t):
            return super().reverse_local(x_t, 0.25 * score, t)

    truth = mixture()
    x, _ = un.sample(truth, n=600, steps=64, seed=3, dtype=torch.float64)
    assert worst(x, truth) < 4.5
    y, _ = un.sample(truth.predicting(process=QuarterTurn()), n=600, steps=32, seed=3, dtype=torch.float64)
    assert worst(y, truth) > 8


def gap(process, nodes=24):
    """Between the exact model's bound and the data's own surprise."""
    truth = mixture()
    x = truth.draw(un.NoiseSource(9, 1))
    times, model = un.Quadrature(nodes), truth.predicting(process=process)
    ours = un.bound(model, x, exact=True, times=times, cutoff=0.35, decoder=truth.decoder).total
    return float((ours + truth.log_prob(x)).abs().max())


def test_the_exact_bound_is_the_datas_own_surprise(monkeypatch):
    """To 1e-6, and with a metric that counts the entries, of which the length is |a| sqrt 2, far from it."""
    assert gap(un.RotationHeat()) < 1e-6

    class Entries(un.Rotations):
        def divergence(self, true, model, x):
            return 2 * super().divergence(true, model, x)

    monkeypatch.setattr("unnoise.processes.rotation_heat.RINGS", 10)  # to two digits, for speed
    monkeypatch.setattr("unnoise.processes.rotation_heat.AXES", 4)
    process = un.RotationHeat()
    assert gap(process, 16) < 0.05
    process.space = process.state_space = Entries()
    assert gap(process, 16) > 0.5


def prior_gap(process):
    """KL(q(x_1 | x_0) || prior) by nodes, over what the process says of it; after little noise it is large."""
    x0 = points(1)
    nodes, log_weight = process.support(x0, 1.0)
    law, prior = process.marginal(x0.expand_as(nodes[:, 0]), 1.0), process.prior(len(nodes), torch.float64)
    by_nodes = (log_weight[:, 0].exp() * (law.log_prob(nodes[:, 0]) - prior.log_prob(nodes[:, 0]))).sum()
    return float((by_nodes / process.prior_kl(x0)[0] - 1).abs())


def test_the_prior_is_uniform_in_the_groups_own_measure():
    """A mutant has an angle that is uniform itself: as a density of the uniform rotation 1/(1 - cos w)."""

    class EvenAngle(UniformRotations):
        def log_prob(self, y):
            return -(1 - angle_of(y).cos()).log()

    class Skewed(un.RotationHeat):
        def uniform(self, like):
            return EvenAngle(like)

    for sigma in (0.6, 1.5):
        schedule = un.schedules.VE(0.01, sigma)
        assert prior_gap(un.RotationHeat(schedule)) < 1e-6 and prior_gap(Skewed(schedule)) > 0.03


@pytest.mark.conformance
def test_densities_along_the_flow_are_those_of_the_data():
    truth = mixture()
    x = truth.draw(un.NoiseSource(4, 2))
    ours, info = un.likelihood(truth, x, un.ProbabilityFlow(rtol=1e-4, atol=1e-4))
    assert torch.allclose(ours, truth.log_marginal(x, 0.0), atol=2e-3) and info.dimension == 3


@pytest.mark.conformance
def test_bounds_of_wrong_networks_integrate_to_at_most_one(monkeypatch):
    import unnoise.processes.rotation_heat as module

    monkeypatch.setattr(module, "RINGS", 10)
    monkeypatch.setattr(module, "AXES", 4)
    x, weight = SPACE.nodes(5)
    for scale, least in ((0.1, 0.1), (1.5, 0.0)):
        model = Perturbed(mixture(), scale, 100)
        ours = un.bound(model, x, exact=True, times=un.Quadrature(12), cutoff=0.4).total
        mass = float((weight * (-ours).exp()).sum())
        assert least < mass <= 1 + 1e-3


def test_a_network_trains_on_rotations():
    process = un.RotationHeat()
    denoiser = un.Denoiser(un.networks.default_network(process, "tiny", seed=0), process)
    x0 = mixture().draw(un.NoiseSource(1, 64)).float()
    terms = un.Objective(denoiser)(x0, un.NoiseSource(2, 64))
    terms.loss.mean().backward()
    grads = [p.grad for p in denoiser.parameters() if p.grad is not None]
    assert bool(terms.total.isfinite().all()) and all(bool(grad.isfinite().all()) for grad in grads)
    x, _ = un.sample(denoiser, n=5, steps=4, seed=0)
    assert torch.allclose(x.mT @ x, torch.eye(3).expand(5, 3, 3), atol=1e-5) and x.dtype == torch.float32


def test_both_kinds_say_the_same_and_an_energy_has_the_spaces_gradient():
    truth, t = mixture(), 0.6
    x = points(3)
    unit, whole = (truth.predicting(kind)(x, t) for kind in (un.UnitScore, un.TangentScore))
    assert torch.allclose(unit.score(), whole.score()) and torch.allclose(unit.to(un.TangentScore).value, whole.value)
    leaf = x.clone().requires_grad_()
    slope = torch.autograd.grad(truth.log_marginal(leaf, t).sum(), leaf)[0]
    assert torch.allclose(SPACE.gradient(slope, x), whole.score(), atol=1e-9)
    assert torch.allclose(vee(x.mT @ SPACE.tangent(slope, x)), 0.5 * vee(x.mT @ whole.score()), atol=1e-9)
