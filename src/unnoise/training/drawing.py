"""Samples of a trained run: in batches that suit the device there is, given what is known."""

from collections.abc import Mapping
from contextlib import nullcontext
from functools import partial
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.conditions import moved
from unnoise.data.base import Format
from unnoise.denoiser import AnyDenoiser, Denoiser
from unnoise.networks.compiled import compiled
from unnoise.noise import NoiseSource
from unnoise.processes import Process
from unnoise.samplers import (
    Frozen,
    Info,
    Leaves,
    OneByOne,
    OneStep,
    Plan,
    Sampler,
    default_steps,
    own_plan,
)
from unnoise.samplers.defaults import common_steps
from unnoise.samplers.many import from_prior, sample_many
from unnoise.samplers.masked_leaves import masked_coordinates
from unnoise.samplers.particles import Particles
from unnoise.samplers.parts import joined
from unnoise.samplers.registry import choices
from unnoise.samplers.replacement import ROUNDS, Replacement
from unnoise.samplers.sample import seed_of
from unnoise.shapes import AnyState, Int, Tree
from unnoise.training.known_parts import DrawnLabels, KnownParts
from unnoise.training.leaf_kinds import named_leaves
from unnoise.training.telling import Telling
from unnoise.tree import batch_size, join, map_leaves, put_rows
from unnoise.tree import rows as some_rows


def _check_fits(sampler: Sampler, process: Process) -> None:
    process = process.base
    why = sampler.refuse(process)
    if why is None:
        return
    name = type(sampler).__name__
    if process.leaves and not isinstance(sampler, Leaves | OneByOne):
        parts = ", ".join(list(process.leaves)[:4]) + (", ..." if len(process.leaves) > 4 else "")
        why = f"data of several parts ({parts}) is drawn by a method for each, together"
    fitting = [other for other, kind in choices().items() if kind().refuse(process) is None]
    why = why.removesuffix(": use Ancestral")
    raise ValueError(f"--sampler {name}: {why}; leave it out, or use {', '.join(fitting)}")


def device_of(name: str) -> torch.device:
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device = {name!r}: choose auto, cpu or cuda")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def draw(
    denoiser: AnyDenoiser,
    format: Format,
    n: int,
    sampler: Sampler | None = None,
    steps: int | None = None,
    calls: int | None = None,
    seed: int | None = None,
    batch: int | None = None,
    device: str = "auto",
    given: dict[str, str] | None = None,
    progress: bool = False,
    telling: Telling | None = None,
    first: int = 0,
    labels: DrawnLabels | None = None,
    keep: bool = False,
) -> tuple[Tree, Info]:
    """n samples on the CPU, those of numbers `first`, first + 1, ..., and what they took; without a seed they are fresh, of
    `info.seed`.  With `keep` those of earlier batches are kept where one stops (`sample_many`).

            return from_prior(first + place, count) | told
        noise = NoiseSource(seed, rows.to(where))
        return {"x": prior_in_gaps(denoiser, known.values(noise), known.fixed, noise), "first": first + place} | told
    """
    where, seed = device_of(device), seed_of(seed)
    denoiser = denoiser.to(where)
    _check_batch(batch)
    if calls is not None and calls < 1:
        raise ValueError(f"calls = {calls}: at least one is needed")
    plan = own_plan(denoiser, steps if calls is None else calls)
    if sampler is not None:
        _check_fits(sampler, denoiser.process)
        plan = Plan(sampler, default_steps(denoiser.process, sampler) if steps is None else steps)
    own, rest = ({}, given or {}) if telling is None else telling.split(given or {})
    known = KnownParts(format.given(rest) if rest else {}, labels)
    if known:
        held = _holding(plan.sampler, denoiser, known.leaves)
        plan = Plan(_without_idle_calls(held, denoiser.process, known.fixed), plan.steps)
    options: dict[str, Any] = {"sampler": plan.sampler, "seed": seed, "keep": keep}
    options |= {"calls": calls} if calls is not None else {"steps": plan.steps}

    def begin(place: int, count: int) -> dict[str, Any]:
        rows, told = torch.arange(first + place, first + place + count), {}
        if telling is not None:
            told = {"condition": moved(telling.condition(telling.states(rows, seed, own)), where)}
        if not known:
            return from_prior(first + place, count) | told
        noise = NoiseSource(seed, rows.to(where))
        return {"x": prior_in_gaps(denoiser, known.values(noise), known.fixed, noise), "first": first + place} | told

    quick = partial(compiled, denoiser.network) if isinstance(denoiser, Denoiser) else nullcontext
    x, info = sample_many(denoiser, n, batch, begin, progress, quick, **options)
    return (x if telling is None else telling.joined(x, seed, own, first)), info


