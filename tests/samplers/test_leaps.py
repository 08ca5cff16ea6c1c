"""Leaps on finite spaces: their exact laws by matrices, on spaces small enough to write them out."""

from itertools import pairwise
from math import exp, factorial, log2

import pytest
import torch

import unnoise as un
from unnoise.generators.kolmogorov import states
from unnoise.laws import Categorical
from unnoise.noise import NoiseSource
from unnoise.samplers import Ancestral, Euler, Problem, State, TauLeaping, ThetaRK2, ThetaTrapezoidal, sample
from unnoise.samplers.leaps import displaced, leap
from unnoise.verify.finite_kernels import marginal_matrix

LATE, EARLY = 0.8, 0.3
STEADY = un.schedules.LinearBeta(2.0, 2.0)
LAW = torch.tensor([0.19, 0.05, 0.12, 0.21, 0.07, 0.04, 0.03, 0.16, 0.13], dtype=torch.float64)
MILD = torch.tensor([11, 9, 10, 12, 10, 8, 9, 11, 10], dtype=torch.float64) / 90  # no rate is halved by another coordinate

PROCESSES = {
    "masking": lambda: un.Masking(3, (2,)),
    "uniform": lambda: un.Uniform(3, (2,), STEADY),
    "rates": lambda: un.RateMatrix(un.rate_matrices.nearest_neighbour(3), (2,), STEADY),
    "uniform-one": lambda: un.Uniform(3, (), STEADY),
}


def oracle_of(name: str, law: torch.Tensor = LAW):
    process = PROCESSES[name]()
    law = law if process.space.dimension == 2 else law[:3] / law[:3].sum()
    return un.oracles.table(process, law)


def marginal(oracle, t: float) -> torch.Tensor:
    process = oracle.process
    data = process.space.states()
    return marginal_matrix(process, data, states(process.state_space), t) @ oracle.log_prob(data).exp()


def probabilities(law: Categorical, points: torch.Tensor) -> torch.Tensor:
    """[rows, points]: of every point, under the law of each row."""
    probs = law.probs.reshape(len(law.probs), -1, law.probs.shape[-1])
    flat = points.reshape(len(points), -1)
    return torch.stack([probs[:, k, flat[:, k]] for k in range(flat.shape[1])]).prod(0)


def kernels(sampler, oracle, times: torch.Tensor) -> torch.Tensor:
    """P[i, x, y] of every step, all in one call of the oracle per stage."""
    points = states(oracle.process.state_space)
    steps, n = len(times) - 1, len(points)
    x = points.repeat(steps, *[1] * (points.ndim - 1))
    t, s = times[:-1].repeat_interleave(n), times[1:].repeat_interleave(n)
    wide = [-1, *[1] * points.ndim]
    if isinstance(sampler, Ancestral):
        return probabilities(oracle(x, t).step(s), points).reshape(steps, n, n)
    problem = Problem(oracle, times, NoiseSource(0, len(x)), {})
    here, start = sampler.rates(oracle(x, t)), State(x)
    to_star = probabilities(sampler.law(problem, here, start, (t - s).reshape(wide), 0), points)
    if sampler.stages == 1:
        return to_star.reshape(steps, n, n)
    rates = sampler.rates(oracle(x, t - sampler.theta * (t - s)))
    pair = torch.arange(steps * n).reshape(steps, 1, n).expand(steps, n, n).flatten()  # x* of each (x, x*)
    first = sampler.kept(here, start, 0).rows(torch.arange(steps * n).repeat_interleave(n))
    h = (t - s).repeat_interleave(n).reshape(wide)
    last = probabilities(sampler.second(problem, rates[pair], State(x[pair], first), h), points).reshape(steps, n, n, n)
    return torch.einsum("ixz,ixzy->ixy", to_star.reshape(steps, n, n), last)


def law_after(sampler, oracle, steps: int, late: float = LATE) -> torch.Tensor:
    law = marginal(oracle, late)
    for kernel in kernels(sampler, oracle, torch.linspace(late, EARLY, steps + 1, dtype=torch.float64)):
        law = law @ kernel
    return law


def errors(sampler, oracle, counts=(16, 32, 64)) -> list[float]:
    exact = marginal(oracle, EARLY)
    return [float((law_after(sampler, oracle, steps) - exact).abs().sum()) for steps in counts]


METHODS = {
    "ancestral": (Ancestral, 1),
    "euler": (Euler, 1),
    "euler-linear": (lambda: Euler(hold=False), 1),
    "euler-minimal": (lambda: Euler(minimal=True), 1),
    "euler-gamma": (lambda: Euler(gamma=0.5), 1),
    "tau": (TauLeaping, 1),
    "rk2": (ThetaRK2, 1),
    "rk2-full": (lambda: ThetaRK2(theta=1.0), 1),
}


@pytest.mark.parametrize("process", ["masking", "uniform", "rates"])
@pytest.mark.parametrize("method", METHODS)
def test_order_in_law(method, process):
    """Total variation at the end falls as the stated power of the step; so every family member has the same target."""
    build, order = METHODS[method]
    assert build().order == order
    found = errors(build(), oracle_of(process))
    assert found[-1] < 0.05
    assert log2(found[-2] / found[-1]) == pytest.approx(order, abs=0.25)


