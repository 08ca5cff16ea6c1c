"""The clocks of a run: times that a network is told, one after another, each the same for all rows.

A prediction keeps its time in float64; a network is told it in the precision of the states.  Rounded call by call that is a
pass and a launch before every call, of numbers known before the first.  So the times of a run are laid out together:

    moments(times)          each time by itself, in float64, with its place in the whole
    spread(moment, rows)    the clock of so many rows: a view, without memory of its own
    as_told(clock, dtype)   the clock as a network is told it; of a run's clocks many are rounded when the first is asked for

Any other tensor of times is rounded by itself.
"""

import torch
from torch import Tensor

from unnoise.shapes import Float

CHUNK = 2**20  # numbers that are rounded at once, over all rows


class Timetable:
    """The times of a run on the device, and some of them rounded."""

    def __init__(self, times: Float[Tensor, "calls"]):
        self.times = times
        self.known: tuple[int, int, torch.dtype, bool] | None = None
        self.part: tuple[Tensor, ...] = ()

    def rounded(self, i: int, rows: int, dtype: torch.dtype) -> Float[Tensor, "rows"]:
        """Clock i.  What is recorded rounds for itself: memory from outside might be other numbers when it is replayed."""
        span = max(1, CHUNK // max(rows, 1))
        first = i - i % span
        here = (first, rows, dtype, self.times.is_cuda and torch.cuda.is_current_stream_capturing())
        if here != self.known:
            some = self.times[first : first + span].to(dtype)
            self.known, self.part = here, some.unsqueeze(1).expand(-1, rows).contiguous().unbind(0)
        return self.part[i - first]


def moments(times: Float[Tensor, "calls"]) -> list[Tensor]:
    """The times one by one."""
    table, out = Timetable(times), list(times.unbind(0))
    for i, moment in enumerate(out):
        moment.entry = table, i  # type: ignore[attr-defined]
    return out


def spread(moment: Tensor, rows: int) -> Tensor:
    """One time for so many rows; times of their own stay as they are."""
    if moment.ndim:
        return moment
    clock = moment.expand(rows)
    entry = getattr(moment, "entry", None)
    if entry is not None:
        clock.entry = entry  # type: ignore[attr-defined]
    return clock


def as_told(clock: Tensor, dtype: torch.dtype) -> Tensor:
    """A clock in the precision of the states."""
    if clock.dtype is dtype or torch.compiler.is_compiling():
        return clock.to(dtype)
    entry = getattr(clock, "entry", None)
    return clock.to(dtype) if entry is None else entry[0].rounded(entry[1], len(clock), dtype)
