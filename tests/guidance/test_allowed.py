"""What a rule leaves of each column, against all written values; what is impossible is said before anything is drawn."""

import random
from math import inf

import numpy as np
import pytest

from unnoise.data.base import BadData
from unnoise.data.table import Table
from unnoise.guidance.allowed import allowed, check_given
from unnoise.guidance.equalities import solved
from unnoise.guidance.rules import ColumnRule

SCORES = np.linspace(-4.5, 4.5, 4001)


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Numbers in whole, in cents with gaps and a value of their own, to the last digit; dates, labels."""
    g, path = random.Random(1), tmp_path_factory.mktemp("allowed") / "t.csv"
    lines = ["age,wage,length,day,sex,hour"]
    for _ in range(600):
        wage = g.choice(["", "0.00", f"{g.randint(100, 90_000) / 100:.2f}", f"{g.randint(100, 90_000) / 100:.2f}"])
        day = f"2024-{g.randint(1, 12):02d}-{g.randint(1, 28):02d}"
        cells = (g.randint(18, 80), wage, repr(g.gauss(0, 1)), day, g.choice("FMX"), f"{g.randint(0, 47) / 2:.1f}")
        lines.append(",".join(map(str, cells)))
    path.write_text("\n".join(lines) + "\n")
    return Table.fit(path, {"hour": {"kind": "angle", "period": 24}})[0]


@pytest.mark.parametrize(
    "rule",
    [
        "age >= 60",
        "18 < age < 40 or age == 50",
        "not age < 60 and age != 70",
        "age == 18",
        "wage > 500 and wage is not missing",
        "wage == 0 or wage > 899.99",
        "wage is missing",
        "wage < 100 or wage is missing",
        "0.5 <= length < 0.50001",
        "day >= '2024-05-01' and day != '2024-06-06'",
        "sex != 'F'",
        "age > 10",
    ],
)
def test_scores_and_states_are_those_whose_written_values_satisfy_it(table, rule):
    """At 4,001 scores; within 1e-6 of an end either is right."""
    found = ColumnRule(rule, table)
    (name,) = found.names
    left, column = allowed(found, {})[name], table.rule_columns()[name]
    expected = found.condition.on({name: column.states})
    listed = len(expected) if column.known.scores is None else len(expected) - 1
    assert left.states[:listed].tolist() == expected[:listed].tolist()
    if column.known.scores is not None:
        held = found.condition.on({name: column.at(SCORES)})
        inside = np.zeros(len(SCORES), dtype=bool)
        for low, high in left.intervals:
            inside |= (low <= SCORES) & (high > SCORES)
        near = np.abs(SCORES[:, None] - left.intervals.flatten()).min(1, initial=inf) < 1e-6
        assert ((held == inside) | near).all() and left.states[-1] == (len(left.intervals) > 0)


def test_what_is_computed_may_be_any_number(table):
    assert allowed(ColumnRule("age * 2 > 100", table), {})["age"].any_score
    assert not allowed(ColumnRule("age * 2 > 100 and age < 60 or sex == 'F'", table), {})
    assert list(allowed(ColumnRule("age > 20 and wage > age and sex == 'F'", table), {"sex": "F"})) == ["age"]
    assert allowed(ColumnRule("hour > 5", table), {})["hour"].any_score


@pytest.mark.parametrize(
    ("rule", "said", "marked"),
    [
        (
            "age > 70 and sex == 'F' and age < 30",
            "no value of 'age' satisfies this: it holds 18 ... 80",
            ["age > 70", "age < 30"],
        ),
        ("age > 90", "no value of 'age'", ["age > 90"]),
        ("38 < age < 39", "no value of 'age'", ["38 < age < 39"]),
        ("age < 18", "no value of 'age'", ["age < 18"]),
        ("age is missing", "no value of 'age'", ["age is missing"]),
        ("age == 20.5", "no value of 'age'", ["age == 20.5"]),
        ("sex == 'F' and not sex != 'M'", "it holds 'F', 'M', 'X'", ["sex == 'F'", "not sex != 'M'"]),
        ("hour < 5 and hour > 6", "no value of 'hour'", ["hour < 5", "hour > 6"]),
        ("day > '2025-01-01'", "no value of 'day'", ["day > '2025-01-01'"]),
        ("length == 0.125", "written to the last digit, so a single number has no probability", ["length == 0.125"]),
        ("length == 99", "no value of 'length'", ["length == 99"]),
    ],
)
def test_what_cannot_be_is_shown_with_its_places(table, rule, said, marked):
    with pytest.raises(BadData) as error:
        allowed(ColumnRule(rule, table), {})
    message, line, carets = str(error.value).splitlines()
    assert said in message
    under = "".join(letter if mark == "^" else "\n" for letter, mark in zip(line, carets.ljust(len(line)), strict=True))
    found = [piece for piece in under.split("\n") if piece]
    assert found == marked or found == ["".join(marked)]


def test_what_is_given_must_satisfy_it(table):
    rule = ColumnRule("age > 30 and (sex == 'F' or age < 50) and wage > 1", table)
    check_given(rule, {"age": "40"})
    check_given(rule, {"age": "60", "sex": "F"})
    with pytest.raises(BadData, match="what is given, age=20, does not satisfy this"):
        check_given(rule, {"age": "20"})
    with pytest.raises(BadData, match="what is given, age=60, sex=M, does not"):
        check_given(rule, {"age": "60", "sex": "M"})


def choice(rule, table, **given):
    return [(one.name, one.factor) for one in solved(ColumnRule(rule, table), given)]


def test_the_column_that_an_equality_computes(table):
    """One that stands alone, or the first; not one that is given, or stands elsewhere, or has too coarse a grid."""
    assert choice("sex == 'F' and length * 2 == age", table) == [("length", 2.0)]
    assert choice("age == wage", table) == [("wage", -1.0)]  # whole numbers need not be cents
    assert choice("wage == age + 1", table) == [("wage", 1.0)]
    assert choice("wage == age * length", table, length="2") == [("wage", 1.0)]
    assert choice("length == age * wage", table) == [("length", 1.0)]
    for rule in ("length * 2 == age or age > 30", "length < age", "not length == age", "age == 30"):
        assert choice(rule, table) == []
    for rule, given, why in (
        ("length == age and length > 2 and age > 3", {}, "'age' is also in another part of the rule; 'length' is also"),
        ("length * length == age", {}, "'length' is not linear"),
        ("length == age and age > 3", {"length": "20"}, "'length' is given"),
        ("age == wage / 3", {"wage": "2.5"}, "'age' is written with 0 decimals, on which the result need not lie"),
    ):
        with pytest.raises(BadData, match="none can be") as found:
            choice(rule, table, **given)
        assert why.split()[0] in str(found.value), found.value
