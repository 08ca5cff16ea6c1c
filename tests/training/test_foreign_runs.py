"""Folders that are not as they were left: foreign, damaged, unreadable, or written to by two at once."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import small_run
import torch

from unnoise.evaluation.page import write_report
from unnoise.training import safe_files
from unnoise.training.metrics import Metrics, read_metrics
from unnoise.training.safe_files import RunError
from unnoise.training.trainer import Trainer, train

NUMBERS = {"step": 0, "epoch": 0, "position": 0, "waited": 0, "rows": 200, "seconds": 0.5, "best": None}


def save(run, step, **options):
    state = {name: torch.full_like(p, float(step)) for name, p in run.denoiser_of_config().state_dict().items()}
    parts = {"weights": state, "ema-0.9": state, "ema-0.99": state, "optimizer": {}, "rng": {}}
    return run.save(step, {**NUMBERS, "step": step}, parts, **options)


def renewed(state):
    """The manifest of what is in a state's folder now: as one who means harm would write it."""
    path = state.folder / "manifest.json"
    files = [file for file in state.folder.iterdir() if file != path]
    facts = {file.name: {"bytes": file.stat().st_size, "sha256": safe_files.digest(file)} for file in files}
    path.write_text(json.dumps({"files": facts}))


def test_what_cannot_be_read_now_is_not_taken_for_damaged(tmp_path, monkeypatch):
    run = small_run.make(tmp_path / "run")
    save(run, 1)
    save(run, 2)
    read_text = Path.read_text

    def refused(path, *args, **kwargs):
        if path.name == "manifest.json" and "000000002" in str(path):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return read_text(path, *args, **kwargs)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "read_text", refused)
        with pytest.raises(PermissionError, match="manifest.json"):
            run.load()
    assert [state.step for state in run.found()] == [1, 2] and run.load()[1]["step"] == 2


def test_damaged_states_are_set_aside(tmp_path):
    run = small_run.make(tmp_path / "run")
    first, second = save(run, 1), save(run, 2)
    content = (second.folder / "optimizer.safetensors").read_bytes()
    (second.folder / "weights.safetensors").write_bytes(b"")
    for _ in range(2):  # the second time it takes the place of the first
        with pytest.warns(UserWarning, match="falling back"):
            state, numbers, _ = run.load()
        assert state.step == numbers["step"] == 1
        run.drop_after(state)
        assert [state.folder for state in run.found()] == [first.folder]
        assert (run.states / "damaged-000000002-0" / "optimizer.safetensors").read_bytes() == content
        (save(run, 2).folder / "weights.safetensors").write_bytes(b"")


@pytest.mark.parametrize("text", ["{", "[]", '{"improved": "yes"}'])
def test_the_best_state_is_the_newest_that_was_marked(tmp_path, text):
    run = small_run.make(tmp_path / "run", keep=2)
    assert run.best() is None
    for step in (1, 2, 3, 4):
        save(run, step, best=step in (1, 2))
    assert run.best().step == 2 and run.load(which="best")[1]["improved"] is True
    (run.states / "000000002-0" / "state.json").write_text(text)
    assert run.best() is None
    save(run, 5)  # goes on all the same
    save(run, 6, best=True)
    assert [state.step for state in run.found()] == [5, 6] and run.best().step == 6


def garbage(folder):
    (folder / "weights.safetensors").write_bytes(b"garbagegarbage")


def without(name):
    return lambda folder: (folder / name).unlink()


def numbers(text):
    return lambda folder: (folder / "state.json").write_text(text)


BROKEN = {
    "cannot be read as tensors": garbage,
    "lacks weights.safetensors": without("weights.safetensors"),
    "lacks optimizer.safetensors": without("optimizer.safetensors"),
    "lacks rng.safetensors": without("rng.safetensors"),
    "lacks ema-0.99.safetensors": without("ema-0.99.safetensors"),
    "lacks state.json": without("state.json"),
    "no object": numbers("[]"),
    "does not say step, epoch, position, waited, rows, seconds, best": numbers("{}"),
    "does not say position, best;": numbers(json.dumps({**NUMBERS, "position": 1.5, "best": "low"})),
    "cannot be read as JSON": numbers("[" * 100_000),
}


@pytest.mark.parametrize("match", BROKEN)
def test_a_state_with_right_sums_and_wrong_content_is_damaged(tmp_path, match):
    run = small_run.make(tmp_path / "run")
    save(run, 1)
    second = save(run, 2)
    BROKEN[match](second.folder)
    renewed(second)
    with pytest.warns(UserWarning, match=match):
        assert run.load()[1]["step"] == 1


@pytest.mark.parametrize("facts", [3, None, [], "x"])
def test_manifests_without_facts_are_damaged(tmp_path, facts):
    run = small_run.make(tmp_path / "run")
    path = save(run, 1).folder / "manifest.json"
    path.write_text(json.dumps({"files": dict.fromkeys(json.loads(path.read_text())["files"], facts)}))
    with pytest.warns(UserWarning, match="does not say how"), pytest.raises(RunError, match="all damaged"):
        run.load()


