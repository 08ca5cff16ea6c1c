"""The models of the demo: their data, their training, and the simple models beside them."""

from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.data.read import Reading, read
from unnoise.evaluation.report import bound_on
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState
from unnoise.training.data_order import split
from unnoise.training.drawing import draw
from unnoise.training.recipes import recipe
from unnoise.training.run import Run
from unnoise.training.trainer import train
from unnoise.tree import batch_size, map_leaves


def trained(out: Path, name: str, path: Path, categories: bool, seconds: float, seed: int) -> dict[str, Any]:
    """Train one, and measure it on the rows held out."""
    form, x0 = read(path, Reading(categories=categories))
    config = recipe(form, batch_size(x0), "tiny", "cpu", minutes=seconds / 60, seed=seed, device="cpu", patience=1000)
    run = Run.create(out / name.replace(" ", "-"), config)
    print(f"{name}: {batch_size(x0)} examples, {seconds:.0f} s of training", flush=True)
    outcome = train(run, x0, progress=True)
    kept, held = split(batch_size(x0), config.train.validation, config.train.seed)
    seen, unseen = (map_leaves(lambda leaf, rows=rows: leaf[rows], x0) for rows in (kept, held))
    denoiser = run.denoiser(which="best")
    found = bound_on(denoiser, unseen, 8, seed, options=form.objective_options(), log_fill=form.log_fill)
    samples, _ = draw(denoiser, form, 64, seed=seed, device="cpu", steps=None if categories else 64)
    baseline, against = baseline_of(form, seen, unseen, seed)
    shown = {"run": run, "format": form, "real": unseen, "samples": samples, "outcome": outcome}
    return {"name": name, "baseline": baseline, "against": against, **found, **shown}


def built_in(folder: Path) -> list[tuple[str, Path, bool]]:
    """(name, file, whether levels are categories)."""
    from sklearn.datasets import load_digits

    digits = folder / "digits.npy"
    np.save(digits, load_digits().images.astype(np.uint8))
    census = Path(str(files("unnoise.data") / "builtin" / "adult.csv.gz"))
    return [("digits as numbers", digits, False), ("digits as categories", digits, True), ("mixed table", census, False)]


def baseline_of(form: Any, seen: AnyState, unseen: AnyState, seed: int) -> tuple[float, str]:
    """Nats per unseen example of a simple model fitted to the seen ones."""
    if isinstance(unseen, dict):
        parts = [_labels(seen[n], unseen[n]) if n == "categories" else _normal(seen[n], unseen[n]) for n in unseen]
        return float((torch.stack(parts).sum(0) + form.log_fill(unseen)).mean()), "independent columns"
    if not unseen.dtype.is_floating_point:
        return float(_labels(seen, unseen).mean()), "independent pixels"
    spread = [form.width * (NoiseSource(seed, len(x)).at("bin").uniform(tuple(x.shape[1:])) - 0.5) for x in (seen, unseen)]
    a, b = ((x.double() + u).flatten(1) for x, u in zip((seen, unseen), spread, strict=True))
    covariance = torch.cov(a.T) + 1e-3 * torch.eye(a.shape[1], dtype=torch.float64)
    law = torch.distributions.MultivariateNormal(a.mean(0), covariance)
    return float(-law.log_prob(b).mean()) - a.shape[1] * float(np.log(form.width)), "a fitted Gaussian (on the bins)"


def _labels(seen: Tensor, unseen: Tensor) -> Tensor:
    """Independent coordinates with the frequencies of the seen rows, one more of each."""
    seen, unseen = seen.flatten(1), unseen.flatten(1)
    total = torch.zeros(len(unseen), dtype=torch.float64)
    for k in range(seen.shape[1]):
        size = int(max(seen[:, k].max(), unseen[:, k].max())) + 1
        share = (seen[:, k].bincount(minlength=size).double() + 1) / (len(seen) + size)
        total = total - share.log()[unseen[:, k]]
    return total


def _normal(seen: Tensor, unseen: Tensor) -> Tensor:
    law = torch.distributions.Normal(seen.double().mean(0), seen.double().std(0))
    return -law.log_prob(unseen.double()).flatten(1).sum(1)
