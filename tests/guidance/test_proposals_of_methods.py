"""Any one-step method proposes: its own law by recursion over all states, times the factor, is what its particles draw."""

from math import log

import pytest
import torch

import unnoise as un
from unnoise.noise import NoiseSource
from unnoise.samplers import multistep, proposals
from unnoise.samplers.problem import Info, Problem
from unnoise.samplers.remasking import Confidence, Rescale

SIZE, STEPS = 3, 4
MASKED, UNIFORM, NUMBERS = un.Masking(SIZE, (2,)), un.Uniform(SIZE, (2,)), un.Gaussian((1,))
P = torch.rand(9, generator=torch.Generator().manual_seed(0)).double().square() + 0.02
P = P / P.sum()
GRID = un.samplers.grids.Even()
MASK = torch.tensor([[True, False, True], [False, True, True]])


def reward(x):
    return torch.tensor([0.5, -1.0, 1.0], dtype=torch.float64)[x.clamp_max(SIZE - 1)].sum(1)


def own_law(model, method, steps=STEPS):
    """Of the clean states that a method draws, by its step laws."""
    process = model.process
    times = torch.linspace(1, 0, steps + 1).double()
    size = process.state_space.size
    states = torch.cartesian_prod(torch.arange(size), torch.arange(size))
    problem = Problem(model, times, NoiseSource(0, len(states)), {}, info=Info(times=times))
    setup = method.setup(problem)
    mass = process.prior(len(states), torch.float64).log_prob(states).double().exp()
    for i in range(steps):
        law = method.step_law(problem, setup.tables, model(states, times[i].expand(len(states))), i)
        each = law.log_probs.exp()
        mass = torch.einsum("n,na,nb->ab", mass, each[:, 0], each[:, 1]).flatten()
    keep = (states < SIZE).all(1)
    return states[keep], mass[keep]


METHODS = {
    "Psi, masking": (MASKED, un.samplers.Psi(0.7)),
    "Psi, uniform": (UNIFORM, un.samplers.Psi(0.7)),
    "CategoricalDDIM": (UNIFORM, un.samplers.CategoricalDDIM(0.5)),
    "Remasking": (MASKED, un.samplers.Remasking(Rescale(0.4))),
}


def estimated(target, method, groups=1500):
    sampler = un.samplers.Particles(8, share=1.0, proposal=method)
    x, info = un.sample(target, n=groups, steps=STEPS, grid=GRID, seed=0, sampler=sampler, dtype=torch.float64)
    return (x, *info.particles.estimate())


@pytest.mark.parametrize("name", METHODS)
def test_a_reward_on_the_law_of_the_method_itself(name):
    """log Z to 4 standard errors (1 in 16,000), and it is far from that of plain draws."""
    process, method = METHODS[name]
    model = un.oracles.table(process, P)
    states, law = own_law(model, method)
    assert float(law.sum()) == pytest.approx(1, abs=1e-9)
    _, found, error = estimated(un.targets.rewarded(model, reward), method)
    wanted = log(float((law * reward(states).exp()).sum()))
    assert abs(found - wanted) < 4 * error < 0.2 and abs(wanted) > 8 * error


