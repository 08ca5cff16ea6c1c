"""Rejection: the law of what is let through, the same samples whatever the batch, and the estimate of a probability."""

import math

import pytest
import torch

from unnoise.guidance import rejection
from unnoise.guidance.rejection import RejectionRecord, Way, attempts_for
from unnoise.noise import NoiseSource
from unnoise.samplers import Info

LAW = torch.tensor([0.5, 0.3, 0.15, 0.04, 0.01]).double()
ALLOWED = torch.tensor([False, True, False, True, True])


def attempt(seed=0, sees=None):
    """Attempts by a law over five values, of which three are allowed."""

    def tried(first, count):
        u = NoiseSource(seed, torch.arange(first, first + count)).uniform()
        x = torch.searchsorted(LAW.cumsum(0), u).clamp_max(4)
        if sees is not None:
            sees.append((first, count))
        return x, ALLOWED[x], Info(calls=1, rows=count)

    return tried


def until(tried, n, attempts):
    """By one way."""
    return rejection.until([Way(tried)], n, attempts)


def distance(x):
    """Pearson's, of counts from the law given the rule; 2 degrees of freedom."""
    wanted = (LAW * ALLOWED)[ALLOWED] / LAW[ALLOWED].sum() * len(x)
    return float(((torch.bincount(x, minlength=5)[ALLOWED] - wanted).square() / wanted).sum())


def test_the_law_is_that_given_the_rule():
    """False alarm: exp(-20.7/2) = 3e-5.  A mutant that fills up with what the rule refuses, or prefers one value, fails."""
    x, info = until(attempt(), 20_000, 10**6)
    assert len(x) == 20_000 and bool(ALLOWED[x].all()) and distance(x) < 20.7
    share, error = info.rejection.estimate()
    assert abs(share - math.log(0.35)) < 4.5 * error < 0.05

    def eager(first, count):  # a mutant: refuses half of what is allowed, by its value
        x, holds, info = attempt()(first, count)
        return x, holds & ((x != 1) | (torch.arange(count) % 2 == 0)), info

    assert distance(until(eager, 20_000, 10**6)[0]) > 200


def test_sample_i_is_a_function_of_the_seed_and_i(monkeypatch):
    whole, info = until(attempt(), 3000, 10**6)
    assert torch.equal(until(attempt(), 700, 10**6)[0], whole[:700])
    monkeypatch.setattr(rejection, "PILOT", 7)
    monkeypatch.setattr(rejection, "MOST", 50)
    again, other = until(attempt(), 3000, 10**6)
    assert torch.equal(again, whole) and other.calls > info.calls
    assert not torch.equal(until(attempt(1), 700, 10**6)[0], whole[:700])


def test_attempts_follow_one_another_and_end(monkeypatch):
    seen = []
    x, info = until(attempt(sees=seen), 10**6, 5000)
    assert [first for first, _ in seen] == [sum(count for _, count in seen[:i]) for i in range(len(seen))]
    assert sum(count for _, count in seen) == info.rejection.drawn == info.rows == 5000
    assert len(x) == info.rejection.passed < 10**6
    never = until(lambda first, count: (torch.zeros(count), torch.zeros(count, dtype=torch.bool), Info()), 3, 1000)
    assert len(never[0]) == 0 and never[1].rejection == RejectionRecord(1000, 0)
    assert never[1].rejection.estimate()[0] == -math.inf
    assert attempts_for(5) == 10_000 and attempts_for(1000) == 100_000


@pytest.mark.parametrize(("drawn", "passed"), [(1000, 100), (10, 10)])
def test_the_error_is_the_binomial_one(drawn, passed):
    share = passed / drawn
    log_share, error = RejectionRecord(drawn, passed).estimate()
    assert log_share == pytest.approx(math.log(share))
    assert error == pytest.approx(math.sqrt(share * (1 - share) / drawn) / share)


def test_a_way_that_disappoints_is_left_for_the_next():
    """Attempts go on being numbered; neither what passed before nor how many are wanted has a part in what is found."""

    def way(allowed, least, seen, **more):
        def tried(first, count):
            seen.append((first, count))
            x, _, info = attempt()(first, count)
            return x, allowed[x], info

        return Way(tried, least, **more)

    def run(n):
        first, second = [], []
        rare = torch.tensor([False, False, False, False, True])
        took = Info(calls=5, rows=50)
        ways = [way(rare, 0.05, first), way(ALLOWED, 0.0, second, name="other", log_first=-2.0, error=0.1, info=took)]
        x, info = rejection.until(iter(ways), n, 10**6)
        assert first == [(0, 256)] and second[0] == (256, 256)
        return x, info

    x, info = run(2000)
    assert distance(x) < 20.7 and torch.equal(run(10)[0], x[:10])
    record = info.rejection
    assert record.way == "other" and record.before == 256 and record.passed >= 2000 and info.rows == 256 + 50 + record.drawn
    share, error = record.estimate()
    assert abs(share - (math.log(0.35) - 2)) < 4.5 * error and error > 0.1
    kept, _ = rejection.until([way(ALLOWED, 0.05, []), way(ALLOWED, 0.0, [])], 300, 10**6)
    assert torch.equal(kept, until(attempt(), 300, 10**6)[0])
