"""Angles drawn by every method that knows them, against the data's own waves; and densities along the flow."""

import pytest
import torch

import unnoise as un
from unnoise.heat_laws import UniformAngles
from unnoise.oracles import heat_mixture

WEIGHTS, VARIANCES = torch.tensor([0.3, 0.5, 0.2]).double(), torch.tensor([0.1, 0.3, 0.05]).double()
MEANS = torch.tensor([[-2.5], [0.3], [3.0]]).double()
N = 2000


def oracle(process=None, predicts=None):
    return heat_mixture(process or un.WrappedNormal((1,)), WEIGHTS, MEANS, VARIANCES, predicts)


def worst(x):
    """The largest error of the means of six waves, in standard errors; their means are known."""
    found = 0.0
    for k in (1, 2, 3):
        fade = WEIGHTS * torch.exp(-k * k * VARIANCES / 2)
        for wave in (torch.sin, torch.cos):
            values = wave(k * x.double())
            exact = (fade * wave(k * MEANS[:, 0])).sum()
            found = max(found, float((values.mean() - exact).abs() / (values.std() / len(x) ** 0.5)))
    return found


slow = pytest.mark.conformance
METHODS = [
    pytest.param(un.samplers.Ancestral(), 96, id="ancestral"),
    pytest.param(un.samplers.FromGenerator(), 128, id="euler", marks=slow),
    pytest.param(un.samplers.FromGenerator(0.5), 48, id="trapezoid", marks=slow),
]


@pytest.mark.parametrize(("sampler", "steps"), METHODS)
def test_the_reverse_run_returns_the_data(sampler, steps):
    """Six waves within 4.5 standard errors: a false alarm in some 24,000 seeds; the seed is fixed, the bias below one."""
    x, _ = un.sample(oracle(), n=N, steps=steps, sampler=sampler, seed=3, dtype=torch.float64)
    assert bool((x.abs() <= torch.pi).all()) and worst(x) < 4.5


def test_the_default_and_the_flow_return_the_data():
    x, info = un.sample(oracle(), n=1000, steps=64, seed=5, dtype=torch.float64)
    assert worst(x) < 4.5
    x, _ = un.sample(oracle(), n=1000, tolerance=1e-4, seed=5, dtype=torch.float64)
    assert worst(x) < 4.5


class HalfScore(un.WrappedNormal):
    """A mutant: the metric factor of the score is lost."""

    def reverse_local(self, x_t, score, t):
        return super().reverse_local(x_t, 0.5 * score, t)


class NormalPrior(un.WrappedNormal):
    """A mutant: the prior has the measure of the line, N(0, 1) wrapped."""

    def uniform(self, like):
        return self.law(torch.zeros_like(like), torch.ones(len(like), 1).double())


class ShortPrior(un.WrappedNormal):
    """A mutant: uniform over a part of the circle."""

    def uniform(self, like):
        class Part(UniformAngles):
            def draw(self, noise):
                return 0.8 * super().draw(noise)

        return Part(like)


@pytest.mark.parametrize("mutant", [HalfScore, pytest.param(NormalPrior, marks=slow), pytest.param(ShortPrior, marks=slow)])
def test_the_test_can_fail(mutant):
    """But for the prior's last tenth, which much noise forgives: there the run starts later."""
    process = mutant((1,), un.schedules.VE(0.01, 4.5 if mutant is HalfScore else 0.7))
    x, _ = un.sample(oracle(process), n=N, steps=96, sampler=un.samplers.FromGenerator(), seed=3, dtype=torch.float64)
    assert worst(x) > 8


def test_densities_along_the_flow_are_those_of_the_data():
    truth, x = oracle(), MEANS + 0.2
    x = un.Circle().project(x)
    ours, info = un.likelihood(truth, x, un.ProbabilityFlow(rtol=1e-5, atol=1e-5))
    exact = truth.log_marginal(x, 0.0)  # at the least noise, sigma = 0.01
    assert torch.allclose(ours, exact, atol=1e-4) and info.dimension == 1 and not info.bound


def test_products_have_a_flow_of_all_their_leaves():
    process = un.Product(a=un.WrappedNormal((1,)), y=un.Gaussian((1,), un.schedules.VE(0.01, 200.0)))
    from unnoise.verify import subject_of

    truth = subject_of(process, "mixed").oracle
    x = truth.draw(un.NoiseSource(0, 2))
    ours, _ = un.likelihood(truth, x, un.ProbabilityFlow(rtol=1e-5, atol=1e-5))
    assert torch.allclose(ours, truth.log_marginal(x, 0.0), atol=1e-2)  # of y little is left at the end


def test_angles_stand_beside_masked_labels():
    from unnoise.verify import subject_of

    process = un.Product(a=un.WrappedNormal((1,)), c=un.Masking(3, (1,)))
    truth = subject_of(process, "mixed").oracle
    x, _ = un.sample(truth, n=2000, seed=1, dtype=torch.float64)
    y = truth.draw(un.NoiseSource(9, 20_000))
    for label in range(3):
        ours, exact = x["c"][:, 0] == label, y["c"][:, 0] == label
        assert abs(float(ours.double().mean() - exact.double().mean())) < 5 * 0.5 / 2000**0.5
        gap = (x["a"][ours].cos().mean() - y["a"][exact].cos().mean()).abs()
        assert float(gap) < 5 / float(ours.sum()) ** 0.5
