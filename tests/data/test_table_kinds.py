"""Tables in JSON lines, spreadsheets, TSV and folders of Parquet: there and back with their types, gaps filled."""

import json
from datetime import date, datetime

import numpy as np
import openpyxl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from unnoise.data import BadData, Reading, read
from unnoise.data.read import read_source
from unnoise.data.source_file import SourceFile
from unnoise.data.table import Table
from unnoise.data.table_kinds import TYPED, register_table_file

N = 60
RNG = np.random.default_rng(0)
ROWS = [
    {
        "name": str(RNG.choice(["ann", "bob", "cy"])),
        "size": round(float(RNG.normal()), 6),
        "count": int(RNG.integers(10**9, 2 * 10**9)),
        "ok": bool(RNG.integers(2)),
        "where": {"city": str(RNG.choice(["Ulm", "Öls"])), "at": {"x": float(i) + 0.5}},
        "none": None if i % 3 else "here",
    }
    for i in range(N)
]


def lines(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def parsed(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def book(path, rows, sheet=None, first=None):
    """A spreadsheet; with `sheet` the rows are in a second one of that name."""
    made = openpyxl.Workbook()
    if sheet:
        made.active.append(["other"])
        made.active.append([1])
    page = made.create_sheet(sheet) if sheet else made.active
    for row in ([first] if first else []) + rows:
        page.append(row)
    made.save(path)
    return path


def cells(path, sheet=None):
    made = openpyxl.load_workbook(path)
    return [list(row) for row in (made[sheet] if sheet else made.worksheets[0]).iter_rows(values_only=True)]


def again(form):
    return Table.from_json(json.loads(json.dumps(form.to_json())))


@pytest.mark.parametrize("suffix", [".jsonl", ".ndjson", ".jsonl.gz"])
def test_json_lines_there_and_back(tmp_path, suffix):
    path = lines(tmp_path / "a.jsonl", ROWS)
    if suffix.endswith("gz"):
        import gzip

        packed = tmp_path / "a.jsonl.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
    else:
        packed = path.rename(tmp_path / f"a{suffix}")
    form, x = read(packed)
    form = again(form)
    assert form.kind == "table" and form.suffix == suffix.removesuffix(".gz")
    form.write(x, tmp_path / "out.jsonl")
    assert parsed(tmp_path / "out.jsonl") == ROWS
    assert (tmp_path / "out.jsonl").read_text(encoding="utf-8").splitlines()[0] == json.dumps(ROWS[0], ensure_ascii=False)


def test_keys_that_are_missing_are_missing_values(tmp_path):
    rows = [{"a": i, "b": "x" if i % 2 else "y"} for i in range(30)]
    del rows[4]["b"]
    rows[7]["a"] = None
    rows[9]["a"] = "N/A"  # a word for a missing value beside numbers
    rows[11]["c"] = True
    form, x = Table.fit(lines(tmp_path / "a.jsonl", rows))
    form.write(x, tmp_path / "o.jsonl")
    out = parsed(tmp_path / "o.jsonl")
    assert list(out[0]) == ["a", "b", "c"] and out[4]["b"] is None and out[7]["a"] is None and out[9]["a"] is None
    assert [row["c"] for row in out] == [True if i == 11 else None for i in range(30)]
    assert [row["a"] for row in out if row["a"] is not None] == [i for i in range(30) if i not in (7, 9)]


@pytest.mark.parametrize(
    "text, words",
    [
        (
            '{"a": 1}\n{"a": "x"}\n',
            r"column 'a' is a text in line 2 \('x'\), and a number in line 1 \(1\): write them alike",
        ),
        ('{"a": 1}\n\n{"a": 2\n', "line 3 is no JSON .*: write one object per line"),
        ('{"a": 1}\n[1]\n', "line 2 is a list: write one object per line"),
        ('{"a": 1, "t": [1, 2]}\n{"a": 2}\n', "column 't' has the type list.*: drop it"),
        ('{"a": {"b": 1}, "a.b": 2}\n', "the key 'a.b' occurs twice, as such and within an object: rename one"),
        ('{"a": 1}\n{"a": 100000000000000000000}\n', "column 'a' in line 2 is a number of more than 64 bits"),
        ("{}\n{}\n", "have no keys"),
        ("\n \n", "has no lines"),
    ],
)
def test_bad_json_lines(tmp_path, text, words):
    (tmp_path / "a.jsonl").write_text(text)
    with pytest.raises(BadData, match=words) as caught:
        Table.fit(tmp_path / "a.jsonl")
    assert "\n" not in str(caught.value)


def filled(form, source, out, mark=None):
    """Gaps filled by the states of other rows of the training file."""
    x, fixed = form.gaps(source, mark)
    other = form.encode(source.with_name("train" + source.suffix))
    rows = len(next(iter(x.values())))
    x = {leaf: torch.where(fixed[leaf], x[leaf], other[leaf][:rows]) for leaf in x}
    form.write_filled(x, source, out, mark)


def test_gaps_of_json_lines(tmp_path):
    form, _ = Table.fit(lines(tmp_path / "train.jsonl", ROWS), {"none": "drop"})
    gaps = [{**row} for row in ROWS[:4]]
    gaps[0]["size"] = None
    gaps[1]["where"] = {"city": "Ulm"}
    del gaps[2]["ok"]
    for row, kept in zip(gaps, ([1, {"k": 2}], "b", None, "d"), strict=True):
        row["none"] = kept if isinstance(kept, list) else None
    filled(form, lines(tmp_path / "g.jsonl", gaps), tmp_path / "o.jsonl")
    out = parsed(tmp_path / "o.jsonl")
    assert out[0]["size"] == ROWS[0]["size"] and out[1]["where"] == {"city": "Ulm", "at": ROWS[1]["where"]["at"]}
    assert out[2]["ok"] is ROWS[2]["ok"] and out[3] == {**ROWS[3], "none": None}
    assert out[0]["none"] == [1, {"k": 2}]  # a column that was dropped stays as it is
    assert [row["size"] for row in out[1:]] == [row["size"] for row in ROWS[1:4]]


def sheet_rows():
    moments = [datetime(2024, 1, 1 + i % 28, i % 24, 5, 0) for i in range(N)]
    return [
        [f"k{i % 3}", i * 0.25 - 3, 10**6 + i**2, i % 2 == 0, datetime(2020, 1, 1 + i % 28), moments[i], 7 * i % 11 or None]
        for i in range(N)
    ]


HEAD = ["word", "size", "count", "ok", "day", "seen", "gap"]


def test_spreadsheets_there_and_back(tmp_path):
    path = book(tmp_path / "train.xlsx", sheet_rows(), first=HEAD)
    form, x = read(path)
    form = again(form)
    assert form.suffix == ".xlsx" and form.shown_suffix() == ".csv"
    form.write(x, tmp_path / "o.xlsx")
    assert cells(tmp_path / "o.xlsx") == cells(path)
    kinds = {str(field.name): str(field.type) for field in form.arrow(x).schema}
    assert kinds == dict(
        zip(HEAD, ["string", "double", "int64", "bool", "date32[day]", "timestamp[s]", "int64"], strict=True)
    )
    holes = sheet_rows()[:5]
    holes[1][1] = holes[2][4] = holes[3][0] = None
    filled(form, book(tmp_path / "g.xlsx", holes, first=HEAD), tmp_path / "full.xlsx")
    assert cells(tmp_path / "full.xlsx") == cells(path)[:6]


def test_a_sheet_by_name(tmp_path):
    path = book(tmp_path / "a.xlsx", sheet_rows(), sheet="2024", first=HEAD)
    assert [line.part for line in read(path)[0].lines()] == ["other"]
    form, x = read(path, Reading(options={"sheet": "2024"}))
    form = again(form)
    assert [column.name for column in form.columns] == HEAD
    form.write(x, tmp_path / "o.xlsx")
    assert cells(tmp_path / "o.xlsx", "2024") == cells(path, "2024")
    assert torch.equal(form.encode(path)["size"], x["size"])
    with pytest.raises(BadData, match="there is no sheet '2025': choose from Sheet, 2024"):
        read(path, Reading(options={"sheet": "2025"}))
    with pytest.raises(BadData, match="--option sheet is for spreadsheets"):
        read(lines(tmp_path / "a.jsonl", ROWS), Reading(options={"sheet": "2024"}))


@pytest.mark.parametrize(
    "rows, words",
    [
        ([["a", None], [1, 2]], "column B has values but no name"),
        ([["a", "b"], [1, 2], [3, "x"]], r"column 'b' is a text in row 3 \('x'\), and a number in row 2"),
        ([["a", "a"], [1, 2]], "the column name 'a' occurs 2 times"),
        ([["a", "b"]], "has a header but no rows"),
        ([[1, 2], [3, 4]], "the first row holds numbers, not column names"),
        ([], "the sheet is empty"),
    ],
)
def test_bad_spreadsheets(tmp_path, rows, words):
    with pytest.raises(BadData, match=words):
        Table.fit(book(tmp_path / "a.xlsx", rows))
    (tmp_path / "b.xlsx").write_bytes(b"PK\x03\x04 no such thing")
    with pytest.raises(BadData, match="b.xlsx: is no spreadsheet that can be read"):
        Table.fit(tmp_path / "b.xlsx")


def test_markers_and_blank_rows_of_a_sheet(tmp_path):
    rows = [["x", "y"], *[[i * i % 23, i * 0.5] for i in range(20)], [None, None], ["#N/A", 3.5], [None, None]]
    form, x = Table.fit(book(tmp_path / "a.xlsx", rows))
    form.write(x, tmp_path / "o.xlsx")
    assert cells(tmp_path / "o.xlsx")[-2:] == [[19 * 19 % 23, 9.5], [None, 3.5]]


def test_a_tsv_comes_back_as_one(tmp_path):
    (tmp_path / "a.tsv").write_text("a\tb\n" + "".join(f"{i * i % 31}\tw{i % 2}\n" for i in range(40)))
    form, x = read(tmp_path / "a.tsv")
    assert again(form).suffix == again(form).shown_suffix() == ".tsv"
    form.write(x, tmp_path / f"o{form.suffix}")
    assert (tmp_path / "o.tsv").read_text() == (tmp_path / "a.tsv").read_text()
    old = {name: value for name, value in form.to_json().items() if name != "form"}  # as runs were saved before
    assert Table.from_json(old).suffix == ".csv"


def parquet(path, rows, **columns):
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"v": RNG.normal(size=rows), "w": ["a", "b"] * (rows // 2), **columns}), path)


def test_a_folder_of_parquet_files_is_one_table(tmp_path):
    folder = tmp_path / "data"
    for i, rows in enumerate((20, 10)):
        parquet(folder / f"part-{i}.parquet", rows, more=np.arange(rows) ** 2 % 7) if i else parquet(
            folder / "part-0.parquet", rows
        )
    (folder / "_SUCCESS").touch()
    form, x, source = read_source(folder)
    assert form.suffix == ".parquet" and [column.name for column in form.columns] == ["v", "w", "more"] and len(x["v"]) == 30
    form.write(x, tmp_path / "o.parquet")
    whole = pq.read_table(tmp_path / "o.parquet")
    parts = [pq.read_table(folder / f"part-{i}.parquet") for i in (0, 1)]
    assert whole["v"].to_pylist() == parts[0]["v"].to_pylist() + parts[1]["v"].to_pylist()
    assert whole["more"].to_pylist() == [None] * 20 + [i * i % 7 for i in range(10)]
    assert source.still_at(folder)
    (folder / "part-1.parquet").rename(folder / "part-2.parquet")  # a name counts
    assert not source.still_at(folder)
    parquet(folder / "part-2.parquet", 12)
    assert SourceFile.of(folder).digest not in (source.digest, None)


def test_a_folder_that_is_partitioned(tmp_path):
    folder = tmp_path / "data"
    for year in (2023, 2024):
        for sex in "fm":
            parquet(folder / f"year={year}" / f"sex={sex}" / "part.parquet", 10)
    form, x = read(folder)
    table = form.arrow(x)
    assert table.column_names == ["v", "w", "year", "sex"]
    assert (
        table["year"].to_pylist() == [2023] * 20 + [2024] * 20 and table["sex"].to_pylist() == (["f"] * 10 + ["m"] * 10) * 2
    )


def test_folders_that_are_no_table(tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / ".hidden").touch()
    with pytest.raises(BadData, match="empty: is an empty folder: it needs images or Parquet files"):
        read(tmp_path / "empty")
    parquet(tmp_path / "mixed" / "a.parquet", 4)
    (tmp_path / "mixed" / "b.csv").write_text("v\n1\n")
    with pytest.raises(BadData, match="mixed: holds b.csv beside Parquet files: move what is none of them elsewhere"):
        read(tmp_path / "mixed")
    (tmp_path / "mixed" / "b.csv").rename(tmp_path / "mixed" / "b.parquet")
    with pytest.raises(BadData, match="b.parquet: is no Parquet file"):
        read(tmp_path / "mixed")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "b.csv").write_text("v\n1\n")
    with pytest.raises(BadData, match=r"neither images nor Parquet files \(it holds b.csv\): pass one file"):
        read(tmp_path / "texts")
    parquet(tmp_path / "unlike" / "a.parquet", 4)
    pq.write_table(pa.table({"v": ["x"]}), tmp_path / "unlike" / "b.parquet")
    with pytest.raises(BadData, match="unlike: its files are not of one table"):
        read(tmp_path / "unlike")


def test_another_kind_of_file_is_one_entry(tmp_path, monkeypatch):
    monkeypatch.setattr("unnoise.data.table_kinds.TYPED", TYPED)

    def numbers(path, options):
        return pa.table({"n": [int(v) for v in path.read_text().split()]}), {"suffix": ".nums"}

    register_table_file(".nums", numbers, lambda table, form: " ".join(map(str, table["n"].to_pylist())).encode())
    try:
        (tmp_path / "a.nums").write_text(" ".join(str(i * i % 31) for i in range(40)))
        form, x = read(tmp_path / "a.nums")
        form.write(x, tmp_path / f"o{form.suffix}")
        assert (tmp_path / "o.nums").read_text() == (tmp_path / "a.nums").read_text()
    finally:
        del TYPED[".nums"]


def test_dates_of_a_day_are_days(tmp_path):
    form, x = Table.fit(book(tmp_path / "a.xlsx", [[date(2020, 1, 1 + i % 28)] for i in range(60)], first=["day"]))
    assert form.arrow(x)["day"].to_pylist()[:2] == [date(2020, 1, 1), date(2020, 1, 2)]
