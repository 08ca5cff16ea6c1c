"""Samples of a trained run: in batches, on the device there is, given what is known."""

from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from unnoise import samplers
from unnoise.data.base import Format
from unnoise.denoiser import Denoiser
from unnoise.noise import Noise
from unnoise.processes import Gaussian, Masking, Product
from unnoise.samplers import Frozen, Info, Leaves, OneStep, Sampler, sample
from unnoise.shapes import Tree
from unnoise.spaces import batch_size, map_leaves
from unnoise.training.recipes import Drawing, drawing


def method_named(name: str) -> Sampler:
    """A sampler by its name, from those that need no argument."""
    found = getattr(samplers, name, None)
    if not (isinstance(found, type) and issubclass(found, Sampler)):
        known = [
            n
            for n in samplers.__all__
            if isinstance(getattr(samplers, n), type) and issubclass(getattr(samplers, n), Sampler)
        ]
        raise ValueError(f"there is no sampler {name!r}: choose from {', '.join(known)}")
    try:
        return found()
    except TypeError as error:
        raise ValueError(f"the sampler {name} needs arguments ({error}): use it from Python") from error


def joined(parts: list[Tree]) -> Tree:
    first = parts[0]
    if isinstance(first, dict):
        return {name: joined([part[name] for part in parts]) for name in first}
    return torch.cat(parts)


def device_of(name: str) -> torch.device:
    if name not in ("auto", "cpu", "cuda"):
        raise ValueError(f"device = {name!r}: choose auto, cpu or cuda")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def draw(
    denoiser: Denoiser,
    format: Format,
    n: int,
    sampler: Sampler | None = None,
    steps: int | None = None,
    calls: int | None = None,
    seed: int = 0,
    batch: int = 1024,
    device: str = "auto",
    given: dict[str, str] | None = None,
    progress: bool = False,
) -> tuple[Tree, Info]:
    """n samples on the CPU, and what they took."""
    where = device_of(device)
    denoiser = denoiser.to(where)
    plan = drawing(denoiser.process, steps)
    if sampler is not None:
        plan = Drawing(sampler, steps or plan.steps)
    known = format.given(given) if given else {}  # type: ignore[attr-defined]
    if known:
        plan = Drawing(_holding(plan.sampler, denoiser, list(known)), plan.steps)
    total, parts = Info(), []
    for first in tqdm(range(0, n, batch), unit="batch", disable=not progress or n <= batch, leave=False):
        count = min(batch, n - first)
        options: dict[str, Any] = {"sampler": plan.sampler, "seed": seed, "first": first}
        options |= {"calls": calls} if calls is not None else {"steps": plan.steps}
        if known:
            values, fixed = ({leaf: pair[i] for leaf, pair in known.items()} for i in (0, 1))
            options["x"] = _begun(denoiser, values, fixed, Noise(seed, torch.arange(first, first + count, device=where)))
        else:
            options |= {"n": count, "device": where}
        x, info = sample(denoiser, **options)
        total.calls, total.rows = total.calls + info.calls, total.rows + info.rows
        parts.append(map_leaves(Tensor.cpu, x))
    return joined(parts), total


def _holding(sampler: Sampler, denoiser: Denoiser, known: list[str]) -> Sampler:
    """The same method with numbers that are known held in place; categories under masking hold themselves."""
    process = denoiser.process
    assert isinstance(process, Product)
    numbers = [name for name in known if name != "categories"]
    if isinstance(sampler, Leaves):
        methods: dict[str, OneStep] = {name: sampler.method(name) for name in process.names}
    else:
        if not isinstance(sampler, OneStep):
            raise ValueError(f"{type(sampler).__name__} cannot hold a column: leave --sampler out")
        methods = dict.fromkeys(process.names, sampler)
    return Leaves(**{**methods, **{name: Frozen() for name in numbers}})


def fill(
    denoiser: Denoiser,
    x: Tree,
    fixed: Tree,
    seed: int = 0,
    steps: int | None = None,
    device: str = "auto",
    batch: int = 1024,
) -> tuple[Tree, Info]:
    """Draw what is not known, given what is: exactly, for masked leaves and for leaves of numbers at time 0.

    Rows of a product that know the same leaves of numbers are drawn together.
    """
    where, process = device_of(device), denoiser.process
    denoiser = denoiser.to(where)
    if isinstance(process, Masking):
        groups: dict[tuple[str, ...], Tensor] = {(): torch.arange(len(x))}
    elif isinstance(process, Product):
        groups = _patterns(process, fixed)
    else:
        raise ValueError(f"gaps are filled in masked data and in tables, and {type(process).__name__} is neither")
    out, total = map_leaves(Tensor.clone, x), Info()
    for known, rows in groups.items():
        for part in rows.split(batch):
            source = Noise(seed, part.to(where))
            mine, which = (map_leaves(lambda v, part=part: v[part].to(where), tree) for tree in (x, fixed))
            start = _begun(denoiser, mine, which, source)
            plan = drawing(process, steps)
            sampler = plan.sampler
            if isinstance(process, Product):
                sampler = _holding(sampler, denoiser, list(known))
            drawn, info = sample(denoiser, x=start, steps=plan.steps, sampler=sampler, seed=seed, first=int(part[0]))
            total.calls, total.rows = total.calls + info.calls, total.rows + info.rows
            _put(out, part, map_leaves(Tensor.cpu, drawn))
    return out, total


def _patterns(process: Product, fixed: Tree) -> dict[tuple[str, ...], Tensor]:
    """Rows by the leaves of numbers that they know."""
    numbers = [name for name, leaf in process.leaves.items() if isinstance(leaf, Gaussian)]
    if not numbers:
        return {(): torch.arange(batch_size(fixed))}
    known = torch.stack([fixed[name].flatten(1).all(1) for name in numbers], 1)
    patterns, which = known.unique(dim=0, return_inverse=True)
    named = [tuple(name for name, here in zip(numbers, row, strict=True) if here) for row in patterns.tolist()]
    return {name: (which == i).nonzero().squeeze(1) for i, name in enumerate(named)}


def _begun(denoiser: Denoiser, x: Tree, fixed: Tree, noise: Noise) -> Tree:
    """The prior where nothing is known; leaves that are not named are all prior."""
    dtype = next(p.dtype for p in denoiser.network.parameters() if p.dtype.is_floating_point)
    prior = denoiser.process.prior(len(noise.rows), dtype, noise.rows.device).draw(noise.at("prior"))

    def put(values: Tensor, known: Tensor, otherwise: Tensor) -> Tensor:
        return torch.where(known.to(otherwise.device), values.to(otherwise), otherwise)

    if isinstance(prior, dict):
        return {name: put(x[name], fixed[name], leaf) if name in x else leaf for name, leaf in prior.items()}
    return put(x, fixed, prior)


def _put(out: Tree, rows: Tensor, x: Tree) -> None:
    if isinstance(out, dict):
        for name in out:
            _put(out[name], rows, x[name])
    else:
        out[rows] = x.to(out.dtype)
