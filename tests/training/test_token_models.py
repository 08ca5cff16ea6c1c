"""Models of sequences by vectors, by name: trained a little, resumed, drawn from, filled, and what is refused."""

from pathlib import Path

import pytest
import torch

import unnoise as un
from unnoise.data.read import read_source
from unnoise.data.reading import Reading
from unnoise.objectives import BandTimes
from unnoise.training.drawing import draw
from unnoise.training.filling import filled
from unnoise.training.learner import objective_of
from unnoise.training.models import MODELS, model_options
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.task import Task
from unnoise.training.token_models import widened
from unnoise.training.trainer import Trainer

SMALL = {"width": 16, "heads": 2, "layers": 1}
QUICK = {"steps": 2, "batch_size": 8, "panels": 0, "validation_rows": 8, "validation_draws": 1, "device": "cpu"}
QUICK |= {"tensorboard": False, "warmup": 0}
NAMES = ("analog-bits", "simplex", "cir", "embedding")


@pytest.fixture(scope="module")
def words(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("text") / "words.txt"
    path.write_text("abacab " * 60)
    return path


def run_of(words, folder, model, options=None, schedule=None, self_condition=False, **settings):
    format, x0, _ = read_source(words, Reading(length=8))
    task = Task.of(format, schedule, {"name": model, "options": options or {}})
    config = recipe(task, len(x0), "tiny", self_condition=self_condition, network_options=SMALL, **{**QUICK, **settings})
    return Run.create(folder, config, task=task), x0


CASES = {
    "analog bits, shown its estimate": ("analog-bits", {}, None, True, "bound"),
    "simplex by cross-entropy": ("simplex", {"scale": 0.8}, None, False, "cross_entropy"),
    "cir, shown its estimate": ("cir", {}, None, True, "bound"),
    "cir by cross-entropy": ("cir", {"height": 2.0}, None, False, "cross_entropy"),
    "embedding, time learned": ("embedding", {"width": 4}, "learned", False, "bound"),
    "embedding, all published choices": ("embedding", {"width": 4}, "learned", True, "cross_entropy"),
    "from the left": ("analog-bits", {"order": "left", "spread": 2.0}, None, False, "bound"),
}


@pytest.mark.parametrize("case", CASES)
def test_a_run_of_every_kind(words, tmp_path, case):
    """Trains, loads to the same bound, draws data, and fills gaps in text of another length than a window's."""
    model, options, schedule, twice, weighting = CASES[case]
    run, x0 = run_of(words, tmp_path / "run", model, options, schedule, twice, weighting=weighting)
    outcome = Trainer(run, x0).fit()
    assert outcome.step == 2 and outcome.best is not None and outcome.best == outcome.best
    again = Run.open(tmp_path / "run")
    denoiser, format = again.denoiser(), again.format()
    first = un.bound(denoiser, x0[:4], seed=0, **again.objective_options()).total
    other = un.bound(Run.open(tmp_path / "run").denoiser(), x0[:4], seed=0, **again.objective_options()).total
    assert torch.equal(first, other) and bool(first.isfinite().all())
    assert denoiser.end == un.Objective(denoiser, **again.objective_options()).cutoff  # samples are of the model bounded
    x, _ = draw(denoiser, format, 3, steps=4, seed=0)
    assert x.dtype == torch.int64 and x.shape == (3, 8) and int(x.max()) < denoiser.space.size
    text = words.parent / "gaps.txt"
    text.write_text("abacab a__cab abacab")
    gaps, fixed = format.gaps(text, None)
    whole, _, left = filled(denoiser, format, gaps, fixed, 0, steps=4, rounds=2)
    assert left == 0 and torch.equal(whole[fixed], gaps[fixed]) and int(whole[~fixed].max()) < denoiser.space.size


def test_resumed_is_the_same(words, tmp_path):
    """Learned vectors are part of the state: one update and one more are two."""
    whole, x0 = run_of(words, tmp_path / "whole", "embedding", {"width": 4}, steps=2, decay="constant")
    Trainer(whole, x0).fit()
    part, _ = run_of(words, tmp_path / "part", "embedding", {"width": 4}, steps=1, decay="constant")
    Trainer(part, x0).fit()
    part.change(steps=2)
    Trainer(Run.open(tmp_path / "part"), x0).fit()
    one, other = (Run.open(tmp_path / name).denoiser(ema=False) for name in ("whole", "part"))
    assert torch.equal(one.code.raw, other.code.raw)
    start = run_of(words, tmp_path / "start", "embedding", {"width": 4})[0].denoiser_of_config()
    assert not torch.equal(one.code.raw, start.code.raw)


def test_times_follow_the_code_and_the_choice_of_training(words, tmp_path):
    run, _ = run_of(words, tmp_path / "run", "analog-bits")
    denoiser = run.denoiser_of_config()
    assert isinstance(un.Objective(denoiser, **run.objective_options()).times, BandTimes)
    config = run.config.train
    config.weighting = "cross_entropy"
    assert isinstance(objective_of(denoiser, config, run.objective_options()).times, un.Stratified)


def test_a_learned_schedule_begins_where_vectors_are_told_apart(words):
    format = read_source(words, Reading(length=8))[0]
    task = Task.of(format, "learned", {"name": "analog-bits", "options": {}})
    assert task.options["cutoff"] == 0.0 and task.code().cutoff == 0.0
    assert float(task.process.schedule.high.detach()) == pytest.approx(float(torch.tensor(25.0).log()), abs=1e-6)


def test_the_left_is_noised_last(words):
    format = read_source(words, Reading(length=8))[0]
    task = Task.of(format, None, {"name": "analog-bits", "options": {"order": "left", "spread": 2.0}})
    level = task.process.schedule.log_snr(torch.tensor(0.5, dtype=torch.float64))
    assert torch.allclose(level[:, 0], torch.linspace(2, -2, 8, dtype=torch.float64))
    last = task.process.schedule.log_snr(torch.tensor(task.options["cutoff"], dtype=torch.float64))[-1, 0]
    assert float(last) == pytest.approx(float(torch.tensor(25.0).log()), abs=1e-6)  # the last position is told apart too


def test_a_widened_band_is_the_mean_over_positions():
    levels, weights = torch.linspace(3.0, -3.0, 65, dtype=torch.float64), torch.ones(64, dtype=torch.float64)
    wide, mean = widened(levels, weights, 2.0)
    assert float(wide[0]) == 5 and float(wide[-1]) == -5
    middle = (wide[1:] + wide[:-1]) / 2
    wanted = ((3 - middle.abs() + 2) / 4).clamp(0, 1)
    assert float((mean - wanted).abs().max()) < 0.05


def test_what_does_not_fit_is_refused(words, tmp_path):
    assert set(NAMES) <= set(MODELS) and model_options("embedding")["width"] == 16
    format = read_source(words, Reading(length=8))[0]
    for model, options, match in (
        ("analog-bits", {"order": "right"}, "choose from none, left"),
        ("simplex", {"order": "left", "spread": 40.0}, "spread = 40"),
        ("analogbits", {}, "analog-bits"),
        ("cir", {"scale": 2.0}, "has no option 'scale'"),
    ):
        with pytest.raises(ValueError, match=match):
            Task.of(format, None, {"name": model, "options": options})
    with pytest.raises(ValueError, match="leave it out"):
        Task.of(format, "learned", {"name": "cir", "options": {}})
    with pytest.raises(ValueError, match="schedules of their own: leave it out"):
        Task.of(format, "learned", {"name": "embedding", "options": {"order": "left"}})
    run, _ = run_of(words, tmp_path / "run", "analog-bits")
    with pytest.raises(ValueError, match="a file with gaps, for unnoise infill"):
        draw(run.denoiser_of_config(), format, 1, given={"first": "a"})
