"""A run in parts, where there is no memory for all of its rows at once: sample i is the same in any batch."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor

from unnoise.batch_sizes import in_batches
from unnoise.samplers.problem import Info, Problem
from unnoise.shapes import Tree
from unnoise.tree import batch_size, join
from unnoise.tree import rows as some_rows

Run = Callable[[Problem, Tree, Tensor | None], tuple[Tree, Info]]


def in_parts(run: Run, problem: Problem, x: Tree, starts: Tensor | None) -> tuple[Tree, Info]:
    """`run(problem, x, starts)`; half of the rows at a time wherever memory runs out."""
    rows, info = batch_size(x), problem.info

    def part(first: int, count: int) -> tuple[Tree, Info]:
        problem.info = replace(info)  # of this attempt alone
        if count == rows:
            return run(problem, x, starts)
        index = torch.arange(first, first + count, device=problem.device)
        return run(problem.rows(index), some_rows(x, index), None if starts is None else starts[first : first + count])

    done = in_batches(rows, rows, part)
    return done[0] if len(done) == 1 else (join([states for states, _ in done]), joined([own for _, own in done]))


def joined(parts: list[Info]) -> Info:
    """What the parts of a run did together."""
    whole = replace(parts[0], calls=sum(part.calls for part in parts), rows=sum(part.rows for part in parts))
    jumps = [part.jumps for part in parts if part.jumps is not None]
    whole.jumps = torch.cat(jumps) if jumps else None
    clipped = [part.clipped * part.rows / max(1, whole.rows) for part in parts if part.clipped is not None]
    whole.clipped = torch.stack(clipped).sum(0) if clipped else None
    ends = [part.end_errors for part in parts if part.end_errors is not None]
    whole.end_errors = (max(end[0] for end in ends), max(end[1] for end in ends)) if ends else None
    particles = [part.particles for part in parts if part.particles is not None]
    whole.particles = type(particles[0]).joined(particles) if particles else None
    whole.batch, whole.way = max((part.batch or 0 for part in parts), default=0) or None, parts[-1].way
    return whole
