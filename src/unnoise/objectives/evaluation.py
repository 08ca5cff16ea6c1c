"""One evaluation of the bound: the denoiser asked at drawn states, or at all of them, and its terms.

In continuous time the integral is visited where a rule says (`times`); on a chain the steps are.  Next to the bound's own
terms the weighted loss is found, from the same predictions.
"""

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.conditions import tiled
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.objectives.decoders import Decoder
from unnoise.objectives.times import Times
from unnoise.objectives.weightings import Bound, Weighting
from unnoise.processes import Chain, Process
from unnoise.shapes import Float, Int, Tree
from unnoise.tree import batch_size, first_leaf, map_leaves, rows, tile

ROWS = 100_000  # rows given to the denoiser at once in an exact expectation
GROUP = 512  # rows x visits whose supports are built together
BOUND = Bound()

Integrand = Callable[[Tree, Tree, Tensor, dict[str, Any]], Tensor]  # of (x_0, x_t, t, condition)


@dataclass
class Rules:
    """How the bound is evaluated."""

    denoiser: AnyDenoiser
    weighting: Weighting
    times: Times
    decoder: Decoder
    cutoff: float
    exact: bool
    fast: bool
    loss_only: bool

    @property
    def process(self) -> Process:
        return self.denoiser.process.base

    @property
    def skips_bound(self) -> bool:
        """Whether the bound's terms are left out: the loss has none of them, and they cost more than the loss."""
        return self.loss_only and self.process.costly_rate and not self.weighting.bound_share


