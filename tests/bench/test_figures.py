"""Ratios, aims and their words."""

import pytest

from unnoise.bench import Aim, Figure, Timing
from unnoise.bench.figures import GIB


def figure(**changes):
    given = {"what": "w", "ours": Timing(3.0, 0.1, GIB), "floor": Timing(2.0), "floor_is": "f", **changes}
    return Figure(**given)


def test_ratio_and_gain():
    found = figure(peers={"a": Timing(12.0), "b": Timing(6.0)})
    assert found.ratio == 1.5 and found.gain == 2.0  # the fastest peer counts
    assert figure(floor=None).ratio is None and figure().gain is None and figure(ours=None).ratio is None


@pytest.mark.parametrize(
    ("aim", "reached"),
    [
        (None, None),
        (Aim(), None),
        (Aim(ratio=1.5), True),
        (Aim(ratio=1.49), False),
        (Aim(seconds=3.0), True),
        (Aim(seconds=2.9), False),
        (Aim(memory=1.0), True),
        (Aim(memory=0.99), False),
        (Aim(peers=2.0), True),
        (Aim(peers=2.1), False),
        (Aim(ratio=2.0, memory=0.5), False),
        (Aim(ratio=2.0, memory=2.0, peers=1.0), True),
    ],
)
def test_all_that_is_aimed_at_must_be_reached(aim, reached):
    assert figure(peers={"a": Timing(6.0)}, aim=aim).reached is reached


def test_what_was_not_measured_is_not_held_against_it():
    assert figure(ours=Timing(3.0), aim=Aim(memory=0.1)).reached is None
    assert figure(aim=Aim(peers=5.0)).reached is None
    assert figure(ours=None, aim=Aim(ratio=1.0)).reached is None


def test_an_aim_in_words():
    assert Aim(ratio=1.15, memory=0.5).words() == "≤ 1.15 ×, ≤ 0.5 GiB"
    assert Aim(seconds=10.0, peers=5.0).words() == "≤ 10 s, ≥ 5 × faster than peers"


def test_as_plain_data():
    told = figure(peers={"a": Timing(6.0)}, aim=Aim(ratio=2.0), parts={"import": 1.0}).named("masking").json()
    assert told == {
        "row": "masking",
        "what": "w",
        "floor": {"seconds": 2.0, "spread": 0.0, "memory": None},
        "floor_is": "f",
        "ours": {"seconds": 3.0, "spread": 0.1, "memory": GIB},
        "ratio": 1.5,
        "peers": {"a": {"seconds": 6.0, "spread": 0.0, "memory": None}},
        "parts": {"import": 1.0},
        "aim": "≤ 2 ×",
        "reached": True,
        "error": None,
    }
