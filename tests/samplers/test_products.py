"""Products and the generic step: laws and orders, computed from the samplers' own code.

A step is a function of the state and of what is drawn.  For a number and a category the draws are laid out instead: rows
hold every combination of Gauss-Hermite nodes and of categories, `Branches` hands them out and keeps the weight of each.
That gives the step as an operator on functions u(x, c), kept as Chebyshev polynomials; applied from the end backwards it
gives E phi(x_s, c_s), without noise, to be compared with the exact one.  Where all is linear (Gaussian data, two leaves of
numbers) the last state is A x + sum_i B_i z_i + c, and rows with single entries of x and z give the matrices.
"""

from math import log2

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.laws import Categorical
from unnoise.noise import NoiseSource
from unnoise.samplers import (
    DDIM,
    Ancestral,
    DPMSolverPP,
    Euler,
    EulerMaruyama,
    FirstHitting,
    FromGenerator,
    Frozen,
    Heun,
    Leaves,
    Reveal,
    TauLeaping,
    ThetaTrapezoidal,
    UniPC,
    sample,
)
from unnoise.samplers.problem import Problem

LATE, EARLY, REACH, DEGREE, NODES = 0.75, 0.35, 7.0, 72, 12
STEADY = un.schedules.LinearBeta(2.0, 2.0)


def mixed(spread: float = 0.8):
    """A number whose mean and variance depend on a category, with rates that stay near each other."""
    process = un.Product(x=un.Gaussian((1,), STEADY), c=un.Uniform(2, (1,), STEADY))
    means = torch.tensor([[-0.5], [0.5]], dtype=torch.float64) * spread
    return un.oracles.conditional_gaussian(
        process, torch.tensor([0.45, 0.55]), means, torch.tensor([[[0.6]], [[0.8]]], dtype=torch.float64)
    )


class Branches(NoiseSource):
    """Noise that hands out the nodes laid out for each stage."""

    def __init__(self, normals: list[torch.Tensor], labels: tuple = ()):
        self.normals, self.labels, self.rows = normals, labels, torch.arange(len(normals[0]))

    def at(self, *labels):
        return Branches(self.normals, self.labels + labels)

    def normal(self, shape, dtype=torch.float64):
        return self.normals[self.labels[2]].reshape(-1, *shape)  # ("step", i, k, ...)


def expectation_error(sampler, oracle, steps: int, monkeypatch) -> float:
    """The largest error of E phi over a few test functions."""
    times = torch.linspace(LATE, EARLY, steps + 1, dtype=torch.float64)
    points = REACH * np.cos(np.pi * (np.arange(DEGREE) + 0.5) / DEGREE)
    z, w = np.polynomial.hermite_e.hermegauss(NODES)
    w = w / w.sum()
    stages = sampler.stages
    axes = [torch.as_tensor(points.copy()), torch.arange(2.0)] + [torch.as_tensor(z), torch.arange(2.0)] * stages
    mesh = [axis.flatten() for axis in torch.meshgrid(*[axis.double() for axis in axes], indexing="ij")]
    normals, categories = mesh[2::2], [c.long().unsqueeze(1) for c in mesh[3::2]]
    base = torch.ones_like(mesh[0])
    for k in range(stages):
        lookup = dict(zip(z.tolist(), w.tolist(), strict=True))
        base = base * torch.tensor([lookup[v] for v in normals[k].tolist()], dtype=torch.float64)
    spent: list[torch.Tensor] = []

    def draw(self, noise):
        chosen = categories[noise.labels[2]]
        spent.append(self.probs.gather(-1, chosen.unsqueeze(-1)).flatten())
        return chosen

    monkeypatch.setattr(Categorical, "draw", draw)
    tests = [lambda x, c: np.cos(x + 0.3), lambda x, c: x * (c == 1), lambda x, c: 1.0 * (c == 1), lambda x, c: x**2]
    u = np.stack([[phi(points, c) + 0 * points for c in (0, 1)] for phi in tests])  # [tests, 2, points]
    problem = Problem(oracle, times, Branches(normals), {})
    setup = sampler.setup(problem)
    start = {"x": mesh[0].unsqueeze(1), "c": mesh[1].long().unsqueeze(1)}
    for i in reversed(range(steps)):
        spent.clear()
        out = sampler.step(problem, setup, sampler.init(problem, setup, start), i).x
        weight = base
        for part in spent:
            weight = weight * part
        if len(spent) < stages:  # a leaf that moved in its first stage only: the other branches are copies
            weight = weight / 2 ** (stages - len(spent))
        x, c = out["x"].flatten().numpy().clip(-REACH, REACH) / REACH, out["c"].flatten()
        value = np.empty((len(tests), len(x)))
        for j in range(len(tests)):
            both = [np.polynomial.chebyshev.chebval(x, np.polynomial.chebyshev.chebfit(points / REACH, u[j, k], DEGREE - 1))
                    for k in (0, 1)]  # fmt: skip
            value[j] = np.where(c.numpy() == 0, both[0], both[1])
        u = (value * weight.numpy()).reshape(len(tests), DEGREE, 2, -1).sum(-1).transpose(0, 2, 1)
    line = torch.linspace(-REACH, REACH, 4001, dtype=torch.float64)

    def integral(t, functions):
        total = np.zeros(len(tests))
        for c in (0, 1):
            state = {"x": line.unsqueeze(1), "c": torch.full((len(line), 1), c)}
            density = oracle.log_marginal(state, t).exp().numpy() * float(line[1] - line[0])
            total += np.array([(density * functions(j, c)).sum() for j in range(len(tests))])
        return total

    fits = [
        [np.polynomial.chebyshev.chebfit(points / REACH, u[j, c], DEGREE - 1) for c in (0, 1)] for j in range(len(tests))
    ]
    found = integral(LATE, lambda j, c: np.polynomial.chebyshev.chebval(line.numpy() / REACH, fits[j][c]))
    exact = integral(EARLY, lambda j, c: tests[j](line.numpy(), c))
    return float(np.abs(found - exact).max())


