"""Whether the sentence on convergence at the end of a training is right.

    python benchmarks/convergence.py [--scale 1] [--only table] [--device cpu]

Ten trainings of tables, texts and arrays, some short, some long, some on too few rows.  Each is made again ten times as
long.  The sentence is right if it says "improving" where the longer training has a bound on the same held-out rows, under
the same noise, that is lower by more than the tolerance that the sentence goes by, and something else where it has not.
"""

import argparse
import json
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from unnoise.data.read import read
from unnoise.data.reading import Reading
from unnoise.training.convergence import of_run
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train
from unnoise.tree import batch_size

POINTS = 24  # measurements of the bound in each training


@dataclass(frozen=True)
class Case:
    name: str
    data: str
    rows: int
    steps: int


CASES = [
    Case("table, short", "table", 3000, 60),
    Case("table, longer", "table", 3000, 250),
    Case("table, long", "table", 3000, 2000),
    Case("table of 60 rows, long", "table", 60, 1500),
    Case("text, short", "text", 3000, 60),
    Case("text, long", "text", 3000, 1500),
    Case("text of 40 windows, long", "text", 40, 1000),
    Case("array, short", "array", 3000, 60),
    Case("array, long", "array", 3000, 2000),
    Case("array of 80 rows, long", "array", 80, 1500),
]


def write_table(folder: Path, rows: int) -> Path:
    """Three numbers and two labels that hang together."""
    rng = np.random.default_rng(0)
    kind = rng.choice(list("abc"), rows, p=[0.5, 0.3, 0.2])
    centre = np.array([{"a": -2.0, "b": 0.0, "c": 2.5}[k] for k in kind])
    x = centre + 0.5 * rng.normal(size=rows)
    y = np.sin(x) + 0.2 * rng.normal(size=rows)
    z = np.exp(0.3 * x + 0.3 * rng.normal(size=rows))
    side = np.where(rng.random(rows) < 1 / (1 + np.exp(-3 * y)), "left", "right")
    lines = [f"{a:.4f},{b:.4f},{c:.4f},{k},{s}" for a, b, c, k, s in zip(x, y, z, kind, side, strict=True)]
    path = folder / "table.csv"
    path.write_text("\n".join(["x,y,z,kind,side", *lines]) + "\n")
    return path


def write_text(folder: Path, rows: int) -> Path:
    """Words of a small vocabulary, of which each has two likely followers."""
    rng = np.random.default_rng(0)
    words = ["".join(rng.choice(list("abcdefghij"), rng.integers(2, 6))) for _ in range(40)]
    followers, text, word = rng.integers(0, 40, (40, 2)), [], 0
    while sum(map(len, text)) + len(text) < 32 * rows:
        word = int(followers[word, int(rng.random() < 0.3)]) if rng.random() < 0.9 else int(rng.integers(40))
        text.append(words[word])
    path = folder / "text.txt"
    path.write_text(" ".join(text))
    return path


def write_array(folder: Path, rows: int) -> Path:
    """Eight numbers on a curve, with noise."""
    rng = np.random.default_rng(0)
    angle = rng.uniform(0, 2 * np.pi, (rows, 1))
    values = np.concatenate([np.cos(angle * k) for k in (1, 2, 3, 4)] + [np.sin(angle * k) for k in (1, 2, 3, 4)], 1)
    path = folder / "array.npy"
    np.save(path, (values + 0.1 * rng.normal(size=values.shape)).astype(np.float32))
    return path


WRITERS = {"table": write_table, "text": write_text, "array": write_array}


def trained(path: Path, folder: Path, steps: int, device: str) -> tuple[Run, float]:
    form, x0 = read(path, Reading(length=32)) if path.suffix == ".txt" else read(path)
    settings = {"steps": steps, "validate_every": max(1, steps // POINTS), "panels": 0, "validation_rows": 256}
    run = Run.create(folder, recipe(form, batch_size(x0), None, device, save_every=10**9, **settings))
    outcome = train(run, x0)
    return run, float(outcome.best)


def judged(case: Case, scale: float, device: str) -> dict:
    with tempfile.TemporaryDirectory() as place:
        folder, began = Path(place), time.perf_counter()
        path = WRITERS[case.data](folder, case.rows)
        steps = max(10, round(case.steps * scale))
        run, short = trained(path, folder / "short", steps, device)
        said = of_run(run)
        _, long = trained(path, folder / "long", 10 * steps, device)
        helps = short - long > said.tolerance
        result = {
            "case": case.name,
            "steps": steps,
            "verdict": said.verdict,
            "right": helps == (said.verdict == "improving"),
        }
        result |= {
            "gain of ten times": short - long,
            "tolerance": said.tolerance,
            "told per doubling": said.gain_per_doubling,
        }
        return result | {"bound": short, "seconds": time.perf_counter() - began}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scale", type=float, default=1.0, help="of the steps of every case")
    parser.add_argument("--only", default="", help="cases whose name holds this")
    parser.add_argument("--device", default="cpu")
    options = parser.parse_args()
    found = []
    for case in CASES:
        if options.only in case.name:
            found.append(judged(case, options.scale, options.device))
            print(json.dumps(found[-1]), flush=True)
    print(f"right in {sum(entry['right'] for entry in found)} of {len(found)} cases")


if __name__ == "__main__":
    main()
