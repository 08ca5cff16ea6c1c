"""Counts of units that come and go: kernels by convolution, the binomial bridge, thinned data."""

from fractions import Fraction
from math import comb

import pytest
import torch

import unnoise as un
from unnoise import oracles, schedules

F64 = torch.float64
PAIRS = ((0.0, 0.3), (0.2, 0.7), (0.5, 1.0), (0.0, 1e-6), (1 - 1e-4, 1 - 1e-6))


def binomial(n, p):
    """Probabilities of 0 ... n successes, from exact fractions."""
    p = Fraction(p)
    return [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]


def padded(values, size):
    return torch.tensor([float(v) for v in values] + [0.0] * (size - len(values)), dtype=F64)


def brute_kernel(most, rho, a):
    """x_t = Binomial(x_s, a + (1 - a) rho) + Binomial(N - x_s, (1 - a) rho), convolved in exact fractions."""
    a, rho = Fraction(a), Fraction(rho)
    columns = []
    for x in range(most + 1):
        stay, come = binomial(x, a + (1 - a) * rho), binomial(most - x, (1 - a) * rho)
        total = [Fraction(0)] * (most + 1)
        for i, p in enumerate(stay):
            for j, q in enumerate(come):
                total[i + j] += p * q
        columns.append([float(v) for v in total])
    return torch.tensor(columns, dtype=F64).T


def dense(process, s, t):
    return process.transition(torch.arange(process.most + 1), s, t).probs.T


@pytest.mark.parametrize(
    ("schedule", "occupancy"),
    [
        (schedules.Linear(), 0.0),
        (schedules.Linear(), 0.25),
        (schedules.Linear(), 0.9),
        (schedules.LinearBeta(), 0.25),
        (schedules.Cosine(), 0.0),
    ],
    ids=str,
)
@pytest.mark.parametrize("most", [1, 7])
def test_kernel_is_a_convolution_of_two_binomials(most, schedule, occupancy):
    process = un.BirthDeath(most, (), schedule, occupancy)
    for s, t in PAIRS:
        exact = brute_kernel(most, occupancy, float(schedule.step_alpha(s, t)))
        torch.testing.assert_close(dense(process, s, t), exact, rtol=0, atol=1e-11 if t > 0.999 else 1e-12)  # 1e-16/alpha_s
        marginal = process.marginal(torch.arange(most + 1), t).probs.T
        exact = brute_kernel(most, occupancy, float(schedule.alpha(t)))
        torch.testing.assert_close(marginal, exact, rtol=0, atol=1e-12)


def test_small_entries_have_their_digits():
    """No negative term: 40 deaths over a short step, 1e-80 of the mass, to 1e-10."""
    process = un.BirthDeath(40, (), occupancy=0.3)
    s, t = 0.3, 0.307
    exact = brute_kernel(40, Fraction(0.3), float(process.schedule.step_alpha(s, t)))
    ours = dense(process, s, t)
    assert float(exact.min()) < 1e-80
    # 1 - a is known to 2e-16/0.01 from a, which is all that the fractions above have to go on
    torch.testing.assert_close(ours.log(), exact.log(), rtol=0, atol=1e-10)
    assert bool((ours >= 0).all()) and float((ours.sum(0) - 1).abs().max()) < 1e-12


def test_rates():
    """x -> x - 1 at c (1 - rho) x, x -> x + 1 at c rho (N - x), c = -alpha'/alpha = 1/(1 - t)."""
    most, rho, t = 5, 0.3, 0.6
    process = un.BirthDeath(most, (), occupancy=rho)
    ours = process.local(torch.arange(most + 1), t).rates  # [from, to]
    exact = torch.zeros(most + 1, most + 1, dtype=F64)
    for x in range(most + 1):
        if x:
            exact[x, x - 1] = (1 - rho) * x / (1 - t)
        if x < most:
            exact[x, x + 1] = rho * (most - x) / (1 - t)
    torch.testing.assert_close(ours, exact, rtol=1e-13, atol=0)


@pytest.mark.parametrize("schedule", [schedules.Linear(), schedules.Cosine()], ids=["Linear", "Cosine"])
def test_binomial_bridge_of_pure_death(schedule):
    """x_s - x_t given x_t, x_0 is Binomial(x_0 - x_t, (alpha_s - alpha_t)/(1 - alpha_t))."""
    most = 6
    process = un.BirthDeath(most, (), schedule, occupancy=0.0)
    for s, t in ((0.2, 0.7), (1e-5, 1e-4), (0.4, 1.0)):
        alpha_s, alpha_t = (float(schedule.alpha(v)) for v in (s, t))
        back = (float(schedule.beta(t)) - float(schedule.beta(s))) / float(schedule.beta(t))
        assert back == pytest.approx((alpha_s - alpha_t) / (1 - alpha_t), rel=1e-7)
        for x0 in range(most + 1):
            for x_t in range(x0 + 1) if t < 1 else (0,):
                law = process.posterior(torch.tensor([x_t]), torch.tensor([x0]), s, t)
                exact = padded([0] * x_t + binomial(x0 - x_t, back), most + 1)
                torch.testing.assert_close(law.probs[0], exact, rtol=0, atol=1e-12)


