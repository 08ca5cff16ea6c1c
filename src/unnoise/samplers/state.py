"""What a run carries from step to step: the states, and what the method remembers of each row.

A method knows two kinds of things.  What is the same for the whole run (tables of coefficients, times) it lays out once, in
`setup`, and never changes.  What belongs to rows (predictions of earlier steps, values that are held, plans) is its
*memory*, a dataclass of its own with named fields.  Both x and memory have one entry per row, so a state can be asked for
some rows of itself,

    state.rows(index)        index: row numbers, in any order, with repeats, or fewer than there are

and rows are resampled, permuted or left out together with their history.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from torch import Tensor

from unnoise.shapes import AnyState


@dataclass(frozen=True)
class Memory:
    """Base of what a method remembers of rows: every tensor in its fields, in tuples and dicts too, has an entry per row."""

    def rows(self, index: Tensor) -> Any:
        """The memory of some rows."""
        return replace(self, **{field.name: _rows(getattr(self, field.name), index) for field in fields(self)})


def lengths(value: Any) -> set[int]:
    """The numbers of rows that the tensors of a memory have: a single one, if they belong together."""
    if isinstance(value, Tensor):
        return set(value.shape[:1])
    if isinstance(value, Memory):
        value = tuple(getattr(value, field.name) for field in fields(value))
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, tuple) else ()
    return {n for part in parts for n in lengths(part)}


def _rows(value: Any, index: Tensor) -> Any:
    if isinstance(value, Tensor) and value.ndim:
        return value[index]
    if isinstance(value, Memory):
        return value.rows(index)
    if isinstance(value, Mapping):
        return {name: _rows(part, index) for name, part in value.items()}
    if isinstance(value, tuple):
        return tuple(_rows(part, index) for part in value)
    if value is None:
        return None
    raise TypeError(
        f"a memory holds a {type(value).__name__}, which has no rows: keep tensors, tuples and dicts of them, and put what "
        f"is the same for all rows into `setup`"
    )


@dataclass(frozen=True)
class State(Memory):
    """Where the rows are, what the method remembers of them, and how many coordinates have changed where that is counted."""

    x: AnyState
    memory: Any = None  # a Memory of the method's own, or None
    jumps: Tensor | None = None

    def to(self, x: AnyState, memory: Memory | None = None) -> "State":
        """The rows elsewhere, with another memory (none unless given)."""
        return State(x, memory, self.jumps)

    def counted(self, moved: Tensor, origin: Tensor) -> "State":
        """With the coordinates counted in which `moved` differs from where it came from."""
        jumps = (moved != origin).reshape(len(origin), -1).sum(1)
        return replace(self, jumps=jumps if self.jumps is None else self.jumps + jumps)


@dataclass(frozen=True)
class Told(State):
    """States at a time of the grid that a method tells of on its way, but does not go on from."""

    why: str = ""

    def rows(self, index: Tensor) -> Any:
        raise TypeError(self.why)


class StopSampling(Exception):
    """Raised by a callback, it ends the run: the samples are the states at the time that was reached."""