@pytest.mark.parametrize("method", [un.samplers.EulerMaruyama(0.8), un.samplers.DDIM(0.6)])
def test_steps_that_are_led_are_weighed(method, monkeypatch):
    """Numbers above a bound: log Z is the logarithm of the chance of that under the method's own normal law."""
    model = un.oracles.normal(NUMBERS, torch.tensor([0.5]).double(), torch.tensor([[0.4]]).double())
    times, probe = torch.linspace(1, 0, 9).double(), torch.tensor([[0.0], [1.0]]).double()
    problem = Problem(model, times, NoiseSource(0, 2), {}, info=Info(times=times))
    setup, mean, variance = method.setup(problem), 0.0, 1.0
    for i in range(8):
        law = method.step_law(problem, setup.tables, model(probe, times[i].expand(2)), i)
        shift, slope = float(law.mean[0]), float(law.mean[1] - law.mean[0])
        mean, variance = shift + slope * mean, slope**2 * variance + float(law.std) ** 2
    wanted = float(torch.special.log_ndtr(torch.tensor((mean - 1.2) / variance**0.5).double()))
    target = un.targets.restricted(model, un.guidance.Between(low=1.2))

    def gap():
        sampler = un.samplers.Particles(8, share=1.0, proposal=method, strict=False)
        _, info = un.sample(target, n=1500, steps=8, grid=GRID, seed=0, dtype=torch.float64, sampler=sampler)
        found, error = info.particles.estimate()
        return abs(found - wanted) / error, error

    errors, error = gap()
    assert errors < 4 and error < 0.05
    monkeypatch.setattr(proposals.Proposal, "weigh", lambda self, parts, own: torch.zeros_like(own))
    assert gap()[0] > 8


def test_several_models_are_weighed_by_their_own_kernels():
    """The constant is that of the steps whatever proposes them."""
    model, other = un.oracles.table(UNIFORM, P), un.oracles.table(UNIFORM, P.flip(0))
    target = un.targets.geometric(model, other, 1.5)
    _, one, error = estimated(target, un.samplers.Ancestral())
    _, two, more = estimated(target, un.samplers.CategoricalDDIM(0.3))
    assert abs(one - two) < 4 * (error**2 + more**2) ** 0.5 < 0.2 and abs(one) > 10 * error


@pytest.mark.parametrize("method", [un.samplers.EulerMaruyama(0.8), un.samplers.DDIM(0.6)])
def test_the_law_of_a_linear_step_is_that_which_it_draws(method):
    model = un.oracles.normal(NUMBERS, torch.tensor([0.5]).double(), torch.tensor([[0.4]]).double())
    times, n = torch.tensor([0.8, 0.5, 0.2]).double(), 20_000
    problem = Problem(model, times, NoiseSource(0, n), {}, info=Info(times=times))
    setup, x = method.setup(problem), torch.full((n, 1), 0.7).double()
    prediction = model(x, times[1].expand(n))
    law = method.step_law(problem, setup.tables, prediction, 1)
    moved = method.stage(problem, setup.tables, prediction, un.samplers.State(x), 1, 0, problem.noise.at("z")).x
    z = (moved - law.mean) / law.std
    assert abs(float(z.mean())) < 4 / n**0.5 and abs(float(z.var()) - 1) < 4 * (2 / n) ** 0.5
    assert float(law.std) > 0.1


def lineage(info):
    """Who was where at the beginning of each particle."""
    found = torch.arange(info.particles.log_weight.shape[1]).expand_as(info.particles.ancestors[0])
    for index in info.particles.ancestors:
        found = found.gather(1, index)
    return found


def paths(method, strength):
    model = un.oracles.normal(NUMBERS, torch.tensor([0.5]).double(), torch.tensor([[0.4]]).double())
    target = un.targets.rewarded(model, lambda x: x[:, 0], strength)
    sampler = un.samplers.Particles(6, share=1.0, proposal=method)
    _, info = un.sample(target, n=5, steps=8, seed=0, dtype=torch.float64, sampler=sampler)
    return info.particles.states.reshape(6, 5).T, info


@pytest.mark.parametrize("method", [un.samplers.DPMSolverPP(2), un.samplers.UniPC(2), un.samplers.DDIM()])
def test_what_a_method_remembers_goes_where_its_particle_goes(method, monkeypatch):
    """A deterministic method, drawn anew on its way: every particle is at the end of the path of its first ancestor."""
    plain, _ = paths(method, 0.0)
    found, info = paths(method, 2.0)
    first = lineage(info)
    assert bool((first != torch.arange(6)).any())
    torch.testing.assert_close(found, plain.gather(1, first), rtol=1e-9, atol=1e-9)
    if method.degree > 1:
        monkeypatch.setattr(multistep.Past, "rows", lambda self, index: self)  # the history stays while the states go
        found, info = paths(method, 2.0)
        assert float((found - plain.gather(1, lineage(info))).abs().max()) > 1e-3