def test_order_of_tau_leaping_on_ordered_categories():
    found = errors(TauLeaping(ordinal=True), oracle_of("rates"))
    assert log2(found[-2] / found[-1]) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("theta", [0.3, 0.5])
@pytest.mark.parametrize("process", PROCESSES)
def test_trapezoidal_order_is_two_where_nothing_is_cut(process, theta):
    """Under masking and between neighbours something is cut within a coordinate, and cancels."""
    sampler = ThetaTrapezoidal(theta)
    assert sampler.order == 2
    found = errors(sampler, oracle_of(process, MILD), (32, 64))
    assert log2(found[0] / found[1]) == pytest.approx(2, abs=0.25)


@pytest.mark.parametrize("theta", [0.3, 0.5])
@pytest.mark.parametrize("process", ["masking", "uniform", "uniform-one"])
def test_trapezoidal_order_is_one_where_rates_are_cut(process, theta):
    found = errors(ThetaTrapezoidal(theta), oracle_of(process), (64, 128))
    assert log2(found[0] / found[1]) == pytest.approx(1, abs=0.25)


def test_a_wrong_coefficient_loses_the_second_order(monkeypatch):
    def second(self, problem, rates, state, h):
        return leap(state.x, rates, (1 - self.theta) * h)

    monkeypatch.setattr(ThetaTrapezoidal, "second", second)
    found = errors(ThetaTrapezoidal(), oracle_of("rates", MILD))
    assert log2(found[-2] / found[-1]) < 1.5


def test_one_coordinate_is_exact_under_the_ancestral_kernel():
    assert max(errors(Ancestral(), oracle_of("uniform-one"), (1, 3))) < 1e-12


@pytest.mark.parametrize("process", ["masking", "uniform", "rates"])
def test_expected_jumps_are_ordered(process):
    """The flux out of a state at its marginal: minimal <= plain <= gamma, with equality only where noise never goes back."""
    oracle = oracle_of(process)
    points = states(oracle.process.state_space)
    flux = []
    for sampler in (Euler(minimal=True), Euler(), Euler(gamma=0.5)):
        rates = [sampler.rates(oracle(points, t)).reshape(len(points), -1).sum(1) for t in (0.3, 0.5, 0.8)]
        flux.append(torch.stack([(marginal(oracle, t) * r).sum() for t, r in zip((0.3, 0.5, 0.8), rates, strict=True)]))
    minimal, plain, more = flux
    assert bool((plain < more).all())
    if process == "masking":
        torch.testing.assert_close(minimal, plain)
    else:
        assert bool((minimal < plain).all())


def test_drawn_jumps_are_ordered():
    oracle = oracle_of("uniform")
    means = [
        sample(oracle, 1000, 40, sampler, start=LATE, end=EARLY, seed=0)[1].jumps.double().mean()
        for sampler in (Euler(minimal=True), Euler(), Euler(gamma=0.5))
    ]
    assert means[0] < means[1] < means[2]


@pytest.mark.parametrize("sampler", [Euler(), TauLeaping(), ThetaRK2()], ids=lambda s: type(s).__name__)
def test_jumps_are_the_changes_along_the_trajectory(sampler):
    """Also where a first leap is only a look ahead: what it reached is no jump."""
    _, info = sample(oracle_of("uniform"), 200, 10, sampler, start=LATE, end=EARLY, trajectory=True, seed=0)
    changes = sum((a != b).sum(1) for a, b in pairwise(info.trajectory))
    assert torch.equal(info.jumps, changes)
    assert int(changes.sum()) > 0


def test_jumps_of_the_trapezoidal_rule_count_both_leaps():
    x, info = sample(oracle_of("masking"), 200, 20, ThetaTrapezoidal(), end=0.0, seed=0, finish=False)
    assert torch.equal(info.jumps, (x != 3).sum(1))  # under masking a coordinate moves once
    assert info.calls == 40


def clipped(sampler, process, steps=10, law=LAW) -> float:
    return float(sample(oracle_of(process, law), 300, steps, sampler, start=LATE, end=EARLY, seed=0)[1].clipped)


def test_what_is_cut_is_counted():
    assert clipped(ThetaTrapezoidal(), "masking") > 0
    assert clipped(ThetaTrapezoidal(), "uniform") > 0
    assert clipped(ThetaTrapezoidal(), "uniform", 50, MILD) == 0
    assert clipped(Euler(), "uniform") == 0
    assert clipped(Euler(hold=False), "uniform", 100) == 0
    assert clipped(Euler(hold=False, gamma=20.0), "uniform", 1) > 0


