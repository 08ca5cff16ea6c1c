"""Categories on the orthant: what noisy numbers say of them, the slopes of their mixture, and steps by bridges."""

import pytest
import torch
from exact_codes import Told

import unnoise as un
from unnoise import codes
from unnoise.cir_laws import _summed, log_series
from unnoise.noise import NoiseSource

Q = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)


class Prior(torch.nn.Module):
    def forward(self, x, t):
        return Q.log().expand(*x.shape[:-1], 3)


def exact():
    code = codes.corners(3, (1,)).double()
    return un.Denoiser(Prior(), un.CoxIngersollRoss(code.shape, alpha=1.0), code=code)


def states(denoiser, t, n=6, seed=0):
    x = torch.arange(n)[:, None] % 3
    return denoiser.process.marginal(denoiser.code.vectors[x], t).draw(NoiseSource(seed, n))


def log_mixture(denoiser, z, t):
    """log sum_a q(a) q(z | e_a), candidate by candidate."""
    process, found = denoiser.process, []
    for a in range(3):
        law = process.law(denoiser.code.vectors[a].expand_as(z), process.tau(t, z))
        found.append(Q[a].log() + law.log_prob(z))
    return torch.stack(found, 1)


@pytest.mark.parametrize("t", [0.3, 0.55, 0.8])
def test_probabilities_and_slopes_are_those_of_the_mixture(t):
    denoiser = exact()
    z = states(denoiser, t)
    prediction = denoiser(z, t)
    wanted = log_mixture(denoiser, z, t).log_softmax(1)
    assert float((prediction.log_probs[:, 0] - wanted).abs().max()) < 1e-8
    leaf = z.clone().requires_grad_()
    pi = denoiser.process.prior(6, torch.float64).log_prob(leaf)
    (slope,) = torch.autograd.grad((log_mixture(denoiser, leaf, t).logsumexp(1) - pi).sum(), leaf)
    lines = z * slope
    assert float((prediction.lines() - lines).abs().max() / lines.abs().max()) < 1e-6
    one = prediction.log_probs.exp() @ denoiser.code.vectors
    assert torch.allclose(prediction.clean(), one)


def test_a_step_is_exact_for_one_position():
    """From z_t of the mixture to z_s in one step: the means of 2 sqrt(z_s) and of its square are those at s, at five
    standard errors (false alarm 6e-7 each); the mutant steps from the most likely category."""
    denoiser, s, t, n = exact(), 0.55, 0.75, 10_000
    x = torch.multinomial(Q, n, replacement=True, generator=torch.Generator().manual_seed(0))[:, None]
    process, z0 = denoiser.process, denoiser.code.vectors[x]
    z_t = process.marginal(z0, t).draw(NoiseSource(1, n))
    prediction = denoiser(z_t, t)
    straight = (4 * process.marginal(z0, s).draw(NoiseSource(2, n))).sqrt()[:, 0, 1]
    found = (4 * prediction.step(s).draw(NoiseSource(3, n))).sqrt()[:, 0, 1]
    for power in (1, 2):
        spread = (straight**power).std() * (2 / n) ** 0.5
        assert float((found**power).mean() - (straight**power).mean()) == pytest.approx(0, abs=5 * float(spread))
    prediction.log_probs = torch.nn.functional.one_hot(prediction.log_probs.argmax(-1), 3).double().clamp_min(1e-300).log()
    mutant = (4 * prediction.step(s).draw(NoiseSource(3, n))).sqrt()[:, 0, 1]
    assert abs(float(mutant.square().mean() - straight.square().mean())) > 5 * float((straight**2).std() * (2 / n) ** 0.5)


def test_the_density_of_a_step_integrates_to_one():
    code = codes.Codebook(un.Finite(3, (1,)), torch.tensor([[0.0], [1.0], [4.0]])).double()
    denoiser = un.Denoiser(Told(code), un.CoxIngersollRoss(code.shape, alpha=1.0), code=code)
    y = torch.linspace(1e-3, 9, 2001, dtype=torch.float64)  # z = y^2/4
    z_t = torch.full((len(y), 1, 1), 2.0, dtype=torch.float64)
    law = denoiser(z_t, 0.7).step(0.55)
    density = law.log_prob((y.square() / 4)[:, None, None]).exp() * y / 2
    assert float(torch.trapezoid(density, y)) == pytest.approx(1, abs=1e-4)


def test_samples_have_the_law_of_the_data():
    """2,000 draws of three categories: total variation below 0.07 (false alarm below 1e-6), in four steps by bridges."""
    denoiser = exact()
    for sampler, steps in ((None, 16), (un.samplers.Ancestral(), 4)):
        x, _ = un.sample(denoiser, n=2_000, steps=steps, sampler=sampler, seed=0)
        found = torch.bincount(x[:, 0], minlength=3) / len(x)
        assert float((found - Q).abs().sum() / 2) < 0.07


def test_a_series_of_alpha_one_is_a_bessel_function():
    z = torch.tensor([0.0, 1e-6, 0.3, 7.0, 500.0, 2e5, 1e7], dtype=torch.float64)
    one = torch.ones_like(z)
    small = z < 1e6
    assert float((log_series(z, one) - _summed(z, 0 * one))[small].abs().max()) < 1e-10
    near = log_series(z, one * (1 + 1e-9))
    assert float((log_series(z, one) - near).abs().max()) < 1e-7


def test_numbers_that_recur_are_looked_at_once():
    process = un.CoxIngersollRoss((8, 20), alpha=1.0, schedule=un.schedules.VE(0.05, 1.5))
    x0 = 4.0 * torch.nn.functional.one_hot(torch.arange(24).reshape(3, 8) % 20, 20).double()
    plain = process.prior_kl(x0 + 0.0, torch.ones(3, dtype=torch.float64))
    assert float(plain.min()) > 1e-3
    assert torch.allclose(process.prior_kl(x0), plain, rtol=1e-10)


def test_vectors_of_many_numbers_are_refused():
    code = codes.Codebook(un.Finite(20, (1,)), torch.rand(20, 3, dtype=torch.float64))
    denoiser = un.Denoiser(Told(code), un.CoxIngersollRoss(code.shape, alpha=1.0), code=code)
    with pytest.raises(ValueError, match="few different numbers"):
        denoiser(torch.ones(1, 1, 3, dtype=torch.float64), 0.5)
    with pytest.raises(TypeError, match="not known how vectors are read under WrightFisher"):
        codes.evidence_of(un.WrightFisher(3))


def test_an_expectation_over_two_numbers_is_the_product_of_two():
    """Masses and means of both numbers by the nodes of two, beside the closed mean."""
    process = un.CoxIngersollRoss((1, 2), alpha=1.0)
    x0 = torch.tensor([[[4.0, 0.0]], [[1.0, 2.0]]], dtype=torch.float64)
    nodes, log_weight = process.support(x0, 0.5)
    tau = process.tau(0.5, x0)[:, None, None]
    mean = 1 + (x0 - 1) * torch.exp(-tau / 2)  # of dx = (alpha - x/s)/2 dtau + ...
    assert nodes.shape[1:] == x0.shape and float((log_weight.exp().sum(0) - 1).abs().max()) < 1e-8
    found = (log_weight.exp()[:, :, None, None] * nodes).sum(0)
    assert float((found - mean).abs().max()) < 1e-7
