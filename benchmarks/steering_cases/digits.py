"""Digits by label under classifier-free guidance.

The network is told the label (dropped for a tenth of the rows in training) and never the weight, which is chosen when
samples are drawn: 0 is the model told nothing, 1 the conditional model as it is.  For each weight, as many samples of every
label as of any other:

    agreement    share of samples for which the classifier says the label that was asked for
    recognised   share of samples for which it says so and is sure of a digit at all (`unnoise.evaluation.images`)
    spread       mean over labels of the samples' variance, as a share of that of real test images of the label
    reached      share of real test images within reach of a sample of their label: closer than that sample's third closest
                 other sample of the label (recall by neighbours, Kynkäänniemi et al. 2019, on pixels)
    faithful     share of samples within reach of a real test image of their label, by the same rule (precision)

All beside as many real training images.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from torch import Tensor

import unnoise as un
from steering_cases import common
from unnoise.data.array_files import load
from unnoise.evaluation.images import Recogniser, train_recogniser
from unnoise.training.drawing import draw
from unnoise.training.run import Run

CLASSES = 10
NEAREST = 3


def arguments(parser: argparse.ArgumentParser) -> None:
    image_arguments(parser)
    parser.add_argument("--weights", default="0,1,1.5,2,3,5,8")
    parser.add_argument("--each", type=int, default=100, help="samples of a label, for each weight")
    parser.add_argument("--steps", type=int, default=32, help="of the sampler")


def image_arguments(parser: argparse.ArgumentParser) -> None:
    for name in ("images", "labels", "test_images", "test_labels"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--shrink", type=int, default=2)
    parser.add_argument("--classifier-steps", type=int, default=300)


def labelled(options: argparse.Namespace, levels: int = 256) -> tuple[tuple[np.ndarray, np.ndarray], ...]:
    """Images and labels, of the training files and of the test files."""
    pairs = (options.images, options.labels), (options.test_images, options.test_labels)
    return tuple((common.images(x, options.shrink, levels), load(y).astype(np.int64)) for x, y in pairs)


def bright(x: np.ndarray, levels: int = 256) -> Tensor:
    """From 0 to 1, with an axis for the channel."""
    return torch.as_tensor(x.astype(np.float32) / (levels - 1)).unsqueeze(1)


def spread(x: np.ndarray, labels: np.ndarray) -> float:
    """The variance of images around the mean of their label, summed over pixels: a mean over labels."""
    return float(np.mean([x[labels == k].astype(np.float64).var(0, ddof=1).sum() for k in np.unique(labels)]))


def within_reach(points: Tensor, centres: Tensor, nearest: int = NEAREST) -> Tensor:
    """Which points are closer to some centre than that centre's so-manieth closest other centre is."""
    radius = torch.cdist(centres, centres).kthvalue(nearest + 1, 1).values
    return (torch.cdist(points, centres) <= radius).any(1)


def reach(points: np.ndarray, mine: np.ndarray, centres: np.ndarray, theirs: np.ndarray) -> float:
    """The share of points within reach of centres of their label, a mean over labels."""
    flat = [torch.as_tensor(x.reshape(len(x), -1).astype(np.float64)) for x in (points, centres)]
    parts = [within_reach(flat[0][mine == k], flat[1][theirs == k]).double().mean() for k in np.unique(mine)]
    return float(np.mean(parts))


def balanced(labels: np.ndarray, each: int) -> np.ndarray:
    """Rows, so many of each label, the first ones."""
    return np.concatenate([np.flatnonzero(labels == k)[:each] for k in np.unique(labels)])


