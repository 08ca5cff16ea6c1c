"""What a row of the table says: a time beside the time that nothing can undercut, and beside those of other libraries."""

from dataclasses import dataclass, field, replace
from typing import Any

from unnoise.bench.timing import Timing

GIB = 2**30


@dataclass(frozen=True, kw_only=True)
class Aim:
    """What a figure should reach: any of a ratio to the floor, seconds, memory in GiB, and times as fast as the peers."""

    ratio: float | None = None
    seconds: float | None = None
    memory: float | None = None
    peers: float | None = None

    def words(self) -> str:
        said = [
            None if self.ratio is None else f"≤ {self.ratio:g} ×",
            None if self.seconds is None else f"≤ {self.seconds:g} s",
            None if self.memory is None else f"≤ {self.memory:g} GiB",
            None if self.peers is None else f"≥ {self.peers:g} × faster than peers",
        ]
        return ", ".join(part for part in said if part)


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One line: `ours` is the library's default way, `floor` what `floor_is` says, `peers` other ways to the same by name;
    `error` is why there is none of it."""

    what: str
    ours: Timing | None = None
    floor: Timing | None = None
    floor_is: str = ""
    peers: dict[str, Timing] = field(default_factory=dict)
    parts: dict[str, float] = field(default_factory=dict)  # seconds that `ours` is made of, by name
    aim: Aim | None = None
    row: str = ""  # the name that it was registered under
    error: str | None = None

    def named(self, row: str) -> "Figure":
        return replace(self, row=row)

    @property
    def ratio(self) -> float | None:
        """Times the floor."""
        return None if self.ours is None or self.floor is None else self.ours.seconds / self.floor.seconds

    @property
    def gain(self) -> float | None:
        """Times as fast as the fastest peer."""
        if self.ours is None or not self.peers:
            return None
        return min(peer.seconds for peer in self.peers.values()) / self.ours.seconds

    @property
    def reached(self) -> bool | None:
        """Whether all that is aimed at and was measured is reached; None: nothing was."""
        if self.aim is None or self.ours is None:
            return None
        memory = None if self.ours.memory is None else self.ours.memory / GIB
        below = ((self.ratio, self.aim.ratio), (self.ours.seconds, self.aim.seconds), (memory, self.aim.memory))
        held = [value <= most for value, most in below if value is not None and most is not None]
        if self.gain is not None and self.aim.peers is not None:
            held.append(self.gain >= self.aim.peers)
        return all(held) if held else None

    def json(self) -> dict[str, Any]:
        """Plain data, times in seconds and memory in bytes."""
        return {
            "row": self.row,
            "what": self.what,
            "floor": _json(self.floor),
            "floor_is": self.floor_is,
            "ours": _json(self.ours),
            "ratio": self.ratio,
            "peers": {name: _json(timing) for name, timing in self.peers.items()},
            "parts": self.parts,
            "aim": None if self.aim is None else self.aim.words(),
            "reached": self.reached,
            "error": self.error,
        }


def _json(timing: Timing | None) -> dict[str, Any] | None:
    return None if timing is None else {"seconds": timing.seconds, "spread": timing.spread, "memory": timing.memory}
