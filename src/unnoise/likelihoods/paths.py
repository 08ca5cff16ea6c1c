"""The likelihood of a T-step chain by weighted paths: a bound that tightens with their number, for every process.

On times t_0 < ... < t_T a path is drawn from the noising process given the data, downwards, and weighed by how much likelier
the model finds it (eq:path-kl-telescoped):

    x_T ~ q(x_T | x_0),      x_{i-1} ~ q(x_{i-1} | x_i, x_0)

    w = p(x_T)/q(x_T | x_0)  prod_i p(x_{i-1} | x_i)/q(x_{i-1} | x_i, x_0)  p(x_0 | x_{t_0}),      E w = p(x_0).

Where nothing is noised at t_0 the last step ends on the data, its kernel is itself the reconstruction, p(x_0 | x_{t_1}), and
there is no last factor.  With K paths

    E log (1/K) sum_k w_k  <=  log p(x_0)                  by Jensen's inequality

and the left side grows with K: an average of K weights is an average over subsets of K - 1 of their averages, and log is
concave.  For K = 1 it is minus the chain's bound, term by term; for K -> infinity it is log p(x_0).

**Error.**  With normalised weights v_k = w_k/sum w and S = 1/sum v_k^2, the effective number of paths, the delta method says

    Var log mean w  ~  Var(w)/(K (E w)^2)  ~  (K/S - 1)/(K - 1) = error^2,

and the second-order term that the bound lies below log p(x_0) by error^2/2.  Both hold where S is large.  Where it is near 1
a single path carries the sum, and more are needed.  What no path has met does not show in either: rare paths of large
weight, such as two coordinates that change in one step, leave the answer too low and its error too small.

**Variance of numbers.**  At low noise Var(x_0 | x_t) ~ sigma^2/alpha^2, so the right variance of the reverse kernel is the
forward one (`variances.ForwardVariance`, or `OptimalVariance`).  The default, the posterior's, is smaller by the factor
sigma_s^2/sigma_t^2, and each step spreads the log-weights: of 600 paths of 128 steps 140 count rather than 590, for a
single number.

Paths of numbers are float64 whatever the data's precision, and the network is shown them in the data's own: rounding what
it sees is part of the model, whose kernel is then a density like any other.  Path k of row i has noise of its own, keyed by
(i, k): a row's answer does not depend on its batch.
"""

from dataclasses import dataclass
from itertools import pairwise
from math import log
from typing import Any

import torch
from torch import Tensor

from unnoise.conditions import rows_of
from unnoise.denoiser import AnyDenoiser
from unnoise.likelihoods.base import Likelihood, LikelihoodInfo
from unnoise.noise import NoiseSource
from unnoise.objectives import decoders, default_decoder
from unnoise.objectives.leaves import without_noise
from unnoise.predictions import Prediction
from unnoise.samplers import grids
from unnoise.samplers.run_grid import grid_of
from unnoise.shapes import Float, Tree
from unnoise.tree import batch_size, first_leaf, map_leaves
from unnoise.tree import rows as some_rows

Grid = grids.TimeGrid | Tensor | list[float] | None  # a rule, or falling times

ENTRIES = 2**21  # numbers of a prediction that are held at once


@dataclass
class PathInfo(LikelihoodInfo):
    """With how many paths carry the sum of each row."""

    effective: Tensor | None = None  # 1/sum v_k^2, from 1 to the number of paths


STEPS = 128  # of a chain that is laid out here, unless told


class Graded(grids.TimeGrid):
    """Equal steps in t^(1/4): fine where the noise of numbers fades."""

    def times(self, process, steps, start, end):
        times = torch.linspace(start**0.25, end**0.25, steps + 1, dtype=torch.float64) ** 4
        times[0], times[-1] = start, end  # which rounding has moved
        return times


def chain_times(denoiser: AnyDenoiser, steps: int | None, grid: Grid) -> list[float]:
    """The falling times of the ancestral chain: a `Chain`'s own, those given, or a rule's down to the cut-off."""
    given = isinstance(grid, grids.GivenTimes) or not (grid is None or isinstance(grid, grids.TimeGrid))
    if given or denoiser.process.grid is not None:
        return grid_of(denoiser, steps, grid, 1.0, None).tolist()
    return grid_of(denoiser, STEPS if steps is None else steps, grid, 1.0, denoiser.process.cutoff).tolist()


