"""A run on disk: saves are whole or not there, damage is noticed, and nothing untrusted is built or read."""

import json
import os
import shutil

import pytest
import small_run
import torch

from unnoise.training import safe_files
from unnoise.training.safe_files import RunError


class Killed(BaseException):
    pass


def parts(run, value):
    state = {name: torch.full_like(p, value) for name, p in run.denoiser_of_config().state_dict().items()}
    return {"weights": state, "ema-0.9": state, "ema-0.99": state}


def save(run, step, **options):
    return run.save(step, {"step": step}, parts(run, float(step)), **options)


def loaded(run) -> float:
    """The step whose weights are found."""
    step, numbers, tensors = run.load(["weights"])
    value = float(tensors["weights"]["body.0.bias" if "body.0.bias" in tensors["weights"] else "network.body.0.bias"][0])
    assert value == numbers["step"] == step.step
    return value


def killing(patch, at):
    """Every call that touches the disk is counted; at number `at` the program dies there, before or after the act."""
    count = 0

    def around(module, name, after):
        real = getattr(module, name)

        def act(*args, **kwargs):
            nonlocal count
            count += 1
            if count == at and not after:
                raise Killed
            result = real(*args, **kwargs)
            if count == at and after:
                raise Killed
            return result

        patch.setattr(module, name, act)

    for module, name, after in ((os, "rename", True), (os, "rename", False), (os, "fsync", False), (os, "link", True)):
        around(module, name, after)
    around(shutil, "rmtree", False)
    around(safe_files, "digest", False)
    around(os, "unlink", True)


def test_a_kill_during_a_save_loses_nothing_but_that_save(tmp_path, monkeypatch):
    run = small_run.make(tmp_path / "run", keep=1)
    save(run, 1)
    step, results = 1, []
    for at in range(1, 100):
        with monkeypatch.context() as patch:
            killing(patch, at)
            try:
                save(run, step + 1, best=True)
                killed = False
            except Killed:
                killed = True
        found = loaded(small_run.opened(run.folder))
        assert found in (step, step + 1)  # the old or the new, and whole
        best = small_run.opened(run.folder).best()
        assert best.step == found if best else found == 1  # what is saved is marked, in the same act
        assert small_run.opened(run.folder).denoiser(which="best") is not None
        results.append((killed, found == step))
        step = int(found)
        if not killed:
            break
    assert not killed and len(results) > 15
    assert {kept for dead, kept in results if dead} == {True, False}  # deaths before and after the new name
    save(run, step + 1)
    assert not [path for path in run.states.iterdir() if path.name.startswith(".")]  # what the kills left is gone


def test_the_last_good_states_and_the_best_are_kept(tmp_path):
    run = small_run.make(tmp_path / "run", keep=2)
    for step in (1, 2, 3, 4):
        save(run, step, best=step == 2)
    assert [state.step for state in run.found()] == [2, 3, 4]
    assert run.best().step == 2
    value = next(run.denoiser(which="best").parameters())
    assert bool((value == 2).all())
    save(run, 4)  # once more: beside the other, never in its place
    assert [state.order for state in run.found()] == [(2, 0), (4, 0), (4, 1)]
    published = safe_files.digest(run.folder / "weights.safetensors")
    assert published == safe_files.digest(run.found()[-1].folder / "weights.safetensors")


@pytest.mark.parametrize("how", ["cut", "changed", "missing", "manifest", "link"])
def test_damage_falls_back_to_the_last_good_state(tmp_path, how):
    run = small_run.make(tmp_path / "run")
    save(run, 1)
    folder = save(run, 2).folder
    path = folder / ("manifest.json" if how == "manifest" else "weights.safetensors")
    content = path.read_bytes()
    if how in ("missing", "link"):
        path.unlink()
    if how == "link":
        path.symlink_to(run.states / "000000001-0" / "weights.safetensors")
    if how in ("cut", "manifest"):
        path.write_bytes(content[:-7])
    if how == "changed":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    with pytest.warns(UserWarning, match="falling back"):
        assert loaded(small_run.opened(run.folder)) == 1
    shutil.rmtree(run.states / "000000001-0")
    with pytest.warns(UserWarning), pytest.raises(RunError, match="all damaged"):
        small_run.opened(run.folder).denoiser()


@pytest.mark.parametrize(
    "name", ["../x.safetensors", "/etc/x.json", "a/b.json", "..", "", "model.pt", "model.pkl", "model.bin"]
)
def test_manifests_name_plain_safe_files_only(tmp_path, name):
    run = small_run.make(tmp_path / "run")
    save(run, 1)
    path = save(run, 2).folder / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = {"bytes": 0, "sha256": "0"}
    path.write_text(json.dumps(manifest))
    with pytest.raises(RunError, match="leads out of its folder|never pickles"):
        run.load()


def edited(run, **changes):
    path = run.folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


def test_what_is_no_run_is_said_in_one_line(tmp_path):
    pickle = tmp_path / "model.pt"
    pickle.write_bytes(b"")
    for path in (tmp_path / "none", tmp_path, pickle):
        with pytest.raises(RunError) as error:
            small_run.opened(path)
        assert str(path) in str(error.value) and "\n" not in str(error.value)
    run = small_run.make(tmp_path / "run")
    with pytest.raises(RunError, match="not empty"):
        small_run.make(tmp_path / "run")
    with pytest.raises(RunError, match="no saved state yet"):
        run.denoiser()


def test_only_registered_classes_are_built(tmp_path):
    run = small_run.make(tmp_path / "run")
    save(run, 1)
    edited(run, network={"name": "os.system", "options": {}})
    with pytest.raises(ValueError, match="no network 'os.system'"):
        small_run.opened(run.folder).denoiser()
    edited(run, network={"name": "Small", "options": {"width": 8}})
    with pytest.raises(RunError, match="do not fit the network"):
        small_run.opened(run.folder).denoiser()
    edited(run, format={"kind": "../evil", "data": {}})
    with pytest.raises(RunError, match="no data format"):
        small_run.opened(run.folder).denoiser()
    edited(run, predicts="Popen")
    with pytest.raises(RunError, match="no prediction type 'Popen'"):
        small_run.opened(run.folder)


def test_configurations_go_round_and_unknown_keys_are_named(tmp_path):
    run = small_run.make(tmp_path / "run", small_run.Pairs(3.0), clip=None)
    again = small_run.opened(run.folder)
    assert again.config == run.config
    assert again.format().scale == 3.0
    path = edited(run, learning=1)
    with pytest.raises(RunError, match=r"unknown keys \['learning'\]"):
        small_run.opened(run.folder)
    config = json.loads(path.read_text())
    config.pop("learning")
    wrong = [({"rate": 1}, "rate"), ({"steps": "5"}, "steps = '5'"), ({"steps": True}, "steps = True"), ({}, "never end")]
    for train, match in (*wrong, ({"steps": 5, "lr": -1}, "lr = -1"), ({"steps": 5, "ema": 0.9}, "ema = 0.9")):
        path.write_text(json.dumps({**config, "train": train}))
        with pytest.raises(RunError, match=match):
            small_run.opened(run.folder)
    path.write_text(json.dumps({**config, "train": {"steps": 5, "lr": 1, "betas": [0, 0.5]}}))  # whole numbers for floats
    assert small_run.opened(run.folder).config.train.lr == 1.0
