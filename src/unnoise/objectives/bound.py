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

from collections.abc import Callable
from functools import reduce
from math import inf
from operator import add
from typing import Any, cast

import torch
from torch import Tensor, nn

from unnoise.checks import instance_of, may_read, remembering
from unnoise.conditions import Condition, checked
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.objectives.blame import cause_of_nan
from unnoise.objectives.decoders import CodeDecoder, Decoder
from unnoise.objectives.defaults import default_decoder, default_weighting, times_of
from unnoise.objectives.evaluation import Evaluation, Rules
from unnoise.objectives.leaves import leaves_of, without_noise
from unnoise.objectives.path_bound import path_terms
from unnoise.objectives.pieces import in_pieces
from unnoise.objectives.quadrature import Quadrature
from unnoise.objectives.terms import Terms
from unnoise.objectives.times import Grid, Times
from unnoise.objectives.weightings import Bound, Weighting
from unnoise.processes import Process
from unnoise.shapes import Tree
from unnoise.tree import batch_size, first_leaf

TAKEN = ("prior", "diffusion", "reconstruction", "total", "loss")  # names of what a bound has already
Encoder = Callable[[Any, NoiseSource, dict[str, Any]], tuple[Tree, dict[str, Tensor]]]


def _times_for(denoiser: AnyDenoiser, times: Times | None, exact: bool) -> Times:
    """The rule given, or the default, in the form that the process takes."""
    chain = denoiser.process.grid is not None
    if times is None:
        times = (Grid() if chain else Quadrature()) if exact else times_of(denoiser)
    times = instance_of(times, Times, "times", "un.Importance()")
    if times.draws < 1:
        raise ValueError(f"{type(times).__name__} has draws = {times.draws}: at least one time per row is needed")
    times = times.on_chain() if chain else times
    if exact and times.draws_state:
        raise ValueError("an exact expectation over x_t needs times without drawn states: use Quadrature()")
    return times


def _cutoff_for(denoiser: AnyDenoiser, cutoff: float | None) -> float:
    process = denoiser.process
    if process.grid is not None and cutoff is not None:
        raise ValueError(f"cutoff = {cutoff}: a chain's grid starts at its own cut-off {process.cutoff:g}")
    low = denoiser.cutoff if cutoff is None else float(cutoff)
    if not 0 <= low < 1:
        raise ValueError(f"cutoff = {low:g} lies outside [0, 1)")
    silent = without_noise(process.base, low)
    if silent is not None:
        raise ValueError(
            f"{silent} is 0 at the cut-off t = {low:g}, where the bound of continuous data diverges: choose a cut-off > 0"
        )
    return low


def _refuse_jumping(process: Process) -> None:
    """Drawn states that jump have no path along which a schedule's gradient could pass."""
    for _, leaf in leaves_of(process):
        if not leaf.reparametrised and any(p.requires_grad for p in leaf.parameters()):
            raise ValueError(
                f"{type(leaf).__name__}: a learned schedule of categories or counts has no unbiased gradient through drawn "
                f"states: use exact=True, or count-based times on Masking (a process whose draws move smoothly with its "
                f"schedule says so, reparametrised = True)"
            )


