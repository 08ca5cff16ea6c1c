"""The end of a run: samples are data.

A method that leaps leaves a coordinate masked with some probability however long it runs; so may rates of an imperfect
network.  What is left without a value at t = 0 is drawn from the model's law of x_0 given the last state, coordinate by
coordinate, as seen from the last time of the grid before 0: the step that `Ancestral` would take from there.  It costs one
more call, for the rows that need it.

In the law of the samples the mass that was on MASK goes to data.  For one coordinate, under masking, that is all there is to
mend: of what a leap reveals, and of what the last step draws, each category has its share of the model's law.  Of several
coordinates those that are left in one row are drawn as if independent, as in any step of `Ancestral`.
"""

from typing import Any

import torch
from torch import Tensor

from unnoise import tree
from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.predictions.kinds import kind_at
from unnoise.processes import Process
from unnoise.samplers.leaps import finite
from unnoise.samplers.problem import Problem
from unnoise.shapes import AnyState, Bool, Float, Tree


def unfinished(process: Process, x: AnyState) -> dict[tuple[str, ...], Tensor]:
    """The coordinates without a value, by the path of their leaf; leaves that never have any are left out."""
    if not process.leaves:
        own = process.unfinished(x)
        return {} if own is None else {(): own}
    parts = {name: unfinished(leaf, x[name]) for name, leaf in process.leaves.items()}
    return {(name, *path): left for name, part in parts.items() for path, left in part.items()}


def adds_states(process: Process) -> bool:
    return any(map(adds_states, process.leaves.values())) if process.leaves else process.state_space is not process.space


def may_finish(sampler: Any, denoiser: AnyDenoiser) -> bool:
    """Whether a run may need the last step: a call more.  Kinds that are a law of x_0 leave nothing at the end of a step."""
    process, kinds = denoiser.process.base, denoiser.kinds
    return adds_states(process) and (not sampler.complete or kinds is None or not says_values(process, kinds))


def says_values(process: Process, kinds: Any) -> bool:
    if process.leaves:
        return all(says_values(leaf, kind_at(kinds, name)) for name, leaf in process.leaves.items())
    return not adds_states(process) or kinds.tells_clean(process)


def cleaned(problem: Problem, x: Tree) -> Tree:
    """Numbers as the model sees them without their last noise: where a schedule ends at sigma > 0, the step to sigma = 0,
    which is the clean prediction (the last step of EDM).  It costs one more call."""
    noisy = {path: leaf for path, leaf in leaf_processes(problem.process) if leaf.has_density and not leaf.noiseless(0.0)}
    if not noisy or float(problem.times[-1]) > 0:
        return x
    prediction = problem.predict(x, problem.clock[-1])
    for path in noisy:
        x = tree.replace(x, path, part_of(prediction, path).clean())
    return x


def read_off(problem: Problem, x: Tree) -> Tree:
    """Data, where a code stands for them in the states: drawn from their law given the last state."""
    code = problem.denoiser.code
    if code is None:
        return x
    t = float(problem.times[-1])
    prediction = problem.predict(x, problem.clock[-1]) if code.needs_network else None
    return code.law(x, t, problem.process, prediction).draw(problem.noise.at("code"))


def leaf_processes(process: Process, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], Process]]:
    if not process.leaves:
        return [(path, process)]
    return [pair for name, leaf in process.leaves.items() for pair in leaf_processes(leaf, (*path, name))]


def part_of(prediction: Prediction, path: tuple[str, ...]) -> Prediction:
    """The prediction of one leaf."""
    own = prediction.by_leaf()
    for name in path:
        own = own.leaves[name]  # type: ignore[attr-defined]
    return own


def finished(sampler: Any, problem: Problem, x: Tree, starts: Float[Tensor, "rows"] | None) -> Tree:
    """The states with a value everywhere."""
    ends = float(problem.times[-1]) == 0 and may_finish(sampler, problem.denoiser)
    left = unfinished(problem.process, x) if ends else {}
    if not left:
        return x
    wanting = torch.stack([part.reshape(len(part), -1).any(1) for part in left.values()]).any(0)
    rows = wanting.nonzero().squeeze(1)
    if not len(rows):
        return x
    last = problem.times[-2].expand(len(wanting)) if starts is None else starts.clamp_max(float(problem.times[-2]))
    moment = last.to(problem.device)[rows]
    some, part = tree.rows(x, rows), problem.rows(rows)
    prediction = part.predict(some, moment)
    for path, where in left.items():
        drawn = _drawn(prediction, path, tree.pick(some, path), where[rows], part.noise.at("finish", *path))
        some = tree.replace(some, path, drawn)
    if problem.info.jumps is not None:
        more = torch.stack([part.reshape(len(part), -1).sum(1) for part in left.values()]).sum(0)
        problem.info.jumps = problem.info.jumps + more
    return tree.put_rows(x, rows, some)


def _drawn(
    prediction: Prediction, path: tuple[str, ...], x: Tensor, where: Bool[Tensor, "rows *shape"], noise: NoiseSource
) -> Tensor:
    return torch.where(where, finite(part_of(prediction, path)).clean_law().draw(noise), x)
