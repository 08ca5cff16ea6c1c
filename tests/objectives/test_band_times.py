"""Times in the band of noise levels where a code is read: their density, unbiasedness, and what they save."""

from math import sqrt

import pytest
import torch

import unnoise as un
from unnoise import codes
from unnoise.noise import NoiseSource
from unnoise.objectives import BandTimes

LEVELS, WEIGHTS = torch.tensor([3.0, 1.0, 0.0, -4.0]), torch.tensor([0.2, 2.0, 1.0])
SCHEDULES = {
    "cosine": (lambda: un.schedules.Cosine(), 1e-3),
    "a late cut-off": (lambda: un.schedules.Cosine(), 0.3),
    "linear": (lambda: un.schedules.Linear(), 1e-4),
    "exploding": (lambda: un.schedules.VE(0.05, 6.0), 0.0),
    "learned": (lambda: un.schedules.Learned(), 0.0),
    "no band left": (lambda: un.schedules.Cosine(), 0.97),
}


class Even(torch.nn.Module):
    """Knows nothing: the exact network of positions that are even and independent."""

    def __init__(self, size):
        super().__init__()
        self.size = size

    def forward(self, x, t):
        return x.new_zeros(*x.shape[:-1], self.size)


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_weights_are_one_over_the_density(name):
    """Stratified draws integrate t^n over [low, 1] nearly without noise."""
    schedule, low = SCHEDULES[name][0](), SCHEDULES[name][1]
    rule, noise = BandTimes(schedule, LEVELS, WEIGHTS), NoiseSource(0, 4_000)
    t = rule.draw(noise, low)
    assert float(t.min()) >= low and float(t.max()) < 1
    for n in (0, 1, 3):
        found = float((t**n * rule.inverse_density(t, low)).mean())
        assert found == pytest.approx((1 - low ** (n + 1)) / (n + 1), rel=1e-2)
    grid = torch.linspace(low + 1e-6, 1 - 1e-6, 40_001, dtype=torch.float64)
    assert float(rule.density(grid, low).mean()) * (1 - low) == pytest.approx(1, abs=5e-3)


def two_symbols(shape=(1,)):
    code = codes.bits(2, shape).double()
    return un.Denoiser(Even(2), un.Gaussian(code.shape), code=code)


class Slipped(BandTimes):
    """The mutant: the density of the band alone."""

    is_bound = True

    def density(self, t, low):
        return super().density(t, low) - self.share / (1 - low) + 1e-9


def test_the_estimate_is_that_of_quadrature():
    """20,000 rows of two symbols, their bound log 2: five standard errors (false alarm 6e-7); the mutant is beyond."""
    denoiser = two_symbols()
    x = denoiser.space.states()
    exact = un.bound(denoiser, x, times=un.Quadrature(64), exact=True).total
    assert float((exact - torch.tensor(2.0).log()).abs().max()) < 2e-6
    rows = x.repeat(10_000, 1)
    found = un.bound(denoiser, rows, seed=0).total
    error = float(found.std()) / sqrt(len(rows))
    assert abs(float(found.mean()) - float(exact.mean())) < 5 * error < 0.1
    rule = BandTimes(denoiser.process.schedule, *denoiser.code.band(denoiser.process))
    slipped = Slipped(rule.schedule, rule.levels, rule.weights)
    wrong = un.bound(denoiser, rows, times=slipped, seed=0).total
    assert abs(float(wrong.mean()) - float(exact.mean())) > 0.5


def test_less_variance_than_times_graded_for_numbers():
    """32 positions, where times matter more than the noise of each: less than half the spread of the times for numbers."""
    denoiser = two_symbols((32,))
    x = torch.randint(2, (2000, 32), generator=torch.Generator().manual_seed(0))
    spread = {}
    for name, times, cutoff in (("own", None, None), ("graded", un.Importance(), 1e-4), ("even", un.Stratified(), None)):
        spread[name] = float(un.bound(denoiser, x, times=times, cutoff=cutoff, seed=0).total.std())
    assert spread["own"] < 0.5 * spread["graded"]
    assert spread["own"] < 0.8 * spread["even"]


@pytest.mark.parametrize("make", [lambda: codes.bits(4, (1,)), lambda: codes.one_hot(3, (1,), 0.7)])
def test_the_cut_off_is_where_the_nearest_vectors_are_told_apart(make):
    """Phi(-5) = 2.9e-7 for two vectors; more where a vector has several as near."""
    code = make().double()
    denoiser = un.Denoiser(Even(code.space.size), un.Gaussian(code.shape), code=code)
    process, low, n = denoiser.process, denoiser.cutoff, 100_000
    apart = float(torch.pdist(code.vectors).min())
    snr = float(process.schedule.log_snr(low).exp())
    assert sqrt(snr) * apart / 2 == pytest.approx(5)
    x = torch.zeros(n, 1, dtype=torch.int64)
    z = process.marginal(code.vectors[x], low).draw(NoiseSource(0, n))
    wrong = 1 - code.posterior(torch.zeros(n, 1, code.space.size), z, low, process).exp()[:, 0, 0].double()
    assert float(wrong.mean()) < 1e-5


def test_what_is_no_band_is_refused():
    schedule = un.schedules.Cosine()
    with pytest.raises(ValueError, match="falling log-SNRs"):
        BandTimes(schedule, LEVELS.flip(0), WEIGHTS)
    with pytest.raises(ValueError, match="one more than weights"):
        BandTimes(schedule, LEVELS, WEIGHTS[:2])
    with pytest.raises(ValueError, match="at least 0"):
        BandTimes(schedule, LEVELS, -WEIGHTS)
    with pytest.raises(ValueError, match="share = 0"):
        BandTimes(schedule, LEVELS, WEIGHTS, share=0.0)
