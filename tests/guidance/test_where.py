"""Rules on columns by the words of a command, on a table's run that is hardly trained."""

import csv
import json
import random
from decimal import Decimal

import numpy as np
import pytest

import unnoise as un
from unnoise.cli import main
from unnoise.data import Reading, read
from unnoise.guidance.rejection import NothingHeld
from unnoise.guidance.steering import Steering, drawn
from unnoise.training import Run, Trainer
from unnoise.training.recipes import recipe

FAST = ("--steps", 6)


def command(capsys, *arguments, status=0):
    with pytest.raises(SystemExit) as stop:
        main([str(word) for word in arguments])
    captured = capsys.readouterr()
    assert stop.value.code == status, captured.err
    return captured.err if status == 2 else captured.out


def rows_of(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """People with a job, an age, a wage in two decimals, which may be missing, and its parts."""
    folder, g = tmp_path_factory.mktemp("where"), random.Random(0)
    with open(folder / "people.csv", "w") as file:
        file.write("age,job,sex,wage,bonus,total\n")
        for _ in range(400):
            age, wage, bonus = g.randint(18, 80), g.randint(1000, 9000), g.randint(0, 3000)
            gap = g.random() < 0.1
            cells = (age, g.choice(["nurse", "cook", "pilot"]), g.choice(["F", "M"]), wage / 100, bonus / 100)
            file.write(",".join(map(str, cells[:3])) + f",{'' if gap else cells[3]},{cells[4]},{(wage + bonus) / 100}\n")
    form, x0 = read(folder / "people.csv", Reading())
    run = Run.create(folder / "run", recipe(form, 400, "tiny", steps=2, batch_size=64, panels=0, validate_every=1000))
    Trainer(run, x0).fit()
    (folder / "words.txt").write_text("ax\nby\n" * 20)
    form, x0 = read(folder / "words.txt", Reading(padded=True))
    run = Run.create(folder / "text", recipe(form, 40, "tiny", steps=1, batch_size=8, panels=0, validate_every=1000))
    Trainer(run, x0).fit()
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def test_every_row_that_is_written_satisfies_the_rule(here, capsys):
    out, rule = here / "out.csv", "age >= 40 and (job == 'nurse' or wage > 50) and sex != 'M'"
    told = json.loads(command(capsys, "sample", "run", "-n", 60, "--where", rule, *FAST, "--out", out, "--json"))
    rows = rows_of(out)
    assert told["n"] == len(rows) == 60
    for row in rows:
        assert int(row["age"]) >= 40 and row["sex"] == "F"
        assert row["job"] == "nurse" or float(row["wage"]) > 50
    assert 0 < told["acceptance"] < 1
    assert told["rule_by"] == "labels first" and told["rows_drawn"] >= 512
    assert told["log_normaliser"] < np.log(told["acceptance"]) and told["log_normaliser_error"] > 0
    shown = command(capsys, "sample", "run", "-n", 7, "--where", rule, *FAST, "--out", out, "--batch", 50)
    assert "satisfied the rule" in shown and rows_of(out) == rows[:7]


def test_the_share_is_that_of_plain_draws(here):
    """And so are the rows: those of the seed's plain draws that satisfy the rule."""
    run = Run.open(here / "run")
    form, model = run.format(), run.denoiser(which="best")
    x, info = drawn(model, form, 50, Steering(where="age < 70 and job != 'cook'"), seed=3, steps=6)
    plain, _ = drawn(model, form, info.rejection.drawn, Steering(), seed=3, steps=6)
    frame = form.frame(plain)
    held = frame[(frame.age < 70) & (frame.job != "cook")]
    assert len(held) == info.rejection.passed
    assert held[:50].reset_index(drop=True).equals(form.frame(x))


def test_it_goes_with_what_is_given_and_with_a_reward(here, capsys):
    out = here / "given.csv"
    (here / "old.py").write_text("def old(frame):\n    return frame['age'].astype(float) / 10\n")
    given = ("--given", "wage=33.30", "--given", "sex=M", "--where", "age > 30 and wage == 33.3 and job != 'cook'")
    command(capsys, "sample", "run", "-n", 20, *given, "--out", out, "--calls", 12)
    rows = rows_of(out)
    assert len(rows) == 20 and {(row["sex"], row["wage"]) for row in rows} == {("M", "33.30")}
    assert all(int(row["age"]) > 30 and row["job"] != "cook" for row in rows)
    steered = ("--reward", "old:old", "--strength", 2, "--particles", 4, "--where", "age < 60", "--steps", 8)
    told = json.loads(command(capsys, "sample", "run", "-n", 20, *steered, "--out", out, "--json"))
    assert told["particles"] == 4 and all(int(row["age"]) < 60 for row in rows_of(out))


def test_what_cannot_be_found_is_counted(here, capsys):
    out = here / "few.csv"
    few = ("--where", "age >= 60 and wage > 80 and sex == 'F'", "--attempts", 300, *FAST, "--out", out)
    told = command(capsys, "sample", "run", "-n", 200, *few, status=1)
    rows = rows_of(out)
    assert 0 < len(rows) < 200 and f"{200 - len(rows)} more were not found in 300 rows" in told
    none = ("--where", "age * wage < 0", "--attempts", 300, *FAST, "--out", here / "none.csv")
    assert "wrote nothing; 5 more" in command(capsys, "sample", "run", "-n", 5, *none, status=1)
    assert not (here / "none.csv").exists()


def test_what_is_no_rule_of_this_run_is_said_first(here, capsys):
    def told(*words, run="run"):
        return command(capsys, "sample", run, "-n", 3, *words, status=2)

    assert "there is no column 'agee'" in told("--where", "agee > 3")
    assert "a rule calls nothing" in told("--where", "__import__('os')")
    assert "leave it out" in told("--where", "age > 3", run="text")
    assert "does not go with --prompt" in told("--where", "age > 3", "--length", 3, run="text")
    assert "name one (where)" in told("--attempts", 300)
    assert "attempts = -1" in told("--where", "age > 3", "--attempts", -1)


def test_given_numbers_go_with_particles(here, capsys):
    """A number is held at time 0 while particles move the rest by a reward; every row has it."""
    (here / "rewards_of_rows.py").write_text("def pay(rows):\n    return (rows.bonus > 15).astype(float)\n")
    words = ("-n", 30, "--given", "age=40", "--given", "sex=F", "--reward", "rewards_of_rows:pay", "--strength", 3)
    told = json.loads(command(capsys, "sample", "run", *words, "--particles", 4, *FAST, "--out", "held.csv", "--json"))
    rows = rows_of("held.csv")
    assert len(rows) == 30 and {(row["age"], row["sex"]) for row in rows} == {("40", "F")} and told["particles"] == 4
    assert sum(float(row["bonus"]) > 15 for row in rows) > 20


def test_an_equality_between_numbers_holds_in_every_row(here, capsys):
    """To the last digit, by a column that is computed; the others have the law that they have without the rule, where no
    wage is missing: the shares of jobs and the mean wage of 600 rows to 4 standard errors."""
    out, rule = here / "equal.csv", "total == wage + bonus"
    told = json.loads(command(capsys, "sample", "run", "-n", 600, "--where", rule, *FAST, "--out", out, "--json"))
    rows = rows_of(out)
    assert told["computed"] == "total" and told["acceptance"] > 0.6 and len(rows) == 600
    assert all(Decimal(row["total"]) == Decimal(row["wage"]) + Decimal(row["bonus"]) for row in rows)
    command(capsys, "sample", "run", "-n", 600, "--where", "wage is not missing", *FAST, "--seed", 1, "--out", out)
    plain = rows_of(out)
    assert sum(Decimal(row["total"]) == Decimal(row["wage"]) + Decimal(row["bonus"]) for row in plain) < 20
    for of in (lambda row: float(row["wage"]), lambda row: row["job"] == "nurse", lambda row: float(row["bonus"])):
        one, other = (np.array([of(row) for row in own], dtype=float) for own in (rows, plain))
        assert abs(one.mean() - other.mean()) < 4 * ((one.var() + other.var()) / 600) ** 0.5
    rule = "wage == total - bonus and total > 60 and sex == 'F'"
    shown = command(capsys, "sample", "run", "-n", 20, "--where", rule, "--given", "bonus=12.5", *FAST, "--out", out)
    rows = rows_of(out)
    assert "computed from others: wage" in shown and {row["bonus"] for row in rows} == {"12.5"}
    assert all(Decimal(row["wage"]) == Decimal(row["total"]) - Decimal("12.5") for row in rows)
    assert all(float(row["total"]) > 60 and row["sex"] == "F" for row in rows)
    rule = "total == wage + bonus and total > 60 and wage > 1 and bonus > 1"
    said = command(capsys, "sample", "run", "-n", 5, "--where", rule, status=2)
    assert "'total' is also in another part of the rule" in said and "^^^^^" in said


def test_a_model_in_memory():
    pandas = pytest.importorskip("pandas")
    g = np.random.default_rng(0)
    frame = pandas.DataFrame({"age": g.integers(18, 80, 300), "job": g.choice(["nurse", "cook"], 300)})
    model = un.fit(frame, steps=2, preset="tiny", progress=False)
    rows = model.sample(20, where="30 <= age < 50 and job == 'nurse'", seed=0, steps=6)
    assert len(rows) == 20 and rows.age.between(30, 49).all() and set(rows.job) == {"nurse"}
    assert model.sample(3, where="30 <= age < 50 and job == 'nurse'", seed=0, steps=6).equals(rows[:3])
    frame["half"] = frame.age / 3
    model = un.fit(frame, steps=2, preset="tiny", progress=False)
    rows = model.sample(20, where="3 * half == age", seed=0, steps=6)
    assert np.allclose(rows.half * 3, rows.age, rtol=1e-12) and rows.half.dtype == frame.half.dtype
    with pytest.raises(ValueError, match=r"^where: there is no column 'jobs': did you mean 'job'"):
        model.sample(3, where="jobs == 'nurse'")
    with pytest.raises(NothingHeld, match="none of 100 rows"):
        model.sample(3, where="age * 2 < 0", attempts=100, steps=6)
