"""Training on what is left given what is known: some leaves of a product stand at time 0.

For a set S of observed leaves the conditional bound is

    -log p(x_0 | x_0^S)  <=  sum over the other leaves of  prior + int E[divergence rate] dt + reconstruction,

with every observed leaf at time 0, where it is itself.  A network trained on random sets S, told the time of each leaf,
samples any leaves given any others (`samplers.Frozen`).  Coordinates within a masked leaf need no such thing: what is not
masked is observed already.

`Observed` draws S for each row: with probability `share` every leaf is in S by a fair coin (but never all of them), else S
is empty and the row has the plain bound.  Only the diffusion term is taken, the one that trains a network; its mean is no
bound.
"""

from functools import reduce
from operator import add
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.conditions import Condition
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.objectives.bound import Objective
from unnoise.objectives.mixed_times import MixedTimes
from unnoise.objectives.terms import Terms
from unnoise.predictions import ProductPrediction
from unnoise.shapes import AnyState, Float, Tree
from unnoise.tree import batch_size, choose, rows


class Observed(Objective):
    """An objective for products, whose rows see some leaves as they are."""

    is_bound = False  # type: ignore[assignment]

    def __init__(self, denoiser: AnyDenoiser, share: float = 0.5, **options: Any):
        super().__init__(denoiser, **options)
        if len(self.leaves) < 2:
            raise TypeError("leaves are observed in a product of at least two: use Objective")
        if denoiser.process.grid is not None:
            raise TypeError("leaves are observed at any time, which a chain's grid leaves out: use Objective, or no chain")
        if self.exact or (self.times.draws_state and not isinstance(self.times, MixedTimes)):
            raise ValueError(
                "observed leaves are drawn with the times: use MixedTimes(), Importance() or Stratified() times"
            )
        if not 0 <= share <= 1:
            raise ValueError(f"share = {share:g} of rows with observed leaves lies outside [0, 1]")
        self.share = share

    @property
    def leaves(self) -> dict[str, Any]:
        return self.denoiser.process.leaves

    def sets(self, rows: int, noise: NoiseSource) -> dict[str, Tensor]:
        """Whether each leaf of each row is observed."""
        names = list(self.leaves)
        u = noise.at("observed").uniform((len(names) + 2,))
        some = u[:, 0] < self.share
        chosen = u[:, 2:] < 0.5
        free = (u[:, 1] * len(names)).long().unsqueeze(1)  # a leaf that is never observed
        chosen = chosen.scatter(1, free, False) & some.unsqueeze(1)
        return dict(zip(names, chosen.unbind(1), strict=True))

    def evaluate(self, x0: AnyState, noise: NoiseSource | None, condition: Condition | None) -> Terms:
        process = self.denoiser.process.base
        x0, noise, given, added = self._enter(x0, noise, condition)
        count = batch_size(x0)
        observed = self.sets(count, noise)
        known = {"known": observed} if self.times.draws_state else {}
        visits = self.times.visit(process, x0, self.cutoff, noise, **known)
        total = torch.zeros(count, dtype=torch.float64, device=noise.rows.device)
        for i, (t, weight) in enumerate(zip(visits.t, visits.weight, strict=True)):
            if visits.x_t is None:
                noised: AnyState = process.marginal(x0, t).draw(noise.at("state", i))
                x_t: Tree = {name: choose(observed[name], x0[name], noised[name]) for name in self.leaves}
            else:
                x_t = rows(visits.x_t, slice(i * count, (i + 1) * count))
            total = total + weight * self.rate(x0, x_t, t, observed, given)
        zero = torch.zeros_like(total)
        terms = {"prior": zero, "diffusion": total.detach(), "reconstruction": zero, **added}
        return Terms(terms, weighted=reduce(add, added.values(), total), is_bound=False)

    def rate(
        self,
        x0: dict[str, Tree],
        x_t: Tree,
        t: Float[Tensor, "batch"],
        observed: dict[str, Tensor],
        condition: dict[str, Any],
    ) -> Float[Tensor, "batch"]:
        """The integrand, of the leaves that are not observed."""
        clock = {name: torch.where(seen, 0.0, t) for name, seen in observed.items()}
        prediction = cast(ProductPrediction, self.denoiser(x_t, clock, **condition).by_leaf())
        parts = []
        for name, leaf in prediction.leaves.items():
            own = leaf.at(t)  # its rate at t = 0 is infinite, and not wanted
            rate = self.weighting.rate(own, self.leaves[name], x0[name], self.fast, ~observed[name])
            parts.append(torch.where(observed[name], 0.0, rate))
        return torch.stack(parts).sum(0)