class _Model:
    """The chain whose paths are weighed."""

    def __init__(self, denoiser: AnyDenoiser, times: list[float], decoder: decoders.Decoder):
        self.denoiser, self.process, self.times, self.decoder = denoiser, denoiser.process.base, times, decoder
        self.closes = self.process.noiseless(times[-1])  # the last step ends on the data itself
        self.calls = self.rows = 0

    def predict(self, x: Tree, t: float, like: Tree, condition: dict[str, Any]) -> Prediction:
        self.calls, self.rows = self.calls + 1, self.rows + batch_size(x)
        return self.denoiser(_as(x, like), t, **condition)

    def log_weight(self, x0: Tree, noise: NoiseSource, condition: dict[str, Any]) -> Float[Tensor, "batch"]:
        """log w of one path for each row."""
        data, leaf = _wide(x0), first_leaf(x0)
        law = self.process.marginal(data, self.times[0])
        x = law.draw(noise.at("path", 0))
        log_w = self.process.prior(len(leaf), torch.float64, leaf.device).log_prob(x) - law.log_prob(x)
        for i, (t, s) in enumerate(pairwise(self.times)):
            kernel = self.predict(x, t, x0, condition).step(s)
            if self.closes and i == len(self.times) - 2:
                return log_w + kernel.log_prob(data).double()
            law = self.process.posterior(x, data, s, t)
            x = law.draw(noise.at("path", i + 1))
            log_w = log_w + (kernel.log_prob(x) - law.log_prob(x)).double()
        eps, prediction = self.times[-1], None
        if self.decoder.needs_network:
            prediction = self.predict(x, eps, x0, condition)
        return log_w + self.decoder.log_prob(self.process, prediction, data, x, eps)


class PathWeighted(Likelihood):
    """A bound below the log-density of the ancestral chain, from `paths` paths per row.

    The times are a `Chain`'s own, or `steps` of them (128 unless told) by `grid`, a rule or the falling times themselves;
    by default equal in t, and in t^(1/4) where numbers ask for a cut-off.
    """

    def __init__(
        self,
        paths: int = 16,
        steps: int | None = None,
        grid: Grid = None,
        decoder: decoders.Decoder | None = None,
    ):
        if paths < 1:
            raise ValueError(f"paths = {paths}: at least one is needed")
        self.paths, self.steps, self.grid, self.decoder = paths, steps, grid, decoder

    def times(self, denoiser: AnyDenoiser) -> list[float]:
        """From noise to data."""
        process, grid = denoiser.process, self.grid
        if grid is None and process.cutoff > 0 and process.grid is None:
            grid = Graded()
        times = chain_times(denoiser, self.steps, grid)
        silent = without_noise(process.base, times[-1])  # the last kernel is a point, which has no density
        if silent is not None:
            raise ValueError(
                f"{silent} is 0 at the last time t = {times[-1]:g}, where numbers have no density: end the grid before"
            )
        return times

    @torch.no_grad()
    def log_prob(
        self, denoiser: AnyDenoiser, x0: Tree, noise: NoiseSource, condition: dict[str, Any]
    ) -> tuple[Float[Tensor, "batch"], PathInfo]:
        process, rows = denoiser.process.base, batch_size(x0)
        decoder = default_decoder(process) if self.decoder is None else self.decoder
        model = _Model(denoiser, self.times(denoiser), decoder)
        every, chunk, parts = noise.repeated(self.paths), max(1, ENTRIES // process.state_space.entries), []
        for i in range(0, rows * self.paths, chunk):  # [paths, rows], flattened
            row = torch.arange(i, min(i + chunk, rows * self.paths), device=noise.rows.device)
            source, row = every.of(row), row % rows
            parts.append(model.log_weight(some_rows(x0, row), source, rows_of(condition, row)))
        log_prob, error, effective = weighted(torch.cat(parts).reshape(self.paths, rows))
        info = PathInfo(
            f"a bound on the log-density of the ancestral chain of {len(model.times) - 1} steps",
            bound=True,
            error=error,
            calls=model.calls,
            rows=model.rows,
            dimension=process.space.dimension,
            effective=effective,
        )
        return log_prob, info


def weighted(
    log_w: Float[Tensor, "paths batch"],
) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch"] | None, Float[Tensor, "batch"]]:
    """The logarithm of the weights' mean, its standard error (None for a single path), and the effective number of paths."""
    paths, total = len(log_w), log_w.logsumexp(0)
    possible = total > -torch.inf
    effective = torch.where(possible, (-2 * (log_w - total)).neg().logsumexp(0).neg().exp(), 0.0)
    error = None
    if paths > 1:
        error = torch.where(possible, ((paths / effective - 1).clamp_min(0) / (paths - 1)).sqrt(), torch.inf)
    return total - log(paths), error, effective


def _wide(x: Tree) -> Tree:
    """Numbers in float64."""
    return map_leaves(lambda v: v.double() if v.dtype.is_floating_point else v, x)


def _as(x: Tree, like: Tree) -> Tree:
    """Numbers in the precision of another tree."""
    return map_leaves(lambda v, other: v.to(other.dtype) if v.dtype.is_floating_point else v, x, like)
