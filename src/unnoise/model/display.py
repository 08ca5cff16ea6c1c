"""A model as a short table in a terminal, and as a page with pictures in a notebook."""

import html
from base64 import b64encode
from importlib import import_module
from importlib.util import find_spec
from math import floor, isfinite, log10
from typing import TYPE_CHECKING, Any

from unnoise.data.arrays import Array, picture
from unnoise.data.base import Line
from unnoise.data.images import Images
from unnoise.data.table import Table
from unnoise.evaluation.scores import chosen
from unnoise.evaluation.shown import table
from unnoise.model import plain
from unnoise.training.drawing import draw
from unnoise.tree import batch_size
from unnoise.tree import rows as some_rows

if TYPE_CHECKING:
    from unnoise.model.model import Model

MOST = 12  # lines of what was understood, in a terminal
SEEN = 500  # rows of a table that are drawn for its pictures, and as many real ones beside them
FIRST = 5  # samples that are shown
IMAGES = 16
STYLE = "font: 13px/1.4 system-ui, sans-serif; border-collapse: collapse; margin: .4rem 0"
WORDS = "font: 13px/1.4 system-ui, sans-serif; margin: .4rem 0"
CELL = "padding: .15rem .6rem; text-align: left; border-bottom: 1px solid #ddd"


def short(model: "Model") -> str:
    """What was understood, how training went, and the bound."""
    fresh = type(model)().get_params()
    said = {name: value for name, value in model.get_params().items() if name not in fresh or value != fresh[name]}
    words = f"Model({', '.join(f'{name}={value!r}' for name, value in said.items())})"
    if not model.__sklearn_is_fitted__():
        return words
    lines = model.format_.lines()
    text = table(["part", "kind", "values", "noise"], [_cells(line) for line in lines[:MOST]])
    more = [f"and {len(lines) - MOST} more"] if len(lines) > MOST else []
    return "\n".join([words, text, *more, *_notes(model), trained(model.outcome_)])


def _cells(line: Line) -> list[str]:
    return [line.part, line.kind, line.values, line.process]


def _notes(model: "Model") -> list[str]:
    """What is unclear about the data, and what the model does without."""
    return [
        f"note: {note}".replace("--keep COLUMN models one", "keep=[column] models one") for note in model.format_.notes()
    ]


def trained(outcome: dict[str, Any]) -> str:
    """In words: how long, what ended it, and the bound."""
    if not outcome:
        return "a trained model"
    said = f"{outcome['step']} steps, {outcome['seconds']:.0f} s, ended by {outcome['reason']}"
    if outcome.get("best") is None:
        return said
    error = outcome.get("best_se")
    if error is None or not isfinite(error):
        return f"{said}; bound {outcome['best']:.4f} nats on held-out rows"
    digits = max(0, 1 - floor(log10(error))) if error > 0 else 4  # two of the error's
    return f"{said}; bound {outcome['best']:.{digits}f} ± {error:.{digits}f} nats on held-out rows"


def page(model: "Model") -> str:
    """The same with samples and pictures.  What is drawn for it is drawn once."""
    if not model.__sklearn_is_fitted__():
        return f"<pre>{html.escape(repr(model))}</pre>"
    understood = _table(["part", "kind", "values", "noise"], [_cells(line) for line in model.format_.lines()])
    if model._drawn is None:
        count = SEEN if isinstance(model.format_, Table) else IMAGES
        own = model.run_.for_drawing(model._denoiser)
        model._drawn = draw(own, model.format_, count, seed=model.seed, device=model.device)[0]
    said = "".join(f"<p style='{WORDS}'>{html.escape(line)}</p>" for line in (*_notes(model), trained(model.outcome_)))
    return f"<div>{understood}{said}{_samples(model, model._drawn)}</div>"


def _samples(model: "Model", x: Any) -> str:
    format = model.format_
    if isinstance(format, Table):
        frame = format.frame(x)
        rows = [[str(value) for value in row] for row in frame.head(FIRST).itertuples(index=False)]
        return _table(list(frame.columns), rows) + _pictures(model, frame)
    images = format.array if isinstance(format, Images) else format
    if isinstance(images, Array) and images.shown_suffix() == ".png":
        data = b64encode(picture(images.values(x), images)).decode()
        return f"<img alt='samples' style='image-rendering: pixelated' src='data:image/png;base64,{data}'>"
    drawn = plain.decode(format, x)
    text = "\n".join(map(str, drawn[:FIRST])) if isinstance(drawn, list) else str(drawn)
    return f"<pre>{html.escape(text[:2000])}</pre>"


def _pictures(model: "Model", drawn: Any) -> str:
    """Marginals of real rows beside drawn ones, where the real ones are there."""
    rows = model._trained_on()
    if rows is None or find_spec("unnoise.evaluation.pictures") is None:
        return ""
    real = model.format_.frame(some_rows(rows, chosen(batch_size(rows), SEEN, 0)))  # type: ignore[attr-defined]
    return str(import_module("unnoise.evaluation.pictures").marginals(real, drawn))


def _table(head: list[str], rows: list[list[str]]) -> str:
    def cells(row: list[str], tag: str) -> str:
        return "<tr>" + "".join(f"<{tag} style='{CELL}'>{html.escape(str(cell))}</{tag}>" for cell in row) + "</tr>"

    body = "".join(cells(row, "td") for row in rows)
    return f"<div style='overflow-x: auto'><table style='{STYLE}'>{cells(head, 'th')}{body}</table></div>"
