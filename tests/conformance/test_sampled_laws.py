"""What samplers draw has the law of the data: 50,000 samples or more of every process and sampler, by chi-square or
Kolmogorov-Smirnov.

False alarms: each of the TESTS tests rejects a right law with probability 2e-5/TESTS at most, so that all of them together
do with probability 2e-5.  Methods with steps are run finely enough that their own error, which is computed, cannot be told
from 0 by so many samples; what is left of it is allowed for.  The mutants below are drawn as often, and are rejected.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from sampled_cases import DRAWS, noncentrality, upper
from sampled_gaps import forced_law
from sampled_registry import CASES, LEVEL, TESTS

import unnoise as un
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.samplers import Problem, Reveal, Sampler, Stepping, base, correctors, events

pytestmark = pytest.mark.conformance

NAMES = list(CASES)
EXACT_UNDER_MASKING = ("masking, first hitting", "masking, thinning", "masking, uniformization")


def drawn(name: str, **options):
    """Every case has a seed of its own."""
    return CASES[name].draw(seed=NAMES.index(name), **options)


def settled(name: str) -> None:
    """The gap is computed before anything is changed, and kept."""
    assert CASES[name].gap < 1


def rejected(name: str, **options) -> bool:
    return CASES[name].p_value(drawn(name, **options)) < LEVEL


def test_as_many_tests_as_the_level_allows_for():
    assert len(CASES) + 1 == TESTS  # one more compares three methods
    assert abs(LEVEL * TESTS / 2e-5 - 1) < 1e-12 and DRAWS == 50_000


@pytest.mark.parametrize("name", NAMES)
def test_law(name):
    assert CASES[name].gap < 1
    assert CASES[name].p_value(drawn(name)) >= LEVEL


def disagree(samples: list[torch.Tensor]) -> bool:
    """A chi-square test of equal laws."""
    counts = torch.stack([CASES["masking, first hitting"].counts(x) for x in samples])
    counts = counts[:, counts.sum(0) > 0]
    expected = counts.sum(0) / len(samples)
    freedom = (len(samples) - 1) * (counts.shape[1] - 1)
    return upper(((counts - expected).square() / expected).sum(), freedom) < LEVEL


def test_thinning_uniformization_and_first_hitting_agree():
    samples = [drawn(name) for name in EXACT_UNDER_MASKING]
    assert not disagree(samples)
    independent = torch.stack([samples[0][:, 0], samples[0][:, 1].roll(1)], 1)  # the mutant: coordinates that forget
    assert disagree([*samples[:2], independent])


# --- mutants


class Halved(NoiseSource):
    """Normal numbers of half the size."""

    def __init__(self, source: NoiseSource):
        self.source, self.rows = source, source.rows

    def at(self, *labels):
        return Halved(self.source.at(*labels))

    def uniform(self, shape=()):
        return self.source.uniform(shape)

    def normal(self, shape=(), dtype=torch.float64):
        return 0.5 * self.source.normal(shape, dtype)


class Quiet(Sampler):
    """A sampler with half its noise."""

    def __init__(self, sampler: Sampler):
        self.sampler = sampler

    def run(self, problem, x, after):
        return self.sampler.run(Problem(problem.denoiser, problem.times, Halved(problem.noise), {}), x, after)


QUIET = [
    "ancestral, forward variance",
    "DDIM, half",
    "Euler-Maruyama",
    "SDE-DPM++ 2M",
    "Heun, churn",
    "generic",
    "bumps, generic trapezoidal",
    "mixed, generic trapezoidal",
]


@pytest.mark.parametrize("name", QUIET)
def test_halved_noise_is_rejected(name):
    assert rejected(name, sampler=Quiet(CASES[name].sampler))


SHORT = ["one uniform, ancestral", "one matrices, sub-grid", "one chain, sub-grid", "one absorbing, own steps",
         "masking, ancestral", "masking, remasking", "UniPC, half-way"]  # fmt: skip


@pytest.mark.parametrize("name", SHORT)
def test_a_skipped_last_step_is_rejected(name, monkeypatch):
    def run(self, problem, x, after):
        setup = self.setup(problem)
        state = self.init(problem, setup, x)
        for i in range(problem.steps - 1):
            state = self.step(problem, setup, state, i)
        return state.x

    settled(name)
    monkeypatch.setattr(base.Stepping, "run", run)
    assert rejected(name)


@pytest.mark.parametrize("name", SHORT[:3])
def test_there_are_draws_enough_to_miss_a_last_step(name):
    """The computed law without it is so far off that the statistic falls below its bar with probability 3e-6 at most."""
    case = CASES[name]
    points = case.process.state_space.states()
    law = case.process.prior(len(points)).log_prob(points).exp() if case.prior else case.target(case.start)
    short = forced_law(case.sampler, case.denoiser, case.times[:-1], law, points, case.draws)
    assert noncentrality(short, case.target(case.last), case.rows) > 100


@pytest.mark.parametrize("name", ["masking, reveal", "one masking, reveal"])
def test_a_skipped_last_step_of_a_plan_is_rejected(name, monkeypatch):
    settled(name)
    monkeypatch.setattr(Problem, "steps", property(lambda self: len(self.times) - 2))
    assert rejected(name)


class Late(AnyDenoiser):
    """The network is asked at the end s of a step from t."""

    def __init__(self, denoiser: AnyDenoiser, times: torch.Tensor):
        super().__init__()
        self.denoiser, self.process, self.times = denoiser, denoiser.process, times

    def forward(self, x_t, t, **condition):
        s = self.times[self.times < t.flatten()[0] - 1e-9][:1]
        told = self.denoiser(x_t, s.expand(len(x_t)))
        told = told.to(un.Clean) if isinstance(told, un.Velocity) else told
        return type(told)(told.value, told.process, x_t, t)


LATE = ["one uniform, ancestral", "one interpolation, ancestral", "one rates, ancestral", "one chain, sub-grid",
        "one matrices, own steps", "UniPC, half-way", "DPM++ 2M"]  # fmt: skip


@pytest.mark.parametrize("name", LATE)
def test_swapped_times_are_rejected(name):
    assert rejected(name, denoiser=Late(CASES[name].denoiser, CASES[name].times))


class InPrecision(Stepping):
    """One coordinate under masking: tokens and MASK in one table, drawn with numbers of the given precision."""

    def __init__(self, dtype: torch.dtype):
        self.dtype = dtype

    def setup(self, problem):
        told = problem.denoiser(torch.full((1, 1), problem.process.mask), 0.5)
        return told.to(un.RawPosterior).log_probs().exp().flatten()

    def step(self, problem, theta, state, i):
        x = state.x
        stay = problem.process.schedule.beta(problem.times[i + 1]) / problem.process.schedule.beta(problem.times[i])
        law = torch.cat([stay.reshape(1), (1 - stay) * theta]).to(self.dtype)
        table = torch.from_numpy(np.cumsum(law.numpy()))  # torch would add in float64
        masked = (x == problem.process.mask).flatten().nonzero().squeeze(1)
        u = problem.noise.at("step", i).uniform().to(self.dtype)[masked] * table[-1]
        token = torch.searchsorted(table, u, right=True).clamp_max(problem.process.mask) - 1
        return state.to(x.index_put((masked,), torch.where(token < 0, problem.process.mask, token).unsqueeze(1)))


def test_a_float32_tail_is_rejected():
    """A token of probability 6e-6 has 6e-9 in the first of 1024 steps: nothing, next to 1 in float32."""
    name = "rare tokens, reveal"
    case, kinds = replace(CASES[name], steps=1024), (torch.float32, torch.float64)
    single, double = (CASES[name].p_value(case.draw(NAMES.index(name), InPrecision(kind))) for kind in kinds)
    assert single < LEVEL <= double


def test_an_unbalanced_corrector_is_rejected(monkeypatch):
    """Twice the reverse rates, and no forward ones."""
    settled("uniform, corrected")
    monkeypatch.setattr(correctors.DetailedBalance, "rates", lambda self, prediction: 2 * prediction.local().log_rates.exp())
    assert rejected("uniform, corrected")


@pytest.mark.parametrize("name", ["uniform, thinning", "uniform, uniformization"])
def test_a_thinning_that_accepts_all_is_rejected(name, monkeypatch):
    monkeypatch.setattr(events, "accepted", lambda exit, bound, u: exit > 0)
    assert rejected(name)


def test_too_few_steps_are_rejected():
    """One step draws the coordinates independently."""
    case = replace(CASES["masking, reveal"], steps=1, sampler=Reveal())
    assert CASES["masking, reveal"].p_value(case.draw()) < LEVEL
