"""How a run is controlled: steps, calls, tolerance, seed, callback, progress; and what is done with odd input."""

import pytest
import torch

import unnoise as un
from unnoise.samplers import (
    DDIM,
    AdaptiveODE,
    Ancestral,
    CategoricalDDIM,
    DetailedBalance,
    DPMSolverPP,
    Euler,
    FirstHitting,
    FromGenerator,
    Frozen,
    Gillespie,
    Heun,
    Langevin,
    Leaves,
    OneByOne,
    PredictorCorrector,
    Psi,
    Remasking,
    Reveal,
    Routed,
    TauLeaping,
    ThetaTrapezoidal,
    Uniformization,
    UniPC,
    remasking,
    sample,
)

MEAN, COVARIANCE = torch.tensor([0.7, -0.3]).double(), torch.tensor([[0.5, 0.2], [0.2, 0.3]]).double()
NUMBERS = un.oracles.normal(un.Gaussian((2,), un.schedules.LinearBeta()), MEAN, COVARIANCE)
MASKED = un.oracles.table(un.Masking(3, (4,)), torch.arange(1.0, 82.0).double() / 3321)
UNIFORM = un.oracles.table(un.Uniform(3, (2,), un.schedules.LinearBeta()), torch.arange(1.0, 10.0).double() / 45)
MIXED = un.oracles.conditional_gaussian(
    un.Product(x=un.Gaussian((1,), un.schedules.LinearBeta()), c=un.Uniform(2, (1,), un.schedules.LinearBeta())),
    torch.tensor([0.4, 0.6]),
    torch.tensor([[-1.0], [1.0]], dtype=torch.float64),
    torch.tensor([[[0.5]], [[0.5]]], dtype=torch.float64),
)
TABLE = un.oracles.conditional_gaussian(
    un.Product(x=un.Gaussian((1,), un.schedules.LinearBeta()), c=un.Masking(2, (2,))),
    torch.tensor([0.4, 0.1, 0.2, 0.3]),
    torch.tensor([[-1.0], [1.0], [0.0], [0.5]], dtype=torch.float64),
    torch.full((4, 1, 1), 0.5, dtype=torch.float64),
)

ALL = {
    "ddim": (NUMBERS, DDIM()),
    "ddim-1": (NUMBERS, DDIM(1.0)),
    "3m": (NUMBERS, DPMSolverPP(3)),
    "unipc": (NUMBERS, UniPC()),
    "heun": (NUMBERS, Heun(churn=10.0)),
    "adaptive": (NUMBERS, AdaptiveODE(1e-3, 1e-3)),
    "langevin": (NUMBERS, PredictorCorrector(DDIM(), Langevin())),
    "generic": (NUMBERS, FromGenerator()),
    "reveal": (MASKED, Reveal()),
    "confidence": (MASKED, Reveal(by="confidence")),
    "first hitting": (MASKED, FirstHitting()),
    "remasking": (MASKED, Remasking(remasking.Rate(2.0))),
    "remasking by confidence": (MASKED, Remasking(remasking.Confidence(remasking.Cap(0.2)))),
    "routed": (MASKED, Routed()),
    "thinning": (MASKED, Gillespie()),
    "uniformization": (UNIFORM, Uniformization()),
    "euler": (UNIFORM, Euler()),
    "tau": (UNIFORM, TauLeaping(ordinal=True)),
    "trapezoidal": (UNIFORM, ThetaTrapezoidal()),
    "categorical ddim": (UNIFORM, CategoricalDDIM(0.2)),
    "psi": (UNIFORM, Psi(0.9)),
    "psi, max-rescale": (MASKED, Psi()),
    "balance": (UNIFORM, PredictorCorrector(Euler(), DetailedBalance())),
    "leaves": (MIXED, Leaves(x=DDIM(), c=Euler())),
    "mixed": (MIXED, FromGenerator(theta=0.5)),
    "one by one": (TABLE, OneByOne(x=DPMSolverPP(2))),
    "one by one, sde": (TABLE, OneByOne(x=DPMSolverPP(2, sde=True))),
    "ancestral": (MIXED, Ancestral()),
    "ancestral rounds": (MIXED, Ancestral(3)),
}
FIXED = {name: case for name, case in ALL.items() if case[1].calls(1, case[0].process) is not None}


