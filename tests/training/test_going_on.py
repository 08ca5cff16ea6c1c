"""A run and its file over time: going on with other settings, files that change, pictures that fail."""

import json
from math import log, pi

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.cli import main
from unnoise.data.read import read
from unnoise.data.source_file import SourceFile
from unnoise.evaluation.likelihood import bound_on, bound_terms
from unnoise.evaluation.report import evaluate
from unnoise.evaluation.scores import chosen
from unnoise.training import Run, Trainer
from unnoise.training.data_order import Cursor, InMemory, split
from unnoise.training.panels import Panels
from unnoise.training.recipes import recipe
from unnoise.training.validation import validate


def command(capsys, *arguments, status=0) -> str:
    with pytest.raises(SystemExit) as left:
        main(list(map(str, arguments)))
    told = capsys.readouterr()
    assert left.value.code in (status, None if status == 0 else status), told.err
    return told.out if status == 0 else told.err.strip().splitlines()[-1]


@pytest.fixture
def numbers(tmp_path):
    """A file of 40 rows of two numbers."""
    path = tmp_path / "numbers.npy"
    np.save(path, np.random.default_rng(0).normal(size=(40, 2)))
    return path


def trained(numbers, capsys, *more):
    folder = numbers.parent / "run"
    command(capsys, "train", numbers, "--out", folder, "--steps", 4, "--batch-size", 8, "--set", "panels=0", "--json", *more)
    return folder


def went_on(capsys, *arguments):
    return json.loads(command(capsys, "train", "--resume", *arguments, "--json").strip().splitlines()[-1])


def test_more_steps_after_the_clock_ended_a_training(numbers, capsys):
    folder = numbers.parent / "run"
    by_clock = ("--minutes", 1e-5, "--batch-size", 8, "--set", "panels=0", "--json")
    command(capsys, "train", numbers, "--out", folder, *by_clock)
    before = Run.open(folder).load()[1]["step"]
    outcome = went_on(capsys, folder, "--steps", before + 3)
    assert outcome["step"] == before + 3 and outcome["reason"] == "steps"


def test_a_run_goes_on_with_other_settings(numbers, capsys):
    folder = trained(numbers, capsys)
    went_on(capsys, folder, "--steps", 6, "--lr", 1e-6, "--set", "clip=0.1")
    config = Run.open(folder).config.train
    assert config.lr == 1e-6 and config.clip == 0.1 and config.steps == 6
    told = command(capsys, "train", "--resume", folder, "--preset", "small", status=2)
    assert told == "unnoise: --preset cannot change when a run goes on: start a new run"


def test_larger_batches_go_on_at_the_start_of_an_epoch_if_too_little_is_left(numbers, capsys):
    folder = trained(numbers, capsys)  # 4 batches of 8: 4 of 36 rows are left
    run = Run.open(folder)
    run.change(batch_size=16, steps=5)
    trainer = Trainer(run, run.format().encode(numbers))
    trainer._resume()
    assert trainer.cursor == Cursor(1, 0) == next(trainer.order.cursors(trainer.cursor))


def test_a_file_that_changed_is_not_taken_for_the_old_one(numbers, capsys):
    folder = trained(numbers, capsys)
    assert evaluate(Run.open(folder), draws=1, exact_rows=0, samples=0)["examples"] == 4
    np.save(numbers, np.load(numbers)[::-1])  # as many rows, in another order: trained ones would count as held out
    told = command(capsys, "evaluate", folder, status=2)
    assert "is not what the run was trained on" in told and "--data FILE" in told
    assert "is not the file that" in command(capsys, "train", "--resume", folder, "--steps", 6, status=2)
    assert Run.open(folder).config.train.steps == 4


def test_a_file_that_moved_is_found_again(numbers, capsys):
    folder = trained(numbers, capsys)
    there = numbers.rename(numbers.with_name("there.npy"))
    outcome = json.loads(command(capsys, "train", there, "--resume", folder, "--steps", 5, "--json").splitlines()[-1])
    assert outcome["step"] == 5 and SourceFile.load(folder).path == there.resolve()
    assert evaluate(Run.open(folder), draws=1, exact_rows=0, samples=0)["examples"] == 4


