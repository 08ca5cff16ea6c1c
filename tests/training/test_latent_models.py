"""`--model latent` and `--model vq`, from data to samples: first stages, resuming, and what stops them."""

import json
import warnings

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.cli import main
from unnoise.data import Reading, read
from unnoise.evaluation.likelihood import bound_on
from unnoise.evaluation.page import write_report
from unnoise.latent import NormalCode, autoencoder
from unnoise.noise import NoiseSource
from unnoise.training import NonFinite, Run, Trainer, train
from unnoise.training.drawing import draw
from unnoise.training.filling import filled
from unnoise.training.models import asked
from unnoise.training.recipes import recipe
from unnoise.training.task import Task

SMALL = {"first_steps": 3, "latent": 2}
QUANTISED = {"first_steps": 3, "codes": 8, "width": 3}
OPTIONS = {
    "steps": 3,
    "batch_size": 8,
    "panels": 0,
    "validate_every": 100,
    "validation_draws": 1,
    "log_every": 1,
    "ema": (0.9,),
}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("data")
    rng = np.random.default_rng(0)
    image = rng.integers(0, 256, size=(40, 1, 1)) * np.linspace(0, 1, 196).reshape(14, 14)
    np.save(folder / "images.npy", image.astype(np.uint8))
    (folder / "text.txt").write_text("the cat sat on the mat. the dog ran. " * 40)
    rows = [f"{rng.normal():.3f},{'ab'[rng.integers(2)]},{'xyz'[rng.integers(3)]}" for _ in range(60)]
    (folder / "table.csv").write_text("\n".join(["n,c,d", *rows]) + "\n")
    return folder


def made(files, folder, name, model, options, schedule=None, **training):
    form, x0 = read(files / name, Reading(length=12) if name == "text.txt" else Reading())
    task = Task.of(form, schedule, asked(model, options, "tiny"))
    config = recipe(task, len(un.tree.first_leaf(x0)), "tiny", **{**OPTIONS, **training})
    return Run.create(folder, config, task=task), x0


CASES = {
    "images jointly": ("images.npy", "latent", SMALL, "learned"),
    "images by codes": ("images.npy", "vq", {**QUANTISED, "perceptual": 0.1, "adversarial": 0.1}, None),
    "text in two stages": ("text.txt", "latent", {**SMALL, "stage": "two"}, None),
    "text by codes": ("text.txt", "vq", {**QUANTISED, "noise": "uniform"}, None),
    "a table jointly": ("table.csv", "latent", {**SMALL, "share": 0}, None),
    "a table by codes": ("table.csv", "vq", {**QUANTISED, "places": 3}, None),
}


@pytest.mark.parametrize("name", CASES)
def test_a_model_is_trained_judged_and_drawn_from(files, tmp_path, name):
    data, model, options, schedule = CASES[name]
    run, x0 = made(files, tmp_path / "run", data, model, options, schedule)
    trainer = Trainer(run, x0)
    outcome = trainer.fit()
    assert outcome.step == 3 and outcome.best is not None and np.isfinite(outcome.best)
    denoiser = Run.open(tmp_path / "run").denoiser(which="best")
    settled = model == "vq" or options.get("stage") == "two"
    assert all(p.requires_grad != settled for p in trainer.learner.denoiser.code.parameters())
    watched = [line for line in map(json.loads, run.metrics.read_text().splitlines()) if "code_likelihood" in line]
    assert len(watched) >= 2
    assert f"{watched[-1]['code_likelihood']:.5g}" in write_report(run).read_text()
    x, _ = draw(denoiser, run.format(), 3, seed=0, steps=4)
    denoiser.space.check(x)
    run.format().write(x, tmp_path / f"samples{run.format().suffix}")
    few = un.tree.rows(x0, slice(0, 8))
    terms = un.bound(denoiser, few, seed=0, **{k: v for k, v in run.objective_options().items() if k == "cutoff"})
    assert set(terms.terms) - {"entropy"} == {"prior", "diffusion", "reconstruction", "likelihood"}
    assert ("entropy" in terms.terms) == (model == "latent")
    fixed = un.tree.map_leaves(lambda leaf: torch.zeros_like(leaf, dtype=torch.bool), few)
    with pytest.raises(ValueError, match="no coordinates of its states for single coordinates.*draw samples"):
        filled(denoiser, run.format(), few, fixed, 0)


def test_images_from_the_command_line(files, tmp_path, capsys):
    def command(*arguments, status=0):
        with pytest.raises(SystemExit) as stop, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            main([str(word) for word in arguments])
        found = capsys.readouterr()
        assert stop.value.code == status, found.err
        return found.err if status else found.out

    own = ("--set-model", "stage=two", "--set-model", "first_steps=2", "--set-model", "latent=2")
    common = ("--steps", 2, "--set", "panels=0", "--set", "validation_draws=1", "--json")
    out = tmp_path / "run"
    command("train", files / "images.npy", "--out", out, "--model", "latent", *own, *common)
    config = json.loads((out / "config.json").read_text())
    assert config["model"]["options"]["preset"] == "tiny" and config["train"]["weighting"] == "bound"
    command("train", "--resume", out, "--steps", 3, "--json")
    assert Run.open(out).load()[1]["step"] == 3
    told = command("infill", out, files / "images.npy", "--mark", 0, "--out", tmp_path / "filled.npy", status=2)
    assert "draw samples and keep those that fit" in told
    assert "choose from joint, two" in command(
        "train", files / "images.npy", "--out", out, "--model", "latent", "--set-model", "stage=three", status=2
    )
    few = ("--model", "vq", "--set-model", "codes=5000", *common)
    told = command("train", files / "images.npy", "--out", tmp_path / "few", *few, status=2)
    assert "5000 codes is larger than the data" in told and not (tmp_path / "few").exists()