def test_what_cannot_propose_is_refused():
    model, other = un.oracles.table(UNIFORM, P), un.oracles.table(UNIFORM, P.flip(0))
    numbers = un.oracles.normal(NUMBERS, torch.tensor([0.5]).double(), torch.tensor([[0.4]]).double())
    with pytest.raises(TypeError, match="asks more than once"):
        un.sample(numbers, n=2, steps=3, sampler=un.samplers.Particles(2, proposal=un.samplers.Heun()))
    with pytest.raises(TypeError, match="several models, or a power of one"):
        target = un.targets.tempered(numbers, 2.0)
        un.sample(target, n=2, steps=3, sampler=un.samplers.Particles(2, proposal=un.samplers.DPMSolverPP(2)))
    with pytest.raises(TypeError, match="by confidence goes by what it remembers, and this target leads on the way"):
        target = un.targets.restricted(un.oracles.table(MASKED, P), un.guidance.AllowedCategories(MASK))
        method = un.samplers.Remasking(Confidence(Rescale(0.4)))
        un.sample(target, n=2, steps=3, sampler=un.samplers.Particles(2, proposal=method))
    with pytest.raises(TypeError, match="may mask again what it has revealed"):
        target = un.targets.restricted(un.oracles.table(MASKED, P), un.guidance.AllowedCategories(MASK))
        un.sample(target, n=2, steps=3, sampler=un.samplers.Particles(2, proposal=un.samplers.Psi(0.7)))
    with pytest.raises(TypeError, match="none that end at known times"):
        target = un.targets.geometric(model, other, 2.0)
        un.sample(target, n=2, steps=3, sampler=un.samplers.Particles(2, proposal=un.samplers.Gillespie()))


def test_numbers_that_are_given_are_held():
    """A number and a label that lean on each other, the number held at time 0 and the label rewarded: the law of the label
    is p(label | number) exp(reward) / Z, and Z is known; 4 standard errors."""
    process = un.Product(a=un.Gaussian((1,)), b=un.Uniform(2, (1,)))
    leaves = {
        "a": un.oracles.GaussianLeaf(torch.tensor([[-1.0], [1.0]]).double(), torch.full((2, 1, 1), 0.5).double()),
        "b": un.oracles.CategoricalLeaf(torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]]).double().log()),
    }
    model = un.oracles.Components(process, torch.tensor([0.5, 0.5]), leaves)
    n, given = 1500, 0.4
    mixed = torch.tensor([-((given + 1) ** 2), -((given - 1) ** 2)]).double().softmax(0)  # of the components, by the number
    second = float(mixed @ torch.tensor([0.1, 0.8]).double())
    target = un.targets.rewarded(model, lambda x: 1.5 * x["b"][:, 0].double())
    x = {"a": torch.full((n, 1), given).double(), "b": torch.randint(2, (n, 1), generator=torch.Generator().manual_seed(0))}
    sampler = un.samplers.Particles(8).holding(["a"])
    y, info = un.sample(target, x=x, steps=12, seed=0, dtype=torch.float64, sampler=sampler)
    found, error = info.particles.estimate()
    e = torch.tensor(1.5).double().exp().item()
    assert abs(found - log(1 - second + second * e)) < 4 * error < 0.1 and torch.equal(y["a"], x["a"])
    wanted = second * e / (1 - second + second * e)
    assert abs(float(y["b"].double().mean()) - wanted) < 4 * (wanted * (1 - wanted) / n) ** 0.5 + 0.01
    assert abs(wanted - second) > 0.1
