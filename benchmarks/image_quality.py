"""How good models of small images are, on files with labels such as MNIST.

    python benchmarks/image_quality.py --train-images F --train-labels F --test-images F --test-labels F
        [--minutes 3] [--only numbers,categories,latent,two-stage,vq] [--samples 1000] [--preset small] [--rows N]
        [--judge FILE] [--out DIR]

Files are .npy or IDX, gzipped or not. The kinds are pixels as numbers and as ordinal categories, numbers by way of a latent
space (trained jointly, or in two stages), and by way of masked codes. For each kind: train with the library's defaults,
then the bound on the test file, for pixels as numbers the likelihood by the probability flow on some of its rows (and the
bound on the same ones), and the share of samples that classifiers of real images recognise, beside controls (see
`unnoise.evaluation.images`): "recognised" by three of them, each as sure as it is of 99 % of real images, "by one" if the
first is at least half sure. --judge judges files of images that were drawn before, by this library or another. Prints one
JSON; sheets of samples and of real images are written to --out.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.cli.extending import settings
from unnoise.data.array_files import load
from unnoise.data.arrays import Array
from unnoise.data.read import Reading, read
from unnoise.evaluation.images import Recogniser, controls, pixels, train_recogniser
from unnoise.evaluation.likelihood import bound_on, exact_on
from unnoise.training.drawing import draw
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train

SHEET = 100  # images on a sheet
KINDS: dict[str, tuple[bool, dict[str, Any] | None]] = {  # whether pixels are categories, and what stands for them
    "numbers": (False, None),
    "categories": (True, None),
    "latent": (False, {"name": "latent", "options": {"stage": "joint"}}),
    "two-stage": (False, {"name": "latent", "options": {"stage": "two"}}),
    "vq": (False, {"name": "vq", "options": {}}),
}


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("train-images", "train-labels", "test-images", "test-labels"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--minutes", type=float, default=3.0, help="of training, for each kind")
    parser.add_argument("--only", default="numbers,categories", help='or "", to judge files alone')
    parser.add_argument("--samples", type=int, default=1000)
    parser.add_argument("--sampler-steps", type=int)
    parser.add_argument("--preset")
    parser.add_argument("--set", action="append", default=[], help="name=value, any training setting; may be repeated")
    parser.add_argument("--rows", type=int, help="use only the first so many images of the training file")
    parser.add_argument("--test-rows", type=int, help="and of the test file")
    parser.add_argument("--likelihood-rows", type=int, help="test rows for the flow: 128 on an accelerator, 8 without")
    parser.add_argument("--classifier-steps", type=int, help="2000 on an accelerator, 200 without")
    parser.add_argument("--judge", type=Path, action="append", default=[], help="a file of images; may be repeated")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path)
    return parser.parse_args()


def cut(path: Path, rows: int | None, folder: Path, role: str) -> Path:
    """The file, or its first rows as a file named by its role: those for training and for tests may have the same name."""
    if rows is None:
        return path
    short = folder / f"{role}.npy"
    np.save(short, load(path)[:rows])
    return short


def judged(recogniser: Recogniser, images: Tensor) -> dict[str, Any]:
    found, one = recogniser(images), Recogniser(recogniser.members[:1], recogniser.classes)(images)
    classes = found.counts(recogniser.classes)
    return {"recognised": found.share, "by one": one.share, "images": len(images), "classes": classes}


def real(
    options: argparse.Namespace, array: Array, files: list[Path], labels: list[Tensor], device: str
) -> tuple[Recogniser, dict[str, Any]]:
    """The classifier, and what it says of real images and of junk."""
    began = time.perf_counter()
    known, unseen = (pixels(load(file), array) for file in files)
    steps, batch = (2000, 256) if device == "cuda" else (200, 128)
    steps = options.classifier_steps or steps
    recogniser = train_recogniser(known, labels[0], steps, batch=batch, seed=options.seed, device=device)
    said = recogniser(unseen)
    right = said.label == labels[1]
    result: dict[str, Any] = {
        "accuracy": float(right.double().mean()),
        "accuracy_where_recognised": float(right[said.recognised].double().mean()),
        "threshold": recogniser.threshold,
        "seconds": time.perf_counter() - began,
        "test images": judged(recogniser, unseen),
    }
    junk = controls(unseen, labels[1], options.seed)
    return recogniser, result | {name: judged(recogniser, images) for name, images in junk.items()}


def model(
    options: argparse.Namespace, kind: str, files: list[Path], recogniser: Recogniser, device: str, out: Path
) -> dict[str, Any]:
    """All figures of one kind."""
    clock: dict[str, float] = {}

    def done(what: str) -> None:
        nonlocal began
        clock[what], began = time.perf_counter() - began, time.perf_counter()

    began = time.perf_counter()
    categories, standing = KINDS[kind]
    array, x0 = read(files[0], Reading(categories=categories))
    assert isinstance(array, Array) and isinstance(x0, Tensor)
    chosen = {"minutes": options.minutes, "seed": options.seed, **settings(options.set)}
    config = recipe(array, len(x0), options.preset, device, model=standing, **chosen)
    run = Run.create(out / f"run-{kind}", config)
    untrained = run.denoiser_of_config().eval().requires_grad_(False)
    outcome = train(run, x0)
    done("training")
    denoiser = run.denoiser(which="best").to(device)
    test = array.encode(files[1])
    assert isinstance(test, Tensor)
    batch = 1000 if device == "cuda" else 100
    result: dict[str, Any] = {
        "network": config.network,
        "training": {"steps": outcome.step, "epochs": outcome.epoch, "ended by": outcome.reason, **_told(config.train)},
    }
    result["bound"] = bound_on(denoiser, test, 2, options.seed, batch=batch, options=run.objective_options())
    done("bound")
    if kind == "numbers":
        some = test[: options.likelihood_rows or (128 if device == "cuda" else 8)]
        result["exact"], why = exact_on(denoiser, array, some, options.seed, batch=256)
        result |= {"exact_why": why} if why else {}
        done("exact")
    x, info = draw(denoiser, array, options.samples, steps=options.sampler_steps, seed=options.seed, batch=batch)
    done("drawing")
    result["samples"] = {**judged(recogniser, pixels(array.values(x), array)), "calls": info.calls}
    array.write(x[:SHEET], out / f"{kind}.png")
    none, _ = draw(untrained, array, min(200, options.samples), steps=32, seed=options.seed, batch=batch)
    result["samples before training"] = judged(recogniser, pixels(array.values(none), array))
    return result | {"seconds": clock}


def _told(train: Any) -> dict[str, Any]:
    return {
        name: getattr(train, name)
        for name in ("batch_size", "optimiser", "lr", "weighting", "ema", "precision", "compile", "capture")
    }


def main() -> None:
    options = parsed()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    out = options.out or Path(tempfile.mkdtemp())
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        files = [
            cut(options.train_images, options.rows, folder, "train"),
            cut(options.test_images, options.test_rows, folder, "test"),
        ]
        sources, ends = (options.train_labels, options.test_labels), (options.rows, options.test_rows)
        labels = [torch.as_tensor(load(p)[:n].astype(np.int64)) for p, n in zip(sources, ends, strict=True)]
        array, _ = Array.fit(files[0])
        array.write(array.encode(files[1])[:SHEET], out / "real.png")
        recogniser, result = real(options, array, files, labels, device)
        result = {"real": result}
        for path in options.judge:
            result[str(path)] = judged(recogniser, pixels(load(path), array))
        for kind in filter(None, options.only.split(",")):
            result[kind] = model(options, kind, files, recogniser, device, out)
            (out / "figures.json").write_text(json.dumps(result, indent=1) + "\n")  # what is there so far
    (out / "figures.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps(result, indent=1))


if __name__ == "__main__":
    main()
