"""Bounds in discrete time: on a fixed [eps, 1] the T-step bound tends to the continuous one like 1/T."""

from collections.abc import Iterator
from functools import singledispatch
from typing import Any

import torch
from torch import Tensor

from unnoise.generators.kolmogorov import enumerable, states
from unnoise.objectives import bound
from unnoise.predictions import CountRatio, Energy, Rates, Ratio
from unnoise.processes import Chain, CoxIngersollRoss, FiniteProcess, JumpDiffusion, Process, Product, Thinning
from unnoise.tree import batch_size, map_leaves
from unnoise.verify.bounds import DISCRETE, IDENTITY, flat_kinds
from unnoise.verify.guard import guarded
from unnoise.verify.rows import Place, Row
from unnoise.verify.subjects import Subject, kind_name
from unnoise.verify.truncation import cut, has_counts


@singledispatch
def chain_kinds(process: Process, subject: Subject) -> tuple[Any, ...]:
    """The kinds whose T-step bounds are compared with the continuous one; open to registration."""
    return subject.kinds[:1]


@chain_kinds.register
def _(process: FiniteProcess, subject: Subject) -> tuple[Any, ...]:
    """With alpha_1 = 0 ratios at t = 1 say nothing of x_0, so a chain from there is refused; but what masking hides it
    hides whole.  Reverse rates there are infinite where alpha' is."""
    if process.absorbing and not bool(_at_end(process, "d_alpha").isfinite().all()):
        return tuple(kind for kind in subject.kinds if kind is not Rates)
    if process.absorbing or float(_at_end(process, "alpha").min()) >= 1e-6:
        return subject.kinds
    return tuple(kind for kind in subject.kinds if not _leaps(kind))


@chain_kinds.register
def _(process: Thinning, subject: Subject) -> tuple[Any, ...]:
    return tuple(kind for kind in subject.kinds if not (process.pure_death and kind in (CountRatio, Energy)))


@chain_kinds.register
def _(process: JumpDiffusion, subject: Subject) -> tuple[Any, ...]:
    """None: its steps are mixtures of normal laws, whose divergence has no closed form."""
    return ()


@chain_kinds.register
def _(process: Product, subject: Subject) -> tuple[Any, ...]:
    return subject.kinds[:1] if all(chain_kinds(leaf, subject) for leaf in process.leaves.values()) else ()


@chain_kinds.register
def _(process: CoxIngersollRoss, subject: Subject) -> tuple[Any, ...]:
    """Its bridges have no divergence in closed form, so that there is no T-step bound."""
    return ()


def _leaps(kind: Any) -> bool:
    return bool(set(flat_kinds(kind)) & {Ratio, Rates, Energy})


@guarded("order of the T-step bound in 1/T")
def chain_checks(subject: Subject, networks: int = 2) -> Iterator[Row]:
    """The T-step bound tends to the continuous one at rate 1/T on a fixed [eps, 1]."""
    process = subject.process
    if not process.leaves and enumerable(process.state_space) and batch_size(states(process.state_space)) > 40:
        return
    listed = enumerable(cut(process.state_space, 1))
    if not process.leaves and not listed and process.space.dimension > 1:
        return
    kinds = (*chain_kinds(process, subject), *([subject.grid_kind] if subject.grid_kind else []))
    for kind in kinds:
        yield from _chain_order(subject, Place(subject.name, kind_name(kind), DISCRETE), kind, listed)


@guarded("order of the T-step bound in 1/T")
def _chain_order(subject: Subject, place: Place, kind: Any, listed: bool) -> Iterator[Row]:
    process, oracle, gaps = subject.process, subject.oracle, []
    eps, x = 0.1, map_leaves(lambda v: v[:3], subject.points)
    tied = any(part.tied_to_grid for part in flat_kinds(kind))
    free = subject.kinds[0] if tied else kind
    limit = bound(oracle.predicting(free), x, exact=True, times=subject.quadrature, cutoff=eps, decoder=oracle.decoder).total
    late = _leaps(kind) and not has_counts(process.state_space)  # held rates settle later: the gap changes sign on its way
    counts = (128, 256, 512) if late else (16, 32, 64) if listed else (64, 128, 256)
    for count in counts:
        chain = Chain(process, torch.linspace(eps, 1.0, count + 1, dtype=torch.float64))
        ours = bound(oracle.predicting(kind, chain), x, exact=True, decoder=oracle.decoder).total
        gaps.append((ours - limit).abs().mean())
    if not torch.stack(gaps).isfinite().all():
        return  # one leap cannot reach every state under sparse rates: an infinite bound, and rightly so
    if max(gaps) < 1e-9:
        yield place.equal("T-step bound of a kernel that is exact at any step", limit, ours, IDENTITY)
    else:
        yield place.equal("order of the T-step bound in 1/T", 1.0, fitted_order(counts, gaps), 0.25)


def fitted_order(steps: tuple[int, ...], gaps: list[Tensor]) -> Tensor:
    """The least-squares slope of -log gap in log T."""
    x, y = torch.tensor(steps, dtype=torch.float64).log(), -torch.stack(gaps).log()
    return ((x - x.mean()) * (y - y.mean())).sum() / (x - x.mean()).square().sum()


def _at_end(process: FiniteProcess, name: str) -> Tensor:
    """A coefficient at t = 1; 0 where a process of matrices has no schedule to ask."""
    schedule = dict(process.named_children()).get("schedule")
    return torch.tensor(0.0) if schedule is None else getattr(schedule, name)(1.0)