def test_a_picture_that_fails_costs_no_training(numbers, monkeypatch):
    form, x0 = read(numbers)
    run = Run.create(numbers.parent / "run", recipe(form, 40, "tiny", steps=3, batch_size=8, panels=2))

    def fail(*_):
        raise TypeError("no such picture")

    monkeypatch.setattr(Panels, "draw", fail)
    with pytest.warns(UserWarning, match="no panel of samples at step 3: no such picture"):
        outcome = Trainer(run, x0).fit()
    assert outcome.step == 3 and run.load()[1]["step"] == 3


@pytest.mark.parametrize(
    ("shape", "suffix"),
    [
        ((8, 8), ".png"),
        ((3, 8, 8), ".png"),
        ((8, 8, 3), ".png"),
        ((5, 8, 8), ".npy"),
        ((2, 3, 8, 8), ".npy"),
        ((8,), ".npy"),
    ],
)
def test_what_is_shown_as_a_picture(tmp_path, shape, suffix):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).integers(0, 9, (6, *shape)).astype(np.uint8))
    form, x0 = read(tmp_path / "a.npy")
    assert form.shown_suffix() == suffix
    form.write(x0, tmp_path / f"shown{suffix}")


def test_large_seeds(numbers, capsys):
    trained(numbers, capsys, "--seed", 99999999999999999)


def test_numbers_that_nobody_reads_do_not_count(tmp_path):
    """A column that is missing half the time, or 0, or a number: the first two have a normal fill beside them."""
    rng = np.random.default_rng(0)
    cells = ["" if i % 2 else "0" if i % 4 == 0 else repr(float(rng.lognormal())) for i in range(2000)]
    (tmp_path / "t.csv").write_text("gain,kind\n" + "".join(f"{cell},{'ab'[i % 2]}\n" for i, cell in enumerate(cells)))
    form, x0 = read(tmp_path / "t.csv")
    z = x0["gain"][:, 0].double()
    unread = torch.tensor([cell in ("", "0") for cell in cells])
    normal = -0.5 * z.square() - 0.5 * log(2 * pi)
    torch.testing.assert_close(form.log_fill(x0), torch.where(unread, normal, 0.0))


def test_the_bound_of_a_table_is_one_on_its_cells(tmp_path):
    """A number that is missing at random: the exact model's bound is then -log P(missing), and -log p of others."""
    rng = np.random.default_rng(0)
    cells = ["" if u < 0.7 else repr(float(v)) for u, v in zip(rng.random(1200), rng.normal(size=1200), strict=True)]
    (tmp_path / "t.csv").write_text("gain\n" + "".join(f"{cell or 'NaN'}\n" for cell in cells))
    form, x0 = read(tmp_path / "t.csv")
    share = sum(not cell for cell in cells) / len(cells)
    laws = torch.tensor([share, 1 - share], dtype=torch.float64), torch.zeros(2, 1), torch.ones(2, 1, 1)
    oracle = un.oracles.conditional_gaussian(form.process(), *(law.double() for law in laws))
    x0 = {name: leaf[:400] for name, leaf in x0.items()}
    terms = bound_terms(oracle, x0, 128, 0, log_fill=form.log_fill).sum(-1)
    z = x0["gain"][:, 0].double()
    missing = torch.tensor([not cell for cell in cells[:400]])
    truth = torch.where(missing, -log(share), 0.5 * z.square() + 0.5 * log(2 * pi) - log(1 - share))
    off = terms.mean(0) - truth
    error = float(terms.mean(1).std()) / 128**0.5
    assert abs(float(off.mean())) < 5 * error  # one alarm in 500,000
    assert 10 * error < float(-form.log_fill(x0).mean())  # what it would be off by


