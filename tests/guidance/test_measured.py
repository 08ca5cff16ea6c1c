"""Numbers given a linear measurement, against closed forms: of the target, and of the target in finitely many steps."""

from math import log2

import pytest
import torch
from gaussian_chain import COVARIANCE, F64, MEAN, NOISE, OPERATOR, ORACLE, PROCESS, A, Y, law_of_steps, posterior, weighed

import unnoise as un

Particles = un.samplers.Particles


def drawn(target, n=1000, steps=8, particles=8, **options):
    return un.sample(target, n, steps=steps, seed=0, dtype=F64, sampler=Particles(particles), **options)


def measured(model=ORACLE, y=Y, **options):
    return un.targets.measured(model, OPERATOR, y, NOISE, **options)


@pytest.mark.parametrize("variance", [None, 0.5, lambda t: t.square()])
def test_normaliser_and_law_are_those_of_the_discretised_target(variance):
    """8 steps, 1,000 groups of 8: 4 standard errors, 6e-5 of false alarms; the law by all particles, in units of its own
    deviations, of which 4 standard errors are 0.1 where a particle of four counts."""
    mean, covariance, log_z = posterior(*law_of_steps(ORACLE, 8))
    _, info = drawn(measured(variance=variance))
    z = (info.particles.log_normaliser - log_z).exp()
    assert abs(float(z.mean()) - 1) < 4 * float(z.std()) / 1000**0.5 < 0.15
    root = torch.linalg.cholesky(covariance)
    found, spread = weighed(info)
    assert float(torch.linalg.solve_triangular(root, (found - mean).unsqueeze(1), upper=False).abs().max()) < 0.1
    assert float((spread - covariance).abs().max()) < 0.1


def test_the_posterior_is_reached_at_order_1_in_the_steps():
    """Closed forms alone: the chain's posterior against that of the data."""
    mean, covariance, log_z = posterior()
    gaps = []
    for steps in (64, 128, 256):
        own = posterior(*law_of_steps(ORACLE, steps))
        gaps.append([float((own[0] - mean).abs().max()), float((own[1] - covariance).abs().max()), abs(own[2] - log_z)])
    for before, after in zip(gaps[1], gaps[2], strict=True):
        assert log2(before / after) == pytest.approx(1.0, abs=0.15), gaps


def test_many_particles_have_the_law_that_one_has_not():
    """Standard errors of a mean of 2,000 are 0.02; of one particle, whose law is that of guidance, it is off by 0.15."""
    mean, _, _ = posterior(*law_of_steps(ORACLE, 16))

    def far(particles):
        x, _ = drawn(measured(), 2000, 16, particles)
        return float((x.mean(0) - mean).abs().max())

    assert far(1) > 0.12 and far(16) < 0.08


def test_every_row_has_a_measurement_of_its_own():
    """Two measurements in turn, told as a condition; 4 standard errors and the bias of 16 particles."""
    ys = torch.stack([Y, -Y]).repeat(500, 1)
    x, info = drawn(measured(y="seen"), 1000, 16, 16, condition={"seen": ys})
    chain = law_of_steps(ORACLE, 16)
    for k in range(2):
        mean, covariance, log_z = posterior(*chain, y=ys[k])
        assert float(((x[k::2].mean(0) - mean) / covariance.diagonal().sqrt()).abs().max()) < 0.25
        z = (info.particles.log_normaliser[k::2] - log_z).exp()
        assert abs(float(z.mean()) - 1) < 4 * float(z.std()) / 500**0.5
    part, _ = un.sample(
        measured(y="seen"), 3, steps=16, seed=0, dtype=F64, sampler=Particles(16), first=4, condition={"seen": ys[4:7]}
    )
    torch.testing.assert_close(part, x[4:7])


@pytest.mark.conformance
def test_a_mixture_is_weighed_too():
    """Two bumps, a sum measured: the share of the first bump against Bayes' rule, 4 standard errors and .015."""
    means = torch.tensor([[1.0, 1.0], [-1.0, 1.0]], dtype=F64)
    narrow = 0.1 * torch.eye(2, dtype=F64)
    oracle = un.oracles.mixture(un.Gaussian((2,)), torch.tensor([0.5, 0.5]), means, narrow.expand(2, 2, 2))
    y, noise = torch.tensor([1.2], dtype=F64), 0.5
    target = un.targets.measured(oracle, un.guidance.Matrix([[1.0, 1.0]]), y, noise)
    x, info = un.sample(target, 2000, steps=64, seed=0, dtype=F64, sampler=Particles(16))
    log_p = -0.5 * (y - means.sum(1)).square() / (0.2 + noise**2)
    share, log_z = float(log_p.softmax(0)[0]), float((0.5 * (log_p.exp() / (2 * torch.pi * 0.45) ** 0.5)).sum().log())
    assert abs(float((x[:, 0] > 0).double().mean()) - share) < 4 * (share * (1 - share) / 2000) ** 0.5 + 0.015
    assert abs(info.particles.estimate()[0] - log_z) < 0.05


