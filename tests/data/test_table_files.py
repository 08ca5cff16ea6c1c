"""Files as people have them: byte-order marks, other encodings, no header; and the file of kinds."""

import numpy as np
import pandas as pd
import pytest
import torch

from unnoise.data.header import has_header
from unnoise.data.read import read
from unnoise.data.table import Table
from unnoise.data.table_files import overrides
from unnoise.data.typed_columns import arrow_library

N = 60
TEXT = "név,n\n" + "".join(f"{('café', 'thé')[i % 2]},{i * i % 97}\n" for i in range(N))
WEST = TEXT.replace("név", "nom")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_byte_order_marks(tmp_path, encoding):
    path = tmp_path / "t.csv"
    path.write_bytes(TEXT.encode(encoding))
    table, x = read(path)
    assert [column.name for column in table.columns] == ["név", "n"] and table.notes() == []
    table.write(x, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_bytes() == path.read_bytes()
    table.write_filled(x, path, tmp_path / "filled.csv")
    assert (tmp_path / "filled.csv").read_bytes() == path.read_bytes()
    path.write_bytes(TEXT.encode())  # another file of the same columns, without a mark
    assert torch.equal(table.encode(path)["categories"], x["categories"])


def test_big_endian(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes(b"\xfe\xff" + TEXT.encode("utf-16-be"))
    table, x = read(path)
    assert table.frame(x)["név"].tolist()[:2] == ["café", "thé"]


@pytest.mark.parametrize("encoding, byte", [("cp1252", b"\x80"), ("latin-1", b"\x81")])
def test_what_is_not_utf_8_is_read_and_said(tmp_path, encoding, byte):
    raw = WEST.encode("latin-1").replace(b"caf", b"caf" + byte)
    path = tmp_path / "t.csv"
    path.write_bytes(raw)
    table, x = read(path)
    assert table.notes() == [f"the text is not utf-8: read as {encoding}, to overrule it use --encoding"]
    table.write(x, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_bytes() == raw
    assert Table.fit(path, encoding="latin-1")[0].notes() == []


def _rows(columns: dict[str, list[str]]) -> str:
    return "".join(",".join(row) + "\n" for row in zip(*columns.values(), strict=True))


def _measured() -> dict[str, list[str]]:
    g = np.random.default_rng(0)
    return {
        "length": [f"{v:.1f}" for v in g.normal(5, 1, N)],
        "day": [f"{v:02d}.03.2021" for v in g.integers(1, 31, N)],
        "kind": g.choice(["setosa", "virginica"], N).tolist(),
    }


def test_no_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(_rows(_measured()))
    table, x = Table.fit(path)
    assert [column.name for column in table.columns] == ["column_1", "column_2", "column_3"] and not table.header
    assert table.notes() == ["the first row holds values, not names: the columns are called column_1, ..."]
    assert len(x["categories"]) == N
    table = Table.from_json(table.to_json())
    table.write(x, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_bytes() == path.read_bytes()
    table.write(x, tmp_path / "back.parquet")
    assert torch.equal(table.encode(tmp_path / "back.parquet")["categories"], x["categories"])
    assert torch.equal(table.encode(path)["categories"], x["categories"])
    path.write_text("column_1,column_2,column_3\n" + path.read_text())  # with the names it has now
    assert torch.equal(table.encode(path)["categories"], x["categories"])


def test_gaps_without_a_header(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(_rows(_measured()))
    table, x = Table.fit(path)
    whole = path.read_text().splitlines()
    (tmp_path / "g.csv").write_text("\n".join([whole[0], whole[1].rpartition(",")[0] + ",", *whole[2:]]) + "\n")
    _, fixed = table.gaps(tmp_path / "g.csv")
    assert table.count_gaps(fixed) == 1
    table.write_filled(x, tmp_path / "g.csv", tmp_path / "o.csv")
    assert (tmp_path / "o.csv").read_text() == path.read_text()


@pytest.mark.parametrize(
    "first, columns, expected",
    [
        (["a", "b"], [["1", "2"], ["x", "y"]], True),
        (["1.5", "x"], [["1", "2"], ["x", "x"]], False),
        (["1.5", "colour"], [["1", "2"], ["x", "x"]], True),  # a word that is none of the column's
        (["5", "7"], [["1", "2"], ["3", "4"]], False),
        (["0", "1", "2"], [["1", "2"], ["3", "4"], ["3", "4"]], True),  # names that programs give
        (["land", "1990", "1991"], [["a", "b"], ["3", "4"], ["3", "4"]], True),  # a column for each year
        (["red", "small"], [["red", "blue"], ["small", "large"]], False),
        (["colour", "small"], [["red", "blue"], ["small", "large"]], True),
        (["n", "2021-01-01"], [["1", "2"], ["2021-01-01", "2021-01-02"]], True),
    ],
)
def test_what_a_header_is(first, columns, expected):
    assert has_header(first, columns) is expected


def _shop() -> dict[str, list[str]]:
    g = np.random.default_rng(0)
    prices = [f"$ {v:,.2f}" if i % 9 else "n/a" for i, v in enumerate(g.lognormal(6, 1, 200))]
    return {
        "id": [str(i + 1) for i in range(200)],
        "price": prices,
        "share": [f"{v:.1f}".replace(".", ",") + "%" for v in g.uniform(0, 90, 200)],
        "day": [f"{a:02d}/{b:02d}/2020" for a, b in g.integers(1, 12, (200, 2))],
        "iso": [str(np.datetime64("2020-01-01") + v) for v in g.integers(0, 900, 200)],
        "zip": [f"{v:05d}" for v in g.choice([2139, 94110], 200)],
        "yes: no": g.choice(["True", "False"], 200).tolist(),
        "mail": [f"u{v}@x.example" for v in range(200)],
        "count": [str(v) for v in g.integers(0, 10**5, 200)],
        "age": [str(v) for v in g.integers(20, 40, 200)],
        "#": g.choice(["a", "b"], 200).tolist(),
        "extra": ["x"] * 200,
    }


def test_the_file_of_kinds_says_what_was_understood(tmp_path):
    path = tmp_path / "t.csv"
    pd.DataFrame(_shop()).to_csv(path, index=False)
    table, x = Table.fit(path, {"extra": "drop"})
    (tmp_path / "kinds.yaml").write_text(table.kinds())
    again, y = Table.fit(path, overrides(tmp_path / "kinds.yaml"))
    assert [(c.name, c.kind) for c in again.in_order] == [(c.name, c.kind) for c in table.in_order]
    assert [c.scale for c in again.columns if c.name != "day"] == [c.scale for c in table.columns if c.name != "day"]
    assert again.dropped == ("extra",) and all(torch.equal(x[leaf], y[leaf]) for leaf in x)
    assert not any("day first or" in note for note in again.notes())  # what was unclear is said now
    text = table.kinds()
    assert (
        '"day": {kind: date, form: day first}' in text
        and '"id": identifier  # made anew like #; running numbers 1 ... 200' in text
    )
    assert "# unclear: column 'day': its dates fit" in text and '"extra": drop' in text


def test_everything_unclear_is_said_at_once(tmp_path):
    columns = {**_shop(), "odd": [*(str(v / 7) for v in range(199)), "much"], "none": [""] * 200}
    pd.DataFrame(columns).to_csv(tmp_path / "t.csv", index=False)
    table, _ = Table.fit(tmp_path / "t.csv")
    notes = "\n".join(table.notes())
    assert "'day': its dates fit" in notes and "'odd': row 200: 'much' is no number" in notes
    assert "made anew in samples: 'id'" in notes and "empty in samples: 'mail', 'none'" in notes
    with pytest.raises(ValueError, match="column 'zip'.*; .*column 'mail'") as caught:  # and all that is wrong
        Table.fit(tmp_path / "t.csv", {"zip": "date", "mail": "number"})
    assert "\n" not in str(caught.value)


def test_tables_in_memory():
    pa = arrow_library()
    source = pa.table(
        {
            "id": pa.array(range(1, 101), pa.int32()),
            "mail": [f"u{i}@x.example" for i in range(100)],
            "v": pa.array(np.random.default_rng(0).normal(size=100), pa.float32()),
            "n": pa.array([None if i % 10 == 0 else i % 7 for i in range(100)], pa.int16()),
            "money": [f"${i * 13 % 89 + 1},{i * 7 % 900 + 100}.50" for i in range(100)],
        }
    )
    table, x = Table.of_arrow(source)
    back = table.arrow(x)
    assert back.schema.types == source.schema.types and back.column_names == source.column_names
    assert all(back[name].equals(source[name]) for name in ("v", "n", "money"))
    assert back["id"].to_pylist() == list(range(101, 201)) and back["mail"].null_count == 100
    frame = table.frame(x)
    assert list(frame) == source.column_names and frame["id"].dtype == "int32" and str(frame["n"].dtype) == "Int16"
    table, _ = Table.of_arrow(source, {"v": "drop"}, where="my table")
    assert table.dropped == ("v",)
    with pytest.raises(ValueError, match="^my table: .*'w'"):
        Table.of_arrow(source, {"w": "drop"}, "my table")
