"""What samplers draw has the law of the data: 50,000 samples each, by chi-square.

False alarms: four tests, each rejects a right law with probability 5e-6, so the whole file does with probability 2e-5.
Methods with steps are run finely enough that their own error cannot be told from 0 by so many samples.
"""

import pytest
import torch

import unnoise as un
from unnoise.generators.kolmogorov import code
from unnoise.noise import Noise
from unnoise.samplers import Ancestral, FirstHitting, Reveal, ThetaTrapezoidal, sample

DRAWS, LEVEL = 50_000, 5e-6
LAW = torch.tensor([0.19, 0.05, 0.12, 0.21, 0.07, 0.04, 0.03, 0.16, 0.13], dtype=torch.float64)

pytestmark = pytest.mark.conformance


def rejects(x: torch.Tensor, space: un.Finite) -> bool:
    """Pearson's statistic of the states drawn, against the table."""
    assert int(x.max()) < space.size, "a state that is no category was left"
    observed = code(space, x).bincount(minlength=len(LAW)).double()
    expected = LAW * DRAWS
    statistic = ((observed - expected).square() / expected).sum()
    freedom = torch.tensor(len(LAW) - 1.0, dtype=torch.float64)
    return float(torch.special.gammaincc(freedom / 2, statistic / 2)) < LEVEL


MASKING = un.oracles.table(un.Masking(3, (2,)), LAW)


def test_first_hitting():
    x, info = sample(MASKING, DRAWS, 1, FirstHitting())
    assert info.calls == 2 and not rejects(x, MASKING.process.space)


def test_reveal():
    x, _ = sample(MASKING, DRAWS, 400, Reveal())
    assert not rejects(x, MASKING.process.space)


def test_ancestral_on_uniform_noise():
    oracle = un.oracles.table(un.Uniform(3, (2,)), LAW)
    x, _ = sample(oracle, DRAWS, 100, Ancestral())
    assert not rejects(x, oracle.process.space)


def test_trapezoidal_on_rates():
    """From the marginal at t = 0.9: the prior is another law by as much as alpha_1."""
    process = un.RateMatrix(un.rates.nearest_neighbour(3), (2,), un.schedules.LinearBeta(2.0, 2.0))
    oracle = un.oracles.table(process, LAW)
    noise = Noise(7, DRAWS)
    x = process.marginal(oracle.draw(noise.at("data")), 0.9).draw(noise.at("noised"))
    x, _ = sample(oracle, None, 50, ThetaTrapezoidal(), x=x, start=0.9)
    assert not rejects(x, process.space)


def test_too_few_steps_are_noticed():
    """One step draws the coordinates independently."""
    x, _ = sample(MASKING, DRAWS, 1, Reveal())
    assert rejects(x, MASKING.process.space)