def leaves(x):
    return x.values() if isinstance(x, dict) else [x]


def same(x, y) -> bool:
    return all(torch.equal(a, b) for a, b in zip(leaves(x), leaves(y), strict=True))


@pytest.mark.parametrize("name", ALL)
def test_sample_i_is_bit_identical_in_any_batch_and_order(name):
    denoiser, sampler = ALL[name]
    options = {"steps": 6, "sampler": sampler, "seed": 11, "end": 0.05}
    whole, _ = sample(denoiser, n=23, **options)
    for first, n in ((0, 1), (7, 5), (22, 1)):
        part, _ = sample(denoiser, n=n, first=first, **options)
        assert same(
            part,
            {k: v[first : first + n] for k, v in whole.items()} if isinstance(whole, dict) else whole[first : first + n],
        )
    other, _ = sample(denoiser, n=23, **{**options, "seed": 12})
    assert not same(whole, other)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("steps", [1, 2])
def test_one_step_and_two(name, steps):
    """A sample of the space, at every time of the grid, and the record of the run."""
    denoiser, sampler = ALL[name]
    x, info = sample(denoiser, n=40, steps=steps, sampler=sampler, end=0.05, trajectory=True, seed=0)
    assert len(info.trajectory) == steps + 1 and same(info.trajectory[-1], x)
    denoiser.process.state_space.check(x, "x")
    assert info.rows >= info.calls >= 1
    calls = sampler.calls(steps, denoiser.process)
    assert calls is None or info.calls <= calls


@pytest.mark.parametrize("name", ALL)
def test_an_empty_batch_is_empty(name):
    denoiser, sampler = ALL[name]
    x, info = sample(denoiser, n=0, steps=3, sampler=sampler, trajectory=True, seed=0)
    assert all(len(leaf) == 0 for leaf in leaves(x)) and info.calls == 0 and len(info.trajectory) >= 2


@pytest.mark.parametrize("name", ALL)
def test_duplicated_times_are_refused(name):
    denoiser, sampler = ALL[name]
    for grid in ([1.0, 0.5, 0.5, 0.1], [0.2, 0.4], [1.0], [1.2, 0.1]):
        with pytest.raises(ValueError, match="time"):
            sample(denoiser, n=2, sampler=sampler, grid=grid, seed=0)


@pytest.mark.parametrize("name", FIXED)
@pytest.mark.parametrize("budget", [4, 7, 20])
def test_a_budget_of_calls_is_kept_and_used(name, budget):
    denoiser, sampler = FIXED[name]
    x, info = sample(denoiser, n=30, calls=budget, sampler=sampler, end=0.05, seed=0)
    assert info.calls <= budget
    steps = len(info.times) - 1
    assert isinstance(sampler, FirstHitting) or sampler.calls(steps + 1, denoiser.process) > budget


def test_budgets_that_cannot_be_kept():
    with pytest.raises(ValueError, match="needs 4 for a single step"):
        sample(MASKED, n=2, calls=3, sampler=FirstHitting(), seed=0)
    with pytest.raises(ValueError, match="needs 2 for a single step"):
        sample(NUMBERS, n=2, calls=1, sampler=Heun(), seed=0)
    for sampler, denoiser in ((AdaptiveODE(), NUMBERS), (Gillespie(), MASKED)):
        with pytest.raises(ValueError, match="does not know its calls beforehand"):
            sample(denoiser, n=2, calls=30, sampler=sampler, seed=0)
    chain = NUMBERS.predicting(None, un.Chain(NUMBERS.process, 12))
    assert sample(chain, n=2, calls=100, seed=0)[1].calls == 12
    assert sample(chain, n=2, calls=5, seed=0)[1].calls == 5


