"""Chains by matrices: everything that needs no generator.

On one coordinate the chain of the exact posterior is the exact reverse, so its bound is -log q(x) + the prior's mismatch for
any matrices; on several it factorises over a step, and only bounds.
"""

from collections.abc import Iterator
from typing import Any, cast

import torch

from unnoise.objectives import Stratified, bound
from unnoise.oracles import table
from unnoise.predictions import Posterior, RawPosterior, Transition
from unnoise.processes import FiniteProcess, MatrixChain
from unnoise.tree import map_leaves
from unnoise.verify.bounds import DISCRETE, IDENTITY, chain_law, prior_mismatch, two_inequalities
from unnoise.verify.finite_kernels import finite_kernels
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name, random_law, subject_of
from unnoise.verify.wrong import Perturbed


def matrix_chain_subject(chain: MatrixChain, name: str) -> Subject:
    process = cast(FiniteProcess, chain.process)
    space = process.space
    if space.count > 200:
        raise ValueError(f"{space} has {space.count} points: verification enumerates the space, so build a small chain")
    oracle = table(process, random_law(space.count)).predicting(None, chain)
    return Subject(name, chain, oracle, (Posterior, RawPosterior), Transition, space.states())


@subject_of.register
def _(process: MatrixChain, name: str) -> Subject:
    return matrix_chain_subject(process, name)


@guarded("kernels and bounds of a chain by matrices")
def matrix_chain_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    yield from finite_kernels(subject)
    oracle, x = subject.oracle, subject.points
    exact = -oracle.log_prob(x) + prior_mismatch(oracle, subject.process, x)
    for kind in (*subject.kinds, subject.grid_kind):
        yield from _bounds(subject, Place(subject.name, kind_name(kind), DISCRETE), kind, exact, networks)
    yield from _random_steps(subject)


@guarded("bound(x) of a chain by matrices")
def _bounds(subject: Subject, place: Place, kind: Any, exact: torch.Tensor, networks: int) -> Iterator[Row]:
    chain, oracle, x = cast(MatrixChain, subject.process), subject.oracle, subject.points
    ours = bound(oracle.predicting(kind), x, exact=True).total
    if chain.space.dimension == 1:
        yield place.equal(f"bound(x) with the exact model, {chain.steps} steps", exact, ours, IDENTITY)
    else:
        yield place.at_most("-log q(x) <= bound(x), mean over q", *_means(oracle, x, ours, exact))
    for i in range(networks):
        scale = 0.1 if i < networks / 2 else 1.5
        model = Perturbed(oracle.predicting(kind), scale, 100 + i)
        value, own = bound(model, x, exact=True).total, -chain_law(model, x).log()
        yield from two_inequalities(place, f"noise {scale:g}, network {i}", value, own, scale)


def _means(oracle, x, ours: torch.Tensor, exact: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    weight = oracle.log_prob(x).exp()
    return (weight * ours).sum(), (weight * exact).sum()


@guarded("mean over random steps")
def _random_steps(subject: Subject, draws: int = 4000) -> Iterator[Row]:
    """Random steps and states: the mean over draws, in standard errors (false alarm 6e-5 a row)."""
    x = map_leaves(lambda v: v[:1], subject.points)
    many = map_leaves(lambda v: v.expand(draws, *v.shape[1:]), x)
    exact = bound(subject.oracle, x, exact=True).total[0]
    values = bound(subject.oracle, many, times=Stratified(), seed=50).total
    gap = (values.mean() - exact).abs() / (values.std() / draws**0.5 + 1e-12)
    place = Place(subject.name, kind_name(subject.oracle.kinds), "bound, random steps")
    yield place.row("mean over random steps, error in standard errors", exact, values.mean(), gap, 4.0)