def test_fills_are_left_out_of_what_training_and_evaluation_report(tmp_path):
    rng = np.random.default_rng(0)
    (tmp_path / "t.csv").write_text("gain\n" + "".join(f"{'NaN' if i % 3 else rng.normal()}\n" for i in range(900)))
    form, x0 = read(tmp_path / "t.csv")
    run = Run.create(tmp_path / "run", recipe(form, 900, "tiny", steps=1, batch_size=64, panels=0))
    SourceFile.of(tmp_path / "t.csv").save(run.folder)
    trainer = Trainer(run, x0)
    trainer.fit()
    said = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
    _, reported = [entry["validation_bound"] for entry in said if "validation_bound" in entry]
    c = run.config.train
    common = (InMemory(x0), trainer.held, trainer.accelerator, c.batch_size, c.validation_draws, c.seed)
    with trainer.learner.shown():
        plain = validate(trainer.bound, *common)
    held = {name: leaf[trainer.held] for name, leaf in x0.items()}
    fills = float(form.log_fill(held).mean())
    assert reported - plain.bound == pytest.approx(fills, abs=1e-6)
    assert fills < -0.4  # of 90 rows 2/3 are filled, each -(1 + log 2 pi)/2 in the mean: -0.95, with a deviation of 0.09
    told = evaluate(run, draws=2, exact_rows=0, samples=0)
    unseen = split(900, 0.1, 0)[1]
    unseen = unseen[chosen(len(unseen), 4096, 0)]
    without = bound_on(
        run.denoiser(which="best"), {n: leaf[unseen] for n, leaf in x0.items()}, 2, 0, options=run.objective_options()
    )
    assert told["bound"] - without["bound"] == pytest.approx(fills, abs=1e-6)


def test_a_known_atom_is_no_gap(tmp_path, capsys):
    rng = np.random.default_rng(0)
    rows = [f"{0 if i % 2 else round(float(rng.lognormal()), 6)},{'ab'[i % 3 > 0]}" for i in range(800)]
    (tmp_path / "t.csv").write_text("gain,kind\n" + "\n".join(rows) + "\n")
    form, x0 = read(tmp_path / "t.csv")
    run = Run.create(tmp_path / "run", recipe(form, 800, "tiny", steps=3, batch_size=32, panels=0))
    Trainer(run, x0).fit()
    (tmp_path / "none.csv").write_text("gain,kind\n0,a\n1.5,b\n0,b\n")
    told = json.loads(command(capsys, "infill", run.folder, tmp_path / "none.csv", "--out", tmp_path / "o.csv", "--json"))
    assert told["filled"] == 0 and told["calls"] == 0 and told["parts"] == {}
    (tmp_path / "one.csv").write_text("gain,kind\n0,\n,b\n")
    told = json.loads(command(capsys, "infill", run.folder, tmp_path / "one.csv", "--out", tmp_path / "o.csv", "--json"))
    assert told["filled"] == 2 and set(told["parts"]) == {"gain", "kind"}


def test_few_calls_choose_the_method_for_few_steps(tmp_path, capsys):
    (tmp_path / "t.txt").write_text("\n".join(["the cat sat", "a dog ran", "the cow ate"] * 20))
    folder = tmp_path / "run"
    command(capsys, "train", tmp_path / "t.txt", "--padded", "--out", folder, "--steps", 2, "--set", "panels=0", "--json")
    told = json.loads(command(capsys, "sample", folder, "-n", 3, "--calls", 4, "--out", tmp_path / "s.txt", "--json"))
    assert told["calls"] <= 4


def test_two_trainings_do_not_share_a_folder(numbers, capsys):
    folder = trained(numbers, capsys)
    run = Run.open(folder)
    trainer = Trainer(run, run.format().encode(numbers))
    with run.locked(), pytest.raises(ValueError, match="another training is writing to"):
        trainer.fit()
    assert trainer.fit().step == 4


def test_a_name_that_cannot_be_written_is_refused_before_samples_are_drawn(numbers, capsys, monkeypatch):
    folder = trained(numbers, capsys)

    def drawn(*_, **__):
        raise AssertionError("samples were drawn")

    monkeypatch.setattr("unnoise.samplers.many.sample", drawn)
    (numbers.parent / "folder").mkdir()
    refusals = {
        "new.csv": "an array is written as .npy",
        "new.png": "are no images",
        "folder": "is a folder: name a file",
        "numbers.npy/new.npy": "numbers.npy is a file, not a folder",
    }
    for name, words in refusals.items():
        out = numbers.parent / name
        assert words in command(capsys, "sample", folder, "-n", 3, "--out", out, status=2)
        assert words in command(capsys, "infill", folder, numbers, "--out", out, status=2)
    out = numbers.parent / "new.npy.gz"
    assert "samples were drawn" in command(capsys, "sample", folder, "-n", 3, "--out", out, status=2)
