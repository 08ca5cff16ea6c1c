"""The bound against exact answers.

1. Identity.   With the exact denoiser and decoder, bound(x) = -log q(x) + E_{q(x_1|x)} log(q_1/p_1)(x_1) for every x.
2. Inequality. For wrong networks, sum_x exp(-bound(x)) <= 1, and bound(x) >= -log p(x) with p the law that the wrong reverse
               process really has (its forward equation is solved, or its kernels are multiplied).
3. Rate.       T-step bounds on a fixed [eps, 1] approach the continuous one like 1/T.
4. Fast paths. Closed forms equal the divergence of the generators on wrong networks.
5. Estimators. Random times agree with the exact value within 4 standard errors.
"""

from collections.abc import Iterator
from functools import singledispatch
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import code, enumerable, matrices, solve, states
from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.objectives import Importance, MaskedCount, Quadrature, Times, bound, decoders, default_decoder
from unnoise.objectives.closed_forms import closed_form, rate, score_entropy, score_entropy_constant
from unnoise.oracles import Oracle
from unnoise.predictions import (
    Energy,
    FinitePrediction,
    Posterior,
    RawPosterior,
)
from unnoise.processes import Chain, CoxIngersollRoss, HeatProcess, JumpDiffusion, Process, WrightFisher
from unnoise.shapes import Tree
from unnoise.tree import batch_size, map_leaves
from unnoise.verify.count_bounds import count_inequalities
from unnoise.verify.guard import guarded
from unnoise.verify.heat_bounds import heat_inequalities
from unnoise.verify.jump_bounds import jump_inequalities
from unnoise.verify.law_matrices import dense
from unnoise.verify.rows import Place, Row
from unnoise.verify.simplex_bounds import orthant_inequalities, simplex_inequalities
from unnoise.verify.subjects import Subject, kind_name
from unnoise.verify.truncation import has_counts
from unnoise.verify.wrong import Perturbed

IDENTITY, FAST = 1e-6, 1e-10
CONTINUOUS, DISCRETE = "bound, continuous time", "bound, discrete time"


def prior_mismatch(oracle: Oracle, process: Process, x0: Tree, t: float = 1.0) -> Tensor:
    """E_{q(x_1|x)} log(q_1/p_1)(x_1): 0 where alpha_1 = 0."""
    nodes, log_weight = process.support(x0, t)
    total = torch.zeros(batch_size(x0), dtype=torch.float64)
    prior = process.prior(batch_size(x0), torch.float64)
    for i, weight in enumerate(log_weight.exp()):
        node = map_leaves(lambda x, i=i: x[i], nodes)
        gap = oracle.log_marginal(node, t) - prior.log_prob(node)
        total = total + torch.where(weight > 1e-200, weight * gap, 0.0)
    return total


@guarded("bound(x) with the exact model")
def identity_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    process, oracle, x = subject.process, subject.oracle, subject.points
    exact = -oracle.log_prob(x) + prior_mismatch(oracle, process, x)
    for kind in subject.kinds:
        yield from _identity(subject, Place(subject.name, kind_name(kind), CONTINUOUS), kind, exact)


@guarded("bound(x) with the exact model")
def _identity(subject: Subject, place: Place, kind: Any, exact: Tensor) -> Iterator[Row]:
    oracle = subject.oracle
    for eps in subject.cutoffs:
        times, view = subject.quadrature, oracle.predicting(kind)
        ours = bound(view, subject.points, exact=True, times=times, cutoff=eps, decoder=oracle.decoder)
        yield place.equal(f"bound(x) with the exact model, cut-off {eps:g}", exact, ours.total, IDENTITY)


@guarded("closed form = divergence of generators")
def fast_path_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    """Closed forms and score entropy on wrong networks."""
    process, x0 = subject.process, subject.points
    source = NoiseSource(20, batch_size(x0))
    t = 0.02 + 0.96 * source.at("time").uniform()
    x_t = process.marginal(x0, t).draw(source.at("state"))
    for i, kind in enumerate(subject.kinds):
        yield from _fast_path(subject, Place(subject.name, kind_name(kind), "rate"), kind, x_t, t, 30 + i)


