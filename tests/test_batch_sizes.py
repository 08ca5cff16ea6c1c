"""How many rows are worked on at once, and what happens where there is no memory for them."""

import warnings

import pytest
import torch

from unnoise import batch_sizes
from unnoise.batch_sizes import (
    GIB,
    DeviceMemory,
    HostMemory,
    LiveBytes,
    Need,
    even,
    in_batches,
    measured,
    memory_of,
    out_of_memory,
)


class Pretended(DeviceMemory):
    """A device whose work needs what it is told to."""

    busy, most = 4 * GIB, 2**16

    def __init__(self, free: int, fixed: int = 0, per_row: int = 0):
        self.room, self.fixed, self.per_row, self.asked = free, fixed, per_row, []

    def free(self):
        return self.room

    def work(self, rows, anew):
        self.asked.append(rows)

    def peak(self, work):
        work(lambda: None)
        return self.fixed + self.per_row * self.asked[-1]


def test_what_is_fixed_and_what_a_row_needs_are_told_apart():
    device = Pretended(8 * GIB, fixed=30_000_000, per_row=250_000)
    assert measured(device.work, device, 1000) == Need(3e7, 2.5e5)
    assert device.asked == [8, 8, 32]  # once beforehand, for what is made in a first run and kept
    assert measured(device.work, device, 6) == Need(3e7, 2.5e5) and max(device.asked[3:]) == 6
    assert measured(device.work, device, 1) == Need(0.0, 3.025e7)  # one row tells no two things apart


def test_a_batch_is_what_keeps_a_device_busy():
    assert Need(0.0, 2.0**18).rows(Pretended(100 * GIB)) == 2**14  # 4 GiB of 256 KiB
    assert Need(0.0, 10.0).rows(Pretended(100 * GIB)) == 2**16  # no more, however little a row needs
    assert Need(0.0, 0.0).rows(Pretended(100 * GIB)) == 2**16


def test_but_no_more_than_half_of_what_is_free():
    assert Need(float(GIB), 2.0**20).rows(Pretended(6 * GIB)) == 2048  # (6/2 - 1) GiB of 1 MiB
    assert Need(float(GIB), 2.0**20).rows(Pretended(GIB)) == 1  # too little even for what is fixed: it is tried with one row


def test_the_host_s_memory_is_that_of_tensors_held_at_once():
    def work(rows, anew):
        torch.zeros(10**6)  # a table that is laid out beforehand
        anew()
        first = torch.zeros(rows, 1000)
        second = first + 1
        del first
        third = second.view(-1)  # of no memory of its own
        return third * 2

    assert HostMemory().peak(lambda anew: work(10, anew)) == 2 * 10 * 4000
    need = measured(work, HostMemory(), 100)
    assert need.per_row == 8000 and need.fixed == 0
    with LiveBytes() as live:
        kept = torch.zeros(500)
        del kept
        assert live.now == 0 and live.peak == 2000


def test_the_host_says_what_is_free():
    host = memory_of(torch.device("cpu"))
    assert isinstance(host, HostMemory) and host.free() > 2**20


@pytest.mark.parametrize(
    ("rows", "most", "size"), [(32561, 16384, 16281), (1000, 1024, 1000), (10, 4, 4), (9, 4, 3), (1, 8, 1)]
)
def test_batches_are_as_large_as_one_another(rows, most, size):
    assert even(rows, most) == size


ERRORS = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:121] err == 0. DefaultCPUAllocator: can't allocate memory: you tried 9"),
    RuntimeError("[enforce fail] data. DefaultCPUAllocator: not enough memory: you tried to allocate 7 bytes"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("CUDA error: out of memory"),
    MemoryError(),
]


@pytest.mark.parametrize("error", ERRORS)
def test_where_memory_runs_out_the_batch_is_halved_and_the_work_goes_on(error):
    assert out_of_memory(error)
    tried = []

    def work(first, count):
        tried.append((first, count))
        if count > 3:
            raise error
        return list(range(first, first + count))

    with pytest.warns(UserWarning, match="memory ran out with 12 rows at a time: going on with 3") as told:
        done = in_batches(20, 12, work)
    assert [row for part in done for row in part] == list(range(20)) and len(told) == 1
    assert tried == [(0, 12), (0, 6)] + [(first, 3) for first in range(0, 18, 3)] + [(18, 2)]


def test_it_is_said_once_though_more_halves_follow():
    def work(first, count):
        if count > (4 if first < 8 else 2):
            raise MemoryError
        return count

    with pytest.warns(UserWarning, match="ran out with 16 .* going on with 4") as told:
        assert in_batches(16, 16, work) == [4, 4, 2, 2, 2, 2]
    assert len(told) == 1


def test_nothing_is_said_and_nothing_is_cut_where_there_is_room():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert in_batches(10, 4, lambda first, count: (first, count)) == [(0, 4), (4, 4), (8, 2)]
        assert in_batches(0, 4, lambda first, count: 1 / 0) == []


def test_other_errors_and_a_single_row_without_room_are_raised():
    def wrong(first, count):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    with pytest.raises(RuntimeError, match="mat1"):
        in_batches(8, 8, wrong)

    def huge(first, count):
        raise MemoryError("one row is too much")

    with pytest.raises(MemoryError, match="one row"):
        in_batches(8, 8, huge)


def test_of_loops_within_one_another_the_outermost_halves():
    """Or else every batch of the outer loop would run out of memory by itself."""
    tried = []

    def inner(first, count):
        tried.append(count)
        if count > 2:
            raise MemoryError
        return count

    with pytest.warns(UserWarning, match="with 8 rows at a time: going on with 2") as told:
        in_batches(8, 8, lambda first, count: in_batches(count, count, inner))
    assert tried == [8, 4, 2, 2, 2, 2] and len(told) == 1
    with pytest.warns(UserWarning, match="with 4 rows at a time: going on with 2"):  # a single row cannot be halved outside
        in_batches(1, 1, lambda first, count: in_batches(4, 4, inner))


def test_what_was_tried_is_let_go_before_the_next_attempt(monkeypatch):
    monkeypatch.setattr(batch_sizes, "_tidy", lambda: None)  # without the help of the collector

    def work(first, count):
        held = torch.zeros(count, 1000)
        if count > 4:
            raise MemoryError
        return float(held.sum())

    with LiveBytes() as live, pytest.warns(UserWarning):
        in_batches(8, 8, work)
    assert live.peak == 8 * 4000 and live.now == 0
