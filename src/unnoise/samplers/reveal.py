"""Masking: the plan of what is revealed when, and what is put there.

Under masking a coordinate is revealed once, at a time that has nothing to do with any token: alpha at that time is uniform.
So the plan is drawn before the loop.  A grid cuts it into steps (the factorised kernel: a masked coordinate stays so from
t to s with probability (1 - alpha_s)/(1 - alpha_t)); taken one coordinate at a time, each at its own time, it is first
hitting, which has the exact law of the reverse process.  The network is asked for the rows and coordinates that are about
to be revealed and for no others, and the loop never waits for the device.

Tokens are drawn by inverting the distribution function in float64, whatever the precision of the logits: float32 noise would
cut the tail.  What changes the tokens' law (temperature, top-k, top-p) leaves the reveal rate alone.
"""

from collections.abc import Callable
from math import inf
from typing import Literal, cast, get_args

import torch
from torch import Tensor

from unnoise.predictions import Posterior, Prediction
from unnoise.processes import Masking, Process
from unnoise.samplers.base import After, Sampler
from unnoise.samplers.leaps import finite
from unnoise.samplers.problem import Problem
from unnoise.samplers.tokens import Tokens
from unnoise.shapes import Float, Int

Order = Literal["random", "confidence", "margin", "entropy"]


def no_masks(name: str, process: Process) -> str | None:
    """Why a method that reveals does not hold for a process; None where it does."""
    if process.absorbing:
        return None
    return f"{name} reveals masked coordinates, and {type(process).__name__} masks none"


def masking_of(process: Process) -> Masking:
    """A process that is absorbing, and so has a `mask` and a `schedule`: Masking, or one of one's own like it."""
    if not process.absorbing:
        raise TypeError(no_masks("this method", process))
    return cast(Masking, process)


def levels(problem: Problem, x: Tensor) -> Float[Tensor, "batch *shape"]:
    """alpha at each coordinate's reveal, uniform above that of the first time; 2, never, where it is not masked."""
    process = masking_of(problem.process)
    start = process.schedule.alpha(problem.times[0])
    u = problem.noise.at("reveal").uniform(tuple(x.shape[1:]))
    start = start.to(u.device)
    level = (start + (1 - start) * u).clamp_max(1 - 2**-53)  # rounded to 1 it would never be revealed
    return torch.where(x == process.mask, level, 2.0)


def reveal_logits(prediction: Prediction, index: Int[Tensor, "chosen"]) -> Float[Tensor, "chosen size"]:
    """Of the masked coordinates at these flat positions; what is not a posterior says the same as ratios to MASK."""
    if isinstance(prediction, Posterior):
        return prediction.logits_at(index)
    own = finite(prediction)
    ratio = own.log_ratio()[..., : own.process.space.size]
    return ratio.flatten(0, -2)[index]


class Revealing(Sampler):
    def __init__(self, tokens: Tokens | None = None):
        self.tokens = tokens or Tokens()

    def refuse(self, process: Process) -> str | None:
        return no_masks(type(self).__name__, process)

    def logits(self, prediction: Prediction, index: Tensor) -> Tensor:
        return reveal_logits(prediction, index)


class Reveal(Revealing):
    """The factorised kernel on a grid, by plan (eq:discrete-time-reversal-maskdiff).

    `by` chooses which masked coordinates a step reveals: "random" is the process itself; "confidence", "margin", "entropy"
    keep the number that the plan has for each row, and reveal those that the network is surest of.  They have no law.
    """

    def __init__(self, tokens: Tokens | None = None, by: str = "random"):
        super().__init__(tokens)
        if by not in get_args(Order):
            raise ValueError(f"by = {by!r}: choose 'random', 'confidence', 'margin' or 'entropy'")
        self.by = by
        self.order = 1 if by == "random" and self.tokens.plain else None

    def refuse(self, process):
        why = super().refuse(process)
        if why is None and process.schedule.shape and self.by != "random":
            return "a reveal order needs one schedule for all coordinates"
        return why

    def run(self, problem: Problem, x: Tensor, after: After) -> Tensor:
        process = masking_of(problem.process)
        alphas = process.schedule.alpha(problem.times).to(problem.device)  # rises along the grid
        level = levels(problem, x)
        if process.schedule.shape:
            step = (level.unsqueeze(0) >= alphas[1:].unsqueeze(1)).sum(0)
        else:
            step = torch.bucketize(level, alphas[1:].contiguous(), right=True)
        u = problem.noise.at("token").uniform(tuple(x.shape[1:])).flatten()
        if self.by != "random":
            return self._ordered(problem, x, step, u, after)
        plan = RevealPlan(step, problem.steps)
        for i in range(problem.steps):
            index, rows, local = plan.at(i)
            if len(index):
                prediction = problem.predict_rows(x, problem.clock[i], rows)
                drawn = self.tokens.draw(self.logits(prediction, local), u[index])
                x = x.reshape(-1).scatter(0, index, drawn).reshape(x.shape)  # a new one: trajectories keep the old
            after(i, self.told(x))
        problem.info.jumps = plan.jumps
        return x

    def _ordered(self, problem: Problem, x: Tensor, step: Tensor, u: Tensor, after: After) -> Tensor:
        """As many as the plan has, the surest first: which ones is known on the device only, how many on the host."""
        rows, shape = len(x), x.shape
        process = problem.process
        wanted = torch.stack([(step == i).reshape(rows, -1).sum(1) for i in range(problem.steps)]).cpu()  # [steps, rows]
        left = (process.movable(x)).reshape(rows, -1).sum(1).cpu()
        problem.info.jumps = wanted.sum(0).to(problem.device)
        for i, count in enumerate(wanted):
            active = count.nonzero().squeeze(1)
            masked_count, left = int(left[active].sum()), left - count
            if len(active):
                chosen_rows = active.to(problem.device)
                prediction = problem.predict_rows(x, problem.clock[i], None if len(active) == rows else chosen_rows)
                flat = x.reshape(rows, -1)[chosen_rows]
                masked = process.movable(x).reshape(rows, -1)[chosen_rows]
                index = masked.flatten().long().argsort(stable=True, descending=True)[:masked_count]
                logits = self.logits(prediction, index)
                sureness = SURENESS[self.by](logits).double()
                sure = torch.full(masked.shape, -inf, dtype=torch.float64, device=x.device).flatten()
                sure = sure.scatter(0, index, sureness).reshape(masked.shape)
                rank = sure.argsort(stable=True, dim=1, descending=True).argsort(1)
                drawn = self.tokens.draw(logits, u.reshape(rows, -1)[chosen_rows].flatten()[index])
                filled = flat.flatten().scatter(0, index, drawn).reshape(flat.shape)
                reveal = rank < count[active].to(problem.device).unsqueeze(1)
                x = x.reshape(rows, -1).index_copy(0, chosen_rows, torch.where(reveal, filled, flat)).reshape(shape)
            after(i, self.told(x))
        return x


