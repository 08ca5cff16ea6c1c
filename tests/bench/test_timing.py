"""The arithmetic of times, on a clock of our own."""

import pytest
import torch

from unnoise.bench import timing
from unnoise.bench.timing import Timing, recorded, taken

CPU = torch.device("cpu")


@pytest.fixture
def clockwork(monkeypatch):
    """A clock that moves by what calls add to it, and the calls that were made."""
    now, made = [0.0], []
    monkeypatch.setattr(timing, "perf_counter", lambda: now[0])

    def call(name, *seconds):
        each = list(seconds)

        def run():
            made.append(name)
            now[0] += each.pop(0) if len(each) > 1 else each[0]

        return run

    return call, made


def test_median_and_half_the_distance_of_the_quartiles():
    assert Timing.of([4.0, 1.0, 2.0, 3.0, 10.0]) == Timing(3.0, 1.0, None, 1.0)  # quartiles 2 and 4
    assert Timing.of([7.0], 5) == Timing(7.0, 0.0, 5, 7.0)
    assert Timing(6.0, 3.0, 5, 4.5).over(3) == Timing(2.0, 1.0, 5, 1.5)


def test_calls_take_turns_after_two_that_are_not_counted(clockwork):
    call, made = clockwork
    found = taken({"a": call("a", 9.0, 8.0, 1.0, 2.0, 6.0), "b": call("b", 1.0)}, CPU, rounds=3, seconds=100.0)
    assert made == ["a", "a", "b", "b", *"ababab"]
    assert found == {"a": Timing(2.0, 1.25, None, 1.0), "b": Timing(1.0, 0.0, None, 1.0)}  # of 1, 2, 6: quartiles 1.5 and 4


def test_rounds_end_when_the_time_is_spent(clockwork):
    call, made = clockwork
    found = taken({"a": call("a", 50.0, 4.0, 3.0)}, CPU, rounds=9, seconds=9.0)
    assert len(made) == 4 and found["a"] == Timing(3.0, 0.0, None, 3.0)  # 4, 7, 10 seconds are spent, without the first call


def test_a_call_that_is_too_long_for_another_round_is_timed_once(clockwork):
    call, made = clockwork
    found = taken({"a": call("a", 20.0, 12.0, 1.0)}, CPU, seconds=10.0)
    assert len(made) == 2 and found["a"] == Timing(12.0, 0.0, None, 12.0)


def test_short_calls_are_made_several_times_between_two_readings(clockwork):
    call, made = clockwork
    found = taken({"a": call("a", 1e-3)}, CPU, rounds=2)
    assert len(made) == 2 + 2 * 5 and found["a"].seconds == pytest.approx(1e-3)


def test_memory_is_told_on_cuda_alone(clockwork):
    call, _ = clockwork
    assert taken({"a": call("a", 1.0)}, CPU, rounds=1)["a"].memory is None


def test_without_cuda_a_recorded_call_is_the_call():
    def call():
        return 1

    assert recorded(call, CPU) is call
