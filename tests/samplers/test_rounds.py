"""Ancestral steps taken several times over: laws that stay, laws that are mended, and how many calls it takes."""

import pytest
import torch

import unnoise as un
from unnoise.samplers import Ancestral, Leaves, sample
from unnoise.verify.sampler_laws import finite_law, moments

F64 = torch.float64
STEADY = un.schedules.LinearBeta(2.0, 2.0)
LAW = torch.tensor([0.6, 0.1, 0.3], dtype=F64)
TIMES = torch.linspace(0.9, 0.1, 5, dtype=F64)
PROCESSES = {
    "rates": un.RateMatrix(un.rate_matrices.nearest_neighbour(3), (1,), STEADY),
    "birth-death": un.BirthDeath(2, (1,), STEADY, occupancy=0.3),
}


class Once(Ancestral):
    """Planted: the state is not noised again, and the next round takes x_s for x_t."""

    def stage(self, problem, tables, prediction, state, i, k, noise):
        return state.to(prediction.step(problem.clock[i + 1]).draw(noise))


def law_at(process, t):
    states = process.state_space.size
    x0 = torch.arange(3).unsqueeze(1)
    return LAW @ process.marginal(x0, float(t)).probs.reshape(3, states)


def error(sampler, process, start):
    """Of the law at the end, in total variation, on data of one coordinate."""
    oracle = un.oracles.table(process, LAW)
    found = finite_law(sampler, oracle, TIMES, start)
    return float((found - law_at(process, TIMES[-1])).abs().sum())


@pytest.mark.parametrize("rounds", [1, 2, 3])
@pytest.mark.parametrize("name", PROCESSES)
def test_one_coordinate_keeps_its_law_exactly(name, rounds):
    process = PROCESSES[name]
    assert error(Ancestral(rounds), process, law_at(process, TIMES[0])) < 1e-12


@pytest.mark.parametrize("name", PROCESSES)
def test_a_round_without_new_noise_is_found(name):
    process = PROCESSES[name]
    assert error(Once(2), process, law_at(process, TIMES[0])) > 1e-3


@pytest.mark.parametrize("name", PROCESSES)
def test_rounds_mend_a_law_that_went_wrong(name):
    """From a wrong law at the start what is left of the error falls with every round."""
    process = PROCESSES[name]
    wrong = torch.eye(process.state_space.size, dtype=F64)[-1]
    left = [error(Ancestral(rounds), process, wrong) for rounds in (1, 2, 3)]
    assert left[0] > 1e-3 and all(b < 0.9 * a for a, b in zip(left, left[1:], strict=False))


@pytest.mark.parametrize("process", [un.Masking(3, (1,)), un.Uniform(3, (1,))], ids=lambda p: type(p).__name__)
def test_drawn_categories_have_their_law(process):
    """At t = 1/2, by chi^2 on 3 degrees of freedom at most: a false alarm has probability 1e-6."""
    oracle, rows, law = un.oracles.table(process, LAW), 20_000, law_at(process, 0.5)

    def statistic(sampler):
        x, _ = sample(oracle, rows, 4, sampler, seed=3, end=0.5)
        counts = torch.bincount(x.flatten(), minlength=len(law)).double()
        return float(((counts - rows * law).square() / (rows * law)).sum())

    assert statistic(Ancestral(2)) < 30.7 and statistic(Ancestral(3)) < 30.7
    assert statistic(Once(2)) > 30.7


def test_numbers_too():
    """The error of order 1 is the grid's: with the step it goes to 0, in any number of rounds."""
    mean, covariance = torch.tensor([0.7], dtype=F64), torch.tensor([[0.5]], dtype=F64)
    process = un.Gaussian((1,), STEADY)
    oracle = un.oracles.normal(process, mean, covariance)
    alpha, sigma = process.schedule.alpha, process.schedule.sigma

    def gap(sampler, steps):
        times = torch.linspace(0.9, 0.1, steps + 1, dtype=F64)
        first, last = ((alpha(t) * mean, alpha(t) ** 2 * covariance + sigma(t) ** 2) for t in (0.9, 0.1))
        found = moments(sampler, oracle, times, *first)
        return float((found[0] - last[0]).abs() + (found[1] - last[1]).abs())

    assert gap(Ancestral(2), 20) < 0.6 * gap(Ancestral(2), 10) < 0.1
    assert gap(Once(2), 10) > 0.1


def test_calls_and_refusals():
    oracle = un.oracles.table(PROCESSES["rates"], LAW)
    _, info = sample(oracle, 3, 4, Ancestral(2), seed=0)
    assert info.calls == 8 == Ancestral(2).calls(4, PROCESSES["rates"])
    _, info = sample(oracle, 3, sampler=Ancestral(2), calls=9, seed=0)
    assert info.calls == 8
    with pytest.raises(ValueError, match="rounds = 0"):
        Ancestral(0)


def test_leaves_share_rounds():
    process = un.Product(x=un.Gaussian((1,), STEADY), c=un.Uniform(2, (1,), STEADY))
    means, variances = torch.tensor([[-0.2], [0.4]], dtype=F64), torch.tensor([[[0.8]], [[1.0]]], dtype=F64)
    oracle = un.oracles.conditional_gaussian(process, torch.tensor([0.45, 0.55]), means, variances)
    _, info = sample(oracle, 5, 4, Leaves(Ancestral(2)), seed=0)
    assert info.calls == 8
    with pytest.raises(ValueError, match="same stages"):
        sample(oracle, 5, 4, Leaves(x=Ancestral(2), c=Ancestral()), seed=0)
