"""Wright-Fisher laws: densities against Jacobi's polynomials in 80 digits, slopes, draws, and mutants."""

import mpmath as mp
import pytest
import torch

import unnoise as un
from unnoise.ancestry import log_lines
from unnoise.gamma_laws import Dirichlet
from unnoise.noise import NoiseSource
from unnoise.simplex_laws import WrightFisherLaw, draw_counts, log_ratio


def spectral(x, x0, tau, a, b):
    """R of a share x under Beta(a, b), sum_n e^{-n (n + a + b - 1) tau/2} P_n(x) P_n(x_0)/h_n, with 50 digits beyond those
    that cancel, at most e^{5/tau}."""
    with mp.workdps(80 + int(5 / tau / 2.3)):
        x, x0, tau, a, b = (mp.mpf(v) for v in (x, x0, tau, a, b))
        total, n = mp.mpf(0), 0
        while n * n * tau < 260 + 20 / tau:
            norm = mp.mpf(1)
            if n:
                norm = mp.gamma(n + b) * mp.gamma(n + a) * mp.gamma(a + b)
                norm /= (2 * n + a + b - 1) * mp.gamma(n + a + b - 1) * mp.factorial(n) * mp.gamma(a) * mp.gamma(b)
            waves = mp.jacobi(n, b - 1, a - 1, 2 * x - 1) * mp.jacobi(n, b - 1, a - 1, 2 * x0 - 1)
            total, n = total + mp.exp(-n * (n + a + b - 1) * tau / 2) * waves / norm, n + 1
        return float(mp.log(total))


def law(start, tau, alpha, vertices=False):
    start = torch.tensor([start], dtype=torch.float64)
    return WrightFisherLaw(
        start, torch.tensor([tau], dtype=torch.float64), torch.tensor(alpha, dtype=torch.float64), vertices
    )


