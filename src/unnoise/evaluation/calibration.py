"""Whether rows that are drawn given a column have the law that they should have.

Take the model's own unconditional rows, keep one column, and draw all others anew given it.  If conditional and joint law
are of one model, the pairs (column, rest) have the law that they had: in any neighbourhood of values of the column the mean
of any other column is the same, up to the error of two means.  Drawing is exact in what it does (a column that is known
stands at time 0), so a difference is one of the network: its estimates given a column and without it are trained, not
derived from one another.  Beside both stand the real rows of the neighbourhood.

Neighbourhoods are thirds of the real values of a number, and the most common labels.  A difference is told in standard
errors; by chance one of twenty exceeds two.
"""

from collections.abc import Callable
from functools import partial
from math import inf, sqrt
from operator import eq
from time import perf_counter
from typing import Any

import numpy as np
import torch

from unnoise.data.base import BadData, Format
from unnoise.evaluation import tables
from unnoise.evaluation.budget import affordable
from unnoise.evaluation.scores import Study
from unnoise.shapes import AnyState
from unnoise.tree import batch_size
from unnoise.tree import rows as some_rows

ROWS = 400  # drawn given each column, at most
NUMBERS, LABELS = 2, 2  # columns that are given, at most
FEWEST = 20  # rows of a neighbourhood


def calibration(
    format: Format, study: Study, x: AnyState, frame_of: Callable[[AnyState], Any], real: Any
) -> dict[str, Any] | None:
    """{"given": one entry per neighbourhood, "differ": how many means differ, "of": how many there are, "words"}."""
    columns = given_columns(format, real, x)
    if study.fill is None or not columns or len(real.columns) < 2 or batch_size(x) < 3 * FEWEST:
        return None
    x = some_rows(x, slice(ROWS))
    own, entries, began, took = frame_of(x), list[dict[str, Any]](), perf_counter(), 0.0
    for k, (name, known) in enumerate(columns.items()):
        if k and study.budget.seconds < inf and affordable(k + 1, k, took, study.budget.left + took) <= k:
            study.budget.cut(f"conditioned draws: given {k} of {len(columns)} columns")
            break
        fixed = {leaf: part.expand(batch_size(x), *part.shape) for leaf, part in known.items()}
        entries += compare(name, frame_of(study.fill(x, fixed)), own, real)
        took = perf_counter() - began
    return summarised(entries) if entries else None


