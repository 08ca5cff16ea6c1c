"""From data to a trained run in a folder of its own."""

import sys
import warnings
from pathlib import Path
from typing import Any

import torch

from unnoise.data.base import BadData, Format
from unnoise.data.read import read_source
from unnoise.data.source_file import SourceFile
from unnoise.data.table import Table
from unnoise.extensions import load_installed
from unnoise.model.forms import FileForm, Form
from unnoise.model.options import RECIPE, TRAINING, kinds_file, kinds_of, reading_of, seed_of, some
from unnoise.model.plain import fitted
from unnoise.shapes import Tree
from unnoise.training.models import asked
from unnoise.training.recipes import preset_for, recipe
from unnoise.training.run import Run
from unnoise.training.task import Task
from unnoise.training.trainer import Outcome, Trainer
from unnoise.tree import batch_size

LEAST = 4  # rows


def states_of(data: Any, form: Form, params: dict[str, Any], folder: Path) -> tuple[Format, Tree, SourceFile | None]:
    """What was understood of the data, its states, and which file it is, if it is one."""
    plain, how, kinds = form.plain(data), reading_of(params), kinds_of(params)
    if not isinstance(form, FileForm):
        format, x0 = fitted(plain, how, kinds)
        return format, x0, None
    load_installed()
    with kinds_file(kinds, folder) as how.columns:
        return read_source(plain, how)


def check_rows(format: Format, x0: Tree) -> None:
    if (rows := batch_size(x0)) < LEAST:
        count = "1 example is" if rows == 1 else f"{rows} examples are"
        raise BadData(f"{count} too few to train on, which takes {LEAST}: {format.few_rows_remedy()}")


def features(format: Format, form: Any) -> dict[str, Any]:
    """The number of features, and their names where all are strings, as scikit-learn has it."""
    if isinstance(format.written_format, Table):
        names = getattr(form, "names", [column.name for column in format.written_format.columns])
        return {"count": len(names), **({"names": names} if all(isinstance(name, str) for name in names) else {})}
    shape = getattr(format, "shape", None)
    return {"count": shape[0]} if shape is not None and len(shape) == 1 else {}


def made(format: Format, x0: Tree, params: dict[str, Any], folder: Path) -> Run:
    """A run in a new folder, not trained yet."""
    device, model = params.get("device") or "auto", params.get("model")
    on = "cuda" if device == "auto" and torch.cuda.is_available() else "cpu"
    if model is not None:
        wish: dict[str, Any] = {"name": model, "options": {}} if isinstance(model, str) else model
        model = asked(wish["name"], wish["options"], params.get("preset") or preset_for(on))
    task = Task.of(format, params.get("schedule"), model)
    named = {name: value for name, value in some(params, RECIPE).items() if name not in ("schedule", "model")}
    options = {"tensorboard": False, **some(params, TRAINING), "seed": seed_of(params), "device": device}
    return Run.create(folder, recipe(task, batch_size(x0), on=on, **named, **options), task=task)


def trained(run: Run, x0: Tree, progress: bool) -> Outcome:
    """Train to the end.  Interrupted, the run keeps the best state so far, if there is one."""
    trainer = Trainer(run, x0, progress=progress)
    try:
        outcome = trainer.fit()
    except KeyboardInterrupt:  # such as a second one, or one outside the main thread
        if not run.found():
            raise
        outcome = Outcome("interrupted", trainer.step, trainer.cursor.epoch, trainer.seconds, trainer.best, trainer.best_se)
    if outcome.reason == "interrupted":
        warnings.warn(
            f"training was interrupted after {outcome.step} steps: the model is the best so far", UserWarning, stacklevel=4
        )
    return outcome


def shows(progress: bool | None) -> bool:
    """Whether a bar is shown: where somebody looks, in a terminal or a notebook, unless told."""
    return progress if progress is not None else sys.stderr.isatty() or "ipykernel" in sys.modules
