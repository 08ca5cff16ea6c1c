"""Exact simulation of reverse jump processes: every jump happens at its own time, and no rate is frozen.

With lambda(x, t) the total exit rate and B >= lambda a bound, candidates arrive at rate B and one that arrives at t is a
jump with probability lambda(x, t)/B; where it leads is drawn from the rates.  The jumps then have the law of the process:

    Gillespie        thinning: B depends on the state and is constant over intervals of time.  With e standard exponential
                     the next candidate comes at the t' where int_t'^t B(x, .) = e, as many borders as that may cross.
    Uniformization   B depends on time alone, so the candidates are a Poisson process that is drawn before the loop: the host
                     knows all rounds beforehand and the loop never waits for the device.  It has more candidates, since B
                     is that of the worst state.

Every candidate costs one row of one network call, `info.rows` in all; a round takes the next candidate of every row at once,
each at its own time, and rows that are done drop out.

The bounds need no network where the prediction is a law of x_0 (`samplers.exit_bounds`); other kinds have none, and ask for
`bound`.  Where the rates are infinite, at t -> 0 and for most noise at t -> 1, the run is exact between `low` and `high`
alone; the rest is done by the model's factorised kernel, with one call for each piece (and each time of the grid inside it).
`info.end_errors` bounds what the two pieces, first and last, cost in total variation.  Only the grid's ends matter to the
law; its inner times are where the trajectory is looked at.
"""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.predictions import FinitePrediction, Posterior, Prediction, RawPosterior
from unnoise.processes import FiniteProcess, Process
from unnoise.samplers.base import After, Sampler
from unnoise.samplers.event_record import EventRecord
from unnoise.samplers.exit_bounds import INFINITE, ExitBoundTable, GivenExitBound, changed, exit_bound, first_error
from unnoise.samplers.leaps import finite, log_rates_of, no_rates
from unnoise.samplers.problem import Problem
from unnoise.shapes import Bool, Float, Int

Limit = Callable[..., Tensor]


