"""Time grids: float64 times that fall from `start` to `end`, computed once on the host.

    Even         equal steps in t
    LogSNR       equal steps in log-SNR: fine where the signal appears
    Karras       equal steps in (sigma/alpha)^(1/rho)
    Quadratic    equal steps in sqrt(t): fine near the data
    GivenTimes   times of one's own

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
from unnoise.shapes import Float

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


class GivenTimes(TimeGrid):
    """`GivenTimes([1.0, 0.6, 0.3, 0.0])`."""

    def __init__(self, times: Sequence[float] | Tensor):
        self.values = checked(torch.as_tensor(times, dtype=torch.float64))

    def times(self, process, steps, start, end):
        return self.values