def test_a_tolerance_is_met():
    """Samples of the flow from the same start, against a far finer run.  The tolerance is that of a step: over the whole way
    the usual sample is within a few of them, the worst within some tens."""
    exact, _ = sample(NUMBERS, n=50, tolerance=1e-9, seed=0)
    errors, calls = [], []
    for tolerance in (1e-2, 1e-4, 1e-6):
        x, info = sample(NUMBERS, n=50, tolerance=tolerance, seed=0)
        errors.append(float((x - exact).abs().max()))
        calls.append(info.calls)
        assert errors[-1] < 40 * tolerance and float((x - exact).abs().median()) < 4 * tolerance
    assert calls[0] < calls[1] < calls[2] and errors[0] > errors[1] > errors[2]


@pytest.mark.parametrize(
    "options, words",
    [
        ({"steps": 4, "calls": 9}, "steps and calls"),
        ({"steps": 4, "tolerance": 1e-3}, "steps and tolerance"),
        ({"tolerance": 1e-3, "sampler": DDIM()}, "chooses AdaptiveODE"),
        ({"steps": 0}, "at least one"),
        ({"steps": 4, "n": -1}, "must not be negative"),
        ({"steps": 4, "start": 0.2, "end": 0.4}, "from noise to data"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(ValueError, match=words):
        sample(NUMBERS, **{"n": 2, **options})


def test_a_tolerance_is_for_numbers():
    with pytest.raises(ValueError, match="is for numbers"):
        sample(MASKED, n=2, tolerance=1e-3, seed=0)


@pytest.mark.parametrize(
    "denoiser, sampler",
    [
        (MASKED, DDIM()),
        (MASKED, Heun()),
        (MASKED, AdaptiveODE()),
        (MASKED, PredictorCorrector(Ancestral(), Langevin())),
        (NUMBERS, Euler()),
        (NUMBERS, Reveal()),
        (NUMBERS, FirstHitting()),
        (NUMBERS, Gillespie()),
        (NUMBERS, Uniformization()),
        (NUMBERS, CategoricalDDIM()),
        (NUMBERS, Remasking(remasking.Cap(0.1))),
        (NUMBERS, Routed()),
        (NUMBERS, PredictorCorrector(DDIM(), DetailedBalance())),
        (UNIFORM, FirstHitting()),
        (UNIFORM, Remasking(remasking.Cap(0.1))),
        (MIXED, DDIM()),
        (MIXED, Euler()),
        (MIXED, Gillespie()),
        (NUMBERS, Leaves(DDIM())),
    ],
    ids=lambda value: type(value).__name__ if not hasattr(value, "process") else type(value.process).__name__,
)
def test_a_process_that_a_method_does_not_hold_for(denoiser, sampler):
    """The error names both."""
    with pytest.raises(TypeError) as error:
        sample(denoiser, n=2, steps=3, sampler=sampler, seed=0)
    assert type(denoiser.process).__name__ in str(error.value)


def test_callback_and_progress(capsys):
    seen = []
    x, info = sample(
        NUMBERS,
        n=3,
        steps=4,
        sampler=DDIM(),
        callback=lambda i, t, state: seen.append((i, t, state.x)),
        progress=True,
        seed=0,
    )
    assert [(i, t) for i, t, _ in seen] == [(i, float(info.times[i + 1])) for i in range(4)]
    assert torch.equal(seen[-1][2], x) and "sampling" in capsys.readouterr().err


def test_a_frozen_leaf_may_be_the_only_one_that_stays():
    start = {"x": torch.zeros(5, 1).double(), "c": torch.ones(5, 1).long()}
    x, info = sample(MIXED, x=start, steps=4, sampler=Leaves(x=Frozen(), c=Ancestral()), seed=0)
    assert torch.equal(x["x"], start["x"]) and info.calls == 4
