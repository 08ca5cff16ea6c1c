"""How fast particles tend to their target: in their number, and in the steps.

Two letters under uniform noise in three steps: the law of what is chosen among N is off that of the discretised target,
which is summed up, by c / N, and the logarithm of the normaliser errs by c / sqrt(N).  Normal laws: the discretised
normaliser is the integral of exp(a y^2 + b y + c), which a step backwards turns into another of that kind.
"""

from itertools import pairwise
from math import log, log2, pi

import pytest
import torch

import unnoise as un
from unnoise.denoiser import AnyDenoiser
from unnoise.predictions.variance import OptimalVariance
from unnoise.samplers import particles

STEPS = 3
LETTERS = un.Uniform(2, (1,))
LETTER = un.oracles.table(LETTERS, torch.tensor([0.7, 0.3]).double())
SHARPER = un.targets.tempered(LETTER, 2.5)
NUMBERS = un.Gaussian((1,))
FAR = 1.0, 0.5  # mean and standard deviation
NEAR = 0.0, 0.8
TILTED = {"geometric": ((FAR, NEAR), (1.5, -0.5)), "tempered": ((FAR,), (1.6,))}


def exact():
    """Chance of the first letter under the discretised target: the weights of all paths."""
    (model,), (g,) = SHARPER.models, SHARPER.exponents
    states = torch.tensor([[0], [1]])
    mass = LETTERS.prior(2, torch.float64).log_prob(states).double().mul(g).exp()
    for t, s in pairwise(torch.linspace(1, 0, STEPS + 1).double()):
        law, to = model(states, t.expand(2)).step(s), [torch.full((2, 1), y) for y in range(2)]
        there = torch.stack([law.log_prob(y).double() for y in to], 1)
        back = torch.stack([LETTERS.transition(y, s, t).log_prob(states).double() for y in to], 1)
        mass = mass @ (g * there + (1 - g) * back).exp()
    return float(mass[0] / mass.sum())


def runs(count, groups):
    """Of each group the chance that what is chosen is the first letter, and the logarithm of its normaliser."""
    sampler = un.samplers.Particles(count, target=SHARPER, share=1.0, proposal=un.samplers.Ancestral())
    grid = un.samplers.grids.Even()
    _, info = un.sample(LETTER, n=groups, steps=STEPS, grid=grid, seed=count, dtype=torch.float64, sampler=sampler)
    record = info.particles
    first = (record.states.reshape(count, groups).T == 0).double()
    return (record.log_weight.softmax(1) * first).sum(1), record.log_normaliser


