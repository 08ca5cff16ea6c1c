"""The page of a run: what it is trained on, how training went, samples, and those on the way."""

import html
import json
from base64 import b64encode
from pathlib import Path
from typing import Any

from unnoise.training import safe_files
from unnoise.training.metrics import read_metrics
from unnoise.training.panels import excerpt, panel_files
from unnoise.training.run import Run

STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; max-width: 56rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; } td, th { padding: .2rem .7rem; text-align: left; font-size: .9rem;
border-bottom: 1px solid #ddd; } pre { background: #f6f6f6; padding: 1rem; overflow-x: auto; } svg { background: #fcfcfc; }
img { image-rendering: pixelated; max-width: 100%; } .panels { display: flex; flex-wrap: wrap; gap: 1rem; }
.panels figure { margin: 0; max-width: 100%; } figcaption { font-size: .9rem; }
"""
WIDTH, HEIGHT, LEFT, BOTTOM = 640, 240, 64, 28
SHOWN = 4000  # characters of a file of samples


def write_report(run: Run, samples: Path | None = None) -> Path:
    """`report.html` in the run's folder; `samples` is a file of them to show."""
    lines, config = read_metrics(run.metrics), run.config
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    bounds = [(line["step"], line["validation_bound"]) for line in lines if "validation_bound" in line]
    understood = [[line.part, line.kind, line.values, line.process] for line in run.format().lines()]
    settings = [[name, json.dumps(value)] for name, value in config.train.to_json().items()]
    parts = [
        f"<h1>{html.escape(run.folder.resolve().name)}</h1>",
        f"<p>{html.escape(config.network['name'])} on {html.escape(config.format['kind'])} data.</p>",
        "<h2>The data</h2>" + _table(["part", "kind", "values", "noise"], understood),
        "<h2>Training</h2>",
        curve("loss", losses) + curve("bound on held-out rows, nats per example", bounds),
        _samples(samples),
        _panels(panel_files(run.samples)),
        "<h2>Settings</h2>" + _table(["name", "value"], settings),
    ]
    page = f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{html.escape(run.folder.name)}</title>"
    safe_files.write_text(run.report, f"{page}<style>{STYLE}</style><body>{''.join(parts)}</body></html>\n")
    return run.report


def _table(head: list[str], rows: list[list[Any]]) -> str:
    def cells(row: list[Any], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row) + "</tr>"

    return f"<table>{cells(head, 'th')}{''.join(cells(row, 'td') for row in rows)}</table>"


def curve(title: str, points: list[tuple[int, float]]) -> str:
    """A line in an SVG; its scale leaves out the first tenth, where training falls from far above."""
    points = [(x, y) for x, y in points if y == y and abs(y) != float("inf")]
    if len(points) < 2:
        return f"<p>{html.escape(title)}: nothing to draw yet</p>"
    settled = [y for _, y in points[len(points) // 10 :]]
    low, high = min(settled), max(settled)
    high = high if high > low else low + 1
    first, last = points[0][0], points[-1][0]

    def place(x: int, y: float) -> str:
        across = LEFT + (WIDTH - LEFT - 8) * (x - first) / max(last - first, 1e-9)
        up = 8 + (HEIGHT - BOTTOM - 8) * (high - min(y, high)) / (high - low)
        return f"{across:.1f},{up:.1f}"

    path = " ".join(place(x, y) for x, y in points)
    marks = [(high, 12), ((high + low) / 2, 8 + (HEIGHT - BOTTOM - 8) / 2), (low, HEIGHT - BOTTOM)]
    labels = "".join(
        f"<text x='{LEFT - 6}' y='{y:.0f}' text-anchor='end' font-size='11'>{value:.4g}</text>" for value, y in marks
    )
    ends = "".join(
        f"<text x='{x}' y='{HEIGHT - 8}' text-anchor='{anchor}' font-size='11'>{value:g}</text>"
        for value, x, anchor in ((first, LEFT, "start"), (last, WIDTH - 8, "end"))
    )
    line = f"<polyline points='{path}' fill='none' stroke='#2463a8' stroke-width='1.5'/>"
    return f"<h3>{html.escape(title)}</h3><svg width='{WIDTH}' height='{HEIGHT}'>{labels}{ends}{line}</svg>"


def _shown(path: Path, lines: int) -> str:
    """A file of samples in the page: a picture, or its first lines."""
    if path.suffix == ".png":
        data = b64encode(path.read_bytes()).decode()
        return f"<img alt='samples' src='data:image/png;base64,{data}'>"
    text = excerpt(path, lines)
    return f"<p>in {html.escape(path.name)}</p>" if text is None else f"<pre>{html.escape(text[:SHOWN])}</pre>"


def _samples(path: Path | None) -> str:
    return "" if path is None or not path.exists() else f"<h2>Samples</h2>{_shown(path, 100)}"


def _panels(panels: list[tuple[int, Path]]) -> str:
    """The same samples as training went on."""
    figures = [f"<figure><figcaption>step {step}</figcaption>{_shown(path, 6)}</figure>" for step, path in panels]
    return f"<h2>On the way</h2><div class='panels'>{''.join(figures)}</div>" if figures else ""
