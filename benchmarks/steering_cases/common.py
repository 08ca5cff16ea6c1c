"""What the cases share: trained runs, commands, pictures, numbers with errors."""

import argparse
import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from unnoise.data.array_files import load
from unnoise.training.metrics import read_metrics
from unnoise.training.run import Run

COLOURS = ["#1f6fb4", "#d1495b", "#2e8b57", "#e08e1b", "#7a4fa3", "#5b6770"]
STYLE = {
    "font.size": 9,
    "axes.titlesize": 9.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "figure.constrained_layout.use": True,
}
plt.rcParams.update(STYLE)
LARGEST = 55_000  # bytes of a picture


def unnoise(*arguments: Any, may_lack: bool = False) -> dict[str, Any]:
    """What a command says as JSON; `may_lack`: samples that no particle survived for are no failure."""
    said = [sys.executable, "-m", "unnoise", *map(str, arguments), "--json"]
    paths = [str(Path(__file__).parents[1]), *filter(None, [os.environ.get("PYTHONPATH")])]  # for rewards of these cases
    print("$ unnoise", *map(str, arguments), file=sys.stderr, flush=True)
    done = subprocess.run(said, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)})
    if done.returncode > may_lack or not done.stdout.strip():
        raise SystemExit(f"unnoise {arguments[0]} ended with status {done.returncode}: {done.stdout}")
    return json.loads(done.stdout)


def trained(options: argparse.Namespace, source: Path, *more: Any) -> Run:
    """The run, after training it on `source` where it is not there."""
    if not (options.run / "config.json").exists():
        settings = ["--preset", options.preset, "--minutes", options.minutes, "--seed", options.seed]
        unnoise("train", source, "--out", options.run, *settings, *more)
    return Run.open(options.run)


def training(folder: Path) -> dict[str, Any]:
    """How long a run was trained, and how far it came."""
    lines = read_metrics(folder / "metrics.jsonl")
    bounds = [line["validation_bound"] for line in lines if line.get("validation_bound") is not None]
    last = max(lines, key=lambda line: line.get("seconds") or 0.0)
    return {"steps": last["step"], "seconds": round(last["seconds"]), "bound": min(bounds, default=None)}


def images(path: Path, shrink: int, levels: int = 256) -> np.ndarray:
    """Of a file, means over shrink x shrink pixels, in so many levels."""
    whole = load(path).astype(np.float64)
    rows, height, width = whole.shape
    if height % shrink or width % shrink:
        raise SystemExit(f"--shrink {shrink}: images of {height} x {width} have no such blocks: choose a divisor of both")
    blocks = whole.reshape(rows, height // shrink, shrink, width // shrink, shrink)
    return (blocks.mean((2, 4)).round().astype(np.int64) * levels // 256).astype(np.uint8)


def share(hits: np.ndarray) -> tuple[float, float]:
    """A share and its standard error."""
    p = float(np.mean(hits))
    return p, float((p * (1 - p) / len(hits)) ** 0.5)


def save(figure: Figure, path: Path) -> None:
    """As a PNG, of as few colours as keep it small."""
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=110)
    plt.close(figure)
    image = Image.open(buffer).convert("RGB")
    image.save(path, optimize=True)
    for colours in (256, 128, 64, 32, 16):
        if path.stat().st_size > LARGEST:
            image.quantize(colours, dither=Image.Dither.NONE).save(path, optimize=True)