def test_a_leap_is_a_law():
    x = torch.tensor([[0], [1], [2]])
    rates = torch.tensor([[[0.0, 0.0, 0.0]], [[2.0, 5.0, 1.0]], [[1e80, 3e80, 0.0]]], dtype=torch.float64)
    probs = leap(x, rates, torch.tensor(0.3, dtype=torch.float64)).probs.squeeze(1)
    torch.testing.assert_close(probs.sum(-1), torch.ones(3, dtype=torch.float64), rtol=0, atol=1e-14)
    stay = exp(-0.9)
    exact = torch.tensor([[1, 0, 0], [(1 - stay) * 2 / 3, stay, (1 - stay) / 3], [0.25, 0.75, 0]], dtype=torch.float64)
    torch.testing.assert_close(probs, exact, rtol=0, atol=1e-14)


@pytest.mark.parametrize("total", [0.0, 0.3, 2.0, 8.0])
def test_displaced_is_the_compound_poisson_law(total):
    """Against the sum over how many events there were, each of which adds a displacement."""
    size = 4
    x = torch.arange(size).reshape(-1, 1)
    share = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64).expand(size, 1, size).scatter(-1, x.unsqueeze(-1), 0.0)
    means = total * share / share.sum(-1, keepdim=True)
    exact = torch.zeros(size, size, dtype=torch.float64)
    for start in range(size):
        centre, span = 3 * 80, 2 * 3 * 80 + 1
        sums = torch.zeros(span, dtype=torch.float64)
        sums[centre] = 1.0
        for events in range(70):
            weight = exp(-total) * total**events / factorial(events)
            for place in sums.nonzero().flatten().tolist():
                exact[start, min(max(start + place - centre, 0), size - 1)] += weight * float(sums[place])
            after = torch.zeros_like(sums)
            for y in range(size):
                after += torch.roll(sums, y - start) * float(share[start, 0, y] / share[start].sum())
            sums = after
    torch.testing.assert_close(displaced(x, means).squeeze(1), exact, rtol=0, atol=1e-10)


def test_displaced_stays_a_law_however_long_the_step():
    x = torch.tensor([[0], [2]])
    probs = displaced(x, torch.full((2, 1, 3), 1e6, dtype=torch.float64))
    torch.testing.assert_close(probs.sum(-1), torch.ones(2, 1, dtype=torch.float64))
    assert float(probs[0, 0, 2]) > 0.99 and float(probs[1, 0, 0]) > 0.99


@pytest.mark.parametrize("kind", [un.RawPosterior, un.Ratio, un.Rates, un.Energy], ids=lambda k: k.__name__)
@pytest.mark.parametrize("process", ["masking", "uniform", "rates"])
def test_rates_do_not_depend_on_what_the_denoiser_says(process, kind):
    oracle = oracle_of(process)
    points = states(oracle.process.state_space)
    for sampler in (Euler(), Euler(minimal=True), Euler(gamma=0.5)):
        expected, found = (sampler.rates(view(points, 0.6)) for view in (oracle, oracle.predicting(kind)))
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_refusals():
    chain = un.MatrixChain(un.d3pm.uniform(3, torch.linspace(0.1, 0.9, 8).double()), (2,))
    for sampler in (Euler(), TauLeaping(), ThetaTrapezoidal(), ThetaRK2()):
        assert "leaps on categories" in sampler.refuse(un.Gaussian((2,)))
        assert "no generator" in sampler.refuse(chain.process)
        assert sampler.refuse(un.Uniform(3, (2,))) is None
    for theta in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ValueError, match="theta"):
            ThetaTrapezoidal(theta)
    for theta in (0.0, 1.5):
        with pytest.raises(ValueError, match="theta"):
            ThetaRK2(theta)
    for gamma in (-0.1, float("nan")):
        with pytest.raises(ValueError, match="gamma"):
            Euler(gamma)
    with pytest.raises(ValueError, match="leave gamma out"):
        Euler(gamma=0.5, minimal=True)


def test_infinite_rates_are_refused():
    """alpha_1 = 0: the rates of uniform noise are infinite at t = 1, those out of MASK are not."""
    uniform = un.oracles.table(un.Uniform(3, (2,)), LAW)
    with pytest.raises(ValueError, match="infinite"):
        sample(uniform, 4, 4, Euler(), seed=0, start=1.0)
    _, info = sample(uniform, 4, 4, Euler(), seed=0)  # unless told to start there, it does not
    assert 0.99 < float(info.times[0]) < 1
    x, _ = sample(oracle_of("masking"), 4, 50, Euler(), seed=0)
    assert x.shape == (4, 2)


def test_the_reversal_itself_is_the_default():
    """Neither jumps in detailed balance are added nor any taken away, unless asked for."""
    uniform = un.oracles.table(un.Uniform(3, (2,), un.schedules.LinearBeta()), LAW)
    for method in (Euler, TauLeaping, ThetaTrapezoidal, ThetaRK2):
        jumps = [sample(uniform, 400, 8, make, seed=0)[1].jumps.sum() for make in (method(), method(minimal=True))]
        assert jumps[1] < 0.7 * jumps[0]
        x = [sample(uniform, 50, 8, make, seed=0)[0] for make in (method(), method(gamma=0.0, minimal=False))]
        assert torch.equal(*x)
