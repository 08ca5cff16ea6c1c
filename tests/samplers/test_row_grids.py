"""Grids of rows: every coordinate once, in order, one in a call, near its time; shared evenly where calls are few."""

import pytest
import torch

from unnoise.noise import NoiseSource
from unnoise.samplers.row_grids import NEVER, call_ends, row_grid

TIMES = torch.linspace(1, 0, 9, dtype=torch.float64)
STEPS = len(TIMES) - 1


def drawn(rows: int, width: int, never: float = 0.0) -> torch.Tensor:
    tau = NoiseSource(0, rows).at("tau").uniform((width,))
    return torch.where(NoiseSource(0, rows).at("never").uniform((width,)) < never, NEVER, tau)


def walked(grid, calls: int, reveals: int, shared: int):
    """Of each row: the calls in which it moves, as (call, step), and what it reveals, as (call, step, coordinates)."""
    moves, shown = [[] for _ in grid.times], [[] for _ in grid.times]
    for call in range(calls):
        step, stays = grid.place(call, STEPS)
        some = grid.shown(call, shared, reveals)
        for r in range(len(grid.times)):
            found = [k for k in some[r].tolist() if k < grid.order.shape[1]]
            if found:
                shown[r].append((call, int(step[r]), found))
            if not stays[r]:
                moves[r].append((call, int(step[r])))
    return moves, shown


@pytest.mark.parametrize("never", [0.0, 0.4])
def test_every_coordinate_has_a_call_of_its_own(never):
    tau = drawn(200, 5, never)
    grid = row_grid(tau, TIMES, 5, True)
    assert grid.times.shape == (200, STEPS + 5)
    moves, shown = walked(grid, STEPS + 5, 5, 1)
    for r, own in enumerate(tau.tolist()):
        assert [step for _, step in moves[r]] == list(range(STEPS))  # every step once, in order
        order = sorted((k for k in range(5) if own[k] > NEVER), key=lambda k: -own[k])
        assert [found for *_, found in shown[r]] == [[k] for k in order]
        used = [call for call, _ in moves[r]] + [call for call, *_ in shown[r]]
        assert len(used) == len(set(used))  # what moves does not reveal
        for call, step, (k,) in shown[r]:
            nearest = int((TIMES - own[k]).abs().argmin())
            assert step == min(nearest, STEPS - 1)
            assert float(grid.times[r, call]) == float(TIMES[step])
            assert all((earlier < step) == (at < call) for at, earlier in moves[r])  # it stands there, between two moves


def test_where_nothing_else_moves_calls_are_made_at_the_times_themselves():
    tau = drawn(50, 4, 0.3)
    grid = row_grid(tau, TIMES, 4, False)
    assert grid.times.shape == (50, 4)
    for call in range(4):
        some = grid.shown(call, 1, 4)[:, 0]
        there = some < 4
        assert torch.equal(grid.times[there, call], tau.gather(1, some.clamp_max(3).unsqueeze(1))[there, 0])
        assert torch.equal(there, (tau > NEVER).sum(1) > call)  # first come, first shown


@pytest.mark.parametrize("reveals", [1, 3, 4, 7, 10])
def test_rows_with_more_share_calls_evenly(reveals):
    tau = drawn(60, 10, 0.2)
    shared = -(-10 // reveals)
    grid = row_grid(tau, TIMES, reveals, True)
    moves, shown = walked(grid, STEPS + reveals, reveals, shared)
    for r, own in enumerate(tau.tolist()):
        assert [step for _, step in moves[r]] == list(range(STEPS))
        order = sorted((k for k in range(10) if own[k] > NEVER), key=lambda k: -own[k])
        assert [k for *_, found in shown[r] for k in found] == order
        sizes = [len(found) for *_, found in shown[r]]
        assert len(sizes) == min(reveals, len(order)) and (not sizes or max(sizes) - min(sizes) <= 1)


def test_a_row_does_not_depend_on_the_others_nor_on_calls_that_it_leaves_idle():
    tau = drawn(20, 6, 0.5)
    whole = row_grid(tau, TIMES, 6, True)
    for r in range(20):
        count = max(1, int((tau[r] > NEVER).sum()))
        alone = row_grid(tau[r : r + 1], TIMES, count, True)
        used = STEPS + count
        assert torch.equal(alone.times[0], whole.times[r, :used]) and torch.equal(alone.reveals[0], whole.reveals[r, :used])
        assert bool(whole.place(STEPS + 5, STEPS)[1][r]) == (count < 6 or bool(whole.reveals[r, -1]))


def test_what_lies_behind():
    tau = torch.tensor([[0.9, NEVER, 0.2]], dtype=torch.float64)
    grid = row_grid(tau, TIMES, 3, True)
    first = int(grid.reveals[0].nonzero()[0, 0])
    assert grid.behind(first, 3, True).tolist() == [[False, True, False]]
    assert grid.behind(first + 1, 3, True).tolist() == [[True, True, False]]
    assert grid.behind(first + 1, 3, False).tolist() == [[True, False, False]]


def test_steps_end_after_the_calls_that_are_expected():
    assert call_ends([0.25, 0.5, 0.75, 1.0], 8, True) == [3, 6, 9, 12]
    assert call_ends([0.25, 0.5, 0.75, 1.0], 2, False) == [0, 1, 1, 2]
    assert call_ends([1.0, 1.0], 3, False) == [2, 3]  # the last step has a call, whatever is expected
    assert call_ends([0.3, 0.6], 5, True) == [2, 7]  # a grid that ends before all is revealed has room for all
