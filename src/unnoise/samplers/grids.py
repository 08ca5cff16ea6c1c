"""Time grids: float64 times that fall from `start` to `end`, computed once on the host.

    Even         equal steps in t
    LogSNR       equal steps in log-SNR: fine where the signal appears
    Karras       equal steps in (sigma/alpha)^(1/rho)
    Quadratic    equal steps in sqrt(t): fine near the data
    GivenTimes   times of one's own
    Timesteps    some of the T steps that a network was trained on: "leading", "trailing" or "linspace"
    Shifted      another grid with its times pushed towards the noise, as of flows on large images
    Clipped      another grid, begun or ended where lambda = log(alpha/sigma) reaches a bound

Log-SNR is infinite where alpha = 0 or sigma = 0.  There `LogSNR` and `Karras` space what lies more than 1e-3 from that
end, and add the end itself.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.processes import Process
from unnoise.samplers.problem import on_host
from unnoise.schedules import Schedule
from unnoise.shapes import Float, Int

EDGE = 1e-3  # how near to an end with infinite log-SNR its values are still spaced (a quarter of a shorter interval)


class TimeGrid(ABC):
    """A rule for the times of a sampler."""

    @abstractmethod
    def times(self, process: Process, steps: int, start: float, end: float) -> Float[Tensor, "times"]: ...


def checked(times: Tensor) -> Float[Tensor, "times"]:
    times = torch.as_tensor(times, dtype=torch.float64).cpu()
    if times.ndim != 1 or len(times) < 2:
        raise ValueError(f"a time grid of shape {tuple(times.shape)}: pass at least two times, from noise to data")
    if not bool(((times >= 0) & (times <= 1)).all()):
        off = times[~((times >= 0) & (times <= 1))][0].item()
        raise ValueError(f"the time grid contains {off:g}, outside [0, 1] (1 is noise, 0 is data)")
    rises = ~(times[1:] < times[:-1])
    if bool(rises.any()):
        i = int(rises.nonzero()[0, 0])
        raise ValueError(
            f"the time grid goes from {times[i].item():g} to {times[i + 1].item():g}: sampling runs from noise to data, so "
            f"times must fall, without repeats"
        )
    return times


class Even(TimeGrid):
    def times(self, process, steps, start, end):
        return torch.linspace(start, end, steps + 1, dtype=torch.float64)


class Quadratic(TimeGrid):
    def times(self, process, steps, start, end):
        times = torch.linspace(start**0.5, end**0.5, steps + 1, dtype=torch.float64).square()
        times[0], times[-1] = start, end  # which rounding has moved
        return times


def schedule_of(process: Process, name: str) -> Schedule:
    schedule = getattr(process, "schedule", None)
    if not isinstance(schedule, Schedule) or schedule.shape:
        raise TypeError(
            f"the grid {name} spaces the log-SNR of one schedule, which {type(process).__name__} has not: use Even()"
        )
    return on_host(schedule)


class _Spaced(TimeGrid):
    """Equal steps in a function of log-SNR."""

    @abstractmethod
    def forth(self, log_snr: Tensor) -> Tensor: ...

    @abstractmethod
    def back(self, value: Tensor) -> Tensor: ...

    @torch.no_grad()
    def times(self, process, steps, start, end):
        schedule = schedule_of(process, type(self).__name__)
        inner, edge = [start, end], min(EDGE, 0.25 * (start - end))
        if float(schedule.alpha(start)) <= 0:
            inner[0] = start - edge
        if float(schedule.sigma(end)) <= 0:
            inner[1] = end + edge
        ends = [i for i in (0, 1) if inner[i] != (start, end)[i]]
        count = steps - len(ends)
        if count < 1:
            return torch.linspace(start, end, steps + 1, dtype=torch.float64)
        limits = self.forth(schedule.log_snr(torch.tensor(inner, dtype=torch.float64)))
        spaced = self.back(torch.linspace(limits[0].item(), limits[1].item(), count + 1, dtype=torch.float64))
        times = schedule.time_of_log_snr(spaced)
        times[0], times[-1] = inner[0], inner[1]
        first, last = ([start] if 0 in ends else []), ([end] if 1 in ends else [])
        return torch.cat([torch.tensor(first, dtype=torch.float64), times, torch.tensor(last, dtype=torch.float64)])


class LogSNR(_Spaced):
    def forth(self, log_snr):
        return log_snr

    def back(self, value):
        return value


class Karras(_Spaced):
    def __init__(self, rho: float = 7.0):
        if not rho > 0:
            raise ValueError(f"rho = {rho} must be positive (7 is usual)")
        self.rho = rho

    def forth(self, log_snr):
        return (-log_snr / (2 * self.rho)).exp()

    def back(self, value):
        return -2 * self.rho * value.log()


class Timesteps(TimeGrid):
    """`steps` of the times 1/T, 2/T, ..., 1, and then the end (Lin et al. 2023, table 2).

        leading     1, 1 + T//steps, 1 + 2 (T//steps), ...: never quite the noisiest      (as DDIM was published)
        linspace    from 1 to T, both included
        trailing    T, T - T/steps, T - 2 T/steps, ...: from the noisiest on

    Numbered from 0, as elsewhere, they are one less; `offset` is added to those of "leading".
    """

    def __init__(self, spacing: str = "trailing", of: int = 1000, offset: int = 0):
        if spacing not in ("leading", "linspace", "trailing"):
            raise ValueError(f"spacing = {spacing!r}: choose leading, linspace or trailing")
        if of < 1 or offset < 0:
            raise ValueError(f"of = {of}, offset = {offset}: a number of steps, and how many of them to begin later")
        self.spacing, self.of, self.offset = spacing, of, offset

    def numbers(self, steps: int) -> Int[Tensor, "steps"]:
        """Which steps, counted from 1, falling."""
        if not 1 <= steps <= self.of:
            raise ValueError(f"steps = {steps}, but there are {self.of} to choose from")
        count = torch.arange(steps, dtype=torch.float64)
        if self.spacing == "linspace":
            return torch.linspace(self.of - 1, 0, steps, dtype=torch.float64).round().long() + 1
        if self.spacing == "trailing":
            return (self.of - count * (self.of / steps)).round().long()
        chosen = 1 + self.offset + count.flip(0).long() * (self.of // steps)
        if int(chosen[0]) > self.of:
            raise ValueError(f"offset = {self.offset} goes beyond the {self.of} steps")
        return chosen

    def times(self, process, steps, start, end):
        if start != 1.0:
            raise ValueError(f"start = {start:g}, but the grid Timesteps has its own: pass the times as grid=[...]")
        return torch.cat([self.numbers(steps).double() / self.of, torch.tensor([end], dtype=torch.float64)])


class Shifted(TimeGrid):
    """t' = s t / (1 + (s - 1) t) of another grid's times: sigma/alpha of `Linear` is multiplied by s.  Ends stay."""

    def __init__(self, shift: float = 3.0, grid: TimeGrid | None = None):
        if not shift > 0:
            raise ValueError(f"shift = {shift:g} must be positive (3 is usual, 1 is none)")
        self.shift, self.grid = shift, grid or Even()

    def times(self, process, steps, start, end):
        back = [t / (self.shift - (self.shift - 1) * t) for t in (start, end)]
        t = self.grid.times(process, steps, *back)
        times = self.shift * t / (1 + (self.shift - 1) * t)
        times[0], times[-1] = start, end  # which rounding has moved
        return times


class Clipped(TimeGrid):
    """Another grid over the times at which low <= lambda <= high, lambda = log(alpha/sigma): `Clipped(-5.1)` is usual.

    A grid that begins below t = 1 is begun from the prior all the same, whose law is then right but for a signal of e^low.
    """

    def __init__(self, low: float = -float("inf"), high: float = float("inf"), grid: TimeGrid | None = None):
        if not low < high:
            raise ValueError(f"low = {low:g}, high = {high:g}: lambda goes from the lower to the higher")
        self.low, self.high, self.grid = low, high, grid or Even()

    @torch.no_grad()
    def times(self, process, steps, start, end):
        schedule = schedule_of(process, type(self).__name__)
        ends = torch.tensor([start, end], dtype=torch.float64)
        reached = (schedule.log_snr(ends) / 2).clamp(self.low, self.high)
        moved = reached != schedule.log_snr(ends) / 2
        inner = torch.where(moved, schedule.time_of_log_snr(2 * reached.clamp(-300, 300)), ends).tolist()
        if not inner[0] > inner[1]:
            raise ValueError(
                f"low = {self.low:g}, high = {self.high:g}: no time between {start:g} and {end:g} has such a lambda"
            )
        return self.grid.times(process, steps, *inner)


class GivenTimes(TimeGrid):
    """`GivenTimes([1.0, 0.6, 0.3, 0.0])`."""

    def __init__(self, times: Sequence[float] | Tensor):
        self.values = checked(torch.as_tensor(times, dtype=torch.float64))

    def times(self, process, steps, start, end):
        return self.values
