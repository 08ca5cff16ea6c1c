"""All figures of a trained run: the bound on data, bits per dimension, the quality of samples beside controls."""

import json
from math import log, sqrt
from pathlib import Path
from typing import Any

import torch
from tqdm import tqdm

from unnoise.data.base import Format
from unnoise.data.table import Table
from unnoise.denoiser import Denoiser
from unnoise.evaluation import tables
from unnoise.noise import Noise
from unnoise.objectives import Objective
from unnoise.shapes import Tree
from unnoise.spaces import batch_size, map_leaves
from unnoise.training.data_order import split
from unnoise.training.drawing import device_of, draw
from unnoise.training.run import Run

MOST_SAMPLES = 20_000


def data_path(run: Run) -> Path:
    """The file that the run was trained on."""
    return Path(json.loads((run.folder / "data.json").read_text())["path"])


@torch.no_grad()
def bound_on(
    denoiser: Denoiser,
    x0: Tree,
    draws: int,
    seed: int,
    batch: int = 256,
    progress: bool = False,
    options: dict[str, Any] | None = None,
) -> dict[str, Any]:
    """The bound's terms in nats per example; its standard error is that of the mean over examples, draws averaged first."""
    objective, device = Objective(denoiser, **(options or {})), next(denoiser.parameters()).device
    rows, terms = batch_size(x0), []
    for start in tqdm(range(0, rows, batch), unit="batch", desc="bound", disable=not progress, leave=False):
        index = torch.arange(start, min(start + batch, rows))
        part = map_leaves(lambda leaf, index=index: leaf[index].to(device), x0)
        found = []
        for k in range(draws):
            b = objective(part, Noise(seed, index, device).at("evaluate", k, "batch", start))
            found.append(torch.stack([b.prior, b.diffusion, b.reconstruction], -1).double().cpu())
        terms.append(torch.stack(found).mean(0))
    each = torch.cat(terms)
    total = each.sum(1)
    dimension = denoiser.process.space.dimension
    return {
        "bound": float(total.mean()),
        "standard_error": float(total.std()) / sqrt(rows) if rows > 1 else float("nan"),
        "prior": float(each[:, 0].mean()),
        "diffusion": float(each[:, 1].mean()),
        "reconstruction": float(each[:, 2].mean()),
        "bits_per_dim": float(total.mean()) / dimension / log(2),
        "examples": rows,
        "dimension": dimension,
    }


def _encoded(format: Format, path: Path) -> Tree:
    """A file's states; values of a table that were never seen are moved to the nearest, with a warning."""
    return format.encode(path, unseen="nearest") if isinstance(format, Table) else format.encode(path)


def evaluate(
    run: Run,
    data: Path | None = None,
    rows: int = 4096,
    draws: int = 8,
    samples: int | None = None,
    target: str | None = None,
    seed: int = 0,
    device: str = "auto",
    progress: bool = False,
) -> dict[str, Any]:
    """Every figure that the data's kind has."""
    format, denoiser = run.format(), run.denoiser(which="best").to(device_of(device))
    train = format.encode(data_path(run))
    kept, held = split(batch_size(train), run.config.train.validation, run.config.train.seed)
    if data is None and not len(held):
        raise ValueError(f"{run.folder} held no rows out: pass --data FILE")
    x0 = _encoded(format, data) if data is not None else map_leaves(lambda leaf: leaf[held], train)
    x0 = map_leaves(lambda leaf: leaf[:rows], x0)
    on = str(data) if data is not None else "held-out rows"
    result: dict[str, Any] = {
        "on": on,
        **bound_on(denoiser, x0, draws, seed, progress=progress, options=format.objective_options()),
    }
    if isinstance(format, Table) and samples != 0:
        count = samples or min(batch_size(train), MOST_SAMPLES)
        x, _ = draw(denoiser, format, count, seed=seed, device=device, progress=progress)
        real = format.frame(train)
        unseen = format.frame(_encoded(format, data) if data is not None else map_leaves(lambda leaf: leaf[held], train))
        result["samples"] = tables.score(real, format.frame(x), unseen if data is not None else None, target, seed).json()
        result["control_unseen_rows"] = tables.score(real, unseen, None, None, seed).json()
        result["control_independent_columns"] = tables.score(real, tables.shuffled(real, seed), None, None, seed).json()
    return result
