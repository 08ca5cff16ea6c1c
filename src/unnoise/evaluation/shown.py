"""Figures and tables in plain text, for a terminal."""

from typing import Any


def table(head: list[str], rows: list[list[str]], most: int = 60) -> str:
    """Columns of equal width; long cells are cut."""
    cut = [[cell if len(cell) <= most else cell[: most - 1] + "…" for cell in row] for row in [head, *rows]]
    widths = [max(len(row[i]) for row in cut) for i in range(len(head))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in cut]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def shown(result: dict[str, Any]) -> str:
    """Figures line by line, and at the end a table of the samples beside the controls."""
    beside = {name: value for name, value in result.items() if name.startswith(("samples", "control_"))}
    text = _lines({name: value for name, value in result.items() if name not in beside})
    if not beside:
        return text
    figures = list(dict.fromkeys(name for values in beside.values() for name in values if not name.endswith("_why")))
    whys = [(name, why) for values in beside.values() for name, why in values.items() if name.endswith("_why")]
    text = "\n".join([text, *(_lines({name: why}) for name, why in dict.fromkeys(whys))])
    rows = [[_words(name), *(_cell(values.get(name)) for values in beside.values())] for name in figures]
    return f"{text}\n\n{table(['', *(_words(name).removeprefix('control ') for name in beside)], rows)}"


def _lines(result: dict[str, Any], indent: str = "") -> str:
    lines = []
    for name, value in result.items():
        if isinstance(value, dict):
            lines += [f"{indent}{_words(name)}", _lines(value, indent + "  ")]
        else:
            lines.append(f"{indent + _words(name):24} {_cell(value)}")
    return "\n".join(lines)


def _words(name: str) -> str:
    return name.replace("_", " ")


def _cell(value: Any) -> str:
    if isinstance(value, list):
        return "; ".join(value)
    return f"{value:.5g}" if isinstance(value, float) else "-" if value is None else str(value)