def order(sampler, monkeypatch, counts=(4, 8), spread: float = 0.8) -> float:
    errors = [expectation_error(sampler, mixed(spread), n, monkeypatch) for n in counts]
    return log2(errors[0] / errors[1])


JOINT = {
    "generic": (FromGenerator(), (8, 16)),
    "ancestral": (Leaves(Ancestral()), (8, 16)),
    "ddim and euler": (Leaves(x=DDIM(), c=Euler()), (8, 16)),
    "euler-maruyama and tau": (Leaves(x=EulerMaruyama(), c=TauLeaping()), (8, 16)),
    "generic trapezoidal": (FromGenerator(theta=0.5), (3, 6)),
    "trapezoidal by leaves": (Leaves(x=FromGenerator(theta=0.4), c=ThetaTrapezoidal(0.4)), (3, 6)),
    "heun and euler": (Leaves(x=Heun(), c=Euler()), (6, 12)),
}


@pytest.mark.conformance
@pytest.mark.parametrize("name", JOINT)
def test_order_of_the_joint_law(name, monkeypatch):
    sampler, counts = JOINT[name]
    assert sampler.order == (2 if "trapezoidal" in name else 1)
    assert order(sampler, monkeypatch, counts) == pytest.approx(sampler.order, abs=0.25)


@pytest.mark.conformance
def test_leaves_that_do_not_see_each_other_lose_the_order(monkeypatch):
    """The second leap extrapolates without the other leaf's: only the first stage's prediction is used."""
    sampler = FromGenerator(theta=0.5)
    monkeypatch.setattr(sampler, "_extrapolated", lambda problem, now, before: before)
    assert order(sampler, monkeypatch, (3, 6)) < 1.5


# --- leaves of numbers: linear in everything


class Units(NoiseSource):
    """Noise with a single entry 1: step i of leaf `name` for row r."""

    def __init__(self, steps: int, names: tuple[str, ...], labels: tuple = ()):
        self.steps, self.names, self.labels = steps, names, labels
        self.rows = torch.arange(1 + len(names) + steps * len(names))

    def at(self, *labels):
        return Units(self.steps, self.names, self.labels + labels)

    def normal(self, shape, dtype=torch.float64):
        i = next(label for label in self.labels if isinstance(label, int))
        out = torch.zeros(len(self.rows), dtype=torch.float64)
        out[1 + len(self.names) + i * len(self.names) + self.names.index(self.labels[-1])] = 1.0
        return out.reshape(-1, *shape)


MEAN, COVARIANCE = torch.tensor([0.7, -0.3]).double(), torch.tensor([[0.5, 0.2], [0.2, 0.3]]).double()


