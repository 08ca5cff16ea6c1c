"""Samples of a table beside what they are measured by, in sets of one size.

    samples, control_independent_columns               all of them against the training rows
    ..._as_many_as_unseen, control_unseen_rows         as many as there are unseen rows, means over up to REPEATS such sets
    control_training_rows                              what they are worth for predicting a column: the most there is to have

Shape and trend of few rows are lower even of real ones, so only sets of one size are compared.  The utility of samples, of
training rows and of independent columns is that of as many rows, on the unseen ones.
"""

from dataclasses import fields
from math import inf
from time import perf_counter
from typing import Any

import numpy as np

from unnoise.data.table import Table
from unnoise.evaluation import tables
from unnoise.evaluation.budget import affordable
from unnoise.evaluation.calibration import calibration
from unnoise.evaluation.scores import Study, chosen
from unnoise.evaluation.verdicts import of_table
from unnoise.shapes import Tree
from unnoise.tree import batch_size

MOST_SAMPLES = 20_000
REPEATS = 5
TRIAL = 2000  # rows that say how long a two-sample test takes


def table_scores(format: Table, study: Study) -> dict[str, Any]:
    budget = study.budget
    with budget.part("drawing samples"):
        x = study.samples_in_time(study.samples or min(batch_size(study.train), MOST_SAMPLES))
    real, fake, test = (frame_of(format, part) for part in (study.train, x, study.unseen))
    with budget.part("scores"):
        result = _sets(real, fake, test, study)
    target = study.target or likely_target(real)
    if target is not None:
        with budget.part("utility"):
            _add_utility(result, real, fake, test, target, study)
    result["columns"] = column_shapes(real, fake, test, study.seed)
    with budget.part("conditioned draws"):
        result["conditioned"] = calibration(format, study, x, lambda part: frame_of(format, part), real)
    return result | {"verdict": of_table(result)}


def frame_of(format: Table, x: Tree) -> Any:
    """States as a frame; texts that are numbers or dates to the model, such as dates with a zone, are numbers here."""
    frame = format.frame(x)[[column.name for column in format.columns]]  # without what stands beside the model
    for column in format.columns:
        values = frame[column.name]
        if column.scale is not None and not tables.is_number(values):
            frame[column.name] = column.scale.parse(values.astype(object).where(values.notna(), "").tolist())
    return frame


def parts_of(frame: Any, size: int, most: int = REPEATS) -> list[Any]:
    """Sets of so many rows that have none in common."""
    return [frame.iloc[k * size : (k + 1) * size] for k in range(max(1, min(most, len(frame) // size)))]


def mean_score(scores: list[tables.TableScore]) -> tables.TableScore:
    """The mean of every figure; its error stays that of one set."""
    first = scores[0]
    found: dict[str, Any] = {}
    for f in fields(first):
        values = [getattr(score, f.name) for score in scores]
        numbers = all(isinstance(value, float) for value in values)
        found[f.name] = float(np.mean(values)) if numbers else values[0]
    return tables.TableScore(**found)


def _sets(real: Any, fake: Any, test: Any, study: Study) -> dict[str, Any]:
    seed, n = study.seed, min(len(fake), len(test))
    few = test.iloc[chosen(len(test), n, seed).numpy()]
    loose = tables.shuffled(real, seed).head(len(fake))
    most = _rows_in_time(real, loose, study)
    result = {"samples": tables.score(real, fake, seed=seed, most=most).json()}
    small = n < len(fake)
    repeats = REPEATS if study.budget.left > 30 or study.budget.seconds == inf else 1

    def as_many(frame: Any) -> dict[str, Any]:
        parts = parts_of(frame, n, repeats)
        return mean_score([tables.score(real, part, seed=seed + k, most=most) for k, part in enumerate(parts)]).json()

    if small:
        result["samples_as_many_as_unseen"] = as_many(fake)
    result["control_unseen_rows"] = tables.score(real, few, seed=seed, most=most).json()
    if small:
        result["control_independent_as_many_as_unseen"] = as_many(loose)
    return result | {"control_independent_columns": tables.score(real, loose, seed=seed, most=most).json()}


def _rows_in_time(real: Any, loose: Any, study: Study) -> int:
    """At most so many rows of each side in the three two-sample tests of full size, for two thirds of the time left."""
    wanted = min(len(real), len(loose), tables.ROWS)
    if study.budget.seconds == inf or wanted <= 2 * TRIAL:
        return tables.ROWS
    began = perf_counter()
    tables.two_sample(real, loose, most=TRIAL)
    most = affordable(wanted, TRIAL, perf_counter() - began, study.budget.share(0.66) / 3)
    if most < wanted:
        study.budget.cut(f"two-sample tests: {most} of {wanted} rows a side")
    return most


def likely_target(frame: Any) -> str | None:
    """A column to predict where none was named: the last one of few labels, else the last one."""
    names = list(frame.columns)
    if len(names) < 2:
        return None
    labels = [name for name in names if not tables.is_number(frame[name]) and 2 <= frame[name].nunique() <= tables.CLASSES]
    return (labels or names)[-1]


def _add_utility(result: dict[str, Any], real: Any, fake: Any, test: Any, target: str, study: Study) -> None:
    """Of samples, of as many training rows and of as many rows of independent columns."""
    result["target"] = target
    if study.target is None and study.budget.left < 0:
        result["target_why"] = "no time was left to predict it"
        study.budget.cut("utility: left out")
        return
    count = min(len(real), len(fake))
    result["control_training_rows"] = {"rows": count}
    sets = {
        "samples": fake,
        "control_training_rows": real.iloc[chosen(len(real), count, study.seed).numpy()],
        "control_independent_columns": tables.shuffled(real, study.seed).head(count),
    }
    for name, frame in sets.items():
        useful, what = tables.utility(frame, test, target, study.seed)
        result[name] |= {"utility": useful} | ({"utility_is": what} if useful is not None else {"utility_why": what})


def column_shapes(real: Any, fake: Any, test: Any, seed: int) -> dict[str, dict[str, float]]:
    """Of each column: the shape of samples, and of unseen rows, in sets of one size."""
    n = min(len(fake), len(test))
    few = test.iloc[chosen(len(test), n, seed).numpy()]
    found = {}
    for name in real.columns:
        ours = [tables.column_shape(real[name], part[name]) for part in parts_of(fake, n)]
        found[name] = {"samples": float(np.mean(ours)), "unseen_rows": tables.column_shape(real[name], few[name])}
    return found
