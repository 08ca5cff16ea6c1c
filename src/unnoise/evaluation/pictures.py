"""Pictures of a table beside rows that were drawn: what every column holds, pairs of columns, and how they hang together.

    marginals(real, drawn)     a histogram or bars for each column
    pairs(real, drawn)         the pairs of columns that hang together most, real rows beside drawn ones
    correlations(real, drawn)  maps of how strongly columns hang together, and the mean gap

Each takes two pandas frames of the same columns and gives a piece of HTML with inline SVG: no script, nothing from
elsewhere, as wide as there is room for, on light and dark pages.  Text has the colour of the page around it.
"""

from html import escape
from itertools import combinations
from typing import Any

import numpy as np

from unnoise.evaluation import tables

REAL, DRAWN = "#4a86c5", "#e0762f"
MOST_COLUMNS, MOST_PAIRS, MOST_IN_MAP = 24, 6, 14
BARS, LABELS, POINTS = 24, 6, 400
ROWS = 4000  # of each frame, at most
FLEX = "display:flex;flex-wrap:wrap;gap:14px 18px;align-items:flex-start"
GRID = "display:grid;grid-template-columns:repeat(auto-fill,minmax(160px,1fr));gap:14px 18px"  # all of one width


def marginals(real: Any, drawn: Any) -> str:
    real, drawn = _few(real, drawn)
    names = list(real.columns)[:MOST_COLUMNS]
    shown = [_histogram(n, real[n], drawn[n]) if tables.is_number(real[n]) else _bars(n, real[n], drawn[n]) for n in names]
    rest = len(real.columns) - len(names)
    return _block(shown, f"and {rest} columns more" if rest > 0 else "", style=GRID)


def pairs(real: Any, drawn: Any) -> str:
    real, drawn = _few(real, drawn)
    links = association(real)
    named = [(abs(links[i, j]), a, b) for (i, a), (j, b) in combinations(enumerate(real.columns), 2)]
    best = sorted(named, key=lambda entry: -entry[0])[:MOST_PAIRS]
    if not best:
        return "<p>one column has no pairs</p>"
    return _block([_scatter(real, drawn, a, b) for _, a, b in best])


def correlations(real: Any, drawn: Any) -> str:
    real, drawn = _few(real, drawn)
    names = list(real.columns)[:MOST_IN_MAP]
    if len(names) < 2:
        return "<p>one column has no correlations</p>"
    ours, theirs = association(real[names]), association(drawn[names], real[names])
    upper = np.triu_indices(len(names), 1)
    gap = float(np.abs(ours - theirs)[upper].mean())
    note = f"mean gap {gap:.3f}; Pearson's between two numbers, else Cramér's V with numbers in bins"
    return _block([_map("real", names, ours), _map("drawn", names, theirs)], note, legend=False)


def association(frame: Any, like: Any | None = None) -> np.ndarray:
    """Between columns: Pearson's correlation of two numbers, else Cramér's V; bins and labels are those of `like`."""
    frame, like = tables.plain(frame, frame if like is None else like)
    names, size = list(frame.columns), len(frame.columns)
    labels = {name: pair[1] for name, pair in tables.binned(like, frame).items()}
    out = np.eye(size)
    for (i, a), (j, b) in combinations(enumerate(names), 2):
        if tables.is_number(like[a]) and tables.is_number(like[b]):
            with np.errstate(invalid="ignore", divide="ignore"):
                value = float(frame[a].corr(frame[b]))
        else:
            value = _cramer(labels[a].to_numpy(), labels[b].to_numpy())
        out[i, j] = out[j, i] = np.nan_to_num(value)
    return out


def _cramer(a: np.ndarray, b: np.ndarray) -> float:
    """sqrt(chi^2 / (n (k - 1))), 0 for independent columns (less their chance value) and 1 where one tells the other."""
    (_, i), (_, j) = (np.unique(v, return_inverse=True) for v in (a, b))
    counts = np.zeros((i.max() + 1, j.max() + 1))
    np.add.at(counts, (i, j), 1)
    n, (rows, columns) = counts.sum(), counts.shape
    if min(rows, columns) < 2:
        return 0.0
    expected = counts.sum(1, keepdims=True) * counts.sum(0) / n
    phi = ((counts - expected) ** 2 / expected).sum() / n - (rows - 1) * (columns - 1) / max(1, n - 1)
    return float(np.sqrt(max(0.0, phi) / (min(rows, columns) - 1)).clip(0, 1))


def _few(*frames: Any) -> list[Any]:
    """Some rows of each as floats and texts."""
    return tables.plain(*(frame.sample(ROWS, random_state=0) if len(frame) > ROWS else frame for frame in frames))


