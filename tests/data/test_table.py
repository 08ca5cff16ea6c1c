"""Tables: every kind comes back as it was, numbers are standard normal, and bad files are named in one line."""

import csv
import gzip
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import kstest
from torch import nn

from unnoise.data.base import BadData
from unnoise.data.scales import Dates, Decimals, LongIntegers
from unnoise.data.table import Table
from unnoise.data.table_files import arrow_library, overrides
from unnoise.processes import Masking, Product

N = 700


def _columns(n: int = N) -> dict[str, list[str]]:
    """A table with every kind, as text."""
    g = np.random.default_rng(0)
    words = g.choice(["red", "green", "a, b", 'say "no"', "?", "two\nlines"], n)
    days = np.datetime64("1999-12-30") + g.integers(0, 4000, n)
    moments = np.datetime64("2020-02-28T23:59:59") + g.integers(0, 10**7, n)
    return {
        "age": [str(v) for v in g.integers(17, 90, n)],
        "price": [f"{v:.2f}" for v in g.choice([1.5, 2.0, 19.99, -3.25], n)],
        "wage": [f"{v:.2f}" for v in g.lognormal(3, 1, n)],
        "visits": [str(int(v)) for v in g.lognormal(7, 1, n)],
        "share": [repr(float(v)) for v in g.beta(0.5, 3.0, n)],
        "colour": words.tolist(),
        "zip": [f"{v:05d}" for v in g.choice([2139, 94110, 10001], n)],
        "member": g.choice(["True", "False"], n).tolist(),
        "born": [str(v) for v in days],
        "quarter": g.choice(["2024-01-01", "2024-04-01", "2024-07-01"], n).tolist(),
        "seen": [str(v).replace("T", " ") for v in moments],
        "plan": [text if keep else "" for text, keep in zip(g.choice(["a", "b"], n), g.random(n) < 0.8, strict=True)],
        "rate": [f"{v:.3f}" if keep else "" for v, keep in zip(g.normal(size=n), g.random(n) < 0.7, strict=True)],
        "gain": ["0" if zero else str(int(v)) for v, zero in zip(g.lognormal(8, 1, n), g.random(n) < 0.6, strict=True)],
        "same": ["x"] * n,
    }


