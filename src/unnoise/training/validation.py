"""The bound on held-out rows, with two standard errors.

Every row is noised `draws` times, by numbers that are a function of (seed, draw, row), so that two validations differ by the
weights alone.  With m_i the mean of row i over the draws,

    bound     the mean of m_i over rows, in nats
    se        sd(m_i) / sqrt(rows): how far the bound on other rows of the same law may lie
    draw_se   sd over draws of the mean over rows / sqrt(draws): the part of it that is due to random times and noise
"""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from math import sqrt
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.objectives import Objective, Terms
from unnoise.shapes import Float, Int, Tree
from unnoise.training.data_order import Source
from unnoise.tree import map_leaves


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
    objective: Objective,
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
    batch = world * min(-(-batch // world), -(-len(rows) // world))
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
    return summary(terms.reshape(-1, draws, batch, 3).transpose(0, 1).reshape(draws, -1, 3)[:, : len(rows)].cpu())


def terms_of(bound: Terms, x0: Tree, log_fill: Callable[[Tree], Tensor] | None) -> Float[Tensor, "rows 3"]:
    """Prior, diffusion and reconstruction of every row, the latter with what is known of the format's fills."""
    terms = torch.stack([bound.prior, bound.diffusion, bound.reconstruction], -1).double()
    if log_fill is not None:
        terms[:, 2] += log_fill(x0).to(terms)
    return terms


def summary(terms: Float[Tensor, "draws rows 3"]) -> Validation:
    """Of the three terms of every row at every draw."""
    total, (draws, rows) = terms.sum(-1), terms.shape[:2]
    prior, diffusion, reconstruction = terms.mean((0, 1)).tolist()
    return Validation(
        bound=float(total.mean()),
        se=float(total.mean(0).std()) / sqrt(rows) if rows > 1 else float("nan"),
        draw_se=float(total.mean(1).std()) / sqrt(draws) if draws > 1 else float("nan"),
        prior=prior,
        diffusion=diffusion,
        reconstruction=reconstruction,
        rows=rows,
    )
