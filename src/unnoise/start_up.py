"""How long a command takes to start: until its modules are there, counted from the start of the process, and part by part.

Of a training

    import           until the command's modules are there
    read             the file
    build            the network, the optimiser, the device
    first updates    in which kernels are compiled
    record           an update recorded as a whole, where that is done

stand in the metrics of the run as one entry, `start_up`, and in its report.
"""

import os
import time
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import Any


def process_age() -> float:
    """Seconds since this process was started; 0 where the system does not say."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / os.sysconf("SC_CLK_TCK")
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - started)
    except (OSError, ValueError, IndexError, AttributeError):
        return 0.0


class StartUp:
    """Seconds by part: `mark(name)` is what has passed since the last mark."""

    def __init__(self, age: float = 0.0):
        self.parts: dict[str, float] = {}
        self.last = perf_counter() - age

    def mark(self, name: str) -> None:
        now = perf_counter()
        self.parts[name] = self.parts.get(name, 0.0) + now - self.last
        self.last = now


_of_process: StartUp | None = None


def begin() -> None:
    """Of a process that runs one command, before all else."""
    global _of_process
    _of_process = StartUp(process_age())


def of_command() -> StartUp:
    """The clock of the command; one that starts now where it is not the first thing that its process does."""
    global _of_process
    clock, _of_process = _of_process or StartUp(), None
    return clock


def start_up_words(parts: dict[str, float]) -> str:
    each = ", ".join(f"{name} {seconds:.1f}" for name, seconds in parts.items())
    return f"start-up {sum(parts.values()):.1f} s: {each}"


def start_up_of(lines: list[dict[str, Any]]) -> dict[str, float]:
    """That of the last training among the metrics of a run."""
    told = [line["start_up"] for line in lines if isinstance(line.get("start_up"), dict)]
    parts = told[-1] if told else {}
    return {name: seconds for name, seconds in parts.items() if isinstance(seconds, float | int) and isfinite(seconds)}
