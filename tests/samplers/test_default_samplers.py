"""How a process is drawn unless told, and samplers by name."""

import pytest
import torch

import unnoise as un
from unnoise.samplers import (
    DDIM,
    Ancestral,
    DPMSolverPP,
    FirstHitting,
    Leaves,
    OneByOne,
    OneStep,
    Plan,
    Reveal,
    default_sampler,
    default_steps,
    register_sampler,
    registry,
    sample,
)

CASES = {
    "numbers": (lambda: un.Gaussian((2,)), DPMSolverPP, 64),
    "images": (lambda: un.Gaussian((2, 2)), Ancestral, 128),
    "few masks": (lambda: un.Masking(3, (64,)), FirstHitting, 1),
    "masks": (lambda: un.Masking(3, (65,)), Reveal, 65),
    "masks, a schedule each": (
        lambda: un.Masking(3, (2,), un.schedules.PerCoordinate([un.schedules.Linear(), un.schedules.Cosine()])),
        Reveal,
        2,
    ),
    "uniform": (lambda: un.Uniform(3, (2,)), Ancestral, 256),
    "counts": (lambda: un.Thinning((2,)), Ancestral, 256),
    "table": (lambda: un.Product(x=un.Gaussian((1,)), c=un.Masking([2, 3, 4], (3,))), OneByOne, 64),
    "masked columns": (lambda: un.Product(a=un.Masking(2, (70,)), b=un.Masking(3, (1,))), OneByOne, 64),
    "table, a leaf that jumps": (lambda: un.Product(u=un.Uniform(3, (9,)), c=un.Masking(2, (5,))), OneByOne, 288),
    "nothing masked": (lambda: un.Product(x=un.Gaussian((2,)), u=un.Uniform(2, (1,))), Leaves, 96),
    "chain": (lambda: un.Chain(un.Gaussian((2,)), 20), Ancestral, 20),
}


@pytest.mark.parametrize("name", CASES)
def test_defaults(name):
    build, kind, steps = CASES[name]
    plan = default_sampler(build())
    assert type(plan.sampler) is kind and plan.steps == steps
    assert plan.sampler.refuse(build().base) is None
    common = min(512, max(64, 32 * build().space.dimension))  # of methods that are named
    assert default_steps(build()) == {FirstHitting: 64, OneByOne: common}.get(kind, steps)
    assert default_steps(build(), plan.sampler) == (64 if kind is FirstHitting else steps)


def test_defaults_for_a_number_of_steps():
    assert type(default_sampler(un.Gaussian((2, 2)), 20).sampler) is DPMSolverPP
    assert type(default_sampler(un.Masking(3, (4,)), 20).sampler) is Reveal
    assert default_sampler(un.Uniform(3, (4,)), 20).steps == 20
    for build, _, _ in CASES.values():
        with pytest.raises(ValueError, match="steps = 0"):
            default_sampler(build(), 0)
    with pytest.raises(TypeError, match="a sampler belongs to a process"):
        default_sampler(3)


def test_sample_takes_the_process_s_own():
    oracle = un.oracles.normal(un.Gaussian((2,)), torch.zeros(2).double(), torch.eye(2).double())
    for given in ({}, {"steps": 9}, {"calls": 9}, {"grid": [1.0, 0.5, 0.0]}, {"grid": un.samplers.grids.Quadratic()}):
        x, info = sample(oracle, n=3, seed=1, **given)
        steps = {"steps": 9} if "calls" in given else given or {"steps": 64}
        assert torch.equal(x, sample(oracle, n=3, seed=1, sampler=DPMSolverPP(2), **steps)[0])
    table = un.oracles.table(un.Masking(3, (2,)), torch.full((9,), 1 / 9).double())
    x, info = sample(table, n=3, seed=1)
    assert torch.equal(x, sample(table, n=3, seed=1, sampler=FirstHitting())[0]) and info.calls == 2
    assert torch.equal(sample(table, n=3, seed=1, calls=5)[0], sample(table, n=3, seed=1, sampler=Reveal(), steps=5)[0])
    half, _ = sample(table, x=torch.full((3, 2), 3), start=0.5, seed=1)
    assert bool((half < 3).all())
    chain = oracle.predicting(un.Clean, un.Chain(oracle.process, 12))
    x, info = sample(chain, n=3, seed=1)
    assert info.calls == 12 and torch.equal(x, sample(chain, n=3, seed=1, sampler=Ancestral())[0])
    assert sample(chain, n=3, seed=1, steps=4)[1].calls == 4


def test_a_process_from_outside_answers_for_itself():
    class Own(un.Uniform):
        pass

    assert type(default_sampler(Own(3, (2,))).sampler) is Ancestral

    @default_sampler.register
    def _(process: Own, steps: int | None = None) -> Plan:
        return Plan(un.samplers.CategoricalDDIM(), steps or 7)

    oracle = un.oracles.table(Own(3, (2,)), torch.full((9,), 1 / 9).double())
    assert sample(oracle, n=2, seed=0)[1].calls == 7


# --- names


class Mine(DDIM):
    pass


class Entry:
    """As importlib.metadata tells of an installed package."""

    def __init__(self, name, value):
        self.name, self.value, self.loaded = name, value, 0

    def load(self):
        self.loaded += 1
        return self.value


@pytest.fixture
def entries(monkeypatch):
    found = [Entry("Mine", Mine), Entry("Wrong", 3), Entry("DDIM", Mine)]
    monkeypatch.setattr(registry, "_KNOWN", dict(registry._KNOWN))
    monkeypatch.setattr(
        registry,
        "entry_points",
        lambda group, name=None: [e for e in found if name in (None, e.name) and group == registry.GROUP],
    )
    return found


def test_samplers_of_installed_packages_are_found_by_name(entries):
    assert type(registry.method_named("DDIM")) is DDIM and not any(entry.loaded for entry in entries)  # ours are known
    assert type(registry.method_named("Mine")) is Mine and entries[0].loaded == 1
    assert type(registry.method_named("Mine")) is Mine and entries[0].loaded == 1 and "Mine" in registry.choices()
    with pytest.raises(TypeError, match="the sampler 'Wrong' is 3"):
        registry.method_named("Wrong")
    with pytest.raises(ValueError, match="no sampler 'Other': choose from .*Ancestral.*Wrong"):
        registry.method_named("Other")


def test_registered_names(entries):
    @register_sampler("Short")
    class Short(OneStep):
        def stage(self, problem, tables, prediction, state, i, k, noise):
            return state

    assert type(registry.method_named("Short")) is Short
    with pytest.raises(ValueError, match=r"a sampler 'DDIM' already, of unnoise\.samplers\.linear: choose another name"):
        register_sampler("DDIM")(Mine)
    with pytest.raises(ValueError, match="PredictorCorrector needs arguments"):
        registry.method_named("PredictorCorrector")
