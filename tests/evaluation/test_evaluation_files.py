"""Which files `evaluate` goes by: the one that was trained on, as it was, and others."""

import json

import numpy as np
import pytest

from unnoise.cli import main
from unnoise.data.read import read
from unnoise.evaluation.report import evaluate
from unnoise.training import Run, train
from unnoise.training.recipes import recipe

QUICK = {"draws": 1, "exact_rows": 0, "rows": 64}


@pytest.fixture
def table(tmp_path):
    """A run made from Python, which has not noted its file, and two files of one law."""
    rng = np.random.default_rng(0)
    for name in ("train", "other"):
        rows = [f"{a},{b:.6f}" for a, b in zip(rng.choice(list("uvw"), 300), rng.normal(size=300), strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["a,b", *rows]) + "\n")
    form, x0 = read(tmp_path / "train.csv")
    run = Run.create(tmp_path / "run", recipe(form, 300, "tiny", steps=3, batch_size=32, panels=0))
    train(run, x0)
    return tmp_path


def refused(capsys, *arguments) -> str:
    with pytest.raises(SystemExit) as left:
        main([*map(str, arguments)])
    assert left.value.code == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    return line


def test_a_run_made_from_python_is_told_its_file(table):
    run = Run.open(table / "run")
    with pytest.raises(ValueError, match="does not name the file"):
        evaluate(run, **QUICK)
    found = evaluate(run, trained_on=table / "train.csv", samples=40, **QUICK)
    assert found["on"] == "held-out rows" and found["samples"]["rows"] == 40
    alone = evaluate(run, table / "other.csv", samples=0, **QUICK)  # the bound on other rows needs no training rows
    assert alone["examples"] == 64 and "samples" not in alone


def test_scores_are_against_the_rows_that_were_trained_on(table, capsys):
    command = ["--draws", "1", "--exact-rows", "0", "--samples", "40", "--json"]
    folder = table / "noted"
    with pytest.raises(SystemExit):
        main(["train", str(table / "train.csv"), "--out", str(folder), "--steps", "2", "--set", "panels=0", "--json"])
    capsys.readouterr()
    moved = (table / "train.csv").rename(table / "moved.csv")
    assert "is not there any more: name it with --trained-on" in refused(capsys, "evaluate", folder)
    (table / "train.csv").write_text((table / "other.csv").read_text())
    data = ["--data", table / "other.csv"]
    assert "is not what the run was trained on" in refused(capsys, "evaluate", folder, *data, *command)
    with pytest.raises(SystemExit) as left:
        main([*map(str, ["evaluate", folder, *data, "--trained-on", moved, *command])])
    assert not left.value.code
    found = json.loads(capsys.readouterr().out)
    assert found["control_unseen_rows"]["copies"] == 0
    assert found["target"] == "a"  # the last column of few labels, where none is named
    assert set(found["verdict"]) >= {"level", "words", "weakest_column"}


def test_values_that_were_moved_are_told(tmp_path, capsys):
    rows = [f"{age},{age % 3}" for age in range(20, 30) for _ in range(9)]  # so few that ages are categories
    (tmp_path / "t.csv").write_text("\n".join(["age,kind", *rows]))
    (tmp_path / "new.csv").write_text("\n".join(["age,kind", "99,1", *rows[:40]]))
    folder = tmp_path / "run"
    for arguments in (
        ["train", tmp_path / "t.csv", "--out", folder, "--steps", 2, "--set", "panels=0", "--json"],
        ["evaluate", folder, "--data", tmp_path / "new.csv", "--samples", 0, "--json"],
        ["evaluate", folder, "--data", tmp_path / "new.csv", "--samples", 0],
    ):
        with pytest.raises(SystemExit):
            main([*map(str, arguments)])
    told = capsys.readouterr()
    found = json.loads(told.out.strip().splitlines()[1])
    assert found["moved"] == [f"{tmp_path / 'new.csv'}: column 'age': 1 new values moved to the nearest known"]
    assert "moved                    " in told.out and "UserWarning" not in told.err
    assert "different numbers of categories" in found["exact_why"]
