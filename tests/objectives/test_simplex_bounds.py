"""The bound on the simplex: -log q with the exact model, at most one in all with any other, at vertices and inside."""

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.generators import Generator, path_divergence, simulated
from unnoise.generators.local import divergence_rate
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


class Tabulated(torch.nn.Module):
    """An oracle's values in the simplex of two, by linear interpolation on a fine grid of the angle."""

    def __init__(self, truth, nodes=1500):
        super().__init__()
        share = torch.sin(torch.linspace(0, torch.pi / 2, nodes, dtype=torch.float64)).square().clamp(1e-9, 1 - 1e-9)
        self.truth, self.points = truth, torch.stack([share, 1 - share], -1)

    def forward(self, x, t):
        table = self.truth(self.points, t[:1].double()).value
        place = torch.asin(x[:, 0].double().clamp(0, 1).sqrt()) / (torch.pi / 2) * (len(table) - 1)
        low = place.floor().long().clamp_max(len(table) - 2)
        return torch.lerp(table[low], table[low + 1], (place - low).unsqueeze(-1)).to(x.dtype)


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


@pytest.mark.conformance
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


@pytest.mark.conformance
def test_wrong_networks_inside_integrate_to_at_most_one():
    process = un.WrightFisher([1.5, 2.0], un.schedules.VE(0.15, 2.2))
    x, weights = un.Simplex(2).nodes(16)
    ours = un.bound(un.Denoiser(Wrong(2, 1, 0.3), process), x, exact=True, times=un.Quadrature(24)).total
    mass = float((weights * (-ours).exp()).sum())
    assert 0.1 < mass <= 1 + 1e-5


def along_paths(process, x0, steps, rows=2000):
    """KL of the way back given x_0 from a wrong network's, between two times: by log dP/dQ of steps that are Dirichlet laws,
    by the divergence along the same paths, and by quadrature in x_t and t."""
    model, high, low = un.Denoiser(Wrong(x0.shape[1], 1, 2.5), process), 0.75, 0.45
    many = x0.expand(rows, -1)

    def true(t):
        return Generator(process.space, lambda x: process.conditioned_local(x, x0.expand_as(x), t))

    def wrong(t):
        return Generator(process.space, lambda x: model(x, t).local())

    start = process.marginal(many, high).draw(un.NoiseSource(2, rows))
    paths = simulated(true, start, torch.linspace(high, low, steps + 1).tolist(), un.NoiseSource(3, rows))
    with torch.no_grad():
        by_ratio, by_rate = path_divergence(true, wrong, paths)
    line, share = np.polynomial.legendre.leggauss(8)
    exact = 0.0
    for place, weight in zip(low + (high - low) * (line + 1) / 2, share * (high - low) / 2, strict=True):
        nodes, log_weight = process.support(x0, float(place))
        x = nodes[:, 0]
        rate = divergence_rate(process.space, true(float(place)).local(x), wrong(float(place)).local(x), x)
        exact += float(weight) * float((log_weight[:, 0].exp() * rate.detach()).sum())
    return by_ratio, by_rate, exact


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["vertices", "inside"])
def test_the_rate_of_the_bound_is_a_density_of_paths(name):
    """Within 4.5 standard errors (a false alarm in 1e-5) and a step's error of 4%; a metric that is off by two is not."""
    if name == "vertices":
        process, x0 = un.WrightFisher([1.5, 2.0], vertices=True), torch.tensor([[0.0, 1.0]], dtype=torch.float64)
    else:
        process, x0 = un.WrightFisher([1.5, 2.0], un.schedules.VE(0.15, 2.2)), POINTS[:1]
    by_ratio, by_rate, exact = along_paths(process, x0, 64)
    assert abs(by_ratio.mean - exact) < 4.5 * by_ratio.error + 0.04 * exact and exact > 20 * by_ratio.error
    assert abs(by_rate.mean - exact) < 4.5 * by_rate.error + 0.04 * exact
    assert abs(by_ratio.mean - 2 * exact) > 10 * by_ratio.error + 0.04 * exact


def test_training_times_are_unbiased():
    """4.5 standard errors: a false alarm in 1e-5 of runs."""
    truth, x0 = vertices(2), torch.eye(2, dtype=torch.float64)[1:]
    values = un.bound(truth, x0.expand(600, 2), seed=0).total
    assert abs(float(values.mean() + truth.log_prob(x0)[0])) < 4.5 * float(values.std()) / 600**0.5


def test_a_network_is_trained_by_it():
    process = un.WrightFisher(3, vertices=True)
    network = Straight(3, 3)
    objective = un.Objective(un.Denoiser(network, process))
    loss = objective(torch.eye(3), un.NoiseSource(0, 3)).loss.mean()
    loss.backward()
    assert bool(network.weight.grad.isfinite().all()) and float(network.bias.grad.abs().max()) > 0