def _check_batch(batch: int | None) -> None:
    if batch is not None and batch < 1:
        raise ValueError(f"batch = {batch}: at least one is needed")


def _holding(sampler: Sampler, denoiser: AnyDenoiser, known: list[str]) -> Sampler:
    """The same method with numbers that are known held in place; categories under masking hold themselves."""
    leaves = denoiser.process.leaves
    numbers = [name for name in known if not leaves[name].absorbing]
    if not numbers:
        return sampler
    if isinstance(sampler, Leaves | OneByOne | Particles):
        return sampler.holding(numbers)
    if not isinstance(sampler, OneStep):
        named = ", ".join(numbers)
        raise ValueError(
            f"{type(sampler).__name__} cannot hold numbers that are given ({named}): give categories, or leave it out"
        )
    return Leaves(sampler).holding(numbers)


def _without_idle_calls(sampler: Sampler, process: Process, fixed: AnyState) -> Sampler:
    """The same method without calls in which no row would reveal: as many as the row with the most gaps has."""
    if not isinstance(sampler, OneByOne):
        return sampler
    gaps = torch.zeros(1, dtype=torch.int64)
    for name, leaf in process.leaves.items():
        known = fixed.get(name) if leaf.absorbing else None
        open_in = masked_coordinates(leaf) if known is None else (~known).reshape(-1, leaf.space.dimension).sum(1)
        gaps = gaps + open_in
    return sampler.with_gaps(int(gaps.max()))


def fill(
    denoiser: AnyDenoiser,
    x: Tree,
    fixed: Tree,
    seed: int | None = None,
    steps: int | None = None,
    device: str = "auto",
    batch: int | None = None,
    rounds: int = ROUNDS,
    sampler: Sampler | None = None,
    numbers: Int[Tensor, "rows"] | None = None,
    told: Mapping[str, Tensor] | None = None,
) -> tuple[Tree, Info]:
    """Draw what is not known, given what is; `conditioning` says how.  A row's draw depends on seed, place and row alone;
    without a seed it is fresh, of `info.seed`.  `numbers` stand for the places, and `sampler` for the default method where
    all that is drawn is masked; `told` is the network's condition, an entry for each row.

    Where a code stands for the data, its states are known where the data are (`codes.Code.known`).

    Exactly where a masked leaf has gaps, and where leaves of numbers in a product are known or not as a whole: those stand
    at time 0, and rows that know the same of them are drawn together.  Else in more steps, of `rounds` calls each: by
    particles where few numbers are known, and by `Replacement` where many are, or categories.
    """
    where, process, seed = device_of(device), denoiser.process, seed_of(seed)
    denoiser = denoiser.to(where)
    _check_batch(batch)
    data, settled = x, fixed
    x, fixed = states_known(denoiser, x, fixed)
    plan = own_plan(denoiser, steps)
    if sampler is not None:
        _check_fits(sampler, process)
        if process.leaves or not process.absorbing:
            raise ValueError(
                f"--sampler {type(sampler).__name__}: only masked data is filled by another method: leave it out"
            )
        plan = Plan(sampler, default_steps(process) if steps is None else steps)
    infos, places, found = [Info(seed=seed)], [torch.zeros(0, dtype=torch.int64)], [some_rows(data, slice(0))]
    for pattern, rows in _patterns(process, fixed).items():
        approximate = FEW in pattern or PARTLY in pattern
        held = [name for name, kind in zip(process.leaves, pattern, strict=False) if kind == KNOWN]
        options: dict[str, Any] = {"steps": plan.steps, "seed": seed}
        if approximate:
            options["steps"] = steps or (common_steps(process.space.dimension) if process.leaves else 2 * plan.steps)
        elif process.leaves:
            method = _holding(plan.sampler, denoiser, held)
            options["sampler"] = _without_idle_calls(method, process, cast(AnyState, some_rows(fixed, rows)))
        else:
            options["sampler"] = plan.sampler

        def begin(first: int, count: int, rows=rows, pattern=pattern, approximate=approximate) -> dict[str, Any]:
            part = rows[torch.arange(first, first + count).clamp_max(len(rows) - 1)]
            mine: AnyState
            which: AnyState
            mine, which = (map_leaves(lambda v: v[part].to(where), tree) for tree in (x, fixed))
            keys = part if numbers is None else numbers[part]
            start = prior_in_gaps(denoiser, mine, which, NoiseSource(seed, keys.to(where)))
            begun: dict[str, Any] = {"x": start, "rows": keys}
            begun |= {"condition": {name: value[part].to(where) for name, value in told.items()}} if told else {}
            mine = mine if process.leaves else mine.to(start)
            return begun | ({"sampler": _approximate(process, mine, which, pattern, rounds)} if approximate else {})

        drawn, info = sample_many(denoiser, len(rows), batch, begin, **options)
        infos.append(info)
        places.append(rows)
        found.append(map_leaves(_where_open, some_rows(settled, rows), some_rows(data, rows), drawn))
    return put_rows(data, torch.cat(places), join(found)), joined(infos)


