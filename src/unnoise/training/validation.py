"""The bound on held-out rows, with two standard errors.

Every row is noised `draws` times, by numbers that are a function of (seed, draw, row), so that two validations differ by the
weights alone.  With y_ik the bound of row i at draw k, m_i its mean over K draws, n rows,

    bound     the mean of m_i over rows, in nats
    se        how far the bound on other rows of the same law, noised anew, may lie
    draw_se   how far the bound on these rows, noised anew, may lie: a part of se

Times are spread over the rows of a batch: at one draw neighbouring rows have neighbouring times, all moved by one number.
So y_ik = a_i + h(t_ik) + e_ik: what the row has, what the time has in the mean over rows, and the rest.  The sum of h over
the strata is nearly constant, and h adds nothing to the error of a batch's mean, but much to the spread within a row.  With
r_ik = y_ik - m_i, the mean square difference of neighbours is free of a and, but for a stratum's width, of h:

    V_e = sum of (r_ik - r_jk)^2 over neighbours / (2 x pairs x (K - 1))      draw_se^2 = V_e/(K n)
    W   = sum of r_ik^2 / (n (K - 1))                                         = V_e + var h: all spread within a row
    V_a = max(0, var m_i - W/K)                                               se^2 = V_a/n + draw_se^2

so the whole contains its part.  A deviation of fewer than `LEAST` rows is hardly known itself: there is no error then (NaN),
and `error_words` says so; nor is there a draw_se where a single draw tells nothing of it.
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from math import isfinite, nan, sqrt
from typing import Any

import torch
from torch import Tensor

from unnoise.batch_sizes import even
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective, Terms
from unnoise.shapes import Float, Int, Tree
from unnoise.training.data_order import Source
from unnoise.training.telling import ToldObjective
from unnoise.tree import map_leaves

LEAST = 8  # rows, or degrees of freedom, from which an error is told


@dataclass(frozen=True)
class Validation:
    bound: float
    se: float
    draw_se: float
    prior: float
    diffusion: float
    reconstruction: float
    rows: int

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


@torch.no_grad()
def validate(
    objective: Objective | ToldObjective,
    source: Source,
    rows: Int[Tensor, "rows"],
    accelerator: Any,
    batch: int,
    draws: int,
    seed: int,
    precision: Callable[[], AbstractContextManager] = nullcontext,
    log_fill: Callable[[Tree], Tensor] | None = None,
) -> Validation:
    """All processes together: each has its piece of every batch, and all return the same.

    `log_fill` is that of a format: it joins the reconstruction term.
    """
    denoiser, device = objective.denoiser, accelerator.device
    world, rank = accelerator.num_processes, accelerator.process_index
    batch = world * -(-even(len(rows), batch) // world)  # as large as one another: each has all strata of time
    was_training = denoiser.training
    denoiser.eval()
    results = []
    for start in range(0, len(rows), batch):
        part = torch.arange(start, start + batch) % len(rows)  # the last batch is filled up, and cut again below
        mine = rows[part[rank * batch // world : (rank + 1) * batch // world]]
        x0 = map_leaves(lambda leaf: leaf.to(device), source.take(mine))
        for draw in range(draws):
            noise = NoiseSource(seed, mine, device).at("validation", draw, "batch", start)
            with precision():
                bound = objective(x0, noise)
            results.append(terms_of(bound, x0, log_fill))
    denoiser.train(was_training)
    terms = torch.stack([accelerator.gather(result) for result in results])  # [batches * draws, batch, 3]
    terms = terms.reshape(-1, draws, batch, 3).transpose(0, 1).reshape(draws, -1, 3)
    return summary(terms[:, : len(rows)].cpu(), batch)


def terms_of(bound: Terms, x0: Tree, log_fill: Callable[[Tree], Tensor] | None) -> Float[Tensor, "rows 3"]:
    """Prior, diffusion and reconstruction of every row, the latter with what else the bound has, such as terms of a
    code, and what is known of the format's fills."""
    rest = bound.total - bound.prior - bound.diffusion if len(bound.terms) > 3 else bound.reconstruction
    terms = torch.stack([bound.prior, bound.diffusion, rest], -1).double()
    if log_fill is not None:
        terms[:, 2] += log_fill(x0).to(terms)
    return terms


def summary(terms: Float[Tensor, "draws rows 3"], batch: int | None = None) -> Validation:
    """Of the three terms of every row at every draw; times were spread over batches of so many rows (None: over all)."""
    prior, diffusion, reconstruction = terms.mean((0, 1)).tolist()
    total, rows = terms.sum(-1), terms.shape[1]
    se, draw_se = errors(total, batch or rows)
    return Validation(float(total.mean()), se, draw_se, prior, diffusion, reconstruction, rows)


def errors(total: Float[Tensor, "draws rows"], batch: int) -> tuple[float, float]:
    """(se, draw_se) as above; the spread of rows alone where there is one draw."""
    draws, rows = total.shape
    of_rows = float(total.mean(0).var()) if rows > 1 else nan
    if draws < 2:
        return (sqrt(of_rows / rows) if rows >= LEAST else nan), nan
    rest = total - total.mean(0)
    within = float(rest.square().sum()) / (rows * (draws - 1))
    gaps = [part.diff(dim=1) for part in rest.split(batch, 1) if part.shape[1] > 1]
    pairs = sum(gap.shape[1] for gap in gaps)
    # of very few rows a stratum is wide, and neighbours may differ more than the draws of one row
    drawn = min(within, sum(float(gap.square().sum()) for gap in gaps) / (2 * pairs * (draws - 1))) if pairs else within
    draw_se = sqrt(drawn / (draws * rows)) if rows * (draws - 1) >= LEAST else nan
    return (sqrt(max(0.0, of_rows - within / draws) / rows + drawn / (draws * rows)) if rows >= LEAST else nan), draw_se


def error_words(se: float | None, rows: int | None = None) -> str:
    """An error as it stands behind a figure: " ± 0.12", or that there are too few rows to know it."""
    if se is not None and isfinite(se):
        return f" ± {se:.2g}"
    return "" if rows is None or rows >= LEAST else f" (of {rows} held-out row{'s' * (rows > 1)}: too few to tell its error)"
