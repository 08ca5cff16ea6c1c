"""What can be said of data and samples of one format, beside the bound: open functions, one answer for each format.

    data_figures(format, x0, bound)    figures that a bound in nats per example has for such rows, such as bits per symbol
    sample_scores(format, study)       how good samples are, beside controls

A format of one's own registers its answers: `@sample_scores.register(MyFormat)` on a function (format, study) -> dict.  Sets
of rows that are scored alike, `samples` and `control_...`, are dicts of the same figures and stand beside each other in a
table; what cannot be said is None, and `..._why` says why.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import singledispatch
from math import inf
from pathlib import Path
from time import perf_counter
from typing import Any

import torch
from torch import Tensor

from unnoise.data.base import Format
from unnoise.evaluation.budget import Budget, affordable
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Int

TRIED = 512  # samples that are drawn to see how long they take, where twice as many are wanted


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
    fill: Callable[[AnyState, AnyState], AnyState] | None = None  # (x, which of it is known): the rest drawn anew
    budget: Budget = field(default_factory=Budget)

    def samples_in_time(self, wanted: int, part: float = 0.4) -> AnyState:
        """As many samples as fit into a part of the time that is left; all of them where their number was asked for."""
        seconds = inf if self.samples is not None else self.budget.share(part)
        if seconds == inf or wanted <= 2 * TRIED:
            return self.draw(wanted)
        began = perf_counter()
        few = self.draw(TRIED)
        took = perf_counter() - began
        count = affordable(wanted, TRIED, took, seconds - took)
        if count < wanted:
            self.budget.cut(f"samples: {count} of {wanted}")
        return few if count <= TRIED else self.draw(count)


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
