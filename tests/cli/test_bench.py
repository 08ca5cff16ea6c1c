"""`unnoise bench`: rows, files, JSON, and what it answers to bad input."""

import json

import pytest

from unnoise.bench import ROWS
from unnoise.bench.report import HEAD
from unnoise.cli import main

QUICK = """
from unnoise.bench import Figure, Timing, register


@register("quick", "a row of one's own")
def quick(setting):
    return [Figure(what=f"of size {setting.size}", ours=Timing(3.0), floor=Timing(2.0), floor_is="nothing")]


@register("broken", "a row that breaks")
def broken(setting):
    raise RuntimeError("no room")
"""


def status(*words: str) -> int:
    with pytest.raises(SystemExit) as stop:
        main(["bench", *words])
    return stop.value.code


@pytest.fixture
def own(tmp_path, monkeypatch):
    """Rows of one's own in a module of this folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("unnoise.bench.registry.ROWS", dict(ROWS))
    (tmp_path / "own_rows.py").write_text(QUICK)
    monkeypatch.delitem(__import__("sys").modules, "own_rows", raising=False)
    return "--load", "own_rows", "--device", "cpu", "--size", "tiny"


def test_a_row_of_ones_own_is_printed_and_written(own, tmp_path, capsys):
    assert status(*own, "--only", "quick", "--out", "table.md") == 0
    printed, written = capsys.readouterr().out, (tmp_path / "table.md").read_text()
    assert printed.split("\n")[0].split() == HEAD
    assert "of size tiny" in printed and "1.50" in printed and "size tiny; python" in printed
    assert written.startswith("`unnoise bench --only quick --size tiny --device cpu`: ")
    assert "| quick | of size tiny | 2 s, nothing | 3 s | 1.50 | - | - | - |" in written


def test_a_row_that_fails_gives_one_and_the_others_are_shown(own, capsys):
    assert status(*own, "--only", "broken,quick") == 1
    printed = capsys.readouterr().out
    assert "broken failed: RuntimeError: no room" in printed and "of size tiny" in printed


def test_json(own, capsys):
    assert status(*own, "--only", "broken,quick", "--json") == 1
    told = json.loads(capsys.readouterr().out)
    assert told["size"] == "tiny" and told["command"] == "unnoise bench --only broken,quick --size tiny --device cpu"
    by_name = {row["row"]: row for row in told["rows"]}
    assert by_name["quick"]["ratio"] == 1.5 and by_name["broken"]["error"] == "RuntimeError: no room"


def test_a_row_of_the_library(capsys):
    assert status("--only", "numbers", "--device", "cpu", "--size", "tiny", "--json") == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["ratio"] == pytest.approx(row["ours"]["seconds"] / row["floor"]["seconds"])


def test_growth_is_drawn_and_told(tmp_path, capsys):
    picture = tmp_path / "grown.png"
    assert status("--scaling", str(picture), "--device", "cpu", "--size", "tiny", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert picture.stat().st_size > 1000
    assert {sweep["against"] for sweep in told["sweeps"]} == {"batch", "length", "vocabulary rows touched"}
    assert all({"exponent", "r2", "offset", "slope"} <= set(sweep) for sweep in told["sweeps"])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--only", "speed"], "--only speed: there is no such row: choose from"),
        (["--out", "nowhere/table.md"], "there is no folder nowhere"),
        (["--scaling", "nowhere/grown.png"], "there is no folder nowhere"),
        (["--scaling", "grown.png", "--only", "numbers"], "give one of the two"),
        (["--size", "huge"], "huge"),
        (["--load", "no_such_module"], "no_such_module"),
    ],
)
def test_bad_input_gives_two(words, said, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert status(*words) == 2
    assert said in capsys.readouterr().err
