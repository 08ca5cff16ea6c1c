"""The exact law of a model on a small finite space, by dynamic programming over all of its states.

A chain of T steps, a `Chain`'s own or the ancestral sampler's on a grid, pushes the prior through the model's kernels,

    p_T(x) = p(x_T = x),      p_{i-1}(y) = sum_x p(x_{i-1} = y | x_i = x) p_i(x),      (eq:backward_process)

and a kernel factorises over coordinates: with the coordinates cut into two halves, y = (y', y''), it is one matrix product,

    p_{i-1}(y', y'') = sum_x [p_i(x) prod_{k in '} p(y^k | x)] [prod_{k in ''} p(y^k | x)].

In continuous time the law is that of the reverse jump process itself: dp/dtau = Rhat p from t = 1 down to the cut-off, with
the model's rates (see `forward`).  Where there is noise left at the last time, the model's law of x_0 given x_eps follows,
the one that the bound uses.  The table costs one pass of all states at every time; every row is looked up in it.

Errors: all terms are positive, so sums lose nothing but rounding.  `error` is what the equation's solver states, plus how
far the table's sum is from one, plus the rounding of T sums.
"""

from collections.abc import Iterator
from itertools import pairwise
from math import log10, prod
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.conditions import Condition, checked, one_row, spread
from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import code, enumerable, states
from unnoise.laws import Categorical, Joint, Law
from unnoise.likelihoods.base import Likelihood, LikelihoodInfo
from unnoise.likelihoods.forward import LIKELY, finite_leaves, solve
from unnoise.likelihoods.paths import Grid, chain_times
from unnoise.noise import NoiseSource
from unnoise.predictions import FinitePrediction, Prediction, ProductPrediction
from unnoise.processes import Process
from unnoise.shapes import Clock, Float, Tree
from unnoise.spaces import ENUMERABLE, Finite, Space, tree_leaves
from unnoise.tree import batch_size, first_leaf, map_leaves, pick, rows, tile

ENTRIES = 2**21  # numbers of a prediction, and entries of half a kernel, that are held at once
EPS = 2.0**-52


def how_many(space: Space) -> int:
    """The number of points of a finite space or a product of them."""
    return prod(leaf.count for _, leaf in finite_leaves(space))


def coordinate_laws(law: Law, space: Space) -> list[Float[Tensor, "rows size"]]:
    """The probabilities of each coordinate's categories, in the order of `states`."""
    if isinstance(law, Joint):
        return [part for name, leaf in space.leaves.items() for part in coordinate_laws(law.leaves[name], leaf)]  # type: ignore
    if not isinstance(law, Categorical):
        raise TypeError(f"a kernel on categories is a {type(law).__name__}: enumeration needs their probabilities")
    space = cast(Finite, space)
    probs = law.log_probs.double().exp()
    columns = probs.reshape(len(probs), -1, probs.shape[-1]).unbind(1)
    sizes = [space.size] * len(columns) if space.sizes is None else space.sizes.flatten().tolist()
    return [column[:, :size] for column, size in zip(columns, sizes, strict=True)]


def outer(columns: list[Tensor]) -> Float[Tensor, "rows cells"]:
    """The joint law of independent coordinates."""
    joint = columns[0]
    for column in columns[1:]:
        joint = (joint.unsqueeze(-1) * column.unsqueeze(1)).flatten(1)
    return joint


def push(weight: Float[Tensor, "rows"], columns: list[Tensor]) -> Float[Tensor, "states"]:
    """sum_x weight(x) prod_k p(y^k | x) for every y."""
    half = len(columns) // 2
    last = outer(columns[half:])
    first = outer(columns[:half]) if half else torch.ones_like(weight).unsqueeze(1)
    return ((weight.unsqueeze(1) * first).T @ last).flatten()


def clean_law(prediction: Prediction, process: Process) -> Law:
    """The model's law of x_0 given x_eps, as in the bound."""
    prediction = prediction.by_leaf()
    if isinstance(prediction, ProductPrediction):
        return Joint({name: clean_law(prediction.leaves[name], leaf) for name, leaf in process.leaves.items()})
    if not isinstance(prediction, FinitePrediction):
        raise TypeError(f"a {type(prediction).__name__} says no law of categories: enumeration needs their probabilities")
    return prediction.clean_law()


