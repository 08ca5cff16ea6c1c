"""Time series: held-out nats per row of the default network, beside a Gaussian with the training covariance.

    python benchmarks/series.py FOLDER [--only BasicMotions] [--minutes 2] [--seeds 3]

FOLDER is where a wheel of the package aeon is unpacked (`pip download aeon --no-deps`, `unzip`): it ships the series.

    BasicMotions    accelerometer and gyroscope of a watch: 80 rows, 6 channels of 100 places
    JapaneseVowels  cepstra of spoken vowels: the first 16 frames of the rows that have as many, 12 channels

(Series that were scaled to mean 0 and variance 1 one by one, as those of many collections, lie on a sphere and have no
density: nats mean nothing there.)

The rows are split at random, a fifth held out; training knows nothing of it.  Both are in the units of the model (every
place has mean 0 and variance 1 over the training rows).  The Gaussian is the better one on the held-out rows of two: the
covariance (1 - a) S + a diag(S) with the a under which fifths of the training rows, left out in turn, are likeliest, and
that of Ledoit and Wolf.  The model's is the bound, at 64 nodes in time with `--draws` noises for each, an upper bound on its
nats.  "the law it starts from" is what the network knows before its first update, here fitted to all training rows.  Errors
are standard errors over rows; that of the difference is paired, row by row.
"""

import argparse
import json
import tempfile
from math import log, pi
from pathlib import Path

import numpy as np
import torch
from sklearn.covariance import LedoitWolf

from unnoise.data.read import read
from unnoise.networks.scale_mixture import fit_scale_mixture, shrunk_gaussian
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective, Quadrature
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train

FRAMES = {"BasicMotions": 100, "JapaneseVowels": 16}


def series(folder: Path, name: str) -> np.ndarray:
    """[rows, channels, length] of a .ts file of either part."""
    (root,) = folder.rglob(f"{name}_TRAIN.ts")
    rows = []
    for part in ("TRAIN", "TEST"):
        for line in (root.parent / f"{name}_{part}.ts").read_text().splitlines():
            if line and line[0] not in "#@":
                channels = [[float(v) for v in channel.split(",")] for channel in line.split(":")[:-1]]
                if min(map(len, channels)) >= FRAMES[name]:
                    rows.append([channel[: FRAMES[name]] for channel in channels])
    return np.array(rows)


def gaussian_nats(x: torch.Tensor, mean: torch.Tensor, covariance: torch.Tensor) -> torch.Tensor:
    factor = torch.linalg.cholesky(covariance)
    z = torch.linalg.solve_triangular(factor, (x - mean).T, upper=False)
    return 0.5 * z.square().sum(0) + factor.diagonal().log().sum() + 0.5 * x.shape[1] * log(2 * pi)


@torch.no_grad()
def model_nats(run: Run, x: torch.Tensor, draws: int) -> torch.Tensor:
    denoiser = run.denoiser(which="best")
    objective = Objective(denoiser, **{**run.objective_options(), "times": Quadrature(64, power=16.0)})
    rows = torch.arange(len(x))
    return torch.stack([objective(x, NoiseSource(1, rows).at("draw", draw)).total.double() for draw in range(draws)]).mean(0)


def compare(name: str, values: np.ndarray, seed: int, options: argparse.Namespace) -> dict:
    order = np.random.default_rng(seed).permutation(len(values))
    held, kept = order[: len(values) // 5], order[len(values) // 5 :]
    with tempfile.TemporaryDirectory() as folder:
        for part, rows in (("train", kept), ("test", held)):
            np.save(Path(folder) / f"{part}.npy", values[rows])
        form, x = read(Path(folder) / "train.npy")
        test = form.encode(Path(folder) / "test.npy")
        more = {} if options.steps is None else {"steps": options.steps}
        config = recipe(form, len(x), minutes=None if more else options.minutes, seed=seed, **more)
        run = Run.create(Path(folder) / "run", config)
        outcome = train(run, x)
        ours = model_nats(Run.open(run.folder), test, options.draws)
    flat, held_out = x.flatten(1).double(), test.flatten(1).double()
    wolf = LedoitWolf().fit(flat.numpy())
    laws = {
        "cross-validated": shrunk_gaussian(flat),
        "Ledoit-Wolf": (torch.as_tensor(wolf.location_), torch.as_tensor(wolf.covariance_)),
    }
    theirs = {law: gaussian_nats(held_out, *found) for law, found in laws.items()}
    best = min(theirs, key=lambda law: float(theirs[law].mean()))
    result = {"series": name, "network": config.network["name"], "rows": len(x), "held out": len(test), "seed": seed}
    result |= {"steps": outcome.step, "ended by": outcome.reason, "seconds": round(outcome.seconds)}
    start = fit_scale_mixture(flat).nll(held_out)
    result |= {
        "model": shown(ours),
        "the law it starts from": shown(start),
        **{f"Gaussian, {law}": shown(nats) for law, nats in theirs.items()},
    }
    return result | {"model - best Gaussian": shown(ours - theirs[best])}


def shown(nats: torch.Tensor) -> str:
    return f"{float(nats.mean()):.1f} ± {float(nats.std()) / len(nats) ** 0.5:.1f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", choices=list(FRAMES))
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--draws", type=int, default=8)
    options = parser.parse_args()
    for name in [options.only] if options.only else FRAMES:
        values = series(options.folder, name)
        for seed in range(options.seeds):
            print(json.dumps(compare(name, values, seed, options)), flush=True)


if __name__ == "__main__":
    main()
