"""Randomised Hamiltonian dynamics and the bouncy particle: what they leave as it is, and their reversal against a grid.

Drawn laws are compared by the largest gap of distribution functions, at 2.7/sqrt(n): by chance exceeded once in a million.
"""

from math import log, log2, pi

import pytest
import torch

import unnoise as un
from unnoise import networks
from unnoise.oracles.velocity_grid import VelocityGivenPlace
from unnoise.processes.refreshed import BOUNCE
from unnoise.verify import subject_of
from unnoise.verify.flights import operator_checks, resting_checks

ROWS = 50_000
BOTH = [un.RandomisedHamiltonian, un.BouncyParticle]
WEIGHTS, MEANS, STDS = torch.tensor([0.4, 0.6]), torch.tensor([[-1.0], [1.0]]), torch.tensor([[0.4], [0.3]])
normal = torch.distributions.Normal


def gap_of(drawn, cdf):
    """The largest gap of distribution functions, in units of 1/sqrt(n)."""
    x = drawn.double().flatten().sort().values
    n, exact = len(x), cdf(x)
    steps = torch.arange(n + 1) / n
    return max(float((exact - steps[:-1]).max()), float((steps[1:] - exact).max())) * n**0.5


def data_cdf(x):
    return 0.4 * normal(-1.0, 0.4).cdf(x) + 0.6 * normal(1.0, 0.3).cdf(x)


def truth(kind, steps=120, places=128, **options):
    return un.oracles.VelocityGrid(kind((1,), **options), WEIGHTS, MEANS, STDS, steps, places).ending_exactly()


@pytest.mark.parametrize("kind", BOTH)
def test_a_standard_normal_law_is_left_as_it_is(kind):
    """50,000 paths in two dimensions; second moments at five standard errors, once in two million by chance."""
    end = kind((2,), duration=3.0).flights(un.NoiseSource(5, ROWS).normal((2,)).double(), un.NoiseSource(6, ROWS)).end
    flat = end.reshape(ROWS, 4)
    assert max(gap_of(column, normal(0.0, 1.0).cdf) for column in flat.T) < 2.7
    second = flat.T @ flat / ROWS - torch.eye(4, dtype=torch.float64)
    assert float((second / (1 + torch.eye(4)).sqrt()).abs().max()) < 5 / ROWS**0.5


def test_bounces_that_come_too_late_are_seen(monkeypatch):
    monkeypatch.setattr(un.BouncyParticle, "_uphill", lambda self, z: 0.6 * (z[:, 0] * z[:, 1]).double().flatten(1).sum(1))
    x0 = un.NoiseSource(5, 20_000).normal((2,)).double()
    end = un.BouncyParticle((2,), duration=3.0).flights(x0, un.NoiseSource(6, 20_000)).end
    assert max(gap_of(column, normal(0.0, 1.0).cdf) for column in end.reshape(-1, 4).T) > 2.7


@pytest.mark.parametrize("kind", BOTH)
def test_its_generator_and_what_it_leaves_as_it_is(kind):
    subject = subject_of(kind((1,)), "own")
    assert not [row.quantity for check in (operator_checks, resting_checks) for row in check(subject) if not row.ok]


def test_in_one_dimension_the_bouncy_particle_is_the_zig_zag_between_fresh_velocities():
    """The same waits for the same exponentials, and a bounce is a flip."""
    bouncy, zigzag = un.BouncyParticle((1,), refresh=0.4), un.ZigZag((1,), refresh=0.4)
    x = un.NoiseSource(0, 200).normal((1,)).double()
    z = torch.stack([x, torch.where(un.NoiseSource(1, 200).uniform((1,)) < 0.5, -1.0, 1.0).double()], 1)
    noise = un.NoiseSource(2, 200)
    wait, mark = bouncy.next_jump(z, noise.at("candidate", 0).at("exponentials"))
    other, _ = zigzag.next_jump(z, noise)
    torch.testing.assert_close(wait, other, rtol=1e-12, atol=0)
    torch.testing.assert_close(bouncy.flow(z, wait), zigzag.flow(z, wait))
    assert 0.2 < float((mark == BOUNCE).double().mean()) < 1
    torch.testing.assert_close(bouncy.bounced(z), torch.stack([z[:, 0], -z[:, 1]], 1))
    torch.testing.assert_close(bouncy.rate_of(z, torch.full((200,), BOUNCE)), zigzag.exit_rate(z) - 6 * 0.4)


class AtRest(un.AnyDenoiser):
    """Of data N(0, I): the law of v is N(0, I) at all times; `mean` makes it wrong."""

    def __init__(self, process, mean=0.0):
        super().__init__()
        self.process, self.mean = process, mean

    def forward(self, x_t, t, **condition):
        d = self.process.space.dimension
        value = torch.zeros(len(x_t), 1, 1 + 2 * d, dtype=torch.float64)
        value[:, :, 1 : 1 + d] = self.mean
        return un.VelocityDensity(value, self.process, x_t, t)


@pytest.mark.parametrize("kind", BOTH)
def test_of_data_at_rest_the_bound_of_every_path_is_the_likelihood(kind):
    process, x0 = kind((3,), cap=1e6), un.NoiseSource(0, 12).normal((3,)).double()
    exact = 0.5 * (x0.square() + log(2 * pi)).sum(1)
    assert float((un.bound(AtRest(process), x0, seed=0).total - exact).abs().max()) < 1e-12
    assert float((un.bound(AtRest(process, 0.5), x0, seed=0).total - exact).mean()) > 0.5