@pytest.mark.parametrize("tau", [0.02, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("x", [0.02, 0.3, 0.97])
def test_densities_from_a_vertex(tau, x):
    """Relative 1e-10, also far in the tail (tau = 0.02, x = 0.02: 1e-85 of the peak)."""
    state = torch.tensor([[x, 0.6 * (1 - x), 0.4 * (1 - x)]], dtype=torch.float64)
    ours = float(law([1.0, 0.0, 0.0], tau, [1.5, 2.0, 1.0], True).log_ratio(state))
    assert abs(ours - spectral(x, 1.0, tau, 1.5, 3.0)) < 1e-10


@pytest.mark.parametrize("tau", [0.02, 0.05, 0.2, 1.0])
@pytest.mark.parametrize("x", [0.02, 0.3, 0.97])
def test_densities_from_inside(tau, x):
    state = torch.tensor([[x, 1 - x]], dtype=torch.float64)
    ours = float(law([0.35, 0.65], tau, [1.5, 3.0]).log_ratio(state))
    assert abs(ours - spectral(x, 0.35, tau, 1.5, 3.0)) < 1e-10


def in_many_digits(z, tau):
    """log R of many parts, alpha = 1, its convolutions in 40 digits."""
    with mp.workdps(40):
        log_q = log_lines(torch.tensor([tau], dtype=torch.float64), float(len(z)))[0].tolist()
        product = [mp.mpf(1)] + [mp.mpf(0)] * (len(log_q) - 1)
        for entry in z:
            series = [mp.mpf(entry) ** m / mp.factorial(m) ** 2 for m in range(len(log_q))]
            product = [mp.fsum(product[j] * series[m - j] for j in range(m + 1)) for m in range(len(log_q))]
        rising = [mp.rf(len(z), m) * mp.factorial(m) for m in range(len(log_q))]
        return mp.log(mp.fsum(mp.exp(q) * r * p for q, r, p in zip(log_q, rising, product, strict=True)))


@pytest.mark.parametrize("near", [True, False])
def test_many_parts_keep_their_digits(near):
    """Where the product of 24 series peaks away from the sum, what counts would be below its rounding."""
    size, tau, noise = 24, 0.15, NoiseSource(7, 2)
    x, x0 = Dirichlet(torch.ones(2, size, dtype=torch.float64), torch.zeros(2, size, dtype=torch.float64)).draw(noise)
    x0 = 0.9 * x + 0.1 * x0 if near else x0
    whole, z = law(x0.tolist(), tau, [1.0] * size), x * x0
    true = in_many_digits(z.tolist(), tau)
    assert float(whole.log_ratio(x.unsqueeze(0))) == pytest.approx(float(true), abs=1e-11)
    i, more = int(x.argmax()), 1e-8
    z[i] *= 1 + more
    lines = float((in_many_digits(z.tolist(), tau) - true) / more)
    assert float(whole.lines(x.unsqueeze(0))[0, i]) == pytest.approx(lines, rel=1e-6)


def test_parts_can_be_put_together():
    """Of three parts the first is a diffusion by itself: its density is the integral over the split of the rest."""
    x, x0, alpha = 0.3, [0.35, 0.4, 0.25], [1.5, 2.0, 1.0]
    nodes, weights = un.Simplex(2).nodes(48)
    states = torch.cat([torch.full((len(nodes), 1), x, dtype=torch.float64), (1 - x) * nodes], -1)
    start = torch.tensor([x0], dtype=torch.float64).expand(len(nodes), 3)
    whole = WrightFisherLaw(start, torch.full((len(nodes),), 0.2), torch.tensor(alpha))
    density = (1 - x) * (weights * whole.log_prob(states).exp()).sum()
    two = law([0.35, 0.65], 0.2, [1.5, 3.0]).log_prob(torch.tensor([[x, 1 - x]], dtype=torch.float64)).exp()
    assert torch.allclose(density, two[0], rtol=1e-6)


def test_one_series_and_many_agree_at_a_vertex():
    x, alpha = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64), [1.5, 2.0, 1.0]
    one, many = law([1.0, 0.0, 0.0], 0.1, alpha, True), law([1.0, 0.0, 0.0], 0.1, alpha)
    assert torch.allclose(one.log_ratio(x), many.log_ratio(x), atol=1e-10)
    assert torch.allclose(one.lines(x), many.lines(x), atol=1e-9)


def test_slopes_are_derivatives():
    x = torch.tensor([[0.5, 0.3, 0.2]], dtype=torch.float64)
    whole, h = law([0.2, 0.3, 0.5], 0.1, [1.5, 2.0, 1.0]), 1e-5
    step = torch.tensor([[1.0, -0.4, -0.6]], dtype=torch.float64)
    change = (whole.log_prob(x + h * step) - whole.log_prob(x - h * step)) / (2 * h)
    assert torch.allclose((whole.score(x) * step).sum(-1), change, rtol=1e-7)
    assert float(whole.score(x).sum().abs()) < 1e-9


@pytest.mark.parametrize("vertices", [True, False])
def test_draws_have_the_right_first_and_second_moments(vertices):
    """E x = m + (x_0 - m) e^{-theta tau/2}; E x_1^2 by its equation; 4.5 standard errors, a false alarm in 1e-4 of runs."""
    n, tau, alpha = 60000, 0.2, torch.tensor([1.5, 2.0, 1.0], dtype=torch.float64)
    start = torch.tensor([1.0, 0.0, 0.0] if vertices else [0.2, 0.3, 0.5], dtype=torch.float64)
    whole = WrightFisherLaw(start.expand(n, 3), torch.full((n,), tau), alpha, vertices)
    x, theta = whole.draw(un.NoiseSource(0, n)), 4.5
    fade, m = float(torch.exp(torch.tensor(-theta * tau / 2))), alpha / theta
    mean = m + (start - m) * fade
    assert bool(((x.mean(0) - mean).abs() < 4.5 * x.std(0) / n**0.5).all())
    a, e, s = 1.5, start[0], start[0] ** 2  # d/dt E x^2 = (1 + a) E x - (1 + theta) E x^2
    steps = 20000
    for i in range(steps):
        middle = m[0] + (e - m[0]) * torch.exp(torch.tensor(-theta * tau * (i + 0.5) / steps / 2, dtype=torch.float64))
        s = s + tau / steps * ((1 + a) * middle - (1 + theta) * s)
    square = x[:, 0].square()
    assert abs(float(square.mean() - s)) < 4.5 * float(square.std()) / n**0.5 + 1e-5


def test_counts_of_colours():
    n, share = 20000, torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    lines = torch.arange(n) % 60
    counts = draw_counts(lines, share.expand(n, 3), un.NoiseSource(1, n))
    assert torch.equal(counts.sum(-1).long(), lines)
    gap = counts.sum(0) / lines.sum() - share  # false alarm 1e-5
    assert bool((gap.abs() < 4.5 * (share * (1 - share) / lines.sum()).sqrt()).all())


def test_a_wrong_normaliser_is_seen():
    """A mutant: with the rising factorials of alpha + 1 the density does not integrate to one."""
    x, weights = un.Simplex(2).nodes(64)
    alpha, tau = torch.tensor([1.5, 3.0], dtype=torch.float64), torch.full((64,), 0.2, dtype=torch.float64)
    start = torch.tensor([[0.35, 0.65]], dtype=torch.float64)
    right = WrightFisherLaw(start.expand(64, 2), tau, alpha)
    assert abs(float((weights * right.log_prob(x).exp()).sum()) - 1) < 1e-5
    wrong = log_ratio(x * start, tau, alpha + 1) + right.stationary.log_prob(x)
    assert abs(float((weights * wrong.exp()).sum()) - 1) > 0.03
