"""The share of a category that an argmax keeps, against 50 digits."""

from functools import cache

import mpmath as mp
import pytest
import torch

from unnoise.hybrids import ArgmaxLaw

mp.mp.dps = 50
SIZES, MEANS = (2, 3, 27, 50257), (1e-9, 0.009, 0.011, 0.3, 2.0, 5.0, 14.0, 45.0)


@cache
def truth(size: int, mean: float) -> tuple[mp.mpf, mp.mpf, mp.mpf]:
    """T, 1 - T and T' as printed, by the trapezoidal rule, which for such integrands is exact to 20 digits and more."""
    mu, h = mp.mpf(mean), mp.mpf(1) / 20
    kept, lost, slope = mp.mpf(0), mp.mpf(0), mp.mpf(0)
    z = mp.mpf(-10 if size < 20 else -4 if size < 1000 else 2.5)
    while z < mu / 2 + 13:
        weight = mp.npdf(z) * mp.ncdf(z) ** (size - 2)
        lost += weight * mp.ncdf(z - mu)
        kept += weight * (mp.ncdf(z) - mp.ncdf(z - mu))
        slope += weight * mp.npdf(z - mu)
        z += h
    return kept * size * h, lost * size * h, slope * size * h


def gap(found: torch.Tensor, exact: mp.mpf) -> float:
    return float(abs(mp.mpf(float(found)) / exact - 1))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mean", MEANS)
def test_all_three_keep_their_digits(size, mean):
    law = ArgmaxLaw(size)
    for found, exact in zip((law.alpha(mean), law.beta(mean), law.slope(mean)), truth(size, mean), strict=True):
        assert gap(found, exact) < 1e-12


def test_the_definition_by_p_loses_digits_at_a_small_mean():
    size, mean = 50257, 1e-9
    z, h = torch.arange(-2, 12, 0.01, dtype=torch.float64), 0.01
    p = float((h * torch.exp(-0.5 * (z - mean) ** 2 + (size - 1) * torch.special.log_ndtr(z))).sum()) / (2 * torch.pi) ** 0.5
    assert p == pytest.approx(float(ArgmaxLaw(size).first(mean)), abs=1e-10)
    exact, by_p = truth(size, mean)[0], torch.tensor((size * p - 1) / (size - 1), dtype=torch.float64)
    assert gap(ArgmaxLaw(size).alpha(mean), exact) < 1e-12 < 1e-8 < gap(by_p, exact)


FIGURES = [(27, 2.0, 0.4906705539, 0.3703294641), (50257, 5.0, 0.7708586106, 0.2906712400)]


@pytest.mark.parametrize(
    "size, mean, kept, slope", [(27, 2.0, 0.4906705539, 0.3703294641), (50257, 5.0, 0.7708586106, 0.2906712400)]
)
def test_published_figures(size, mean, kept, slope):
    law = ArgmaxLaw(size)
    assert float(law.alpha(mean)) == pytest.approx(kept, abs=6e-11)
    assert float(law.slope(mean)) == pytest.approx(slope, abs=6e-11)
    z = torch.arange(-10, 20, 0.005, dtype=torch.float64)  # P by its own integral
    first = 0.005 * torch.exp(-0.5 * (z - mean) ** 2 + (size - 1) * torch.special.log_ndtr(z)).sum() / (2 * torch.pi) ** 0.5
    assert float(law.first(mean)) == pytest.approx(float(first), abs=1e-12)


def test_a_forward_difference_of_a_table_is_not_the_slope():
    """As published code has it: 1,000 steps of log-SNR from 3.5 to 1.75."""
    law, gamma, h = ArgmaxLaw(50257), torch.tensor(-2.5, dtype=torch.float64), 1.75 / 1000
    mean = torch.exp(-gamma / 2)
    difference = (law.alpha(torch.exp(-(gamma + h) / 2)) - law.alpha(mean)) / h
    exact = -law.slope(mean) * mean / 2
    assert 1e-4 < abs(float(difference / exact) - 1) < 1e-2


def test_two_categories_in_closed_form():
    law, mu = ArgmaxLaw(2), torch.tensor([1e-12, 1e-3, 0.7, 3.0, 20.0, 52.0], dtype=torch.float64)
    torch.testing.assert_close(law.alpha(mu), torch.erf(mu / 2), rtol=1e-14, atol=0)
    torch.testing.assert_close(law.beta(mu), torch.erfc(mu / 2), rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [2, 3, 4, 5, 7, 10, 16, 27, 64, 97, 256, 1000, 4096, 8192, 30522, 50257])
