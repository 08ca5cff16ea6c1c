"""The page of a run: how far it is from converged, the bound over time, real rows beside drawn ones, samples on the way.

It is one file without scripts, readable on a phone and on dark screens.
"""

import html
import json
from base64 import b64encode
from math import isfinite, nan
from pathlib import Path
from typing import Any

from unnoise.data.base import BadData
from unnoise.data.files import read_once
from unnoise.data.source_file import NAME, SourceFile
from unnoise.evaluation import pictures
from unnoise.evaluation.curves import Course, chart
from unnoise.evaluation.scores import chosen
from unnoise.evaluation.shown import few_steps_table as figures
from unnoise.evaluation.table_study import frame_of
from unnoise.start_up import start_up_of, start_up_words
from unnoise.training import safe_files
from unnoise.training.convergence import Convergence, curve_of, of_run
from unnoise.training.data_order import Source
from unnoise.training.metrics import read_metrics
from unnoise.training.panels import excerpt, panel_files
from unnoise.training.run import Run
from unnoise.tree import batch_size
from unnoise.tree import rows as some_rows

STYLE = """
:root { color-scheme: light dark; --soft: #f4f5f7; --line: #d9dce1; }
@media (prefers-color-scheme: dark) { :root { --soft: #23262b; --line: #3a3f47; } }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 68rem; margin: 1.5rem auto; padding: 0 1rem; overflow-wrap: anywhere;
background: #fff; color: #1f2328; } @media (prefers-color-scheme: dark) { body { background: #16181c; color: #e4e6ea; } }
h1 { margin-bottom: 0; } h2 { margin: 2rem 0 .5rem; font-size: 1.25rem; } .wide { overflow-x: auto; }
table { border-collapse: collapse; } td, th { padding: .2rem .7rem .2rem 0; text-align: left; font-size: .9rem;
border-bottom: 1px solid var(--line); vertical-align: top; }
pre { background: var(--soft); padding: .7rem; overflow-x: auto; font-size: .8rem; line-height: 1.35; margin: .3rem 0; }
.said { border-left: 4px solid; padding: .5rem .9rem; background: var(--soft); margin: 1rem 0; }
.converged { border-color: #3a9a5b; } .improving { border-color: #e0762f; } .overfitting { border-color: #c94040; }
.unknown { border-color: #888; } summary { cursor: pointer; } code { background: var(--soft); padding: .1rem .3rem; }
img { image-rendering: pixelated; max-width: 100%; } .panels { display: flex; flex-wrap: wrap; gap: 1rem; }
.panels figure { margin: 0; max-width: 100%; min-width: 0; } figcaption { font-size: .9rem; }
"""
SHOWN = 4000  # characters of a file of samples
ROWS = 2000  # real rows of a picture, at most
CODE = "code_"  # what figures of a code begin with
FEWEST = 40  # drawn rows that pictures are made of


def write_report(run: Run, samples: Path | None = None, source: Source | None = None) -> Path:
    """`report.html` in the run's folder; `samples` is a file of them to show, and `source` the rows that were trained on,
    where they are at hand (else the file is read)."""
    lines, config = read_metrics(run.metrics), run.config
    understood = [[line.part, line.kind, line.values, line.process] for line in run.format().lines()]
    settings = [[name, json.dumps(value)] for name, value in config.train.to_json().items()]
    name = html.escape(run.folder.resolve().name)
    parts = [
        f"<h1>{name}</h1><p>{html.escape(config.network['name'])} on {html.escape(config.format['kind'])} data</p>",
        said(of_run(run), run),
        "<h2>The bound</h2>" + curves(lines),
        _watched(lines),
        _few_steps(run),
        beside(run, samples, source),
        _samples(samples),
        _panels(panel_files(run.samples)),
        "<h2>The data</h2>" + _table(["part", "kind", "values", "noise"], understood),
        "<h2>Settings</h2><details><summary>how it was trained</summary>"
        + _table(["name", "value"], settings)
        + "</details>",
        _started(start_up_of(lines)),
    ]
    head = f"<meta charset='utf-8'><meta name='viewport' content='width=device-width, initial-scale=1'><title>{name}</title>"
    page = f"<!doctype html><html lang='en'><head>{head}<style>{STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    safe_files.write_text(run.report, page)
    return run.report


def _watched(lines: list[dict[str, Any]]) -> str:
    """What a code had to show when the bound was last measured."""
    seen: dict[str, Any] = next((line for line in reversed(lines) if any(name.startswith(CODE) for name in line)), {})
    rows = [[name.removeprefix(CODE), f"{value:.5g}"] for name, value in seen.items() if name.startswith(CODE)]
    return "<h2>The latent states</h2>" + _table(["on training rows", ""], rows) if rows else ""


def _started(parts: dict[str, float]) -> str:
    """How long the training took to start."""
    return f"<p>{html.escape(start_up_words(parts).capitalize())}.</p>" if parts else ""


