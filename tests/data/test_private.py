"""What is private is not modelled and not copied: identifiers are made anew in their form, the rest is empty."""

import re
import string
import uuid
from functools import lru_cache

import numpy as np
import pandas as pd
import pytest
import torch

from unnoise.data.base import BadData
from unnoise.data.columns import Texts
from unnoise.data.left_out import LeftOut, Numbering, Pattern, maker_of
from unnoise.data.private import running
from unnoise.data.table import Table

N = 300


def _iban(g: np.random.Generator) -> str:
    digits = "".join(map(str, g.integers(0, 10, 18)))
    check = 98 - int(digits + "131400") % 97  # DE00
    return f"DE{check:02d}{digits}"


def _card(g: np.random.Generator) -> str:
    digits = [4, *g.integers(0, 10, 14).tolist()]
    total = sum(digits[1::2]) + sum(sum(divmod(2 * d, 10)) for d in digits[::2])
    return "".join(map(str, digits)) + str(-total % 10)


@lru_cache
def _people(n: int = N) -> dict[str, list[str]]:
    g = np.random.default_rng(0)
    first = ["".join(g.choice(list(string.ascii_lowercase), 6)).title() for _ in range(n)]
    last = ["".join(g.choice(list(string.ascii_lowercase), 8)).title() for _ in range(n)]
    numbers = g.permutation(90_000)[:n] + 10_000
    return {
        "number": [str(i + 1) for i in range(n)],
        "customer": [f"AB-{v}" for v in numbers],
        "key": [str(uuid.UUID(bytes=g.bytes(16), version=4)) for _ in range(n)],
        "order_id": [str(v) for v in 10**7 + 7 * g.permutation(10**6)[:n]],
        "name": [f"{a} {b}" for a, b in zip(first, last, strict=True)],
        "surname": last,
        "email": [f"{a}.{b}@mail.example".lower() for a, b in zip(first, last, strict=True)],
        "phone": [f"+49 170 {v:07d}" for v in g.integers(0, 10**7, n)],
        "call": [f"({v}) {w:03d}-{u:04d}" for v, w, u in g.integers([200, 0, 0], [999, 999, 9999], (n, 3))],
        "iban": [_iban(g) for _ in range(n)],
        "card": [_card(g) for _ in range(n)],
        "note": [" ".join(["".join(g.choice(list("abcdefgh"), 5)) for _ in range(6)]) for _ in range(n)],
        "income": [str(v) for v in g.permutation(90_000)[:n] + 10_000],
        "weight": [f"{v:.6f}" for v in g.normal(70, 10, n)],
        "state": g.choice(["NY", "CA", "TX", "WA"], n).tolist(),
        "year": [str(1700 + i) for i in range(n)],
    }


KINDS = {
    "number": "identifier",
    "customer": "identifier",
    "key": "identifier",
    "order_id": "identifier",
    "name": "private",
    "surname": "private",
    "email": "private",
    "phone": "private",
    "call": "private",
    "iban": "private",
    "card": "private",
    "note": "text",
}
FORM = {
    "number": r"\d+",
    "customer": r"AB-\d{5}",
    "key": r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}",
    "order_id": r"\d{8}",
}


def _save(path, columns: dict[str, list[str]]):
    pd.DataFrame(columns).to_csv(path, index=False)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_nothing_private_is_copied(tmp_path, kind):
    people = _people()
    if kind == "csv":
        path = _save(tmp_path / "t.csv", people)
    else:
        path = tmp_path / "t.parquet"
        pd.DataFrame(people).astype({"number": int, "order_id": int, "income": int, "weight": float}).to_parquet(path)
    table, x = Table.fit(path)
    assert {column.name: column.kind for column in table.left_out} == KINDS
    assert [column.name for column in table.columns] == ["income", "weight", "state", "year"]
    many = {leaf: torch.cat([values] * 4) for leaf, values in x.items()}
    table.write(many, tmp_path / f"s.{kind}")
    read = pd.read_csv(tmp_path / "s.csv", dtype=str) if kind == "csv" else pd.read_parquet(tmp_path / "s.parquet")
    assert list(read) == list(people) and len(read) == 4 * N
    for name, what in KINDS.items():
        if what == "identifier":
            made = read[name].astype(str)
            assert made.is_unique and all(re.fullmatch(FORM[name], text) for text in made), name
            assert not set(made) & set(people[name])
        else:
            assert read[name].isna().all(), name
    assert list(read["state"][:N]) == people["state"]


def test_what_is_said(tmp_path):
    table, _ = Table.fit(_save(tmp_path / "t.csv", _people()))
    lines = {line.part: line for line in table.lines()}
    assert list(lines) == list(_people()) and all(lines[name].process == "left out" for name in KINDS)
    assert lines["email"].values == "e-mail addresses; empty in samples"
    assert lines["number"].values == "made anew like #; running numbers 1 ... 300"
    assert lines["customer"].values.startswith("made anew like AB-#####; ")
    assert [lines[name].values.split(",")[0].split(";")[0] for name in ("phone", "call", "iban", "card", "note")] == [
        "telephone numbers",
        "telephone numbers",
        "account numbers",
        "card numbers",
        "free text",
    ]
    saved = str(table.to_json())  # a run keeps none of it
    assert not any(cell in saved for name in KINDS for cell in _people()[name] if len(cell) > 7)
    made, empty = table.notes()
    assert "'customer'" in made and "'email'" in empty and "--keep COLUMN" in made


