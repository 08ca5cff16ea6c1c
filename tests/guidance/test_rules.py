"""Rules on the columns of a table, against the same conditions in Python; what is no condition, with its place."""

import random

import numpy as np
import pytest

from unnoise.data.base import BadData
from unnoise.data.table import Table
from unnoise.guidance.rules import ColumnRule

ROWS = 300


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A table with columns of all kinds, and its rows as Python has them."""
    g, rows = random.Random(0), []
    for i in range(ROWS):
        rows.append(
            {
                "age": g.choice([g.randint(17, 90), None]),
                "sex": g.choice(["Female", "Male", "it's"]),
                "other-sex": g.choice(["Male", "Female", None]),
                "size": g.choice(["small", "middle", "large"]),
                "smoker": g.choice(["True", "False", None]),
                "price": g.randint(0, 300_000) / 100,
                "a": g.randint(-5, 5),
                "b": g.randint(0, 3),
                "day": f"2024-{g.randint(1, 12):02d}-{g.randint(1, 28):02d}",
                "until": f"{g.randint(1, 28)}.{g.randint(1, 12)}.2024",
                "opens": f"{g.randint(6, 11):02d}:{g.choice([0, 30]):02d}",
                "number": 2**60 + g.randint(0, 999),
                "id": i + 1,
                "gone": "x",
            }
        )
    path = tmp_path_factory.mktemp("rules") / "people.csv"
    lines = [";".join(rows[0])]
    for row in rows:
        cells = {**row, "price": f"{row['price']:,.2f} €".translate(str.maketrans(",.", ".,"))}
        lines.append(";".join("" if value is None else str(value) for value in cells.values()))
    path.write_text("\n".join(lines) + "\n")
    kinds = {"size": {"kind": "ordinal", "order": ["small", "middle", "large"]}, "gone": "drop"}
    kinds["opens"] = {"kind": "angle", "period": 24}
    return *Table.fit(path, kinds), rows


def iso(text):
    day, month, year = text.split(".")
    return f"{year}-{month:>02}-{day:>02}"


@pytest.mark.parametrize(
    ("rule", "holds"),
    [
        ("18 <= age < 65", lambda r: r["age"] is not None and 18 <= r["age"] < 65),
        ("age != 30", lambda r: r["age"] is not None and r["age"] != 30),
        ("not age > 30", lambda r: not (r["age"] is not None and r["age"] > 30)),
        ("age is missing or age * 2 + 1 > 100", lambda r: r["age"] is None or r["age"] * 2 + 1 > 100),
        ("sex == 'Female' and price >= 1000", lambda r: r["sex"] == "Female" and r["price"] >= 1000),
        ("'Female' != sex", lambda r: r["sex"] != "Female"),
        ("price == 'x' or price < '1.000,50 €'", None),
        ("price < '1.000,50 €'", lambda r: r["price"] < 1000.5),
        ("sex in (\"it's\", 'Male')", lambda r: r["sex"] in ("it's", "Male")),
        ("sex not in ('Male')", lambda r: r["sex"] != "Male"),
        ("`other-sex` == sex", lambda r: r["other-sex"] == r["sex"]),
        ("sex == `other-sex`", lambda r: r["other-sex"] == r["sex"]),
        ("`other-sex` != sex", lambda r: r["other-sex"] is not None and r["other-sex"] != r["sex"]),
        ("sex != `other-sex`", lambda r: r["other-sex"] is not None and r["other-sex"] != r["sex"]),
        ("size >= 'middle'", lambda r: r["size"] != "small"),
        ("smoker", lambda r: r["smoker"] == "True"),
        ("smoker == false and size != 'large'", lambda r: r["smoker"] == "False" and r["size"] != "large"),
        ("smoker is not missing", lambda r: r["smoker"] is not None),
        ("a + b == 2", lambda r: r["a"] + r["b"] == 2),
        ("a / b > 1", lambda r: r["b"] != 0 and r["a"] / r["b"] > 1),
        ("not a / b <= 1", lambda r: not (r["b"] != 0 and r["a"] / r["b"] <= 1)),
        ("price - a * 0.1 - b / 10 <= price - (a + b) / 10", lambda r: True),
        ("price - a * 0.1 - b / 10 < price - (a + b) / 10", lambda r: False),
        ("a < b <= 2 and -a > -3", lambda r: r["a"] < r["b"] <= 2 and r["a"] < 3),
        ("'2024-03-01' <= day < '2024-06-01'", lambda r: "2024-03-01" <= r["day"] < "2024-06-01"),
        ("until > '2024-05-14'", lambda r: iso(r["until"]) > "2024-05-14"),
        ("until > '14.5.2024'", lambda r: iso(r["until"]) > "2024-05-14"),
        ("day <= until", lambda r: r["day"] <= iso(r["until"])),
        ("opens >= '08:30'", lambda r: r["opens"] >= "08:30"),
        (f"number > {2**60 + 500}", lambda r: r["number"] > 2**60 + 500),
    ],
)
def test_what_a_rule_lets_through(people, rule, holds):
    table, x, rows = people
    if holds is None:
        with pytest.raises(BadData, match="'x' is no number of 'price'"):
            ColumnRule(rule, table)
        return
    found, expected = ColumnRule(rule, table).holds(x), [holds(row) for row in rows]
    assert found.shape == (ROWS,) and found.tolist() == expected


@pytest.mark.parametrize(
    ("rule", "said", "marked"),
    [
        ("smokr", "there is no column 'smokr': did you mean 'smoker'?", "smokr"),
        ("age > 3 and sex > 3", "'sex' holds words, not numbers", "3"),
        ("sex < 'Male'", "have no order", "sex < 'Male'"),
        ("sex == 'Femal'", "is no value of 'sex': use 'Female', 'Male', \"it's\"", "'Femal'"),
        ("age == 'old'", "'old' is no number of 'age'", "'old'"),
        ("age > None", "write `is missing` after a column", "None"),
        ("smoker == ''", "write smoker is missing", "''"),
        ("id > 3", "is not in the model (running numbers 1 ... 300): train with --keep id", "id"),
        ("gone == 'x'", "was dropped in training", "gone"),
        ("age", "a value stands where a condition is expected", "age"),
        ("age and sex == 'Male'", "a value stands where a condition is expected", "age"),
        ("(age > 3) > 2", "a condition stands where a number is expected", "age > 3"),
        ("sex + 1 > 2", "'sex' holds words, and only numbers are computed with", "sex"),
        ("day + 1 > 2", "'day' holds a date", "day"),
        ("day > opens", "compare like with like", "day > opens"),
        ("day > '2024-13-01'", "is no date of 'day'", "'2024-13-01'"),
        ("size < sex", "have orders of their own", "size < sex"),
        ("'a' == 'b'", "a text is compared with a column", "'a'"),
        ("1 < 2", "no column is in this comparison", "1 < 2"),
        ("sex == a + 1", "'sex' is compared with its values", "a + 1"),
        ("age + 1 is missing", "is asked of a column", "age + 1"),
    ],
)
def test_what_is_no_condition_is_shown_with_its_place(people, rule, said, marked):
    with pytest.raises(BadData) as error:
        ColumnRule(rule, people[0])
    message, line, carets = str(error.value).splitlines()
    assert said in message
    start = carets.index("^")
    assert line[start : start + carets.count("^")] == marked


def test_what_is_given_is_read_as_it_was_given(people):
    table, x, _ = people
    rule = ColumnRule("price == '12,30 €' and sex == 'Male'", table)
    assert (
        np.flatnonzero(rule.holds(x, {"price": "12,30 €"})).tolist()
        == np.flatnonzero(ColumnRule("sex == 'Male'", table).holds(x)).tolist()
    )