X0 = torch.linspace(-1.6, 1.6, 9, dtype=torch.float64).repeat(10).unsqueeze(1)


@pytest.mark.parametrize("kind", [un.BouncyParticle, pytest.param(un.RandomisedHamiltonian, marks=pytest.mark.conformance)])
def test_with_the_law_of_the_grid_the_bound_of_a_path_is_the_likelihood(kind):
    """Along every path, with an error that falls with the grid."""
    gaps = []
    for steps, places in ((60, 96), (120, 192)):
        exact = truth(kind, steps, places, cap=1e6)
        gap = un.bound(exact, X0, seed=0).total + exact.log_prob(X0)
        gaps.append(float(gap.abs().mean()))
    assert gaps[-1] < 4e-3 and float(gap.mean().abs()) < 4e-3 and log2(gaps[0] / gaps[1]) > 1.3, gaps
    resting = exact.predicting(process=kind((1,), cap=1e6))
    assert abs(float((un.bound(resting, X0, seed=0).total + exact.log_prob(X0)).mean())) < 0.02


@pytest.mark.conformance
@pytest.mark.parametrize("kind", BOTH)
def test_a_few_times_of_a_path_estimate_the_same_bound(kind):
    """At four standard errors: by chance once in 16,000."""
    exact = truth(kind, cap=1e6, visits=4)
    x0 = torch.full((3000, 1), 0.7, dtype=torch.float64)
    found = un.bound(exact, x0, seed=0).total
    error = float(found.std()) / len(x0) ** 0.5
    assert abs(float(found.mean() + exact.log_prob(x0[:1]))) < 4 * error + 2e-3 and error < 0.15


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (un.RandomisedHamiltonian, 600),
        pytest.param(un.RandomisedHamiltonian, ROWS, marks=pytest.mark.conformance),
        pytest.param(un.BouncyParticle, ROWS, marks=pytest.mark.conformance),
    ],
)
def test_the_reverse_from_the_prior_returns_the_data(kind, rows, monkeypatch):
    exact = truth(kind, *((120, 128) if rows < 1000 else (160, 160)), cap=20.0)
    assert gap_of(un.sample(exact, rows, seed=3)[0], data_cdf) < 2.7
    monkeypatch.setattr(VelocityGivenPlace, "draw", lambda law, noise: noise.normal((1,)).double())  # not p(v | x)
    assert gap_of(un.sample(exact, 600, seed=3)[0], data_cdf) > 2.7


@pytest.mark.parametrize("kind", [un.BouncyParticle, pytest.param(un.RandomisedHamiltonian, marks=pytest.mark.conformance)])
def test_the_default_network_learns_two_coordinates(kind):
    process = kind((2,), visits=2, cap=10.0)
    denoiser = un.Denoiser(networks.default_network(process, "tiny", seed=0), process)
    x0 = torch.where(un.NoiseSource(0, 128).uniform((1,)) < 0.5, -1.0, 1.0) + 0.1 * un.NoiseSource(1, 128).normal((2,))
    objective, optimiser = un.Objective(denoiser), torch.optim.Adam(denoiser.parameters(), lr=3e-3)
    whole = un.Objective(un.Denoiser(denoiser.network, kind((2,), cap=10.0)))
    with torch.no_grad():
        before = whole(x0[:32].float(), un.NoiseSource(50, 32)).total.mean()
    for i in range(25):
        optimiser.zero_grad()
        objective(x0.float(), un.NoiseSource(i, 128)).loss.mean().backward()
        optimiser.step()
    with torch.no_grad():
        assert whole(x0[:32].float(), un.NoiseSource(50, 32)).total.mean() < before - 0.05  # along the same paths
    drawn, info = un.sample(denoiser, 4, seed=0)
    assert drawn.shape == (4, 2) and drawn.dtype == torch.float32


def test_bad_input_is_named():
    process = un.RandomisedHamiltonian((1,))
    with pytest.raises(ValueError, match="duration = -1"):
        un.BouncyParticle((1,), duration=-1.0)
    with pytest.raises(ValueError, match="refresh = 0: velocities are drawn afresh"):
        un.RandomisedHamiltonian((1,), refresh=0.0)
    with pytest.raises(ValueError, match="is nan; drop or impute"):
        process.space.check(torch.tensor([[float("nan")]]), "x0")
    with pytest.raises(TypeError, match="is for velocities that are drawn afresh"):
        un.Denoiser(torch.nn.Linear(1, 1), un.Kac((1,)), un.VelocityDensity)
    with pytest.raises(ValueError, match=r"expected \(2, 8, 3\)"):
        un.Denoiser(lambda_module(), process)(torch.zeros(2, 2, 1), 0.5)
    with pytest.raises(ValueError, match="one place and one velocity"):
        un.oracles.VelocityGrid(un.RandomisedHamiltonian((2,)), torch.ones(1), torch.zeros(1, 2), torch.ones(1, 2))


def lambda_module():
    class Wrong(torch.nn.Module):
        def forward(self, x, t):
            return x[:, 0]

    return Wrong()