def _block(figures: list[str], note: str = "", legend: bool = True, style: str = FLEX) -> str:
    keys = "".join(
        f"<span style='margin-right:1em;white-space:nowrap'><span style='display:inline-block;width:.8em;height:.8em;"
        f"background:{colour};margin-right:.35em'></span>{name}</span>"
        for name, colour in (("real", REAL), ("drawn", DRAWN))
    )
    head = f"<div style='font-size:13px;margin-bottom:6px'>{keys}</div>" if legend else ""
    foot = f"<div style='font-size:13px;margin-top:4px'>{escape(note)}</div>" if note else ""
    return f"<div>{head}<div style='{style}'>{''.join(figures)}</div>{foot}</div>"


def _figure(title: str, width: int, height: int, inside: str) -> str:
    """A picture with its title, `width` pixels wide where there is room."""
    head = f"<figcaption style='font-size:13px;overflow-wrap:anywhere'>{escape(title)}</figcaption>"
    label = escape(title, quote=True)
    svg = f"<svg viewBox='0 0 {width} {height}' role='img' aria-label='{label}' style='width:100%;height:auto'>"
    style = f"margin:0;min-width:0;flex:0 1 {width}px;max-width:100%"
    return f"<figure style='{style}'>{head}{svg}{inside}</svg></figure>"


def _text(x: float | int, y: float | int, words: str, anchor: str = "start", size: int = 11, more: str = "") -> str:
    place = f"x='{x:.1f}' y='{y:.1f}' font-size='{size}' text-anchor='{anchor}' {more}"
    return f"<text {place} fill='currentColor'>{escape(words)}</text>"


def _line(x0: float | int, y0: float | int, x1: float | int, y1: float | int) -> str:
    return f"<line x1='{x0:.1f}' y1='{y0:.1f}' x2='{x1:.1f}' y2='{y1:.1f}' stroke='currentColor' stroke-opacity='.35'/>"


def _range(*columns: Any) -> tuple[float, float]:
    """Where the bulk of the first column's values lie."""
    values = columns[0].dropna().to_numpy(float)
    if not len(values):
        return 0.0, 1.0
    low, high = np.quantile(values, [0.005, 0.995])
    return (float(low), float(high)) if high > low else (float(low) - 0.5, float(low) + 0.5)


def _histogram(name: str, real: Any, drawn: Any) -> str:
    width, height, floor, left = 220, 120, 100, 4
    low, high = _range(real)
    edges = np.linspace(low, high, BARS + 1)
    shares = []
    for column in (real, drawn):
        values = column.dropna().to_numpy(float).clip(low, high)
        shares.append(np.histogram(values, edges)[0] / max(1, len(column)))
    top = max(float(share.max()) for share in shares) or 1.0
    step, scale = (width - 2 * left) / BARS, (floor - 6) / top
    area = "".join(
        f"<rect x='{left + k * step:.1f}' y='{floor - s * scale:.1f}' width='{step - 0.6:.1f}' height='{s * scale:.1f}'/>"
        for k, s in enumerate(shares[0])
    )
    outline = " ".join(
        f"{left + (k + e) * step:.1f},{floor - s * scale:.1f}" for k, s in enumerate(shares[1]) for e in (0, 1)
    )
    inside = f"<g fill='{REAL}' fill-opacity='.55'>{area}</g>{_line(left, floor, width - left, floor)}"
    inside += f"<polyline points='{outline}' fill='none' stroke='{DRAWN}' stroke-width='2'/>"
    inside += _text(left, height - 5, f"{low:.4g}", size=13) + _text(width - left, height - 5, f"{high:.4g}", "end", 13)
    absent = [float(column.isna().mean()) for column in (real, drawn)]
    if max(absent) > 0:
        inside += _text(width / 2, height - 5, f"missing {absent[0]:.0%} | {absent[1]:.0%}", "middle", 12)
    return _figure(name, width, height, inside)


def _bars(name: str, real: Any, drawn: Any) -> str:
    """Shares of the most common labels, real above drawn, and of all others together."""
    ours, theirs = (column.value_counts(normalize=True) for column in (real, drawn))
    labels = list(ours.index[:LABELS])
    entries = [(_label(label), float(ours[label]), float(theirs.get(label, 0.0))) for label in labels]
    rest = [max(0.0, 1 - sum(shares)) for shares in ([a for _, a, _ in entries], [b for _, _, b in entries])]
    if len(ours) > LABELS or rest[1] > 0.005:
        entries.append((f"{max(0, len(ours) - LABELS)} others", rest[0], rest[1]))
    width, left, row = 220, 98, 18
    scale = (width - left - 6) / max(max(a, b) for _, a, b in entries)
    inside = ""
    for k, (label, a, b) in enumerate(entries):
        y = 3 + k * row
        inside += _text(left - 5, y + 12, label, "end", 13)
        inside += f"<rect x='{left}' y='{y}' width='{a * scale:.1f}' height='6.5' fill='{REAL}'/>"
        inside += f"<rect x='{left}' y='{y + 7}' width='{b * scale:.1f}' height='6.5' fill='{DRAWN}'/>"
    return _figure(name, width, 6 + row * len(entries), inside)


