"""What the coordinates of a leaf are, as far as training asks: which weightings, times and schedules concern them.

`leaf_kind` is open: `@leaf_kind.register(MyProcess)` on a function that says "number", "count" or "category" gives a process
of one's own the settings of that kind.  What registers nothing is "other", and trained by the bound as it is.
"""

from functools import singledispatch

from unnoise.processes import FiniteProcess, Gaussian, Process, Thinning


@singledispatch
def leaf_kind(process: Process) -> str:
    return "other"


@leaf_kind.register
def _(process: Gaussian) -> str:
    return "number"


@leaf_kind.register
def _(process: Thinning) -> str:
    return "count"


@leaf_kind.register
def _(process: FiniteProcess) -> str:
    return "category"


def leaf_processes(process: Process) -> list[Process]:
    """The leaves of a product to any depth, or the process itself; of a chain those of the process it restricts."""
    process = process.base
    return [leaf for part in process.leaves.values() for leaf in leaf_processes(part)] or [process]


def named_leaves(process: Process) -> dict[str, Process]:
    """The leaves of a product by name; a process without leaves has the name ""."""
    return process.base.leaves or {"": process.base}


def has(process: Process, kind: str) -> bool:
    return any(leaf_kind(leaf) == kind for leaf in leaf_processes(process))