def test_keep_models_it_all_the_same(tmp_path):
    path = _save(tmp_path / "t.csv", _people())
    table, x = Table.fit(path, keep=("name", "number"))
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds["name"] == "category" and kinds["number"] in ("count", "number", "ordinal")
    assert table.frame(x)["name"].tolist() == _people()["name"]
    with pytest.raises(BadData, match="columns to keep are 'nam'"):
        Table.fit(path, keep=("nam",))
    with pytest.raises(BadData, match="no column is left to model, 'name' is private .*--keep"):
        Table.fit(_save(tmp_path / "u.csv", {"name": _people()["name"]}))


def test_it_cannot_be_given(tmp_path):
    table, _ = Table.fit(_save(tmp_path / "t.csv", _people()))
    with pytest.raises(BadData, match="given email=...: not in the model .e-mail addresses.: train with --keep email"):
        table.given({"email": "a@b.example"})


def test_kinds_by_hand(tmp_path):
    wishes = {"income": "identifier", "state": "private", "weight": {"kind": "text"}, "name": "category", "email": "drop"}
    table, x = Table.fit(_save(tmp_path / "t.csv", _people()), wishes)
    frame = table.frame(x)
    assert "email" not in frame and frame["state"].isna().all() and frame["weight"].isna().all()
    assert frame["income"].is_unique and not set(frame["income"].astype(str)) & set(_people()["income"])
    assert frame["name"].tolist() == _people()["name"]


def test_identifiers_are_a_function_of_the_samples(tmp_path):
    table, x = Table.fit(_save(tmp_path / "t.csv", _people()))
    few = {leaf: values[:50] for leaf, values in x.items()}
    other = {leaf: values[1:] for leaf, values in x.items()}
    assert table.frame(x)["key"][:50].tolist() == table.frame(few)["key"].tolist()
    assert not set(table.frame(other)["key"]) & set(table.frame(x)["key"])


def test_a_saved_table_makes_the_same(tmp_path):
    path = _save(tmp_path / "t.csv", _people())
    table, x = Table.fit(path)
    again = Table.from_json(table.to_json())
    pd.testing.assert_frame_equal(again.frame(x), table.frame(x))
    y = again.encode(path)
    assert all(torch.equal(y[leaf], x[leaf]) for leaf in x)
    bare = pd.read_csv(path, dtype=str)[["state", "weight", "income", "year"]]  # they need not be there
    bare.to_csv(tmp_path / "u.csv", index=False)
    assert torch.equal(again.encode(tmp_path / "u.csv")["income"], x["income"])


def test_filling_gaps_leaves_them_as_they_are(tmp_path):
    people = _people()
    table, x = Table.fit(_save(tmp_path / "t.csv", people))
    gaps = {**people, "income": [*people["income"][:-1], ""]}
    _save(tmp_path / "g.csv", gaps)
    y, fixed = table.gaps(tmp_path / "g.csv")
    assert table.count_gaps(fixed) == 1
    table.write_filled(x, tmp_path / "g.csv", tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text() == (tmp_path / "t.csv").read_text()


@pytest.mark.parametrize(
    "values",
    [
        np.random.default_rng(0).permutation(50_000)[:200].tolist(),  # an amount
        [i // 2 for i in range(200)],
        list(range(1900, 2020)),  # years
        [-i for i in range(200)],
        [i * i for i in range(200)],
    ],
)
def test_whole_numbers_that_are_no_identifiers(values):
    texts = [str(v) for v in dict.fromkeys(values)]
    index = np.array([texts.index(str(v)) for v in values])
    assert running(Texts("amount", texts, index, "t")) is None


def test_categories_are_categories(tmp_path):
    g = np.random.default_rng(0)
    columns = {
        "code": g.choice([f"X{i}" for i in range(40)], N).tolist(),
        "city": g.choice(["New York", "Los Angeles", "San Francisco"], N).tolist(),
        "size": g.choice(["SMALL", "LARGE"], N).tolist(),
        "day": g.choice(["Mon", "Tue"], N).tolist(),
        "few": (["alpha", "beta", "gamma"] * N)[:N],
    }
    table, _ = Table.fit(_save(tmp_path / "t.csv", columns))
    assert not table.left_out and {column.kind for column in table.columns} == {"category"}


def test_makers():
    assert maker_of([f"C{i}" for i in range(1, 30)]) == Numbering("C", "", 0, 30)
    assert maker_of([f"{i:04d}" for i in range(5, 30)]).make(2, 0) == ["0030", "0031"]
    full = Pattern.of([a + b for a in "01" for b in string.digits])  # 20 of 100, and then more are needed than there are
    made = full.make(200, 1)
    assert len(set(made)) == 200 and not set(made) & {a + b for a in "01" for b in string.digits}
    assert {len(text) for text in made} == {2, 3}
    column = LeftOut(name="a", kind="identifier", what="", maker=full)
    assert LeftOut.from_json(column.to_json()) == column