def said(far: Convergence, run: Run) -> str:
    """How far it is from converged, and what to do."""
    command = ""
    if far.verdict == "improving" and far.minutes:
        told = html.escape(f"unnoise train --resume {run.folder.name} --minutes {far.minutes:.3g}")
        command = f"<br>To go on with it: <code>{told}</code>"
    return f"<p class='said {far.verdict}'>{html.escape(far.words[:1].upper() + far.words[1:])}.{command}</p>"


def curves(lines: list[dict[str, Any]]) -> str:
    held, seen = curve_of(lines), curve_of(lines, "training_bound")
    losses = [(line["step"], line["loss"]) for line in lines if "loss" in line]
    both = [Course("held-out rows", held, pictures.DRAWN), Course("training rows", seen, pictures.REAL)]
    errors = [line["validation_se"] for line in lines if isfinite(line.get("validation_se", nan))]
    chance = f" By chance two sets of rows lie about {1.4 * errors[-1]:.2g} nats apart." if errors else ""
    note = "A held-out line that turns upwards while the other falls means that rows are learned by heart."
    loss = chart("loss", [Course("loss", losses, pictures.REAL)])
    return (
        chart("nats per example by steps: lower is better", both)
        + f"<p style='font-size:13px'>{note}{chance}</p>"
        + "<details><summary>the loss that is minimised</summary><p>It is drawn at random times and weighted, so it is "
        + f"noisy, and need not fall while the bound does.</p>{loss}</details>"
    )


def beside(run: Run, samples: Path | None, source: Source | None = None) -> str:
    """Pictures of a table's real rows beside drawn ones, where both are there."""
    if samples is None or not samples.exists() or not run.format().targets():
        return ""
    try:
        real, drawn = _frames(run, samples, source)
    except (BadData, OSError, ValueError, ImportError, AttributeError) as error:
        return f"<p>no pictures of real rows beside drawn ones: {html.escape(str(error))}</p>"
    if len(drawn) < FEWEST:
        return ""
    return (
        f"<h2>Columns</h2>{pictures.marginals(real, drawn)}<h2>Pairs of columns</h2>{pictures.pairs(real, drawn)}"
        f"<h2>How columns hang together</h2>{pictures.correlations(real, drawn)}"
    )


def _frames(run: Run, samples: Path, source: Source | None) -> tuple[Any, Any]:
    """(some rows of the file that was trained on, the drawn ones), as frames of the same kinds."""
    format: Any = run.format()
    if source is not None:
        some = source.take(chosen(len(source), ROWS, 0))
        return frame_of(format, some), frame_of(format, format.encode(samples))
    if not (run.folder / NAME).exists():
        raise ValueError("the run does not name the file that it was trained on")
    origin = SourceFile.load(run.folder)
    if not origin.path.exists() or not origin.still_at(origin.path):
        raise ValueError("the file that the run was trained on is not as it was")
    with read_once():
        everything = format.encode(origin.path)
    few = some_rows(everything, chosen(batch_size(everything), ROWS, 0))
    return frame_of(format, few), frame_of(format, format.encode(samples))


def _few_steps(run: Run) -> str:
    """What a distilled run gained and lost, where that was measured."""
    path = run.folder / "distilled.json"
    if run.config.distilled is None or not path.exists():
        return ""
    head, rows, notes = figures(json.loads(path.read_text()))
    told = "".join(f"<p>{html.escape(note)}</p>" for note in notes)
    return f"<h2>In few steps</h2>{told}{_table(head, rows)}"


def _table(head: list[str], rows: list[list[Any]]) -> str:
    def cells(row: list[Any], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag}>{html.escape(str(cell))}</{tag}>" for cell in row) + "</tr>"

    return f"<div class='wide'><table>{cells(head, 'th')}{''.join(cells(row, 'td') for row in rows)}</table></div>"


def _shown(path: Path, lines: int) -> str:
    """A file of samples in the page: a picture, or its first lines."""
    if path.suffix == ".png":
        data = b64encode(path.read_bytes()).decode()
        return f"<img alt='samples' src='data:image/png;base64,{data}'>"
    text = excerpt(path, lines)
    return f"<p>in {html.escape(path.name)}</p>" if text is None else f"<pre>{html.escape(text[:SHOWN])}</pre>"


def _samples(path: Path | None) -> str:
    return "" if path is None or not path.exists() else f"<h2>Samples</h2>{_shown(path, 24)}"


def _panels(panels: list[tuple[int, Path]]) -> str:
    """The same samples as training went on."""
    figures = [f"<figure><figcaption>step {step}</figcaption>{_shown(path, 6)}</figure>" for step, path in panels]
    return f"<h2>Samples on the way</h2><div class='panels'>{''.join(figures)}</div>" if figures else ""
