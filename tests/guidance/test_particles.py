"""Particles off masking: the normaliser that is estimated is that of the discretised target, and tends to the target's.

With V_k(x) the mean weight that is still to come from x at time t_k, V = 1 at the end and

    V_k(x) = sum_y prod_i p_i(y | x)^{g_i} q(x | y)^{1 - S} V_{k+1}(y),      Z_h = sum_x prior(x)^S V_0(x),

by enumeration, or on a grid of numbers.
"""

from itertools import pairwise
from math import log, log2

import pytest
import torch

import unnoise as un
from unnoise.samplers.proposals import log_density

SIZE = 3
UNIFORM = un.Uniform(SIZE, (2,))
NUMBERS = un.Gaussian((1,))
COUNTS = un.Thinning((1,))
GRID = torch.linspace(-7, 7, 401).double().unsqueeze(1)


def law(seed, count=9):
    p = torch.rand(count, generator=torch.Generator().manual_seed(seed)).double().square() + 0.02
    return p / p.sum()


def bumps(means, weights, spread=0.3):
    spreads = torch.full((len(means), 1, 1), spread).double()
    return un.oracles.mixture(NUMBERS, torch.tensor(weights).double(), torch.tensor(means).double().unsqueeze(1), spreads)


P, Q = law(0), law(1)
UP, UQ = un.oracles.table(UNIFORM, P), un.oracles.table(UNIFORM, Q)
NP, NQ = bumps([-1.0, 1.0], [0.6, 0.4]), bumps([0.0], [1.0], 1.0)
CP, CQ = (
    un.oracles.poisson_mixture(COUNTS, torch.tensor(weights).double(), torch.tensor([[1.0], [5.0]]).double())
    for weights in ([0.7, 0.3], [0.4, 0.6])
)
K = torch.arange(30).unsqueeze(1)

# target, its states, the measure of one, and the logarithm of its density up to the constant that is asked for
CASES = {
    "uniform, geometric": (un.targets.geometric(UP, UQ, 2.0), UNIFORM.space.states(), 1.0),
    "uniform, tempered": (un.targets.tempered(UP, 2.0), UNIFORM.space.states(), 1.0),
    "numbers, geometric": (un.targets.geometric(NP, NQ, 1.5), GRID, 14 / 400),
    "numbers, tempered": (un.targets.tempered(NP, 1.5), GRID, 14 / 400),
    "counts, geometric": (un.targets.geometric(CP, CQ, 1.5), K, 1.0),
}


def log_z(target, states, measure):
    models = target.models
    return float(sum(g * m.log_prob(states) for g, m in zip(target.exponents, models, strict=True)).logsumexp(0)) + log(
        measure
    )


def discretised(target, states, measure, steps, end=0.0):
    """log Z_h of a run over an even grid, by `end` the last time of the models that are compared."""
    process, count = target.process, len(states)
    times = torch.linspace(1, 0, steps + 1).double()
    rest = 1 - sum(target.exponents)
    value = torch.zeros(count).double()
    many, each = states.repeat_interleave(count, 0), states.repeat(count, *[1] * (states.ndim - 1))
    for t, s in reversed(list(pairwise(times.tolist()))):
        if s <= end:
            continue  # the step that ends on points
        clock = torch.full((len(many),), t).double()
        parts = [model(many, clock).step(torch.tensor(s).double()) for model in target.models]
        told = [log_density(process, p, each, s) for p in parts]
        log_p = sum(g * p for g, p in zip(target.exponents, told, strict=True))
        log_p = torch.where(torch.stack(told).isinf().any(0), -torch.inf, log_p)
        if abs(rest) > 1e-12:
            back = process.transition(each, torch.tensor(s).double(), torch.tensor(t).double())
            log_p = log_p + rest * log_density(process, back, many, s)
        value = (log_p.reshape(count, count) + value).logsumexp(1) + log(measure)
    prior = process.prior(count, torch.float64).log_prob(states).double()
    return float((sum(target.exponents) * prior + value).logsumexp(0)) + log(measure)


@pytest.mark.parametrize("name", CASES)
def test_normaliser_is_that_of_the_discretised_target(name):
    """1,000 groups of 8, resampled wherever weights differ: within 4 standard errors (chance 6e-5)."""
    target, states, measure = CASES[name]
    wanted = discretised(target, states, measure, 6, 1e-9 if name.startswith("numbers") else -1.0)
    _, info = un.sample(
        target, n=1000, steps=6, grid=un.samplers.grids.Even(), seed=0, dtype=torch.float64,
        sampler=un.samplers.Particles(8, share=1.0, proposal=un.samplers.Ancestral()),
    )  # fmt: skip
    found, error = info.particles.estimate()
    assert abs(found - wanted) < 4 * error < 0.4
    assert any(bool((ancestors != torch.arange(8)).any()) for ancestors in info.particles.ancestors)