def test_thinned_binomial_data():
    """x_0 ~ Binomial(N, p): x_t ~ Binomial(N, p alpha), x_0 - x_t | x_t ~ Binomial(N - x_t, p (1 - alpha)/(1 - p alpha))."""
    most, p = 6, 0.35
    process = un.BirthDeath(most, (), occupancy=0.0)
    oracle = oracles.table(process, padded(binomial(most, p), most + 1), un.RawPosterior)
    x_t = torch.arange(most + 1)
    for t in (0.1, 0.5, 0.9):
        alpha = 1 - t
        torch.testing.assert_close(
            oracle.log_marginal(x_t, t).exp(), padded(binomial(most, p * alpha), most + 1), rtol=1e-12, atol=1e-15
        )
        posterior = oracle(x_t, t).log_probs().exp()
        missing = p * (1 - alpha) / (1 - p * alpha)
        for x in range(most + 1):
            exact = padded([0] * x + binomial(most - x, missing), most + 1)
            torch.testing.assert_close(posterior[x], exact, rtol=0, atol=1e-12)


def test_binomial_data_under_births_and_deaths():
    """Each unit is present with p alpha + rho (1 - alpha), independently: x_t stays binomial."""
    most, p, rho, t = 5, 0.8, 0.3, 0.4
    process = un.BirthDeath(most, (), occupancy=rho)
    oracle = oracles.table(process, padded(binomial(most, p), most + 1))
    exact = padded(binomial(most, p * (1 - t) + rho * t), most + 1)
    torch.testing.assert_close(oracle.log_marginal(torch.arange(most + 1), t).exp(), exact, rtol=1e-12, atol=0)


@pytest.mark.parametrize("rho", [0.0, 0.2, 0.7])
def test_binomial_law_is_stationary(rho):
    most = 8
    process = un.BirthDeath(most, (2,), occupancy=rho)
    law = padded(binomial(most, rho), most + 1)
    for s, t in ((0.0, 0.3), (0.3, 0.99)):
        pushed = process.push(law.clamp_min(1e-300).log().expand(1, 2, -1), s, t)[0].exp()
        torch.testing.assert_close(pushed, law.expand(2, -1), rtol=0, atol=1e-12)
    torch.testing.assert_close(process.prior(3).probs, law.expand(3, 2, -1), rtol=0, atol=1e-12)
    flow = process.rate_table.table.exp() * law  # detailed balance: each unit is a chain of two states
    torch.testing.assert_close(flow, flow.T, rtol=1e-12, atol=1e-15)


def test_a_full_count_under_pure_death_gives_the_data_away():
    process = un.BirthDeath(3, (2,), occupancy=0.0)
    assert process.movable(torch.arange(4)).tolist() == [True, True, True, False]
    assert un.BirthDeath(3, (2,), occupancy=0.4).movable(torch.arange(4)).all()


def test_one_unit_is_an_interpolation():
    """N = 1: present or absent, drawn afresh with probability rho of presence."""
    ours = un.BirthDeath(1, (2,), occupancy=0.3)
    theirs = un.Interpolation(2, (2,), torch.tensor([0.7, 0.3], dtype=F64))
    x = ours.space.states()
    for s, t in ((0.1, 0.5), (0.3, 1.0)):
        torch.testing.assert_close(ours.transition(x, s, t).probs, theirs.transition(x, s, t).probs, rtol=0, atol=1e-14)
    torch.testing.assert_close(ours.local(x, 0.4).rates, theirs.local(x, 0.4).rates, rtol=1e-13, atol=0)

    class Net(torch.nn.Module):
        def forward(self, x, t):
            return torch.stack([0.3 * x - 1, 0.5 - t.unsqueeze(-1) * x.flip(1)], -1).double()

    values = [un.bound(un.Denoiser(Net(), p), x, exact=True, times=un.Quadrature(16)).total for p in (ours, theirs)]
    torch.testing.assert_close(*values, rtol=1e-12, atol=1e-12)


def test_float32_times():
    process = un.BirthDeath(9, (2,), occupancy=0.4)
    x = torch.randint(10, (3, 2))
    t = torch.tensor([1e-5, 0.4, 0.999])
    law, exact = process.marginal(x, t), process.marginal(x, t.double())
    assert law.log_probs.dtype == torch.float32
    torch.testing.assert_close(law.probs.double(), exact.probs, rtol=0, atol=3e-7)
