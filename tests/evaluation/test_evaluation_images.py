"""The judge of images: it knows real ones, and refuses what is none.  And the script that uses it, from files to figures."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from unnoise.data.arrays import Array
from unnoise.evaluation.images import Recogniser, controls, junk, pairs, pixels, shuffled, train_recogniser

ROOT = Path(__file__).parents[2]


def bars(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """8 x 8 images of 17 levels and three classes: an upright bar, a lying one, a slanted one."""
    rng = np.random.default_rng(seed)
    images, labels = np.zeros((n, 8, 8)), rng.integers(0, 3, n)
    for image, label, place in zip(images, labels, rng.integers(1, 6, n), strict=True):
        where = {0: np.s_[1:7, place : place + 2], 1: np.s_[place : place + 2, 1:7]}.get(label)
        if where is not None:
            image[where] = 1
        else:
            image[np.arange(1, 7), np.arange(1, 7)] = image[np.arange(1, 7), np.arange(2, 8)] = 1
    noisy = images * rng.uniform(0.7, 1, images.shape) + rng.uniform(0, 0.1, images.shape)
    return (16 * np.clip(noisy, 0, 1)).round().astype(np.uint8), labels.astype(np.uint8)


def ready(n: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    images, labels = bars(n, seed)
    return pixels(images, Array(shape=[8, 8], dtype="uint8", levels=17)), torch.as_tensor(labels.astype(np.int64))


@pytest.fixture(scope="module")
def recogniser() -> Recogniser:
    return train_recogniser(*ready(600, 0), steps=120, members=2, batch=64)


def test_real_images_are_recognised_and_junk_is_not(recogniser):
    images, labels = ready(400, 1)
    said = recogniser(images)
    assert said.share > 0.97 and float((said.label == labels)[said.recognised].double().mean()) > 0.99
    assert said.counts(3) == [int(((labels == k) & said.recognised & (said.label == k)).sum()) for k in range(3)]
    for name, wrong in controls(images, labels).items():
        assert recogniser(wrong).share < (0.6 if name == "halves of two classes" else 0.1), name


def test_confidence_is_that_of_the_least_sure():
    """Two networks that say what they are told: they must agree, and both be sure."""

    class Told(torch.nn.Module):
        def __init__(self, probability):
            super().__init__()
            self.logits = torch.nn.Parameter(torch.tensor(probability).log())

        def forward(self, x):
            return self.logits

    first = Told([[0.9, 0.05, 0.05], [0.9, 0.05, 0.05], [0.05, 0.05, 0.9], [0.01, 0.97, 0.02]])
    second = Told([[0.8, 0.1, 0.1], [0.1, 0.85, 0.05], [0.05, 0.05, 0.9], [0.01, 0.97, 0.02]])
    said = Recogniser([first, second], classes=2, threshold=0.5)(torch.zeros(4, 1, 8, 8))
    torch.testing.assert_close(said.confidence, torch.tensor([0.8, 0.1, 0.9, 0.97]))
    assert said.recognised.tolist() == [True, False, False, True]  # the third is surely no image
    assert said.counts(2) == [1, 1] and said.share == 0.5
    assert Recogniser([first, second], 2, threshold=0.9)(torch.zeros(4, 1, 8, 8)).counts(2) == [0, 1]


def test_junk_is_made_of_other_classes():
    images, labels = ready(200, 2)
    first, second = pairs(labels, torch.Generator().manual_seed(0))
    assert len(first) > 80 and bool((labels[first] != labels[second]).all())
    mixed = shuffled(images, torch.Generator().manual_seed(0))
    torch.testing.assert_close(mixed.sort(0).values, images.sort(0).values)  # pixel by pixel the same values
    assert float((mixed - images).abs().mean()) > 0.05
    kinds = controls(images, labels)
    means, halves = kinds["means of two classes"], kinds["halves of two classes"]
    assert means.shape[1:] == halves.shape[1:] == images.shape[1:] and len(means) == len(halves) > 80
    assert any(torch.equal(halves[0, :, :4], image[:, :4]) for image in images)
    assert any(torch.equal(halves[0, :, 4:], image[:, 4:]) for image in images)
    assert len(junk(images, labels, torch.Generator().manual_seed(0))) > 80 + 100


def test_pixels_are_from_0_to_1():
    colours = np.random.default_rng(0).integers(0, 256, (5, 6, 4, 3), dtype=np.uint8)
    array = Array(shape=[6, 4, 3], dtype="uint8", levels=256, channels_last=True)
    out = pixels(colours, array)
    np.testing.assert_allclose(out.numpy(), np.moveaxis(colours / 255, -1, 1), atol=1e-6)
    assert pixels(colours[..., 0], Array(shape=[6, 4], dtype="uint8", levels=256)).shape == (5, 1, 6, 4)


KINDS = ("numbers", "categories")


@pytest.mark.conformance
def test_the_benchmark_from_files_to_figures(tmp_path):
    for name, n, seed in (("train", 300, 3), ("test", 60, 4)):
        images, labels = bars(n, seed)
        np.save(tmp_path / f"{name}-x.npy", images)
        np.save(tmp_path / f"{name}-y.npy", labels)
    files = [
        f"--{name}-{what}={tmp_path}/{name}-{what[0].replace('i', 'x').replace('l', 'y')}.npy"
        for name in ("train", "test")
        for what in ("images", "labels")
    ]
    small = [
        "--minutes=0.03",
        "--samples=20",
        "--likelihood-rows=2",
        "--classifier-steps=20",
        "--rows=200",
        "--test-rows=50",
        f"--judge={tmp_path}/test-x.npy",
    ]
    command = [sys.executable, str(ROOT / "benchmarks" / "image_quality.py"), *files, *small, f"--out={tmp_path / 'out'}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    figures = json.loads(done.stdout)
    assert figures == json.loads((tmp_path / "out" / "figures.json").read_text())
    assert figures["real"]["test images"]["images"] == 50
    assert figures["numbers"]["training"]["steps"] > 3 and figures["numbers"]["exact"]["examples"] == 2
    assert 0 < figures["categories"]["bound"]["bits_per_dim"] < 2 * np.log2(17)
    for kind in KINDS:
        assert sum(figures[kind]["samples"]["classes"]) == round(20 * figures[kind]["samples"]["recognised"])
    judged = [figures["real"]["test images"], figures[f"{tmp_path}/test-x.npy"], *(figures[k]["samples"] for k in KINDS)]
    assert judged[1]["images"] == 60 and all(0 <= found["recognised"] <= found["by one"] <= 1 for found in judged)
    for name in ("real", *KINDS):
        assert (tmp_path / "out" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
