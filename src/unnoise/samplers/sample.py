"""`un.sample`: draw from a model."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from unnoise.denoiser import AnyDenoiser, base_process
from unnoise.noise import NoiseSource
from unnoise.predictions.kinds import every_kind
from unnoise.processes import Chain, Gaussian, Process
from unnoise.samplers import grids
from unnoise.samplers.adaptive import AdaptiveODE
from unnoise.samplers.base import Ancestral, Info, Problem, Sampler
from unnoise.shapes import Float, Int, Tree
from unnoise.tree import batch_size, first_leaf, map_leaves

Callback = Callable[[int, float, Tree], None]


def grid_of(
    denoiser: AnyDenoiser,
    steps: int | None,
    grid: grids.TimeGrid | Tensor | list[float] | None,
    start: float,
    end: float | None,
) -> Float[Tensor, "times"]:
    """The falling times of a run: as given, a chain's own, or `steps` of them between start and end."""
    chain = denoiser.process if isinstance(denoiser.process, Chain) else None
    grid = grid.values if isinstance(grid, grids.GivenTimes) else grid
    own_ends = grid is not None and not isinstance(grid, grids.TimeGrid)
    if (own_ends or chain is not None) and (start != 1.0 or end is not None):
        whose = "the grid" if own_ends else "the chain"
        raise ValueError(f"start = {start:g}, end = {end}, but {whose} has its own ends: pass the times as grid=[...]")
    if grid is not None and not isinstance(grid, grids.TimeGrid):
        if steps is not None and steps != len(grid) - 1:
            raise ValueError(f"steps = {steps}, but the grid has {len(grid) - 1}: pass one of the two")
        times = grids.checked(torch.as_tensor(grid, dtype=torch.float64))
        if chain is not None:
            positions = chain.index(times).flip(0)
            if not torch.equal(positions, torch.arange(int(positions[0]), int(positions[0]) + len(times))):
                _refuse_tied(denoiser, len(times) - 1)
        return times
    if steps is not None and steps < 1:
        raise ValueError(f"steps = {steps}: at least one is needed")
    if chain is not None:
        if grid is not None:
            raise ValueError("a chain has its own grid: pass `steps` for an even sub-grid of it, or some of its times")
        own = chain.grid.flip(0)
        if steps is None or steps == chain.steps:
            return own
        if steps > chain.steps:
            raise ValueError(f"steps = {steps}, but the chain has {chain.steps}: a sub-grid has fewer")
        _refuse_tied(denoiser, steps)
        return own[torch.linspace(0, chain.steps, steps + 1, dtype=torch.float64).round().long()]
    process = base_process(denoiser.process)
    low = 0.0 if end is None else end
    if not 0 <= low < start <= 1:
        raise ValueError(f"start = {start:g}, end = {low:g}: sampling runs from noise to data, 0 <= end < start <= 1")
    rule = grid or grids.Even()
    return grids.checked(rule.times(process, 128 if steps is None else steps, start, low))


def _refuse_tied(denoiser: AnyDenoiser, steps: int) -> None:
    """A kind that speaks of one step of the chain has nothing to say of a longer one."""

    names = [kind.__name__ for kind in every_kind(denoiser.kinds) if kind.tied_to_grid]
    if names:
        raise ValueError(
            f"a {names[0]} prediction belongs to the chain's own steps, and this grid of {steps} leaves some out: "
            f"run every step, or predict another kind"
        )


def refused(sampler: Sampler, process: Process) -> None:
    why = sampler.refuse(process)
    if why:
        raise TypeError(why)


def _moved(x: Tree, dtype: torch.dtype | None, device: torch.device | str | None) -> Tree:
    """Given states, as they are but for what was asked: another device, another precision of the numbers."""
    return map_leaves(lambda v: v.to(device=device, dtype=dtype if v.dtype.is_floating_point else None), x)


