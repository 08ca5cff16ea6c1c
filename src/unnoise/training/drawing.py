"""Samples of a trained run: in batches, on the device there is, given what is known."""

from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from unnoise import samplers
from unnoise.data.base import Format
from unnoise.denoiser import Denoiser
from unnoise.noise import Noise
from unnoise.processes import Product
from unnoise.samplers import Frozen, Info, Leaves, OneStep, Sampler, sample
from unnoise.shapes import Tree
from unnoise.spaces import map_leaves
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
        plan = Drawing(_holding(plan.sampler, denoiser, known), plan.steps)
    total, parts = Info(), []
    for first in tqdm(range(0, n, batch), unit="batch", disable=not progress or n <= batch, leave=False):
        count = min(batch, n - first)
        options: dict[str, Any] = {"sampler": plan.sampler, "seed": seed, "first": first}
        options |= {"calls": calls} if calls is not None else {"steps": plan.steps}
        if known:
            options["x"] = started(denoiser, known, Noise(seed, torch.arange(first, first + count, device=where)))
        else:
            options |= {"n": count, "device": where}
        x, info = sample(denoiser, **options)
        total.calls, total.rows = total.calls + info.calls, total.rows + info.rows
        parts.append(map_leaves(Tensor.cpu, x))
    return joined(parts), total


def started(denoiser: Denoiser, known: dict[str, tuple[Tensor, Tensor]], noise: Noise) -> Tree:
    """The prior, with what is known in its place."""
    dtype = next(p.dtype for p in denoiser.network.parameters() if p.dtype.is_floating_point)
    x = denoiser.process.prior(len(noise.rows), dtype, noise.rows.device).draw(noise.at("prior"))
    for leaf, (values, fixed) in known.items():
        x[leaf] = torch.where(fixed.to(noise.rows.device), values.to(x[leaf]), x[leaf])
    return x


def _holding(sampler: Sampler, denoiser: Denoiser, known: dict[str, tuple[Tensor, Tensor]]) -> Sampler:
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
