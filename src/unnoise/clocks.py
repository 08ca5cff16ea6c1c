"""The clocks of a run: times that a network is told, one after another, each the same for all rows.

A prediction keeps its time in float64; a network is told it in the precision of the states.  Rounded call by call that is a
pass and a launch before every call, of numbers known before the first.  So the clocks of a run are laid out together:

    clocks(times, rows)     one clock [rows] for each time, in float64, all views of the times themselves
    as_told(clock, dtype)   the clock as a network is told it; of a run's clocks many are rounded when the first is asked for

Any other tensor of times is rounded by itself.
"""

import torch
from torch import Tensor

from unnoise.shapes import Float

CHUNK = 2**20  # numbers that are rounded at once, over all rows


class Timetable:
    """The times of a run on the device, and some of them rounded."""

    def __init__(self, times: Float[Tensor, "calls"], rows: int):
        self.times, self.rows = times, rows
        self.span = max(1, CHUNK // max(rows, 1))
        self.known: tuple[torch.dtype, int, bool] | None = None
        self.part: tuple[Tensor, ...] = ()

    def rounded(self, i: int, dtype: torch.dtype) -> Float[Tensor, "rows"]:
        """Clock i.  What is recorded rounds for itself: memory from outside might be other numbers when it is replayed."""
        first = i - i % self.span
        here = (dtype, first, self.times.is_cuda and torch.cuda.is_current_stream_capturing())
        if here != self.known:
            some = self.times[first : first + self.span].to(dtype)
            self.known, self.part = here, some.unsqueeze(1).expand(-1, self.rows).contiguous().unbind(0)
        return self.part[i - first]


def clocks(times: Float[Tensor, "calls"], rows: int) -> list[Tensor]:
    """A clock for each time."""
    table, out = Timetable(times, rows), []
    for i, time in enumerate(times.unbind(0)):
        clock = time.expand(rows)
        clock.entry = table, i  # type: ignore[attr-defined]
        out.append(clock)
    return out


def as_told(clock: Tensor, dtype: torch.dtype) -> Tensor:
    """A clock in the precision of the states."""
    if clock.dtype is dtype or torch.compiler.is_compiling():
        return clock.to(dtype)
    entry = getattr(clock, "entry", None)
    return clock.to(dtype) if entry is None else entry[0].rounded(entry[1], dtype)
