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

from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser, base_process
from unnoise.noise import NoiseSource
from unnoise.objectives.bound import Objective, Terms
from unnoise.objectives.mixed_times import MixedTimes, chosen
from unnoise.predictions import ProductPrediction
from unnoise.processes import Product
from unnoise.shapes import Float, Tree
from unnoise.tree import batch_size, first_leaf, map_leaves


class Observed(Objective):
    """An objective for products, whose rows see some leaves as they are."""

    def __init__(self, denoiser: AnyDenoiser, share: float = 0.5, **options: Any):
        super().__init__(denoiser, **options)
        process = base_process(denoiser.process)
        if not isinstance(process, Product) or len(process.names) < 2:
            raise TypeError("leaves are observed in a product of at least two: use Objective")
        if self.exact or (self.times.draws_state and not isinstance(self.times, MixedTimes)):
            raise ValueError(
                "observed leaves are drawn with the times: use MixedTimes(), Importance() or Stratified() times"
            )
        if not 0 <= share <= 1:
            raise ValueError(f"share = {share:g} of rows with observed leaves lies outside [0, 1]")
        self.share = share

    def sets(self, rows: int, noise: NoiseSource) -> dict[str, Tensor]:
        """Whether each leaf of each row is observed."""
        process = base_process(self.denoiser.process)
        assert isinstance(process, Product)
        u = noise.at("observed").uniform((len(process.names) + 2,))
        some = u[:, 0] < self.share
        chosen = u[:, 2:] < 0.5
        free = (u[:, 1] * len(process.names)).long().unsqueeze(1)  # a leaf that is never observed
        chosen = chosen.scatter(1, free, False) & some.unsqueeze(1)
        return dict(zip(process.names, chosen.unbind(1), strict=True))

    def forward(self, x0: Tree, noise: NoiseSource | None = None, **condition: Any) -> Terms:
        process = base_process(self.denoiser.process)
        assert isinstance(process, Product)
        x0 = process.space.check(x0, "x0")
        rows, device = batch_size(x0), first_leaf(x0).device
        noise = noise if noise is not None else NoiseSource.fresh(rows, device)
        observed = self.sets(rows, noise)
        given = {"observed": observed} if isinstance(self.times, MixedTimes) else {}
        visits = self.times.visit(process, x0, self.cutoff, noise, **given)
        total = torch.zeros(rows, dtype=torch.float64, device=device)
        for i, (t, weight) in enumerate(zip(visits.t, visits.weight, strict=True)):
            if visits.x_t is None:
                noised = process.marginal(x0, t).draw(noise.at("state", i))
                x_t = {name: chosen(observed[name], x0[name], noised[name]) for name in process.names}
            else:
                x_t = map_leaves(lambda leaf, i=i: leaf[i * rows : (i + 1) * rows], visits.x_t)
            total = total + weight * self.rate(x0, x_t, t, observed, condition)
        zero = torch.zeros_like(total)
        return Terms(zero, total.detach(), zero, weighted=total)

    def rate(
        self, x0: Tree, x_t: Tree, t: Float[Tensor, "batch"], observed: dict[str, Tensor], condition: dict[str, Any]
    ) -> Float[Tensor, "batch"]:
        """The integrand, of the leaves that are not observed."""
        process = base_process(self.denoiser.process)
        assert isinstance(process, Product)
        clock = {name: torch.where(seen, 0.0, t) for name, seen in observed.items()}
        prediction = self.denoiser(x_t, clock, **condition).by_leaf()
        assert isinstance(prediction, ProductPrediction)
        parts = []
        for name, leaf in prediction.leaves.items():
            own = leaf.at(t)  # its rate at t = 0 is infinite, and not wanted
            rate = self.weighting.rate(own, process.leaves[name], x0[name], self.fast, ~observed[name])
            parts.append(torch.where(observed[name], 0.0, rate))
        return torch.stack(parts).sum(0)