def pair():
    """Two leaves of numbers whose joint law is normal."""
    process = un.Product(a=un.Gaussian((1,), un.schedules.Cosine()), b=un.Gaussian((1,), un.schedules.Cosine()))

    class Joint(un.denoiser.AnyDenoiser):
        def __init__(self):
            super().__init__()
            self.process = process

        def forward(self, x, t, **condition):
            one = un.Gaussian((2,), un.schedules.Cosine())
            value = un.oracles.normal(one, MEAN, COVARIANCE)(torch.cat([x["a"], x["b"]], 1), t).to(un.Clean).value
            leaves = {name: un.Clean(value[:, k : k + 1], process.leaves[name], x[name], t) for k, name in enumerate("ab")}
            return un.predictions.ProductPrediction(leaves, process, x, t)

    return Joint()


def moments_after(sampler, steps: int, start: float = 0.9, end: float = 0.1) -> tuple[torch.Tensor, torch.Tensor]:
    denoiser, names = pair(), ("a", "b")
    noise = Units(steps, names)
    problem = Problem(denoiser, torch.linspace(start, end, steps + 1, dtype=torch.float64), noise, {})
    x = torch.zeros(len(noise.rows), 2, dtype=torch.float64)
    x[1, 0] = x[2, 1] = 1.0
    out = sampler.run(problem, {"a": x[:, :1], "b": x[:, 1:]}, lambda i, x: None)
    y = torch.cat([out["a"], out["b"]], 1)
    shift, rest = y[0], (y[1:] - y[0]).T
    mean, covariance = noised(start)
    spread = rest[:, :2] @ covariance @ rest[:, :2].T + rest[:, 2:] @ rest[:, 2:].T
    return rest[:, :2] @ mean + shift, spread


def noised(t: float):
    schedule = un.schedules.Cosine()
    return schedule.alpha(t) * MEAN, schedule.alpha(t) ** 2 * COVARIANCE + schedule.sigma(t) ** 2 * torch.eye(2)


LINEAR = {
    "two flows of order 2": Leaves(a=DPMSolverPP(2), b=UniPC(2)),
    "a flow and a diffusion of order 2": Leaves(a=DPMSolverPP(2), b=DPMSolverPP(2, sde=True)),
    "order 3 beside order 2": Leaves(a=DPMSolverPP(3), b=DPMSolverPP(2)),
    "order 3 beside noise": Leaves(a=DPMSolverPP(3), b=DPMSolverPP(2, sde=True)),
    "two flows of order 3": Leaves(a=DPMSolverPP(3), b=DPMSolverPP(3)),
    "heun beside ddim": Leaves(a=Heun(), b=DDIM()),
    "two of heun": Leaves(Heun()),
    "ancestral": Leaves(Ancestral()),
}


@pytest.mark.conformance
@pytest.mark.parametrize("name", LINEAR)
def test_order_of_leaves_of_numbers(name):
    sampler = LINEAR[name]
    errors = []
    for steps in (64, 128):
        found, exact = moments_after(sampler, steps), noised(0.1)
        errors.append(max(float((f - e).abs().max()) for f, e in zip(found, exact, strict=True)))
    assert log2(errors[0] / errors[1]) == pytest.approx(sampler.order, abs=0.25)


def test_stated_orders():
    stated = {name: sampler.order for name, sampler in LINEAR.items()}
    assert list(stated.values()) == [2, 2, 2, 2, 3, 1, 2, 1]


def test_leaves_step_as_one_state_would():
    """The same method on two leaves is the method on the pair."""
    one = un.oracles.normal(un.Gaussian((2,), un.schedules.Cosine()), MEAN, COVARIANCE)
    x = NoiseSource(3, 6).normal((2,))
    whole, _ = sample(one, x=x, steps=10, sampler=DPMSolverPP(2), seed=0)
    parts, info = sample(pair(), x={"a": x[:, :1], "b": x[:, 1:]}, steps=10, sampler=Leaves(DPMSolverPP(2)), seed=0)
    torch.testing.assert_close(torch.cat([parts["a"], parts["b"]], 1), whole, rtol=0, atol=1e-13)
    assert info.calls == 10


# --- frozen leaves, refusals, counts


