"""The bound: -log p(x_0) <= prior + diffusion + reconstruction, in nats, for every process and prediction.

Continuous time (eq:ELBO-generator-Dynkin), with cut-off eps and decoder p(x_0 | x_eps):

    KL(q(x_1 | x_0) || p_1)  +  int_eps^1 E[divergence rate of the reverse generators] dt  +  E[-log p(x_0 | x_eps)]

(the generator ELBO as printed omits the prior term, without which it bounds nothing; and the integral from 0 diverges for
continuous data, hence the cut-off and the last term).  Discrete time, on the grid t_0 < ... < t_T of a `Chain`:

    KL(q(x_T | x_0) || p_T)  +  sum_i E[KL(q(x_{i-1} | x_i, x_0) || p(x_{i-1} | x_i))]  +  E[-log p(x_0 | x_{t_0})]

(eq:discrete-elbo-decomp), where, if nothing is noised at t_0, the last step's KL is itself the reconstruction.

Two properties hold to rounding and are what `unnoise verify` checks first.  With the exact reverse and decoder, for every
x, process, schedule and cut-off,  bound(x) = -log q(x) + E_{q(x_1|x)} log(q_1/p_1)(x_1).  For any network at all,
sum_x exp(-bound(x)) <= 1.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.checks import may_read
from unnoise.denoiser import AnyDenoiser, base_process
from unnoise.generators import divergence
from unnoise.noise import NoiseSource
from unnoise.objectives.decoders import Decoder, default_decoder
from unnoise.objectives.mixed_times import default_times
from unnoise.objectives.times import Grid, Importance, MaskedCount, Quadrature, Stratified, Times
from unnoise.objectives.weightings import Bound as BoundWeighting
from unnoise.objectives.weightings import Weighting
from unnoise.processes import Chain, DenseProcess, FiniteProcess, Gaussian, Process, Product, Thinning
from unnoise.shapes import Float, Int, Tree
from unnoise.tree import batch_size, first_leaf, map_leaves

ROWS = 100_000  # rows given to the denoiser at once in an exact expectation
GROUP = 512  # rows x visits whose supports are built together


@dataclass
class Terms:
    """Per-example terms in nats.  `loss` is what training minimises: their sum, or the weighted integral alone."""

    prior: Float[Tensor, "batch"]
    diffusion: Float[Tensor, "batch"]
    reconstruction: Float[Tensor, "batch"]
    weighted: Float[Tensor, "batch"] | None = None

    @property
    def total(self) -> Float[Tensor, "batch"]:
        return self.prior + self.diffusion + self.reconstruction

    @property
    def loss(self) -> Float[Tensor, "batch"]:
        return self.total if self.weighted is None else self.weighted

    def __repr__(self) -> str:
        terms = ", ".join(
            f"{name}={getattr(self, name).mean().item():.4f}" for name in ("prior", "diffusion", "reconstruction", "total")
        )
        return f"Bound(mean over {len(self.prior)} examples: {terms})"


def _refuse_divergent(process: Process, low: float, name: str = "") -> None:
    """Continuous data without noise at the cut-off: the integral is infinite."""
    if isinstance(process, Product):
        for leaf, part in process.leaves.items():
            _refuse_divergent(part, low, f" of leaf '{leaf}'")
    if isinstance(process, Gaussian) and process.noiseless(low):
        raise ValueError(
            f"sigma{name} is 0 at the cut-off t = {low:g}, where the bound of continuous data diverges: choose a cut-off > 0"
        )


class _Evaluation:
    """One evaluation of the bound: the denoiser, the data and the rules."""

    def __init__(self, denoiser, x0, weighting, decoder, cutoff, exact, fast, noise, condition):
        self.denoiser, self.x0 = denoiser, x0
        self.process = base_process(denoiser.process)
        self.chain = denoiser.process if isinstance(denoiser.process, Chain) else None
        self.weighting, self.decoder, self.low = weighting, decoder, cutoff
        self.exact, self.fast, self.noise, self.condition = exact, fast, noise, condition
        self.rows = batch_size(x0)

    def expect(self, function, t: Float[Tensor, "visits batch"], noise: NoiseSource, x_t: Tree | None = None) -> Tensor:
        """E_{x_t ~ q(. | x_0)} function(x0, x_t, t, condition) at each visit: exactly, or at one draw (or the x_t given)."""
        if self.exact:
            group = max(1, GROUP // self.rows)  # visits that are put to the denoiser together
            return torch.cat([self._enumerate(function, part) for part in t.split(group)])
        out = []
        for i, clock in enumerate(t):
            state = self.draw(clock, noise.at(i)) if x_t is None else _part(x_t, i, self.rows)
            out.append(function(self.x0, state, clock, self.condition))
        return torch.stack(out)

    def draw(self, t: Tensor, noise: NoiseSource) -> Tree:
        return self.process.marginal(self.x0, t).draw(noise)

    def _enumerate(self, function, t: Float[Tensor, "visits batch"]) -> Tensor:
        """The exact expectation, over all states or the nodes of a rule."""
        visits, clock = len(t), t.flatten()
        nodes, log_weight = self.process.support(_tiled(self.x0, visits), clock)
        total = torch.zeros_like(clock)
        per = max(1, ROWS // len(clock))
        for i in range(0, len(log_weight), per):
            weight = log_weight[i : i + per].exp()
            n = len(weight)
            state = map_leaves(lambda x, i=i: x[i : i + per].flatten(0, 1), nodes)
            data, condition = _tiled(self.x0, n * visits), _tiled(self.condition, n * visits)
            value = function(data, state, clock.repeat(n), condition).reshape(n, -1)
            total = total + (weight * torch.where(weight > 0, value, 0.0)).sum(0)
        return total.reshape(t.shape)

    def rate(self, x0: Tree, x_t: Tree, t: Tensor, condition: dict) -> Tensor:
        return BoundWeighting().rate(self.denoiser(x_t, t, **condition), self.process, x0, self.fast)

    def diffusion(self, times: Times, loss_only: bool = False) -> tuple[Tensor, Tensor | None]:
        """The integral, and its weighted form where a weighting is not the bound itself.

        On numbers it is eq:discrete-to-continuous-time-csp-ELBO, from the cut-off on.
        """
        visits, noise = times.visit(self.process, self.x0, self.low, self.noise), self.noise.at("state")
        if self.weighting.is_bound:
            return (visits.weight * self.expect(self.rate, visits.t, noise, visits.x_t)).sum(0), None
        total = torch.zeros(self.rows, dtype=torch.float64, device=visits.t.device)
        weighted = torch.zeros_like(total)
        for i, (t, weight) in enumerate(zip(visits.t, visits.weight, strict=True)):
            x_t = self.draw(t, noise.at(i)) if visits.x_t is None else _part(visits.x_t, i, self.rows)
            prediction = self.denoiser(x_t, t, **self.condition)
            weighted = weighted + weight * self.weighting.rate(prediction, self.process, self.x0, self.fast)
            with torch.no_grad():
                rate = BoundWeighting().rate(prediction, self.process, self.x0, self.fast) if not loss_only else torch.nan
                total = total + weight * rate
        return total, weighted

    def chain_steps(self, i: Int[Tensor, "visits batch"], noise: NoiseSource) -> Tensor:
        """E KL of the steps t_i -> t_{i-1} (eq:discrete-training-objective)."""
        chain = self.chain
        assert chain is not None
        grid = chain.grid.to(i.device)

        def kl(x0: Tree, x_t: Tree, t: Tensor, condition: dict) -> Tensor:
            s = grid[chain.index(t) - 1]
            return divergence(self.process.reverse(x_t, x0, t), self.denoiser(x_t, t, **condition), s)

        return self.expect(kl, grid[i], noise)

    def chain_terms(self, times: Times) -> tuple[Tensor, Tensor]:
        """(diffusion, reconstruction) of a chain (eq:path-kl-decomposition)."""
        assert self.chain is not None
        device = first_leaf(self.x0).device
        closes = self.process.noiseless(self.low)  # the last step ends on the data itself
        first = 2 if closes else 1
        count = self.chain.steps - first + 1
        total, noise = torch.zeros(self.rows, dtype=torch.float64, device=device), self.noise.at("state")
        if isinstance(times, Grid) and count:
            index = torch.arange(first, self.chain.steps + 1, device=device).unsqueeze(1).expand(-1, self.rows)
            total = self.chain_steps(index, noise).sum(0)
        elif count:
            visits = times.visit(self.process, self.x0, 0.0, self.noise)  # of [0, 1], cut into `count` equal parts
            index = first + (visits.t * count).long().clamp_max(count - 1)
            total = (count * visits.weight * self.chain_steps(index, noise)).sum(0)
        if closes:
            last = torch.ones(1, self.rows, dtype=torch.int64, device=device)
            return total, self.chain_steps(last, self.noise.at("last"))[0]
        return total, self.reconstruction()

    def reconstruction(self) -> Tensor:
        """E[-log p(x_0 | x_eps)], which asks for the last state alone (eq:reconstruction-simplification)."""
        device = first_leaf(self.x0).device
        if self.process.noiseless(self.low):
            return torch.zeros(self.rows, dtype=torch.float64, device=device)
        if not (self.decoder.needs_state or self.decoder.needs_network):
            return self.decoder.nll(self.process, None, self.x0, None, self.low)

        def nll(x0: Tree, x_t: Tree, t: Tensor, condition: dict) -> Tensor:
            prediction = self.denoiser(x_t, t, **condition) if self.decoder.needs_network else None
            return self.decoder.nll(self.process, prediction, x0, x_t, self.low)

        t = torch.full((1, self.rows), self.low, dtype=torch.float64, device=device)
        return self.expect(nll, t, self.noise.at("decoder"))[0]


def _tiled(x: Tree, n: int) -> Tree:
    """n copies of every row of a tree of tensors (other values stay)."""
    return map_leaves(lambda leaf: leaf.repeat(n, *[1] * (leaf.ndim - 1)) if isinstance(leaf, Tensor) else leaf, x)


def _part(x: Tree, i: int, rows: int) -> Tree:
    return map_leaves(lambda leaf: leaf[i * rows : (i + 1) * rows], x)


def _learned_categories(process: Process) -> bool:
    if isinstance(process, Product):
        return any(_learned_categories(leaf) for leaf in process.leaves.values())
    return isinstance(process, FiniteProcess | Thinning) and any(p.requires_grad for p in process.parameters())


class Objective(nn.Module):
    """Denoiser + bound + weighting in one module, so that data-parallel wrapping covers every parameter.

    `forward(x0)` returns a `Bound`: one random time per row unless `times` says otherwise.  With `loss_only = True` nothing
    dear is computed that the loss does not need: under a weighting a reconstruction that asks the network, or a bound by
    matrices, is left out, as NaN.
    """

    loss_only = False

    def __init__(
        self,
        denoiser: AnyDenoiser,
        weighting: Weighting | None = None,
        times: Times | None = None,
        decoder: Decoder | None = None,
        cutoff: float | None = None,
        exact: bool = False,
        fast: bool = True,
    ):
        super().__init__()
        self.denoiser, self.weighting = denoiser, weighting or BoundWeighting()
        self.exact, self.fast = exact, fast
        process, chain = base_process(denoiser.process), isinstance(denoiser.process, Chain)
        self.decoder = decoder or default_decoder(process)
        if chain and cutoff is not None:
            raise ValueError(f"cutoff = {cutoff}: a chain's grid starts at its own cut-off {denoiser.process.cutoff:g}")
        self.cutoff = denoiser.cutoff if cutoff is None else float(cutoff)
        if not 0 <= self.cutoff < 1:
            raise ValueError(f"cutoff = {self.cutoff:g} lies outside [0, 1)")
        _refuse_divergent(process, self.cutoff)
        if times is None:
            times = (Grid() if chain else Quadrature()) if exact else default_times(process)
        if chain and times.draws_state:  # a chain draws its own states
            times = Stratified() if isinstance(times, MaskedCount) else Importance()
        if chain and isinstance(times, Quadrature):
            raise ValueError(
                "Quadrature() is for an integral over time; a chain's bound is a sum over its steps: use Grid()"
            )
        if exact and times.draws_state:
            raise ValueError("an exact expectation over x_t needs times without drawn states: use Quadrature()")
        if chain and not self.weighting.is_bound:
            raise ValueError("weightings act on the continuous-time integrand; a chain is trained on its bound")
        if not exact and not isinstance(times, MaskedCount) and _learned_categories(process):
            raise ValueError(
                "a learned schedule of categories or counts has no unbiased gradient through drawn states: "
                "use exact=True, or count-based times on Masking"
            )
        if exact and not self.weighting.is_bound:
            raise ValueError("exact=True computes the bound itself: leave the weighting out")
        self.times = times

    def forward(self, x0: Tree, noise: NoiseSource | None = None, **condition: Any) -> Terms:
        x0 = self.denoiser.process.space.check(x0, "x0")
        leaf = first_leaf(x0)
        if not leaf.shape[0]:
            raise ValueError("x0 has no rows: pass at least one example")
        noise = noise if noise is not None else NoiseSource.fresh(leaf.shape[0], leaf.device)
        run = _Evaluation(
            self.denoiser, x0, self.weighting, self.decoder, self.cutoff, self.exact, self.fast, noise, condition
        )
        if self.loss_only and not self.weighting.is_bound and isinstance(run.process, DenseProcess):
            none, weighted = run.diffusion(self.times, loss_only=True)
            return Terms(none, none, none, weighted)
        prior = self.denoiser.process.prior_kl(x0)
        if may_read(prior) and bool(prior.isinf().any()):
            raise ValueError(
                "KL(q(x_1 | x_0) || p_1) is infinite: some of x_0 is left at the last time, where the prior is all MASK "
                "(counts: 0); end the grid at t = 1"
            )
        if run.chain is not None:
            diffusion, reconstruction = run.chain_terms(self.times)
            return Terms(prior, diffusion, reconstruction)
        diffusion, weighted = run.diffusion(self.times)
        if weighted is not None:
            with torch.no_grad():
                skips = self.loss_only and self.decoder.needs_network
                last = torch.full_like(prior, float("nan")) if skips else run.reconstruction()
                return Terms(prior, diffusion, last, weighted)
        return Terms(prior, diffusion, run.reconstruction())


def bound(
    denoiser: AnyDenoiser,
    x0: Tree,
    times: Times | None = None,
    exact: bool = False,
    cutoff: float | None = None,
    decoder: Decoder | None = None,
    seed: int | None = None,
    fast: bool = True,
    **condition: Any,
) -> Terms:
    """Bound -log p(x0) for each row: unbiased with one random time per row, or exact where the space can be enumerated."""
    objective = Objective(denoiser, times=times, decoder=decoder, cutoff=cutoff, exact=exact, fast=fast)
    leaf = first_leaf(denoiser.process.space.check(x0, "x0"))
    noise = None if seed is None else NoiseSource(seed, leaf.shape[0], leaf.device)
    result = objective(x0, noise, **condition)
    if may_read(result.total) and bool(result.total.isnan().any()):
        row = int(result.total.isnan().nonzero()[0, 0])
        raise FloatingPointError(f"the bound of row {row} is NaN: the network returned a non-finite value")
    return result
