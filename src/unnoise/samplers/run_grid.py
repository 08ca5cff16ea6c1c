"""The times of a run: from steps, a budget of calls, a rule or times of one's own; and on a chain from its grid."""

from typing import Any, cast

import torch
from torch import Tensor

from unnoise.checks import whole
from unnoise.denoiser import AnyDenoiser
from unnoise.processes import Chain, Process
from unnoise.samplers import grids
from unnoise.samplers.base import Sampler
from unnoise.samplers.defaults import default_steps
from unnoise.samplers.finish import may_finish
from unnoise.shapes import Float

Grid = grids.TimeGrid | Tensor | list[float] | None


def grid_of(
    denoiser: AnyDenoiser,
    steps: int | None,
    grid: Grid,
    start: float | Tensor | None,
    end: float | None,
    sampler: Sampler | None = None,
) -> Float[Tensor, "times"]:
    """The falling times of a run: as given, a chain's own, or `steps` of them between start and end.

    Unless told, a run starts at 1; and a little before, where the method or what the denoiser predicts has no use of a time
    at which alpha = 0 (`latest` of either): states there have the prior's law but for what little of x_0 is left.  Rows that
    start at times of their own (`start` a tensor) share a grid from the highest of them, or the one given.
    """
    start = checked_start(start)
    grid = grid.values if isinstance(grid, grids.GivenTimes) else grid
    rule = grid if isinstance(grid, grids.TimeGrid) else None
    times = None if grid is None or rule is not None else torch.as_tensor(grid, dtype=torch.float64)
    chain = cast(Chain, denoiser.process) if denoiser.process.grid is not None else None
    if times is not None or chain is not None:
        _refuse_ends("the grid" if times is not None else "the chain", start, end)
    steps = None if steps is None else whole(steps, "steps")
    if times is not None:
        return _given(denoiser, chain, steps, times)
    if chain is not None:
        return _chains_own(denoiser, chain, steps, rule)
    if start is None:
        start = min(denoiser.latest, 1.0 if sampler is None else sampler.latest(denoiser.process.base))
    high = float(start.max()) if isinstance(start, Tensor) and start.numel() else 1.0 if isinstance(start, Tensor) else start
    low = denoiser.end if end is None else end
    if not 0 <= low < high <= 1:
        raise ValueError(f"start = {high:g}, end = {low:g}: sampling runs from noise to data, 0 <= end < start <= 1")
    count = default_steps(denoiser.process, sampler) if steps is None else steps
    return grids.checked((rule or grids.Even()).times(denoiser.process.base, count, high, low))


def checked_start(start: Any) -> float | Tensor | None:
    """One time for all rows, or a tensor with one for each; None: as late as may be."""
    if start is None or isinstance(start, Tensor) and start.ndim:
        return start
    try:
        return float(start)
    except (TypeError, ValueError):
        raise TypeError(f"start = {start!r}: pass a number, or a tensor with one time per row") from None


def on_grid(process: Process, starts: Float[Tensor, "rows"]) -> None:
    """A row enters a chain at one of its times, and at no other."""
    if process.grid is not None:
        cast(Chain, process).index(starts)


def _refuse_ends(whose: str, start: float | Tensor | None, end: float | None) -> None:
    """A grid that has its own ends is given no others; rows may still enter it at times of their own."""
    if end is not None or not isinstance(start, Tensor) and start not in (None, 1.0):
        first = "one per row" if isinstance(start, Tensor) else str(start)
        raise ValueError(f"start = {first}, end = {end}, but {whose} has its own ends: pass the times as grid=[...]")


def _given(denoiser: AnyDenoiser, chain: Chain | None, steps: int | None, times: Tensor) -> Float[Tensor, "times"]:
    if steps is not None and steps != len(times) - 1:
        raise ValueError(f"steps = {steps}, but the grid has {len(times) - 1}: pass one of the two")
    times = grids.checked(times)
    if chain is not None:
        positions = chain.index(times).flip(0)
        if not torch.equal(positions, torch.arange(int(positions[0]), int(positions[0]) + len(times))):
            _refuse_tied(denoiser, len(times) - 1)
    return times


def _chains_own(
    denoiser: AnyDenoiser, chain: Chain, steps: int | None, rule: grids.TimeGrid | None
) -> Float[Tensor, "times"]:
    if rule is not None:
        raise ValueError("a chain has its own grid: pass `steps` for an even sub-grid of it, or some of its times")
    own = chain.grid.flip(0)
    if steps is None or steps == chain.steps:
        return own
    if steps > chain.steps:
        raise ValueError(f"steps = {steps}, but the chain has {chain.steps}: a sub-grid has fewer")
    _refuse_tied(denoiser, steps)
    return own[torch.linspace(0, chain.steps, steps + 1, dtype=torch.float64).round().long()]


def _refuse_tied(denoiser: AnyDenoiser, steps: int) -> None:
    """A kind that speaks of one step of the chain has nothing to say of a longer one."""

    def tied(kinds: Any) -> list[str]:
        if isinstance(kinds, dict):
            return [name for part in kinds.values() for name in tied(part)]
        return [kinds.__name__] if kinds is not None and kinds.tied_to_grid else []

    names = tied(denoiser.kinds)
    if names:
        raise ValueError(
            f"a {names[0]} prediction belongs to the chain's own steps, and this grid of {steps} leaves some out: "
            f"run every step, or predict another kind"
        )


def steps_within(budget: int, sampler: Sampler, denoiser: AnyDenoiser) -> int:
    """The most steps that a run can take with this many evaluations of the network."""
    process, name = denoiser.process, type(sampler).__name__

    def needed(steps: int) -> int | None:
        calls = sampler.calls(steps, process.base)
        return None if calls is None else (calls + may_finish(sampler, denoiser)) * denoiser.passes

    least = needed(1)
    if least is None:
        raise ValueError(f"calls = {budget}, but {name} does not know its calls beforehand: pass steps")
    if budget < least:
        raise ValueError(f"calls = {budget}, but {name} needs {least} for a single step")
    most = budget if process.grid is None else min(budget, len(process.grid) - 1)
    return next(n for n in range(most, 0, -1) if (needed(n) or 0) <= budget)
