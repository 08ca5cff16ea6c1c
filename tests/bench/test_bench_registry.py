"""Rows by name, those of users among them."""

import pytest
import torch

from unnoise.bench import ROWS, BenchSetting, Figure, Timing, chosen, register
from unnoise.bench.registry import FIRST
from unnoise.bench.setting import SIZES

TINY = BenchSetting.of("cpu", "tiny")


@pytest.fixture
def rows(monkeypatch):
    """The registry as it is, put back afterwards."""
    monkeypatch.setattr("unnoise.bench.registry.ROWS", kept := dict(ROWS))
    return kept


def test_a_row_of_ones_own_comes_last(rows):
    @register("mine", "of my own")
    def mine(setting):
        return [Figure(what=setting.size, ours=Timing(1.0))]

    assert [row.name for row in chosen()] == [*FIRST, "mine"]
    assert [row.name for row in chosen(["mine", "masking"])] == ["masking", "mine"]
    assert chosen(["mine"])[0].figures(TINY) == [Figure(row="mine", what="tiny", ours=Timing(1.0))]


def test_every_row_of_the_library_has_its_place():
    assert set(FIRST) == set(ROWS)


def test_an_unknown_row_is_named_with_those_there_are():
    with pytest.raises(ValueError, match="--only speed: there is no such row: choose from .*masking"):
        chosen(["masking", "speed"])


def test_a_name_belongs_to_one_row(rows):
    with pytest.raises(ValueError, match="there is a row 'masking' already, of unnoise.bench.masking"):
        register("masking", "another")(lambda setting: [])


def test_a_row_that_fails_keeps_what_it_had_and_says_why(rows):
    @register("broken", "breaks")
    def broken(setting):
        yield Figure(what="first", ours=Timing(1.0))
        raise RuntimeError("no\n  room")

    first, second = chosen(["broken"])[0].figures(TINY)
    assert (first.row, first.what, first.error) == ("broken", "first", None)
    assert (second.row, second.what, second.error) == ("broken", "breaks", "RuntimeError: no room")


def test_settings():
    assert BenchSetting.of("cpu") == BenchSetting(torch.device("cpu"), "small")
    assert TINY.pick({"tiny": 1, "small": 2}) == 1
    assert TINY.aim(ratio=1.0) is None and BenchSetting.of("cpu", "large").aim(ratio=1.5).ratio == 1.5
    for bad in ({"device": "tpu"}, {"size": "huge"}):
        with pytest.raises(ValueError, match="choose"):
            BenchSetting.of(**bad)
    assert SIZES == ("tiny", "small", "large")
