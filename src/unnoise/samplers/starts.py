"""Rows that start at times of their own.

All rows share one grid.  A row that starts at s enters it there: it stays as it is while others come down from higher times,
steps from s to the first time of the grid below s, and from then on goes with the grid.  So it is drawn as a run of its own
would be, over the times [s, times of the grid below s], bit for bit: its history begins where it starts.

Rows with the same start run together, on network calls of their own.  A run with few different starts costs little more than
one with a single start; with as many starts as rows, the network is called for each row by itself.
"""

from dataclasses import dataclass, replace
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from unnoise import tree
from unnoise.samplers.base import After, Sampler, Stepping
from unnoise.samplers.problem import Info, Problem
from unnoise.samplers.state import State, Told
from unnoise.shapes import Float, Tree

NEAR = 1e-9  # a start this close to a time of the grid is that time
APART = (
    "these rows start at times of their own, and what the method remembers of them is of different lengths: exchange rows "
    "in runs with one start, or return a state with another x, dataclasses.replace(state, x=...)"
)


def check_start(start: Any, given: bool) -> None:
    """None or a number; or for states that are given (`given`) a tensor of them, one per row."""
    if start is not None and not isinstance(start, Real | Tensor):
        raise TypeError(
            f"start is a {type(start).__name__}: pass a number, or for given states x a tensor with one time per row, "
            f"start=torch.tensor([1.0, 0.5, ...])"
        )
    if isinstance(start, Tensor) and start.ndim and not given:
        raise ValueError(
            f"start has a time for each of {len(start)} rows, but no states x that stand at these times, and the prior is "
            f"the law at t = 1: pass x, or leave start out"
        )


def checked_starts(start: Tensor, times: Float[Tensor, "times"], rows: int) -> Float[Tensor, "rows"]:
    """One start per row, as a time within the grid."""
    start = start.detach().double().cpu()
    if tuple(start.shape) != (rows,):
        raise ValueError(f"start has shape {tuple(start.shape)}, but there are {rows} rows: pass a number, or one per row")
    outside = ~((start <= times[0] + NEAR) & (start >= times[-1] - NEAR))
    if bool(outside.any()):
        i = int(outside.nonzero()[0, 0])
        raise ValueError(
            f"row {i} starts at {start[i].item():g}, but the grid runs from {times[0].item():g} to {times[-1].item():g}: "
            f"start within it"
        )
    gap, place = (start.unsqueeze(1) - times).abs().min(1)
    return torch.where(gap < NEAR, times[place], start)


@dataclass
class Group:
    """Rows with one start."""

    rows: Tensor
    problem: Problem
    first: int  # the step of the common grid in which they enter
    setup: Any = None
    state: State | None = None


def grouped(problem: Problem, starts: Float[Tensor, "rows"]) -> list[Group]:
    """The rows by their starts, highest first; those that start at the end have nothing to do."""
    out = []
    for start in starts.unique().flip(0):
        below = problem.times[problem.times < start]
        if len(below):
            rows = (starts == start).nonzero().squeeze(1).to(problem.device)
            own = torch.cat([start.reshape(1), below])
            out.append(Group(rows, problem.rows(rows).over(own, Info(times=own)), problem.steps - len(below)))
    return out


def staggered(sampler: Sampler, problem: Problem, x: Tree, starts: Float[Tensor, "rows"], after: After) -> Tree:
    """A run in which each row starts at its own time."""
    groups = grouped(problem, starts)
    try:
        if isinstance(sampler, Stepping):
            return _together(sampler, problem, groups, x, after)
        return _one_by_one(sampler, problem, groups, x, after)
    finally:
        _record(problem.info, groups, len(starts))


def _together(sampler: Stepping, problem: Problem, groups: list[Group], x: Tree, after: After) -> Tree:
    for i in range(problem.steps):
        for group in groups:
            if i < group.first:
                continue
            if group.state is None:
                group.setup = sampler.setup(group.problem)
                group.state = sampler.init(group.problem, group.setup, tree.rows(x, group.rows))
            group.state = sampler.step(group.problem, group.setup, group.state, i - group.first)
            group.problem.info.jumps = group.state.jumps
            x = tree.put_rows(x, group.rows, group.state.x)
        new = after(i, Told(x, why=APART))
        if new is not None:
            x = new.x
            for group in groups:
                if group.state is not None:
                    group.state = replace(group.state, x=tree.rows(x, group.rows))
    return x


def _one_by_one(sampler: Sampler, problem: Problem, groups: list[Group], x: Tree, after: After) -> Tree:
    """What has no steps is run to its end, group by group; then the grid's states are told in order."""
    paths: list[list[Tree]] = []
    last = x
    for group in groups:
        path: list[Tree] = []
        end = sampler.run(group.problem, tree.rows(x, group.rows), lambda i, state, path=path: path.append(state.x))  # type: ignore
        last = tree.put_rows(last, group.rows, end)
        paths.append(path)
    for i in range(problem.steps):
        for group, path in zip(groups, paths, strict=True):
            if i >= group.first:
                x = tree.put_rows(x, group.rows, path[i - group.first])
        after(i, sampler.told(x))
    return last


def _record(info: Info, groups: list[Group], rows: int) -> None:
    """What the groups did, as one run."""
    for group in groups:
        own, index = group.problem.info, group.rows
        info.calls, info.rows = info.calls + own.calls, info.rows + own.rows
        if own.jumps is not None:
            jumps = torch.zeros(rows, dtype=own.jumps.dtype, device=index.device) if info.jumps is None else info.jumps
            info.jumps = jumps.index_copy(0, index, own.jumps)
        if own.clipped is not None:
            share = own.clipped * (len(index) / rows)
            info.clipped = share if info.clipped is None else info.clipped + share
        if own.end_errors is not None:
            errors = info.end_errors or (0.0, 0.0)
            info.end_errors = (max(errors[0], own.end_errors[0]), max(errors[1], own.end_errors[1]))
