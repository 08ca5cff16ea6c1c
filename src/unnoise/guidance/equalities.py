"""Equalities between numbers in a rule, which hold by construction: one column is computed from the others.

To draw rows until two numbers happen to be equal has little chance on a grid of decimals, and none where numbers are written
to the last digit.  `total == wage + bonus` leaves one of its columns to the others: rows are drawn as ever, and that column
is overwritten,

    a x + rest = 0,      x = -rest / a,      a a number, rest computed from the other columns.

The law of the other columns is the model's own with that column left out, for to draw all and to look at some is to draw
from their marginal; it is not that of rows which happen to be equal, a law that does not exist without a grid.

Which column?  The first that can be: one that stands alone on a side before others, that is modelled and not given, that no
other part of the rule speaks of, in which the equality is linear, and on whose grid the result lies: numbers with so many
decimals are those of the others, added and taken away a whole number of times.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from unnoise.data.rule_columns import NUMBERS, RuleColumn
from unnoise.guidance.rules import CLOSE, Cell, ColumnRule, Compare, Computed, Constant, Quantity, Values

Known = Mapping[str, Fraction]  # the numbers of columns that are given
Form = tuple[dict[str, Fraction], Fraction]  # sum of factors times columns, and a number


@dataclass(frozen=True)
class Solved:
    """One column by the others: `-(left - right at 0) / factor`."""

    part: Compare
    column: RuleColumn
    factor: float

    @property
    def name(self) -> str:
        return self.column.name

    def texts(self, values: Values) -> list[str | None]:
        """The cells of the column; None where others are missing, or the result is no number of this column."""
        rows = len(next(iter(values.values())))
        at_zero = {**values, self.name: np.zeros(rows)}
        found = (self.part.right.on(at_zero) - self.part.left.on(at_zero)) / self.factor
        found, scale = np.broadcast_to(np.asarray(found, dtype=np.float64), (rows,)), self.column.known.scale
        good = np.isfinite(found)
        assert scale is not None
        texts = scale.write(np.where(good, found, 0.0))
        near = np.abs(scale.parse(texts) - found) <= CLOSE * np.maximum(1.0, np.abs(found))
        return [text if fine else None for text, fine in zip(texts, (good & near).tolist(), strict=True)]


def solved(rule: ColumnRule, given: Mapping[str, str]) -> list[Solved]:
    """Of each equality between numbers, the column that is computed; an error where none can be."""
    found = list[Solved]()
    for part in rule.parts:
        if isinstance(part, Compare) and part.sign == "==" and len(part.names) > 1:
            free = [rule.columns[name] for name in sorted(part.names - set(given))]
            if any(c.known.scores is not None and c.unit == NUMBERS for c in free):
                found.append(_solved(rule, part, given))
    return found


def computed(found: list[Solved], rule: ColumnRule, x, given: Mapping[str, str]) -> dict[str, list[str | None]]:
    """The cells of computed columns, of states."""
    if not found:
        return {}
    names = sorted({name for one in found for name in one.part.names})
    values = rule.format.rule_values(x, names, given)
    return {one.name: one.texts(values) for one in found}


def _solved(rule: ColumnRule, part: Compare, given: Mapping[str, str]) -> Solved:
    alone = [side.name for side in (part.left, part.right) if isinstance(side, Cell)]
    known = {name: _exact(rule.columns[name].values([str(given[name])])[0]) for name in part.names & set(given)}
    reasons = []
    for name in dict.fromkeys([*alone, *sorted(part.names)]):
        column = rule.columns[name]
        reason, factor = _refused(rule, part, column, given), None
        if reason is None:
            factor = _difference(_slope(part.left, name, known), _slope(part.right, name, known))
            reason = f"the equality is not linear in {name!r}" if not factor else None
        if reason is None and factor is not None and not _on_its_grid(rule, part, column, known):
            reason = f"{name!r} is written with {column.known.scale.most} decimals, on which the result need not lie"  # type: ignore
        if reason is None and factor is not None:
            return Solved(part, column, float(factor))
        reasons.append(reason)
    raise part.spot.error(
        f"an equality between numbers holds where one of its columns is computed from the others, and none can be: "
        f"{'; '.join(map(str, reasons))}; train without one of these columns, and compute it afterwards"
    )


def _refused(rule: ColumnRule, part: Compare, column: RuleColumn, given: Mapping[str, str]) -> str | None:
    if column.name in given:
        return f"{column.name!r} is given"
    if any(column.name in other.names for other in rule.parts if other is not part):
        return f"{column.name!r} is also in another part of the rule"
    if column.told:
        return f"{column.name!r} is a condition of the model"
    if column.known.scores is None or column.known.closed or column.known.partners:
        return f"{column.name!r} is no column of plain numbers"
    return None


def _slope(side: Quantity, name: str, known: Known) -> Fraction | None:
    """By which a side grows with a column, if it does so evenly and whatever the others are."""
    if name not in side.names:
        return Fraction(0)
    if isinstance(side, Cell):
        return Fraction(1)
    if not isinstance(side, Computed):
        return None
    left, right = _slope(side.left, name, known), _slope(side.right, name, known)
    if left is None or right is None:
        return None
    if side.sign in "+-":
        return left + right if side.sign == "+" else left - right
    one, other = (left, side.right) if left else (right, side.left)
    number = _form(other, known)
    if number is None or number[0] or (left and right) or (side.sign == "/" and (right or not number[1])):
        return None
    return one * number[1] if side.sign == "*" else one / number[1]


def _exact(value: float) -> Fraction:
    """The decimals of a number, not those of its float."""
    return Fraction(repr(float(value))) if np.isfinite(value) else Fraction(0)


def _difference(left: Fraction | None, right: Fraction | None) -> Fraction | None:
    return None if left is None or right is None else left - right


def _form(side: Quantity, known: Known) -> Form | None:
    """A linear form of columns; None where it is none."""
    if isinstance(side, Constant):
        return {}, _exact(side.value)
    if isinstance(side, Cell):
        return ({}, known[side.name]) if side.name in known else ({side.name: Fraction(1)}, Fraction(0))
    if not isinstance(side, Computed):
        return None
    left, right = _form(side.left, known), _form(side.right, known)
    if left is None or right is None:
        return None
    if side.sign in "+-":
        return _sum(left, right, Fraction(1 if side.sign == "+" else -1))
    if side.sign == "/":
        return None if right[0] or not right[1] else _sum(({}, Fraction(0)), left, 1 / right[1])
    if left[0] and right[0]:
        return None
    return _sum(({}, Fraction(0)), left, right[1]) if left[0] else _sum(({}, Fraction(0)), right, left[1])


def _sum(one: Form, other: Form, times: Fraction) -> Form:
    names = {*one[0], *other[0]}
    factors = {name: one[0].get(name, Fraction(0)) + times * other[0].get(name, Fraction(0)) for name in names}
    return {name: factor for name, factor in factors.items() if factor}, one[1] + times * other[1]


def _on_its_grid(rule: ColumnRule, part: Compare, column: RuleColumn, known: Known) -> bool:
    """Whether the result always lies on the grid of its column."""
    scale = column.known.scale
    most = getattr(scale, "most", None)
    if most is None:
        return True
    left, right = _form(part.left, known), _form(part.right, known)
    if left is None or right is None:
        return False
    factors, number = _sum(left, right, Fraction(-1))
    own, unit = factors.pop(column.name), Fraction(1, 10**most)
    step, result = getattr(scale, "step", 1) * unit, -number / own
    for name, factor in factors.items():
        other = rule.columns[name].known.scale
        digits = getattr(other, "most", None)
        if digits is None:
            return False
        each = Fraction(1, 10**digits)
        if (factor / own * getattr(other, "step", 1) * each) % step:
            return False
        result -= factor / own * getattr(other, "start", 0) * each
    return (result - getattr(scale, "start", 0) * unit) % step == 0
