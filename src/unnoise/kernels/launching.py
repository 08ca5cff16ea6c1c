"""Kernels that are launched often: what the compiler made is remembered by a key of one's own.

Before a launch Triton looks at each argument for what it has compiled a kernel for: its type, whether it is a multiple of
16, whether it is 1.  For the fifty arguments of a step on numbers that takes the host longer than the device needs for it.
Here the caller says by a key what the compiler may have assumed, and the second launch with the same key goes straight to
the device.
"""

from collections.abc import Hashable
from typing import Any


class Launcher:
    """A kernel, and its compiled forms by key: two launches with the same key must agree in all that is compiled for."""

    def __init__(self, kernel: Any):
        self.kernel, self.compiled = kernel, dict[Hashable, Any]()

    def __call__(self, grid: tuple[int, int], key: Hashable, *arguments: Any) -> None:
        known = self.compiled.get(key)
        if known is not None:
            known[(*grid, 1)](*arguments)
            return
        made = self.kernel[grid](*arguments)
        if hasattr(made, "packed_metadata"):  # an interpreter compiles nothing
            self.compiled[key] = made


def class_of(number: int) -> tuple[bool, bool, bool]:
    """What is compiled for of a whole number: whether it is 1, a multiple of 16, more than 32 bits."""
    return number == 1, number % 16 == 0, number >= 2**31
