"""How likely data is under a trained model: the bound, and beside it the exact value where there is one.

The bound's terms are drawn `draws` times for every row; its errors are those of `training.validation`:

    standard_error   how far the bound on other rows of the same law may lie
    draw_se          the part of it that is due to random times and noise, which more draws would lessen
    interval_95      bound -+ q x standard_error, q the quantile of Student's t of rows - 1 degrees of freedom

Exact values are

    numbers              -log p of the probability flow at the bound's own cut-off
    levels as numbers    -log P(k) of a level's bin under that density
    few categories       -log P of the reverse jump process, by enumeration

The bound is one on the reverse process.  The flow's density is that of the same model only where the network is exact, so a
bound may lie a little below it; far below means that something is wrong.

For levels a number x is drawn in the bin.  What the model has at its cut-off eps is data with noise of sd s = sigma/alpha, a
sixth of the bin's width, around the bin's middle.  So u, the place in the bin, is drawn from that very law, cut to the bin:

    -log P(k) <= E_q [log q(u | k) - log p_eps(x) - log w],      q(u | k) = N(u; 1/2, s/w) / P(0 < u < 1)

with equality where p_eps has that form in the bin.  A uniform u would cost 0.6 nats in every coordinate.
"""

from collections.abc import Callable
from math import inf, log, pi, sqrt
from time import perf_counter
from typing import Any, cast

import torch
from torch import Tensor, nn
from tqdm.auto import tqdm

from unnoise.batch_sizes import TRIED, even, measured, memory_of
from unnoise.data.base import Format
from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import enumerable
from unnoise.laws import sum_coordinates
from unnoise.likelihoods import Dequantised, Enumeration, Likelihood, ProbabilityFlow, likelihood
from unnoise.likelihoods.enumerate import how_many
from unnoise.likelihoods.likelihood import FEW_COORDINATES, FEW_STATES, PROBES
from unnoise.networks import column
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective
from unnoise.objectives.pieces import in_pieces
from unnoise.processes import Gaussian, Process
from unnoise.shapes import Float, Int, Tree
from unnoise.training.leaf_kinds import leaf_kind, leaf_processes
from unnoise.training.telling import told_objective
from unnoise.training.validation import LEAST, summary, terms_of
from unnoise.tree import batch_size, first_leaf, map_leaves
from unnoise.tree import rows as some_rows

BATCH = 256  # rows that times are spread over, at most
DRAWS = 64  # of the bound on rows that have an exact value: so many that the difference of the two is seen
FIRST = 16  # rows whose exact value is found before it is known how long one takes
TOLERANCE = 1e-4  # of the flow's solver, per coordinate and step: far below the spread over rows


def device_of_network(denoiser: AnyDenoiser) -> torch.device:
    return denoiser.device


@torch.no_grad()
def bound_terms(
    denoiser: AnyDenoiser,
    x0: Tree,
    draws: int,
    seed: int,
    batch: int = BATCH,
    progress: bool = False,
    options: dict[str, Any] | None = None,
    log_fill: Callable[[Tree], Tensor] | None = None,
    seconds: float = inf,
    format: Format | None = None,
) -> Float[Tensor, "draws rows 3"]:
    """Prior, diffusion and reconstruction of every row at every draw, in nats; `log_fill` is that of the data's format.
    After so many seconds no further draw is begun.  Rows of a `format` whose network is told conditions have them with
    them, and the bound is that on the data given its conditions."""
    if draws < 1:
        raise ValueError(f"draws = {draws}: at least one is needed")
    objective, device = told_objective(Objective(denoiser, **(options or {})), format), device_of_network(denoiser)
    rows, terms, began = batch_size(x0), [], perf_counter()
    batch = even(rows, batch)
    size = _rows_at_a_time(objective, x0, batch, device)
    for k in tqdm(range(draws), unit="draw", desc="bound", disable=not progress, leave=False):
        found = []
        for start in range(0, rows, batch):
            index = torch.arange(start, min(start + batch, rows))
            part = map_leaves(lambda leaf, index=index: leaf[index].to(device), x0)
            noise = NoiseSource(seed, index, device).at("evaluate", k, "batch", start)
            found.append(terms_of(in_pieces(objective, part, noise, size=size), part, log_fill).cpu())
        terms.append(torch.cat(found))
        if perf_counter() - began >= seconds:
            break
    return torch.stack(terms)


