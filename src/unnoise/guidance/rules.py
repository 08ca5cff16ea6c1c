"""What a rule says of the columns of a table: checked before anything is drawn, evaluated on what is written.

A comparison with a missing value is false, whatever the sign, and so is one with what is computed from it or divided by
zero; `is missing` asks for it.  Numbers as they are written are compared exactly; where one side is computed, numbers that
differ by less than rounding (CLOSE, relative) are equal.

A rule is a conjunction of `parts`; each knows which columns it speaks of.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from typing import Any

import numpy as np

from unnoise.data.base import Format
from unnoise.data.rule_columns import LABELS, NUMBERS, RuleColumn
from unnoise.guidance import expressions as written
from unnoise.shapes import Tree

CLOSE = 1e-9
Values = Mapping[str, np.ndarray]  # of columns; NaN is missing
COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "==": np.equal,
    "!=": np.not_equal,
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
}
COMPUTE: dict[str, Callable[[Any, Any], Any]] = {"+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide}
NOTHING = ("none", "null", "nan", "na")


class Quantity(ABC):
    """Something with a value in each row."""

    names: frozenset[str]  # of the columns that it reads

    @abstractmethod
    def on(self, values: Values) -> Any: ...


@dataclass(frozen=True)
class Constant(Quantity):
    value: float
    names: frozenset[str] = frozenset()

    def on(self, values: Values) -> float:
        return self.value


@dataclass(frozen=True)
class Cell(Quantity):
    name: str

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        return frozenset((self.name,))

    def on(self, values: Values) -> np.ndarray:
        return values[self.name]


@dataclass(frozen=True)
class Recoded(Quantity):
    """A label of one column by the places of another column's list; NaN where that has no such word."""

    cell: Cell
    places: tuple[float, ...]

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        return self.cell.names

    def on(self, values: Values) -> np.ndarray:
        own = self.cell.on(values)
        moved = np.array([*self.places, np.nan])[np.where(np.isnan(own), len(self.places), own).astype(np.int64)]
        return np.where(np.isnan(moved) & ~np.isnan(own), -1.0, moved)


@dataclass(frozen=True)
class Computed(Quantity):
    sign: str
    left: Quantity
    right: Quantity

    @property
    def names(self) -> frozenset[str]:  # type: ignore[override]
        return self.left.names | self.right.names

    def on(self, values: Values) -> Any:
        with np.errstate(all="ignore"):
            found = COMPUTE[self.sign](np.float64(self.left.on(values)), self.right.on(values))
        return np.where(np.isfinite(found), found, np.nan)


@dataclass(frozen=True, kw_only=True)
class Condition(ABC):
    """Something that holds or not in each row."""

    spot: written.Spot = field(repr=False, compare=False)  # where it stands in the rule

    @property
    @abstractmethod
    def names(self) -> frozenset[str]:
        """Of the columns that it speaks of."""

    @property
    @abstractmethod
    def thresholds(self) -> tuple[float, ...] | None:
        """The numbers that a column is compared with; None where there is more to it."""

    @abstractmethod
    def on(self, values: Values) -> Any: ...

    @property
    def parts(self) -> tuple["Condition", ...]:
        """Which all must hold."""
        return (self,)


@dataclass(frozen=True)
class Compare(Condition):
    sign: str
    left: Quantity
    right: Quantity

    @property
    def names(self) -> frozenset[str]:
        return self.left.names | self.right.names

    @property
    def computed(self) -> bool:
        return isinstance(self.left, Computed) or isinstance(self.right, Computed)

    @property
    def thresholds(self) -> tuple[float, ...] | None:
        sides = [side.value for side in (self.left, self.right) if isinstance(side, Constant)]
        return tuple(sides) if len(sides) == 1 and not self.computed else None

    def on(self, values: Values) -> Any:
        left, right = np.broadcast_arrays(self.left.on(values), self.right.on(values))
        with np.errstate(invalid="ignore"):
            found = COMPARE[self.sign](left, right)
            if self.computed:
                close = np.abs(left - right) <= CLOSE * np.maximum(np.abs(left), np.abs(right))
                found = np.where(close, self.sign in ("==", "<=", ">="), found)
        return found & ~np.isnan(left) & ~np.isnan(right)


