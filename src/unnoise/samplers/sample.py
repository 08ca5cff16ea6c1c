"""`un.sample`: draw from a model."""

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor
from tqdm import tqdm

from unnoise.checks import instance_of, whole
from unnoise.conditions import Condition, checked
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.processes import Process
from unnoise.samplers import grids
from unnoise.samplers.adaptive import AdaptiveODE, no_flow
from unnoise.samplers.base import Sampler, Stepping
from unnoise.samplers.defaults import own_plan
from unnoise.samplers.finish import cleaned, finished, read_off
from unnoise.samplers.parts import in_parts
from unnoise.samplers.problem import Info, Problem
from unnoise.samplers.run_grid import Grid, grid_of, on_grid, steps_within
from unnoise.samplers.starts import check_start, checked_starts, staggered
from unnoise.samplers.state import State, StopSampling, Told, lengths
from unnoise.shapes import AnyState, Int, Tree
from unnoise.tree import batch_size, first_leaf, map_leaves

Callback = Callable[[int, float, State], State | None]


def seed_of(seed: int | None) -> int:
    """The seed itself; None is a fresh one, from torch's global generator."""
    return int(torch.randint(2**62, ())) if seed is None else int(seed)


def refused(sampler: Any, process: Process) -> None:
    if not isinstance(sampler, Sampler):
        raise TypeError(f"sampler = {sampler!r} is no method: pass one, such as un.samplers.DDIM()")
    why = sampler.refuse(process)
    if why:
        raise TypeError(why)


def _moved(x: Tree, dtype: torch.dtype | None, device: torch.device | str | None) -> Tree:
    """Given states, as they are but for what was asked: another device, another precision of the numbers."""
    return map_leaves(lambda v: v.to(device=device, dtype=dtype if v.dtype.is_floating_point else None), x)


def chosen(
    denoiser: AnyDenoiser, steps: int | None, sampler: Sampler | None, grid: Grid, calls: int | None, tolerance: float | None
) -> tuple[Sampler, int | None]:
    """The method and its number of steps (None: as the grid says), as asked for or the process's own."""
    process = denoiser.process
    given = {"steps": steps, "calls": calls, "tolerance": tolerance}
    named = [name for name, value in given.items() if value is not None]
    if len(named) > 1:
        raise ValueError(f"{' and '.join(named)} are two ways to say how finely to sample: pass one")
    if tolerance is not None:
        sampler = _adaptive(tolerance, sampler, process.base)
    if sampler is None:
        plan = own_plan(denoiser, _wanted(denoiser, steps, grid, calls))
        sampler, steps = plan.sampler, plan.steps if grid is None and calls is None else steps
    refused(instance_of(sampler, Sampler, "sampler", "un.samplers.DDIM()"), process.base)
    if calls is not None:
        steps = steps_within(calls, sampler, denoiser)
    elif steps is None and grid is None and isinstance(sampler, AdaptiveODE):
        steps = 1  # its own steps are inside
    return sampler, steps


