"""Angles and places: held-out nats per row of the default model, beside densities that are fitted to the same rows.

    python benchmarks/angles_and_places.py flights FILE       data/flights-3m.parquet of the npm package vega-datasets
    python benchmarks/angles_and_places.py airports FILE      airportsdata/airports.csv of the PyPI package airportsdata
    python benchmarks/angles_and_places.py earthquakes FILE   data/earthquakes.json of vega-datasets
                [--minutes 3] [--rows 20000] [--seed 0] [--set-network NAME=VALUE ...] [--picture FILE.png]

(`npm pack vega-datasets`, `pip download airportsdata --no-deps`, and unpack.)  Of flights the time of day and the day of the
year, of the others latitude and longitude.  A fifth of the rows, drawn by the seed, is held out.  The model is trained on a
file of the others by one command, which is printed.

All densities are of the same numbers, in nats: in radians of both angles, or in the area of the unit sphere.  Numbers on a
grid have no density, so each stands anywhere in the interval that it owns (a minute, a day), drawn once as the table's
format does, for the model and the others alike: nobody wins by finding the grid.  Of places that occur more than once one
row is kept, since a kernel on a repeated place has any density that one likes.

The model's figure is its bound, at 64 times with three draws of noise at each, an upper bound on its nats.  The others learn
how smooth to be from a fifth of the training rows (1,000 at most), held out, and are then fitted to all:

    histograms      of each angle alone; the number of bins is chosen
    kernels, alone  wrapped normal ones on each angle alone; the widths are chosen
    kernels         a product of two wrapped normal ones, both widths chosen, or von Mises-Fisher, the concentration chosen
    mixture         of von Mises-Fisher laws by expectation and maximisation; their number is chosen

Errors are standard errors over rows; of a difference, row by row.
"""

import argparse
import csv
import json
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from math import log, pi
from pathlib import Path

import numpy as np
import torch

from unnoise.data.table import Table
from unnoise.data.table_files import overrides
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective, Quadrature
from unnoise.training.run import Run
from unnoise.tree import rows as rows_of

PIECE = 256  # held-out rows at a time
WIDTHS = np.geomspace(0.0005, 0.5, 19)  # of kernels, in radians
BINS = (12, 24, 48, 96, 144, 288, 480, 720, 1440)
COMPONENTS = (10, 20, 40, 80, 160, 320)


def flights(file: Path, rows: int, seed: int) -> tuple[list[str], list[tuple], str]:
    import pyarrow.parquet as parquet

    date = parquet.read_table(file, columns=["date"])["date"].to_numpy()
    pick = np.sort(np.random.default_rng(seed).choice(len(date), rows, replace=False))
    date = date[pick].astype("datetime64[m]")
    clock = [str(moment)[11:16] for moment in date]
    day = (date.astype("datetime64[D]") - date.astype("datetime64[Y]")).astype(int) + 1
    return ["time", "day"], list(zip(clock, day.tolist(), strict=True)), "time: angle\nday: {kind: angle, period: days}\n"


def airports(file: Path, rows: int, seed: int) -> tuple[list[str], list[tuple], str]:
    with file.open(encoding="utf-8") as stream:
        places = dict.fromkeys((row["lat"], row["lon"]) for row in csv.DictReader(stream))
    return ["lat", "lon"], _some(list(places), rows, seed), ""


def earthquakes(file: Path, rows: int, seed: int) -> tuple[list[str], list[tuple], str]:
    found = [feature["geometry"]["coordinates"] for feature in json.loads(file.read_text())["features"]]
    return ["lat", "lon"], _some(list(dict.fromkeys((lat, lon) for lon, lat, _ in found)), rows, seed), ""


def _some(places: list[tuple], rows: int, seed: int) -> list[tuple]:
    order = np.random.default_rng(seed).permutation(len(places))[:rows]
    return [places[i] for i in order]


DATA: dict[str, Callable[[Path, int, int], tuple[list[str], list[tuple], str]]] = {
    "flights": flights,
    "airports": airports,
    "earthquakes": earthquakes,
}


@torch.no_grad()
def model_nats(run: Run, x: dict, nodes: int = 64, draws: int = 3) -> np.ndarray:
    """The bound of every row, some draws of noise at each of the nodes in time."""
    objective = Objective(run.denoiser(which="best"), **{**run.objective_options(), "times": Quadrature(nodes, power=1.0)})
    rows = torch.arange(len(next(iter(x.values()))))
    parts = [
        [objective(rows_of(x, some), NoiseSource(seed, some)).total for some in rows.split(PIECE)] for seed in range(draws)
    ]
    return torch.stack([torch.cat(each) for each in parts]).double().mean(0).numpy()


