"""What is drawn has the law that is computed: 50,000 draws per law, by chi-square or Kolmogorov-Smirnov.

False alarms: each of the tests below rejects a right law with probability 1e-7; there are fewer than 100 of them, so the
whole suite raises one with probability below 1e-5.  Every statistic also rejects its planted mutant.
"""

from math import sqrt

import pytest
import torch

import unnoise as un
from unnoise.generators.kolmogorov import code, states

DRAWS, LEVEL = 50_000, 1e-7


def chi_square_rejects(observed: torch.Tensor, probs: torch.Tensor) -> bool:
    """Pearson's statistic against its chi-square law (upper tail by the regularised gamma function)."""
    assert int(observed[probs <= 1e-12].sum()) == 0, "an impossible state was drawn"
    keep = probs > 1e-12
    expected = probs[keep] * observed.sum()
    statistic = ((observed[keep] - expected).square() / expected).sum()
    freedom = torch.tensor(float(keep.sum() - 1), dtype=torch.float64)
    return freedom > 0 and float(torch.special.gammaincc(freedom / 2, statistic / 2)) < LEVEL


def ks_rejects(z: torch.Tensor) -> bool:
    """Kolmogorov-Smirnov against the standard normal, by the DKW inequality (so the level is exact or better)."""
    u = torch.special.ndtr(z.double().flatten()).sort().values
    n = len(u)
    grid = torch.arange(n, dtype=torch.float64)
    gap = torch.maximum((u - grid / n).max(), ((grid + 1) / n - u).max())
    return float(gap) > sqrt(torch.log(torch.tensor(2 / LEVEL)) / (2 * n))


MOVING = [torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.2, 0.3, 0.5])]


def falling(t):
    """So fast that the first law's own share is negative, though no rate is: drawn from one table."""
    return torch.stack([(1 - t) ** 3, 1 - (1 - t) ** 3], -1)


FINITE = {
    "masking": lambda: un.Masking(3, (2,)),
    "masking-cosine": lambda: un.Masking(3, (2,), un.schedules.Cosine()),
    "masking-sizes": lambda: un.Masking([2, 3]),
    "uniform": lambda: un.Uniform(3, (2,)),
    "uniform-sizes": lambda: un.Uniform([2, 4]),
    "interpolation": lambda: un.Interpolation(3, (2,), torch.tensor([0.6, 0.3, 0.1])),
    "interpolation-own": lambda: un.Interpolation([2, 3], noise=torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7]])),
    "interpolation-mask": lambda: un.Interpolation(3, (2,), un.noise_laws.uniform_with_mask(3)),
    "mixture": lambda: un.Mixture.uniform_and_mask(3, (2,), uniform=0.4),
    "mixture-moving": lambda: un.Mixture(3, (2,), laws=MOVING, weights=falling),
    "rates": lambda: un.RateMatrix(un.rate_matrices.nearest_neighbour(4), (2,)),
    "rates-absorbing": lambda: un.RateMatrix(un.rate_matrices.with_mask(un.rate_matrices.banded(3, 1)), (2,), size=3),
    "birth-death": lambda: un.BirthDeath(3, (2,), occupancy=0.3),
    "pure-death": lambda: un.BirthDeath(3, (2,), occupancy=0.0),
}


def law_of(kind: str, process, x, y):
    """A law and the matrix of its probabilities over all states, for one state repeated."""
    return {
        "prior": lambda: process.prior(len(x)),
        "marginal": lambda: process.marginal(x, 0.4),
        "transition": lambda: process.transition(y, 0.2, 0.7),
        "posterior": lambda: process.posterior(y, x, 0.2, 0.7),
        "reverse": lambda: un.oracles.table(process, table_of(process))(y, 0.7).step(0.2),
    }[kind]()


def table_of(process):
    weights = un.NoiseSource(3, process.space.count).uniform() + 0.1
    return weights / weights.sum()


def counts(process, x):
    return torch.bincount(code(process.state_space, x), minlength=process.state_space.count).double()


