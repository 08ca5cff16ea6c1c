"""The number of lines that are left: against the printed series in 120 digits, and its draws."""

import mpmath as mp
import pytest
import torch

from unnoise.ancestry import _normal_lines, draw_lines, log_gamma, log_lines
from unnoise.noise import NoiseSource


def printed(m, tau, theta):
    """q_M by the alternating series, in 120 digits."""
    with mp.workdps(120):
        tau, theta, total, k = mp.mpf(tau), mp.mpf(theta), mp.mpf(0), m
        while True:
            term = mp.mpf(1)
            if k:
                top = (theta + 2 * k - 1) * mp.gamma(theta + m + k - 1) * mp.exp(-k * (k + theta - 1) * tau / 2)
                term = (-1) ** (k - m) * top / (mp.gamma(theta + m) * mp.factorial(m) * mp.factorial(k - m))
            total, k = total + term, k + 1
            if k > m + 10 and abs(term) < abs(total) * mp.mpf(10) ** -20 and k * tau > 6:
                return total


@pytest.mark.parametrize(("tau", "theta"), [(0.05, 4.0), (0.2, 2.0), (0.2, 27.0), (1.0, 3.5), (5.0, 4.0)])
def test_probabilities_have_full_relative_precision(tau, theta):
    log_q = log_lines(torch.tensor([tau]), theta)[0]
    middle = round(float((log_q.exp() * torch.arange(len(log_q))).sum()))
    for m in {0, 1, 3, middle, 2 * middle, 3 * middle + 2}:
        exact = float(mp.log(printed(m, float(torch.tensor(tau)), theta)))
        assert abs(float(log_q[m]) - exact) < 1e-9, m


def test_they_sum_to_one_at_every_time():
    tau = torch.tensor([1e-3, 0.01, 0.05, 0.3, 1.0, 8.0], dtype=torch.float64)
    assert torch.allclose(log_lines(tau, 4.0).exp().sum(-1), torch.ones(6, dtype=torch.float64), atol=1e-10)


def test_many_times_are_interpolated():
    """Within 1e-10 of the integral, with the same slope in tau."""
    tau = torch.linspace(0.03, 3.0, 64, dtype=torch.float64).requires_grad_()
    many = log_lines(tau, 4.5)
    few = log_lines(tau.detach()[::8], 4.5)
    assert torch.allclose(many[::8, : few.shape[1]], few, rtol=0, atol=1e-10)
    slope = torch.autograd.grad(many[:, 2].sum(), tau)[0][20]
    before, after = (log_lines(tau.detach()[20:21] + k * 1e-5, 4.5)[0, 2] for k in (-1, 1))
    assert abs(float(slope - (after - before) / 2e-5)) < 1e-6


def test_lines_are_lost_at_their_rates():
    """d/dtau q_M = mu_{M+1} q_{M+1} - mu_M q_M, by central differences."""
    tau, h, theta = 0.3, 1e-5, 4.0
    before, now, after = (
        log_lines(torch.tensor([tau + k * h], dtype=torch.float64), theta)[0, :21].exp() for k in (-1, 0, 1)
    )
    m = torch.arange(21).double()
    mu = m * (m + theta - 1) / 2
    flow = (mu * now)[1:] - (mu * now)[:-1]
    assert torch.allclose(((after - before) / (2 * h))[:-1], flow, atol=1e-8)


def test_log_gamma_of_complex_numbers():
    z = torch.tensor([0.6 + 0.2j, 2.0 - 30.0j, 40.0 + 3.0j], dtype=torch.complex128)
    for ours, one in zip(log_gamma(z).exp().tolist(), z.tolist(), strict=True):
        assert abs(ours / complex(mp.gamma(one)) - 1) < 1e-13


@pytest.mark.parametrize("tau", [0.004, 0.05, 0.29, 2.0])
def test_draws_have_that_law(tau):
    """Pearson's statistic over the cells with 20 and more expected; a false alarm in 1e-5 (by Wilson and Hilferty)."""
    n, theta = 40000, 4.0
    drawn = draw_lines(torch.full((n,), tau, dtype=torch.float64), theta, NoiseSource(3, n))
    q = log_lines(torch.tensor([tau], dtype=torch.float64), theta)[0].exp()
    counts = torch.bincount(drawn, minlength=len(q))[: len(q)].double()
    kept = q * n > 20
    statistic, cells = ((counts - q * n).square() / (q * n))[kept].sum(), int(kept.sum()) - 1
    z = ((statistic / cells) ** (1 / 3) - (1 - 2 / (9 * cells))) / (2 / (9 * cells)) ** 0.5
    assert float(z) < 4.3


def test_the_law_at_little_noise_is_near():
    """What is stated of the normal law with a correction, at the time where it takes over: by 4e5 quantiles."""
    tau, n = 1 / 384, 400000

    z = torch.special.ndtri((torch.arange(n).double() + 0.5) / n)
    drawn = _normal_lines(torch.full((n,), tau, dtype=torch.float64), 4.0, z)
    q = log_lines(torch.tensor([tau], dtype=torch.float64), 4.0)[0].exp()
    total = 0.5 * (torch.bincount(drawn, minlength=len(q)).double() / n - q).abs().sum()
    assert float(total) < 1e-4


def test_a_row_is_drawn_alike_in_any_batch():
    tau = torch.tensor([0.003, 0.02, 0.3, 0.001, 1.5], dtype=torch.float64)
    noise = NoiseSource(5, 5)
    together = draw_lines(tau, 3.0, noise)
    alone = [int(draw_lines(tau[i : i + 1], 3.0, noise.of(torch.tensor([i])))) for i in range(5)]
    assert together.tolist() == alone