class _Table:
    """One model, under one condition: its states, and the laws that are carried over them."""

    def __init__(self, denoiser: AnyDenoiser, condition: dict[str, Any], device: torch.device):
        self.denoiser, self.process, self.condition = denoiser, denoiser.process.base, condition
        self.calls = self.rows = 0
        space = self.process.state_space
        self.points = map_leaves(lambda x: x.to(device), states(space))
        self.count = batch_size(self.points)
        self.data = code(space, states(self.process.space)).to(device)  # where the data's points are among them
        leaves = [leaf for _, leaf in finite_leaves(space)]
        half = self.count**0.5 * max(leaf.size for leaf in leaves)  # cells of half a kernel, at most
        self.chunk = max(1, int(ENTRIES // max(half, sum(leaf.dimension * leaf.size for leaf in leaves))))

    def chunks(self) -> Iterator[tuple[slice, Tree]]:
        for i in range(0, self.count, self.chunk):
            part = slice(i, i + self.chunk)
            yield part, rows(self.points, part)

    def predict(self, x: Tree, t: Clock) -> Prediction:
        self.calls, self.rows = self.calls + 1, self.rows + batch_size(x)
        return self.denoiser(x, t, **spread(self.condition, batch_size(x)))

    def prior(self) -> Float[Tensor, "states"]:
        law = self.process.prior(self.count, torch.float64, first_leaf(self.points).device)
        return law.log_prob(self.points).double().exp()

    def step(self, p: Tensor, t: float, s: float) -> Float[Tensor, "states"]:
        """From the law at t to that at s."""
        space, out = self.process.state_space, torch.zeros_like(p)
        for part, x in self.chunks():
            out += push(p[part], coordinate_laws(self.predict(x, t).step(s), space))
        return out

    def decode(self, p: Tensor, eps: float) -> Float[Tensor, "data"]:
        """From the law at the last time to that of the data: itself, where no noise is left."""
        if self.process.noiseless(eps):
            return p[self.data]
        space = self.process.space
        out = torch.zeros(how_many(space), dtype=torch.float64, device=p.device)
        for part, x in self.chunks():
            out += push(p[part], coordinate_laws(clean_law(self.predict(x, eps), self.process), space))
        return out

    def rates(self, times: Float[Tensor, "times"]) -> Float[Tensor, "times edges"]:
        """The model's reverse rates at all states, along the edges of the space."""
        paths = [path for path, _ in tree_leaves(self.process.state_space)]
        together, out = max(1, self.chunk // self.count), []
        for part in times.split(together):  # several times at all states, or one time at some of them
            n = len(part)
            if n > 1:
                local = [self.predict(tile(self.points, n), part.repeat_interleave(self.count)).local()]
            else:
                local = [self.predict(x, part[0]).local() for _, x in self.chunks()]
            rates = [torch.cat([pick(some, path).rates.double().flatten() for some in local]) for path in paths]
            out.append(torch.cat([rate.reshape(n, -1) for rate in rates], 1))
        return torch.cat(out)


class Enumeration(Likelihood):
    """The law of a T-step chain (`steps` or `grid`, or a `Chain`'s own grid), or of the reverse jump process itself."""

    def __init__(self, steps: int | None = None, grid: Grid = None, tolerance: float = 1e-6):
        if not tolerance > 0:
            raise ValueError(f"tolerance = {tolerance}: the error of log p to stop at, in nats, is positive")
        self.steps, self.grid, self.tolerance = steps, grid, tolerance

    def refuse(self, process: Process) -> str | None:
        if enumerable(process.state_space):
            return None
        return f"{process.state_space} is not finite, so its states cannot be listed: use PathWeighted()"

    @torch.no_grad()
    def table(
        self, denoiser: AnyDenoiser, device: torch.device | str = "cpu", condition: Condition | None = None
    ) -> tuple[Float[Tensor, "data"], LikelihoodInfo]:
        """log p of every point of the data's space, in the order of its states; the condition is that of a single row."""
        return self._table(denoiser, torch.device(device), checked(condition, 1))

    @torch.no_grad()
    def log_prob(
        self, denoiser: AnyDenoiser, x0: Tree, noise: NoiseSource, condition: dict[str, Any]
    ) -> tuple[Float[Tensor, "batch"], LikelihoodInfo]:
        log_p, info = self._table(denoiser, first_leaf(x0).device, one_row(condition, batch_size(x0)))
        row = code(denoiser.process.space, map_leaves(lambda v: v.cpu(), x0)).to(log_p.device)
        info.error = cast(Tensor, info.error)[row]
        return log_p[row], info

    def _table(
        self, denoiser: AnyDenoiser, device: torch.device, condition: dict[str, Any]
    ) -> tuple[Tensor, LikelihoodInfo]:
        process = denoiser.process.base
        why = self.refuse(process)
        if why:
            raise TypeError(why)
        count = how_many(process.state_space)
        if count > ENUMERABLE:
            raise ValueError(
                f"{process.state_space} has {_number(count)} states, too many to enumerate (at most {ENUMERABLE}): "
                f"use PathWeighted()"
            )
        table = _Table(denoiser, condition, device)
        if denoiser.process.grid is not None or self.steps is not None or self.grid is not None:
            times = chain_times(denoiser, self.steps, self.grid)
            p, error = table.prior(), torch.zeros((), dtype=torch.float64, device=device)
            for t, s in pairwise(times):
                p = table.step(p, t, s)
            p = table.decode(p, times[-1])
            density = f"the ancestral chain of {len(times) - 1} steps"
        else:
            low = denoiser.cutoff
            watched = table.data if process.noiseless(low) else torch.arange(table.count, device=device)
            p, error = solve(process.state_space, table.rates, table.prior(), 1.0, low, self.tolerance, watched)
            times, density = [1.0, low], f"the reverse jump process from t = 1 to t = {low:g}"
            # a sum of positive terms is, relatively, as good as the worst of them
            error = table.decode(error, low) if process.noiseless(low) else error[p > LIKELY].max()
            p = table.decode(p, low)
        rounding = (p.sum() - 1).abs() + 4 * EPS * (len(times) + table.count**0.5)
        info = LikelihoodInfo(density, error=error.expand_as(p) + rounding, calls=table.calls, rows=table.rows)
        info.dimension = process.space.dimension
        return p.log(), info


def _number(count: int) -> str:
    return str(count) if count < 10**9 else f"about 10^{log10(count):.1f}"
