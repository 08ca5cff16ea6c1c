"""The bound on the simplex: -log q with the exact model, at most one in all with any other, at vertices and inside."""

import pytest
import torch

import unnoise as un
from unnoise.oracles import simplex_mixture, vertex_table

PROBS = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
POINTS, AGES = torch.tensor([[0.2, 0.8], [0.7, 0.3]], dtype=torch.float64), torch.tensor([0.1, 0.2])


def vertices(size):
    return vertex_table(un.WrightFisher(size, vertices=True), PROBS[:size] / PROBS[:size].sum())


def inside():
    process = un.WrightFisher([1.5, 2.0], un.schedules.VE(0.15, 2.2))
    return simplex_mixture(process, torch.tensor([0.4, 0.6]), POINTS, AGES)


class Wrong(torch.nn.Module):
    """A smooth function of x and t that has nothing to do with the data."""

    def __init__(self, size, seed, scale):
        super().__init__()
        numbers = torch.Generator().manual_seed(seed)
        self.first, self.second = (scale * torch.randn(size, size, generator=numbers, dtype=torch.float64) for _ in range(2))

    def forward(self, x, t):
        return torch.sin(3 * x.double() @ self.first + t.double().unsqueeze(-1)) @ self.second


class Straight(torch.nn.Linear):
    def forward(self, x, t):
        return super().forward(x)


class FlatPrior(un.WrightFisher):
    """A mutant: the prior's density taken of the area of the simplex, not of the first shares."""

    def prior_kl(self, x0, t=1.0):
        return super().prior_kl(x0, t) - 0.5 * torch.tensor(3.0).log()


def test_the_exact_model_has_the_datas_own_surprise():
    truth, x0 = vertices(2), torch.eye(2, dtype=torch.float64)
    ours = un.bound(truth, x0, exact=True, times=un.Quadrature(48))
    assert torch.allclose(ours.total, -truth.log_prob(x0), atol=1e-6)
    truth = inside()
    ours = un.bound(truth, POINTS, exact=True, times=un.Quadrature(48), decoder=truth.decoder).total
    assert torch.allclose(ours, -truth.log_prob(POINTS), atol=1e-5)


def test_the_default_end_inside_is_a_density():
    """The integral over x_0 of exp(-bound) with the default decoder: near one, for the last noise blurs, and never above."""
    truth = inside()
    x, weights = un.Simplex(2).nodes(16)
    ours = un.bound(truth, x, exact=True, times=un.Quadrature(24)).total
    mass = float((weights * (-ours).exp()).sum())
    assert 0.8 < mass < 1 + 1e-5


@pytest.mark.parametrize("scale", [0.3, 1.5])
def test_wrong_networks_at_vertices_sum_to_at_most_one(scale):
    process, x0 = un.WrightFisher(2, vertices=True), torch.eye(2, dtype=torch.float64)
    ours = un.bound(un.Denoiser(Wrong(2, 0, scale), process), x0, exact=True, times=un.Quadrature(32)).total
    total = float((-ours).exp().sum())
    assert 0.1 < total <= 1 + 1e-5


def test_wrong_networks_inside_integrate_to_at_most_one():
    process = un.WrightFisher([1.5, 2.0], un.schedules.VE(0.15, 2.2))
    x, weights = un.Simplex(2).nodes(16)
    ours = un.bound(un.Denoiser(Wrong(2, 1, 0.3), process), x, exact=True, times=un.Quadrature(24)).total
    mass = float((weights * (-ours).exp()).sum())
    assert 0.1 < mass <= 1 + 1e-5


def test_training_times_are_unbiased():
    """4.5 standard errors: a false alarm in 1e-5 of runs."""
    truth, x0 = vertices(2), torch.eye(2, dtype=torch.float64)[1:]
    values = un.bound(truth, x0.expand(1500, 2), seed=0).total
    assert abs(float(values.mean() + truth.log_prob(x0)[0])) < 4.5 * float(values.std()) / 1500**0.5


def test_a_network_is_trained_by_it():
    process = un.WrightFisher(3, vertices=True)
    network = Straight(3, 3)
    objective = un.Objective(un.Denoiser(network, process))
    loss = objective(torch.eye(3), un.NoiseSource(0, 3)).loss.mean()
    loss.backward()
    assert bool(network.weight.grad.isfinite().all()) and float(network.bias.grad.abs().max()) > 0


def test_samples_come_back_to_the_data():
    """3,000 samples by 60 steps: shares of categories within 4.5 standard errors and what so few steps leave, 0.02."""
    truth = vertices(3)
    x, _ = un.sample(truth, n=3000, steps=60, seed=0)
    share = torch.bincount(x.argmax(-1), minlength=3) / 3000
    assert bool(((share - PROBS).abs() < 0.02 + 4.5 * (PROBS * (1 - PROBS) / 3000).sqrt()).all())
    assert float(x.amax(-1).mean()) > 0.9


@pytest.mark.conformance
def test_the_exact_model_of_three_categories():
    truth, x0 = vertices(3), torch.eye(3, dtype=torch.float64)
    ours = un.bound(truth, x0, exact=True, times=un.Quadrature(32)).total
    assert torch.allclose(ours, -truth.log_prob(x0), atol=2e-5)
    mutant = vertex_table(FlatPrior(3, vertices=True), PROBS)
    wrong = un.bound(mutant, x0[:1], exact=True, times=un.Quadrature(16)).total
    assert float((wrong + truth.log_prob(x0[:1])).abs()) > 0.5