def test_mutants_break_the_identity(monkeypatch):
    """The prior taken of the area instead of the first shares; drifts compared without the metric's factor 1/x_i."""
    truth, x0 = vertices(2), torch.eye(2, dtype=torch.float64)
    mutant = vertex_table(FlatPrior(2, vertices=True), PROBS[:2] / PROBS[:2].sum())
    wrong = un.bound(mutant, x0, exact=True, times=un.Quadrature(32)).total
    assert float((wrong + truth.log_prob(x0)).abs().min()) > 0.3

    def flat(self, true, model, x):
        return 0.5 * ((true.drift - model.drift).square() / true.diffusion).sum(-1)

    monkeypatch.setattr(un.Simplex, "divergence", flat)
    wrong = un.bound(truth, x0, exact=True, times=un.Quadrature(32)).total
    assert float((wrong + truth.log_prob(x0)).abs().max()) > 0.05


def test_as_a_leaf():
    """Beside numbers, with the default network: a loss with gradients, and samples that are compositions (`verify` has
    its bound).
    """
    process = un.Product(s=un.WrightFisher(3), y=un.Gaussian((1,)))
    denoiser = un.Denoiser(un.networks.default_network(process, "tiny", seed=0), process)
    x0 = {"s": torch.tensor([[0.2, 0.3, 0.5], [0.6, 0.4, 0.0]]), "y": torch.tensor([[0.3], [-1.0]])}
    un.Objective(denoiser)(x0, un.NoiseSource(0, 2)).loss.mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in denoiser.parameters() if p.grad is not None)
    x, _ = un.sample(denoiser, n=4, steps=8, seed=0)
    assert x["s"].dtype == torch.float32 and torch.equal(x["s"], process.space.check(x)["s"])


def test_the_default_network_learns():
    """Its bound at start is that of equal logits; 30 steps bring it below."""
    process = un.WrightFisher(3, vertices=True)
    denoiser = un.Denoiser(un.networks.default_network(process, "tiny", seed=0), process)
    objective, optimiser = un.Objective(denoiser), torch.optim.Adam(denoiser.parameters(), 1e-2)
    x0 = torch.eye(3)[[0] * 120 + [1] * 6 + [2] * 2]
    before = float(un.bound(denoiser, x0, seed=1).total.mean().detach())
    for step in range(30):
        loss = objective(x0, un.NoiseSource(step, 128)).loss.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert abs(before - 1.0986) < 0.3 and float(un.bound(denoiser, x0, seed=1).total.mean().detach()) < before - 0.3


@pytest.mark.conformance
def test_the_exact_reverse_returns_categories():
    """50,000 samples by 64 calls from fresh draws of the prior: 4.5 standard errors (a false alarm in 1e5 seeds), and 0.004
    for the steps; a posterior that is off by 0.03 is seen in 4,000."""
    process, batch = un.WrightFisher(2, un.schedules.VE(0.3, 2.5), vertices=True), 2000
    probs = PROBS[:2] / PROBS[:2].sum()
    share = float(probs[0])

    def gap(model, n):
        options = {"n": batch, "steps": 32, "sampler": un.samplers.FromGenerator(0.5), "dtype": torch.float64}
        found = torch.cat([un.sample(model, seed=seed, **options)[0][:, 0] for seed in range(n // batch)])
        return abs(float((found > 0.5).double().mean()) - share)

    allowed = 0.004 + 4.5 * (share * (1 - share) / 50_000) ** 0.5
    assert gap(vertex_table(process, probs), 50_000) < allowed
    off = torch.tensor([-0.03, 0.03], dtype=torch.float64)
    assert gap(vertex_table(process, probs + off), 4_000) > allowed


@pytest.mark.conformance
def test_the_exact_reverse_returns_compositions():
    """50,000 samples by 96 steps from fresh draws of the prior, against the law at the last noise.

    Kolmogorov's distance: above 0.01 in one run in 1e-4, and 0.005 for the steps.
    """
    n = 50000
    truth = inside()
    model = un.Denoiser(Tabulated(truth), truth.process)
    drawn = un.sample(model, n=n, steps=96, seed=1, dtype=torch.float64)[0][:, 0].sort().values
    grid = (torch.arange(4000, dtype=torch.float64) + 0.5) / 4000
    density = truth.log_marginal(torch.stack([grid, 1 - grid], -1), 0.0).exp() / 4000
    ours = torch.searchsorted(drawn, grid + 0.5 / 4000) / n
    assert abs(float(density.sum()) - 1) < 1e-3
    assert float((ours - density.cumsum(0)).abs().max()) < 0.015
