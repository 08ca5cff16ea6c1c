"""A grid of times for each row: every masked coordinate is revealed in a call of its own.

Two coordinates that are revealed by one prediction are drawn as if independent.  Under masking nothing forces them to be:
when a coordinate is revealed has nothing to do with its value, so the times tau of a row are drawn before the loop, and its
grid is made to hold them.  Write t_0 > t_1 > ... > t_B for the common times.  A row goes along them, and where one of its
tau comes it *stays* for one call: the network is asked at (x, t_j), the coordinate is drawn, and nothing else moves.  The
next call finds it revealed, at the same time.  So a row with D masked coordinates takes B + D calls, and so do all rows:

    call             0     1     2     3     4     5     6
    one row stands   t_0   t_1   t_1   t_2   t_3   t_3   t_3        reveals one at t_1, two at t_3
    another          t_0   t_0   t_1   t_2   t_2   t_2   t_3

(and each moves on from where it stands unless the next entry is the same).  Shapes are the same for all rows and calls, and
where a row stands is a table on the device: no step asks for a number.

Why t_j, the nearest of the common times, and not tau?  The leaves are noised independently, so if (x_t, those revealed)
has its right law, then to draw one coordinate more from its law given them gives (x_t, those and that one) its right law,
at whatever t that is done; and steps of the other leaves take t to s with what is revealed held.  With the exact denoiser
every choice of times and orders leads to the data's law, and what remains is the error of the other leaves' steps.  With
another network the choice matters a little, and the model's own reverse process is the one that reveals at tau: the nearest
time is as often too early as too late, which changes laws by O(h^2), h the step of the grid.

Where nothing but masked leaves moves, the common times are of no use: calls are made at tau itself, as many as there are
masked coordinates.  That is first hitting.

Reveals have `reveals` calls in all.  A row with more masked coordinates shares them evenly, in the order of their tau.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.samplers.state import Memory
from unnoise.shapes import Bool, Float, Int

NEVER = -1.0  # the time of a coordinate that is not revealed


@dataclass(frozen=True)
class RowGrid(Memory):
    """Where each row stands in each call, and what it reveals there."""

    times: Float[Tensor, "rows calls"]  # what the network is told
    reveals: Bool[Tensor, "rows calls"]
    passed: Int[Tensor, "rows calls"]  # calls before this one that revealed
    order: Int[Tensor, "rows coordinates"]  # coordinates by their times, the highest first; those that are never last
    count: Int[Tensor, "rows"]  # how many are revealed at all

    def place(self, call: int, steps: int) -> tuple[Int[Tensor, "rows"], Bool[Tensor, "rows"]]:
        """The common step that each row is at, and whether it stays there in this call; at the end of the grid it does."""
        place = call - self.passed[:, call]
        return place.clamp_max(steps - 1), self.reveals[:, call] | (place >= steps)

    def shown(self, call: int, shared: int, reveals: int) -> Int[Tensor, "rows shared"]:
        """The coordinates that are revealed in this call, at most `shared` in a row; elsewhere their number."""
        none = self.order.shape[1]
        slot = self.passed[:, call]
        first, end = _first(slot, self.count, reveals), _first(slot + 1, self.count, reveals)
        rank = first.unsqueeze(1) + torch.arange(shared, device=slot.device)
        there = (rank < end.unsqueeze(1)) & self.reveals[:, call].unsqueeze(1)
        return torch.where(there, self.order.gather(1, rank.clamp_max(none - 1)), none)

    def behind(self, call: int, reveals: int, all_shown: bool) -> Bool[Tensor, "rows coordinates"]:
        """The coordinates whose call lies before this one, and where all are to be shown in the end those that have none."""
        rank = self.order.argsort(1)
        first = _first(self.passed[:, call], self.count, reveals)
        behind = rank < first.unsqueeze(1)
        return behind | (rank >= self.count.unsqueeze(1)) if all_shown else behind


def _first(slot: Tensor, count: Tensor, reveals: int) -> Tensor:
    """The rank of the first coordinate in a slot: one in each, or all of them spread evenly."""
    return torch.where(count > reveals, -((-slot * count) // reveals), slot)


def row_grid(tau: Float[Tensor, "rows coordinates"], times: Float[Tensor, "times"], reveals: int, moves: bool) -> RowGrid:
    """The grids of rows whose coordinates are revealed at tau (`NEVER`: not at all), along common times.

    `moves` says whether anything else moves.  Without, calls are made at tau alone.
    """
    steps, device = len(times) - 1, tau.device
    ordered, order = tau.sort(dim=1, descending=True, stable=True)
    count = (ordered > NEVER).sum(1)
    slot = torch.arange(reveals, device=device).expand(len(tau), -1)
    first = _first(slot, count.unsqueeze(1), reveals).clamp_max(tau.shape[1] - 1)
    used, moment = slot < count.unsqueeze(1), ordered.gather(1, first)
    calls = reveals + (steps if moves else 0)
    place = _nearest(moment, times).clamp_max(steps - 1) if moves else torch.zeros_like(slot)
    call = torch.where(used, place + slot, calls)  # places never fall, so no two slots meet
    shown = torch.zeros(len(tau), calls + 1, dtype=torch.bool, device=device).scatter(1, call, True)[:, :calls]
    passed = shown.cumsum(1) - shown.long()
    if moves:
        told = times[(torch.arange(calls, device=device) - passed).clamp_max(steps - 1)]
    else:
        told = torch.where(shown, moment.gather(1, passed.clamp_max(reveals - 1)), times[0])
    return RowGrid(told, shown, passed, order, count)


def _nearest(moment: Tensor, times: Float[Tensor, "times"]) -> Int[Tensor, "*shape"]:
    """Which of the falling times is the nearest: as many midpoints lie above."""
    middle = (times[1:] + times[:-1]) / 2
    return torch.bucketize(-moment, -middle)


def call_ends(share: list[float], reveals: int, moves: bool) -> list[int]:
    """After how many calls each common step ends, if rows are to be at its end then as nearly as one can say beforehand.

    `share` of the reveals is expected by then.  The last call belongs to the last step.
    """
    steps = len(share)
    ends = [int(reveals * part) + (i + 1 if moves else 0) for i, part in enumerate(share)]
    last = reveals + (steps if moves else 0)
    return [*(min(end, last - 1) for end in ends[:-1]), last]
