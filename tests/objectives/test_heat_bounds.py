"""The bound of angles: equal to -log q with the exact model, at most a density with any other, in its default end too."""

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.generators import Generator
from unnoise.generators.local import divergence_rate
from unnoise.generators.path_estimates import path_divergence, simulated
from unnoise.heat_laws import log_wrapped
from unnoise.oracles import heat_mixture
from unnoise.verify.subjects import heat_subject
from unnoise.verify.wrong import Perturbed

WEIGHTS, VARIANCES = torch.tensor([0.3, 0.5, 0.2]).double(), torch.tensor([0.1, 0.3, 0.05]).double()
MEANS = torch.tensor([[-2.5], [0.3], [3.0]]).double()


def oracle(process=None):
    return heat_mixture(process or un.WrappedNormal((1,)), WEIGHTS, MEANS, VARIANCES)


class Unnormalised(un.WrappedNormal):
    """A mutant: a density without its factor 1/(2 pi)."""

    def law(self, mean, variance):
        law = super().law(mean, variance)
        law.log_density = lambda x: log_wrapped(x.double() - mean.double(), variance) + torch.log(torch.tensor(2 * torch.pi))
        return law


def gap(process):
    truth, exact = oracle(process), -oracle().log_prob(MEANS)
    ours = un.bound(truth, MEANS, exact=True, times=un.Quadrature(64), cutoff=0.05, decoder=truth.decoder).total
    return float((ours - exact).abs().max())


def test_the_exact_model_has_the_datas_own_surprise():
    assert gap(un.WrappedNormal((1,))) < 1e-6
    assert gap(Unnormalised((1,))) > 1


def test_a_short_schedule_pays_for_its_prior():
    """bound = -log q + E log(q_1/p_1), with much of the data left at t = 1."""
    process = un.WrappedNormal((1,), un.schedules.VE(0.02, 1.2))
    truth = oracle(process)
    nodes, log_weight = process.support(MEANS, 1.0)
    gaps = torch.stack([truth.log_marginal(x, 1.0) - process.prior(3).log_prob(x) for x in nodes])
    mismatch = (log_weight.exp() * gaps).sum(0)
    ours = un.bound(truth, MEANS, exact=True, times=un.Quadrature(64), cutoff=0.1, decoder=truth.decoder).total
    assert torch.allclose(ours, mismatch - truth.log_prob(MEANS), atol=1e-6) and float(mismatch.abs().min()) > 0.004


def test_the_default_end_is_the_heat_kernel_around_x_eps():
    process = un.WrappedNormal((2,))
    decoder, x0 = un.objectives.default_decoder(process), torch.tensor([[0.3, -3.0]]).double()
    assert type(decoder) is un.decoders.HeatDecoder and not decoder.needs_network
    for eps in (0.0, 0.5, 0.9):
        nodes, log_weight = process.support(x0, eps)
        rows = x0.expand(len(nodes), 2)
        mean = -(log_weight[:, 0].exp() * decoder.log_prob(process, None, rows, nodes[:, 0], eps)).sum()
        assert torch.allclose(decoder.nll(process, None, x0, None, eps), mean, atol=1e-8)
    with pytest.raises(TypeError, match="does not fit Gaussian"):
        decoder.nll(un.Gaussian((1,)), None, torch.zeros(1, 1), None, 0.1)


def test_the_whole_bound_integrates_to_at_most_one():
    """With the default decoder from the first noise on: one minus what the last noise blurs."""
    x, weights = un.Torus((1,)).nodes(48)
    ours = un.bound(oracle(), x, exact=True, times=un.Quadrature(48)).total
    mass = float((weights * (-ours).exp()).sum())
    assert 0.99 < mass <= 1 + 1e-6


def test_training_times_are_unbiased():
    x = MEANS[1:2].expand(4000, 1)
    exact = un.bound(oracle(), MEANS[1:2], exact=True, times=un.Quadrature(64)).total
    values = un.bound(oracle(), x, seed=0).total
    assert (values.mean() - exact).abs() < 4 * values.std() / 4000**0.5


def test_a_chain_of_angles_is_bounded_too():
    chain = un.Chain(un.WrappedNormal((1,)), torch.linspace(0.1, 1.0, 65, dtype=torch.float64))
    truth = oracle().predicting(process=chain)
    ours = un.bound(truth, MEANS, exact=True, decoder=oracle().decoder).total
    over = ours + oracle().log_prob(MEANS)
    assert bool((over > 0).all()) and float(over.max()) < 0.4


def along_paths(process, steps=64, rows=2000):
    """KL of the way back given x_0 from a wrong model's, between two times: by log dP/dQ of small steps, by the divergence
    along the same paths, and by quadrature in x_t and t."""
    truth = heat_subject(process, "paths").oracle
    model, x0 = Perturbed(truth, 0.5, 100), truth.draw(un.NoiseSource(1, 1))
    space, high, low = process.space, 0.9, 0.55

    def generator(model_of):
        return lambda t: Generator(space, lambda x: model_of(x, t))

    many = x0.expand(rows, *x0.shape[1:])
    true = generator(lambda x, t: process.conditioned_local(x, x0.expand_as(x), t))
    wrong = generator(lambda x, t: model(x, t).local())
    start = process.marginal(many, high).draw(un.NoiseSource(2, rows))
    paths = simulated(true, start, torch.linspace(high, low, steps + 1).tolist(), un.NoiseSource(3, rows))
    by_ratio, by_rate = path_divergence(true, wrong, paths)
    line, share = np.polynomial.legendre.leggauss(12)
    exact = 0.0
    for place, weight in zip(low + (high - low) * (line + 1) / 2, share * (high - low) / 2, strict=True):
        nodes, log_weight = process.support(x0, float(place))
        x = nodes[:, 0]
        rate = divergence_rate(process.space, true(float(place)).local(x), wrong(float(place)).local(x), x)
        exact += float(weight) * float((log_weight[:, 0].exp() * rate.detach()).sum())
    return by_ratio, by_rate, exact


CLOSED = {
    "torus": lambda: un.WrappedNormal((1,)),
    "S1": lambda: un.SphereHeat(1),
    "S2": lambda: un.SphereHeat(2),
    "SO3": lambda: un.RotationHeat(),
}


@pytest.mark.conformance
@pytest.mark.parametrize("name", CLOSED)
def test_the_rate_of_the_bound_is_a_density_of_paths(name):
    """Within 4.5 standard errors (a false alarm in 18,000 seeds for each of four) and a step's error of 2%; a metric that is
    off by two is not."""
    process = CLOSED[name]()
    by_ratio, by_rate, exact = along_paths(process)
    assert abs(by_ratio.mean - exact) < 4.5 * by_ratio.error + 0.02 * exact and exact > 20 * by_ratio.error
    assert abs(by_rate.mean - exact) < 4.5 * by_rate.error + 0.02 * exact
    assert abs(by_ratio.mean - 2 * exact) > 10 * by_ratio.error + 0.02 * exact
