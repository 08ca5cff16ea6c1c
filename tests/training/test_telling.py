"""Training under conditions and drawing under them, by the words of a command: p(job | sex) is known, and learned."""

import csv
import json
import random
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.cli import main
from unnoise.data import Reading, read
from unnoise.data.base import BadData
from unnoise.data.source_file import SourceFile
from unnoise.training import Run, Trainer
from unnoise.training.recipes import recipe
from unnoise.training.telling import dropped, left_out

SHARE = {"F": 0.8, "M": 0.3}  # of nurses; the others are cooks
WOMEN = 0.4
FAST = ("--steps", 4)


def command(capsys, *arguments, status=0):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in arguments])
    captured = capsys.readouterr()
    assert stop.value.code == status, captured.err
    return captured.err if status == 2 else captured.out


def people(folder):
    g = random.Random(0)
    with open(folder / "people.csv", "w") as file:
        file.write("sex,job,shift\n")
        for _ in range(2000):
            sex = "F" if g.random() < WOMEN else "M"
            job = "nurse" if g.random() < SHARE[sex] else "cook"
            file.write(f"{sex},{job},{g.choice(['day', 'night'])}\n")
    return folder / "people.csv"


def trained(folder, name, drop, steps):
    form, x0 = read(folder / "people.csv", Reading(condition=("sex",)))
    options = {"batch_size": 256, "panels": 0, "validate_every": 1000, "drop": drop}
    run = Run.create(folder / name, recipe(form, 2000, "tiny", steps=steps, **options))
    Trainer(run, x0).fit()
    SourceFile.of(folder / "people.csv").save(folder / name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("telling")
    people(folder)
    trained(folder, "run", 0.2, 150)
    trained(folder, "always", 0.0, 1)
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def drawn(capsys, *arguments):
    told = json.loads(command(capsys, "sample", *arguments, *FAST, "--out", "out.csv", "--json"))
    with open("out.csv", newline="") as file:
        return list(csv.DictReader(file)), told


def share(rows, column, value):
    return sum(row[column] == value for row in rows) / len(rows)


def test_samples_have_the_law_given_the_condition(here, capsys):
    """To 0.1, for 150 updates and 600 draws; without a condition, that of the data with theirs."""
    for sex in ("F", "M"):
        rows, _ = drawn(capsys, "run", "-n", 600, "--given", f"sex={sex}")
        assert {row["sex"] for row in rows} == {sex} and list(rows[0]) == ["sex", "job", "shift"]
        assert share(rows, "job", "nurse") == pytest.approx(SHARE[sex], abs=0.1)
    rows, _ = drawn(capsys, "run", "-n", 600)
    assert share(rows, "sex", "F") == pytest.approx(WOMEN, abs=0.09)
    women = [row for row in rows if row["sex"] == "F"]
    assert share(women, "job", "nurse") == pytest.approx(SHARE["F"], abs=0.15)


def test_gaps_are_filled_given_what_is_told(here, capsys):
    """To 0.1, as samples are; the file's other cells stay."""
    lines = [("F", "", "day"), ("M", "", "night"), ("F", "cook", "")] * 300
    Path("gaps.csv").write_text("sex,job,shift\n" + "".join(",".join(line) + "\n" for line in lines))
    told = json.loads(command(capsys, "infill", "run", "gaps.csv", "--out", "full.csv", *FAST, "--json"))
    assert told["filled"] == 900 and told["conditioning"] == "exact" and set(told["parts"]) == {"job", "shift"}
    with open("full.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["sex"] for row in rows] == [line[0] for line in lines] and {row["job"] for row in rows[2::3]} == {"cook"}
    assert share(rows[0::3], "job", "nurse") == pytest.approx(SHARE["F"], abs=0.1)
    assert share(rows[1::3], "job", "nurse") == pytest.approx(SHARE["M"], abs=0.1)
    Path("gaps.csv").write_text("job,shift\n,day\n")
    said = command(capsys, "infill", "run", "gaps.csv", "--out", "full.csv", status=2)
    assert "lacks 'sex', a condition of the model" in said
    Path("gaps.csv").write_text("sex,job,shift\n,,day\n")
    said = command(capsys, "infill", "run", "gaps.csv", "--out", "full.csv", status=2)
    assert "sex" in said


def test_guidance_goes_beyond_what_is_given(here, capsys):
    """p(x | y)^g p(x)^(1 - g) by particles; plain guidance of one column is the same."""
    law = {value: (given**3 * whole**-2) for value, given, whole in (("nurse", 0.8, 0.5), ("cook", 0.2, 0.5))}
    wanted = law["nurse"] / sum(law.values())
    assert wanted > 0.98
    rows, told = drawn(capsys, "run", "-n", 400, "--given", "sex=F", "--guide", 3)
    assert share(rows, "job", "nurse") > 0.93 and "particles" not in told
    rows, told = drawn(capsys, "run", "-n", 100, "--given", "sex=F", "--guide", 3, "--particles", 4)
    assert share(rows, "job", "nurse") > 0.9
    assert told["log_normaliser"] == pytest.approx(log(sum(law.values())), abs=0.25)
    assert told["particles"] == 4 and 1 < told["effective"] <= 4 and told["calls"] > 0


def test_columns_that_are_told_stand_in_rules(here, capsys):
    rows, told = drawn(capsys, "run", "-n", 60, "--where", "sex == 'F' and job == 'cook'")
    assert len(rows) == 60 and all(row["sex"] == "F" and row["job"] == "cook" for row in rows)
    assert told["rule_by"] == "rejection" and told["acceptance"] == pytest.approx(WOMEN * 0.2, abs=0.05)
    said = command(capsys, "sample", "run", "-n", 5, "--where", "sex == 'F'", "--given", "sex=M", status=2)
    assert "what is given, sex=M, does not satisfy this" in said


def test_the_bound_is_that_of_the_data_given_its_conditions(here, capsys):
    """Nearer to the entropy given the condition, and of one bit, than to that without."""
    entropy = sum(
        -part * (SHARE[sex] * log(SHARE[sex]) + (1 - SHARE[sex]) * log(1 - SHARE[sex]))
        for sex, part in (("F", WOMEN), ("M", 1 - WOMEN))
    )
    told = json.loads(command(capsys, "evaluate", "run", "--samples", 0, "--draws", 16, "--json"))
    assert told["bound"] == pytest.approx(entropy + log(2), abs=0.06) and "given its conditions" in told["exact_why"]


@pytest.mark.conformance
def test_samples_are_scored_with_their_conditions(here, capsys):
    scored = json.loads(command(capsys, "evaluate", "run", "--samples", 400, "--minutes", 0.1, "--rows", 100, "--json"))
    assert scored["samples"]["two_sample"] > 0.8  # with their conditions they are hardly told from real rows


def test_what_cannot_be_is_said_first(here, capsys):
    said = command(capsys, "sample", "always", "-n", 5, "--given", "sex=F", "--guide", 2, status=2)
    assert "trained with drop = 0 never to draw: train with --drop 0.1" in said
    said = command(capsys, "sample", "run", "-n", 5, "--given", "six=F", status=2)
    assert "there is no such column: use one of ['sex', 'job', 'shift']" in said
    said = command(capsys, "sample", "run", "-n", 5, "--given", "sex=X", status=2)
    assert "'X'" in said or "sex=X" in said
    said = command(capsys, "sample", "run", "-n", 5, "--given", "sex=F", "--guide", "nan", status=2)
    assert "must be a number" in said
    said = command(capsys, "train", "people.csv", "--out", "new", "--condition", "age", status=2)
    assert "conditions are" in said and "'age'" in said
    said = command(capsys, "train", "people.csv", "--out", "new", "--drop", "0.5", status=2)
    assert "name one, --condition COLUMN" in said


def test_a_model_in_memory(folder):
    frame = pytest.importorskip("pandas").read_csv(folder / "people.csv")
    model = un.fit(frame, steps=2, preset="tiny", condition=("sex",), progress=False)
    rows = model.sample(20, given={"sex": "M"}, guide=2.0, seed=0, steps=2)
    assert list(rows.columns) == ["sex", "job", "shift"] and set(rows["sex"]) == {"M"}
    assert np.isfinite(model.bound(frame.head(4))).all()
    with pytest.raises(ValueError, match="given conditions the bound is told"):
        model.likelihood(frame.head(2))
    gaps = frame.head(6).copy()
    gaps.loc[[1, 4], "job"] = None
    full = model.infill(gaps, seed=0)
    assert full.drop(index=[1, 4]).equals(frame.head(6).drop(index=[1, 4])) and set(full.job) <= {"nurse", "cook"}
    assert full[["sex", "shift"]].equals(frame.head(6)[["sex", "shift"]])
    with pytest.raises(BadData, match="names columns of a table"):
        un.fit(np.zeros((9, 2)), steps=2, condition=("a",))


def test_conditions_are_left_out_as_often_as_is_said():
    """All of them with probability drop, and in as large a further share of the rows each by a fair coin, but one."""
    n, drop = 40_000, 0.15
    gone = left_out(3, drop, un.NoiseSource(0, n))
    every = gone.all(1).double().mean()
    assert abs(float(every) - drop) < 4 * (drop * (1 - drop) / n) ** 0.5
    one = drop + drop * (1 - 1 / 3) / 2  # the one that is told for certain is any of the three
    assert (gone.double().mean(0) - one).abs().max() < 4 * (one * (1 - one) / n) ** 0.5
    assert abs(float(left_out(1, drop, un.NoiseSource(0, n)).double().mean()) - drop) < 4 * (drop * (1 - drop) / n) ** 0.5


def test_a_group_is_left_out_as_a_whole_and_as_nothing():
    noise = un.NoiseSource(0, 500)
    told = {"label": torch.ones(500, dtype=torch.int64), "age": torch.ones(500), "place": torch.ones(500, 2)}
    found = dropped(told, [["label", "age"], ["place"]], 0.3, noise)
    gone = left_out(2, 0.3, noise)
    assert torch.equal(found["label"] == -1, gone[:, 0]) and torch.equal(found["age"].isnan(), gone[:, 0])
    assert torch.equal(found["place"].isnan().all(1), gone[:, 1]) and torch.equal(told["age"], torch.ones(500))