class Evaluation:
    """The data and its noise, under the rules."""

    def __init__(self, rules: Rules, x0: Tree, noise: NoiseSource, condition: dict[str, Any], data: Tree | None = None):
        """`data` are what the decoder is asked about, where that is not x_0."""
        self.rules, self.x0, self.noise, self.condition = rules, x0, noise, condition
        self.data = x0 if data is None else data
        self.denoiser, self.process, self.weighting = rules.denoiser, rules.process, rules.weighting
        self.rows, self.device = batch_size(x0), first_leaf(x0).device

    def terms(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Diffusion, reconstruction, and the weighted loss of the two where the weighting is not the bound itself."""
        return self._integral() if self.denoiser.process.grid is None else self._chain(cast(Chain, self.denoiser.process))

    def _zeros(self) -> Tensor:
        return torch.zeros(self.rows, dtype=torch.float64, device=self.device)

    # -- expectations over x_t ----------------------------------------------------------------------------------------

    def expect(
        self, function: Integrand, t: Float[Tensor, "visits batch"], noise: NoiseSource, x_t: Tree | None = None
    ) -> Tensor:
        """E_{x_t ~ q(. | x_0)} function(x0, x_t, t, condition) at each visit: exactly, or at one draw (or the x_t given)."""
        if self.rules.exact:
            group = max(1, GROUP // self.rows)  # visits that are put to the denoiser together
            return torch.cat([self._enumerate(function, part) for part in t.split(group)])
        values = []
        for i, clock in enumerate(t.unbind()):
            values.append(function(self.x0, self._state(i, clock, noise, x_t), clock, self.condition))
        return torch.stack(values)

    def _state(self, i: int, t: Tensor, noise: NoiseSource, x_t: Tree | None) -> Tree:
        """The state of visit number i: drawn, or one of those given."""
        if x_t is not None:
            return rows(x_t, slice(i * self.rows, (i + 1) * self.rows))
        return self.process.marginal(self.x0, t).draw(noise.at(i))

    def _enumerate(self, function: Integrand, t: Float[Tensor, "visits batch"]) -> Tensor:
        """The exact expectation, over all states or the nodes of a rule."""
        visits, clock = len(t), t.flatten()
        nodes, log_weight = self.process.support(tile(self.x0, visits), clock)
        total = torch.zeros_like(clock)
        per = max(1, ROWS // len(clock))
        for i in range(0, len(log_weight), per):
            weight = log_weight[i : i + per].exp()
            n = len(weight)
            state = map_leaves(lambda x, i=i: x[i : i + per].flatten(0, 1), nodes)
            data, condition = tile(self.x0, n * visits), tiled(self.condition, n * visits)
            value = function(data, state, clock.repeat(n), condition).reshape(n, -1)
            total = total + (weight * torch.where(weight > 0, value, 0.0)).sum(0)
        return total.reshape(t.shape)

    # -- continuous time ----------------------------------------------------------------------------------------------

    def _integral(self) -> tuple[Tensor, Tensor, Tensor | None]:
        diffusion, weighted = self.diffusion()
        if weighted is None:
            return diffusion, self.reconstruction(), None
        share = self.weighting.bound_share
        with nullcontext() if share else torch.no_grad():
            skips = self.rules.loss_only and self.rules.decoder.needs_network and not share
            last = torch.full_like(diffusion, torch.nan) if skips else self.reconstruction()
        return diffusion, last, weighted + share * last if share else weighted

    def diffusion(self) -> tuple[Tensor, Tensor | None]:
        """The integral, and its weighted form; on numbers eq:discrete-to-continuous-time-csp-ELBO, from the cut-off on."""
        visits = self.rules.times.visit(self.process, self.x0, self.rules.cutoff, self.noise)
        noise = self.noise.at("state")
        if self.weighting.is_bound:
            if len(visits.t) == 1 and not self.rules.exact:  # the same without an axis of visits: most training steps
                t = visits.t[0]
                return visits.weight[0] * self._rate(self.x0, self._state(0, t, noise, visits.x_t), t, self.condition), None
            return (visits.weight * self.expect(self._rate, visits.t, noise, visits.x_t)).sum(0), None
        total, weighted = self._zeros(), self._zeros()
        for i, (t, weight) in enumerate(zip(visits.t, visits.weight, strict=True)):
            prediction = self.denoiser(self._state(i, t, noise, visits.x_t), t, **self.condition)
            weighted = weighted + weight * self.weighting.rate(prediction, self.process, self.x0, self.rules.fast)
            with torch.no_grad():
                skips = self.rules.skips_bound
                rate = torch.nan if skips else BOUND.rate(prediction, self.process, self.x0, self.rules.fast)
                total = total + weight * rate
        return total, weighted

    def _rate(self, x0: Tree, x_t: Tree, t: Tensor, condition: dict) -> Tensor:
        return BOUND.rate(self.denoiser(x_t, t, **condition), self.process, x0, self.rules.fast)

    def reconstruction(self) -> Tensor:
        """E[-log p(x_0 | x_eps)], which asks for the last state alone (eq:reconstruction-simplification)."""
        low, decoder = self.rules.cutoff, self.rules.decoder
        if not self.process.has_density and self.process.noiseless(low):  # with a density that was refused before
            return self._zeros()
        if not (decoder.needs_state or decoder.needs_network):
            return decoder.nll(self.process, None, self.data, None, low)

        def nll(x0: Tree, x_t: Tree, t: Tensor, condition: dict) -> Tensor:
            prediction = self.denoiser(x_t, t, **condition) if decoder.needs_network else None
            asked = x0 if self.data is self.x0 else tile(self.data, batch_size(x_t) // self.rows)
            return decoder.nll(self.process, prediction, asked, x_t, low)

        t = torch.full((1, self.rows), low, dtype=torch.float64, device=self.device)
        return self.expect(nll, t, self.noise.at("decoder"))[0]

    # -- discrete time ------------------------------------------------------------------------------------------------

    def _chain(self, chain: Chain) -> tuple[Tensor, Tensor, Tensor | None]:
        """The step that ends on the data is the reconstruction; the others are the diffusion (eq:path-kl-decomposition)."""
        closes = self.process.noiseless(self.rules.cutoff)
        sums = self._steps(chain, 2 if closes else 1)
        if closes:
            last = torch.ones(1, self.rows, dtype=torch.int64, device=self.device)
            end = self._step_values(chain, last, self.noise.at("last"))[0]
            return sums[0], end[0], None if self.weighting.is_bound else sums[1] + end[1]
        share = self.weighting.bound_share
        with nullcontext() if self.weighting.is_bound or share else torch.no_grad():
            rest = self.reconstruction()
        if self.weighting.is_bound:
            return sums[0], rest, None
        return sums[0], rest, sums[1] + share * rest if share else sums[1]

    def _steps(self, chain: Chain, first: int) -> Tensor:
        """The sum over the steps from number `first` on: the KL, and the weighted form beside it."""
        count, noise = chain.steps - first + 1, self.noise.at("state")
        if not count:
            return torch.stack([self._zeros(), self._zeros()])
        if self.rules.times.every_step:
            index = torch.arange(first, chain.steps + 1, device=self.device).unsqueeze(1).expand(-1, self.rows)
            return self._step_values(chain, index, noise).sum(0)
        visits = self.rules.times.visit(self.process, self.x0, 0.0, self.noise)  # of [0, 1], cut into `count` equal parts
        index = first + (visits.t * count).long().clamp_max(count - 1)
        return ((count * visits.weight).unsqueeze(1) * self._step_values(chain, index, noise)).sum(0)

    def _step_values(self, chain: Chain, i: Int[Tensor, "visits batch"], noise: NoiseSource) -> Tensor:
        """[visits, 1 or 2, batch]: E KL of the steps t_i -> t_{i-1}, and their weighted form where that is another
        (eq:discrete-training-objective)."""
        grid = chain.grid.to(i.device)

        def values(x0: Tree, x_t: Tree, t: Tensor, condition: dict) -> Tensor:
            s = grid[chain.index(t) - 1]
            prediction = self.denoiser(x_t, t, **condition)
            if self.weighting.is_bound:
                return BOUND.step(prediction, self.process, x0, s)
            with torch.no_grad():
                kl = BOUND.step(prediction, self.process, x0, s)
            return torch.stack([kl, self.weighting.step(prediction, self.process, x0, s, self.rules.fast)])

        found = self.expect(values, grid[i], noise)
        return found.unsqueeze(1) if self.weighting.is_bound else found
