"""Half-erased digits filled many times (`unnoise infill`).

Images in --levels grey levels, under masking, where conditioning on known pixels is exact for the model: the lower half of
test images is erased, and each is filled --fills times.  --numbers RUN is a run of the case `digits`, told no label: its
fills by rounds of replacement (as `unnoise infill` fills numbers) and by likelihood guidance without weights
(`un.guidance.PosteriorSampling`) stand beside it.  A control are as many training images, those whose upper halves are
closest.

    variance      of a pixel over the fills of one image, in squared levels, mean over erased pixels
    right         share of fills that a classifier of real digits takes for the true label
    log_score     mean of -log of the true label's share among the fills of an image, one fill more counted for each label
    calibration   of pairs (image, label) by the label's share of the fills: how often it is the true one
    ranks         Kolmogorov-Smirnov distance from a uniform law of the rank of the true pixel among its fills, ties broken
                  at random, over erased pixels that are not all one level: 0 if truth and fills have one law given the rest

Fills of numbers are rounded to levels before they are looked at.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib import pyplot as plt
from matplotlib.figure import Figure
from scipy.stats import kstest

import unnoise as un
from steering_cases import common
from steering_cases.digits import CLASSES, bright, image_arguments, labelled
from unnoise.evaluation.images import Recogniser, train_recogniser
from unnoise.training.drawing import fill
from unnoise.training.run import Run

MARK = 255
EDGES = (0.0, 0.02, 0.25, 0.5, 0.75, 1.0)


def arguments(parser: argparse.ArgumentParser) -> None:
    image_arguments(parser)
    parser.add_argument("--levels", type=int, default=8)
    parser.add_argument("-n", type=int, default=40, help="images")
    parser.add_argument("--fills", type=int, default=16, help="of each")
    parser.add_argument("--numbers", type=Path, help="a run of the case digits, to fill by too")
    parser.add_argument("--steps", type=int, default=32, help="of replacement; guidance has twice as many")
    parser.add_argument("--noise", type=float, default=0.05, help="that guidance takes known numbers to have")
    parser.add_argument("--strength", type=float, default=0.3, help="of guidance: at 1 it runs away on small networks")


def nearest_fills(halves: np.ndarray, known: np.ndarray, fills: int) -> np.ndarray:
    """[images, fills, ...]: the training images whose upper halves are closest."""
    top = halves.shape[1]
    ours, theirs = (torch.as_tensor(x.reshape(len(x), -1).astype(np.float32)) for x in (halves, known[:, :top]))
    return known[torch.cdist(ours, theirs).topk(fills, 1, largest=False).indices.numpy()]


def label_shares(said: np.ndarray) -> np.ndarray:
    """[images, labels] of labels [images, fills]."""
    return np.stack([(said == k).mean(1) for k in range(CLASSES)], 1)


def calibration(shares: np.ndarray, truth: np.ndarray, edges: tuple[float, ...]) -> list[dict[str, float]]:
    """Of pairs (image, label) by their share: how many, the mean share, how often the label is true."""
    hits = truth[:, None] == np.arange(shares.shape[1])
    found = []
    for low, high in zip(edges, edges[1:], strict=False):
        inside = (shares >= low) & ((shares < high) | (high == edges[-1]))
        if inside.any():
            true, error = common.share(hits[inside])
            found.append({"pairs": int(inside.sum()), "share": float(shares[inside].mean()), "true": true, "se": error})
    return found


def ranks(truth: np.ndarray, fills: np.ndarray, seed: int = 0) -> np.ndarray:
    """Of true pixels [images, ...] among fills [images, fills, ...]: ranks 0 ... fills as numbers in (0, 1), uniform where
    truth and fills have one law; pixels that are one level in all of them say nothing and are left out."""
    generator = np.random.default_rng(seed)
    darker, same = (fills < truth[:, None]).sum(1), (fills == truth[:, None]).sum(1)
    rank = darker + generator.integers(0, same + 1)
    said = (same < fills.shape[1]).reshape(-1)
    return (rank.reshape(-1)[said] + generator.random(said.sum())) / (fills.shape[1] + 1)


def judged(truth: np.ndarray, labels: np.ndarray, fills: np.ndarray, judge: Recogniser, levels: int) -> dict[str, Any]:
    """Of whole images [images, fills, height, width]."""
    count, half = fills.shape[1], truth.shape[1] // 2
    said = judge(bright(fills.reshape(-1, *truth.shape[1:]), levels)).label.reshape(len(truth), count).numpy()
    shares = label_shares(said)
    right = said == labels[:, None]
    own = (count * shares[np.arange(len(labels)), labels] + 1) / (count + CLASSES)
    return {
        "variance": float(fills[:, :, half:].astype(np.float64).var(1, ddof=1).mean()),
        "right": float(right.mean()),
        "right_se": float(right.mean(1).std(ddof=1) / len(right) ** 0.5),
        "log_score": float(-np.log(own).mean()),
        "log_score_se": float(np.log(own).std(ddof=1) / len(own) ** 0.5),
        "ranks": float(kstest(ranks(truth[:, half:], fills[:, :, half:]), "uniform").statistic),
        "calibration": calibration(shares, labels, EDGES),
    }


def by_command(run: Path, truth: np.ndarray, fills: int, options: argparse.Namespace) -> tuple[np.ndarray, dict[str, Any]]:
    erased = truth.copy()
    erased[:, truth.shape[1] // 2 :] = MARK
    gaps, out = options.out / "erased.npy", options.out / "filled.npy"
    np.save(gaps, np.repeat(erased, fills, 0))
    said = common.unnoise("infill", run, gaps, "--mark", MARK, "--out", out, "--seed", options.seed)
    return np.load(out).reshape(len(truth), fills, *truth.shape[1:]), said


def as_numbers(truth: np.ndarray, how: str | None, options: argparse.Namespace) -> tuple[np.ndarray, dict[str, Any]]:
    """Fills by a run of numbers that is told nothing: by replacement, or by posterior sampling of that name."""
    run = Run.open(options.numbers)
    format: Any = run.format()
    array, model = getattr(format, "data", format), run.for_drawing(run.denoiser(which="best"))
    x = array.states(np.repeat(truth, options.fills, 0), "the images")
    known = torch.zeros(x.shape[1:], dtype=torch.bool)
    known[: truth.shape[1] // 2] = True
    if how is None:
        filled, info = fill(model, x, known.expand(x.shape), options.seed, options.steps)
    else:
        operator, spread = un.guidance.Inpainting(known), float(x.var())
        said = {"how": how, "strength": options.strength, "variance": spread}
        guided = un.guidance.PosteriorSampling(model, operator, "y", options.noise, **said)
        told = {"y": operator(x)}
        method = un.samplers.Ancestral()  # a step at a time: the gradient is stiff, and multistep methods run away by it
        filled, info = un.sample(guided, len(x), 2 * options.steps, method, seed=options.seed, condition=told)
    whole = torch.where(known, x, filled.to(x))
    return array.seen(whole).reshape(len(truth), options.fills, *truth.shape[1:]), {"calls": info.calls}


def shown(options: argparse.Namespace) -> tuple[dict[str, Any], Figure]:
    levels = options.levels
    (known, known_labels), (test, test_labels) = labelled(options, levels)
    source = options.out / "levels.npy"
    np.save(source, known)
    run = common.trained(options, source, "--categories", "--noise", "masking")
    judge = train_recogniser(bright(known, levels), torch.as_tensor(known_labels), options.classifier_steps, batch=128)
    truth, labels = test[: options.n], test_labels[: options.n]
    sets: dict[str, tuple[np.ndarray, dict[str, Any]]] = {"masking": by_command(run.folder, truth, options.fills, options)}
    if options.numbers is not None:
        fine = labelled(options)[1][0][: options.n]
        for name, how in (("numbers, replacement", None), ("numbers, likelihood guidance", "likelihood")):
            filled, said = as_numbers(fine, how, options)
            sets[name] = (filled.astype(np.int64) * levels // 256).astype(np.uint8), said
    half = truth.shape[1] // 2
    sets["nearest training images"] = nearest_fills(truth[:, :half], known, options.fills), {}
    accuracy = float((judge(bright(test, levels)).label.numpy() == test_labels).mean())
    found: dict[str, Any] = {
        "images": len(truth),
        "fills": options.fills,
        "accuracy of the classifier": accuracy,
        "ways": {},
    }
    for name, (filled, said) in sets.items():
        found["ways"][name] = judged(truth, labels, filled, judge, levels) | said
        print(name, found["ways"][name], flush=True)
    return found, pictured(found, truth, sets["masking"][0], levels)


def pictured(found: dict[str, Any], truth: np.ndarray, fills: np.ndarray, levels: int) -> Figure:
    figure = plt.figure(figsize=(8.8, 3.6))
    left, right = figure.subfigures(1, 2, width_ratios=[1.7, 1])
    some, few = range(8), 8
    grid = left.subplots(len(some), few + 3)
    half = truth.shape[1] // 2
    for line, i in zip(grid, some, strict=True):
        erased = truth[i].astype(np.float64)
        erased[half:] = (levels - 1) / 4
        spread = fills[i].astype(np.float64).std(0)
        shades = [truth[i], erased, *fills[i, :few]]
        for axis, image in zip(line, shades, strict=False):
            axis.imshow(image, cmap="gray_r", vmin=0, vmax=levels - 1, interpolation="nearest")
        line[-1].imshow(spread, cmap="Reds", vmin=0, vmax=levels / 2, interpolation="nearest")
    for axis in grid.flat:
        axis.set_xticks([])
        axis.set_yticks([])
        axis.spines[:].set_linewidth(0.3)
    for place, name in ((0, "true"), (1, "erased"), (2 + few // 2, "fills"), (-1, "spread")):
        grid[0, place].set_title(name, fontsize=8)
    plot = right.subplots()
    for colour, (name, row) in zip(common.COLOURS, found["ways"].items(), strict=False):
        bins = row["calibration"]
        places, heights, errors = ([one[key] for one in bins] for key in ("share", "true", "se"))
        plot.errorbar(places, heights, errors, fmt="o-", ms=3.5, lw=1, color=colour, label=name)
    plot.plot([0, 1], [0, 1], color="#aab1b7", lw=0.8)
    plot.set(xlabel="share of the fills that are some digit", ylabel="how often it is that digit")
    plot.legend(frameon=False, fontsize=7, loc="lower right")
    return figure