class _Events(Sampler):
    """Base of both: the ends, the record, and what happens at a candidate."""

    exact = True

    def __init__(self, intervals: int = 64, low: float = 1e-4, high: float = 1 - 1e-3, bound: Limit | None = None):
        if intervals < 1:
            raise ValueError(f"intervals = {intervals}: at least one is needed")
        if not 0 < low < high < 1:
            raise ValueError(f"low = {low:g}, high = {high:g}: the exact part lies inside time, 0 < low < high < 1")
        self.intervals, self.low, self.high, self.bound = intervals, low, high, bound

    def refuse(self, process: Process) -> str | None:
        name = type(self).__name__
        if process.leaves:
            return f"{name} simulates a single leaf of categories, and this is a Product of {list(process.leaves)}"
        return no_rates(f"{name} simulates jumps between", process)

    def calls(self, steps: int, process: Process) -> int | None:
        return None

    def run(self, problem: Problem, x: Tensor, after: After) -> Tensor:
        process, times = self.process_of(problem), problem.times
        start, end = float(times[0]), float(times[-1])
        first, last = self._exact_part(process, start, end, problem.device)
        problem.info.end_errors = (
            first_error(process, start, first, problem.device) if first < start else 0.0,
            min(1.0, changed(process, last, problem.device)) if last > end else 0.0,
        )
        record = EventRecord(x)
        stops = [t for t in times[1:].tolist() if t > first] if first < start else []
        for i, (t, s) in enumerate(_pairs([start, *stops, first])):
            x = self._kernel(problem, record, x, t, s, problem.noise.at("first", i))
        if last < first:
            x = self.events(problem, record, x, first, last)
        stops = [t for t in times[:-1].tolist() if t < last] if last > end else []
        for i, (t, s) in enumerate(_pairs([last, *stops, end])):
            x = self._kernel(problem, record, x, t, s, problem.noise.at("last", i))
        record.finish(problem, lambda i, x: after(i, self.told(x)))
        return x

    def process_of(self, problem: Problem) -> FiniteProcess:
        """The process of a run that `refuse` has let pass."""
        if not isinstance(problem.process, FiniteProcess):
            raise TypeError(self.refuse(problem.process))
        return problem.process

    @abstractmethod
    def events(self, problem: Problem, record: EventRecord, x: Tensor, start: float, end: float) -> Tensor:
        """The exact part."""

    def _exact_part(self, process: FiniteProcess, start: float, end: float, device: torch.device) -> tuple[float, float]:
        """The grid's ends, moved inside where rates are infinite."""
        if self.bound is not None:
            return start, end
        inside = [min(start, 1 - 1e-13), max(end, 1e-13)]  # a state with no mass at an end tells nothing there
        ends = torch.tensor([start, end, *inside], dtype=torch.float64, device=device)
        most = exit_bound(process, ends).flatten(1).amax(1).reshape(2, 2)
        infinite_start, infinite_end = (~(most < INFINITE)).any(0).tolist()
        first = min(start, max(self.high, end)) if infinite_start else start
        return first, max(end, min(self.low, first)) if infinite_end else end

    def _kernel(self, problem: Problem, record: EventRecord, x: Tensor, t: float, s: float, noise: NoiseSource) -> Tensor:
        """The factorised kernel of the model from t to s."""
        clock = torch.tensor([t, s], dtype=torch.float64, device=problem.device)
        prediction = problem.predict(x, clock[0])
        self.checked(prediction)
        moved: Any = prediction.step(clock[1]).draw(noise)
        record.whole(x, moved, s)
        return moved

    def checked(self, prediction: Prediction) -> FinitePrediction:
        if self.bound is None and not isinstance(prediction, Posterior | RawPosterior):
            raise TypeError(
                f"a {type(prediction).__name__} prediction has no bound on its exit rates, which {type(self).__name__} "
                f"needs: pass bound=, or predict a Posterior"
            )
        return finite(prediction)

    def candidate(
        self, problem: Problem, record: EventRecord, x: Tensor, t: Tensor, bound: Tensor, u: Tensor, rows: Tensor | None
    ) -> Tensor:
        """The states after a candidate in some rows: x, t, bound and u (three numbers) are of all rows."""
        prediction = self.checked(problem.predict_rows(x, t, rows))
        if rows is not None:
            t, bound, u = t[rows], bound[rows], u[rows]
        here = x if rows is None else x[rows]
        rates = log_rates_of(prediction)
        rates = rates.double().exp().reshape(len(here), -1, rates.shape[-1])
        exits = rates.sum(-1)  # of each coordinate
        whether = accepted(exits.sum(-1), bound, u[:, 0])
        k = pick(exits, u[:, 1])
        row = torch.arange(len(here), device=x.device)
        y = pick(rates[row, k], u[:, 2])
        flat = here.reshape(len(here), -1)
        moved = flat.scatter(1, k.unsqueeze(1), torch.where(whether, y, flat[row, k]).unsqueeze(1)).reshape(here.shape)
        record.jump(rows, k, y, t, whether)
        record.watch(rows, exits.sum(-1) / bound, t)
        return moved if rows is None else x.index_copy(0, rows, moved)


def _pairs(stops: list[float]) -> list[tuple[float, float]]:
    return [(t, s) for t, s in zip(stops[:-1], stops[1:], strict=True) if s < t]


def accepted(exit: Float[Tensor, "rows"], bound: Float[Tensor, "rows"], u: Float[Tensor, "rows"]) -> Bool[Tensor, "rows"]:
    """Whether a candidate is a jump."""
    return u * bound < exit


def pick(weights: Float[Tensor, "rows n"], u: Float[Tensor, "rows"]) -> Int[Tensor, "rows"]:
    """A place with probability in proportion to its weight, by inversion."""
    cumulative = weights.cumsum(-1)
    level = (u * cumulative[:, -1]).unsqueeze(-1)
    last = (weights > 0).long().cumsum(-1).argmax(-1)  # the last place with any weight: rounding goes no further
    return torch.minimum(torch.searchsorted(cumulative, level, right=True).squeeze(-1), last)


def reach(
    rates: Float[Tensor, "rows intervals"], borders: Float[Tensor, "borders"], level: Float[Tensor, "rows *n"]
) -> tuple[Float[Tensor, "rows *n"], Int[Tensor, "rows *n"]]:
    """Where the integral of rates that are constant over intervals, from the first border on, reaches a level.

    The time and the interval; where it never does, an interval past the last one.
    """
    total = (rates * (borders[:-1] - borders[1:])).cumsum(-1)
    many = level if level.ndim > 1 else level.unsqueeze(-1)
    j = torch.searchsorted(total, many.contiguous(), right=True)
    inside = j.clamp_max(rates.shape[1] - 1)
    below = torch.nn.functional.pad(total, (1, 0)).gather(1, inside)
    t = borders[inside] - (many - below) / rates.gather(1, inside).clamp_min(1e-300)
    t = torch.minimum(torch.maximum(t, borders[inside + 1]), borders[inside])
    return t.reshape(level.shape), j.reshape(level.shape)


