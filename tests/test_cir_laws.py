"""Cox-Ingersoll-Ross laws: densities against Bessel functions in 50 digits, slopes, draws, bridges, mutants."""

import mpmath as mp
import pytest
import torch

import unnoise as un
from unnoise.cir_laws import CIRLaw, draw_bessel, log_series


def tensor(*values):
    return torch.tensor(values, dtype=torch.float64)


def law(start, tau, alpha, scale):
    return CIRLaw(tensor(start), tensor(tau), tensor(alpha)[0], tensor(scale)[0])


def exact(x, x0, tau, alpha, s):
    """log c e^{-u-v} (v/u)^{nu/2} I_nu(2 sqrt(uv)), as Cox, Ingersoll and Ross print it, in 50 digits."""
    with mp.workdps(50):
        x, x0, tau, alpha, s = (mp.mpf(v) for v in (x, x0, tau, alpha, s))
        c = 1 / (s * (1 - mp.exp(-tau / (2 * s))))
        u, v, nu = c * x0 * mp.exp(-tau / (2 * s)), c * x, alpha - 1
        return float(mp.log(c) - u - v + nu / 2 * mp.log(v / u) + mp.log(mp.besseli(nu, 2 * mp.sqrt(u * v))))


@pytest.mark.parametrize("tau", [0.0025, 0.2, 3.0, 40.0])
@pytest.mark.parametrize(("alpha", "scale"), [(1.0, 1.0), (2.0, 1.0), (1.3, 2.5), (7.5, 0.4)])
def test_densities(tau, alpha, scale):
    """Relative 1e-8 and better, also where the density is e^{-1000} of its peak and more."""
    for x0, x in ((0.01, 0.02), (1.5, 1.4), (1.5, 1e-6), (0.3, 30.0), (50.0, 60.0)):
        truth = exact(x, x0, tau, alpha, scale)
        ours = float(law(x0, tau, alpha, scale).log_prob(tensor(x)))
        assert abs(ours - truth) < 1e-8 * max(1, abs(truth) / 1000), (x0, x)


@pytest.mark.parametrize("nu", [0.0, 0.7, 12.0])
def test_the_series_at_every_size(nu):
    """1e-11, on both sides of where Hankel's series takes over."""
    for z in (1e-12, 0.3, 90.0, 9.99e5, 1.01e6, 1e9):
        with mp.workdps(50):
            w = 2 * mp.sqrt(mp.mpf(z))
            truth = float(mp.log(mp.besseli(nu, w)) - nu * mp.log(w / 2) - w)
        assert abs(float(log_series(tensor(z), tensor(nu + 1.0))) - truth) < 1e-11 * max(1, abs(truth)), z


def test_slopes_are_derivatives_and_zero_is_a_start():
    x, h = tensor(0.4, 3.0), 1e-5
    whole = CIRLaw(tensor(0.0, 2.0), tensor(0.3, 0.3), tensor(1.3)[0], tensor(2.0)[0])
    change = (whole.log_prob(x + h) - whole.log_prob(x - h)) / (2 * h)
    assert torch.allclose(whole.score(x), change, rtol=1e-7)
    gamma = un.CoxIngersollRoss((), 1.3, float(whole.width[0])).prior(1, torch.float64)  # from 0: Gamma(alpha, S)
    assert torch.allclose(whole.log_prob(x)[0], gamma.log_prob(x[:1])[0], atol=1e-10)


@pytest.mark.parametrize("between", [False, True])
def test_draws_have_the_law_of_the_density(between):
    """The mean and the mean square of 60,000 draws; 4.5 standard errors, a false alarm in 1e-5 of runs."""
    process = un.CoxIngersollRoss((), 1.3, 2.0, un.schedules.VE(0.2, 8.0))

    def of(rows):
        start, end = torch.full((rows,), 0.8).double(), torch.full((rows,), 2.5).double()
        return process.posterior(end, start, 0.6, 0.7) if between else process.marginal(start, 0.6)

    n, root = 60000, torch.linspace(1e-6, 8.0, 20001, dtype=torch.float64)
    x, grid = of(n).draw(un.NoiseSource(0, n)), root.square()
    density = of(len(grid)).log_prob(grid).exp() * 2 * root * (root[1] - root[0])
    assert abs(float(density.sum()) - 1) < 1e-6
    for power in (1, 2):
        wanted = float((density * grid**power).sum())
        assert abs(float((x**power).mean()) - wanted) < 4.5 * float((x**power).std()) / n**0.5


def test_whole_numbers_of_bessel():
    """Pearson's statistic of 40,000 draws; a false alarm in 1e-5."""
    n, z = 40000, 7.3
    drawn = draw_bessel(torch.full((n,), z).double(), torch.full((n,), 1.6).double(), un.NoiseSource(0, n))
    k = torch.arange(12).double()
    p = (k * tensor(z).log() - torch.lgamma(k + 1) - torch.lgamma(k + 1.6)).softmax(0)
    counts, kept = torch.bincount(drawn.long(), minlength=12)[:12].double(), p * n > 20
    statistic, cells = float((((counts - p * n) ** 2) / (p * n))[kept].sum()), int(kept.sum()) - 1
    assert (statistic / cells) ** (1 / 3) < 1 - 2 / (9 * cells) + 4.3 * (2 / (9 * cells)) ** 0.5


def test_a_wrong_normaliser_is_seen(monkeypatch):
    """A mutant: Gamma(alpha + 1 + n) in the series; the density's integral leaves 1."""
    process = un.CoxIngersollRoss((), 1.5)
    mass = process.support(tensor(0.8), 0.7)[1].exp().sum()
    assert abs(float(mass) - 1) < 1e-9
    monkeypatch.setattr("unnoise.cir_laws.log_series", lambda z, alpha: log_series(z, alpha + 1))
    assert abs(float(process.support(tensor(0.8), 0.7)[1].exp().sum()) - 1) > 0.05
