"""Pairs of one noise: their joint laws, by formula and beside those of the processes' own paths."""

from math import sqrt

import pytest
import torch

import unnoise as un
from unnoise.hybrids import ArgmaxLaw, ArgmaxSchedule, common_noise
from unnoise.noise import NoiseSource

ROWS, S, T = 60_000, 0.35, 0.6


def gap(counts: torch.Tensor, law: torch.Tensor) -> float:
    """The largest deviation of a table of frequencies, in standard deviations; infinite where what cannot be is."""
    n = counts.sum()
    impossible = law < 1e-15
    if bool((counts[impossible] > 0).any()):
        return float("inf")
    law = law.clamp_min(1e-15)
    return float(((counts / n - law).abs() / (law * (1 - law) / n).sqrt())[~impossible].max())


def table(early: torch.Tensor, late: torch.Tensor, states: int) -> torch.Tensor:
    return (early * states + late).flatten().bincount(minlength=states**2).double().reshape(states, states)


def joint_of_one_noise(size: int, p_s: float, p_t: float, x: int = 0) -> torch.Tensor:
    """P(z_s, z_t | x): x at s wherever at t; wrong in the same way where at both."""
    law = torch.diag(torch.full((size,), (1 - p_s) / (size - 1), dtype=torch.float64))
    law[x] = (p_s - p_t) / (size - 1)
    law[x, x] = p_t
    return law


def path_of(process, x: torch.Tensor, s: float, t: float) -> torch.Tensor:
    """The same of the process's own Markov path."""
    q_s = process.marginal(x[:1], s).probs[0]
    states = torch.arange(process.state_space.size)
    return q_s.unsqueeze(1) * process.transition(states, s, t).probs


@pytest.mark.parametrize("schedule", [un.schedules.Linear(), ArgmaxSchedule(4)], ids=["linear", "argmax"])
def test_uniform_pairs(schedule):
    """60,000 draws: 4.5 standard deviations of any of 16 frequencies, a false alarm in 9,000; the path is 20 away."""
    process, x = un.Uniform(4, (), schedule), torch.zeros(ROWS, dtype=torch.int64)
    early, late = common_noise(process, x, (S, T), NoiseSource(0, ROWS))
    p_s, p_t = (float(process.marginal(x[:1], v).probs[0, 0]) for v in (S, T))
    law, counts = joint_of_one_noise(4, p_s, p_t), table(early, late, 4)
    for axis, time in ((1, S), (0, T)):  # one time: that of the process, exactly
        torch.testing.assert_close(law.sum(axis), process.marginal(x[:1], time).probs[0], rtol=0, atol=1e-12)
    assert gap(counts, law) < 4.5
    path = path_of(process, x, S, T)
    torch.testing.assert_close(path.sum(0), law.sum(0), rtol=0, atol=1e-12)
    assert float((path - law).abs().sum()) > 0.1 and gap(counts, path) > 20


def test_uniform_pairs_are_those_of_the_entries_themselves():
    """Beside argmax(mu e_x + eps) with all entries drawn."""
    size, process, x = 5, un.Uniform(5), torch.full((ROWS,), 3)
    eps = NoiseSource(4, ROWS).normal((size,))
    alpha = process.schedule.alpha(torch.tensor([S, T], dtype=torch.float64))
    means = ArgmaxLaw(size).mean_of_log_odds(alpha.log() - torch.log1p(-alpha)).tolist()
    first = [(eps + mean * torch.nn.functional.one_hot(x, size)).argmax(1) for mean in means]
    p_s, p_t = (float(ArgmaxLaw(size).first(mean)) for mean in means)
    law = joint_of_one_noise(size, p_s, p_t, 3)
    assert gap(table(*first, size), law) < 4.5
    assert gap(table(*common_noise(process, x, (S, T), NoiseSource(5, ROWS)), size), law) < 4.5


def test_noise_of_two_kinds_is_caught():
    process, x = un.Uniform(4), torch.zeros(ROWS, dtype=torch.int64)
    early, _ = common_noise(process, x, (S, T), NoiseSource(0, ROWS))
    _, late = common_noise(process, x, (S, T), NoiseSource(1, ROWS))
    p_s, p_t = (float(process.marginal(x[:1], v).probs[0, 0]) for v in (S, T))
    assert gap(table(early, late, 4), joint_of_one_noise(4, p_s, p_t)) > 20


def test_masked_pairs_are_those_of_masking_itself():
    """By the entries where mu >= 0, and by the library's at every alpha: one and the same joint law as the path's."""
    size, process, x = 4, un.Masking(4), torch.full((ROWS,), 1)
    times = (0.3, 0.7)  # alpha from 1/K on is what a mean from 0 on can say
    path = path_of(process, x, *times)
    assert gap(table(*common_noise(process, x, times, NoiseSource(0, ROWS)), 5), path) < 4.5
    law, eps, states = ArgmaxLaw(size), NoiseSource(2, ROWS).normal((size,)), []
    for t in times:
        kept = ((1 - t) * size - 1) / (size - 1)  # T of P = alpha
        mean = law.mean_of_log_odds(torch.tensor(kept / (1 - kept), dtype=torch.float64).log())
        w = eps + mean * torch.nn.functional.one_hot(x, size)
        others = w.scatter(1, x.unsqueeze(1), -torch.inf).amax(1)
        states.append(torch.where(w[:, 1] > others, x, process.mask))
    assert gap(table(*states, 5), path) < 4.5
    late = common_noise(process, x, (0.9, 0.99), NoiseSource(0, ROWS))  # alpha below 1/K
    assert gap(table(*late, 5), path_of(process, x, 0.9, 0.99)) < 4.5


def test_times_of_rows_shapes_and_ends():
    process, x = un.Uniform(3, (2, 2)), torch.arange(24).reshape(6, 2, 2) % 3
    t = torch.linspace(0, 1, 6, dtype=torch.float64)
    noise = NoiseSource(0, 6)
    start, own, end = common_noise(process, x, (0.0, t, 1.0), noise)
    assert torch.equal(start, x) and torch.equal(own[0], x[0]) and torch.equal(own[-1], end[-1])
    some = torch.tensor([1, 4])
    again = common_noise(process, x[some], (t[some],), noise.of(some))[0]
    assert torch.equal(again, own[some])
    masked = common_noise(un.Masking(3, (2, 2)), x, (0.0, 1.0), noise)
    assert torch.equal(masked[0], x) and bool((masked[1] == 3).all())


def test_at_the_size_of_a_vocabulary():
    process, x = un.Uniform(50257), torch.full((20_000,), 7)
    early, late = common_noise(process, x, (S, T), NoiseSource(0, 20_000))
    kept = float((late == x).double().mean())
    assert abs(kept - (1 - T)) < 4.5 * sqrt(T * (1 - T) / 20_000)
    assert bool(((late == x) <= (early == x)).all()) and bool((early == late)[early != x].all())


def test_refusals():
    x = torch.zeros(2, dtype=torch.int64)
    with pytest.raises(TypeError, match="Interpolation has no pairs of one noise"):
        process = un.Interpolation(3, (), torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64))
        common_noise(process, x, (S, T), NoiseSource(0, 2))
    with pytest.raises(ValueError, match="one number of categories and one schedule"):
        common_noise(un.Uniform([2, 3]), torch.zeros(2, 2, dtype=torch.int64), (S, T), NoiseSource(0, 2))
