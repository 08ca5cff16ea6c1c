"""The main job as a user runs it: train on a file, sample, evaluate; and bad input."""

import csv
import gzip
import json
import subprocess
import sys
from math import isnan
from pathlib import Path

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.cli import main
from unnoise.data.read import Reading, read
from unnoise.samplers.registry import choices, method_named
from unnoise.start_up import start_up_of, start_up_words
from unnoise.training import Run
from unnoise.training.drawing import draw
from unnoise.training.metrics import Metrics, read_metrics


def run(*arguments, folder: Path, status: int = 0) -> str:
    command = [sys.executable, "-m", "unnoise.cli", *map(str, arguments)]
    one_thread = {"OMP_NUM_THREADS": "1", "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, env=one_thread)
    assert done.returncode == status, done.stdout + done.stderr
    return done.stdout if status == 0 else done.stderr


@pytest.fixture(scope="module")
def shop(tmp_path_factory) -> Path:
    """A small mixed table: a category, a count, a price that depends on both, a date, a flag, some missing."""
    rng = np.random.default_rng(0)
    folder = tmp_path_factory.mktemp("shop")
    rows = []
    for i in range(600):
        kind = rng.choice(["tea", "coffee", "cake"])
        count = int(rng.integers(1, 6))
        price = round(float(count * {"tea": 2.0, "coffee": 3.0, "cake": 4.5}[kind] * rng.lognormal(0, 0.2)), 4)
        rows.append([kind, count, price if i % 20 else "", f"2024-{1 + i % 12:02d}-{1 + i % 28:02d}", bool(i % 3)])
    with gzip.open(folder / "shop.csv.gz", "wt", newline="") as file:
        csv.writer(file).writerows([["item", "count", "price", "day", "member"], *rows])
    told = run("train", "shop.csv.gz", "--out", "model", "--steps", 60, "--batch-size", 64, "--json", folder=folder)
    assert json.loads(told.strip().splitlines()[-1])["reason"] == "steps"
    return folder


def test_what_was_understood(shop):
    told = run("train", "shop.csv.gz", "--dry-run", folder=shop)
    assert "item" in told and "category" in told and "price" in told and "600 examples" in told
    lines = {
        line["part"]: line for line in json.loads(run("train", "shop.csv.gz", "--dry-run", "--json", folder=shop))["lines"]
    }
    assert lines["price"]["process"].startswith("Gaussian") and lines["day"]["kind"] == "date"


def test_a_training_says_how_long_it_took_to_start(shop):
    parts = start_up_of(read_metrics(shop / "model" / "metrics.jsonl"))
    assert list(parts) == ["import", "read", "build", "first updates"] and all(seconds > 0 for seconds in parts.values())
    assert f"{start_up_words(parts).capitalize()}." in (shop / "model" / "report.html").read_text()


def test_samples_say_where_their_time_went(shop):
    told = json.loads(run("sample", "model", "-n", 40, "--steps", 4, "--out", "some.csv", "--json", folder=shop))
    assert list(told["seconds"]) == ["import", "open", "draw", "write"] and all(s > 0 for s in told["seconds"].values())
    assert (told["batch"], told["way"]) == (40, "plain") and told["rows"] == 40 * (4 + 4)  # steps, and a call for each label


def test_samples_come_back_in_the_data_s_own_form(shop):
    run("sample", "model", "-n", 50, "--out", "new.csv", folder=shop)
    with open(shop / "new.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 50 and list(rows[0]) == ["item", "count", "price", "day", "member"]
    assert {row["item"] for row in rows} <= {"tea", "coffee", "cake"}
    assert all(row["count"] in "12345" and row["day"].startswith("2024-") for row in rows)
    again = run("sample", "model", "-n", 50, "--out", "again.csv", "--batch", 7, "--json", folder=shop)
    assert json.loads(again)["n"] == 50


def test_samples_given_a_column(shop):
    run("sample", "model", "-n", 20, "--out", "given.csv", "--given", "item=cake", "--given", "price=9.5", folder=shop)
    with open(shop / "given.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["item"] for row in rows} == {"cake"} and all(abs(float(row["price"]) - 9.5) < 1e-3 for row in rows)


def test_gaps_are_filled(shop):
    (shop / "gaps.csv").write_text(
        "item,count,price,day,member\ntea,,4.1,2024-03-03,True\n,3,,2024-05-05,\ncake,2,9.1,,False\n"
    )
    told = json.loads(run("infill", "model", "gaps.csv", "--out", "full.csv", "--json", folder=shop))
    with open(shop / "full.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert told["rows"] == 3 and len(rows) == 3 and told["filled"] == 5
    assert (
        rows[0]["item"] == "tea" and float(rows[0]["price"]) == pytest.approx(4.1, abs=1e-3) and rows[0]["count"] in "12345"
    )
    assert rows[1]["count"] == "3" and rows[1]["item"] in ("tea", "coffee", "cake") and rows[1]["day"] == "2024-05-05"
    assert rows[2]["item"] == "cake" and rows[2]["member"] == "False" and rows[2]["day"].startswith("2024-")


def test_evaluation(shop):
    result = json.loads(run("evaluate", "model", "--samples", 200, "--draws", 2, "--json", folder=shop))
    terms = result["prior"] + result["diffusion"] + result["reconstruction"]
    assert result["bound"] == pytest.approx(terms) and result["examples"] == 60
    assert result["samples"]["shape"] > 0.7 and result["control_independent_columns"]["shape"] > 0.95


def test_a_run_has_a_page(shop):
    page = (shop / "model" / "report.html").read_text()
    assert page.count("<polyline") >= 3 and "price" in page and "Samples" in page and "ColumnTransformer" in page


def test_a_run_goes_on(shop):
    told = run("train", "--resume", "model", "--steps", 80, "--json", folder=shop)
    assert json.loads(told.strip().splitlines()[-1])["step"] == 80


def test_arrays_and_text(tmp_path):
    rng = np.random.default_rng(0)
    np.save(tmp_path / "points.npy", rng.normal(size=(200, 3)) * [1, 5, 0.1])
    run("train", "points.npy", "--out", "p", "--steps", 10, "--json", folder=tmp_path)
    run("sample", "p", "-n", 9, "--steps", 8, "--out", "new.npy", folder=tmp_path)
    assert np.load(tmp_path / "new.npy").shape == (9, 3)
    (tmp_path / "a.txt").write_text("the cat sat on the mat. " * 60)
    options = ("--noise", "uniform", "--set", "accumulate=2", "--set", "weighting=cross_entropy")
    run("train", "a.txt", "--out", "u", "--length", 16, "--steps", 4, "--batch-size", 8, *options, "--json", folder=tmp_path)
    config = json.loads((tmp_path / "u" / "config.json").read_text())
    assert config["train"]["accumulate"] == 2 and config["train"]["weighting"] == "cross_entropy"
    assert config["process"].startswith("Uniform")
    run("train", "a.txt", "--out", "t", "--length", 16, "--steps", 10, "--json", folder=tmp_path)
    run("sample", "t", "-n", 4, "--out", "new.txt", folder=tmp_path)
    assert len((tmp_path / "new.txt").read_text().split("\n\n")) == 4
    (tmp_path / "gaps.txt").write_text("the c_t sat on t")
    run("infill", "t", "gaps.txt", "--out", "full.txt", folder=tmp_path)
    filled = (tmp_path / "full.txt").read_text().rstrip("\n")
    assert filled[:5] + filled[6:] == "the ct sat on t" and filled[5] in "the cat sat on the mat."


def test_samplers_that_can_be_named():
    """Each can be made, is whole, and draws by itself."""
    known = choices()
    assert {"Ancestral", "Euler", "FirstHitting", "Heun", "UniPC"} <= set(known)
    assert not {"Sampler", "OneStep", "Stepping", "Leaves", "Frozen", "Remasking", "Replacement"} & set(known)
    assert all(type(method_named(name)) is kind for name, kind in known.items())


def test_a_named_sampler_takes_steps_enough_and_leaves_no_mask(tmp_path, monkeypatch, capsys):
    """A leaping method leaves a share of exp(-1) of what is masked before its last step."""
    monkeypatch.chdir(tmp_path)
    Path("poem.txt").write_text("the cat sat on the mat. " * 40)
    np.save("digits.npy", np.random.default_rng(0).integers(0, 5, (60, 3, 3)).astype(np.uint8))
    Path("kinds.csv").write_text("a,b\n" + "".join(f"{'xyz'[i % 3]},{'uv'[i % 2]}\n" for i in range(99)))
    options = {"poem.txt": ["--length", "16"], "digits.npy": ["--categories", "--noise", "masking"], "kinds.csv": []}

    def told(*arguments, status=0):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments), "--json"])
        printed = capsys.readouterr()
        assert ended.value.code == status, printed.err
        return json.loads(printed.out) if status == 0 else printed.err

    for name, more in options.items():
        method = "FromGenerator" if name == "kinds.csv" else "Euler"
        folder, out = Path(name).stem, f"new{Path(name).suffix}"
        told("train", name, "--out", folder, "--steps", 4, "--set", "panels=0", *more)
        assert told("sample", folder, "-n", 50, "--sampler", method, "--out", out)["calls"] in (64, 65)
        for how, most in ((["--steps", 1], 2), (["--calls", 3], 3)):
            result = told("sample", folder, "-n", 50, "--sampler", method, "--out", out, *how)
            assert result["calls"] == most
            if name == "poem.txt":
                found = Path(out).read_text()
                assert set(found) <= set(Path(name).read_text() + "\n") and len(set(found)) > 5
            elif name == "kinds.csv":
                rows = list(csv.reader(Path(out).read_text().splitlines()))[1:]
                assert {a for a, _ in rows} == set("xyz") and {b for _, b in rows} == set("uv")
            else:
                assert np.bincount(np.load(out).ravel(), minlength=5).max() < 0.5 * 450  # no level stands for masks
        assert f"{method} needs 2" in told("sample", folder, "--sampler", method, "--calls", 1, status=2)
    one, two = (
        draw(Run.open("poem").denoiser(), Run.open("poem").format(), 9, method_named("Euler"), steps=2, batch=batch, seed=0)[
            0
        ]
        for batch in (4, 9)
    )
    assert (one == two).all()  # a sample is a function of the seed and its number


def test_what_a_leap_left_masked_has_the_model_s_law(tmp_path):
    """A network that says the same of every symbol: so do the samples, revealed by the leap or after it."""
    np.save(tmp_path / "a.npy", np.arange(40).reshape(10, 4).astype(np.uint8) % 4)
    form, _ = read(tmp_path / "a.npy", Reading(categories=True, noise="masking"))
    law = torch.tensor([0.1, 0.2, 0.3, 0.4])

    class Constant(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.logits = torch.nn.Parameter(law.log())

        def forward(self, x, t):
            return self.logits.expand(*x.shape, -1)

    n = 5000
    x, info = draw(un.Denoiser(Constant(), form.process()), form, n, method_named("Euler"), steps=1, batch=n, seed=0)
    assert info.calls == 2 and 0.8 * n < info.rows - n < 0.9 * n  # rows with a mask left: 1 - (1 - 1/e)^4 = 0.84
    found = torch.bincount(x.flatten(), minlength=4) / x.numel()
    assert float((found - law).abs().max()) < 5 * (0.25 / x.numel()) ** 0.5  # one alarm in 10^6


def test_figures_that_are_none_are_null(tmp_path, monkeypatch, capsys):
    """One held-out row has no standard error."""
    monkeypatch.chdir(tmp_path)
    np.save("few.npy", np.random.default_rng(0).normal(size=(8, 2)))
    told = {}
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit):
            main(["train", "few.npy", "--out", f"run{len(more)}", "--steps", "2", *more])
        told[len(more)] = capsys.readouterr().out

    def refuse(text):
        raise AssertionError(f"{text} is no JSON")

    outcome = json.loads(told[1].splitlines()[-1], parse_constant=refuse)
    assert outcome["best_se"] is None and outcome["best"] is not None
    ended = next(line for line in told[0].splitlines() if "ended by" in line)
    assert "nan" not in ended and "±" not in ended and "nats on held-out rows" in ended
    metrics = Path("run0/metrics.jsonl")
    lines = [json.loads(line, parse_constant=refuse) for line in metrics.read_text().splitlines()]
    assert None in [line.get("validation_se", 0) for line in lines]
    assert any(isnan(line.get("validation_se", 0)) for line in read_metrics(metrics))
    metrics.write_text('{"step": 1, "loss": NaN}\n')  # as it was written before
    Metrics(metrics, 1, None, False, False).close()
    assert json.loads(metrics.read_text(), parse_constant=refuse) == {"step": 1, "loss": None}


@pytest.mark.parametrize(
    "arguments, words",
    [
        (("train", "nothing.csv"), "there is no such file"),
        (("train", "empty.csv"), "empty"),
        (("train", "odd.xyz"), "suffix '.xyz'"),
        (("train",), "which file?"),
        (("train", "shop.csv.gz", "--out", "model"), "not empty"),
        (("train", "shop.csv.gz", "--out", "x", "--preset", "huge"), "choose from tiny"),
        (("train", "shop.csv.gz", "--out", "x", "--set", "patients=3"), "unknown keys ['patients']"),
        (("train", "shop.csv.gz", "--out", "x", "--set", "clip"), "name=value"),
        (("train", "shop.csv.gz", "--out", "x", "--noise", "uniform"), "is for sequences"),
        (("sample", "nowhere"), "does not exist"),
        (("sample", "."), "is not a run"),
        (("sample", "model", "--given", "itm=cake"), "itm"),
        (("sample", "model", "--given", "item=soup"), "soup"),
        (("sample", "model", "--given", "item"), "column=value"),
        (("sample", "model", "-n", "0"), "at least one"),
        (("sample", "model", "--out", "new.npy"), "a table ends in .csv"),
        (("sample", "model", "--steps", "0"), "steps = 0: at least one"),
        (("sample", "model", "--steps", "-2"), "steps = -2: at least one"),
        (("sample", "model", "--calls", "0"), "calls = 0: at least one"),
        (("sample", "model", "--steps", "0", "--sampler", "Ancestral"), "steps = 0: at least one"),
        (("infill", "model", "even.csv", "--out", "y.csv", "--steps", "0"), "steps = 0: at least one"),
        (("train", "odd.csv", "--out", "x", "--padded", "--no-padded"), "one of the two"),
        (("sample", "model", "--sampler", "Wishful"), "no sampler 'Wishful': choose from AdaptiveODE, Ancestral, "),
        (("sample", "model", "--sampler", "Stepping"), "no sampler 'Stepping'"),
        (("sample", "model", "--sampler", "Frozen"), "no sampler 'Frozen'"),
        (("sample", "model", "--sampler", "Remasking"), "missing a required argument: 'rule'"),
        (("sample", "model", "--sampler", "Euler"), "is drawn by a method for each, together; "),
        (("sample", "model", "--sampler", "Euler"), "leave it out, or use Ancestral, FromGenerator\n"),
        (("train", "shop.csv.gz", "--out", "x", "--length", "9"), "--length is for sequences; shop.csv.gz is a table: "),
        (("train", "three.csv", "--out", "x"), "three.csv: 3 examples are too few to train on, which takes 4: add rows"),
        (("train", "poem.txt", "--out", "x"), "1 example is too few to train on, which takes 4: pass --length 7 or less, "),
        (("train", "poem.txt", "--out", "x"), "or --padded for one example per line"),
        (("train", "poem.txt", "--out", "x", "--padded"), "add lines, or pass --no-padded and a small --length"),
        (("train", "one.fa", "--out", "x"), "pass --length 2 or less, or --padded for one example per sequence"),
        (("evaluate", "model", "--data", "nothing.csv"), "there is no such file"),
        (("infill", "model", "odd.csv", "--out", "y.csv"), "row 1"),
    ],
)
def test_bad_input(shop, arguments, words, monkeypatch, capsys):
    """One line, exit status 2, and nothing half-written."""
    (shop / "empty.csv").write_text("")
    (shop / "odd.xyz").write_text("hello")
    (shop / "odd.csv").write_text("item\nsoup\n")
    (shop / "even.csv").write_text("item\ntea\n")
    (shop / "three.csv").write_text("item\ntea\ncake\ntea\n")
    (shop / "poem.txt").write_text("a rose is a rose\nis a rose\n\n\n")
    (shop / "one.fa").write_text(">one\nACGTACGT\n")
    before = sorted(p.name for p in shop.iterdir())
    monkeypatch.chdir(shop)
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    told = capsys.readouterr().err
    assert ended.value.code == 2
    assert words in told and len(told.strip().splitlines()) == 1
    assert sorted(p.name for p in shop.iterdir()) == before


def test_one_line_an_example_or_windows(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("a.txt").write_text("the cat\na dog\n" * 20)
    Path("a.fa").write_text("".join(f">s{i}\nACGTACGT\n" for i in range(9)))
    kinds = {}
    for name in ("a.txt", "a.fa"):
        for option in ([], ["--padded"], ["--no-padded"]):
            with pytest.raises(SystemExit) as ended:
                main(["train", name, *option, "--dry-run", "--json"])
            assert ended.value.code == 0
            kinds[name, *option] = json.loads(capsys.readouterr().out)["lines"][0]["kind"]
    windows, lines, padded = "characters, windows of 256", "characters, padded to 7", "characters, padded to 8"
    assert kinds == {
        ("a.txt",): windows,
        ("a.txt", "--padded"): lines,
        ("a.txt", "--no-padded"): windows,
        ("a.fa",): padded,
        ("a.fa", "--padded"): padded,
        ("a.fa", "--no-padded"): "characters, windows of 8",
    }


def test_bad_input_as_a_process(tmp_path):
    told = run("train", "nothing.csv", folder=tmp_path, status=2)
    assert "there is no such file" in told and len(told.strip().splitlines()) == 1