@dataclass(frozen=True)
class IsMissing(Condition):
    cell: Cell

    @property
    def names(self) -> frozenset[str]:
        return self.cell.names

    @property
    def thresholds(self) -> tuple[float, ...]:
        return ()

    def on(self, values: Values) -> np.ndarray:
        return np.isnan(self.cell.on(values))


@dataclass(frozen=True)
class Inverted(Condition):
    part: Condition

    @property
    def names(self) -> frozenset[str]:
        return self.part.names

    @property
    def thresholds(self) -> tuple[float, ...] | None:
        return self.part.thresholds

    def on(self, values: Values) -> Any:
        return ~self.part.on(values)


@dataclass(frozen=True)
class Joined(Condition):
    """All of its conditions, or any."""

    every: bool
    conditions: tuple[Condition, ...]

    @property
    def names(self) -> frozenset[str]:
        return frozenset().union(*(condition.names for condition in self.conditions))

    @property
    def thresholds(self) -> tuple[float, ...] | None:
        found = [condition.thresholds for condition in self.conditions]
        return None if None in found else tuple(value for values in found if values for value in values)

    @property
    def parts(self) -> tuple[Condition, ...]:
        return tuple(part for condition in self.conditions for part in condition.parts) if self.every else (self,)

    def on(self, values: Values) -> Any:
        join = np.logical_and if self.every else np.logical_or
        found = self.conditions[0].on(values)
        for condition in self.conditions[1:]:
            found = join(found, condition.on(values))
        return found


