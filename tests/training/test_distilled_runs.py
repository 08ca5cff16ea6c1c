"""Distilled runs: what they keep of their teacher, how they are sampled, and that they go on exactly."""

import shutil

import pytest
import small_run
import torch
from small_run import Pairs, make, opened, pairs, same

import unnoise as un
from unnoise.training import RunConfig, RunError, train
from unnoise.training.distilling import TEACHER, begun
from unnoise.training.tensor_files import read_tensors

SETTINGS = {"steps": 6, "save_every": 1, "keep": 10, "log_every": 1, "panels": 0, "ema": [0.5]}


@pytest.fixture(scope="module")
def teacher(tmp_path_factory):
    run = make(
        tmp_path_factory.mktemp("runs") / "teacher",
        Pairs(2.0),
        steps=8,
        panels=0,
        predicts={"number": un.Velocity, "letters": un.Posterior},
    )
    train(run, pairs())
    return run


def student(teacher, folder, **options):
    return begun(teacher, folder, "consistency", 3, {"rounds": 3, "delta": 1 / 16, **options}, SETTINGS)


def test_a_run_that_was_cut_short_goes_on_exactly(teacher, tmp_path):
    """Through two rounds: the teacher of a round is saved with the state."""
    whole, cut = student(teacher, tmp_path / "whole"), student(teacher, tmp_path / "cut")
    outcome = train(whole, pairs())
    assert outcome.best is None and outcome.step == 6
    train(cut, pairs())
    for state in cut.found():
        if state.step > 3:
            shutil.rmtree(state.folder)
    assert train(opened(tmp_path / "cut"), pairs()).step == 6
    for which in (False, 0.5):
        assert same(small_run.weights(whole, which), small_run.weights(opened(tmp_path / "cut"), which))
    kept = [run.load(["teacher"])[2]["teacher"] for run in (whole, cut)]
    assert same(*kept) and int(kept[0]["round"]) == 2
    first = next(state for state in whole.found() if state.step == 1).load(["teacher"])[1]["teacher"]
    changed = [name for name in first if name.startswith("before.") and not torch.equal(first[name], kept[0][name])]
    assert changed  # what is saved is another teacher than the first
    original = {name.removeprefix("teacher."): v for name, v in first.items() if name.startswith("teacher.")}
    assert same(original, read_tensors(whole.folder / TEACHER))


def test_it_begins_as_its_teacher_and_is_sampled_in_its_own_steps(teacher, tmp_path):
    run = begun(
        teacher, tmp_path / "run", "consistency", 3, {"rounds": 1, "delta": 0.1}, {**SETTINGS, "lr": 1e-12, "warmup": 0}
    )
    train(run, pairs())
    mine, theirs = run.denoiser(which="best"), teacher.denoiser(which="best")
    for name, value in theirs.state_dict().items():
        torch.testing.assert_close(mine.state_dict()[name], value, rtol=0, atol=1e-9)
    assert mine.plan.steps == 3 and theirs.plan is None
    assert un.sample(mine, 4, seed=0)[1].calls in (3, 4)
    assert run.no_bound is not None and teacher.no_bound is None
    assert run.config.distilled["from"] == str(teacher.folder.resolve())
    assert opened(tmp_path / "run").config.to_json() == run.config.to_json()
    with pytest.raises(RunError, match="is itself distilled"):
        begun(run, tmp_path / "more")


def test_what_is_refused(teacher, tmp_path):
    with pytest.raises(ValueError, match="method = 'other'"):
        begun(teacher, tmp_path / "run", "other")
    with pytest.raises(ValueError, match="leaf 'letters' is noised by Masking"):
        begun(teacher, tmp_path / "run", "progressive")
    with pytest.raises(ValueError, match="no option 'gap'"):
        begun(teacher, tmp_path / "run", "consistency", 4, {"gap": 1})
    assert not (tmp_path / "run").exists()
    said = {**teacher.config.to_json(), "distilled": {"from": "x", "method": "consistency", "steps": 0, "options": {}}}
    with pytest.raises(ValueError, match="steps = 0"):
        RunConfig.from_json(said)