def judged(x: np.ndarray, wanted: np.ndarray, judge: Recogniser, real: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    said = judge(bright(x))
    right = (said.label == torch.as_tensor(wanted)).numpy()
    agreement, error = common.share(right)
    return {
        "agreement": agreement,
        "agreement_se": error,
        "recognised": float((right & said.recognised.numpy()).mean()),
        "spread": spread(x, wanted) / spread(*real),
        "reached": reach(*real, x, wanted),
        "faithful": reach(x, wanted, *real),
    }


def drawn(run: Run, weight: float, wanted: np.ndarray, options: argparse.Namespace) -> tuple[np.ndarray, int]:
    """Samples as they are written, and the network calls."""
    format, denoiser = run.format(), run.for_drawing(run.denoiser(which="best"))
    told, calls = {}, 0
    parts = np.zeros((len(wanted), *images_shape(format)), dtype=np.uint8)
    for k in np.unique(wanted):  # a label at a time: the command's own way of telling it
        guided = denoiser if weight == 1 else un.guidance.ClassifierFree(denoiser, weight)
        told = {"label": str(k)}
        rows = np.flatnonzero(wanted == k)
        found: Any = draw(
            guided,
            format,
            len(rows),
            steps=options.steps,
            seed=options.seed + int(k),
            given=told,
            telling=run.telling(),
        )
        x, info = found
        parts[rows], calls = format.seen(x), info.calls
    return parts, calls


def images_shape(format: Any) -> tuple[int, ...]:
    return tuple(format.data.shape)


def shown(options: argparse.Namespace) -> tuple[dict[str, Any], Figure]:
    (known, known_labels), (test, test_labels) = labelled(options)
    source = options.out / "digits.npz"
    np.savez(source, image=known, label=known_labels)
    run = common.trained(options, source, "--condition", "label")
    judge = train_recogniser(bright(known), torch.as_tensor(known_labels), options.classifier_steps, batch=128)
    some = balanced(test_labels, 4 * options.each)
    real = test[some], test_labels[some]
    own = balanced(known_labels, options.each)
    right = judge(bright(test)).label.numpy() == test_labels
    found: dict[str, Any] = {
        "accuracy of the classifier on test images": float(right.mean()),
        "real": judged(known[own], known_labels[own], judge, real),
        "samples of each weight": len(own),
    }
    wanted, sheets = known_labels[own], {"real": known[own]}
    found["weights"] = {}
    for weight in map(float, options.weights.split(",")):
        x, calls = drawn(run, weight, wanted, options)
        found["weights"][f"{weight:g}"] = {**judged(x, wanted, judge, real), "calls": calls}
        sheets[f"{weight:g}"] = x
        print(weight, found["weights"][f"{weight:g}"], flush=True)
    return found, pictured(found, sheets, wanted)


def pictured(found: dict[str, Any], sheets: dict[str, np.ndarray], wanted: np.ndarray) -> Figure:
    figure = plt.figure(figsize=(8.8, 3.6))
    left, right = figure.subfigures(1, 2, width_ratios=[1.25, 1])
    axes = left.subplots(len(few := [*list(sheets)[1:][:6], "real"]), 1)
    for axis, name in zip(axes, few, strict=True):
        rows = np.concatenate([np.flatnonzero(wanted == k)[:2] for k in range(CLASSES)])
        axis.imshow(np.concatenate(list(sheets[name][rows]), 1), cmap="gray_r", aspect="equal", interpolation="nearest")
        axis.set_xticks([])
        axis.set_yticks([])
        axis.set_ylabel(name, rotation=0, ha="right", va="center")
        axis.spines[:].set_visible(False)
    left.suptitle("two samples of each label, by weight", fontsize=9.5)
    plot = right.subplots()
    places = [float(name) for name in found["weights"]]
    for colour, name in zip(common.COLOURS, ("agreement", "spread", "reached", "faithful"), strict=False):
        plot.plot(places, [row[name] for row in found["weights"].values()], "o-", color=colour, label=name, ms=3.5)
        plot.axhline(found["real"][name], color=colour, lw=0.8, ls=":")
    plot.set(xlabel="weight of guidance", ylim=(0, None), title="dotted: real images")
    plot.legend(frameon=False, fontsize=8)
    return figure
