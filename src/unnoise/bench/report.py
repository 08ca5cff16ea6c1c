"""The table in words: for a terminal, as markdown, as JSON."""

from dataclasses import dataclass
from typing import Any

from unnoise.bench.figures import GIB, Figure
from unnoise.bench.machine import Origin
from unnoise.bench.timing import Timing
from unnoise.evaluation.shown import table

HEAD = ["row", "what", "floor", "ours", "ratio", "aim", "peers", "memory"]


@dataclass(frozen=True)
class BenchReport:
    """The figures of the table, and what they were measured with."""

    figures: list[Figure]
    origin: Origin

    @property
    def failed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.error is not None]

    def json(self) -> dict[str, Any]:
        return {**self.origin.json(), "rows": [figure.json() for figure in self.figures]}

    def text(self) -> str:
        return in_lines(HEAD, [cells(figure) for figure in self.figures], self.notes(), self.origin)

    def markdown(self) -> str:
        return in_markdown(HEAD, [cells(figure) for figure in self.figures], self.notes(), self.origin)

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


def in_lines(head: list[str], rows: list[list[str]], notes: list[str], origin: Origin) -> str:
    """A table with columns of equal width, for a terminal."""
    return "\n".join([table(head, rows, most=200), "", *notes, origin.words()])


def in_markdown(head: list[str], rows: list[list[str]], notes: list[str], origin: Origin) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in [head, ["---"] * len(head), *rows]]
    said = ["", *(f"- {note}" for note in notes)] if notes else []
    return "\n".join([f"`{origin.command}`: {origin.words()}", "", *lines, *said]) + "\n"


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
    spread = f" ± {float(f'{timing.spread * factor:.2g}'):g}" if timing.spread else ""
    return f"{seconds(timing).removesuffix(name).rstrip()}{spread} {name}"


def _memory(timing: Timing) -> str:
    return "" if timing.memory is None else f" ({timing.memory / GIB:.2f} GiB)"


def _memories(figure: Figure) -> str:
    """Ours, and the floor's."""
    ours, floor = (None if timing is None else timing.memory for timing in (figure.ours, figure.floor))
    if ours is None:
        return "-"
    return f"{ours / GIB:.2f} GiB" + ("" if floor is None else f", floor {floor / GIB:.2f}")
