"""How long a call takes, and how much memory it asks for.

The clock is read when the device has done all that it was given.  Calls that are compared take turns, so that a machine that
slows down slows them all; what is told is the median of the rounds, with half the distance of their quartiles beside it.  A
call that takes less than a few milliseconds is made several times between two readings.  The first call of each, in which
kernels are compiled and libraries choose their algorithms, is not timed.

Memory is the most that stood allocated during a call above what stood before the very first one, so that what is kept from
call to call counts as well; on CUDA alone.
"""

import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from math import ceil
from time import perf_counter, process_time
from typing import Any

import torch
from torch import nn

Call = Callable[[], Any]
SHORTEST = 5e-3  # seconds between two readings of the clock, at least


@dataclass(frozen=True)
class Timing:
    """Seconds of a call: the median of several, half the distance of their quartiles, the peak of memory in bytes, and the
    least of the times: what disturbs a call only adds to it."""

    seconds: float
    spread: float = 0.0
    memory: int | None = None
    least: float | None = None

    def over(self, parts: int | float) -> "Timing":
        """The same, for one of so many equal parts."""
        least = None if self.least is None else self.least / parts
        return replace(self, seconds=self.seconds / parts, spread=self.spread / parts, least=least)

    @classmethod
    def of(cls, seconds: list[float], memory: int | None = None) -> "Timing":
        if len(seconds) < 2:
            return cls(seconds[0], 0.0, memory, seconds[0])
        low, _, high = statistics.quantiles(seconds, n=4, method="inclusive")
        return cls(statistics.median(seconds), (high - low) / 2, memory, min(seconds))


Clock = Callable[[torch.device], float]


def clock(device: torch.device) -> float:
    """The time in seconds, when all work on the device is done."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return perf_counter()


def undisturbed(device: torch.device) -> float:
    """The same, but on a processor the time that it has given to this process: what else it does is left out."""
    return clock(device) if device.type == "cuda" else process_time()


class _Watched:
    """A call with its times and its peak of memory."""

    def __init__(self, call: Call, device: torch.device, clock: Clock):
        self.call, self.device, self.clock, self.times = call, device, clock, list[float]()
        self.on_cuda = device.type == "cuda"
        before = torch.cuda.memory_allocated(device) if self.on_cuda else 0
        call()  # compiles, chooses algorithms
        if self.on_cuda:
            torch.cuda.synchronize(device)
            torch.cuda.reset_peak_memory_stats(device)
        start = clock(device)
        call()
        self.first = clock(device) - start
        self.memory = torch.cuda.max_memory_allocated(device) - before if self.on_cuda else None
        self.inner = ceil(SHORTEST / max(self.first, 1e-9)) if self.first < SHORTEST else 1

    def time(self) -> float:
        """One more round; how long it took."""
        start = self.clock(self.device)
        for _ in range(self.inner):
            self.call()
        took = self.clock(self.device) - start
        self.times.append(took / self.inner)
        return took

    def timing(self) -> Timing:
        return Timing.of(self.times or [self.first], self.memory)


def taken(
    calls: Mapping[str, Call], device: torch.device, rounds: int = 9, seconds: float = 10.0, clock: Clock = clock
) -> dict[str, Timing]:
    """The time of each call: so many alternating rounds, or fewer once `seconds` have gone by."""
    watched = {name: _Watched(call, device, clock) for name, call in calls.items()}
    spent = sum(one.first for one in watched.values())
    for _ in range(rounds):
        if spent > seconds:
            break
        spent += sum(one.time() for one in watched.values())
    return {name: one.timing() for name, one in watched.items()}


def recorded(call: Call, device: torch.device) -> Call:
    """The kernels of a call as one CUDA graph, to be launched together; elsewhere than on CUDA the call itself."""
    if device.type != "cuda":
        return call
    stream = torch.cuda.Stream(device)
    stream.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.current_stream(device).wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph.replay


def half(device: torch.device) -> AbstractContextManager:
    """Autocast to bfloat16 on CUDA, as training runs there; nothing elsewhere."""
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """For the length of a `with`, torch has one thread of the processor."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def forget_gradients(module: nn.Module) -> None:
    for parameter in module.parameters():
        parameter.grad = None
