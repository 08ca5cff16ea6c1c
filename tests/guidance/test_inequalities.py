"""Numbers between bounds: the factor against quadrature, laws and normalisers against closed forms."""

from math import log

import pytest
import torch

import unnoise as un
from unnoise.guidance import Between, inequalities
from unnoise.samplers.particles import NoSurvivors

F64 = torch.float64
NORMAL = torch.distributions.Normal(torch.tensor(0.0, dtype=F64), 1.0)
NUMBERS = un.Gaussian((2,), un.schedules.Cosine())
COVARIANCE = torch.tensor([[1.0, 0.6], [0.6, 1.0]], dtype=F64)
ORACLE = un.oracles.normal(NUMBERS, torch.zeros(2, dtype=F64), COVARIANCE)


def expected(between, mean, variance):
    return between.expected(mean, torch.full((len(mean), 1), variance, dtype=F64))


def differences(between, mean):
    """The slope by central differences."""
    columns = []
    for k in range(2):
        near = torch.nn.functional.one_hot(torch.tensor(k), 2) * 1e-5
        columns.append((expected(between, mean + near, 0.7)[0] - expected(between, mean - near, 0.7)[0]) / 2e-5)
    return torch.stack(columns, 1)


@pytest.mark.parametrize("low, high", [(-0.5, 1.0), (None, 0.3), (2.0, None), (8.0, 8.5), (-40.0, -39.0)])
def test_the_factor_of_a_box_is_its_probability_and_the_gradient_is_its_slope(low, high):
    mean = torch.tensor([[0.2, -0.4]], dtype=F64)
    log_h, slope = expected(Between(low, high), mean, 0.7)
    a = -60.0 if low is None else low
    line = torch.linspace(a, 60.0 if high is None else high, 400_001, dtype=F64).unsqueeze(1)
    density = -0.5 * ((line - mean) / 0.7**0.5).square() - 0.5 * log(2 * torch.pi * 0.7)
    top = density.max(0).values
    wanted = (torch.trapezoid((density - top).exp(), line, dim=0).log() + top).sum()
    assert float(log_h) == pytest.approx(float(wanted), abs=2e-4)  # of the quadrature
    assert (differences(Between(low, high), mean) - slope).abs().max() < 1e-6 * (1 + slope.abs().max())


def test_the_factor_of_an_inequality_is_its_probability():
    a = torch.tensor([[2.0, -1.0]], dtype=F64)
    mean = torch.tensor([[0.2, -0.4], [1.0, 3.0]], dtype=F64)
    rule = Between(high=0.5, operator=un.guidance.Matrix(a))
    log_h, slope = expected(rule, mean, 0.7)
    wanted = NORMAL.cdf((0.5 - mean @ a[0]) / (0.7 * 5) ** 0.5).log()
    assert (log_h - wanted).abs().max() < 1e-12
    assert (differences(rule, mean) - slope).abs().max() < 1e-6


CASES = {
    "start <= end": ([1.0, -1.0], 0.0, 0.05),  # by half; the last is for the steps
    "a rare sum": ([1.0, 1.0], -3.0, 0.25),  # by one in 21
}


def law(a, bound):
    """(probability, mean) of the numbers given that a . x <= bound."""
    a = torch.tensor(a, dtype=F64)
    spread = (a @ COVARIANCE @ a).sqrt()
    z = bound / spread
    p = NORMAL.cdf(z)
    return p, -COVARIANCE @ a / spread * NORMAL.log_prob(z).exp() / p


def drawn(a, bound, n=600, particles=8, steps=32):
    rule = Between(high=bound, operator=un.guidance.Matrix(torch.tensor([a], dtype=F64)))
    target = un.targets.restricted(ORACLE, rule)
    x, info = un.sample(target, n, steps=steps, sampler=un.samplers.Particles(particles, strict=False), seed=0, dtype=F64)
    assert (
        int((~info.particles.alive).sum()) <= n // 50
    )  # particles that are next to the border in the last step may all leave it
    return x[info.particles.alive], info.particles.estimate()


@pytest.mark.parametrize("case", CASES)
def test_samples_satisfy_it_and_have_the_law(case):
    a, bound, gap = CASES[case]
    x, (log_z, error) = drawn(a, bound)
    p, mean = law(a, bound)
    assert bool((x @ torch.tensor(a, dtype=F64) <= bound).all())
    assert abs(log_z - float(p.log())) < 4 * error + gap < 0.35
    assert (x.mean(0) - mean).abs().max() < 4 / 600**0.5 + 0.03
    assert mean.abs().max() > 0.25


