"""The table in words: for a terminal, as markdown, as JSON."""

from dataclasses import dataclass
from typing import Any

from unnoise.bench.figures import GIB, Figure
from unnoise.bench.timing import Timing

HEAD = ["row", "what", "floor", "ours", "ratio", "aim", "peers", "memory"]


@dataclass(frozen=True, kw_only=True)
class BenchReport:
    """Figures, and what they were measured with and when."""

    figures: list[Figure]
    machine: str
    size: str
    versions: dict[str, str]
    date: str
    command: str
    seconds: float

    @property
    def failed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.error is not None]

    def json(self) -> dict[str, Any]:
        told = {"date": self.date, "machine": self.machine, "size": self.size, "versions": self.versions}
        ran = {"command": self.command, "seconds": self.seconds}
        return {**told, **ran, "rows": [figure.json() for figure in self.figures]}

    def origin(self) -> str:
        known = ", ".join(f"{name} {number}" for name, number in self.versions.items())
        return f"{self.date}, {self.machine}; size {self.size}; {known}; {self.seconds:.0f} s"

    def text(self) -> str:
        """Lines of equal width, for a terminal."""
        rows = [HEAD, *(cells(figure) for figure in self.figures)]
        widths = [max(len(row[i]) for row in rows) for i in range(len(HEAD))]
        lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
        return "\n".join(
            [lines[0], "  ".join("-" * width for width in widths), *lines[1:], "", *self.notes(), self.origin()]
        )

    def markdown(self) -> str:
        rows = [HEAD, ["---"] * len(HEAD), *(cells(figure) for figure in self.figures)]
        table = ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
        notes = [f"- {note}" for note in self.notes()]
        return "\n".join([f"`{self.command}`: {self.origin()}", "", *table, "", *notes]).rstrip() + "\n"

    def notes(self) -> list[str]:
        """What a figure is made of, and why one is missing."""
        said = []
        for figure in self.figures:
            if figure.parts:
                parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in figure.parts.items())
                said.append(f"{figure.row}: {figure.what}: {parts}")
            if figure.error is not None:
                said.append(f"{figure.row} failed: {figure.error}")
        return said


def cells(figure: Figure) -> list[str]:
    """One line of the table."""
    if figure.error is not None:
        return [figure.row, figure.what, "-", "failed", "-", "-", "-", "-"]
    peers = [f"{name} {seconds(timing)}{_memory(timing)}" for name, timing in figure.peers.items()]
    reached = {None: "", True: ": reached", False: ": not reached"}[figure.reached]
    return [
        figure.row,
        figure.what,
        f"{seconds(figure.floor)}, {figure.floor_is}" if figure.floor else "-",
        _with_spread(figure.ours),
        "-" if figure.ratio is None else f"{figure.ratio:.2f}",
        figure.aim.words() + reached if figure.aim else "-",
        ", ".join(peers) or "-",
        _memories(figure),
    ]


def seconds(timing: Timing | None) -> str:
    """In the unit that suits."""
    if timing is None:
        return "-"
    return _in_unit(timing.seconds, *unit(timing.seconds))


def unit(value: float) -> tuple[float, str]:
    return (1.0, "s") if value >= 1 else (1e3, "ms") if value >= 1e-3 else (1e6, "µs")


def _in_unit(value: float, factor: float, name: str) -> str:
    return f"{value * factor:.3g} {name}" if value * factor < 999.5 else f"{value * factor:.0f} {name}"


def _with_spread(timing: Timing | None) -> str:
    if timing is None:
        return "-"
    factor, name = unit(timing.seconds)
    return f"{seconds(timing).removesuffix(name).rstrip()} ± {timing.spread * factor:.2g} {name}"


def _memory(timing: Timing) -> str:
    return "" if timing.memory is None else f" ({timing.memory / GIB:.2f} GiB)"


def _memories(figure: Figure) -> str:
    """Ours, and the floor's."""
    ours, floor = (None if timing is None else timing.memory for timing in (figure.ours, figure.floor))
    if ours is None:
        return "-"
    return f"{ours / GIB:.2f} GiB" + ("" if floor is None else f", floor {floor / GIB:.2f}")