def test_a_frozen_leaf_conditions_the_others():
    """Drawn given the category, the number has the component's mean and variance."""
    oracle = mixed(3.0)
    n = 4000
    for c, mean, variance in ((0, -1.5, 0.6), (1, 1.5, 0.8)):
        start = {"x": NoiseSource(5, n).normal((1,)), "c": torch.full((n, 1), c)}
        oracle_1 = un.oracles.conditional_gaussian(
            un.Product(x=un.Gaussian((1,), un.schedules.Cosine()), c=oracle.process.leaves["c"]),
            torch.tensor([0.45, 0.55]),
            torch.tensor([[-1.5], [1.5]], dtype=torch.float64),
            torch.tensor([[[0.6]], [[0.8]]], dtype=torch.float64),
        )
        x, _ = sample(oracle_1, x=start, steps=60, sampler=Leaves(x=DPMSolverPP(2), c=Frozen()), seed=0)
        assert bool((x["c"] == c).all())
        assert abs(float(x["x"].mean()) - mean) < 5 * (variance / n) ** 0.5
        assert abs(float(x["x"].var()) - variance) < 5 * variance * (2 / n) ** 0.5 + 0.01


def test_sample_i_is_the_same_in_any_batch():
    sampler = Leaves(x=EulerMaruyama(), c=Euler())
    whole, _ = sample(mixed(), 9, 7, sampler, seed=4, start=0.9)
    part, _ = sample(mixed(), 3, 7, sampler, seed=4, start=0.9, first=5)
    assert all(torch.equal(whole[name][5:8], part[name]) for name in ("x", "c"))


@pytest.mark.parametrize(
    "sampler, words",
    [
        (lambda: Leaves(x=DDIM()), "no method for ['c']"),
        (lambda: Leaves(DDIM()), "leaf 'c': DDIM moves numbers"),
        (lambda: Leaves(Ancestral(), z=DDIM()), "names ['z']"),
        (lambda: Leaves(x=DDIM(), c=Reveal()), "leaf 'c': Reveal does not go by the common steps"),
        (lambda: Leaves(x=DDIM(), c=FirstHitting()), "hold the leaf with Frozen()"),
        (lambda: Leaves(x=Heun(), c=ThetaTrapezoidal()), "asks the network at"),
        (lambda: Leaves(x=DDIM(), c=ThetaTrapezoidal()), "share its calls"),
        (lambda: Leaves(x=3, c=Euler()), "pass a sampler"),
    ],
)
def test_what_does_not_go_together_is_refused(sampler, words):
    with pytest.raises((TypeError, ValueError)) as error:
        sample(mixed(), 2, 4, sampler(), start=0.9, seed=0)
    assert words in str(error.value)


def test_leaves_is_for_products():
    oracle = un.oracles.normal(un.Gaussian((2,)), MEAN, COVARIANCE)
    with pytest.raises(TypeError, match="the leaves of a product"):
        sample(oracle, 2, 4, Leaves(DDIM()), seed=0)


def test_an_infinite_generator_is_refused():
    with pytest.raises(ValueError, match="infinite"):
        oracle = un.oracles.normal(un.Gaussian((2,), un.schedules.Cosine()), MEAN, COVARIANCE)
        sample(oracle, 2, 4, FromGenerator(), seed=0, start=1.0)


def test_the_generic_step_is_the_methods_known_by_name():
    """On numbers Euler-Maruyama, on categories Euler, with the same draws."""
    gaussian = un.oracles.normal(un.Gaussian((2,), STEADY), MEAN, COVARIANCE)
    ours, _ = sample(gaussian, 50, 8, FromGenerator(), start=0.9, end=0.1, seed=0)
    named, _ = sample(gaussian, 50, 8, EulerMaruyama(), start=0.9, end=0.1, seed=0)
    torch.testing.assert_close(ours, named, rtol=0, atol=1e-12)
    table = un.oracles.table(un.Uniform(3, (2,), STEADY), torch.arange(1.0, 10.0) / 45)
    ours, _ = sample(table, 50, 8, FromGenerator(), start=0.9, end=0.1, seed=0)
    named, _ = sample(table, 50, 8, Euler(), start=0.9, end=0.1, seed=0)
    assert torch.equal(ours, named)
    ours, _ = sample(table, 50, 8, FromGenerator(theta=0.3), start=0.9, end=0.1, seed=0)
    named, _ = sample(table, 50, 8, ThetaTrapezoidal(0.3), start=0.9, end=0.1, seed=0)
    assert torch.equal(ours, named)