def chosen(fit: Callable, settings: list, x: np.ndarray, x_held: np.ndarray) -> tuple[np.ndarray, object]:
    """Nats of the held-out rows by the setting under which a fifth of the others is likeliest, fitted to all of them."""
    order = np.random.default_rng(0).permutation(len(x))
    part, rest = x[order[: min(len(x) // 5, 1000)]], x[order[len(x) // 5 :]]
    best = min(settings, key=lambda setting: float(fit(rest, setting)(part).mean()))
    return fit(x, best)(x_held), best


def histogram(x: np.ndarray, bins: int) -> Callable:
    """Of one angle, a pseudo-count of a half in each bin."""
    count = np.bincount(np.floor((x + pi) / (2 * pi) * bins).astype(int) % bins, minlength=bins) + 0.5
    log_density = np.log(count / count.sum() * bins / (2 * pi))
    return lambda y: -log_density[np.floor((y + pi) / (2 * pi) * bins).astype(int) % bins]


def log_kernel(gap: np.ndarray, width: float) -> np.ndarray:
    """A wrapped normal law, of a width of at most 0.5: the nearest three ways round."""
    gap = gap - 2 * pi * np.round(gap / (2 * pi))
    ways = [-0.5 * ((gap + 2 * pi * k) / width) ** 2 for k in (-1, 0, 1)] if width > 0.3 else [-0.5 * (gap / width) ** 2]
    return np.logaddexp.reduce(ways) - log(width) - 0.5 * log(2 * pi)


def kernels(x: np.ndarray, widths: tuple[float, ...]) -> Callable:
    """A product of wrapped normal laws around every row."""

    def nats(y: np.ndarray) -> np.ndarray:
        found = []
        for some in np.array_split(y, max(1, len(y) // 64)):
            each = sum(log_kernel(some[:, None, i] - x[None, :, i], width) for i, width in enumerate(widths))
            found.append(log(len(x)) - np.logaddexp.reduce(each, 1))
        return np.concatenate(found)

    return nats


def log_fisher(cosine: np.ndarray, k: np.ndarray | float) -> np.ndarray:
    """log of k/(4 pi sinh k) e^{k cos w}."""
    return k * (cosine - 1) + np.log(k) - log(2 * pi) - np.log1p(-np.exp(-2 * np.asarray(k)))


def fisher_kernels(x: np.ndarray, k: float) -> Callable:
    def nats(y: np.ndarray) -> np.ndarray:
        return np.concatenate(
            [
                log(len(x)) - np.logaddexp.reduce(log_fisher(some @ x.T, k), 1)
                for some in np.array_split(y, max(1, len(y) // 64))
            ]
        )

    return nats


def fisher_mixture(x: np.ndarray, components: int, steps: int = 60) -> Callable:
    """By expectation and maximisation from rows that lie apart, and a uniform law as one more component, so that no row is
    beyond all of them."""
    rng = np.random.default_rng(1)
    middle = [x[rng.integers(len(x))]]
    far = 1 - x @ middle[0]
    while len(middle) < components:
        middle.append(x[rng.choice(len(x), p=far.clip(0) / far.clip(0).sum())])
        far = np.minimum(far, 1 - x @ middle[-1])
    mean, k = np.array(middle), np.full(components, 50.0)
    weight = np.full(components + 1, 1 / (components + 1))

    def joint(y: np.ndarray) -> np.ndarray:
        uniform = np.full((len(y), 1), -log(4 * pi))
        return np.concatenate([log_fisher(y @ mean.T, k), uniform], 1) + np.log(weight)

    for _ in range(steps):
        each = joint(x)
        share = np.exp(each - np.logaddexp.reduce(each, 1)[:, None])
        weight = (share.sum(0) + 1e-3) / (share.sum() + 1e-3 * len(weight))
        resultant = share[:, :-1].T @ x
        length = np.linalg.norm(resultant, axis=1)
        mean = resultant / length[:, None]
        r = (length / share[:, :-1].sum(0)).clip(1e-3, 1 - 1e-6)
        k = (r * (3 - r**2) / (1 - r**2)).clip(0.1, 1e5)
    return lambda y: -np.logaddexp.reduce(joint(y), 1)


def controls(x: np.ndarray, held: np.ndarray) -> dict[str, tuple[np.ndarray, object]]:
    if x.shape[1] == 3:
        unit = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in (x, held)]
        return {
            "kernels": chosen(fisher_kernels, [1 / w**2 for w in WIDTHS], *unit),
            "mixture": chosen(fisher_mixture, [c for c in COMPONENTS if c * 5 < len(x)], *unit),
        }
    alone = {"histograms": (histogram, list(BINS)), "kernels, alone": (lambda a, w: kernels(a, (w,)), list(WIDTHS))}
    found: dict[str, tuple[np.ndarray, object]] = {}
    for name, (fit, settings) in alone.items():
        columns = [slice(i, i + 1) if "kernels" in name else i for i in range(2)]
        parts = [chosen(fit, settings, x[:, i], held[:, i]) for i in columns]
        found[name] = parts[0][0] + parts[1][0], tuple(setting for _, setting in parts)
    pairs = [(a, b) for a in WIDTHS[2:18:3] for b in WIDTHS[6:17:2]]
    return found | {"kernels": chosen(kernels, pairs, x, held)}


def written(folder: Path, name: str, head: list[str], rows: list[tuple]) -> Path:
    with (folder / name).open("w", newline="") as stream:
        csv.writer(stream, lineterminator="\n").writerows([head, *rows])
    return folder / name


def compare(options: argparse.Namespace, folder: Path) -> dict:
    head, rows, kinds = DATA[options.data](options.file, options.rows, options.seed)
    order = np.random.default_rng(options.seed).permutation(len(rows))
    held, kept = ([rows[i] for i in part] for part in (order[: len(rows) // 5], order[len(rows) // 5 :]))
    paths = [written(folder, f"{name}.csv", head, part) for name, part in (("train", kept), ("held", held))]
    (folder / "kinds.yaml").write_text(kinds)
    table, x = Table.fit(paths[0], overrides(folder / "kinds.yaml") if kinds else None)
    y = table.encode(paths[1])
    flat = [np.concatenate([part[leaf].double().numpy() for leaf in x], 1) for part in (x, y)]
    result = {"data": options.data, "rows": len(kept), "held out": len(held), "leaves": repr(table.space)}
    theirs = controls(*flat)
    for name, (nats, setting) in theirs.items():
        result[name] = shown(nats) + f" by {np.round(setting, 4)}"
    print(json.dumps(result), flush=True)
    more = [part for setting in options.set_network for part in ("--set-network", setting)]
    more += ["--columns", str(folder / "kinds.yaml")] if kinds else []
    length = ["--steps", str(options.steps)] if options.steps else ["--minutes", str(options.minutes)]
    command = ["train", str(paths[0]), "--out", str(folder / "run"), *length, "--seed", str(options.seed), *more]
    print(f"unnoise {shlex.join(command)}", flush=True)
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "unnoise.cli", *command], check=True, stderr=subprocess.DEVNULL)
    result |= {"seconds": round(time.perf_counter() - started)}
    run = Run.open(folder / "run")
    ours = model_nats(run, y)
    best = min(theirs, key=lambda name: float(theirs[name][0].mean()))
    result |= {"model (a bound)": shown(ours), f"model - {best}": shown(ours - theirs[best][0])}
    if options.picture:
        drawn = folder / "drawn.csv"
        sample = ["sample", str(folder / "run"), "-n", str(min(len(held), 4000)), "--out", str(drawn), "--seed", "1"]
        subprocess.run([sys.executable, "-m", "unnoise.cli", *sample], check=True, stderr=subprocess.DEVNULL)
        z = table.encode(drawn)
        picture(options.picture, flat[1], np.concatenate([z[leaf].double().numpy() for leaf in x], 1))
    return result


def shown(nats: np.ndarray) -> str:
    return f"{nats.mean():.3f} ± {nats.std() / len(nats) ** 0.5:.3f}"


def picture(path: Path, real: np.ndarray, drawn: np.ndarray) -> None:
    """Real beside drawn: places on a map, of which equal areas are equal, or one angle against the other."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    globe = real.shape[1] == 3
    figure, axes = pyplot.subplots(
        2 if globe else 1, 1 if globe else 2, figsize=(7, 6.4) if globe else (8, 3.6), layout="tight"
    )
    for axis, x, title in zip(axes, (real, drawn), ("held-out rows", "drawn rows"), strict=True):
        x = x[: min(len(real), len(drawn))]
        if globe:
            axis.plot(np.degrees(np.arctan2(x[:, 1], x[:, 0])), x[:, 2], ".", ms=2, alpha=0.6, mew=0, color="#2b4c7e")
            axis.set(xlim=(-180, 180), ylim=(-1, 1), ylabel="sine of latitude", title=title)
            axis.set_xticks(range(-180, 181, 60))
        else:
            hour, day = (x[:, 0] / (2 * pi) * 24) % 24, (x[:, 1] / (2 * pi) * 365.25) % 365.25
            axis.plot(hour, day, ".", ms=2, alpha=0.6, mew=0, color="#2b4c7e")
            axis.set(xlim=(0, 24), ylim=(0, 365.25), xlabel="hour", ylabel="day of the year", title=title)
            axis.set_xticks(range(0, 25, 6))
    figure.savefig(path, dpi=76)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", choices=list(DATA))
    parser.add_argument("file", type=Path)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set-network", action="append", default=[])
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--folder", type=Path, help="where to keep files and the run; thrown away unless given")
    options = parser.parse_args()
    if options.folder:
        options.folder.mkdir(parents=True, exist_ok=True)
        print(json.dumps(compare(options, options.folder)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            print(json.dumps(compare(options, Path(folder))))


if __name__ == "__main__":
    main()
