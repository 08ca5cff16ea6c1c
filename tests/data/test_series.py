"""Which arrays are series: by evidence, or as told; and that a run on one is there and back."""

import json

import numpy as np
import pytest
import torch
from sklearn import datasets

from unnoise.data import BadData, Reading, read
from unnoise.data.arrays import Array
from unnoise.data.series import series_axis
from unnoise.networks.presets import planned
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import Trainer

RNG = np.random.default_rng(0)


def walks(rows, length, channels=0):
    return RNG.normal(size=(rows, *([channels] if channels else []), length)).cumsum(-1)


def waves(rows, length):
    t = np.linspace(0, 1, length)
    return np.sin(2 * np.pi * (RNG.uniform(1, 3, (rows, 1)) * t + RNG.random((rows, 1)))) + 0.1 * RNG.normal(
        size=(rows, length)
    )


@pytest.mark.parametrize("values", [walks(50, 16), waves(40, 100), walks(20, 300), -(walks(60, 40) ** 2)], ids=str)
def test_series_are_recognised_and_their_columns_in_another_order_are_not(values):
    assert series_axis(values).axis == 0
    for seed in range(5):
        mixed = values[:, np.random.default_rng(seed).permutation(values.shape[1])]
        assert series_axis(mixed) is None


@pytest.mark.parametrize("name", ["breast_cancer", "wine", "diabetes", "iris", "digits"])
def test_columns_are_no_series(name):
    values = getattr(datasets, f"load_{name}")().data
    assert series_axis(values) is None
    assert series_axis(RNG.normal(size=(100, 30))) is None
    assert series_axis(walks(50, 15)) is None  # too few places to tell


def test_channels_first_or_last_and_images():
    first = walks(30, 50, channels=6)
    assert series_axis(first).axis == 1 and series_axis(np.moveaxis(first, 1, 2)).axis == 0
    assert series_axis(walks(30, 40, channels=10)).axis == 1
    plane = RNG.normal(size=(30, 12, 40)).cumsum(1).cumsum(2)
    assert series_axis(plane) is None  # an order along both
    assert series_axis(RNG.normal(size=(30, 20, 24)).cumsum(1).cumsum(2)) is None
    assert series_axis(datasets.load_digits().images) is None


def test_as_told():
    assert series_axis(RNG.normal(size=(10, 5)), "series").why == "as told"
    assert series_axis(walks(50, 40), "columns") is None
    with pytest.raises(BadData, match="--option axis=sideways: choose from series, columns"):
        series_axis(walks(50, 40), "sideways")
    with pytest.raises(BadData, match="--option axis=series: examples of shape .* are none"):
        series_axis(RNG.normal(size=(10, 3, 4, 5)), "series")


@pytest.mark.parametrize("kind", ["one", "first", "last", "levels"])
def test_there_and_back(tmp_path, kind):
    values = {
        "one": walks(40, 30).astype(np.float32),
        "first": walks(40, 30, 3),
        "last": np.moveaxis(walks(40, 30, 3), 1, 2),
        "levels": np.clip(walks(40, 30) * 2 + 50, 0, 100).astype(np.uint8),
    }[kind]
    np.save(tmp_path / "a.npy", values)
    form, x = read(tmp_path / "a.npy")
    form = Array.from_json(json.loads(json.dumps(form.to_json())))
    assert x.shape == ((40, 30) if values.ndim == 2 else (40, 3, 30))
    out = form.values(x)
    assert out.dtype == values.dtype and np.allclose(out, values, rtol=1e-5, atol=1e-5)
    if kind != "levels":
        torch.testing.assert_close(x.flatten(1).std(0, unbiased=False), torch.ones(x[0].numel()), rtol=1e-4, atol=1e-4)
    (line,) = form.lines()
    assert line.part.startswith("series") and "an order (neighbours correlate by 0.9" in line.values
    assert planned(form.process(), "tiny", None, form.network_hints())["name"] == "SeriesNet"
    assert not form.dear and form.shown_suffix() == ".npy"
    columns, _ = read(tmp_path / "a.npy", Reading(options={"axis": "columns"}))
    assert planned(columns.process(), "tiny", None, columns.network_hints())["name"] != "SeriesNet"
    old = {name: value for name, value in form.to_json().items() if name != "series"}  # as runs were saved before
    assert not Array.from_json(old).series


def test_a_run_fits_the_base_to_its_training_rows_once(tmp_path):
    np.save(tmp_path / "a.npy", walks(60, 20))
    form, x = read(tmp_path / "a.npy")
    run = Run.create(tmp_path / "run", recipe(form, len(x), steps=1, panels=0))
    trainer = Trainer(run, x)
    fitted = trainer.learner.denoiser.network.variances.clone()
    assert float(fitted.max()) > 2
    trainer.fit()
    again = Run.open(tmp_path / "run").denoiser()
    assert torch.equal(again.network.variances, fitted)
    resumed = Trainer(Run.open(tmp_path / "run"), x)  # has a saved state: nothing is fitted anew
    assert float(resumed.learner.denoiser.network.variances.max()) == 1