class Objective(nn.Module):
    """Denoiser + bound + weighting in one module, so that data-parallel wrapping covers every parameter.

    `forward(x0)` returns `Terms`: one random time per row unless `times` says otherwise.  With `loss_only = True` nothing
    dear is computed that the loss does not need: under a weighting a reconstruction that asks the network, or a bound by
    matrices, is left out, as NaN.

    Data need not be what is noised.  An `encoder`, any function or module (x, noise, condition) -> (x_0, terms), turns a
    batch x into states of the process, by a law e(x_0 | x) of its own, and names what the bound on -log p(x) has besides,

        -log p(x) <= E_e [log e(x_0 | x) - log p(x | x_0) + bound(x_0)],

    as a dict of numbers per row, such as {"entropy": log e(x_0 | x), "likelihood": -log p(x | x_0)}.  These join the terms,
    and the loss whatever the weighting.  A denoiser that has a code brings its encoder, and its end where it rounds.
    """

    loss_only = False
    phase = 0  # updates of one phase launch the same kernels

    def __init__(
        self,
        denoiser: AnyDenoiser,
        weighting: Weighting | None = None,
        times: Times | None = None,
        decoder: Decoder | None = None,
        cutoff: float | None = None,
        exact: bool = False,
        fast: bool = True,
        encoder: Encoder | None = None,
    ):
        super().__init__()
        process = denoiser.process
        self.denoiser, self.encoder, self.exact, self.fast = denoiser, encoder, exact, fast
        weighting = default_weighting(process) if weighting is None else weighting
        code = denoiser.code if encoder is None else None
        if code is not None:
            self.encoder = code.encode
        if decoder is None:
            decoder = CodeDecoder(code) if code is not None and code.rounds else default_decoder(process)
        self.weighting = instance_of(weighting, Weighting, "weighting", "un.weightings.Simple()")
        self.decoder = instance_of(decoder, Decoder, "decoder", "un.decoders.GaussianDecoder()")
        self.cutoff = _cutoff_for(denoiser, cutoff)
        self.times = _times_for(denoiser, times, exact)
        if not (exact or self.times.schedule_free):
            _refuse_jumping(process.base)
        if process.by_paths and (exact or not self.weighting.is_bound):
            raise ValueError(f"{type(process).__name__} has the bound of its paths alone: leave weighting and exact out")
        if exact and not self.weighting.is_bound:
            raise ValueError("exact=True computes the bound itself: leave the weighting out")

    @property
    def is_bound(self) -> bool:
        """Whether the loss estimates a bound."""
        return self.weighting.is_bound and self.times.is_bound

    def begin(self, done: float) -> None:
        """Before an update, when a share `done` of the training lies behind: an objective that changes with it says how."""

    def forward(self, x0: Tree, noise: NoiseSource | None = None, condition: Condition | None = None) -> Terms:
        if torch.compiler.is_compiling():
            return self.evaluate(x0, noise, condition)
        with remembering():
            return self.evaluate(x0, noise, condition)

    def evaluate(self, x0: Tree, noise: NoiseSource | None, condition: Condition | None) -> Terms:
        data = x0
        x0, noise, given, added = self._enter(x0, noise, condition)
        if self.denoiser.process.by_paths:
            own = path_terms(self.denoiser, x0, noise, given)
            return Terms({**own.terms, **added}, is_bound=True)
        rules = Rules(
            self.denoiser, self.weighting, self.times, self.decoder, self.cutoff, self.exact, self.fast, self.loss_only
        )
        run = Evaluation(rules, x0, noise, given, data if isinstance(self.decoder, CodeDecoder) else x0)
        if not self.weighting.is_bound and rules.skips_bound and self.denoiser.process.grid is None:
            none, weighted = run.diffusion()
            terms = dict.fromkeys(("prior", "diffusion", "reconstruction"), none)
            return Terms({**terms, **added}, _with(cast(Tensor, weighted), added), is_bound=False)
        prior = self.denoiser.process.prior_kl(x0)
        if not self.denoiser.process.base.has_density:  # a density has no MASK to be far from
            _refuse_infinite(prior)
        diffusion, reconstruction, weighted = run.terms()
        if weighted is not None:
            share = self.weighting.bound_share
            weighted = _with(weighted + share * prior if share else weighted, added)
        terms = {"prior": prior, "diffusion": diffusion, "reconstruction": reconstruction}
        return Terms({**terms, **added}, weighted, self.is_bound)

    def _enter(
        self, x0: Tree, noise: NoiseSource | None, condition: Condition | None
    ) -> tuple[Tree, NoiseSource, dict[str, Any], dict[str, Tensor]]:
        """What is noised, its noise, its condition, and the terms that the encoder adds; all of it checked once."""
        space = self.denoiser.process.space
        added: dict[str, Tensor] = {}
        if self.encoder is None or self.denoiser.code is not None:
            x0 = self.denoiser.space.check(x0, "x0")
        leaf = first_leaf(x0)
        if not leaf.shape[0]:
            raise ValueError("x0 has no rows: pass at least one example")
        noise = noise if noise is not None else NoiseSource.fresh(leaf.shape[0], leaf.device)
        given = checked(condition, leaf.shape[0])
        if self.encoder is not None:
            x0, added = self.encoder(x0, noise.at("encoder"), given)
            x0 = space.check(x0, "x0, as encoded,")
            _check_added(added, batch_size(x0), leaf.shape[0])
        return x0, noise, given, added


def _check_added(added: Any, encoded: int, rows: int) -> None:
    """The encoder's terms stand beside the bound's own, a number per row."""
    if encoded != rows:
        raise ValueError(f"the encoder made {encoded} rows of {rows}: a bound has as many as the data")
    for name, value in added.items():
        if name in TAKEN:
            raise ValueError(f"the encoder names a term {name!r}, which a bound has already: choose another name")
        shape = tuple(value.shape) if isinstance(value, Tensor) else type(value).__name__
        if shape != (rows,):
            raise ValueError(f"the encoder's term {name!r} is {shape}: return a tensor with one number per row, ({rows},)")


def _with(loss: Tensor, added: dict[str, Tensor]) -> Tensor:
    return reduce(add, added.values(), loss)


def _refuse_infinite(prior: Tensor) -> None:
    if may_read(prior) and prior.detach().max().item() == inf:
        raise ValueError(
            "KL(q(x_1 | x_0) || p_1) is infinite: some of x_0 is left at the last time, where the prior is all MASK "
            "(counts: 0); end the grid at t = 1"
        )


def bound(
    denoiser: AnyDenoiser,
    x0: Tree,
    times: Times | None = None,
    exact: bool = False,
    cutoff: float | None = None,
    decoder: Decoder | None = None,
    seed: int | None = None,
    fast: bool = True,
    condition: Condition | None = None,
    encoder: Encoder | None = None,
) -> Terms:
    """Bound -log p(x0) for each row: unbiased with one random time per row, or exact where the space can be enumerated.

    Where no gradient is wanted and memory runs out, rows are done in halves, to the same result.
    """
    objective = Objective(denoiser, Bound(), times, decoder, cutoff, exact, fast, encoder)
    x0 = denoiser.space.check(x0, "x0") if encoder is None else x0
    rows, device = batch_size(x0), first_leaf(x0).device
    noise = NoiseSource.fresh(rows, device) if seed is None else NoiseSource(seed, rows, device)
    result = objective(x0, noise, condition) if torch.is_grad_enabled() else in_pieces(objective, x0, noise, condition)
    if may_read(result.total) and bool(result.total.isnan().any()):
        row = int(result.total.isnan().nonzero()[0, 0])
        why = cause_of_nan(denoiser, lambda: objective(x0, noise, condition))
        raise FloatingPointError(f"the bound of row {row} is NaN: {why}")
    return result