def test_configurations_beyond_all_bounds_are_one_line(tmp_path):
    run = small_run.make(tmp_path / "run")
    path, kept = run.folder / "config.json", json.loads((run.folder / "config.json").read_text())
    path.write_text("[" * 100_000)
    with pytest.raises(RunError, match="recursion"):
        small_run.opened(run.folder)
    deep = json.dumps(kept).replace('"predicts": "Posterior"', '"predicts": ' + '{"a": ' * 900 + "null" + "}" * 900)
    path.write_text(deep)
    with pytest.raises(RunError, match="recursion"):
        small_run.opened(run.folder)
    path.write_text(json.dumps({**kept, "network": {"name": "Small", "options": {"width": 10**15}}}))
    with pytest.raises(RunError, match="the network Small of .* cannot be built") as error:
        small_run.opened(run.folder).denoiser_of_config()
    assert "\n" not in str(error.value)


def test_a_full_disk_is_an_error_of_the_system_and_loses_nothing(tmp_path):
    resource = pytest.importorskip("resource")
    run = small_run.make(tmp_path / "run")
    save(run, 1)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (512, hard))
    try:
        with pytest.raises(OSError, match="safetensors cannot be written"):
            save(run, 2)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert run.load()[1]["step"] == 1 and save(run, 3).load(["weights"])[0]["step"] == 3


@pytest.mark.parametrize("name", [".saving-config.json", "config.json"])
def test_links_are_replaced_and_not_followed(tmp_path, name):
    victim = tmp_path / "victim"
    run = small_run.make(tmp_path / "run")
    victim.write_bytes((run.folder / "config.json").read_bytes())
    before = victim.read_bytes()

    def linked(name):
        (run.folder / name).unlink(missing_ok=True)
        (run.folder / name).symlink_to(victim)

    linked(name)
    small_run.opened(run.folder).change(steps=77)
    assert small_run.opened(run.folder).config.train.steps == 77 and victim.read_bytes() == before
    for other in (name.replace("config.json", "report.html"), name.replace("config.json", "metrics.jsonl")):
        linked(other)
    Metrics(run.metrics, 0, None, False, False).close()
    write_report(run)
    assert run.metrics.read_text() == "" and run.report.read_text().startswith("<!doctype html>")
    assert victim.read_bytes() == before and not run.metrics.is_symlink() and not run.report.is_symlink()
    (run.states / ".saving-000000001-0").symlink_to(tmp_path)
    save(run, 1)
    assert victim.read_bytes() == before and run.found()[0].step == 1


def test_a_lock_is_not_reached_through_a_link(tmp_path):
    run = small_run.make(tmp_path / "run")
    (run.folder / safe_files.LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError), run.locked():
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_lines_of_metrics_without_a_step_are_left_out(tmp_path):
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"step": "1"}\n' + "[" * 100_000 + '\n{"step": 2, "loss": 3.0}\n[]\n')
    assert read_metrics(path) == [{"step": 2, "loss": 3.0}]


def test_one_training_writes_at_a_time(tmp_path):
    run, other = small_run.make(tmp_path / "run"), small_run.opened(tmp_path / "run")
    with run.locked():
        with pytest.raises(RunError, match="another training is writing to .*run: wait for it or stop it"), other.locked():
            pass
        with pytest.raises(RunError, match="another training"):
            other.change(steps=3)
        assert small_run.opened(run.folder).config.train.steps == run.config.train.steps == 40
    other.change(steps=3)
    assert small_run.opened(run.folder).config.train.steps == 3


HOLDING = """
import os, sys, time
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

sys.path.append(str(Path(sys.argv[1]).parents[2]))  # of what it imports, which needs no package from elsewhere
spec = spec_from_file_location("safe_files", sys.argv[1])
safe_files = module_from_spec(spec)
spec.loader.exec_module(safe_files)
with safe_files.locked(Path(sys.argv[2])):
    worker = os.fork()
    if worker:
        print(worker, flush=True)
    time.sleep(60)
"""


def test_a_lock_ends_with_its_process_though_its_workers_live(tmp_path):
    pytest.importorskip("fcntl")
    run = small_run.make(tmp_path / "run")
    command = [sys.executable, "-S", "-c", HOLDING, safe_files.__file__, str(run.folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        worker = int(child.stdout.readline())
        try:
            with pytest.raises(RunError, match="another training is writing"), run.locked():
                pass
            child.kill()
            assert child.wait() == -signal.SIGKILL
            os.kill(worker, 0)  # it is still there
            with run.locked():
                pass
        finally:
            os.kill(worker, signal.SIGKILL)


def test_a_second_training_is_refused_and_the_first_goes_on(tmp_path, monkeypatch):
    run, update = small_run.make(tmp_path / "run", steps=10), Trainer._update

    def disturbed(self, stream):
        if self.step == 7:
            with pytest.raises(RunError, match="another training is writing"):
                train(small_run.opened(run.folder), small_run.rows())
        update(self, stream)

    monkeypatch.setattr(Trainer, "_update", disturbed)
    assert train(run, small_run.rows()).step == 10
    assert list(small_run.losses(run.folder)) == list(range(1, 11))
