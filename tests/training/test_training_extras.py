"""Panels of samples on the way, schedules by name and learned, self-conditioned runs, and the command on two processes."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import small_run
import torch
from test_training_processes import free_port
from test_training_resume import cut_at, same_run

import unnoise as un
from unnoise.data import read
from unnoise.data.arrays import Array
from unnoise.evaluation.page import write_report
from unnoise.samplers import default_sampler
from unnoise.training import Run, panels, schedules, train
from unnoise.training.metrics import read_metrics
from unnoise.training.panels import Panels, panel_files
from unnoise.training.recipes import recipe
from unnoise.training.schedules import scheduled


@pytest.fixture
def points(tmp_path) -> Path:
    """Two numbers, far apart in scale and in two groups."""
    rng = np.random.default_rng(0)
    values = np.concatenate([rng.normal(size=(120, 2)) * [0.1, 2.0] + [1, 0], rng.normal(size=(120, 2)) * [0.2, 1.0] - 1])
    np.save(tmp_path / "points.npy", values)
    return tmp_path / "points.npy"


def small(path: Path, folder: Path, steps: int = 30, **options) -> tuple[Run, object]:
    form, x0 = read(path)
    common = {"steps": steps, "batch_size": 32, "log_every": 1, "save_every": 7, "validate_every": 10, "device": "cpu"}
    return Run.create(folder, recipe(form, len(x0), "tiny", **{**common, "tensorboard": False, **options})), x0


# panels


def test_panels_show_the_same_samples_on_the_way_and_change_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(panels, "SHARE", 100.0)  # as if drawing took no time
    options = {"steps": 16, "samples": 12, "sample_steps": 3, "lr": 0.1}
    runs = [small_run.make(tmp_path / str(count), panels=count, **options) for count in (0, 4)]
    for run in runs:
        train(run, small_run.rows())
    same_run(*runs, 16)
    assert not panel_files(runs[0].samples)
    shown = panel_files(runs[1].samples)
    assert [step for step, _ in shown] == [4, 8, 12, 16]
    plan = default_sampler(un.Masking(small_run.SIZE, (small_run.LENGTH,)), runs[1].config.train.sample_steps)
    x, _ = un.sample(runs[1].denoiser(), 12, plan.steps, sampler=plan.sampler, seed=0)
    assert json.loads(shown[-1][1].read_text())["letters"] == x.tolist()
    assert len({path.read_text() for _, path in shown}) > 2  # they change with the weights


def test_a_resumed_run_has_the_panels_of_an_unbroken_one(tmp_path, monkeypatch):
    monkeypatch.setattr(panels, "SHARE", 100.0)
    options = {"steps": 16, "save_every": 5, "samples": 4, "sample_steps": 3, "validate_every": 8}
    whole, cut = (small_run.make(tmp_path / name, **options) for name in ("whole", "cut"))
    train(whole, small_run.rows())
    cut_at(cut, 7, monkeypatch)
    assert [step for step, _ in panel_files(cut.samples)] == [2, 4, 6]  # and the last state is that of step 5
    (cut.samples / "000000011.json").write_text("of a step that never was")
    train(small_run.opened(cut.folder), small_run.rows())
    same_run(whole, cut, 16)
    texts = [[(step, path.read_text()) for step, path in panel_files(run.samples)] for run in (whole, cut)]
    assert texts[0] == texts[1] and len(texts[0]) == 8


def test_panels_keep_to_their_share_of_the_time(tmp_path):
    config = small_run.config(panels=8).train
    own = Panels(tmp_path, small_run.Letters(), config, 0, 0.0)
    assert not own.due(0.124, 10.0, False) and own.due(0.126, 10.0, False)
    own.spent = own.last = 0.6  # seconds that the first took
    assert not own.due(0.26, 20.0, False)  # 1.2 of 20 seconds are more than 5 %
    assert own.due(0.3, 24.1, False) and not own.due(0.31, 99.0, False)  # it waited until they were not
    assert own.due(0.32, 1.0, True)  # the last is always drawn
    assert not Panels(tmp_path, small_run.Letters(), small_run.config(panels=0).train, 0, 0.0).due(1.0, 9.0, True)


def test_the_report_shows_panels_in_order(tmp_path, monkeypatch, points):
    monkeypatch.setattr(panels, "SHARE", 100.0)
    images = (np.random.default_rng(0).random((60, 6, 6)) * 8).astype(np.uint8)
    np.save(tmp_path / "images.npy", images)
    run, x0 = small(tmp_path / "images.npy", tmp_path / "images", 6, panels=3, sample_steps=2, tensorboard=True)
    train(run, x0)
    files = panel_files(run.samples)
    assert [(step, path.suffix) for step, path in files] == [(2, ".png"), (4, ".png"), (6, ".png")]
    page = write_report(run, files[-1][1]).read_text()
    places = [page.index(f"<figcaption>step {step}</figcaption>") for step in (2, 4, 6)]
    assert places == sorted(places) and page.count("data:image/png;base64") == 4
    assert any(b"samples" in path.read_bytes() for path in (run.folder / "tensorboard").glob("events*"))
    run, x0 = small(points, tmp_path / "points", 4, panels=1, samples=3, sample_steps=2)
    train(run, x0)
    ((_, path),) = panel_files(run.samples)
    first = np.load(path)[0, 0]
    assert np.array2string(first, precision=4, suppress_small=True)[:5] in write_report(run).read_text()


# schedules


def test_a_learned_schedule_trains_resumes_and_is_sampled_with(tmp_path, monkeypatch, points):
    monkeypatch.setattr(schedules, "EVERY", 5)
    runs = []
    for name in ("whole", "cut"):
        run, x0 = small(points, tmp_path / name, 20, schedule="learned")
        runs.append(run)
    start = runs[0].denoiser_of_config().process.schedule
    train(runs[0], x0)
    with monkeypatch.context() as patch:
        patch.setattr(small_run, "rows", lambda: x0)
        cut_at(runs[1], 13, monkeypatch)
    train(Run.open(runs[1].folder), x0)
    losses = [[line["loss"] for line in read_metrics(run.metrics) if "loss" in line] for run in runs]
    assert losses[0] == losses[1] and len(losses[0]) == 20
    one, other = (Run.open(run.folder).denoiser() for run in runs)
    assert small_run.same(one.state_dict(), other.state_dict())
    moved = one.process.schedule
    assert float((moved.log_snr(0.5) - start.log_snr(0.5)).abs().detach()) > 0.05
    x, _ = un.sample(one, 20, 8, sampler=un.samplers.DDIM(), seed=0)
    other.process.schedule.load_state_dict(start.state_dict())
    y, _ = un.sample(other, 20, 8, sampler=un.samplers.DDIM(), seed=0)
    assert float((x - y).abs().max()) > 1e-3  # the schedule is that of the run, not the one it began with


def test_the_learned_schedule_lowers_the_variance_of_the_bound(tmp_path, monkeypatch, points):
    """With many rounds; the network is trained at the same time."""
    monkeypatch.setattr(schedules, "EVERY", 1)
    run, x0 = small(points, tmp_path / "run", 30, schedule="learned", validate_every=30, panels=0, ema=())
    train(run, x0)
    denoiser, options = run.denoiser(), run.objective_options()

    @torch.no_grad()
    def spread(denoiser) -> float:
        objective = un.Objective(denoiser, **options)
        return float(torch.cat([objective(x0, un.NoiseSource(i, len(x0))).diffusion for i in range(4)]).var())

    fitted = spread(denoiser)
    denoiser.process.schedule.load_state_dict(run.denoiser_of_config().process.schedule.state_dict())
    assert fitted < 0.8 * spread(denoiser)


def test_leaves_of_numbers_have_schedules_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(schedules, "EVERY", 2)
    config = small_run.config(small_run.Pairs(2.0), steps=6)
    config.schedule = "learned"
    run = Run.create(tmp_path / "run", config, small_run.FORMATS)
    train(run, small_run.pairs())
    process = run.denoiser(ema=False).process
    assert isinstance(process.leaves["letters"].schedule, un.schedules.Linear)
    begun, ended = (dict(each.named_parameters()) for each in (run.denoiser_of_config().process, process))
    assert len(begun) == 6 and all(not torch.equal(p, ended[name]) for name, p in begun.items())


def test_a_schedule_by_name_begins_the_bound_at_the_same_noise():
    form = Array(shape=[4, 4], dtype="uint8", levels=16)
    own, options = form.process(), form.objective_options()
    level = float(own.schedule.log_snr(options["cutoff"]))
    for name, expected in (("linear", un.schedules.Linear), ("cosine", un.schedules.Cosine)):
        process, given = scheduled(own, name, options)
        assert type(process.schedule) is expected and process.space.shape == (4, 4)
        assert float(process.schedule.log_snr(given["cutoff"])) == pytest.approx(level)
        assert given["decoder"] is options["decoder"]
    process, given = scheduled(own, "learned", options)
    assert given["cutoff"] == 0.0 and float(process.schedule.log_snr(0.0).detach()) == pytest.approx(level)
    assert type(given["times"]) is un.Stratified


def test_schedules_that_make_no_sense_are_refused(tmp_path):
    (tmp_path / "a.txt").write_text("abab baba " * 60)
    with pytest.raises(
        ValueError, match="this data has no numbers under Gaussian noise, as schedules by name are for, but Masking"
    ):
        small(tmp_path / "a.txt", tmp_path / "run", schedule="learned")
    with pytest.raises(ValueError, match="'steep': choose from linear, cosine"):
        scheduled(un.Gaussian((1,)), "steep", {})


# self-conditioning


def test_half_of_the_updates_make_one_pass(tmp_path, points):
    run, x0 = small(points, tmp_path / "run", 6, self_condition=True, panels=0, validation=0.0)
    assert run.config.network["options"]["self_condition"] is True
    trainer = un.training.Trainer(run, x0)
    network, counts = trainer.learner.denoiser.network, []
    update = trainer.learner.update

    def counted(*arguments):
        counts.append(0)
        update(*arguments)

    trainer.learner.update = counted
    hook = network.register_forward_hook(lambda *_: counts.__setitem__(-1, counts[-1] + 1))
    trainer.fit()
    hook.remove()
    assert counts == [2, 1, 2, 1, 2, 1]
    opened = Run.open(run.folder).denoiser()
    assert opened.self_condition and opened.passes == 2
    t, x = torch.full((4,), 0.5), torch.randn(4, 2)
    first = opened.network(x, t)
    assert float((opened(x, t).value - first).abs().max()) > 1e-5


@pytest.mark.parametrize("kind", ["table", "text"])
def test_every_kind_of_data_can_be_self_conditioned(tmp_path, kind):
    path = tmp_path / ("a.csv" if kind == "table" else "a.txt")
    lines = "".join(f"{('x', 'y')[i % 2]},{i % 2 + 0.01 * i},{i % 3}\n" for i in range(80))
    path.write_text("name,size,count\n" + lines if kind == "table" else "abba abab baba " * 80)
    form, x0 = read(path)
    rows = un.tree.batch_size(x0)
    options = {"steps": 8, "batch_size": min(16, rows // 2), "device": "cpu", "tensorboard": False, "panels": 0}
    run = Run.create(tmp_path / "run", recipe(form, rows, "tiny", self_condition=True, **options))
    train(run, x0)
    denoiser, plan = run.denoiser(), default_sampler(form.process(), 4)
    x, _ = un.sample(denoiser, 4, plan.steps, sampler=plan.sampler, seed=0)
    form.write(x, tmp_path / f"out{form.suffix}")
    moved = [p for name, p in denoiser.network.named_parameters() if "previous" in name]
    begun = [p for name, p in run.denoiser_of_config().network.named_parameters() if "previous" in name]
    assert moved and all(not torch.equal(p, q) for p, q in zip(moved, begun, strict=True))


# the command on several processes


def command(folder: Path, *arguments: object, world: int, status: int = 0) -> list[tuple[str, str]]:
    """What each process printed, and what it said on stderr."""
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": str(world), "OMP_NUM_THREADS": "1"}
    children = []
    for rank in range(world):
        own = {**shared, "RANK": str(rank), "LOCAL_RANK": str(rank), "ACCELERATE_USE_CPU": "true"}
        children.append(
            subprocess.Popen(
                [sys.executable, "-m", "unnoise.cli", *map(str, arguments)],
                env={**os.environ, **own},
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )
        )
    told = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [status] * world, told
    return told


@pytest.mark.conformance
def test_the_command_on_two_processes_is_that_on_one(points):
    folder, options = points.parent, ("--steps", 6, "--batch-size", 32, "--device", "cpu")
    form, x0 = read(points)
    one = Run.create(folder / "one", recipe(form, len(x0), steps=6, batch_size=32, device="cpu"))
    train(one, x0)
    one.change(steps=8)
    train(one, x0)
    (main, _), (other, _) = command(folder, "train", points, "--out", "two", *options, world=2)
    assert main.count("240 examples of") == 1 and main.count("the run is in") == 1 and other == ""
    assert (folder / "two" / "report.html").exists()
    command(folder, "train", "--resume", "two", "--steps", 8, world=2)  # each has its own random state back
    ours, theirs = (read_metrics(folder / name / "metrics.jsonl") for name in ("one", "two"))
    assert len(ours) == len(theirs) > 0
    for line, same in zip(ours, theirs, strict=True):
        for name in ("step", "loss", "validation_bound", "grad_norm"):
            assert name not in line or same[name] == pytest.approx(line[name], rel=1e-5), (line["step"], name)
    errors = [said for _, said in command(folder, "train", points, "--out", "two", *options, world=2, status=2)]
    assert "two is there already" in errors[0] and "Traceback" not in errors[0] + errors[1] and "unnoise:" not in errors[1]