def biases(counts, total=60_000):
    """Of the chance of the first letter at each number of particles, with its standard error."""
    wanted, found = exact(), []
    for count in counts:
        share, _ = runs(count, total // count)
        found.append((float(share.mean()) - wanted, float(share.std()) / len(share) ** 0.5))
    return found


def power(counts, values, errors):
    """(slope of log |value| against log count, its standard error), each value weighed by its error."""
    x = torch.tensor([log(count) for count in counts]).double()
    y, v = torch.tensor(values).double().abs().log(), (torch.tensor(errors) / torch.tensor(values)).double().square()
    centre = (x / v).sum() / (1 / v).sum()
    spread = ((x - centre).square() / v).sum()
    return float(((x - centre) * y / v).sum() / spread), float(spread**-0.5)


@pytest.mark.conformance
def test_the_law_is_off_by_one_over_the_number_of_particles(monkeypatch):
    """The slope is -1 to 4 standard errors of itself (1 in 16,000) and 0.1 for terms of higher order."""
    counts = (2, 4, 8, 16)
    values, errors = zip(*biases(counts), strict=True)
    slope, error = power(counts, values, errors)
    assert error < 0.1 and abs(slope + 1) < 4 * error + 0.1, (slope, error, values)

    def any_row(weights, u):
        return systematic(torch.zeros_like(weights), u)

    systematic = particles.systematic
    monkeypatch.setattr(particles, "systematic", any_row)
    (few, _), (many, error) = biases((4, 32))
    assert abs(many) > 0.5 * abs(few) > 10 * error  # resampling that forgets the weights is off however many there are


@pytest.mark.conformance
def test_the_normaliser_errs_by_one_over_the_root_of_the_number():
    """1,000 groups know each deviation to 1 part in 45; the slope is -1/2 to 4 standard errors and 0.03."""
    counts = (8, 32, 128)
    values = [float(runs(count, 1000)[1].std()) for count in counts]
    slope, error = power(counts, values, [value / 2000**0.5 for value in values])
    assert error < 0.02 and abs(slope + 0.5) < 4 * error + 0.03, (slope, error, values)


def model_of(mean, std):
    return un.oracles.normal(NUMBERS, torch.tensor([mean]).double(), torch.tensor([[std**2]]).double())


class Wide(AnyDenoiser):
    """The same model by kernels of the variance that the exact reverse kernel has."""

    def __init__(self, model):
        super().__init__()
        self.model, self.process = model, model.process

    def forward(self, x_t, t, /, **condition):
        told = self.model(x_t, t).to(un.Clean)
        return un.Clean(told.value, told.process, told.x_t, told.t, OptimalVariance(self.model.clean_variance))


def squared(mean, slope, variance, g):
    """g log N(y; mean + slope x, variance) as the matrix of a quadratic form in (x, y, 1)."""
    row = torch.tensor([-slope, 1.0, -mean]).double()
    form = -0.5 * g / variance * torch.outer(row, row)
    form[2, 2] -= 0.5 * g * log(2 * pi * variance)
    return form


def integrated(form):
    """log of the integral over y of exp of a quadratic form in (x, y, 1), as one in (x, 1)."""
    a, b = -2 * form[1, 1], 2 * form[[0, 2], 1]
    assert a > 0
    rest = form[[0, 2]][:, [0, 2]] + torch.outer(b, b) / (2 * a)
    rest[1, 1] += 0.5 * torch.log(2 * pi / a)
    return rest


def affine(law):
    """(value at 0, slope, variance) of the mean of each step's law, of states 0 and 1 in turn."""
    mean, std = law.mean.reshape(-1, 2), law.std.expand_as(law.mean).reshape(-1, 2)
    return torch.stack([mean[:, 0], mean[:, 1] - mean[:, 0], std[:, 0].square()], 1).tolist()


def discretised(models, exponents, steps):
    """log Z_h of a run over an even grid; the step that ends on points is not compared."""
    times = torch.linspace(1, 0, steps + 1).double()[:-1].repeat_interleave(2)
    t, s, x = times[:-2], times[2:], torch.tensor([[0.0], [1.0]]).double().repeat(steps - 1, 1)
    own = [affine(model(x, t).step(s)) for model in models]
    back = affine(NUMBERS.transition(x, s, t))
    value = torch.zeros(2, 2).double()  # of (x, 1)
    for k in reversed(range(steps - 1)):
        form = squared(*back[k], 1 - sum(exponents))[[1, 0, 2]][:, [1, 0, 2]]  # of x given y
        for kernels, g in zip(own, exponents, strict=True):
            form = form + squared(*kernels[k], g)
        form[1:, 1:] += value
        value = integrated(form)
    prior = NUMBERS.prior(2, torch.float64)
    whole = squared(0.0, 0.0, float(prior.std.flatten()[0]) ** 2, sum(exponents))
    whole[1:, 1:] += value
    return float(integrated(whole)[1, 1])


def normaliser(laws, exponents):
    """log of the integral of prod_i N(y; m_i, s_i^2)^{g_i}."""
    pairs = zip(laws, exponents, strict=True)
    return float(integrated(sum(squared(mean, 0.0, std**2, g) for (mean, std), g in pairs))[1, 1])


def gaps_of(name, widen, steps):
    laws, exponents = TILTED[name]
    models = [Wide(model_of(*law)) if widen else model_of(*law) for law in laws]
    return [abs(discretised(models, exponents, n) - normaliser(laws, exponents)) for n in steps]


@pytest.mark.parametrize(
    ("name", "widen", "order"), [("geometric", False, 1), ("geometric", True, 2), ("tempered", True, 2)]
)
def test_the_normaliser_of_normal_laws_tends_to_the_target_s(name, widen, order):
    """Fitted over the last doubling of steps.  Exact kernels leave the time of the last step alone, to whose square the
    variance there goes."""
    gaps = gaps_of(name, widen, (32, 64, 128, 256))
    assert gaps == sorted(gaps, reverse=True) and log2(gaps[-2] / gaps[-1]) == pytest.approx(order, abs=0.15), gaps


def test_exponents_that_do_not_sum_to_one_need_the_kernel_s_own_variance():
    """The variance of q(x_s | x_t, x_0) is short of that of p(x_s | x_t) by a share that does not shrink where steps are as
    long as the time that is left, so that on an even grid p^beta is sampled by another constant, however many steps."""
    gaps = gaps_of("tempered", False, (64, 256))
    assert min(gaps) > 0.5


@pytest.mark.parametrize("name", TILTED)
def test_runs_of_normal_laws_estimate_the_normaliser_of_their_steps(name):
    """1,000 groups of 8, resampled in every step: 4 standard errors (1 in 16,000)."""
    laws, exponents = TILTED[name]
    models = [model_of(*law) for law in laws]
    sampler = un.samplers.Particles(8, share=1.0, proposal=un.samplers.Ancestral())
    grid = un.samplers.grids.Even()
    target = un.targets.product(models, exponents)
    _, info = un.sample(target, n=1000, steps=6, grid=grid, seed=0, dtype=torch.float64, sampler=sampler)
    found, error = info.particles.estimate()
    wanted = discretised(models, exponents, 6)
    assert abs(found - wanted) < 4 * error + 1e-9 and error < 0.1
    assert abs(wanted - normaliser(laws, exponents)) > 8 * error  # which is not yet that of the target
