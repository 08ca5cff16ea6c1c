"""Lines over steps as inline SVG: as wide as the page, with an axis that leaves out the fall of the first moments."""

from dataclasses import dataclass
from html import escape
from math import isfinite

WIDTH, HEIGHT, LEFT, BOTTOM, TOP = 480, 220, 58, 26, 10


@dataclass(frozen=True)
class Course:
    name: str
    points: list[tuple[int, float]]
    colour: str


def chart(title: str, lines: list[Course]) -> str:
    """A line needs two points; the scale leaves out what lies far above the rest, which is drawn at its upper edge."""
    kept = [Course(line.name, [p for p in line.points if isfinite(p[1])], line.colour) for line in lines]
    kept = [line for line in kept if len(line.points) > 1]
    if not kept:
        return f"<p>{escape(title)}: nothing to draw yet</p>"
    low, high = _scale(kept)
    first, last = min(line.points[0][0] for line in kept), max(line.points[-1][0] for line in kept)

    def place(x: float | int, y: float) -> tuple[float, float]:
        across = LEFT + (WIDTH - LEFT - 10) * (x - first) / max(last - first, 1e-9)
        return across, TOP + (HEIGHT - BOTTOM - TOP) * (high - min(y, high)) / (high - low)

    inside = ""
    for value in (high, (high + low) / 2, low):
        y = place(first, value)[1]
        inside += (
            f"<line x1='{LEFT}' x2='{WIDTH - 10}' y1='{y:.1f}' y2='{y:.1f}' stroke='currentColor' stroke-opacity='.2'/>"
        )
        inside += _text(LEFT - 6, y + 4, f"{value:.4g}", "end")
    inside += _text(LEFT, HEIGHT - 6, f"step {first}", "start") + _text(WIDTH - 10, HEIGHT - 6, f"{last}", "end")
    for line in kept:
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(*point) for point in line.points))
        inside += f"<polyline points='{path}' fill='none' stroke='{line.colour}' stroke-width='2'/>"
    keys = "".join(
        f"<span style='margin-right:1em;white-space:nowrap'><span style='display:inline-block;width:.8em;height:.8em;"
        f"background:{line.colour};margin-right:.35em'></span>{escape(line.name)} {line.points[-1][1]:.4g}</span>"
        for line in kept
    )
    svg = f"<svg viewBox='0 0 {WIDTH} {HEIGHT}' role='img' aria-label='{escape(title, quote=True)}' "
    return (
        f"<figure style='margin:0;max-width:40rem'><figcaption>{escape(title)}</figcaption>"
        f"<div style='font-size:13px'>{keys}</div>{svg}style='width:100%;height:auto;min-width:0'>{inside}</svg></figure>"
    )


def _scale(lines: list[Course]) -> tuple[float, float]:
    """From the least to the largest, but of what comes after the first fifth of the way where the start lies far above."""
    values = [y for line in lines for _, y in line.points]
    last = max(line.points[-1][0] for line in lines)
    settled = [y for line in lines for x, y in line.points if x >= last / 5] or values
    low, high = min(values), max(values)
    spread = max(settled) - min(settled)
    if high > max(settled) + 3 * spread:
        high = max(settled) + 0.5 * spread
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _text(x: float | int, y: float | int, words: str, anchor: str) -> str:
    return f"<text x='{x:.1f}' y='{y:.1f}' font-size='13' fill='currentColor' text-anchor='{anchor}'>{escape(words)}</text>"
