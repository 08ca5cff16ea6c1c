"""The record of an exact simulation: what happened when, and whether every bound held.

Rows run at times of their own, so the states at the grid's times are told afterwards, from the list of jumps.  Every exit
rate that was met is compared with its bound: a run in which one was exceeded is not exact, and is an error.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from unnoise.samplers.problem import Problem
from unnoise.shapes import Int, Tree

ROUNDING = 1e-4  # by which a rate of a network in low precision may exceed its bound


class EventRecord:
    """What happened when: jumps, for the trajectory; the worst quotient of a rate and its bound, for the claim."""

    def __init__(self, x: Int[Tensor, "batch *shape"]):
        self.x = x
        self.jumps: list[tuple[Tensor, ...]] = []  # (place in the flattened batch, new value, time, whether)
        self.count = torch.zeros(len(x), dtype=torch.int64, device=x.device)
        self.worst = torch.zeros(len(x), dtype=torch.float64, device=x.device)
        self.when = torch.zeros(len(x), dtype=torch.float64, device=x.device)

    def jump(self, rows: Tensor | None, k: Tensor, y: Tensor, t: Tensor, whether: Tensor) -> None:
        rows = torch.arange(len(k), device=k.device) if rows is None else rows
        self.jumps.append((rows * (self.x.numel() // len(self.x)) + k, y, t, whether))
        self.count = self.count.index_add(0, rows, whether.long())

    def whole(self, x: Tensor, moved: Tensor, s: float) -> None:
        """All coordinates at once, by a kernel that ends at s: a change is put at s."""
        place = torch.arange(x.numel(), device=x.device)
        at = torch.full(place.shape, s, dtype=torch.float64, device=x.device)
        self.jumps.append((place, moved.flatten(), at, (moved != x).flatten()))
        self.count = self.count + (moved != x).reshape(len(x), -1).sum(1)

    def watch(self, rows: Tensor | None, quotient: Tensor, t: Tensor) -> None:
        old, when = (self.worst, self.when) if rows is None else (self.worst[rows], self.when[rows])
        new, when = torch.maximum(old, quotient), torch.where(quotient > old, t, when)
        self.worst = new if rows is None else self.worst.index_copy(0, rows, new)
        self.when = when if rows is None else self.when.index_copy(0, rows, when)

    def finish(self, problem: Problem, after: Callable[[int, Tree], object]) -> None:
        """The claim is checked, and the grid's states are told in order."""
        row = int(self.worst.argmax())
        if not float(self.worst[row]) <= 1 + ROUNDING:  # a rate that is no number is none either
            raise ValueError(
                f"at t = {self.when[row].item():g} an exit rate is {self.worst[row].item():.6g} times its bound, so this "
                f"run is not exact: use more `intervals`, or a larger `bound`"
            )
        problem.info.jumps = self.count
        x, place, y, t = self.x.flatten(), *self._in_order()
        ends = torch.searchsorted(-t, -problem.clock[1:], right=True).tolist()
        for i, (a, b) in enumerate(zip([0, *ends[:-1]], ends, strict=True)):
            if b > a:  # several changes of one coordinate: the last of them stands
                index = torch.arange(b - a, device=x.device)
                newest = torch.full_like(x, -1).scatter_reduce(0, place[a:b], index, "amax")
                x = torch.where(newest < 0, x, y[a:b][newest.clamp_min(0)])
            after(i, x.reshape(self.x.shape))

    def _in_order(self) -> tuple[Tensor, Tensor, Tensor]:
        """Places, new values and falling times of all jumps."""
        if not self.jumps:
            return self.x.new_zeros(0), self.x.new_zeros(0), self.worst.new_zeros(0)
        place, y, t, whether = (torch.cat(column) for column in zip(*self.jumps, strict=True))
        place, y, t = place[whether], y[whether], t[whether]
        order = t.argsort(descending=True, stable=True)  # those of one row are in order already
        return place[order], y[order], t[order]