def test_the_normaliser_comes_there_at_order_1_in_the_steps():
    a, bound, _ = CASES["a rare sum"]
    gaps = [drawn(a, bound, 400, steps=steps)[1][0] - float(law(a, bound)[0].log()) for steps in (16, 32, 64)]
    assert gaps[1] / gaps[0] == pytest.approx(0.5, abs=0.12) and gaps[2] / gaps[1] == pytest.approx(0.5, abs=0.16), gaps


def test_a_rule_that_is_not_looked_at_in_the_end_is_noticed(monkeypatch):
    monkeypatch.setattr(Between, "at_the_end", lambda self, x0, told: torch.zeros(len(x0), dtype=F64))
    a, bound, _ = CASES["a rare sum"]
    x, _ = drawn(a, bound)
    assert not bool((x @ torch.tensor(a, dtype=F64) <= bound).all())


def test_boxes_of_a_mixture_on_the_line():
    """One bump is cut out of three, and another is cut in two: shares by closed form."""
    means, weights = torch.tensor([[-2.0], [0.0], [2.0]], dtype=F64), torch.tensor([0.2, 0.5, 0.3], dtype=F64)
    oracle = un.oracles.mixture(un.Gaussian((1,)), weights, means, torch.full((3, 1, 1), 0.1, dtype=F64))
    target = un.targets.restricted(oracle, Between(-2.5, 0.0))
    x, info = un.sample(target, 600, steps=48, sampler=un.samplers.Particles(8, strict=False), seed=0, dtype=F64)
    x = x[info.particles.alive]
    inside = weights * (NORMAL.cdf((0.0 - means[:, 0]) / 0.1**0.5) - NORMAL.cdf((-2.5 - means[:, 0]) / 0.1**0.5))
    log_z, error = info.particles.estimate()
    assert bool(((x >= -2.5) & (x <= 0)).all())
    assert abs(log_z - float(inside.sum().log())) < 4 * error + 0.05 < 0.3
    share = float(inside[0] / inside.sum())
    assert abs(float((x < -1).double().mean()) - share) < 4 * (share * (1 - share) / 600) ** 0.5 + 0.03


def test_bounds_of_a_leaf_and_of_single_numbers():
    process = un.Product(a=un.Gaussian((2,)), b=un.Masking(2, (1,)))
    means, half = torch.tensor([[-1.0, 0.0], [1.0, 0.0]], dtype=F64), torch.tensor([0.5, 0.5], dtype=F64)
    oracle = un.oracles.conditional_gaussian(process, half, means, torch.eye(2, dtype=F64).expand(2, 2, 2))
    rule = Between(torch.tensor([0.5, -torch.inf]), None, leaf="a")
    sampler = un.samplers.Particles(16, strict=False)
    x, info = un.sample(un.targets.restricted(oracle, rule), 300, steps=24, sampler=sampler, seed=0, dtype=F64)
    x = {name: leaf[info.particles.alive] for name, leaf in x.items()}
    assert bool((x["a"][:, 0] >= 0.5).all()) and float(x["a"][:, 1].min()) < -1
    odds = NORMAL.cdf(torch.tensor([-1.5, 0.5], dtype=F64))
    share = float(odds[1] / odds.sum())
    assert abs(float(x["b"].double().mean()) - share) < 4 * (share * (1 - share) / 300) ** 0.5 + 0.03


def test_tails_keep_their_digits():
    near = inequalities.log_between(torch.tensor([30.0, -31.0], dtype=F64), torch.tensor([31.0, -30.0], dtype=F64))
    assert near[0] == near[1] and float(near[0]) == pytest.approx(-454.3212439, abs=1e-6)


def test_what_cannot_be_is_said_first():
    with pytest.raises(ValueError, match="low = 2 and high = 1: nothing lies between them"):
        Between(2.0, 1.0)
    with pytest.raises(ValueError, match=r"low = high = 1 in the entry \(1,\): an equality of numbers has no probability"):
        Between(torch.tensor([0.0, 1.0]), torch.tensor([1.0, 1.0]))
    with pytest.raises(ValueError, match="neither low nor high"):
        Between()
    with pytest.raises(ValueError, match="entries that are no numbers"):
        Between(float("nan"), 1.0)
    with pytest.raises(TypeError, match=r"low has shape \(3,\), and what it bounds has \(2,\)"):
        un.targets.restricted(ORACLE, Between(torch.zeros(3)))
    with pytest.raises(TypeError, match="speaks of numbers under Gaussian noise, and Masking"):
        un.targets.restricted(un.oracles.table(un.Masking(2, (1,)), torch.ones(2) / 2), Between(0.0))
    with pytest.raises(NoSurvivors, match="have weight 0"):
        rows = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=F64)  # x >= 1 and x <= -1
        rule = Between(low=1.0, operator=un.guidance.Matrix(rows))
        un.sample(un.targets.restricted(ORACLE, rule), 2, steps=4, sampler=un.samplers.Particles(4), seed=0, dtype=F64)