def passed(
    rates: Float[Tensor, "rows intervals"], borders: Float[Tensor, "borders"], t: Float[Tensor, "rows"]
) -> Float[Tensor, "rows"]:
    """The integral of the rates from the first border to t."""
    spent = torch.minimum((borders[:-1] - t.unsqueeze(-1)).clamp_min(0), borders[:-1] - borders[1:])
    return (rates * spent).sum(-1)


class Gillespie(_Events):
    """Thinning, with a bound for each state and interval; `bound(x, t_low, t_high)` for predictions that have none.

    `bound` gets states [rows, *shape] and two times per row, and returns a bound on each row's total exit rate over that
    interval.
    """

    def events(self, problem, record, x, start, end):
        if self.bound is None:
            bounds: ExitBoundTable | GivenExitBound = ExitBoundTable(
                problem.process, start, end, self.intervals, problem.device
            )
        else:
            bounds = GivenExitBound(self.bound, start, end, self.intervals, problem.device)
        t = torch.full((len(x),), start, dtype=torch.float64, device=x.device)
        active: Tensor | None = None  # all
        for n in range(2**62):
            rates, clock = (bounds.of(x), t) if active is None else (bounds.of(x[active]), t[active])
            u = problem.noise.at("candidate", n).uniform((4,))
            wait = -(u[:, 0] if active is None else u[active, 0]).log()
            clock, j = reach(rates, bounds.borders, passed(rates, bounds.borders, clock) + wait)
            going = j < rates.shape[1]
            rows = going.nonzero().squeeze(1)  # the host waits for the device here, once a round
            if not len(rows):
                break
            bound = torch.zeros_like(t)
            everyone = active is None and len(rows) == len(x)
            chosen = rows if active is None else active[rows]
            t = t.index_copy(0, chosen, clock[rows])
            bound = bound.index_copy(0, chosen, rates[rows].gather(1, j[rows].unsqueeze(1)).squeeze(1))
            active = None if everyone else chosen
            x = self.candidate(problem, record, x, t, bound, u[:, 1:], active)
        return x


class Uniformization(_Events):
    """Candidates of a Poisson process drawn before the loop; `bound(t_low, t_high)` for predictions that have none.

    `bound` gets two times per interval, and returns a bound on the total exit rate of every state over it.
    """

    def events(self, problem, record, x, start, end):
        rates, borders = self.rates(problem, x, start, end)
        t, interval, count = self.candidates(problem.noise, rates, borders)
        host_count = count.cpu()  # the one look at the device, before the loop
        most = int(host_count.max())
        waiting = [(host_count > j).nonzero().squeeze(1) for j in range(most)]
        sizes = [len(rows) for rows in waiting]
        active = torch.cat(waiting).to(problem.device).split(sizes) if most else ()
        for n, rows in enumerate(active):
            u = problem.noise.at("candidate", n).uniform((3,))
            rows = None if len(rows) == len(x) else rows
            x = self.candidate(problem, record, x, t[:, n], rates[interval[:, n]], u, rows)
        return x

    def rates(self, problem: Problem, x: Tensor, start: float, end: float) -> tuple[Tensor, Tensor]:
        """B of each interval, and the borders."""
        if self.bound is None:
            table = ExitBoundTable(self.process_of(problem), start, end, self.intervals, problem.device)
            return table.largest(), table.borders
        limit = self.bound
        given = GivenExitBound(lambda _, low, high: limit(low, high), start, end, self.intervals, problem.device)
        return given.of(x[:1])[0], given.borders

    def candidates(self, noise: NoiseSource, rates: Tensor, borders: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Times and intervals [rows, most], and how many each row has: a unit Poisson process, run through int B."""
        total = (rates * (borders[:-1] - borders[1:])).sum()
        block = int(float(total) + 6 * float(total) ** 0.5) + 16
        level = torch.zeros(len(noise.rows), 0, dtype=torch.float64, device=noise.rows.device)
        n = 0
        while not level.shape[1] or bool((level[:, -1] <= total).any()):
            waits = -noise.at("arrival", n).uniform((block,)).log()
            before = level[:, -1:] if n else 0.0
            level, n = torch.cat([level, before + waits.cumsum(1)], 1), n + 1
        count = (level < total).sum(1)
        t, interval = reach(rates.expand(len(level), -1), borders, level)
        return t, interval.clamp_max(len(rates) - 1), count
