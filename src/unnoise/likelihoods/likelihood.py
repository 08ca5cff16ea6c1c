"""`un.likelihood`: how likely data is under a model, by the method that fits its space.

    numbers                       the density of the probability flow, with the exact trace up to 16 coordinates
    categories, up to 4096 states the exact law of the reverse jump process, or of a chain
    all else                      a bound below the log-density of the ancestral chain, by weighted paths

These are densities of different models wherever the network is not exact; `info.density` says which one it is.
"""

import torch
from torch import Tensor

from unnoise.batch_sizes import in_batches
from unnoise.checks import may_read
from unnoise.conditions import Condition, checked, rows_of
from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import enumerable
from unnoise.likelihoods.base import Likelihood, LikelihoodInfo, joined
from unnoise.likelihoods.enumerate import Enumeration, how_many
from unnoise.likelihoods.flow import ProbabilityFlow
from unnoise.likelihoods.paths import PathWeighted
from unnoise.noise import NoiseSource
from unnoise.objectives.blame import cause_of_nan
from unnoise.processes import Process
from unnoise.shapes import Float, Tree
from unnoise.tree import batch_size, first_leaf
from unnoise.tree import rows as some_rows

FEW_STATES = 4096
FEW_COORDINATES = 16
PROBES = 4  # of a trace that is estimated: enough to know its error


def default_method(process: Process) -> Likelihood:
    """What `likelihood` uses unless told."""
    if process.grid is None and ProbabilityFlow().refuse(process) is None:
        few = process.space.dimension <= FEW_COORDINATES
        return ProbabilityFlow() if few else ProbabilityFlow("hutchinson", probes=PROBES)
    space = process.state_space
    return Enumeration() if enumerable(space) and how_many(space) <= FEW_STATES else PathWeighted()


@torch.no_grad()
def likelihood(
    denoiser: AnyDenoiser,
    x0: Tree,
    method: Likelihood | None = None,
    seed: int | None = None,
    condition: Condition | None = None,
) -> tuple[Float[Tensor, "batch"], LikelihoodInfo]:
    """log p(x0) of each row in nats, float64, and what it is: of which density, a bound or not, with which error.

    What a method draws is a function of the seed; without one it is fresh.  Where memory runs out, rows are done in halves.
    """
    process = denoiser.process
    if denoiser.code is not None:
        raise TypeError(
            f"the process of this denoiser noises what {type(denoiser.code).__name__} makes of the data, and no density of "
            f"data is known but its bound: use un.bound(denoiser, x0)"
        )
    method = method or default_method(process)
    why = method.refuse(process.base)
    if why:
        raise TypeError(why)
    if method.takes_states:
        x0 = process.space.check(x0, "x0")
    if not batch_size(x0):
        raise ValueError("x0 has no rows: pass at least one example")
    rows, device = batch_size(x0), first_leaf(x0).device
    noise = NoiseSource.fresh(rows, device) if seed is None else NoiseSource(seed, rows, device)
    told, chosen = checked(condition, rows), method

    def piece(first: int, count: int) -> tuple[Tensor, LikelihoodInfo]:
        if count == rows:
            return chosen.log_prob(denoiser, x0, noise, told)
        index = torch.arange(first, first + count, device=device)
        return chosen.log_prob(denoiser, some_rows(x0, index), noise.of(index), rows_of(told, index))

    log_prob, info = joined(in_batches(rows, rows, piece))
    if may_read(log_prob) and bool(log_prob.isnan().any()):
        row = int(log_prob.isnan().nonzero()[0, 0])
        why = cause_of_nan(denoiser, lambda: chosen.log_prob(denoiser, x0, noise, told))
        raise FloatingPointError(f"the likelihood of row {row} is NaN: {why}")
    return log_prob, info
