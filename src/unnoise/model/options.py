"""The options of a model: those of reading, of the recipe and of training, by their names on the command line."""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.reading import Reading
from unnoise.data.table_files import overrides
from unnoise.training.config import TrainConfig

READING = tuple(field.name for field in fields(Reading) if field.name != "columns")
RECIPE = ("preset", "schedule", "self_condition", "network", "network_options", "model")
TRAINING = tuple(field.name for field in fields(TrainConfig) if field.name not in READING)  # `keep` names columns
OWN = ("random_state", "kinds", "progress")
NAMES = (*OWN, *RECIPE, *READING, *TRAINING)


def check_names(names: Any) -> None:
    for name in names:
        if name not in NAMES:
            near = get_close_matches(name, NAMES, 1)
            raise TypeError(
                f"there is no option {name!r}" + (f": did you mean {near[0]!r}?" if near else f": choose from {NAMES}")
            )


def some(params: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: params[name] for name in names if params.get(name) is not None}


def seed_of(params: dict[str, Any]) -> int:
    """The seed, or what `random_state` says, scikit-learn's name for it: a number, or a source of some."""
    state = params.get("random_state")
    if state is None:
        return int(params.get("seed") or 0)
    if isinstance(state, np.random.RandomState):
        return int(state.randint(2**31))
    return int(state.integers(2**31)) if isinstance(state, np.random.Generator) else int(state)


def kinds_of(params: dict[str, Any]) -> dict[str, Any] | None:
    """{column: kind}, or the YAML file that says them."""
    kinds = params.get("kinds")
    return kinds if kinds is None or isinstance(kinds, dict) else overrides(Path(kinds))


def reading_of(params: dict[str, Any]) -> Reading:
    said = some(params, READING)
    if not isinstance(kept := said.get("keep", ()), list | tuple):
        raise BadData(f"keep = {kept!r}: pass a list of columns that are to be modelled, keep=[{kept!r}]")
    return Reading(**{**said, "keep": tuple(map(str, kept))})


@contextmanager
def kinds_file(kinds: dict[str, Any] | None, folder: Path) -> Iterator[Path | None]:
    """Kinds as the file that formats read: JSON is YAML too."""
    if not kinds:
        yield None
        return
    path = folder / "kinds.yaml"
    path.write_text(json.dumps(kinds))
    try:
        yield path
    finally:
        path.unlink()


@contextmanager
def in_python() -> Iterator[None]:
    """Errors about data name options as they are written in Python: length, for --length."""
    try:
        yield
    except BadData as error:
        text = str(error).replace("name its kind in a file for --columns", "name its kind, kinds={column: kind}")
        text = text.replace("in a file for --columns", "in kinds={...}")
        text = re.sub(r"keep one with --keep$", "keep one, keep=[column], or name its kind, kinds={column: kind}", text)
        text = re.sub(r"--keep (.+)$", r"keep=['\1']", text)
        raise BadData(re.sub(r"--([a-z][a-z-]+)", lambda m: m[1].replace("-", "_"), text)) from error