@guarded("closed form = divergence of generators")
def _fast_path(subject: Subject, place: Place, kind: Any, x_t: Tree, t: Tensor, seed: int) -> Iterator[Row]:
    process, x0 = subject.process, subject.points
    prediction = Perturbed(subject.oracle.predicting(kind), 1.0, seed)(x_t, t)
    general = rate(prediction, process, x0, fast=False)
    if has_closed_form(process, kind):
        yield place.equal("closed form = divergence of generators", general, rate(prediction, process, x0), FAST)
    if isinstance(prediction, FinitePrediction):
        for form in ("rate", "ratio", "posterior"):
            ours = score_entropy(prediction, x0, form) + score_entropy_constant(prediction, x0, form)  # type: ignore
            yield place.equal(f"score entropy ({form} form) + its constant = divergence", general, ours, FAST)


def has_closed_form(process: Process, kind: Any) -> bool:
    """Whether a rate has a fast path beside the divergence; an energy and a product go by their leaves'."""
    return isinstance(kind, dict) or kind is Energy or closed_form.of(type(process), kind) is not None


def model_law(model: AnyDenoiser, eps: float, decoder: decoders.Decoder, data: Tree) -> Tensor:
    """The law of x_0 under the model's own reverse process and decoder, by its forward equation."""
    process = model.process
    points = states(process.state_space)

    def rates(times: Tensor) -> Tensor:
        return matrices(process.state_space, lambda x, t: model(x, t).local(), times)

    law = solve(rates, _prior(process, points), 1.0, eps, 1e-10)
    if process.noiseless(eps):
        return law[code(process.state_space, data)]
    return _decode(model, process, law, eps, decoder, data)


def _prior(process: Process, points: Tree) -> Tensor:
    return process.prior(batch_size(points), torch.float64).log_prob(points).exp()


def _decode(model: AnyDenoiser, process: Process, law: Tensor, eps: float, decoder: decoders.Decoder, data: Tree) -> Tensor:
    points = states(process.state_space)
    n, m = batch_size(points), batch_size(data)
    x_eps = map_leaves(lambda x: x.repeat_interleave(m, 0), points)
    x0 = map_leaves(lambda x: x.repeat(n, *[1] * (x.ndim - 1)), data)
    nll = decoder.nll(process, model(x_eps, eps), x0, x_eps, eps).reshape(n, m)
    return law @ torch.where(law[:, None] > 0, (-nll).exp(), 0.0)


def chain_law(model: AnyDenoiser, data: Tree) -> Tensor:
    """The law of x_0 under a model chain: its kernels multiplied."""
    chain = cast(Chain, model.process)
    points = states(chain.state_space)
    law = _prior(chain, points)
    for i in range(chain.steps, 0, -1):
        t, s = chain.grid[i], chain.grid[i - 1]

        def kernel(x: Tree, s=s, t=t) -> Law:
            return model(x, t).step(s)

        law = dense(kernel, points, points) @ law
    return law[code(chain.state_space, data)]


@singledispatch
def own_inequalities(process: Process, subject: Subject, networks: int) -> Iterator[Row] | None:
    """The checks of wrong networks' bounds that a class of processes has of its own; None: those by listing states."""
    return None


@own_inequalities.register
def _(process: HeatProcess, subject: Subject, networks: int) -> Iterator[Row] | None:
    return heat_inequalities(process, subject, networks)


@own_inequalities.register
def _(process: JumpDiffusion, subject: Subject, networks: int) -> Iterator[Row] | None:
    return jump_inequalities(process, subject, networks)


@own_inequalities.register
def _(process: WrightFisher, subject: Subject, networks: int) -> Iterator[Row] | None:
    return simplex_inequalities(process, subject, networks)


@own_inequalities.register
def _(process: CoxIngersollRoss, subject: Subject, networks: int) -> Iterator[Row] | None:
    return orthant_inequalities(process, subject, networks)


@guarded("bounds of wrong networks")
def inequality_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    """Wrong networks on an enumerable space: small noise on the first half of the networks, large on the rest."""
    process = subject.process
    own = own_inequalities(process, subject, networks)
    if own is not None:
        yield from own
        return
    if has_counts(process.state_space):
        yield from count_inequalities(subject, networks)
        return
    if not enumerable(process.state_space) or batch_size(states(process.state_space)) > 40:
        return
    for kind in subject.kinds:
        yield from _inequalities(subject, Place(subject.name, kind_name(kind), CONTINUOUS), kind, networks)
    if not process.leaves and process.noiseless(0.0) and subject.grid_kind is not None:
        yield from _chain_inequalities(subject, Place(subject.name, kind_name(subject.grid_kind), DISCRETE), networks)