def _rows_at_a_time(objective: Any, x0: Tree, batch: int, device: torch.device) -> int:
    """How many of a batch there is room for: times are spread over all of it even so."""
    if batch <= TRIED[-1]:
        return batch
    some = map_leaves(lambda leaf: leaf[: TRIED[-1]].to(device), x0)
    memory = memory_of(device)
    need = measured(lambda m, _: objective(some_rows(some, slice(m)), NoiseSource(0, m, device)), memory, TRIED[-1])
    return min(batch, need.rows(memory))


def bound_figures(terms: Float[Tensor, "draws rows 3"], dimension: int, batch: int = BATCH) -> dict[str, Any]:
    """Of terms that were drawn in batches of at most so many rows."""
    found = summary(terms, even(terms.shape[1], batch))
    width = quantile_95(found.rows - 1) * found.se if found.se == found.se else None
    few = {"standard_error_why": f"{found.rows} rows are too few to tell it: {LEAST} are needed"}
    return {
        "bound": found.bound,
        "standard_error": known(found.se),
        **({} if found.rows >= LEAST else few),
        "interval_95": None if width is None else [found.bound - width, found.bound + width],
        "draw_se": known(found.draw_se),
        "prior": found.prior,
        "diffusion": found.diffusion,
        "reconstruction": found.reconstruction,
        "bits_per_dim": found.bound / dimension / log(2),
        "examples": found.rows,
        "dimension": dimension,
    }


def bound_on(denoiser: AnyDenoiser, x0: Tree, draws: int, seed: int, **options: Any) -> dict[str, Any]:
    """The bound's terms in nats per example, with its errors; `options` are those of `bound_terms`."""
    terms = bound_terms(denoiser, x0, draws, seed, **options)
    return bound_figures(terms, denoiser.space.dimension, options.get("batch", BATCH))


def known(value: float) -> float | None:
    """None for an error that few rows or one draw cannot tell."""
    return None if value != value else value