def test_evaluation_reports_the_bound(files, tmp_path):
    run, x0 = made(files, tmp_path / "run", "text.txt", "vq", QUANTISED)
    train(run, x0)
    denoiser = run.denoiser(which="best")
    found = bound_on(denoiser, x0[:16], 2, 0)
    terms = un.bound(denoiser, x0[:16], seed=1)
    likelihood = float(terms["likelihood"].mean())
    assert found["reconstruction"] == pytest.approx(likelihood, rel=1e-6)  # a map: the same at every draw
    assert found["bound"] == pytest.approx(found["prior"] + found["diffusion"] + likelihood, rel=1e-6)


def weights(run):
    return run.load()[2]["weights"]


def same(one, other):
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_run_in_two_stages_goes_on_as_if_it_had_not_stopped(files, tmp_path, monkeypatch):
    """Cut between updates it goes on from there; cut in its first stage it begins that stage again."""
    made_run = {"data": "text.txt", "options": {**SMALL, "stage": "two"}}

    def fresh(name, **training):
        return made(files, tmp_path / name, made_run["data"], "latent", made_run["options"], decay="constant", **training)

    whole, x0 = fresh("whole", steps=4)
    train(whole, x0)
    part, _ = fresh("part", steps=2)
    train(part, x0)
    part.change(steps=4)
    train(Run.open(part.folder), x0)
    assert same(weights(part), weights(whole))
    cut, _ = fresh("cut", steps=4)
    steps = iter(range(10))

    def interrupted(self, step, done, generator):
        if next(steps) == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(NormalCode, "after", interrupted)
        Trainer(cut, x0)
    assert not cut.found()
    train(Run.open(cut.folder), x0)
    assert same(weights(cut), weights(whole))


def test_an_encoder_that_breaks_is_named_and_the_last_good_state_is_kept(files, tmp_path, monkeypatch):
    options = {**SMALL, "share": 0, "first_steps": 0}
    training = {"validation": 0.0, "save_every": 100, "log_every": 100, "decay": "constant"}
    whole, x0 = made(files, tmp_path / "whole", "text.txt", "latent", options, steps=2, **training)
    train(whole, x0)
    run, _ = made(files, tmp_path / "run", "text.txt", "latent", options, steps=5, **training)
    trainer, calls = Trainer(run, x0), iter(range(10))
    encoder = trainer.learner.denoiser.code.encoder
    encoder.register_forward_hook(lambda module, given, out: out * float("nan") if next(calls) == 2 else None)
    with pytest.raises(
        NonFinite, match="^the encoder of NormalCode returned nan for row 0.*at step 3 .*nothing was updated"
    ):
        trainer.fit()
    assert run.load()[1]["step"] == 2 and same(weights(run), weights(whole))
    assert json.loads((run.folder / "nonfinite.json").read_text())["step"] == 3


def test_where_values_are_not_read_the_encoder_is_named_afterwards(files, tmp_path, monkeypatch):
    """As on an accelerator, where nothing waits for the device: when the loss has said that something is wrong, codes are
    asked."""
    run, x0 = made(files, tmp_path / "run", "text.txt", "latent", {**SMALL, "share": 0}, validation=0.0)
    trainer = Trainer(run, x0)
    assert trainer._blamed() == ""
    with torch.no_grad():
        trainer.learner.denoiser.code.encoder.encoder.out.bias.fill_(float("nan"))
    assert trainer._blamed().startswith("the encoder of NormalCode returned nan for row 0")
    monkeypatch.setattr(autoencoder, "may_read", lambda x: False)
    assert trainer._blamed() == "the encoder of NormalCode returned what is not finite"


def test_what_is_wrong_with_a_code_is_said_once(files, tmp_path):
    run, x0 = made(files, tmp_path / "run", "text.txt", "latent", {**SMALL, "stage": "two"}, steps=4, validate_every=1)
    trainer = Trainer(run, x0)
    with torch.no_grad():  # it says nothing any more
        trainer.learner.denoiser.code.encoder.encoder.out.weight.zero_()
    with pytest.warns(UserWarning) as told:
        trainer.fit()
    assert [str(one.message) for one in told if "posterior collapse at step 1" in str(one.message)]
    assert sum("collapse" in str(one.message) for one in told) == 1


def test_options_are_looked_at(files, tmp_path):
    for options, told in (
        ({"latent": "many"}, "the option latent of the model 'latent' is 'many': it must be int"),
        ({"stage": "three"}, "stage = 'three': choose from joint, two"),
        ({"share": True}, "it must be float or nothing"),
        ({"codes": 3}, "has no option 'codes': choose from stage"),
        ({"latent": 0}, "one number at a place at least"),
        ({"perceptual": 1.0}, "compares images of numbers"),
    ):
        with pytest.raises(ValueError, match=told):
            made(files, tmp_path / "run", "text.txt", "latent", options)
    with pytest.raises(ValueError, match="noise = 'normal': choose from masking, uniform"):
        made(files, tmp_path / "run", "text.txt", "vq", {"noise": "normal"})


def test_joint_training_has_one_loss(files, tmp_path):
    """What is minimised is the mean of the bound's terms."""
    run, x0 = made(files, tmp_path / "run", "table.csv", "latent", {**SMALL, "share": 0}, steps=1, validation=0.0)
    trainer = Trainer(run, x0)
    objective = trainer.learner.model
    rows = torch.arange(8)
    terms = objective(trainer.source.take(rows), NoiseSource(0, rows))
    assert terms.is_bound and torch.equal(terms.loss, terms.total)
    trained = {id(p) for p in trainer.learner.optimiser.parameters}
    assert all(id(p) in trained for p in trainer.learner.denoiser.code.parameters())