def _wanted(denoiser: AnyDenoiser, steps: int | None, grid: Grid, calls: int | None) -> int | None:
    """How many steps the default method should be good for; None: as many as it likes."""
    if calls is not None:
        return max(1, calls // denoiser.passes)
    if grid is None or isinstance(grid, grids.TimeGrid) and not isinstance(grid, grids.GivenTimes):
        return steps
    return len(grid.values if isinstance(grid, grids.GivenTimes) else grid) - 1


def _adaptive(tolerance: float, sampler: Sampler | None, process: Process) -> Sampler:
    """A tolerance asks for adaptive steps."""
    if sampler is not None:
        raise ValueError(
            f"tolerance = {tolerance:g} chooses AdaptiveODE(): leave out {type(sampler).__name__}, or pass its steps"
        )
    if process.leaves or no_flow(process, "AdaptiveODE"):
        raise ValueError(
            f"tolerance = {tolerance:g} is for numbers, whose probability flow has adaptive steps; on "
            f"{type(process).__name__} pass steps, a budget of calls, or a method that is exact"
        )
    return AdaptiveODE(rtol=tolerance, atol=tolerance)


def row_numbers(rows: Any, first: int, count: int, device: torch.device | str) -> Int[Tensor, "rows"]:
    """Which samples these are."""
    if rows is None:
        return torch.arange(first, first + count, device=device)
    rows = torch.as_tensor(rows)
    if rows.dtype.is_floating_point:
        raise TypeError(f"rows has dtype {rows.dtype}, but samples are numbered by whole numbers: pass rows.long()")
    if len(rows) != count or first:
        raise ValueError(f"rows has {len(rows)} numbers and first = {first}: pass one number for each of {count} samples")
    return rows


def gone_on(new: Any, state: State, sampler: Sampler, process: Process) -> State:
    """What a callback wants the run to go on from, if it can."""
    if not isinstance(sampler, Stepping):
        raise TypeError(state.why if isinstance(state, Told) else sampler.told(state.x).why)
    if not isinstance(new, State):
        raise TypeError(
            f"the callback returned a {type(new).__name__}: return None to go on, or a state, such as "
            f"dataclasses.replace(state, x=...) or state.rows(index)"
        )
    process.state_space.check(new.x, "x")
    if batch_size(new.x) != batch_size(state.x):
        raise ValueError(
            f"the callback returned {batch_size(new.x)} rows, but the run has {batch_size(state.x)}: as many go on as there "
            f"are; run others by themselves, un.sample(x=...)"
        )
    if not isinstance(state, Told):
        _check_memory(new, state)
    return new


def _check_memory(new: State, state: State) -> None:
    """What a method remembers goes on with the rows that it belongs to."""
    if type(new.memory) is not type(state.memory):
        raise TypeError(
            f"the callback returned a state that remembers {type(new.memory).__name__}, but the method goes on from "
            f"{type(state.memory).__name__}: return dataclasses.replace(state, x=...) or state.rows(index)"
        )
    rows, kept = batch_size(new.x), lengths(new.memory)
    if kept - {rows}:
        raise ValueError(
            f"the callback returned {rows} rows with a memory of {sorted(kept)}: exchange both together, state.rows(index)"
        )


def sample(
    denoiser: AnyDenoiser,
    n: int | None = None,
    steps: int | None = None,
    sampler: Sampler | None = None,
    grid: Grid = None,
    seed: int | None = None,
    *,
    calls: int | None = None,
    tolerance: float | None = None,
    start: float | Tensor | None = None,
    end: float | None = None,
    x: Tree | None = None,
    condition: Condition | None = None,
    first: int = 0,
    rows: Int[Tensor, "rows"] | None = None,
    trajectory: bool = False,
    callback: Callback | None = None,
    progress: bool = False,
    grad: bool = False,
    finish: bool = True,
    denoise: bool = False,
    decode: bool = True,
    dtype: torch.dtype | None = None,
    device: torch.device | str | None = None,
) -> tuple[AnyState, Info]:
    """Draw n samples; returns them with a record of the run.

    Without a sampler the process's own method is used (`samplers.default_sampler`).  Sample i is a function of
    (seed, first + i) alone, or of (seed, rows[i]), whatever the batch; without a seed each run has a fresh one, `info.seed`.
    `x` starts from given states, not the prior, where and in which precision they are; `start` is the time they stand at,
    one for all or one per row (`samplers.starts`).  Without x the prior stands in for the law at `start`, which it is at
    t = 1 alone: started elsewhere, the samples have another law than the model's.

    `condition` is what the network is told (`unnoise.conditions`).

    How finely: `steps`, or `calls`, the most evaluations of the network, or on numbers a `tolerance`, by which steps are
    chosen for each sample by itself.  `grid` is a rule of `samplers.grids`, or falling times.

    `callback(i, t, state)` is called after each step, when time t is reached.  It may return a state to go on from: edited,
    dataclasses.replace(state, x=...), or with rows exchanged, state.rows(index); raising `StopSampling` ends the run there.

    Samples are data: what is without a value at t = 0, masked, is drawn in one more call (`samplers.finish`); `finish=False`
    leaves it as it is.  With `denoise=True` numbers whose schedule ends at sigma > 0 take EDM's last step, to sigma = 0.
    Where a code stands for the data, they are drawn given its last states; `decode=False` returns the states.

    With `grad=True` the run can be differentiated, by x, the condition and the network's weights.

    Where memory runs out, rows are drawn in halves (`samplers.parts`), unless the run is watched or differentiated.
    """
    sampler, steps = chosen(denoiser, steps, sampler, grid, calls, tolerance)
    check_start(start, x is not None)
    if grad and not sampler.differentiable:
        raise ValueError(f"grad = True, but {type(sampler).__name__} looks at values as it goes: use DDIM or DPMSolverPP")
    with nullcontext() if grad else torch.no_grad():
        times = grid_of(denoiser, steps, grid, start, end, sampler)
        x, problem = _begun(denoiser, n, x, times, seed, first, rows, dtype, device)
        problem.condition = checked(condition, batch_size(x))
        starts = None
        if isinstance(start, Tensor) and start.ndim:
            starts = checked_starts(start, problem.times, batch_size(x))
            on_grid(denoiser.process, starts)
        if batch_size(x) == 0:
            problem.info.trajectory = [x] * len(problem.times) if trajectory else None
            return x, problem.info

        def run(part: Problem, states: Tree, own: Tensor | None) -> tuple[Tree, Info]:
            states, info = _run(sampler, part, states, own, trajectory, callback, progress)
            if finish and info.stopped is None:
                states = finished(sampler, part, states, own)
                states = cleaned(part, states) if denoise else states
                if info.trajectory is not None:
                    info.trajectory[-1] = states
                states = read_off(part, states) if decode else states
            return states, info

        watched = grad or trajectory or progress or callback is not None
        return run(problem, x, starts) if watched else in_parts(run, problem, x, starts)


def _begun(
    denoiser: AnyDenoiser,
    n: int | None,
    x: Tree | None,
    times: Tensor,
    seed: int | None,
    first: int,
    rows: Tensor | None,
    dtype: torch.dtype | None,
    device: torch.device | str | None,
) -> tuple[Tree, Problem]:
    """The first states: as given, or drawn from the prior."""
    process = denoiser.process
    if (n is None) == (x is None):
        raise ValueError("pass n, how many samples to draw, or x, the states to start from")
    if n is not None:
        n = whole(n, "n", least=0)
    if x is not None:
        x = _moved(process.state_space.check(x, "x"), dtype, device)
        where = first_leaf(x).device
    else:
        dtype, where = dtype or denoiser.dtype, torch.device(device) if device is not None else denoiser.device
    count = batch_size(x) if n is None else n  # type: ignore[arg-type]
    key = seed_of(seed)
    noise = NoiseSource(key, row_numbers(rows, first, count, where), where)
    problem = Problem(denoiser, times, noise, {}, info=Info(times=times, seed=key))
    problem.given = x is not None
    if x is None:
        x = process.prior(count, dtype, where).draw(noise.at("prior"))
    return x, problem


def _run(
    sampler: Sampler,
    problem: Problem,
    x: Tree,
    starts: Tensor | None,
    trajectory: bool,
    callback: Callback | None,
    progress: bool,
) -> tuple[Tree, Info]:
    """The loop, with what is wanted of it on its way."""
    info, states, times = problem.info, [x], problem.times.tolist()
    with tqdm(total=problem.steps, desc="sampling", disable=not progress, leave=False) as bar:

        def after(i: int, state: State) -> State | None:
            if not trajectory:
                states.clear()
            states.append(state.x)
            bar.update()
            try:
                new = None if callback is None else callback(i, times[i + 1], state)
            except StopSampling:
                info.stopped = times[i + 1]
                raise
            if new is not None:
                new = gone_on(new, state, sampler, problem.process)
                states[-1] = new.x
            return new

        try:
            if starts is None or bool((starts == problem.times[0]).all()):
                x = sampler.run(problem, x, after)
            else:
                x = staggered(sampler, problem, x, starts, after)
        except StopSampling:
            x = states[-1]
    info.trajectory = states if trajectory else None
    return x, info
