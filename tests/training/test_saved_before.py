"""Runs that an earlier version saved: `saved_runs` holds one of each kind of data, made before formats were registered.

Names in config.json (of formats, networks, prediction types, weightings) and of tensors are what later versions must know.
"""

import shutil
from pathlib import Path

import pytest
import torch

from unnoise.training import Run, train
from unnoise.training.drawing import draw
from unnoise.tree import leaves

SAVED = Path(__file__).parent / "saved_runs"
FILES = {"table": "table.csv", "text": "text.txt", "array": "array.npy"}


@pytest.mark.parametrize("name", FILES)
def test_a_run_saved_before_is_opened_drawn_from_and_goes_on(tmp_path, name):
    shutil.copytree(SAVED / name, tmp_path / "run")
    run = Run.open(tmp_path / "run")
    x, _ = draw(run.denoiser(which="best"), run.format(), 3, steps=4, device="cpu", seed=0)
    run.format().write(x, tmp_path / f"samples{run.format().suffix}")
    assert all(len(leaf) == 3 and bool(leaf.isfinite().all()) for leaf in leaves(x))
    assert (tmp_path / f"samples{run.format().suffix}").stat().st_size
    _, numbers, parts = run.load()
    run.change(steps=6)
    outcome = train(run, run.format().encode(SAVED / FILES[name]))
    assert numbers["step"] == 4 and outcome.step == 6 and outcome.reason == "steps"
    _, _, later = run.load()
    assert later["weights"].keys() == parts["weights"].keys()
    assert not all(torch.equal(later["weights"][key], value) for key, value in parts["weights"].items())