def test_every_number_of_categories_by_the_definition(size):
    """P and its derivative by parts, on a fine even grid."""
    h, mu = 0.01, torch.linspace(0, 9, 10, dtype=torch.float64)
    z = torch.arange(-10, 20, h, dtype=torch.float64)
    bell = h * torch.exp(-0.5 * (z - mu.unsqueeze(1)).square()) / (2 * torch.pi) ** 0.5
    first = (bell * torch.exp((size - 1) * torch.special.log_ndtr(z))).sum(1)
    log_density = -0.5 * z.square() + (size - 2) * torch.special.log_ndtr(z)
    slope = size * (bell * log_density.exp()).sum(1) / (2 * torch.pi) ** 0.5
    law = ArgmaxLaw(size)
    torch.testing.assert_close(law.first(mu), first, rtol=0, atol=1e-12)
    torch.testing.assert_close(law.alpha(mu), (size * first - 1) / (size - 1), rtol=0, atol=1e-12)
    torch.testing.assert_close(law.slope(mu), slope, rtol=1e-11, atol=1e-15)


def test_ends():
    law, ends = ArgmaxLaw(27), torch.tensor([0.0, torch.inf], dtype=torch.float64)
    assert law.alpha(ends)[0] == 0 and law.beta(ends)[1] == 0 and law.slope(ends)[1] == 0
    torch.testing.assert_close(law.alpha(ends) + law.beta(ends), torch.ones(2, dtype=torch.float64), rtol=0, atol=1e-14)
    assert float(law.first(0.0)) == pytest.approx(1 / 27, abs=1e-15)


def test_derivatives():
    law = ArgmaxLaw(27)
    mu = torch.tensor([[1e-3, 0.5], [3.0, 8.0]], dtype=torch.float64, requires_grad=True)
    later = (mu.detach() + torch.tensor([1e-3, 0.5])).requires_grad_()
    for function in (law.alpha, law.beta, law.slope, law.first, lambda m: law.mean_of_log_odds(m - 4)):
        assert torch.autograd.gradcheck(function, mu)
    assert torch.autograd.gradgradcheck(law.alpha, mu) and torch.autograd.gradcheck(law.between, (mu, later))


@pytest.mark.parametrize("size", [2, 27, 50257])
def test_short_steps_keep_their_digits(size):
    law = ArgmaxLaw(size)
    low = torch.tensor([0.2, 2.0, 5.0], dtype=torch.float64)
    for step in (1e-9, 1e-3, 0.3):
        h = (low + step) - low  # as rounded
        found = law.between(low, low + h)
        x, w = (torch.tensor(v, dtype=torch.float64) for v in ([-(0.6**0.5), 0.0, 0.6**0.5], [5 / 18, 8 / 18, 5 / 18]))
        pieces = torch.linspace(0, 1, 41, dtype=torch.float64)[:-1, None] + (x + 1) / 80
        exact = (law.slope(low[:, None, None] + h[:, None, None] * pieces) * w).sum((1, 2)) * h / 40
        torch.testing.assert_close(found, exact, rtol=1e-10, atol=0)


@pytest.mark.parametrize("size", [2, 27, 50257])
def test_the_inverse(size):
    law, mu = ArgmaxLaw(size), torch.logspace(-12, 1.7, 200, dtype=torch.float64)
    odds = law.alpha(mu).log() - law.beta(mu).log()
    torch.testing.assert_close(law.mean_of_log_odds(odds), mu, rtol=2e-12, atol=0)
    ends = torch.tensor([-torch.inf, torch.inf], dtype=torch.float64)
    assert law.mean_of_log_odds(ends).tolist() == [0, torch.inf]
    _, slopes = law._table(torch.device("cpu"))  # convex, which Newton's rule rests on
    assert bool((slopes.diff().diff() > -1e-9).all())


def test_refusals():
    for size in (1, 0, True):
        with pytest.raises(ValueError, match="size"):
            ArgmaxLaw(size)
    for mean in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="mu ="):
            ArgmaxLaw(3).alpha(mean)
