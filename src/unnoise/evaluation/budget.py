"""How long an evaluation may take, and what was cut short so that it took no longer.

    with budget.part("bound"):  ...            # a line of the progress bar
    budget.cut("bound: 3 of 8 draws")          # said at the end, with how to have all

A part asks how many seconds it may use (`share`) and does as much as fits; a part that was asked for by number is not cut.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from math import inf
from time import perf_counter

import torch
from tqdm import tqdm


@contextmanager
def calm_threads() -> Iterator[None]:
    """On a machine that is busy torch works on one thread here: several wait for each other at every small step."""
    before, cores = torch.get_num_threads(), os.cpu_count() or 1
    busy = hasattr(os, "getloadavg") and os.getloadavg()[0] > cores
    torch.set_num_threads(1 if busy else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Budget:
    def __init__(self, seconds: float = inf, parts: int = 0, progress: bool = False):
        self.seconds, self.began = seconds, perf_counter()
        self.cuts: list[str] = []
        self.bar = tqdm(total=parts, unit="part", desc="evaluating", disable=not progress, leave=False)

    @property
    def left(self) -> float:
        return self.seconds - (perf_counter() - self.began)

    def share(self, part: float) -> float:
        """Seconds for the next thing: a part of those that are left."""
        return max(0.0, part * self.left)

    @contextmanager
    def part(self, name: str) -> Iterator[None]:
        self.bar.set_description(name)
        yield
        self.bar.update(min(1, self.bar.total - self.bar.n) if self.bar.total else 0)

    def cut(self, words: str) -> None:
        self.cuts.append(words)

    def close(self) -> None:
        self.bar.close()


def affordable(wanted: int, tried: int, took: float, seconds: float) -> int:
    """How many of something, when `tried` of them took so long: no fewer than were tried, no more than wanted."""
    if seconds == inf:
        return wanted
    return min(wanted, max(tried, int(tried * seconds / max(took, 1e-9))))