@pytest.mark.conformance
@pytest.mark.parametrize("kind", ["prior", "marginal", "transition", "posterior", "reverse"])
@pytest.mark.parametrize("name", FINITE)
def test_finite(name, kind):
    process = FINITE[name]()
    points = states(process.state_space)
    x = process.space.states()[1:2].expand(DRAWS, -1)
    y = process.marginal(process.space.states()[1:2], 0.7).draw(un.NoiseSource(9, 1)).expand(DRAWS, -1)
    law = law_of(kind, process, x, y)
    probs = law_of(kind, process, x[:1].expand(len(points), -1), y[:1].expand(len(points), -1)).log_prob(points).exp()
    assert abs(float(probs.sum()) - 1) < 1e-10
    observed = counts(process, law.draw(un.NoiseSource(1, DRAWS)))
    assert not chi_square_rejects(observed, probs)
    if float(probs.max()) < 0.999:  # the mutant: 3 % of the draws land on the least likely state instead
        rarest = torch.where(probs > 1e-12, probs, 2.0).argmin()
        moved = 0.97 * probs + 0.03 * torch.nn.functional.one_hot(rarest, len(probs))
        assert chi_square_rejects(moved * DRAWS, probs)


@pytest.mark.conformance
@pytest.mark.parametrize("schedule", [un.schedules.Cosine(), un.schedules.VE(), un.schedules.Linear()], ids=str)
@pytest.mark.parametrize("kind", ["prior", "marginal", "transition", "posterior"])
def test_gaussian(schedule, kind):
    process = un.Gaussian((1,), schedule)
    x = torch.full((DRAWS, 1), 0.8, dtype=torch.float64)
    law = {
        "prior": lambda: process.prior(DRAWS, torch.float64),
        "marginal": lambda: process.marginal(x, 0.4),
        "transition": lambda: process.transition(x, 0.2, 0.7),
        "posterior": lambda: process.posterior(x, 0.5 * x, 0.2, 0.7),
    }[kind]()
    z = (law.draw(un.NoiseSource(2, DRAWS)) - law.mean) / law.std
    assert not ks_rejects(z)
    assert ks_rejects(0.95 * z) and ks_rejects(z + 0.05)


@pytest.mark.conformance
def test_oracles_draw_their_own_law():
    process = un.Uniform(3, (2,))
    oracle = un.oracles.table(process, table_of(process))
    probs = oracle.log_prob(process.space.states()).exp()
    assert not chi_square_rejects(counts(process, oracle.draw(un.NoiseSource(4, DRAWS))), probs)
    chain = un.Uniform(2, (3,))
    transition = torch.tensor([[0.9, 0.3], [0.1, 0.7]])
    markov = un.oracles.MarkovChain(chain, torch.tensor([0.2, 0.8]), transition)
    probs = markov.log_prob(chain.space.states()).exp()
    assert abs(float(probs.sum()) - 1) < 1e-12
    assert not chi_square_rejects(counts(chain, markov.draw(un.NoiseSource(5, DRAWS))), probs)


@pytest.mark.conformance
def test_count_based_bound_of_a_long_sequence():
    """Masking, length 64, exact posteriors: the mean is -log q(x) within 4 standard errors, and those mean something."""
    process = un.Masking(4, (64,))
    columns = torch.rand(4, 4, dtype=torch.float64) + 0.05
    oracle = un.oracles.MarkovChain(process, torch.full((4,), 0.25, dtype=torch.float64), columns / columns.sum(0))
    x = oracle.draw(un.NoiseSource(6, 1))
    exact = -oracle.log_prob(x).item()
    halves = [un.bound(oracle, x.expand(4000, -1), times=un.MaskedCount(), seed=seed).total for seed in (1, 2)]
    for values in halves:
        assert abs(values.mean().item() - exact) < 4 * values.std().item() / 4000**0.5
    assert 0.8 < (halves[0].std() / halves[1].std()).item() < 1.25  # a finite variance repeats itself