def _margin(logits: Tensor) -> Tensor:
    best = logits.softmax(-1).topk(min(2, logits.shape[-1]), -1).values
    return best[:, 0] - best[:, -1]


SURENESS: dict[str, Callable[[Tensor], Tensor]] = {
    "confidence": lambda logits: logits.log_softmax(-1).max(-1).values,
    "margin": _margin,
    "entropy": lambda logits: (logits.softmax(-1) * logits.log_softmax(-1).clamp_min(-1e4)).sum(-1),
}


class RevealPlan:
    """Which coordinates each step reveals: their flat positions, the rows they are in, and their positions in those rows.

    Made on the host before the loop and moved in one piece, so that no step has to ask the device how much there is to do.
    """

    def __init__(self, step: Int[Tensor, "batch *shape"], steps: int):
        device, rows = step.device, len(step)
        flat = step.reshape(-1).cpu()
        width = flat.numel() // max(rows, 1)
        order = flat.argsort(stable=True)
        counts = torch.bincount(flat, minlength=steps + 1)[:steps]
        ends = counts.cumsum(0).tolist()
        local, rows_of, all_rows = [], [], []
        for start, end in zip([0, *ends[:-1]], ends, strict=True):
            index = order[start:end]
            active, inverse = (index // width).unique(return_inverse=True)
            all_rows.append(len(active) == rows)
            rows_of.append(active)
            local.append(index if all_rows[-1] else inverse * width + index % width)
        sizes = counts.tolist()
        self.index = order[: sum(sizes)].to(device).split(sizes)
        self.local = torch.cat(local).to(device).split(sizes)
        active_rows = torch.cat(rows_of).to(device).split([len(active) for active in rows_of])
        self.rows = [None if every else active for every, active in zip(all_rows, active_rows, strict=True)]
        self.jumps = (flat < steps).reshape(rows, -1).sum(1).to(device)

    def at(self, i: int) -> tuple[Tensor, Tensor | None, Tensor]:
        return self.index[i], self.rows[i], self.local[i]


class FirstHitting(Revealing):
    """One coordinate at a time, each at the very time of its reveal: the exact law, with as many calls as coordinates.

    The grid's ends are kept; its inner times matter to the trajectory only.
    """

    def __init__(self, tokens: Tokens | None = None):
        super().__init__(tokens)
        self.exact = self.tokens.plain

    def refuse(self, process):
        why = super().refuse(process)
        if why is None and process.schedule.shape:
            return "first hitting needs one schedule for all coordinates"
        return why

    def calls(self, steps, process):
        return process.space.dimension

    def run(self, problem: Problem, x: Tensor, after: After) -> Tensor:
        process, rows = masking_of(problem.process), len(x)
        end = process.schedule.alpha(problem.times[-1]).to(problem.device)
        level = levels(problem, x).reshape(rows, -1)
        sorted_level, order = level.sort(1)
        count = (sorted_level < end).sum(1)
        host_count = count.cpu()  # the one look at the device, before the loop
        most = int(host_count.max())
        waiting = [(host_count > j).nonzero().squeeze(1) for j in range(most)]
        sizes = [len(rows_of) for rows_of in waiting]
        active = torch.cat(waiting).to(problem.device).split(sizes) if most else ()
        t = process.schedule.time_of_alpha(sorted_level.clamp_max(1.0))
        u = problem.noise.at("token").uniform(tuple(x.shape[1:])).reshape(rows, -1)
        given, width = x.reshape(rows, -1), level.shape[1]
        flat = given.clone()
        for j, chosen in enumerate(active):
            here = order[chosen, j]
            state = flat.reshape(-1, *process.space.shape)
            prediction = problem.predict_rows(state, t[:, j], None if len(chosen) == rows else chosen)
            local = torch.arange(len(chosen), device=x.device) * width + here
            flat[chosen, here] = self.tokens.draw(self.logits(prediction, local), u[chosen, here])
        problem.info.jumps = count
        alphas = process.schedule.alpha(problem.times).to(problem.device)
        for i in range(problem.steps):  # what stood there at the grid's times
            after(i, self.told(torch.where(level < alphas[i + 1], flat, given).reshape(x.shape)))
        return flat.reshape(x.shape)
