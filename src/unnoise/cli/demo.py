"""`unnoise demo`: three small models of built-in data, trained and shown on one page.

    digits as numbers       8 x 8 pixels with 17 levels under Gaussian noise       beside a Gaussian fitted to them
    digits as categories    the same levels as categories, by steps up and down    beside independent pixels
    a mixed table           a census extract, numbers and categories together      beside independent columns

All figures are nats per held-out example: the model's bound, above its negative log-likelihood, and that of the baseline.
"""

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.cli.tables import table
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState


@dataclass(kw_only=True)
class Demo:
    """Train three small models on built-in data (8 x 8 digits as numbers and as categories, a mixed table), print their
    bounds beside simple baselines, and write one page with pictures."""

    out: Path = Path("demo")
    """The folder for the page and the three runs; it must be new or empty."""

    seconds: float = 32.0
    """Training time of each model."""

    seed: int = 0
    """The seed of all draws."""

    def run(self) -> int:
        from unnoise.cli.demo_page import write_page

        try:
            import matplotlib
            import sklearn  # noqa: F401
        except ImportError as error:
            raise ValueError(f"the demo needs {error.name}: pip install 'unnoise[plot,data,train]'") from None
        matplotlib.use("Agg")
        if self.out.exists() and any(self.out.iterdir()):
            raise ValueError(f"{self.out} is not empty: choose a new folder with --out")
        self.out.mkdir(parents=True, exist_ok=True)
        results = [self.model(name, path, categories) for name, path, categories in built_in(self.out)]
        rows = [
            [r["name"], f"{r['bound']:.2f} ± {r['standard_error']:.2f}", f"{r['baseline']:.2f}", r["against"]]
            for r in results
        ]
        print(table(["model", "bound, nats per example", "baseline", "which is"], rows))
        page = write_page(self.out, results, self.seed)
        print(f"wrote {page}")
        return 0 if all(r["bound"] < r["baseline"] for r in results) else 1

    def model(self, name: str, path: Path, categories: bool) -> dict[str, Any]:
        """Train one, and measure it on the rows held out."""
        from unnoise.data.read import Reading, read
        from unnoise.evaluation.report import bound_on
        from unnoise.training.data_order import split
        from unnoise.training.drawing import draw
        from unnoise.training.recipes import recipe
        from unnoise.training.run import Run
        from unnoise.training.trainer import train
        from unnoise.tree import batch_size, map_leaves

        form, x0 = read(path, Reading(categories=categories))
        config = recipe(
            form, batch_size(x0), "tiny", "cpu", minutes=self.seconds / 60, seed=self.seed, device="cpu", patience=1000
        )
        run = Run.create(self.out / name.replace(" ", "-"), config)
        print(f"{name}: {batch_size(x0)} examples, {self.seconds:.0f} s of training", flush=True)
        outcome = train(run, x0, progress=True)
        kept, held = split(batch_size(x0), config.train.validation, config.train.seed)
        seen, unseen = (map_leaves(lambda leaf, rows=rows: leaf[rows], x0) for rows in (kept, held))
        denoiser = run.denoiser(which="best")
        found = bound_on(denoiser, unseen, 8, self.seed, options=form.objective_options(), log_fill=form.log_fill)
        samples, _ = draw(denoiser, form, 64, seed=self.seed, device="cpu", steps=None if categories else 64)
        baseline, against = baseline_of(form, seen, unseen, self.seed)
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