@pytest.mark.parametrize("name", ["uniform, geometric", "uniform, tempered", "counts, geometric"])
def test_discretised_normaliser_tends_to_the_target_s(name):
    """At order 1, fitted over the last doubling of steps."""
    target, states, measure = CASES[name]
    exact = log_z(target, states, measure)
    gaps = [abs(discretised(target, states, measure, n, -1.0) - exact) for n in (16, 32, 64)]
    assert log2(gaps[1] / gaps[2]) == pytest.approx(1.0, abs=0.2), gaps


def test_a_product_has_the_product_of_normalisers():
    process = un.Product(a=un.Gaussian((1,)), b=un.Uniform(2, (1,)))

    def both(mean, p):
        leaves = {
            "a": un.oracles.GaussianLeaf(torch.tensor([[mean]]).double(), torch.ones(1, 1, 1).double()),
            "b": un.oracles.CategoricalLeaf(torch.tensor([[[p, 1 - p]]]).double().log()),
        }
        return un.oracles.Components(process, torch.ones(1), leaves)

    target = un.targets.geometric(both(0.5, 0.8), both(-0.5, 0.4), 1.5)
    wanted = 0.5 * (1.5 * 0.5 - 0.5 * -0.5) ** 2 - 0.5 * (1.5 * 0.25 - 0.5 * 0.25)
    wanted += float((1.5 * torch.tensor([0.8, 0.2]).log() - 0.5 * torch.tensor([0.4, 0.6]).log()).logsumexp(0))

    def gap(steps):  # weights of such laws are the same for all particles, so that there is no error but that of the steps
        _, info = un.sample(target, n=3, steps=steps, seed=0, dtype=torch.float64, sampler=un.samplers.Particles(2))
        found, error = info.particles.estimate()
        assert error < 1e-9
        return abs(found - wanted)

    gaps = [gap(n) for n in (20, 40, 80)]
    assert log2(gaps[1] / gaps[2]) == pytest.approx(1.0, abs=0.2), gaps


def test_euler_s_steps_are_weighed_too():
    target, states, measure = CASES["numbers, geometric"]
    sampler = un.samplers.Particles(8, proposal=un.samplers.FromGenerator())
    _, info = un.sample(target, n=300, steps=60, seed=0, dtype=torch.float64, sampler=sampler, start=0.98)
    found, error = info.particles.estimate()
    assert abs(found - log_z(target, states, measure)) < 4 * error + 0.05


def test_another_denoiser_may_propose():
    target, states, measure = CASES["uniform, geometric"]
    sampler = un.samplers.Particles(16, target=target, proposal=un.samplers.Ancestral())
    _, info = un.sample(UP, n=200, steps=8, seed=0, sampler=sampler)
    found, error = info.particles.estimate()
    assert abs(found - discretised(target, states, measure, 8, -1.0)) < 4 * error < 0.4


def test_given_states_stand_for_all_particles_of_their_group():
    target, _, _ = CASES["numbers, geometric"]
    x = torch.tensor([[0.3], [-0.7]]).double()
    out, info = un.sample(target, x=x, start=0.5, steps=3, seed=0, sampler=un.samplers.Particles(5))
    assert out.shape == (2, 1) and info.particles.log_weight.shape == (2, 5)
    again, _ = un.sample(target, x=x[1:], start=0.5, steps=3, seed=0, first=1, sampler=un.samplers.Particles(5))
    assert torch.equal(out[1:], again)


def test_resampling_keeps_even_weights_and_never_takes_a_weight_of_zero():
    from unnoise.samplers.particles import systematic

    weights = torch.tensor([[0.0, 0.0, -torch.inf, 0.0], [-torch.inf, 5.0, -torch.inf, -torch.inf]]).double()
    for u in (1e-12, 0.3, 1 - 1e-12):
        index = systematic(weights, torch.tensor([u, u]).double())
        assert 2 not in index[0].tolist() and index[1].tolist() == [1, 1, 1, 1]
    even = systematic(torch.zeros(1, 7).double(), torch.tensor([0.5]).double())
    assert even.tolist() == [list(range(7))]
