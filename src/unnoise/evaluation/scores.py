"""What can be said of data and samples of one format, beside the bound: open functions, one answer for each format.

    data_figures(format, x0, bound)    figures that a bound in nats per example has for such rows, such as bits per symbol
    sample_scores(format, study)       how good samples are, beside controls

A format of one's own registers its answers: `@sample_scores.register(MyFormat)` on a function (format, study) -> dict.  Sets
of rows that are scored alike, `samples` and `control_...`, are dicts of the same figures and stand beside each other in a
table; what cannot be said is None, and `..._why` says why.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import singledispatch
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.data.base import Format
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Int


@dataclass(frozen=True)
class Study:
    """What samples are scored with: rows that were trained on, rows that were not, and as many draws as one asks for."""

    train: AnyState  # of the format
    unseen: AnyState
    draw: Callable[[int], AnyState]
    samples: int | None  # how many samples were asked for, if that was said
    seed: int
    where: torch.device
    folder: Path  # of the run: what is made for the scores may be kept there
    trained_with: int  # the seed of the training
    target: str | None = None  # a column to predict
    judge_minutes: float | None = None  # of training a judge, where there is one
    progress: bool = False


@singledispatch
def data_figures(format: Format, x0: AnyState, bound: float) -> dict[str, Any]:
    return {}


@singledispatch
def sample_scores(format: Format, study: Study) -> dict[str, Any]:
    return {}


def has_scores(format: Format) -> bool:
    return sample_scores.dispatch(type(format)) is not sample_scores.dispatch(object)


def no_scores(format: Format) -> dict[str, Any]:
    """In words: why samples of this format have no score."""
    why = f"no score of samples is known for data of the kind {format.kind!r}; a format registers its own in `sample_scores`"
    return {"quality": None, "quality_why": why}


def chosen(rows: int, most: int, seed: int) -> Int[Tensor, "chosen"]:
    """At most so many row numbers, all alike likely, in an order of the seed's."""
    return NoiseSource(seed, rows).at("chosen").uniform().argsort(stable=True)[:most]
