"""The leaves of a process: itself, or those of a product to any depth."""

from unnoise.processes import Process
from unnoise.tree import Path


def leaves_of(process: Process, path: Path = ()) -> list[tuple[Path, Process]]:
    """Each leaf with its path."""
    if not process.leaves:
        return [(path, process)]
    return [part for name, leaf in process.leaves.items() for part in leaves_of(leaf, (*path, name))]


def without_noise(process: Process, t: float) -> str | None:
    """The first leaf that has a density and no noise at this time, in words: there neither it nor its bound is finite."""
    for path, leaf in leaves_of(process):
        if leaf.has_density and leaf.noiseless(t):
            return f"the noise of leaf '{path[-1]}'" if path else "the noise"
    return None