def quantile_95(freedom: int) -> float:
    """The 97.5 % quantile of Student's t by the expansion in 1/freedom (Fisher and Cornish): to 0.002 from seven on."""
    z = 1.959964
    terms = (z**3 + z) / 4, (5 * z**5 + 16 * z**3 + 3 * z) / 96, (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384
    return z + sum(term / freedom**power for power, term in enumerate(terms, 1))


class NoiseDequantisation(nn.Module):
    """u ~ N(1/2, scale), cut to (0, 1): where a model of levels puts the number in its bin."""

    def __init__(self, scale: float):
        super().__init__()
        self.scale = scale

    def forward(
        self, k: Int[Tensor, "batch *shape"], v: Float[Tensor, "batch *shape"]
    ) -> tuple[Float[Tensor, "batch *shape"], Float[Tensor, "batch"]]:
        least = torch.special.ndtr(torch.tensor(-0.5 / self.scale, dtype=v.dtype, device=v.device))
        z = torch.special.ndtri(least + v * (1 - 2 * least))
        log_q = -0.5 * z.square() - 0.5 * log(2 * pi) - log(self.scale) - torch.log1p(-2 * least)
        return 0.5 + self.scale * z, sum_coordinates(log_q)


def exact_method(denoiser: AnyDenoiser, format: Format, options: dict[str, Any] | None = None) -> Likelihood | str:
    """How the exact value is found, or why there is none; `options` are the objective's, the format's own unless given."""
    options = format.objective_options() if options is None else options
    if denoiser.code is not None:
        return "what is noised stands for the data by a code: their bound is known, and no density"
    process = denoiser.process.base
    if ProbabilityFlow().refuse(process) is None:
        few = process.space.dimension <= FEW_COORDINATES
        trace: dict[str, Any] = {"trace": "exact"} if few else {"trace": "hutchinson", "probes": PROBES}
        cutoff = options.get("cutoff")
        flow = ProbabilityFlow(rtol=TOLERANCE, atol=TOLERANCE, cutoff=cutoff, **trace)
        bins = format.bins
        if bins is None:
            return flow
        if cutoff is None:
            return f"{type(format).__name__} has bins, and its objective_options name no cut-off at which they blur"
        schedule = cast(Gaussian, process).schedule  # the flow takes no other
        scale = float(schedule.sigma(cutoff) / schedule.alpha(cutoff)) / bins.width
        return Dequantised(flow, width=bins.width, low=bins.low, dequantisation=NoiseDequantisation(scale))
    if not enumerable(process.state_space):
        return "numbers beside categories have neither a flow nor an enumeration"
    if any(_unlike(leaf) for leaf in leaf_processes(process)):
        return "columns with different numbers of categories are not enumerated"  # networks know no states beyond a column's
    count = how_many(process.state_space)
    if count > FEW_STATES:
        size = f"{count}" if count < 10**9 else f"about 10^{len(str(count)) - 1}"
        return f"{size} states are more than the {FEW_STATES} that are enumerated"
    return Enumeration()


def _unlike(leaf: Process) -> bool:
    """Whether its coordinates have different numbers of categories."""
    sizes = column(leaf, ()).sizes if leaf_kind(leaf) == "category" else ()
    return len(set(sizes)) > 1


def exact_on(
    denoiser: AnyDenoiser,
    format: Format,
    x0: Tree,
    seed: int,
    batch: int = 64,
    options: dict[str, Any] | None = None,
    seconds: float = inf,
) -> tuple[dict[str, Any] | None, str | None]:
    """(-log p in nats per example beside the bound on the same rows, None), or (None, why there is no such figure).

    With a limit of time, FIRST rows say how many more fit.
    """
    options = format.objective_options() if options is None else options
    if format.inputs():
        return None, "the bound is that of the data given its conditions, beside which no exact value is found"
    method = exact_method(denoiser, format, options)
    if isinstance(method, str):
        return None, method
    rows, device, found, began = batch_size(x0), device_of_network(denoiser), list[Tensor](), perf_counter()
    levels = x0
    if isinstance(method, Dequantised):
        levels = ((first_leaf(x0).double() - method.low) / method.width).floor().long()
    whole = isinstance(method, Enumeration)  # a table is made once for all rows
    size, start = rows if whole else min(batch, FIRST) if seconds < inf else batch, 0
    try:
        while start < rows:
            part = map_leaves(lambda leaf: leaf[start : min(rows, start + size)].to(device), levels)  # noqa: B023
            log_p, info = likelihood(denoiser, part, method, seed=seed + start)
            found.append(-log_p.cpu())
            start += len(log_p)
            took = perf_counter() - began
            size = min(batch, int(start * (seconds - took) / took)) if seconds < inf else size
            if size < 1:
                break
    except ArithmeticError as error:
        return None, f"the flow could not be followed: {error}"
    rows = min(rows, start)
    x0 = some_rows(x0, slice(rows))
    # times are spread over the rows of a batch, so that a part of a larger one would have a part of the times
    bound = bound_terms(denoiser, x0, DRAWS, seed, options=options, seconds=seconds).sum(-1).mean(0)
    nats, dimension = torch.cat(found), denoiser.process.space.dimension
    return {
        "nats": float(nats.mean()),
        "standard_error": _error(nats),
        "bits_per_dim": float(nats.mean()) / dimension / log(2),
        "bound_on_these_rows": float(bound.mean()),
        "bound_minus_exact": float((bound - nats).mean()),
        "its_standard_error": _error(bound - nats),
        "examples": rows,
        "of": info.density,
    }, None


def _error(values: Float[Tensor, "rows"]) -> float | None:
    return float(values.std()) / sqrt(len(values)) if len(values) >= LEAST else None