def given_columns(format: Format, real: Any, x: AnyState) -> dict[str, dict[str, torch.Tensor]]:
    """The columns that are given in turn, each with the coordinates of the state that hold it."""
    names = list(real.columns)
    numbers = [name for name in names if tables.is_number(real[name]) and real[name].nunique() > tables.CLASSES]
    labels = [name for name in names if name not in numbers and real[name].nunique() > 1]
    found = {}
    leaves = list(x) if isinstance(x, dict) else []
    for name in [*numbers[:NUMBERS], *labels[:LABELS]]:
        some = real[name].dropna()
        try:
            known = format.given({name: str(some.iloc[len(some) // 2])})
        except (BadData, ValueError, IndexError, NotImplementedError):
            continue  # a column that cannot be given
        found[name] = {
            leaf: known[leaf][1] if leaf in known else torch.zeros(x[leaf].shape[1:], dtype=torch.bool) for leaf in leaves
        }
    return found


def compare(name: str, drawn: Any, own: Any, real: Any) -> list[dict[str, Any]]:
    """Of each neighbourhood of a column: the other column whose means differ most, and all differences in errors."""
    drawn, own, real = tables.plain(drawn, own, real)
    scored = {other: _as_number(other, real) for other in real.columns if other != name}
    entries = []
    for words, inside in neighbourhoods(name, real).items():
        sets = [frame[inside(frame[name])] for frame in (drawn, own, real)]
        if min(len(frame) for frame in sets) < FEWEST:
            continue
        found = {other: _difference(*(number(frame[other]) for frame in sets)) for other, number in scored.items()}
        worst = max(found, key=lambda other: abs(found[other]["in_errors"]))
        differences = {other: entry["in_errors"] for other, entry in found.items()}
        from_real = {other: entry["from_real_in_errors"] for other, entry in found.items()}
        entry = {"given": f"{name} {words}", "rows": len(sets[0]), "column": worst, **found[worst]}
        entries.append(entry | {"differences": differences, "differences_from_real": from_real})
    return entries


def neighbourhoods(name: str, real: Any) -> dict[str, Callable[[Any], Any]]:
    column = real[name]
    if not tables.is_number(column):
        return {f"= {_shown(label)}": partial(eq, label) for label in column.value_counts().index[:3]}
    low, high = np.quantile(column.dropna(), [1 / 3, 2 / 3])
    return {
        f"< {low:.4g}": lambda c: c < low,
        f"in {low:.4g} ... {high:.4g}": lambda c: (c >= low) & (c <= high),
        f"> {high:.4g}": lambda c: c > high,
    }


def _shown(label: Any) -> str:
    return "missing" if label == tables.MISSING else str(label)


def _as_number(name: str, real: Any) -> Callable[[Any], np.ndarray]:
    """A number as it is, without missing ones; labels as whether they are the most common."""
    if tables.is_number(real[name]):
        return lambda column: column.dropna().to_numpy(float)
    common = real[name].value_counts().index[0]
    return lambda column: (column == common).to_numpy(float)


def _difference(drawn: np.ndarray, own: np.ndarray, real: np.ndarray) -> dict[str, float]:
    def mean(values: np.ndarray) -> float:
        return float(values.mean()) if len(values) else 0.0

    def error(values: np.ndarray) -> float:
        return float(values.var(ddof=1)) / len(values) if len(values) > 1 else 0.0

    def errors_between(other: np.ndarray) -> float:
        size = sqrt(error(drawn) + error(other))
        return (mean(drawn) - mean(other)) / size if size > 0 else 0.0

    means = {"mean": mean(drawn), "mean_of_own_rows": mean(own), "mean_of_real_rows": mean(real)}
    return means | {"in_errors": errors_between(own), "from_real_in_errors": errors_between(real)}


def summarised(entries: list[dict[str, Any]]) -> dict[str, Any]:
    """All differences together, and in words."""
    own = np.array([z for entry in entries for z in entry["differences"].values()])
    real = np.array([z for entry in entries for z in entry["differences_from_real"].values()])
    result: dict[str, Any] = {"given": entries, "of": len(own), "by_chance": 0.0455 * len(own)}
    result |= {"differ": int((np.abs(own) > 2).sum()), "differ_from_real": int((np.abs(real) > 2).sum())}
    result["rms_in_errors"] = float(np.sqrt(np.mean(own**2)))
    result["rms_from_real_in_errors"] = float(np.sqrt(np.mean(real**2)))
    worst = max(entries, key=lambda entry: abs(entry["in_errors"]))
    # an rms of 1 by chance; means of one neighbourhood hang together, so a third of them counts as independent
    limit = 1 + 3 / sqrt(2 * max(1, len(own) / 3))
    agrees = result["rms_in_errors"] < limit
    result["agrees"] = bool(agrees)
    result["words"] = (
        f"draws given a column {'agree with' if agrees else 'differ from'} the model's own rows: {result['differ']} of "
        f"{len(own)} means lie more than two errors apart ({result['by_chance']:.0f} by chance), and "
        f"{result['differ_from_real']} from those of real rows"
    )
    if not agrees:
        result["words"] += (
            f"; most for {worst['column']} given {worst['given']}: {worst['mean']:.4g}, its own rows "
            f"{worst['mean_of_own_rows']:.4g}, real ones {worst['mean_of_real_rows']:.4g}: train longer"
        )
    return result
