"""What a rule leaves of each column, found from the parts that speak of that column alone.

    labels     the states whose value satisfies all of these parts
    numbers    the scores whose number, as it is written, does: w(z), the written number at score z, never falls, so that
               {w < c} and {w > c} are intervals for each number c that the parts compare it with; their ends are found by
               bisection, and between neighbouring ends all scores are alike

A column of which nothing is left makes the rule impossible, whatever the model: an error before anything is drawn.  A single
number that is written to the last digit of a float has no probability of its own.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.quantiles import FURTHEST
from unnoise.data.rule_columns import RuleColumn
from unnoise.guidance.rules import ColumnRule, Condition

HALVINGS = 60
NARROW = 1e-9  # an interval of scores that none in float32 would meet


@dataclass(frozen=True, eq=False)
class Allowed:
    """Of one column: which states, the last of them standing for its scores if it has any, and which scores."""

    states: np.ndarray
    intervals: np.ndarray  # [some, 2], in order

    @property
    def any_score(self) -> bool:
        return self.intervals.tolist() == [[-inf, inf]]


def allowed(rule: ColumnRule, given: Mapping[str, str]) -> dict[str, Allowed]:
    """Of each column that some part speaks of alone, and of which no value is given."""
    found = {}
    for name in rule.names:
        parts = [part for part in rule.parts if part.names == {name}]
        if name not in given and parts:
            found[name] = _of_column(rule.columns[name], parts)
    return found


def check_given(rule: ColumnRule, given: Mapping[str, str]) -> None:
    """That what is given satisfies the parts that speak of nothing else."""
    values = {name: rule.columns[name].values([str(text)]) for name, text in given.items() if name in rule.names}
    for part in rule.parts:
        if part.names <= set(values) and not bool(np.all(part.on(values))):
            told = ", ".join(f"{name}={given[name]}" for name in sorted(part.names))
            raise part.spot.error(f"what is given, {told}, does not satisfy this")


def _of_column(column: RuleColumn, parts: list[Condition]) -> Allowed:
    def satisfied(values: np.ndarray) -> np.ndarray:
        return np.logical_and.reduce([np.broadcast_to(part.on({column.name: values}), values.shape) for part in parts])

    states, intervals = satisfied(column.states), np.zeros((0, 2))
    if column.known.scores is not None:
        thresholds = [part.thresholds for part in parts]
        cuts = np.unique([value for values in thresholds if values for value in values])
        if None in thresholds:
            intervals = np.array([[-inf, inf]])
        elif column.known.closed or column.known.partners:
            some = satisfied(_between(cuts)).any()
            intervals = np.array([[-inf, inf]] if some else []).reshape(-1, 2)
        else:
            intervals = _intervals(column, cuts, satisfied)
        states[-1] = len(intervals) > 0
    if not states.any():
        raise _impossible(column, parts)
    return Allowed(states, intervals)


def _between(cuts: np.ndarray) -> np.ndarray:
    """The numbers themselves, some between each two of them, and some beyond."""
    if not len(cuts):
        return np.zeros(1)
    return np.concatenate([cuts, (cuts[1:] + cuts[:-1]) / 2, [cuts[0] - 1, cuts[-1] + 1]])


def _intervals(column: RuleColumn, cuts: np.ndarray, satisfied) -> np.ndarray:
    ends = np.unique([-inf, *_first(column, cuts, np.greater_equal), *_first(column, cuts, np.greater), inf])
    inner = np.clip(ends, -FURTHEST - 1, FURTHEST + 1)
    pairs = np.stack([ends[:-1], ends[1:]], 1)[satisfied(column.at((inner[:-1] + inner[1:]) / 2))]
    joined: list[list[float]] = []
    for low, high in pairs.tolist():
        if joined and joined[-1][1] == low:
            joined[-1][1] = high
        else:
            joined.append([low, high])
    return np.array([pair for pair in joined if pair[1] - pair[0] > NARROW]).reshape(-1, 2)


def _first(column: RuleColumn, cuts: np.ndarray, compare) -> np.ndarray:
    """The least score from which on the written number compares so with each of the cuts; infinite where none does."""
    low, high = np.full(len(cuts), -FURTHEST), np.full(len(cuts), FURTHEST)
    always, never = compare(column.at(low), cuts), ~compare(column.at(high), cuts)
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        beyond = compare(column.at(middle), cuts)
        low, high = np.where(beyond, low, middle), np.where(beyond, middle, high)
    return np.where(always, -inf, np.where(never, inf, high))


def _impossible(column: RuleColumn, parts: list[Condition]) -> BadData:
    spots = [part.spot for part in parts]
    equal = column.known.scores is not None and any(part.thresholds for part in parts)
    if equal and _on_no_grid(column) and any(_inside(column, part) for part in parts):
        what = (
            f"{column.name!r} is written to the last digit, so a single number has no probability: name an interval, or "
            f"--given {column.name}=..., which is by its density"
        )
    else:
        what = f"no value of {column.name!r} satisfies this: it holds {column.some()}"
    return spots[0].error(what, *spots[1:])


def _on_no_grid(column: RuleColumn) -> bool:
    return getattr(column.known.scale, "most", 0) is None


def _inside(column: RuleColumn, part: Condition) -> bool:
    """Whether a number that is compared with satisfies the part itself: then only such numbers do."""
    cuts = np.array(part.thresholds or ())
    ends = column.at(np.array([-FURTHEST, FURTHEST]))
    return bool((part.on({column.name: cuts}) & (cuts >= ends[0]) & (cuts <= ends[1])).any())