def test_a_number_tells_a_category():
    """A leaf of a product is measured; what is masked beside it follows by Bayes' rule (4 standard errors and 0.02)."""
    process = un.Product(x=un.Gaussian((2,)), c=un.Masking(2, ()))
    means = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=F64)
    oracle = un.oracles.conditional_gaussian(
        process, torch.tensor([0.5, 0.5], dtype=F64), means, 0.3 * torch.eye(2, dtype=F64).expand(2, 2, 2)
    )
    first = un.guidance.Inpainting(torch.tensor([True, False]))
    target = un.targets.measured(oracle, first, torch.tensor([0.3], dtype=F64), 0.5, leaf="x")
    x, info = un.sample(target, 1500, steps=32, seed=0, dtype=F64, sampler=Particles(16))
    share = float(torch.sigmoid(torch.tensor(2 * 0.3 / (0.3 + 0.25))))
    assert abs(float(x["c"].double().mean()) - share) < 4 * (share * (1 - share) / 1500) ** 0.5 + 0.02


@pytest.mark.conformance
def test_correlated_noise_and_schedules_of_coordinates():
    """Other noise, the same posterior: in 48 steps to 0.1, of which 4 standard errors are 0.08."""
    mean, covariance, log_z = posterior()
    schedule = un.schedules.PerCoordinate([un.schedules.Polynomial(power) for power in (1.0, 1.5, 2.0, 1.0)])
    for process in (un.Gaussian((4,), covariance=COVARIANCE), un.Gaussian((4,), schedule)):
        oracle = un.oracles.normal(process, MEAN, COVARIANCE)
        x, info = drawn(measured(oracle), 1000, 48, 16)
        assert abs(info.particles.estimate()[0] - log_z) < 0.1
        assert float((x.mean(0) - mean).abs().max()) < 0.1 and float((x.T.cov() - covariance).abs().max()) < 0.15


def test_one_call_of_the_network_in_a_step():
    _, info = drawn(measured(), 2, 8, 4)
    assert info.calls == 8 and info.rows == 8 * 8


class Network(torch.nn.Module):
    """Of the kind whose output says nothing of x_0 where alpha = 0."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.tensor(0.9))

    def forward(self, x, t):
        return self.scale * x * t.unsqueeze(1)


@pytest.mark.parametrize("kind", [un.Noise, un.Score, un.Velocity, un.Flow, un.Clean])
@pytest.mark.parametrize("schedule", [un.schedules.Linear(), un.schedules.Cosine(), un.schedules.VE()])
def test_all_kinds_and_schedules_are_led(kind, schedule):
    process = un.Gaussian((4,), schedule)
    model = un.Denoiser(Network(), process, predicts=kind)
    x, _ = un.sample(measured(model), 3, steps=6, seed=0, sampler=Particles(4))
    assert x.dtype == torch.float32 and bool(x.isfinite().all())
    assert type(measured(model)(x, torch.full((3,), 0.5))) is kind


def test_what_cannot_be_measured_is_refused():
    with pytest.raises(TypeError, match="speaks of numbers under Gaussian noise, and Masking"):
        un.targets.measured(un.oracles.table(un.Masking(2, (2,)), torch.full((4,), 0.25)), OPERATOR, Y, NOISE)
    product = un.Denoiser(torch.nn.Identity(), un.Product(a=PROCESS, b=un.Masking(2, (2,))))
    with pytest.raises(TypeError, match="name its leaf, leaf='a'"):
        measured(product)
    with pytest.raises(TypeError, match="there is no leaf 'c'"):
        measured(product, leaf="c")
    with pytest.raises(ValueError, match="variance = -1"):
        measured(variance=-1.0)
    with pytest.raises(ValueError, match="the measurements 'seen' are not given"):
        drawn(measured(y="seen"), 2)
    with pytest.raises(ValueError, match=r"each row of 'seen' has shape \(3,\)"):
        drawn(measured(y="seen"), 2, condition={"seen": torch.zeros(2, 3)})
    with pytest.raises(ValueError, match="at least 0"):
        drawn(measured(variance=lambda t: -t), 2)
    assert A.shape == (2, 4)
