"""What a sampler of one's own, and whoever calls `un.sample`, is told at the door."""

from types import SimpleNamespace

import jaxtyping
import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.samplers import DDIM, Ancestral, DPMSolverPP, Heun, OneStep, Plan, Reveal, State, Stepping

F64 = torch.float64
NORMAL = un.oracles.normal(un.Gaussian((1,)), torch.tensor([0.7], dtype=F64), torch.tensor([[0.5]], dtype=F64))


@pytest.fixture
def unannotated():
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


class FlowStep(Stepping):
    """Euler's rule for the flow, which names its times as numbers."""

    def step(self, problem, setup, state, i):
        t, s = problem.times[i].item(), problem.times[i + 1].item()
        return State(state.x + (s - t) * problem.predict(state.x, t).to(un.Flow).value)


class OnDevice(FlowStep):
    """The same, by tensors."""

    def step(self, problem, setup, state, i):
        t, s = problem.clock[i], problem.clock[i + 1]
        return State(state.x + (s - t) * problem.predict(state.x, t).to(un.Flow).value)


class Undecided(OneStep):
    stages = 2

    def stage(self, problem, tables, prediction, state, i, k, noise):
        return state


class Midpoint(OneStep):
    """x_s = x_t + h u(x_t + h/2 u(x_t, t), t + h/2)."""

    stages, order, draws = 2, 2, False

    def memory(self, problem, tables, x):
        return None

    def stage_times(self, problem, tables):
        times = problem.times.tolist()
        return [(t, (t + s) / 2) for t, s in zip(times, times[1:], strict=False)]

    def stage(self, problem, tables, prediction, state, i, k, noise):
        t, s = problem.times[i].item(), problem.times[i + 1].item()
        u = prediction.to(un.Flow).value
        if k == 0:
            self.start = state.x
            return state.to(state.x + (s - t) / 2 * u)
        return state.to(self.start + (s - t) * u)


def test_a_number_is_a_time():
    options = {"n": 5, "steps": 6, "seed": 0, "end": 0.05}
    by_number, info = un.sample(NORMAL, sampler=FlowStep(), **options)
    assert torch.equal(by_number, un.sample(NORMAL, sampler=OnDevice(), **options)[0]) and info.calls == 6


def test_a_number_is_a_time_of_every_leaf_too():
    seen = []

    class Both(nn.Module):
        def forward(self, x, t):
            seen.append(t)
            return {name: 0 * value for name, value in x.items()}

    product = un.Product(a=un.Gaussian((1,)), b=un.Gaussian((1,)))
    problem = un.samplers.Problem(
        un.Denoiser(Both(), product), torch.tensor([1.0, 0.0], dtype=F64), un.NoiseSource(0, 3), {}
    )
    x = {"a": torch.zeros(3, 1), "b": torch.zeros(3, 1)}
    problem.predict(x, {"a": 0.25, "b": torch.tensor(0.5)})
    assert [seen[0][name].tolist() for name in "ab"] == [[0.25] * 3, [0.5] * 3]


def test_stages_without_times_are_refused():
    with pytest.raises(TypeError, match=r"Undecided has stages = 2.*write stage_times\(problem, tables\)"):
        un.sample(NORMAL, 2, steps=2, sampler=Undecided(), seed=0)


def test_stage_times_are_what_the_page_says():
    """The midpoint rule is of order 2 on the exact flow."""
    schedule = un.schedules.LinearBeta()
    model = un.oracles.normal(un.Gaussian((1,), schedule), torch.zeros(1).double(), torch.full((1, 1), 0.5).double())
    x = torch.ones(1, 1, dtype=F64)
    high, low = ((0.5 * schedule.alpha(t) ** 2 + schedule.sigma(t) ** 2).sqrt() for t in (0.9, 0.1))
    errors = []
    for steps in (64, 128):
        y, info = un.sample(model, x=x * high, start=0.9, end=0.1, steps=steps, sampler=Midpoint())
        errors.append((y - x * low).abs().item())
        assert info.calls == 2 * steps
    assert 3.6 < errors[0] / errors[1] < 4.4


def test_rows_count_every_pass():
    class Twice(nn.Module):
        def forward(self, x, t, previous=None):
            return 0 * x

    denoiser = un.Denoiser(Twice(), un.Gaussian((2,)), un.Clean, self_condition=True)
    for sampler in (DDIM(), un.samplers.AdaptiveODE()):
        _, info = un.sample(denoiser, 1, steps=20, sampler=sampler, seed=0)
        assert info.calls % 2 == 0 and info.rows == info.calls
    _, info = un.sample(denoiser, 10, steps=20, sampler=DDIM(), seed=0)
    assert (info.calls, info.rows) == (40, 400)


@pytest.mark.usefixtures("unannotated")
def test_starts_belong_to_given_states():
    x = torch.zeros(3, 1, dtype=F64)
    own = torch.tensor([1.0, 0.5, 0.2])
    with pytest.raises(ValueError, match="start has a time for each of 3 rows, but no states x"):
        un.sample(NORMAL, n=3, start=own, steps=4, sampler=DDIM())
    with pytest.raises(TypeError, match=r"start is a list: pass a number, or .* tensor"):
        un.sample(NORMAL, x=x, start=[1.0, 0.5, 0.2], steps=4, sampler=DDIM())
    with pytest.raises(TypeError, match=r"n = 2\.5 is no whole number"):
        un.sample(NORMAL, n=2.5, steps=4)
    assert un.sample(NORMAL, x=x, start=own, steps=4, sampler=DDIM())[0].shape == (3, 1)
    assert un.sample(NORMAL, n=3, start=0.5, steps=4, sampler=DDIM())[0].shape == (3, 1)


class Owned(un.Uniform):
    pass


class Shifted(un.Gaussian):
    pass


class Revealed(un.Masking):
    pass


@pytest.fixture
def registered():
    register = un.samplers.default_sampler.register
    method = SimpleNamespace(owned=Ancestral(3), shifted=Heun())
    register(Owned)(lambda process, steps=None: Plan(method.owned, steps or 10))
    register(Shifted)(lambda process, steps=None: Plan(method.shifted, steps or 10))
    register(Revealed)(lambda process, steps=None: Plan(Reveal(), steps or 10))
    return method


def test_a_leaf_has_the_default_of_its_process(registered):
    product = un.Product(
        a=Owned(3, (1,)),
        b=Shifted((1,)),
        c=Revealed(3, (1,)),
        d=un.Gaussian((2, 2)),
        e=un.Masking(2, (1,)),
        f=un.Uniform(2, (1,)),
    )
    methods = un.samplers.default_sampler(product).sampler.methods
    assert methods["a"] is registered.owned and methods["b"] is registered.shifted
    assert isinstance(methods["d"], DPMSolverPP)
    assert all(type(methods[name]) is Ancestral and methods[name].rounds == 1 for name in "cef")
    inner = un.samplers.default_leaf_method(un.Product(a=Owned(3, (1,))))
    assert type(inner) is Ancestral  # leaves of a leaf go by the kernel, as ever
