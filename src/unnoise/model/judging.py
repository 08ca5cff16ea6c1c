"""How likely rows are under a trained model, and all figures of it."""

from typing import Any

import numpy as np
from torch import Tensor

from unnoise.denoiser import Denoiser
from unnoise.evaluation.likelihood import bound_terms, exact_method
from unnoise.evaluation.report import evaluate
from unnoise.likelihoods import Enumeration, likelihood
from unnoise.shapes import Float, Tree
from unnoise.training.data_order import split
from unnoise.training.run import Run
from unnoise.tree import batch_size, map_leaves
from unnoise.tree import rows as some_rows

BATCH = 64  # rows whose density is found together


def row_bounds(denoiser: Denoiser, run: Run, x0: Tree, draws: int, seed: int, progress: bool) -> Float[np.ndarray, "rows"]:
    """The bound on -log p of each row, the mean of so many draws."""
    options, format = run.objective_options(), run.format()
    own = {"options": options, "log_fill": format.log_fill, "format": format}
    terms = bound_terms(denoiser, x0, draws, seed, progress=progress, **own)  # type: ignore[arg-type]
    return terms.sum(-1).mean(0).numpy()


def log_density(denoiser: Denoiser, run: Run, x0: Tree, seed: int) -> Float[np.ndarray, "rows"]:
    """log p of each row, by the exact method where there is one, else by weighted paths."""
    format = run.format()
    if format.inputs():
        raise ValueError("of data given conditions the bound is told, model.bound(rows): no exact value is found beside it")
    method: Any = exact_method(denoiser, format, run.objective_options())
    method = None if isinstance(method, str) else method
    size = batch_size(x0) if isinstance(method, Enumeration) else BATCH  # a table is made once for all rows
    found = []
    for first in range(0, batch_size(x0), size):
        part = map_leaves(lambda leaf, first=first: leaf[first : first + size].to(denoiser.device), x0)
        log_p, _ = likelihood(denoiser, _levels(part, method), method, seed=seed + first)
        found.append((log_p.cpu() - format.log_fill(part).cpu()).numpy())  # type: ignore[arg-type]
    return np.concatenate(found)


def _levels(x: Tree, method: Any) -> Tree:
    """States as the method takes them: levels, of numbers that stand for some."""
    if getattr(method, "takes_states", True):
        return x

    def level(leaf: Tensor) -> Tensor:
        return ((leaf.double() - method.low) / method.width).floor().long()

    return map_leaves(level, x)


def scored(
    run: Run, everything: Tree | None, test: tuple[Tree, list[str]] | None, options: dict[str, Any]
) -> dict[str, Any]:
    """The figures of `unnoise evaluate` on test rows, or on those that were held out of all rows the run was given."""
    if everything is None and (test is None or options.get("samples") != 0):
        raise ValueError(
            "the rows that the model was trained on are not here: pass test and samples=0 for the bound alone, or save the "
            "model with data=True"
        )
    train = unseen = None
    if everything is not None:
        config = run.config.train
        kept, held = split(batch_size(everything), config.validation, config.seed)
        train, unseen = some_rows(everything, kept), some_rows(everything, held)
    unseen, moved = (unseen, []) if test is None else test
    if unseen is None or not batch_size(unseen):
        raise ValueError("no rows were held out: pass test")
    return evaluate(run, sets=(train, unseen, moved), on="held-out rows" if test is None else "the test rows", **options)
