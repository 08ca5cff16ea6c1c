"""How many rows are worked on at once: no more than there is room for, nor more than keep the device busy.

What a batch of m rows needs at its worst is taken as  fixed + per_row * m,  measured on two small batches (`measured`).  The
batch is then the largest whose per_row * m fits into

    BUSY     what keeps a device busy.  A kernel takes as long as its launch when it moves some 20 MB (5 microseconds at
             4 TB/s), and a network holds ten to fifty such tensors at once: a gigabyte of them is work enough, and more
             memory makes nothing faster
    SHARE    of what is free, less `fixed`: recorded kernels and the allocator's rounding need the rest

and rows are cut into batches as equal as may be.  Numbers are a function of a row, not of its batch, so that the choice is
seen in the time alone.  What was measured may still be too little: where memory runs out, the batch is halved and the work
goes on (`in_batches`), and one warning says so.  Of loops within one another the outermost halves, as long as it can.
"""

import gc
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar
from weakref import finalize

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

T = TypeVar("T")
Anew = Callable[[], None]
Work = Callable[[Anew], Any]

GIB = 2**30
SHARE = 0.5  # of the memory that is free
TRIED = (8, 32)  # rows of the batches that are measured, at most
RAN_OUT = ("out of memory", "can't allocate memory", "not enough memory", "alloc_failed", "unable to allocate")


def out_of_memory(error: BaseException) -> bool:
    """Whether memory ran out: of a device, or of the host."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in RAN_OUT)


class DeviceMemory(ABC):
    """What is known of the memory that a device works in."""

    busy: int  # bytes of a batch that keep it busy
    most: int  # rows of a batch, whatever they need

    @abstractmethod
    def free(self) -> int:
        """Bytes that may still be asked for."""

    @abstractmethod
    def peak(self, work: Work) -> int:
        """Bytes that a piece of work, `work(anew)`, holds at its worst, beside what was there before: from the last
        `anew()` on, if it calls that."""


class CudaMemory(DeviceMemory):
    busy, most = 4 * GIB, 2**16

    def __init__(self, device: torch.device):
        self.device = device

    def free(self) -> int:
        kept = torch.cuda.memory_reserved(self.device) - torch.cuda.memory_allocated(self.device)
        return torch.cuda.mem_get_info(self.device)[0] + kept

    def peak(self, work: Work) -> int:
        before = torch.cuda.memory_allocated(self.device)
        torch.cuda.reset_peak_memory_stats(self.device)
        work(lambda: torch.cuda.reset_peak_memory_stats(self.device))
        return max(0, torch.cuda.max_memory_allocated(self.device) - before)


class HostMemory(DeviceMemory):
    """A processor's: batches larger than its cache are no faster, and who asks for too much is killed, not told."""

    busy, most = GIB // 2, 1024

    def free(self) -> int:
        """As Linux tells it; elsewhere it is taken to be enough."""
        try:
            lines = Path("/proc/meminfo").read_text().splitlines()
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable"))
        except (OSError, StopIteration, ValueError, IndexError):
            return int((self.busy + GIB) / SHARE)

    def peak(self, work: Work) -> int:
        with LiveBytes() as live:
            work(live.anew)
        return live.peak


class LiveBytes(TorchDispatchMode):
    """The bytes of tensors that were made and are still held: now, and at most so far."""

    def __init__(self) -> None:
        super().__init__()
        self.now = self.peak = 0
        self.known: set[int] = set()

    def anew(self) -> None:
        self.peak = self.now

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        for value in tree_leaves(out):
            if isinstance(value, Tensor):
                self._held(value.untyped_storage())
        return out

    def _held(self, storage: torch.UntypedStorage) -> None:
        name, size = storage._cdata, storage.nbytes()
        if name not in self.known:
            self.known.add(name)
            finalize(storage, self._freed, name, size)
            self.now += size
            self.peak = max(self.peak, self.now)

    def _freed(self, name: int, size: int) -> None:
        self.known.discard(name)
        self.now -= size


def memory_of(device: torch.device) -> DeviceMemory:
    return CudaMemory(device) if device.type == "cuda" else HostMemory()


@dataclass(frozen=True)
class Need:
    """Bytes of a batch: fixed + per_row * rows."""

    fixed: float
    per_row: float

    def rows(self, memory: DeviceMemory) -> int:
        """The largest batch that there is room and use for; at least one row."""
        room = min(memory.busy, SHARE * memory.free() - self.fixed)
        return max(1, min(memory.most, int(room / max(self.per_row, 1.0))))


def measured(work: Callable[[int, Anew], Any], memory: DeviceMemory, rows: int) -> Need:
    """What `work(m, anew)` needs, by two small batches of the rows; the first of them is done twice, for what is made once
    and kept.  Tables that are laid out beforehand may need more, but not more for more rows: it says `anew()` after them."""
    few, more = min(TRIED[0], max(1, rows // 4)), min(TRIED[1], rows)
    work(few, lambda: None)
    low, high = memory.peak(lambda anew: work(few, anew)), memory.peak(lambda anew: work(more, anew))
    per_row = max(0.0, (high - low) / (more - few)) if more > few else float(low)
    return Need(max(0.0, low - per_row * few), per_row)


def even(rows: int, most: int) -> int:
    """The size of batches of at most so many rows that are as large as one another."""
    return -(-rows // max(1, -(-rows // most)))


def in_batches(rows: int, size: int, work: Callable[[int, int], T]) -> list[T]:
    """`work(first, count)` for all rows, `size` of them at a time; half as many from where memory runs out."""
    done, first, too_many, said = list[T](), 0, 0, False
    while first < rows:
        count = min(size, rows - first)
        result = _tried(work, first, count)
        if result is None:
            too_many, size = too_many or count, count // 2
            _tidy()
            continue
        if too_many and not said:
            warnings.warn(f"memory ran out with {too_many} rows at a time: going on with {size}", stacklevel=2)
            said = True
        done.append(result[0])
        first += count
    return done


_left_to_others = ContextVar("whether a loop around this one can halve", default=False)


def _tried(work: Callable[[int, int], T], first: int, count: int) -> tuple[T] | None:
    """What was done, or None where memory ran out: out of here nothing holds on to what was tried."""
    others = _left_to_others.get()
    token = _left_to_others.set(others or count > 1)
    try:
        return (work(first, count),)
    except (RuntimeError, MemoryError) as error:
        if others or count == 1 or not out_of_memory(error):
            raise
        return None
    finally:
        _left_to_others.reset(token)


def _tidy() -> None:
    gc.collect()
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.empty_cache()