@guarded("bounds of wrong networks")
def _inequalities(subject: Subject, place: Place, kind: Any, networks: int) -> Iterator[Row]:
    process, oracle, data = subject.process, subject.oracle, states(subject.process.space)
    factorised = _factorises(kind)
    clean = process.noiseless(0.0) and (factorised == "leave-one-out" or (factorised and process.absorbing))
    eps = 0.0 if clean else 0.02
    decoder = default_decoder(process) if isinstance(kind, dict) else decoders.CategoricalDecoder()
    stated: decoders.Decoder = decoder if factorised else oracle.decoder
    for i in range(networks):
        scale = 0.1 if i < networks / 2 else 1.5
        model = Perturbed(oracle.predicting(kind), scale, 100 + i)
        ours = bound(model, data, exact=True, times=Quadrature(96, late=subject.late), cutoff=eps, decoder=stated).total
        exact = -model_law(model, eps, stated, data).log()
        yield from two_inequalities(place, f"noise {scale:g}, network {i}", ours, exact, scale)


@guarded("bounds of wrong networks on a chain")
def _chain_inequalities(subject: Subject, place: Place, networks: int) -> Iterator[Row]:
    data = states(subject.process.space)
    chain = Chain(subject.process, torch.linspace(0.0, 1.0, 6, dtype=torch.float64))
    for i in range(networks):
        scale = 0.1 if i < networks / 2 else 1.5
        model = Perturbed(subject.oracle.predicting(subject.grid_kind, chain), scale, 100 + i)
        ours, exact = bound(model, data, exact=True).total, -chain_law(model, data).log()
        yield from two_inequalities(place, f"noise {scale:g}, network {i}", ours, exact, scale)


def two_inequalities(place: Place, which: str, ours: Tensor, exact: Tensor, scale: float) -> Iterator[Row]:
    """The bound is above -log p of the model's own law (eq:marginal-path-inequality), so exp(-bound) sums to at most 1."""
    yield place.at_most(f"-log p(x) of the model's own law <= bound, {which}", ours, exact, 1e-7)
    mass = (-ours).exp().sum()
    yield place.at_most(f"sum_x exp(-bound) <= 1, {which}", 1.0, mass, 1e-9)
    if scale < 1:
        yield place.at_most(f"sum_x exp(-bound) > 0.1, {which}", mass, 0.1)


def _factorises(kind: Any) -> str | None:
    """Whether the prediction has a posterior per coordinate to decode with."""
    kinds = set(flat_kinds(kind))
    if kinds == {Posterior}:
        return "leave-one-out"
    return "raw" if kinds <= {Posterior, RawPosterior} else None


def flat_kinds(kind: Any) -> list[Any]:
    return [leaf for part in kind.values() for leaf in flat_kinds(part)] if isinstance(kind, dict) else [kind]


@guarded("mean over random times")
def estimator_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    """Random times and states: the mean over draws against the exact value, in standard errors (false alarm 6e-5 a row)."""
    process = subject.process
    rules: list[Times] = [Importance()]
    if process.absorbing and not process.schedule.shape:  # type: ignore[attr-defined,union-attr]
        rules.append(MaskedCount())
    x = map_leaves(lambda v: v[:1], subject.points)
    oracle, eps = subject.oracle, subject.cutoffs[0]
    exact = bound(oracle, x, exact=True, times=subject.quadrature, cutoff=eps, decoder=oracle.decoder).total[0]
    for rule in rules:
        place = Place(subject.name, kind_name(oracle.kinds), f"bound, {type(rule).__name__} times")
        yield from estimated(subject, place, rule, exact)


def estimated(subject: Subject, place: Place, rule: Times, exact: Tensor, draws: int = 4000) -> Iterator[Row]:
    """The bound of the first point by a rule of times, drawn so often, against its exact value."""
    many = map_leaves(lambda v: v[:1].expand(draws, *v.shape[1:]), subject.points)
    oracle, eps = subject.oracle, subject.cutoffs[0]
    values = bound(oracle, many, times=rule, cutoff=eps, decoder=oracle.decoder, seed=50).total
    error = values.std() / draws**0.5 + 1e-12  # one masked coordinate leaves the estimator no variance at all
    gap = (values.mean() - exact).abs() / error
    yield place.row("mean over random times, error in standard errors", exact, values.mean(), gap, 4.0)
