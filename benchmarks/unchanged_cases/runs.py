"""Runs: a table, a text and arrays, trained by the command for 50 updates, sampled, and the table's gaps filled."""

import json
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from functools import cache
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from .adapter import command
from .leaves import Case, wave

STEPS = 50
FOLDER = tempfile.TemporaryDirectory(prefix="unchanged-")
MEASURED = ("loss", "validation_bound", "validation_se", "lr", "gradient")  # of metrics.jsonl, where they are


def table(path: Path, gaps: bool = False) -> None:
    """Numbers, categories, whole numbers and cells that are missing."""
    rows, numbers = (6, wave(6, 2, phase=3.0)) if gaps else (160, wave(160, 2))
    lines = ["height,colour,count,weight"]
    for i in range(rows):
        height, weight = (round(float(value), 4) for value in numbers[i])
        cells = [
            f"{height}",
            ("red", "green", "blue")[(i * i + i // 3) % 3],
            f"{(7 * i) % 11}",
            f"{height + 2 * weight:.4f}",
        ]
        if gaps or i % 17 == 0:
            cells[i % 4] = ""
        lines.append(",".join(cells))
    path.write_text("\n".join(lines) + "\n")


def text(path: Path) -> None:
    letters = [(i + (i // 5) ** 2 % 3) % 7 for i in range(3000)]
    path.write_text("".join("abc de."[letter] for letter in letters))


def array(path: Path) -> None:
    np.save(path, wave(160, 6).numpy().cumsum(1).astype(np.float32))


def images(path: Path) -> None:
    np.save(path, (127.5 * (1 + wave(64, 8, 8).numpy())).astype(np.uint8))


def levels(path: Path) -> None:
    np.save(path, (1.9 * (1 + wave(64, 4, 4).numpy())).astype(np.uint8))


FILES: dict[str, tuple[Callable[[Path], None], str, tuple[str, ...], str | None]] = {  # made by, suffix, options, sampler
    "table": (table, ".csv", (), None),
    "text": (text, ".txt", ("--length", "16"), "Ancestral"),
    "array": (array, ".npy", (), "DPMSolverPP"),
    "images": (images, ".npy", (), "Heun"),
    "levels": (levels, ".npy", ("--categories",), "Ancestral"),
    "twice": (array, ".npy", ("--self-condition", "--schedule", "learned"), "DDIM"),
}
SETTINGS = {
    "log_every": 1,
    "ema": [0.9],
    "panels": 0,
    "tensorboard": False,
    "validate_every": 25,
    "validation_draws": 2,
    "warmup": 5,
}


@cache
def trained(kind: str) -> Path:
    """The folder of a run; a run that fails is not tried again by those that need it."""
    make, suffix, options, _ = FILES[kind]
    path, run = Path(FOLDER.name) / f"{kind}{suffix}", Path(FOLDER.name) / f"{kind}-run"
    make(path)
    told = [part for key, value in SETTINGS.items() for part in ("--set", f"{key}={json.dumps(value)}")]
    fixed = ("--steps", str(STEPS), "--batch-size", "16", "--preset", "tiny", "--seed", "3", "--device", "cpu", "--json")
    asked("train", str(path), "--out", str(run), *fixed, *told, *options)
    return run


def asked(*arguments: str) -> None:
    with redirect_stdout(StringIO()):
        command(*arguments)


def measured(kind: str) -> dict[str, np.ndarray]:
    lines = [json.loads(line) for line in (trained(kind) / "metrics.jsonl").read_text().splitlines()]
    found = {key: np.array([line[key] for line in lines if key in line], float) for key in MEASURED}
    if len(found["loss"]) != STEPS:
        raise ValueError(f"{len(found['loss'])} losses of {STEPS} updates")
    return found


def weights(kind: str) -> dict[str, Any]:
    from safetensors.numpy import load_file

    folder = trained(kind)
    return {path.stem: load_file(path) for path in sorted(folder.glob("*.safetensors"))}


def content(path: Path) -> Any:
    return np.load(path) if path.suffix == ".npy" else path.read_text()


def drawn(kind: str, steps: int, *more: str) -> Any:
    _, suffix, _, sampler = FILES[kind]
    out = Path(FOLDER.name) / f"{kind}-drawn{suffix}"
    method = () if sampler is None else ("--sampler", sampler)
    fixed = ("-n", "6", "--steps", str(steps), "--seed", "5", "--device", "cpu", "--json")
    asked("sample", str(trained(kind)), "--out", str(out), *fixed, *method, *more)
    return content(out)


def filled() -> Any:
    gaps, out = Path(FOLDER.name) / "gaps.csv", Path(FOLDER.name) / "filled.csv"
    table(gaps, gaps=True)
    fixed = ("--steps", "8", "--rounds", "2", "--seed", "5", "--device", "cpu", "--json")
    asked("infill", str(trained("table")), str(gaps), "--out", str(out), *fixed)
    return content(out)


def cases() -> Iterator[Case]:
    for kind in FILES:
        yield f"run/{kind}/metrics", lambda kind=kind: measured(kind)
        yield f"run/{kind}/weights", lambda kind=kind: weights(kind)
        yield f"run/{kind}/sample", lambda kind=kind: drawn(kind, 8)
    yield "run/table/given", lambda: drawn("table", 8, "--given", "colour=red")
    yield "run/table/infill", filled