@torch.no_grad()
def states_known(denoiser: AnyDenoiser, x: Tree, fixed: Tree) -> tuple[Tree, Tree]:
    """What is noised, and which of it is known, where that stands for the data by a code; else the two as they are."""
    if denoiser.code is None:
        return x, fixed
    z, held = denoiser.code.known(map_leaves(lambda leaf: leaf.to(denoiser.device), x), fixed)
    return map_leaves(lambda leaf: leaf.cpu(), z), map_leaves(lambda leaf: leaf.cpu(), held)


def _where_open(known: Tensor, old: Tensor, new: Tensor) -> Tensor:
    return torch.where(known, old, new.cpu().to(old.dtype))


def conditioning(process: Process, fixed: AnyState, rounds: int = ROUNDS) -> dict[str, str]:
    """How `fill` draws the gaps of each leaf that has any (a process without leaves has one, ""): exactly or not."""
    labels: dict[str, str] = {}
    for pattern, rows in _patterns(process, fixed).items():
        leaves = fixed if isinstance(fixed, dict) else {"": fixed}
        for name, leaf in leaves.items():
            if not bool(leaf[rows].all()) and not labels.get(name, "").startswith("approximate"):
                labels[name] = _label(pattern, rounds)
    return labels


def _label(pattern: tuple[int, ...], rounds: int) -> str:
    if PARTLY in pattern:
        return f"approximate: replacement, {rounds} rounds a step"
    particles = "1 particle" if rounds == 1 else f"{rounds} particles"
    return f"approximate: {particles}" if FEW in pattern else "exact"


NOTHING, KNOWN, FEW, PARTLY, MASKED = range(5)  # of a leaf that is not masked: how much of it is known
WEIGHED = 16  # more numbers than these are not followed by few particles


def _patterns(process: Process, fixed: AnyState) -> dict[tuple[int, ...], Tensor]:
    """Rows with gaps by what they know of each leaf."""
    tree = fixed if isinstance(fixed, dict) else {"": fixed}
    columns, full = [], []
    for name, leaf in named_leaves(process).items():
        if leaf.leaves:
            raise ValueError(f"gaps are not filled in products within products, and leaf {name!r} is one")
        known = tree[name].reshape(batch_size(fixed), -1)
        partly = torch.where(known.sum(1) <= _followed(process), FEW, PARTLY)
        some = torch.where(known.any(1), partly, NOTHING)
        full.append(known.all(1))
        columns.append(torch.full_like(some, MASKED) if leaf.absorbing else torch.where(full[-1], KNOWN, some))
    kinds, open_rows = torch.stack(columns, 1), (~torch.stack(full, 1).all(1)).nonzero().squeeze(1)
    patterns, which = kinds[open_rows].unique(dim=0, return_inverse=True)
    return {tuple(pattern): open_rows[which == i] for i, pattern in enumerate(patterns.tolist())}


def _followed(process: Process) -> int:
    """How many known numbers particles follow better than rounds of replacement do, at as many calls."""
    return WEIGHED if process.has_density and not process.leaves and Particles().refuse(process) is None else 0


def _approximate(process: Process, x: AnyState, fixed: AnyState, pattern: tuple[int, ...], rounds: int) -> Sampler:
    """Few numbers by particles.  Else every leaf by replacement, for they share the rounds; but those that are known stand
    at time 0.
    """
    if FEW in pattern:
        return Particles(rounds, known=(x, fixed))
    if not process.leaves:
        return Replacement(x, fixed, rounds)
    steps = {
        name: Frozen() if kind == KNOWN else Replacement(x[name], fixed[name], rounds)
        for name, kind in zip(process.leaves, pattern, strict=True)
    }
    return Leaves(**steps)


def prior_in_gaps(denoiser: AnyDenoiser, x: AnyState, fixed: AnyState, noise: NoiseSource) -> Tree:
    """Where drawing starts: what is known, and the prior elsewhere; leaves that are not named are all prior."""
    prior: AnyState = denoiser.process.prior(len(noise.rows), denoiser.dtype, noise.rows.device).draw(noise.at("prior"))

    def put(values: Tensor, known: Tensor, otherwise: Tensor) -> Tensor:
        return torch.where(known.to(otherwise.device), values.to(otherwise), otherwise)

    if isinstance(prior, dict):
        return {name: put(x[name], fixed[name], leaf) if name in x else leaf for name, leaf in prior.items()}
    return put(x, fixed, prior)