def steps_within(budget: int, sampler: Sampler, denoiser: AnyDenoiser) -> int:
    """The most steps that a run can take with this many network calls."""
    process = base_process(denoiser.process)
    needed = sampler.calls(1, process)
    if needed is None:
        raise ValueError(f"calls = {budget}, but {type(sampler).__name__} does not know its calls beforehand: pass steps")
    if budget < needed:
        raise ValueError(f"calls = {budget}, but {type(sampler).__name__} needs {needed} for a single step")
    most = denoiser.process.steps if isinstance(denoiser.process, Chain) else budget
    return next(n for n in range(min(budget, most), 0, -1) if (sampler.calls(n, process) or 0) <= budget)


def chosen(sampler: Sampler | None, tolerance: float | None, process: Process) -> Sampler:
    """The method asked for; a tolerance asks for adaptive steps."""
    if tolerance is None:
        return sampler or Ancestral()
    if sampler is not None:
        raise ValueError(
            f"tolerance = {tolerance:g} chooses AdaptiveODE(): leave out {type(sampler).__name__}, or pass its steps"
        )
    if not isinstance(process, Gaussian):
        raise ValueError(
            f"tolerance = {tolerance:g} is for numbers, whose probability flow has adaptive steps; on "
            f"{type(process).__name__} pass steps, a budget of calls, or a method that is exact"
        )
    return AdaptiveODE(rtol=tolerance, atol=tolerance)


@torch.no_grad()
def sample(
    denoiser: AnyDenoiser,
    n: int | None = None,
    steps: int | None = None,
    sampler: Sampler | None = None,
    grid: grids.TimeGrid | Tensor | list[float] | None = None,
    seed: int = 0,
    *,
    calls: int | None = None,
    tolerance: float | None = None,
    start: float = 1.0,
    end: float | None = None,
    x: Tree | None = None,
    first: int = 0,
    rows: Int[Tensor, "rows"] | None = None,
    trajectory: bool = False,
    callback: Callback | None = None,
    progress: bool = False,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
    **condition: Any,
) -> tuple[Tree, Info]:
    """Draw n samples; returns them with a record of the run.

    Sample i is a function of (seed, first + i) alone, or of (seed, rows[i]), whatever the batch.  `x`
    starts from given states, not the prior, where and in which precision they are.
    How finely: `steps`, or `calls`, the most network calls, or on numbers a `tolerance`, by which steps are chosen for each
    sample by itself.  `grid` is a rule of `samplers.grids`, or falling times.  `callback(i, t, x)` is called after each
    step.
    """
    process = denoiser.process
    given = {"steps": steps, "calls": calls, "tolerance": tolerance}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ValueError(f"{' and '.join(named)} are two ways to say how finely to sample: pass one")
    sampler = chosen(sampler, tolerance, base_process(process))
    refused(sampler, base_process(process))
    if calls is not None:
        steps = steps_within(calls, sampler, denoiser)
    elif steps is None and grid is None and isinstance(sampler, AdaptiveODE):
        steps = 1  # its own steps are inside
    if (n is None) == (x is None):
        raise ValueError("pass n, how many samples to draw, or x, the states to start from")
    if n is not None and n < 0:
        raise ValueError(f"n = {n} must not be negative")
    times = grid_of(denoiser, steps, grid, start, end)
    if x is not None:
        x = _moved(process.state_space.check(x, "x"), dtype, device)
        device = first_leaf(x).device
    else:
        dtype, device = dtype or denoiser.dtype, denoiser.device if device is None else torch.device(device)
    count = batch_size(x) if n is None else n
    if rows is None:
        rows = torch.arange(first, first + count, device=device)
    elif len(rows) != count or first:
        raise ValueError(f"rows has {len(rows)} numbers and first = {first}: pass one number for each of {count} samples")
    noise = NoiseSource(seed, rows, device)
    if x is None:
        x = process.prior(count, dtype, device).draw(noise.at("prior"))
    problem = Problem(denoiser, times, noise, condition)
    if count == 0:
        problem.info.trajectory = [x] * len(times) if trajectory else None
        return x, problem.info
    states = [x]
    with tqdm(total=problem.steps, desc="sampling", disable=not progress, leave=False) as bar:

        def after(i: int, x: Tree) -> None:
            if trajectory:
                states.append(x)
            if callback is not None:
                callback(i, float(times[i + 1]), x)
            bar.update()

        x = sampler.run(problem, x, after)
    problem.info.trajectory = states if trajectory else None
    return x, problem.info
