"""Jumps whose rate depends on the state, by thinning: the law of where they lead, and what is refused."""

from math import log

import pytest
import torch

import unnoise as un
from unnoise.oracles import cloud_mixture
from unnoise.processes.jump_kernels import NormalJumps
from unnoise.spaces import ThinnedJumps

ROWS, H = 20_000, torch.tensor(0.4, dtype=torch.float64)


def forward(rows, rate=1.5, variance=2.0):
    one = torch.ones(rows, dtype=torch.float64)
    return NormalJumps(rate * one, variance * one)


def log_ratio(x, y):
    """Further to the right is likelier; above 3 beyond y = x + 1.1."""
    return (y - x)[:, 0]


def gaps(kernel, exact):
    """Of the share of rows that jump and of the mean place they come to, in standard errors."""
    x = torch.full((ROWS, 1), 0.7, dtype=torch.float64)
    moved = kernel.leap(x, H, un.NoiseSource(5, ROWS))
    y, rates = exact.rates(x[:1])
    total = rates.sum()
    share, place = -torch.expm1(-H * total), (rates * y[:, :, 0]).sum() / total
    jumped = moved[:, 0] != 0.7
    where = moved[jumped, 0]
    return (
        float((jumped.double().mean() - share).abs() / (share * (1 - share) / ROWS).sqrt()),
        float((where.mean() - place).abs() / (where.std() / len(where) ** 0.5)),
    )


def test_thinning_is_exact_while_rates_are_held():
    """Against the integral over nodes: 4 standard errors, a false alarm in 6e-5 for each of two; without the cap's part, or
    with the ratio upside down, it is another law."""
    thinned = ThinnedJumps(forward(ROWS), log_ratio, cap=3.0)
    assert max(gaps(thinned, ThinnedJumps(forward(1), log_ratio, cap=3.0))) < 4
    assert max(gaps(thinned, ThinnedJumps(forward(1), log_ratio, cap=30.0))) > 10
    assert max(gaps(thinned, ThinnedJumps(forward(1), lambda x, y: -log_ratio(x, y), cap=3.0))) > 10


def test_an_integral_by_draws_is_right_in_the_mean():
    """4,000 states that are all but one: 5 standard errors, a false alarm in 6e-7."""
    x = 0.7 + 1e-9 * torch.arange(4000, dtype=torch.float64).unsqueeze(1)
    total = ThinnedJumps(forward(4000), log_ratio, cap=3.0, draws=4).total(x)
    exact = ThinnedJumps(forward(1), log_ratio, cap=3.0).total(x[:1])
    assert float((total.mean() - exact).abs()) < 5 * float(total.std()) / 4000**0.5


def test_what_is_refused():
    with pytest.raises(ValueError, match="cap = 0: pass the largest ratio"):
        ThinnedJumps(forward(1), log_ratio, cap=0)
    thinned = ThinnedJumps(forward(1), log_ratio, cap=3.0)
    with pytest.raises(ValueError, match="cap = 0.5: ratios of densities exceed 1"):
        un.JumpDiffusion((1,), cap=0.5)
    with pytest.raises(TypeError, match="ThinnedJumps does not know its total rate"):
        ThinnedJumps(thinned, log_ratio, cap=3.0)


@pytest.mark.conformance
def test_an_energy_is_a_jump_diffusion():
    """Score and jump rates of the oracle's log-marginal are those of its clouds where the ratio is below the cap, and so is
    the bound; the cap makes it larger, never smaller."""
    process = un.JumpDiffusion((1,), un.schedules.LinearBeta(), jumps=2.0, scale=1.5)
    weights, means = torch.tensor([0.3, 0.7]).double(), torch.tensor([[-2.0], [1.0]]).double()
    oracle = cloud_mixture(process, weights, means, torch.tensor([0.3, 0.2]).double())
    x = torch.linspace(-3, 3, 7, dtype=torch.float64).unsqueeze(1)
    t = torch.full((7,), 0.4, dtype=torch.float64)
    clouds, energy = oracle(x, t).local(), oracle.predicting(un.Energy)(x, t).local()
    torch.testing.assert_close(clouds.drift, energy.drift, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(clouds.jumps.log_rate(x, x.flip(0)), energy.jumps.log_rate(x, x.flip(0)), rtol=0, atol=1e-10)
    torch.testing.assert_close(clouds.jumps.total(x), energy.jumps.total(x), rtol=1e-6, atol=0)
    x0 = torch.tensor([[-1.6]]).double()
    options = {"exact": True, "times": un.Quadrature(6), "cutoff": 0.2, "decoder": oracle.decoder}
    with torch.no_grad():
        own, capped = (float(un.bound(view, x0, **options).total) for view in (oracle, oracle.predicting(un.Energy)))
        assert 1e-5 < capped - own < 5e-4  # what the ratio exceeds the cap by
        free = oracle.predicting(un.Energy, process=process.with_cap(1e8))
        assert abs(float(un.bound(free, x0, **options).total) - own) < 1e-9
    low = oracle.predicting(un.Energy, process=process.with_cap(5))  # bounds and samplers read it, by rates and by proposals
    jumps = low(x, t).local().jumps
    assert jumps.log_cap == pytest.approx(log(5)) and bool((jumps.total(x) <= 5.01 * process.jumps).all())
    with torch.no_grad():
        assert float(un.bound(low, x0, **options).total) - own > 5e-3  # ten times as much
    drawn, _ = un.sample(oracle.predicting(un.Energy), n=50, steps=16, sampler=un.samplers.FromGenerator(), seed=0, end=0.05)
    assert bool(drawn.isfinite().all())


def test_kernels_in_sum_leap():
    """Two at once: the share that jumps within h, 4 standard errors (a false alarm in 6e-5)."""
    rows = 1_000
    both = un.Local(jumps=forward(rows)) + un.Local(jumps=forward(rows, 0.5, 0.3))
    x = torch.zeros(rows, 1, dtype=torch.float64)
    share = float((both.jumps.leap(x, H, un.NoiseSource(6, rows)) != 0).double().mean())
    exact = float(-torch.expm1(-2.0 * H))
    assert abs(share - exact) < 4 * (exact * (1 - exact) / rows) ** 0.5
