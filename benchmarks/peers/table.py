"""Rows ours / theirs / difference / truth / who is nearer, and how a script of this folder tells them.

A row compares many numbers at once.  It shows those where the two differ most; its difference and its errors are the largest
over all of them.  Two answers are the same where they differ by no more than rounding in the coarser of their precisions.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

ROUNDING = 128  # units in the last place, of the largest number of the row, that count as rounding


class NotHere(Exception):
    """A project that is neither installed nor checked out."""


@dataclass(frozen=True)
class Row:
    project: str
    what: str
    ours: float
    theirs: float
    difference: float
    truth: float | None
    our_error: float | None
    their_error: float | None
    nearer: str  # same, ours, theirs; ? without a truth
    why: str


Group = Callable[[Path], list[Row]]


def _flat(value: Any) -> torch.Tensor:
    return torch.as_tensor(value).detach().double().flatten()


def _precision(*values: Any, least: torch.dtype | None) -> float:
    dtypes = [torch.as_tensor(value).dtype for value in values] + ([] if least is None else [least])
    return max(torch.finfo(dtype).eps for dtype in dtypes if dtype.is_floating_point)


def compared(
    project: str,
    what: str,
    ours: Any,
    theirs: Any,
    truth: Any = None,
    why: str = "",
    inside: torch.dtype | None = None,
) -> Row:
    """The row of two answers to one question; `truth` is a closed form, an enumeration or a number of many digits.

    `inside` is the precision that they compute in, where it is coarser than that of what they return.
    """
    unit = _precision(ours, theirs, least=inside)
    ours, theirs = _flat(ours), _flat(theirs)
    gap = (ours - theirs).abs()
    most, size = int(gap.argmax()), max(float(ours.abs().max()), 1e-30)
    same = float(gap.max()) <= ROUNDING * unit * size
    if truth is None:
        return Row(project, what, *_at(most, ours, theirs), float(gap.max()), None, None, None, "same" if same else "?", why)
    truth = _flat(truth)
    errors = float((ours - truth).abs().max()), float((theirs - truth).abs().max())
    nearer = "same" if same else "ours" if errors[0] < errors[1] else "theirs"
    return Row(project, what, *_at(most, ours, theirs), float(gap.max()), float(truth[most]), *errors, nearer, why)


def _at(i: int, *values: torch.Tensor) -> list[float]:
    return [float(value[i]) for value in values]


def _number(value: float | None, digits: int) -> str:
    return "" if value is None else f"{value:.{digits}g}"


def show(rows: Sequence[Row]) -> None:
    print(f"{'project':14}{'what':52}{'ours':>14}{'theirs':>14}{'difference':>12}{'truth':>14}{'nearer':>8}  errors; why")
    for row in rows:
        numbers = "".join(f"{_number(value, 7):>14}" for value in (row.ours, row.theirs))
        errors = "" if row.our_error is None else f"{_number(row.our_error, 1)}, {_number(row.their_error, 1)}"
        print(
            f"{row.project:14}{row.what:52}{numbers}{_number(row.difference, 2):>12}{_number(row.truth, 7):>14}"
            f"{row.nearer:>8}  {errors}{'; ' + row.why if row.why else ''}"
        )
    counts = Counter(row.nearer for row in rows)
    print(f"{len(rows)} rows: " + ", ".join(f"{counts[name]} {name}" for name in ("same", "ours", "theirs", "?")))


def main(about: str | None, groups: Sequence[Group]) -> None:
    """Run every group of a script and print its table; a project that is not here is named."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checkouts", type=Path, default=Path(sys.prefix) / "src", help="folder of cloned projects")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows, missing = [], []
    for group in groups:
        try:
            rows += group(options.checkouts)
        except (NotHere, ImportError) as error:
            missing.append(f"{group.__name__}: not here: {error}")
    if options.json:
        print(json.dumps({"rows": [asdict(row) for row in rows], "missing": missing}, indent=1))
        return
    show(rows)
    print(*missing, sep="\n", end="\n" if missing else "")