def _save(path: Path, columns: dict[str, list[str]]) -> Path:
    opener = gzip.open if path.suffix == ".gz" else open
    with opener(path, "wt", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, delimiter="\t" if ".tsv" in path.name else ",", lineterminator="\n")
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def _content(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


KINDS = {
    "age": "count",
    "price": "ordinal",
    "wage": "number",
    "visits": "count",
    "share": "number",
    "colour": "category",
    "zip": "category",
    "member": "boolean",
    "born": "date",
    "quarter": "date",
    "seen": "date",
    "plan": "category",
    "rate": "number",
    "gain": "count",
    "same": "category",
}
NUMBERS = ["age", "wage", "visits", "share", "born", "seen", "rate", "gain"]


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.tsv.gz"])
def test_a_text_file_comes_back_byte_for_byte(tmp_path, name):
    path = _save(tmp_path / name, _columns())
    table, x = Table.fit(path)
    assert {column.name: column.kind for column in table.columns} == KINDS
    table.write(x, tmp_path / f"back-{name}")
    assert _content(tmp_path / f"back-{name}") == _content(path)


def test_states_fit_the_process(tmp_path):
    table, x = Table.fit(_save(tmp_path / "t.csv", _columns()))
    process = table.process()
    assert isinstance(process, Product) and process.names == ("categories", *NUMBERS)
    process.space.check(x)
    assert x["categories"].shape == (N, len(KINDS) - len(NUMBERS) + 2)  # and the companions of rate and gain
    assert all(x[name].shape == (N, 1) and x[name].dtype is torch.float32 for name in NUMBERS)
    masking = process.leaves["categories"]
    assert isinstance(masking, Masking)
    sizes = {c.name: c.size for c in table.coordinates}
    assert masking.space.sizes.tolist() == list(sizes.values())
    assert sizes["plan"] == 3 and sizes["rate"] == 2 and sizes["gain"] == 2 and sizes["same"] == 1


def test_types_in_frames_and_parquet(tmp_path):
    table, x = Table.fit(_save(tmp_path / "t.csv", _columns()))
    frame = table.frame(x)
    expected = pd.DataFrame(_columns())
    assert list(frame.columns) == list(KINDS)
    for name in ("age", "visits", "gain"):
        assert frame[name].dtype == np.int64 and (frame[name] == expected[name].astype(int)).all()
    for name in ("price", "wage", "share"):
        assert frame[name].dtype == np.float64 and (frame[name] == expected[name].astype(float)).all()
    assert frame["member"].dtype == bool and (frame["member"] == (expected["member"] == "True")).all()
    for name in ("born", "quarter", "seen"):
        assert frame[name].dtype.kind == "M" and (frame[name] == pd.to_datetime(expected[name])).all()
    assert (frame["rate"].isna() == (expected["rate"] == "")).all() and (
        frame["plan"].isna() == (expected["plan"] == "")
    ).all()
    again = table.encode_frame(frame)
    assert all(torch.equal(again[leaf], x[leaf]) for leaf in x)
    table.write(x, tmp_path / "t.parquet.gz")
    from_parquet, y = Table.fit(tmp_path / "t.parquet.gz")
    assert {c.name: c.kind for c in from_parquet.columns} == KINDS
    assert all(torch.equal(table.encode(tmp_path / "t.parquet.gz")[leaf], x[leaf]) for leaf in x)
    pd.testing.assert_frame_equal(from_parquet.frame(y), frame)


def test_parquet_types_come_back(tmp_path):
    g = np.random.default_rng(1)
    n = 600
    frame = pd.DataFrame(
        {
            "small": g.integers(0, 50, n).astype(np.int8),
            "half": g.normal(size=n).astype(np.float32),
            "flag": pd.array(g.choice([True, False, None], n), dtype="boolean"),
            "some": pd.array(np.where(g.random(n) < 0.5, g.integers(0, 10**6, n), -1), dtype="Int64"),
            "label": pd.Categorical(g.choice(["u", "v"], n)),
            "size": pd.Categorical(g.choice(["large", "small"], n), ["small", "medium", "large"], ordered=True),
            "when": pd.Timestamp("2024-01-01", tz="Europe/Paris") + pd.to_timedelta(g.integers(0, 10**6, n), unit="s"),
        }
    )
    frame.loc[frame["some"] == -1, "some"] = pd.NA
    frame.to_parquet(tmp_path / "t.parquet", index=False)
    table, x = Table.fit(tmp_path / "t.parquet")
    assert [c.texts for c in table.columns if c.name == "size"] == [("small", "medium", "large")]
    table.write(x, tmp_path / "back.parquet")
    pd.testing.assert_frame_equal(pd.read_parquet(tmp_path / "back.parquet"), pd.read_parquet(tmp_path / "t.parquet"))


def test_decimals_of_new_numbers_are_those_of_the_data(tmp_path):
    table, x = Table.fit(_save(tmp_path / "t.csv", _columns()))
    g = torch.Generator().manual_seed(0)
    drawn = {leaf: torch.randn(v.shape, generator=g) if v.is_floating_point() else v for leaf, v in x.items()}
    table.write(drawn, tmp_path / "s.csv")
    rows = list(csv.DictReader((tmp_path / "s.csv").read_text().splitlines()))
    assert all(len(row["wage"].split(".")[1]) == 2 and row["visits"].isdigit() for row in rows)
    wages = [float(v) for v in _columns()["wage"]]
    assert all(min(wages) <= float(row["wage"]) <= max(wages) for row in rows)
    assert all(len(row["born"]) == 10 and len(row["seen"]) == 19 for row in rows)
    assert {row["wage"] for row in rows} - set(_columns()["wage"])  # and not only values that were there


def test_numbers_are_standard_normal(tmp_path):
    table, x = Table.fit(_save(tmp_path / "t.csv", _columns(3000)))
    for leaf in NUMBERS:
        assert kstest(x[leaf][:, 0].double().numpy(), "norm").pvalue > 0.01, leaf
    # the part that is read, without the filling of atoms and missing values, is so too
    column = [c.name for c in table.coordinates].index("gain")
    own = x["categories"][:, column] == 1
    assert 0.3 < own.double().mean() < 0.5
    assert kstest(x["gain"][own, 0].double().numpy(), "norm").pvalue > 0.01


def test_what_fills_atoms_and_missing_values_is_not_read(tmp_path):
    table, x = Table.fit(_save(tmp_path / "t.csv", _columns()))
    where = {c.name: i for i, c in enumerate(table.coordinates)}
    changed = dict(x)
    for name in ("gain", "rate"):
        own = (x["categories"][:, where[name]] == 1).unsqueeze(-1)
        changed[name] = torch.where(own, x[name], 5 + x[name])
    pd.testing.assert_frame_equal(table.frame(changed), table.frame(x))
    states = x["categories"].clone()
    states[:, where["gain"]] = 0
    assert (table.frame({**x, "categories": states})["gain"] == 0).all()


def test_decimals_beside_atoms(tmp_path):
    g = np.random.default_rng(0)
    columns = {"v": ["0"] * 90 + ["100"] * 60 + [""] * 30 + [f"{v:.3f}" for v in g.normal(size=400)]}
    table, x = Table.fit(_save(tmp_path / "t.csv", columns))
    assert table.columns[0].texts == ("0", "100") and table.process().leaves["categories"].space.size == 4
    table.write(x, tmp_path / "back.csv")
    assert [row[0] for row in csv.reader((tmp_path / "back.csv").read_text().splitlines())][1:] == columns["v"]


def test_json_carries_everything(tmp_path):
    path = _save(tmp_path / "t.csv", _columns())
    table, x = Table.fit(path, {"same": "drop"})
    back = Table.from_json(json.loads(json.dumps(table.to_json())))
    y = back.encode(path)
    assert list(y) == list(x) and all(torch.equal(y[leaf], x[leaf]) for leaf in x)
    pd.testing.assert_frame_equal(back.frame(x), table.frame(x))
    assert back.lines() == table.lines() and back.to_json() == table.to_json()


def test_lines(tmp_path):
    lines = {line.part: line for line in Table.fit(_save(tmp_path / "t.csv", _columns()))[0].lines()}
    assert list(lines) == list(KINDS)
    assert lines["age"].values == "17 ... 89" and lines["age"].process == "Gaussian"
    assert lines["price"].values == "'-3.25', '1.50', '2.00', '19.99'" and lines["price"].process == "masking"
    assert lines["same"].values == "constant: 'x'"
    assert "apart: 0" in lines["gain"].values and lines["gain"].process == "Gaussian and masking"
    assert lines["plan"].values == "'a', 'b'; or missing"
    assert lines["wage"].process == "Gaussian"


def test_overrides(tmp_path):
    columns = {name: _columns()[name] for name in ("age", "visits", "zip", "plan", "colour")}
    columns["size"] = (["small", "large", "NA", "medium"] * N)[:N]
    wishes = {
        "age": "number",
        "visits": "ordinal",
        "zip": {"kind": "number"},
        "plan": "drop",
        "size": {"kind": "ordinal", "order": ["small", "medium", "large"], "missing": ["NA"]},
        "colour": {"missing": ["?"]},
    }
    table, x = Table.fit(_save(tmp_path / "t.csv", columns), wishes)
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds == {"age": "number", "visits": "ordinal", "zip": "number", "colour": "category", "size": "ordinal"}
    assert kstest(x["age"][:, 0].double().numpy(), "norm").pvalue > 0.01
    table.write(x, tmp_path / "back.csv")
    back = pd.read_csv(tmp_path / "back.csv", dtype=str, keep_default_na=False)
    expected = pd.DataFrame({**columns, "zip": [str(int(v)) for v in columns["zip"]]}).drop(columns="plan")
    pd.testing.assert_frame_equal(back, expected.astype(back.dtypes.to_dict()))
    assert table.columns[-1].texts == ("small", "medium", "large")
    assert table.frame(x)["size"].isna().sum() == columns["size"].count("NA")
    assert torch.equal(table.encode(tmp_path / "t.csv")["categories"], x["categories"])


@pytest.mark.parametrize(
    "wishes, match",
    [
        ({"aeg": "number"}, "aeg"),
        ({"age": "numbr"}, "numbr.*ordinal"),
        ({"age": "boolean"}, "boolean"),
        ({"colour": "number"}, "row 1: .* is not a number"),
        ({"colour": "date"}, "row 1: .* is not a date such as"),
        ({"colour": "ordinal"}, "order"),
        ({"colour": {"order": ["red"]}}, "not in the order"),
        ({"price": "count"}, "is no count"),
        ({"age": 3}, "override 3"),
        ({"age": {"kind": "number", "knots": 3}}, "knots"),
    ],
)
def test_bad_overrides(tmp_path, wishes, match):
    with pytest.raises(BadData, match=match):
        Table.fit(_save(tmp_path / "t.csv", _columns(100)), wishes)


def test_only_numbers_or_only_categories(tmp_path):
    columns = _columns()
    table, x = Table.fit(_save(tmp_path / "a.csv", {"wage": columns["wage"]}))
    assert list(x) == ["wage"] and table.process().names == ("wage",)
    table, x = Table.fit(_save(tmp_path / "b.csv", {"colour": columns["colour"]}))
    assert list(x) == ["categories"] and table.process().names == ("categories",)


def test_leaf_names_are_safe(tmp_path):
    wage = _columns()["wage"]
    table, x = Table.fit(
        _save(tmp_path / "t.csv", dict.fromkeys(["categories", "a b", "a.b", "type", "2nd", "", "é"], wage))
    )
    assert len(x) == 7 and all(leaf.isidentifier() and leaf != "categories" for leaf in x)
    nn.ModuleDict({leaf: nn.Identity() for leaf in x})
    table.write(x, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_bytes() == (tmp_path / "t.csv").read_bytes()


def test_missing_spelt_nan_and_one_column_with_gaps(tmp_path):
    for word in ("NaN", "nan", ""):
        path = tmp_path / "t.csv"
        path.write_text("v\n" + "\n".join(["1", word, "3"] * 5) + "\n1\n")
        table, x = Table.fit(path)
        frame = table.frame(x)["v"]
        assert frame.isna().sum() == 5 and str(frame.dtype) == "Int64"
        table.write(x, tmp_path / "back.csv")
        assert (tmp_path / "back.csv").read_text().replace('""', "") == path.read_text()


def test_encoding_another_file(tmp_path):
    columns = _columns()
    table, x = Table.fit(_save(tmp_path / "t.csv", columns))
    some = {name: values[50:90] for name, values in reversed(columns.items())}  # in another order
    y = table.encode(_save(tmp_path / "u.csv", some))
    assert torch.equal(y["categories"], x["categories"][50:90])
    cases = {
        "colour": ("blue", "column 'colour', row 3: 'blue' is no known value"),
        "price": ("5", "column 'price', row 3: '5' is not among"),
        "wage": ("lots", "column 'wage', row 3: 'lots' is no number"),
        "born": ("2024-02-30", "column 'born', row 3: '2024-02-30' is no date"),
        "member": ("", "column 'member', row 3: is missing"),
    }
    for name, (value, match) in cases.items():
        wrong = {**some, name: [*some[name][:2], value, *some[name][3:]]}
        with pytest.raises(BadData, match=match):
            table.encode(_save(tmp_path / "w.csv", wrong))
    with pytest.raises(BadData, match="lacks the column 'age'"):
        table.encode(_save(tmp_path / "w.csv", {k: v for k, v in some.items() if k != "age"}))
    with pytest.raises(BadData, match="unknown column 'more'"):
        table.encode(_save(tmp_path / "w.csv", {**some, "more": some["age"]}))
    near = {**some, "price": ["5"] * 40}
    with pytest.warns(UserWarning, match="'price': 40 new values"):
        moved = table.encode(_save(tmp_path / "w.csv", near), unseen="nearest")
    assert (table.frame(moved)["price"] == 2).all()
    table.encode(_save(tmp_path / "w.csv", {**some, "wage": ["1e9"] * 40}))  # beyond the range: still a number


def test_given(tmp_path):
    table, _ = Table.fit(_save(tmp_path / "t.csv", _columns()))
    where = {c.name: i for i, c in enumerate(table.coordinates)}
    wage = _columns()["wage"][7]
    given = table.given({"price": "2", "colour": "red", "wage": wage, "gain": "0", "rate": "0.1", "plan": ""})
    values, fixed = given["categories"]
    assert [c.name for c, on in zip(table.coordinates, fixed, strict=True) if on] == [
        "price",
        "colour",
        "plan",
        "rate",
        "gain",
    ]
    assert table.coordinates[0].texts[values[0]] == "2.00"
    assert set(given) == {"categories", "wage", "rate", "gain"}  # an atom has a fill for its number, which nobody reads
    z, known = given["wage"]
    assert known.tolist() == [True] and table.leaves["wage"].decode(np.zeros(1, dtype=int), z.numpy()) == [wage]
    assert int(values[where["gain"]]) == 0 and int(values[where["rate"]]) == 1 and int(values[where["plan"]]) == 2
    assert list(table.given({"wage": wage})) == ["wage"] and table.given({}) == {}
    for wrong, match in [
        ({"agee": "3"}, "agee.*use one of.*colour"),
        ({"colour": "blue"}, "given: column 'colour': 'blue'.*'red'"),
        ({"price": "-5"}, "of this column: the nearest is -3.25: use it"),
        ({"price": "31.5"}, "the nearest is 19.99: use it"),
        ({"price": "1.7"}, "the nearest are 1.50 and 2.00: use one of them"),
        ({"wage": "1e12"}, "outside the range"),
        ({"wage": "much"}, "is no number"),
    ]:
        with pytest.raises(BadData, match=match):
            table.given(wrong)


def _many(text: str) -> str:
    return "id,v\n" + "".join(f"{text}{i},{i % 3}\n" for i in range(400))


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b"\n \n", "is empty"),
    "header only": (b"a,b\n", "no rows"),
    "short row": (b"a,b\n1,2\n3\n4,5\n", "row 2 has 1 fields, the header has 2"),
    "long row": (b"a,b\n1,2\n3,4\n4,5,6\n7,8,9\n", "row 3 has 3 fields, the header has 2"),
    "twice": (b"a,b,a\n1,2,3\n", "'a' occurs 2 times"),
    "nothing there": (b"a,b\n,\n,NaN\n", "no column is left to model, 'a' is text .no values"),
    "open quote": (b'a,b\n1,"2\n3,4\n', "row 1 opens a quote that nothing closes"),
    "noise": (np.random.default_rng(0).bytes(5000), "binary"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_files(tmp_path, case):
    path = tmp_path / "t.csv"
    path.write_bytes(BAD[case][0])
    with pytest.raises(BadData, match=BAD[case][1]) as caught:
        Table.fit(path)
    assert "\n" not in str(caught.value) and "t.csv" in str(caught.value)


def test_other_bad_files(tmp_path):
    with pytest.raises(BadData, match="no such file"):
        Table.fit(tmp_path / "none.csv")
    with pytest.raises(BadData, match="rename"):
        Table.fit(_save(tmp_path / "t.data", _columns(5)))
    whole = _save(tmp_path / "t.csv.gz", _columns()).read_bytes()
    (tmp_path / "cut.csv.gz").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadData, match="cut"):
        Table.fit(tmp_path / "cut.csv.gz")
    (tmp_path / "t.parquet").write_bytes(b"a,b\n1,2\n")
    with pytest.raises(BadData, match="Parquet"):
        Table.fit(tmp_path / "t.parquet")
    pd.DataFrame({"a": [[1, 2], [3]]}).to_parquet(tmp_path / "nested.parquet")
    with pytest.raises(BadData, match="column 'a' has the type list"):
        Table.fit(tmp_path / "nested.parquet")


@pytest.mark.parametrize("kind", ["time32[ms]", "time64[us]", "duration[ns]"])
def test_times_of_day_and_durations(tmp_path, kind):
    """Arrow has them as text, but not the way back."""
    pa = arrow_library()
    times = pa.array(range(40), pa.int32() if kind == "time32[ms]" else pa.int64()).cast(pa.type_for_alias(kind))
    pa.parquet.write_table(pa.table({"t": times, "v": [i % 9 for i in range(40)]}), tmp_path / "t.parquet")
    with pytest.raises(BadData) as caught:
        Table.fit(tmp_path / "t.parquet")
    assert f"column 't' has the type {kind}: turn it into a number, such as seconds, or drop it" in str(caught.value)
    assert [column.name for column in Table.fit(tmp_path / "t.parquet", {"t": "drop"})[0].columns] == ["v"]


def test_few_words_among_numbers_are_categories(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("v\n" + "1\n2\n3\nmany\n" * 50)
    table, x = Table.fit(path)
    assert table.columns[0].kind == "category" and table.columns[0].texts == ("1", "2", "3", "many")
    table.write(x, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_text() == path.read_text()


def test_encodings_and_separators(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("name;n\ncafé;1\nthé;2\n".encode("latin-1"))
    table, x = Table.fit(path, encoding="latin-1")
    table.write(x, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_bytes() == path.read_bytes()
    path.write_bytes("\ufeffname,n\ncafé,1\n".encode())
    assert [column.name for column in Table.fit(path)[0].columns] == ["name", "n"]
    with pytest.raises(BadData, match="no encoding 'latin-99'"):
        Table.fit(path, encoding="latin-99")


@pytest.mark.parametrize("blanks", ["\n", " \n\n", "\r\n"])
def test_blank_lines_before_the_header(tmp_path, blanks):
    path = tmp_path / "t.csv"
    path.write_text(blanks + "age\n1.0\n2.0\n\n2.0\n", newline="")
    column = Table.fit(path)[0].columns[0]
    assert (column.name, column.kind, column.texts, column.missing) == ("age", "ordinal", ("1.0", "2.0"), "")
    path.write_text(blanks + "a,b\n1,2\n3\n")
    with pytest.raises(BadData, match="row 2 has 1 fields"):
        Table.fit(path)


@pytest.mark.parametrize(
    "header", ['a;"city, state, land";b', '"x, ""y"", z";b;c', "a, or;b;c", '"two\nlines, one, name";b;c']
)
def test_the_separator_is_the_commonest_outside_quotes(tmp_path, header):
    path = tmp_path / "t.csv"
    path.write_text(f"{header}\n1;2;3\n4;5;6\n")
    table, x = Table.fit(path)
    assert table.separator == ";" and [column.texts for column in table.columns] == [("1", "4"), ("2", "5"), ("3", "6")]


def test_overrides_are_read_as_they_are_written(tmp_path):
    path = _save(tmp_path / "t.csv", {"ok": ["yes", "no"] * 9, "zip": ["01001", "01000"] * 9, "1": ["-9", "2"] * 9})
    (tmp_path / "kinds.yaml").write_text(
        "ok: {kind: ordinal, order: [no, yes]}\nzip: {order: [01000, 01001]}\n1: {missing: [-9]}\n"
    )
    table, x = Table.fit(path, overrides(tmp_path / "kinds.yaml"))
    assert [column.texts for column in table.columns] == [("no", "yes"), ("01000", "01001"), ("2",)]
    assert x["categories"][:2].tolist() == [[1, 1, 1], [0, 0, 0]]


def test_far_too_many_categories_are_left_out_fast(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("fine,id\n" + "".join(f"{i % 7},u{i}\n" for i in range(300_000)))
    start = time.perf_counter()
    table, _ = Table.fit(path)
    assert [column.name for column in table.left_out] == ["id"]
    assert time.perf_counter() - start < 10
    with pytest.raises(BadData, match="column 'id' has 300,000 categories"):
        Table.fit(path, keep=("id",))


def test_long_whole_numbers_stay_exact(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("id\n" + "9007199254740993\n9007199254740995\n" * 20)
    table, x = Table.fit(path)
    table.write(x, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_text() == path.read_text()


def test_importing_the_package_imports_no_table_library():
    code = "import sys, unnoise, unnoise.data.table; print([m for m in ('pandas', 'pyarrow') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"


@pytest.mark.parametrize("text", [" 5", "+5", "5.", "5 ", "+5.", " .5", "+.5", "-5", "5e0"])
def test_numbers_in_odd_spellings_have_types(tmp_path, text):
    """Text keeps how a number is written; a frame and a Parquet file hold the number."""
    path = _save(tmp_path / "t.csv", {"a": [text, "7", ""] * 10, "b": ["1", "2", "3"] * 10})
    table, x = Table.fit(path)
    table.write(x, tmp_path / "back.csv")
    assert _content(tmp_path / "back.csv") == _content(path)
    frame = table.frame(x)
    assert frame["a"].dtype == ("float64" if "5e" in text or ".5" in text else "Int64")
    assert frame["a"][:2].tolist() == [float(text), 7] and frame["a"].isna().sum() == 10
    table.write(x, tmp_path / "back.parquet")
    assert pd.read_parquet(tmp_path / "back.parquet")["a"][:2].tolist() == [float(text), 7]
    spelt = pd.DataFrame({"a": [text, "7"] * 10})  # a typed column of texts keeps them
    spelt.to_parquet(tmp_path / "s.parquet")
    table, x = Table.fit(tmp_path / "s.parquet")
    assert table.frame(x)["a"].tolist() == spelt["a"].tolist()


def test_gaps_in_typed_files(tmp_path):
    """Cells of a Parquet file are read as `fit` reads them."""
    g = np.random.default_rng(0)
    moments = pd.Timestamp("2021-03-01", tz="UTC") + pd.to_timedelta(g.integers(0, 10**7, 300), unit="s")
    frame = pd.DataFrame({"t": moments, "f": g.choice([0.1, 0.2, 0.7], 300).astype("float32"), "n": g.integers(0, 9, 300)})
    frame["day"], frame["yes"] = moments.date, g.random(300) < 0.5
    frame.to_parquet(tmp_path / "t.parquet")
    table, x = Table.fit(tmp_path / "t.parquet")
    _, fixed = table.gaps(tmp_path / "t.parquet")
    assert all(bool(known.all()) for known in fixed.values())
    holes = frame.head(8).astype({"n": "Int64", "yes": "boolean"})
    for i, name in enumerate(frame):
        holes.loc[i, name] = None
    holes.to_parquet(tmp_path / "g.parquet")
    y, fixed = table.gaps(tmp_path / "g.parquet")
    assert {name: (~known).sum(0).tolist() for name, known in fixed.items()} == {
        "categories": [1, 1],
        "t": [1],
        "n": [1],
        "day": [1],
    }
    torch.testing.assert_close(y["t"][fixed["t"]], x["t"][:8][fixed["t"]], atol=1e-2, rtol=0)
    days = table.leaves["day"].scores.decode  # a day of several rows owns an interval, which a gap's row stands amidst
    assert (days(y["day"][fixed["day"]].numpy()) == days(x["day"][:8][fixed["day"]].numpy())).all()
    assert torch.equal(y["categories"][fixed["categories"]], x["categories"][:8][fixed["categories"]])


def test_one_number_spelt_in_two_ways_is_one_value(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("v\n1\n1.0\n2.0\n1.0\n")
    table, x = Table.fit(path)
    assert table.columns[0].texts == ("1.0", "2.0")  # the commoner spelling
    assert x["categories"][:, 0].tolist() == [0, 0, 1, 0]


# -- the grid of numbers ------------------------------------------------------------------------------------------------


def _drawn(table: Table, rows: int = 2000) -> dict[str, torch.Tensor]:
    """New states: any scores, and categories that say to read them."""
    g = torch.Generator().manual_seed(0)
    drawn = {leaf: torch.randn(rows, 1, generator=g) for leaf in table.leaves}
    sizes = [column.size - 1 for column in table.coordinates]
    return {**drawn, **({"categories": torch.tensor(sizes).expand(rows, -1)} if sizes else {})}


def test_new_numbers_lie_on_the_grid_of_the_data(tmp_path):
    g = np.random.default_rng(0)
    days = pd.Timestamp("2019-01-01") + pd.to_timedelta(g.integers(0, 3000, N), "D")
    frame = pd.DataFrame(
        {
            "day": days.strftime("%Y-%m-%d %H:%M:%S"),
            "week": (pd.Timestamp("1950-01-05") + pd.to_timedelta(7 * g.integers(0, 3000, N), "D")).strftime("%Y-%m-%d"),
            "five": 5 * g.integers(-400, 400, N) + 2,
            "zero": np.where(g.random(N) < 0.3, 1, 10 * g.integers(1, 800, N)),  # an atom off the grid
            "quarter": [f"{v / 4:.2f}" for v in g.integers(-900, 900, N)],
            "halves": [f"{v / 2:g}" for v in g.integers(0, 1800, N)],
            "any": [f"{v:.2f}" for v in g.lognormal(3, 1, N)],
            "when": days,
        }
    )
    frame.drop(columns="when").to_csv(tmp_path / "t.csv", index=False)
    frame[["when"]].to_parquet(tmp_path / "t.parquet")
    table, x = Table.fit(tmp_path / "t.csv")
    assert set(table.leaves) == {"day", "week", "five", "zero", "quarter", "halves", "any"}
    table.write(x, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_text() == (tmp_path / "t.csv").read_text()
    table.write(_drawn(table), tmp_path / "s.csv")
    rows = pd.read_csv(tmp_path / "s.csv", dtype=str)
    assert all(text.endswith(" 00:00:00") for text in rows["day"])
    assert set(pd.to_datetime(rows["week"]).dt.day_name()) == {"Thursday"}
    assert {int(v) % 5 for v in rows["five"]} == {2} and {int(v) % 10 for v in rows["zero"]} == {0}
    assert {text[-3:] for text in rows["quarter"]} == {".00", ".25", ".50", ".75"}
    assert {text.partition(".")[2] for text in rows["halves"]} == {"", "5"}
    assert len({text[-2:] for text in rows["any"]}) == 100
    for name in frame.columns[:-1]:
        seen = frame[name].astype(str)
        assert set(rows[name]) - set(seen), name  # not only values that were there
    typed, _ = Table.fit(tmp_path / "t.parquet")
    when = typed.frame(_drawn(typed))["when"]
    assert (when == when.dt.normalize()).all() and when.nunique() > 500


def test_runs_saved_without_a_grid_load(tmp_path):
    table, x = Table.fit(_save(tmp_path / "t.csv", _columns()))
    data = json.loads(json.dumps(table.to_json()))
    for column in data["columns"]:
        for name in ("step", "start"):
            column["scale"] and column["scale"].pop(name)
    old = Table.from_json(data)
    old.write(x, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_bytes() == (tmp_path / "t.csv").read_bytes()


def test_the_nearest_place_of_a_grid_is_found_in_one_rounding():
    """190.46 is no 190.5 before it is 190, and 0.9 no 1 before it is 0."""
    assert Decimals(1, 1, step=10).write(np.array([190.46, 190.54])) == ["190.0", "191.0"]
    assert Decimals(0, 0, step=2).write(np.array([0.9, 1.1, -0.9])) == ["0", "2", "0"]
    assert Dates("D", 0, "", "", step=2).write(np.array([0.9, 1.1])) == ["1970-01-01", "1970-01-03"]
    assert LongIntegers(10**17, 10**17 + 4, step=2).write(np.array([0.9, 1.1])) == [str(10**17), str(10**17 + 2)]


def test_the_grid_is_exact():
    texts = [str(10**17 + 3 + 1000 * k) for k in (5, 1, 9, 2)]
    scale = Decimals(0, 0).on_grid(texts)
    assert (scale.step, scale.start) == (1000, 3)
    assert scale.write(np.array([1e17 + 1600.0])) == ["100000000000002003"]
    cents = Decimals(2, 2).on_grid(["-0.30", "0.00", "70368744177.60"])
    assert (cents.step, cents.start) == (30, 0)
    assert cents.write(np.array([-0.2, 0.1, 0.2, 70368744177.5])) == ["-0.30", "0.00", "0.30", "70368744177.60"]
    assert Decimals(0, None).on_grid(["1e3", "2e3"]).step == 1 and Decimals(0, 0).on_grid(["7"]).step == 1
    early = Dates("m", 0, "T", "").on_grid(["1960-01-01T00:30", "1961-01-01T00:30", "1961-01-02T00:30"])
    assert (early.step, early.start) == (1440, 30)
    assert early.write(early.parse(["1960-05-05T11:00", "1960-05-05T13:00"])) == ["1960-05-05T00:30", "1960-05-06T00:30"]


@pytest.mark.parametrize("largest", [10**15, 2**63 - 1, 10**25])
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_new_whole_numbers_are_whole_however_large(tmp_path, largest, kind):
    if kind == "parquet" and largest > 2**63:
        pytest.skip("no such type")
    shares = np.random.default_rng(0).integers(1, 10**6, N)
    values = [*(largest * int(share) // 10**6 for share in shares), largest]
    path = tmp_path / f"t.{kind}"
    if kind == "csv":
        _save(path, {"ns": [str(v) for v in values]})
    else:
        pd.DataFrame({"ns": values}).to_parquet(path)
    table, _ = Table.fit(path, {"ns": "number"})
    drawn = _drawn(table)
    drawn["ns"][0] = 9.0
    table.write(drawn, tmp_path / "s.csv")
    assert all(text.isdigit() for text in (tmp_path / "s.csv").read_text().split()[1:])
    table.write(drawn, tmp_path / "s.parquet")
    found = pd.read_parquet(tmp_path / "s.parquet")["ns"]
    assert found.dtype == ("int64" if largest < 2**63 else "str") and max(map(int, found)) == largest


def test_runs_saved_with_floats_for_large_whole_numbers(tmp_path):
    """Written 1.6e+18 by them, such a number is whole for Parquet."""
    g = np.random.default_rng(0)
    pd.DataFrame({"ns": 16 * 10**17 + g.integers(0, 10**15, N)}).to_parquet(tmp_path / "t.parquet")
    table, x = Table.fit(tmp_path / "t.parquet", {"ns": "number"})
    data = table.to_json()
    data["columns"][0]["quantiles"]["values"] = [
        float(v + data["columns"][0]["scale"]["origin"]) for v in data["columns"][0]["quantiles"]["values"]
    ]
    data["columns"][0]["scale"] = {"of": "Decimals", "least": 0, "most": None}
    frame = Table.from_json(data).frame(x)
    assert frame["ns"].dtype == "int64" and frame["ns"].between(16 * 10**17, 16 * 10**17 + 10**15).all()


# -- closed sets and numbers -------------------------------------------------------------------------------------------


def test_values_with_few_rows_each_are_numbers(tmp_path):
    g = np.random.default_rng(0)
    income = [f"{v:.2f}" if own else "0.0" for v, own in zip(g.lognormal(10, 1, 320), g.random(320) < 0.6, strict=True)]
    columns = {
        "income": income,
        "rare": [*income[:60], *[""] * 260],  # of what is there
        "grade": [f"{v / 10:.1f}" for v in g.integers(10, 50, 320)],  # 40 values
        "whole": [str(v) for v in g.integers(0, 250, 320)],
        "written": [f"{v}.0" for v in g.integers(0, 250, 320)],
        "day": [str(np.datetime64("2024-01-01") + v) for v in g.integers(0, 250, 320)],
    }
    table, x = Table.fit(_save(tmp_path / "t.csv", columns))
    kinds = {column.name: column.kind for column in table.columns}
    assert len(set(income)) < 256 and len(set(columns["whole"])) > 160
    assert kinds.pop("income") == kinds.pop("rare") == "number" and kinds.pop("day") == "date"
    assert set(kinds.values()) == {"number", "count"} and set(table.leaves) == set(columns)
    assert table.columns[0].texts == ("0.0",)
    for values, rows, kind in ((10, 60, "ordinal"), (20, 60, "number"), (20, 1990, "number"), (20, 2000, "ordinal")):
        some = {"v": [f"{i % values + 0.5}" for i in range(rows)]}
        assert Table.fit(_save(tmp_path / "u.csv", some))[0].columns[0].kind == kind
    for values, rows, kind in ((3, 200, "ordinal"), (4, 200, "number"), (4, 99, "ordinal"), (4, 400, "ordinal")):
        some = {"v": [f"{i % values + 0.5}" for i in range(rows)]}
        assert Table.fit(_save(tmp_path / "u.csv", some))[0].columns[0].kind == kind


@pytest.mark.parametrize(
    ("values", "share", "kind", "atoms"),
    [
        (6, 0.4, "number", ()),
        (6, 0.6, "ordinal", None),  # half of the rows: a category
        (15, 0.6, "number", ()),
    ],
)
def test_a_number_of_half_the_rows(tmp_path, values, share, kind, atoms):
    texts = ["0.5" if i < share * 300 else f"{i % (values - 1) + 1.5}" for i in range(300)]
    (column,) = Table.fit(_save(tmp_path / "t.csv", {"v": texts}))[0].columns
    assert len(set(texts)) == values and column.kind == kind
    assert column.scores is None if atoms is None else column.texts == atoms


# -- gaps -------------------------------------------------------------------------------------------------------------


def _shop(tmp_path: Path) -> Table:
    g = np.random.default_rng(0)
    columns = {
        "id": [f"C{i}" for i in range(N)],
        "age": [str(v) for v in g.integers(20, 40, N)],
        "visits": [str(v) for v in g.integers(0, 5000, N)],
        "member": g.choice(["true", "false"], N).tolist(),
        "w": g.choice(["-0.0", "0.5", "NA"], N).tolist(),
        "day": [str(np.datetime64("2010-01-01") + v) for v in g.integers(0, 3000, N)],
    }
    path = _save(tmp_path / "shop.csv", columns)
    return Table.fit(path, {"id": "drop", "age": "ordinal", "w": {"missing": ["NA"]}})[0]


def _fill(table: Table, source: Path, to: Path, mark: str | None = None) -> None:
    """Everything not known drawn as the first state and the score 0."""
    x, fixed = table.gaps(source, mark)
    table.write_filled({leaf: torch.where(fixed[leaf], x[leaf], 0) for leaf in x}, source, to, mark)


def _gaps(table: Table, path: Path, mark: str | None = None) -> set[tuple[str, int]]:
    """Column and row of every gap."""
    _, fixed = table.gaps(path, mark)
    names = [column.name for column in table.coordinates]
    found = {(names[j], int(i)) for i, j in (~fixed["categories"]).nonzero().tolist()}
    return found | {(table.leaves[leaf].name, int(i)) for leaf in table.leaves for i in (~fixed[leaf]).nonzero()[:, 0]}


FULL = "w,id,age,member,day,visits"


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("separator", [",", ";", "\t"])
def test_what_is_no_gap_stays_as_it_is_written(tmp_path, end, separator):
    table = _shop(tmp_path)
    lines = [
        FULL,
        '0.50,"C,;\t0",30.0,TRUE,2011-01-01,0039.0',
        '0.0,"C1",{age},TRUE,2011-01-02,"40"',
        "{w},say,21,{m},{day},+77",
    ]
    lines += ["", "-0,,20,false,2011-01-03,1e3"]
    text = end.join(lines).replace("C,;", "\0").replace(",", separator).replace("\0", "C,;")
    day = table.columns[-1].decode(np.zeros(1, dtype=int), np.zeros(1))[0]
    known, filled = text.format(age="", w="NA", m="", day=""), text.format(age="20", w="-0.0", m="false", day=day)
    for last in ("", end):
        source = tmp_path / "g.csv"
        source.write_text("\ufeff" + end + known + last, newline="")
        _fill(table, source, tmp_path / "o.csv")
        assert (tmp_path / "o.csv").read_bytes().decode() == "\ufeff" + end + filled + last


def test_columns_left_out_are_added_and_another_ending_is_another_form(tmp_path):
    table = _shop(tmp_path)
    (tmp_path / "g.csv").write_text('id,"a ""note""",visits\n"a,b",,39.0\n"tab\t",,\n')
    visits = table.columns[1].decode(np.zeros(1, dtype=int), np.zeros(1))[0]
    day = table.columns[-1].decode(np.zeros(1, dtype=int), np.zeros(1))[0]
    rest = ["20", "false", "-0.0", day]
    _fill(table, tmp_path / "g.csv", tmp_path / "o.csv")
    lines = [
        'id,"a ""note""",visits,age,member,w,day',
        f'"a,b",,39.0,{",".join(rest)}',
        f'"tab\t",,{visits},{",".join(rest)}',
    ]
    assert (tmp_path / "o.csv").read_text() == "\n".join(lines) + "\n"
    _fill(table, tmp_path / "g.csv", tmp_path / "o.tsv.gz")
    own = ["id", 'a "note"', "visits", "age", "member", "w", "day"]
    rows = list(csv.reader(_content(tmp_path / "o.tsv.gz").decode().splitlines(), delimiter="\t"))
    assert rows == [own, ["a,b", "", "39.0", *rest], ["tab\t", "", visits, *rest]]
    _fill(table, tmp_path / "g.csv", tmp_path / "o.parquet")
    frame = pd.read_parquet(tmp_path / "o.parquet")
    assert list(frame) == own and frame["id"].tolist() == ["a,b", "tab\t"]
    assert frame["visits"].dtype == "int64" and frame["visits"].tolist() == [39, int(visits)]
    table.write_given(_drawn(table, 1), {"visits": "39.0"}, tmp_path / "s.parquet")
    assert pd.read_parquet(tmp_path / "s.parquet")["visits"].tolist() == [39]


def test_one_column_with_gaps(tmp_path):
    table, _ = Table.fit(_save(tmp_path / "t.csv", {"v": ["1", "2"] * 9}))
    (tmp_path / "g.csv").write_text("v\n2\n\n2\n\n")
    _fill(table, tmp_path / "g.csv", tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text() == "v\n2\n1\n2\n1\n"


def test_filled_parquet_keeps_its_columns(tmp_path):
    table = _shop(tmp_path)
    frame = pd.DataFrame({"visits": [39.0, np.nan], "id": [[1, 2], None], "age": [30, 31], "member": [True, None]})
    frame["w"], frame["day"] = [0.5, 0.5], pd.to_datetime(["2011-01-01", "2011-01-02"])
    frame.to_parquet(tmp_path / "g.parquet")
    assert _gaps(table, tmp_path / "g.parquet") == {("visits", 1), ("member", 1)}
    _fill(table, tmp_path / "g.parquet", tmp_path / "o.parquet")
    filled = pd.read_parquet(tmp_path / "o.parquet")
    assert list(filled) == list(frame) and filled["id"][0].tolist() == [1, 2] and filled["id"][1] is None
    assert filled["visits"].dtype == "int64" and filled["visits"][0] == 39 and filled["age"].tolist() == [30, 31]
    assert [str(day) for day in filled["day"]] == ["2011-01-01", "2011-01-02"]
    _fill(table, tmp_path / "g.parquet", tmp_path / "o.csv")
    rows = list(csv.reader((tmp_path / "o.csv").read_text().splitlines()))
    assert rows[0] == list(frame) and rows[1][:4] == ["39", "[1, 2]", "30", "true"] and rows[2][1:4] == ["", "31", "false"]


def test_every_spelling_of_a_missing_value_is_a_gap(tmp_path):
    table = _shop(tmp_path)
    (tmp_path / "g.csv").write_text(FULL + "\nNA,a,NaN,nan,,NaN\n,b,,true,NaN,\n0.5,c,30,?,2011-01-01,77\n")
    blank = {(name, 0) for name in ("w", "age", "member", "day", "visits")}
    blank |= {(name, 1) for name in ("w", "age", "day", "visits")}
    assert _gaps(table, tmp_path / "g.csv", "?") == blank | {("member", 2)}
    _fill(table, tmp_path / "g.csv", tmp_path / "o.csv", "?")
    rows = list(csv.reader((tmp_path / "o.csv").read_text().splitlines()))
    assert all(cell not in ("", "NA", "nan", "NaN", "?") for row in rows for cell in row)
    (tmp_path / "g.csv").write_text("w,age\n0.5,NA\n")  # another column's word
    with pytest.raises(BadData, match="row 1: column 'age': 'NA' is no number"):
        table.gaps(tmp_path / "g.csv")


def test_a_value_that_is_not_known_is_told_its_neighbours(tmp_path):
    table = _shop(tmp_path)
    (tmp_path / "g.csv").write_text("age\n30\n30.5\n")
    with pytest.raises(BadData, match="g.csv: row 2: column 'age': '30.5' .*: the nearest are 30 and 31: use one of them"):
        table.gaps(tmp_path / "g.csv")
    with pytest.raises(BadData, match="the nearest is 39: use it"):
        table.given({"age": "77"})