class RuleReader:
    """The tree of a rule as a condition on these columns."""

    def __init__(self, columns: Mapping[str, RuleColumn]):
        self.columns = columns

    def condition(self, node: written.Node) -> Condition:
        match node:
            case written.Conjunction():
                return Joined(True, tuple(map(self.condition, node.parts)), spot=node.place)
            case written.Alternative():
                return Joined(False, tuple(map(self.condition, node.parts)), spot=node.place)
            case written.Negation():
                return Inverted(self.condition(node.part), spot=node.place)
            case written.Comparison():
                pairs = zip(node.operands, node.signs, node.operands[1:], strict=False)
                found = tuple(self.comparison(left, sign, right) for left, sign, right in pairs)
                return found[0] if len(found) == 1 else Joined(True, found, spot=node.place)
            case written.Membership():
                found = tuple(self.comparison(node.operand, "==", option) for option in node.options)
                return found[0] if len(found) == 1 else Joined(False, found, spot=node.place)
            case written.Missing():
                return IsMissing(self.whole_column(node.operand), spot=node.place)
        return self.truth(node)

    def truth(self, node: written.Node) -> Condition:
        """A boolean column stands for itself."""
        if isinstance(node, written.NameWritten) and (column := self.column(node)).boolean:
            return Compare("==", Cell(column.name), Constant(column.truth), spot=node.place)
        raise node.place.error("a value stands where a condition is expected: compare it with something")

    def whole_column(self, node: written.Node) -> Cell:
        if isinstance(node, written.NameWritten):
            return Cell(self.column(node).name)
        raise node.place.error("whether it is missing is asked of a column: name one")

    def comparison(self, left: written.Node, sign: str, right: written.Node) -> Condition:
        one, other = self.column_of(left), self.column_of(right)
        for node, column, partner in ((left, one, right), (right, other, left)):
            if column is None and isinstance(node, written.TextWritten) and self.column_of(partner) is None:
                raise node.place.error("a text is compared with a column, whose value it is")
        if one is not None and other is not None:
            return self.columns_compared(left, one, sign, right, other)
        if one is None and other is None:
            return self.of_numbers(left, sign, right)
        column, literal = (one, right) if one is not None else (other, left)
        assert column is not None
        if column.unit == NUMBERS and not isinstance(literal, written.TextWritten) and self.true_word(literal) is None:
            return self.of_numbers(left, sign, right)
        constant, cell = Constant(self.value(column, literal)), Cell(column.name)
        place = left.place.to(right.place)
        self.check_order(column, sign, place)
        first, second = (cell, constant) if one is not None else (constant, cell)
        return Compare(sign, first, second, spot=place)

    def of_numbers(self, left: written.Node, sign: str, right: written.Node) -> Condition:
        found = Compare(sign, self.number(left), self.number(right), spot=left.place.to(right.place))
        if not found.names:
            raise found.spot.error("no column is in this comparison: name one")
        return found

    def columns_compared(
        self, left: written.Node, one: RuleColumn, sign: str, right: written.Node, other: RuleColumn
    ) -> Condition:
        place = left.place.to(right.place)
        if one.unit != other.unit:
            raise place.error(f"{one.name!r} holds a {one.unit} and {other.name!r} a {other.unit}: compare like with like")
        if one.unit != LABELS:
            return Compare(sign, Cell(one.name), Cell(other.name), spot=place)
        if sign not in ("==", "!="):
            self.check_order(one, sign, place)
            if one.known.texts != other.known.texts:
                raise place.error(f"{one.name!r} and {other.name!r} have orders of their own: compare with == or !=")
        return Compare(sign, Cell(one.name), Recoded(Cell(other.name), tuple(map(one.read, other.known.texts))), spot=place)

    def check_order(self, column: RuleColumn, sign: str, place: written.Spot) -> None:
        if sign not in ("==", "!=") and not column.ordered:
            raise place.error(f"the values of {column.name!r} have no order: use ==, != or in (they are {column.some()})")

    def value(self, column: RuleColumn, node: written.Node) -> float:
        """What a literal means as a value of a column."""
        if (word := self.true_word(node)) is not None and column.boolean:
            return column.read(word)
        if isinstance(node, written.NumberWritten) and column.unit == LABELS:
            raise node.place.error(f"{column.name!r} holds words, not numbers: put one in quotes (they are {column.some()})")
        if not isinstance(node, written.TextWritten | written.NumberWritten):
            raise node.place.error(f"{column.name!r} is compared with its values, such as {column.some()}")
        if node.text in column.known.blanks:
            raise node.place.error(f"this is how a missing value is written: write {column.name} is missing")
        found = column.read(node.text)
        if np.isnan(found):
            what = "value" if column.known.scale is None else column.known.scale.noun
            raise node.place.error(f"{node.text!r} is no {what} of {column.name!r}: use {column.some(node.text)}")
        return found

    def number(self, node: written.Node) -> Quantity:
        """What can be computed with."""
        if isinstance(node, written.NumberWritten):
            return Constant(float(node.text))
        if isinstance(node, written.Arithmetic):
            return Computed(node.sign, self.number(node.left), self.number(node.right))
        if isinstance(node, written.NameWritten):
            column = self.column(node)
            if column.unit != NUMBERS:
                what = "words" if column.unit == LABELS else f"a {column.unit}"
                raise node.place.error(f"{column.name!r} holds {what}, and only numbers are computed with")
            return Cell(column.name)
        what = "a text" if isinstance(node, written.TextWritten) else "a condition"
        raise node.place.error(f"{what} stands where a number is expected")

    def column_of(self, node: written.Node) -> RuleColumn | None:
        return self.column(node) if isinstance(node, written.NameWritten) and self.true_word(node) is None else None

    def true_word(self, node: written.Node) -> str | None:
        """true or false, where no column is called so."""
        name = node.name if isinstance(node, written.NameWritten) else ""
        return name if name.lower() in ("true", "false") and name not in self.columns else None

    def column(self, node: written.NameWritten) -> RuleColumn:
        found = self.columns.get(node.name)
        if found is None:
            near = get_close_matches(node.name, self.columns, 3, 0.5)
            nothing = node.name.lower() in NOTHING
            hint = "write `is missing` after a column" if nothing else f"did you mean {' or '.join(map(repr, near))}?"
            known = [name for name, column in self.columns.items() if column.absent is None]
            raise node.place.error(
                f"there is no column {node.name!r}: " + (hint if nothing or near else f"use one of {known}")
            )
        if found.absent is not None:
            raise node.place.error(f"column {node.name!r} {found.absent}")
        return found


class ColumnRule:
    """A rule on the columns of a format, `ColumnRule("age >= 18 and income == '>50K'", format)`."""

    def __init__(self, text: str, format: Format):
        self.text, self.format = text, format
        self.columns = format.rule_columns()
        self.condition = RuleReader(self.columns).condition(written.parsed(text))

    @property
    def names(self) -> list[str]:
        """The columns that it speaks of."""
        return sorted(self.condition.names)

    @cached_property
    def parts(self) -> tuple[Condition, ...]:
        return self.condition.parts

    def holds(self, x: Tree, given: Mapping[str, Any] | None = None) -> np.ndarray:
        """Of each row as it is written, `given` values as they were given."""
        return self.condition.on(self.format.rule_values(x, self.names, given or {}))
