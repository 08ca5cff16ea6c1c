"""A run that was cut short and goes on is the run that was never cut, bit for bit."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import small_run
import torch

import unnoise as un
from unnoise.training import RunError, trainer
from unnoise.training.trainer import Trainer, train


class Cut(Exception):
    pass


def cut_at(run, step, monkeypatch):
    """Train until just before the update after a step, as if killed there."""
    update = Trainer._update

    def stop(self, stream):
        if self.step == step:
            raise Cut
        update(self, stream)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_update", stop)
        with pytest.raises(Cut):
            train(run, small_run.rows())


def drawn(run):
    return un.sample(run.denoiser(), 8, 12, seed=3)[0]


def same_run(one, other, steps):
    assert list(small_run.losses(one.folder)) == list(range(1, steps + 1))
    assert small_run.losses(one.folder) == small_run.losses(other.folder)
    for ema in (False, 0.9, 0.99):
        assert small_run.same(small_run.weights(one, ema), small_run.weights(other, ema))
    assert small_run.same(drawn(one), drawn(other))


@pytest.mark.parametrize("workers", [0, 1])
def test_runs_cut_in_the_middle_of_epochs_go_on_bit_for_bit(tmp_path, monkeypatch, workers):
    options = {"steps": 66, "save_every": 7, "accumulate": 2 if workers else 1, "workers": workers}
    whole = small_run.make(tmp_path / "whole", **options)
    outcome = train(whole, small_run.rows())
    assert (outcome.reason, outcome.step, outcome.epoch) == ("steps", 66, 13)  # 180 rows, 5 batches of 32 in an epoch
    cut = small_run.make(tmp_path / "cut", **options)
    for step in (3, 16) if workers == 0 else (16,):  # before any save; between saves
        cut_at(cut, step, monkeypatch)
    train(small_run.opened(tmp_path / "cut"), small_run.rows())
    same_run(whole, cut, 66)


def test_workers_change_nothing(tmp_path):
    runs = [small_run.make(tmp_path / str(workers), steps=12, workers=workers) for workers in (0, 2)]
    for run in runs:
        train(run, small_run.rows())
    same_run(*runs, 12)


def test_a_killed_process_goes_on_bit_for_bit(tmp_path):
    options = {"steps": 120, "save_every": 10, "validate_every": 50}
    cut, whole = small_run.make(tmp_path / "cut", **options), small_run.make(tmp_path / "whole", **options)
    child = subprocess.Popen(
        [sys.executable, small_run.__file__, str(cut.folder)], env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    until = time.monotonic() + 60
    while not cut.found() and child.poll() is None and time.monotonic() < until:
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    assert child.wait() == -signal.SIGKILL  # it had not ended by itself
    saved = cut.found()[-1].step
    assert 0 < saved <= 70
    for run in (whole, cut):
        assert train(small_run.opened(run.folder), small_run.rows()).step == 120
    same_run(whole, cut, 120)


def test_an_end_asked_for_saves_first(tmp_path, monkeypatch):
    run = small_run.make(tmp_path / "run", save_every=1000)
    update, before = Trainer._update, signal.getsignal(signal.SIGINT)

    def ask(self, stream):
        update(self, stream)
        if self.step == 13:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(trainer.Trainer, "_update", ask)
        outcome = train(run, small_run.rows())
    assert (outcome.reason, outcome.step, run.found()[-1].step) == ("interrupted", 13, 13)
    assert signal.getsignal(signal.SIGINT) is before
    whole = small_run.make(tmp_path / "whole", save_every=1000)
    for each in (run, whole):
        train(each, small_run.rows())
    same_run(whole, run, 40)


def test_a_finished_run_stays_and_can_be_given_more_steps(tmp_path):
    run = small_run.make(tmp_path / "run", steps=10)
    train(run, small_run.rows())
    before = sorted(path.name for path in run.states.iterdir())
    assert train(small_run.opened(run.folder), small_run.rows()).step == 10
    assert sorted(path.name for path in run.states.iterdir()) == before
    run.change(steps=15, lr=0.001)
    assert train(small_run.opened(run.folder), small_run.rows()).step == 15
    with pytest.raises(RunError, match="trained on 200 rows, and the data now has 150"):
        train(run, small_run.rows(150))
    with pytest.raises(ValueError, match="seed = 5, but the run began with 0"):
        run.change(seed=5)


def test_the_random_state_outside_is_left_alone(tmp_path):
    before = torch.get_rng_state()
    train(small_run.make(tmp_path / "run", steps=3), small_run.rows())
    assert torch.equal(before, torch.get_rng_state())
    assert not list(Path(tmp_path / "run").glob("**/*.pt"))