def _label(text: Any, most: int = 12) -> str:
    words = "missing" if text == tables.MISSING else str(text)
    return words if len(words) <= most else words[: most - 1] + "…"


def _common(column: Any) -> list[Any]:
    """The labels that are shown, in their order."""
    return list(column.value_counts().index[:LABELS])


def _axis(name: str, column: Any, way: str) -> str:
    """An axis in words: its name and where it leads, from number to number or from label to label."""
    if tables.is_number(column):
        return "{} ({}, {:.4g} to {:.4g})".format(name, way, *_range(column))
    return f"{name} ({way}: {', '.join(map(_label, _common(column)))})"


def _places(name: str, real: Any, frame: Any, rng: np.random.Generator) -> np.ndarray:
    """The column on [0, 1]: numbers on the real range, labels side by side with some jitter; NaN where nothing is shown."""
    column = frame[name]
    if tables.is_number(real[name]):
        low, high = _range(real[name])
        return ((column.to_numpy(float) - low) / (high - low)).clip(-0.02, 1.02)
    labels = _common(real[name])
    code = column.map({label: k for k, label in enumerate(labels)}).to_numpy(float)
    return (code + 0.5 + rng.uniform(-0.35, 0.35, len(code))) / len(labels)


def _scatter(real: Any, drawn: Any, a: str, b: str) -> str:
    """Real rows on the left, drawn ones on the right, on one scale."""
    size, gap, floor = 150, 14, 158
    inside = ""
    for k, (frame, colour) in enumerate(((real, REAL), (drawn, DRAWN))):
        rng, start = np.random.default_rng(0), 4 + k * (size + gap)
        some = frame.iloc[rng.permutation(len(frame))[:POINTS]]
        x, y = (_places(name, real, some, rng) for name in (a, b))
        dots = "".join(
            f"<circle cx='{start + 5 + u * (size - 10):.1f}' cy='{floor - 5 - v * (size - 10):.1f}' r='1.7'/>"
            for u, v in zip(x, y, strict=True)
            if u == u and v == v
        )
        inside += f"<rect x='{start}' y='{floor - size}' width='{size}' height='{size}' fill='none' stroke='currentColor' "
        inside += f"stroke-opacity='.35'/><g fill='{colour}' fill-opacity='.55'>{dots}</g>"
        inside += _text(start + size / 2, floor + 13, ("real", "drawn")[k], "middle")
    title = f"{_axis(b, real[b], 'up')} and {_axis(a, real[a], 'across')}"
    return _figure(title, 2 * size + gap + 8, floor + 18, inside)


def _map(title: str, names: list[str], values: np.ndarray) -> str:
    cell = 26 if len(names) <= 10 else 20
    left, top = 86, 70
    inside = ""
    for i, name in enumerate(names):
        inside += _text(left - 5, top + (i + 0.5) * cell + 4, _label(name), "end")
        x, y = left + (i + 0.5) * cell + 3, top - 5
        inside += _text(x, y, _label(name), more=f"transform='rotate(-50 {x:.1f} {y:.1f})'")
        for j in range(len(names)):
            value = float(values[i, j])
            colour = DRAWN if value > 0 else REAL
            place = f"x='{left + j * cell}' y='{top + i * cell}' width='{cell - 1}' height='{cell - 1}'"
            told = f"{escape(name)}, {escape(names[j])}: {value:.2f}"
            inside += f"<rect {place} fill='{colour}' fill-opacity='{min(1.0, abs(value)):.2f}'><title>{told}</title></rect>"
            if cell >= 26 and i != j and abs(value) >= 0.05:
                inside += _text(
                    left + (j + 0.5) * cell, top + (i + 0.5) * cell + 4, f"{value:.1f}".replace("0.", "."), "middle"
                )
    frame = f"<rect x='{left}' y='{top}' width='{cell * len(names)}' height='{cell * len(names)}' fill='none' "
    inside += frame + "stroke='currentColor' stroke-opacity='.35'/>"
    width = left + cell * len(names) + 60
    return _figure(title, width, top + cell * len(names) + 4, inside)
