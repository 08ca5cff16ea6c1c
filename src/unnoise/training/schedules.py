"""The noise schedule of a run: the format's own, one by name, or a learned one.

The schedule concerns numbers.  Under masking the bound does not depend on it: what matters is how many coordinates are
masked, and times are drawn by that number.  A named schedule of levels begins its bound at the noise where the format's own
did, and one of other numbers at its own least noise; a learned one begins at t = 0 where the format's own did, ends at
log-SNR `LOW`, and moves both (see `schedules.learned`).  Where log-SNR falls evenly from t = 0 on, a number's rate has no
1/t, and times are even too.  Beside masked columns some rows still have one of them masked for certain: of 8 categories and
2 numbers the bound's estimate spreads by 16.7 nats, 20.9 with even times alone, and 33.6 with the times graded for 1/t.

A learned schedule moves in rounds of its own: after every `EVERY` updates of the network `fit_schedule` takes `STEPS` steps,
the ends by the bound and the interior by the variance of the bound's estimate, at a rate that falls to 0 over the training.
A round is a function of the weights, the data and the step, so a resumed run repeats it.  Between rounds the schedule rests.
Several processes draw times of their own, and take the mean of what each found.  Networks are told t, not log-SNR, so the
interior descends the bound too, beside its variance (see `fit_schedule`), and the network follows it.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import singledispatch
from math import isfinite
from typing import Any

import torch
from torch import Tensor, nn

from unnoise.data.base import Format
from unnoise.noise import NoiseSource
from unnoise.objectives import MixedTimes, Objective, Stratified, Times, fit_schedule
from unnoise.objectives.batches import world
from unnoise.processes import Gaussian, Process, Product
from unnoise.schedules import Cosine, CosineOffset, Learned, Linear, LinearBeta, LogSNRLinear, Schedule, Sigmoid
from unnoise.shapes import Int, Tree
from unnoise.training.data_order import Source
from unnoise.training.leaf_kinds import leaf_processes
from unnoise.tree import map_leaves

NAMED: dict[str, type[Schedule]] = {
    "linear": Linear,
    "cosine": Cosine,
    "cosine_offset": CosineOffset,
    "linear_beta": LinearBeta,
    "log_snr_linear": LogSNRLinear,
    "sigmoid": Sigmoid,
    "learned": Learned,
}
EVEN = ("log_snr_linear", "learned")  # where the schedule itself does the grading of times
LOW = -10.0  # the log-SNR at t = 1 from which a learned schedule starts
EVERY, STEPS, RATE = 50, 4, 0.1
MOST = 256  # rows of a step


def scheduled(process: Process, name: str | None, options: dict[str, Any]) -> tuple[Process, dict[str, Any]]:
    """The format's process and its objective's options, under a schedule of that name; None keeps them as they are."""
    if name is None:
        return process, options
    if name not in NAMED:
        raise ValueError(f"schedule = {name!r}: choose from {', '.join(NAMED)}")
    if process.grid is not None:
        raise ValueError(f"schedule = {name!r}: a chain has its schedule in its steps: leave it out")
    if not any(map(takes_schedule, leaf_processes(process))):
        own = " and ".join(dict.fromkeys(type(leaf).__name__ for leaf in leaf_processes(process)))
        raise ValueError(
            f"schedule = {name!r}: this data has no numbers under Gaussian noise, as schedules by name are for, but {own}: "
            f"leave it out (a process of your own takes one by unnoise.training.schedules.with_schedule.register)"
        )
    begins = None if process.leaves else options.get("cutoff")  # the bound, where the format says so
    options = dict(options)

    def exchange(schedule: Schedule, cutoff: float) -> Schedule:
        first = cutoff if begins is None else begins
        new = Learned(high=float(schedule.log_snr(first)), low=LOW) if name == "learned" else NAMED[name]()
        if begins is not None:
            options["cutoff"] = _same_noise(schedule, new, begins)
        return new

    made = with_schedule(process, exchange)
    if name in EVEN:
        options["times"] = _even(made)
    return made, options


def _even(process: Process) -> Times:
    return MixedTimes(power=1.0) if any(leaf.absorbing for leaf in leaf_processes(process)) else Stratified()


@singledispatch
def with_schedule(process: Process, exchange: Callable[[Schedule, float], Schedule]) -> Process:
    """The process under another schedule: the one that `exchange` makes of its own and of its cut-off.

    Open to processes from outside, `@with_schedule.register(MyProcess)`; one that registers nothing keeps what it has.
    """
    return process


@with_schedule.register
def _(process: Product, exchange: Callable[[Schedule, float], Schedule]) -> Process:
    return Product(**{name: with_schedule(leaf, exchange) for name, leaf in process.leaves.items()})


@with_schedule.register
def _(process: Gaussian, exchange: Callable[[Schedule, float], Schedule]) -> Process:
    return Gaussian(process.space.shape, exchange(process.schedule, process.cutoff), process.covariance)


def takes_schedule(leaf: Process) -> bool:
    """Whether a leaf can have another schedule."""
    return with_schedule.dispatch(type(leaf)) is not with_schedule.dispatch(object)


def _same_noise(old: Schedule, new: Schedule, cutoff: float) -> float:
    """The time under the new schedule at the noise level of the old at its cut-off, or the earliest."""
    level, highest = (float(s.log_snr(t).detach()) for s, t in ((old, cutoff), (new, 0.0)))
    if isfinite(highest) and highest <= level + 1e-9:
        return 0.0
    return float(new.time_of_log_snr(level))


class Rounds:
    """The rounds in which the learned schedules of a denoiser move; it takes them out of the network's own training."""

    def __init__(self, objective: Objective, rows: Int[Tensor, "rows"], batch: int, seed: int, format: Format | None = None):
        self.objective, self.rows, self.seed, self.format = objective, rows, seed, format
        self.batch = max(2, min(MOST, batch))
        parts = [part for part in objective.denoiser.process.modules() if isinstance(part, Learned)]
        self.parameters = [p for part in parts for p in part.parameters()]
        for parameter in self.parameters:
            parameter.requires_grad_(False)

    def due(self, step: int) -> bool:
        return bool(self.parameters) and step % EVERY == 0

    def fit(self, source: Source, step: int, done: float, device: torch.device) -> None:
        """The round after update number `step`."""
        denoiser, before = self.objective.denoiser, [p.detach().clone() for p in self.parameters]
        rate = RATE * max(1.0 - done, 0.0)
        if rate == 0.0:
            return
        training = denoiser.training
        denoiser.eval()
        with _moving(self.parameters):
            seed = self.seed * 1_000_003 + step
            rows = self._data(source, step, device)
            x0, told = (rows, {}) if self.format is None else self.format.apart(rows)
            fit_schedule(self.objective, x0, STEPS, self.batch, rate, seed, told)
        denoiser.train(training)
        with torch.no_grad():
            good = torch.stack([p.isfinite().all() for p in self.parameters]).all()
            for parameter, old in zip(self.parameters, before, strict=True):
                parameter.copy_(torch.where(good, parameter, old))
                if world() > 1:  # the mean over processes
                    torch.distributed.all_reduce(parameter.data)
                    parameter.div_(world())

    def _data(self, source: Source, step: int, device: torch.device) -> Tree:
        chosen = NoiseSource(self.seed, STEPS * self.batch).at("schedule", step).uniform() * len(self.rows)
        return map_leaves(lambda leaf: leaf.to(device), source.take(self.rows[chosen.long()]))


@contextmanager
def _moving(parameters: list[nn.Parameter]) -> Iterator[None]:
    for parameter in parameters:
        parameter.requires_grad_(True)
    try:
        yield
    finally:
        for parameter in parameters:
            parameter.requires_grad_(False)
