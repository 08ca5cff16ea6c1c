"""Dates as people write them: the order of days and months by the whole column, and back in the very same form."""

import numpy as np
import pandas as pd
import pytest
import torch

from unnoise.data.table import Table
from unnoise.data.written_dates import WrittenDates

N = 400
FORMS = [
    "%d/%m/%Y",
    "%m/%d/%Y",
    "%-d.%-m.%Y",
    "%d-%m-%Y",
    "%Y/%m/%d",
    "%d.%m.%y",
    "%m/%d/%y",
    "%d-%b-%Y",
    "%d %B %Y",
    "%B %-d, %Y",
    "%b %d, %Y",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y %I:%M %p",
    "%-m/%-d/%Y %-I:%M:%S %p",
    "%b-%y",
    "%m/%Y",
]


def _moments() -> pd.DatetimeIndex:
    g = np.random.default_rng(0)
    return pd.Timestamp("1999-12-30 00:00") + pd.to_timedelta(g.integers(0, 8000 * 86400, N), unit="s")


def _save(path, cells: list[str]):
    path.write_text("v;b\n" + "".join(f"{cell};{'xy'[i % 2]}\n" for i, cell in enumerate(cells)))
    return path


def _column(path) -> list[str]:
    return [line.split(";")[0] for line in path.read_text().splitlines()[1:]]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_comes_back(tmp_path, form):
    cells = _moments().strftime(form).tolist()
    table, x = Table.fit(_save(tmp_path / "t.csv", cells))
    assert table.columns[0].kind == "date" and table.columns[0].scale.form == form and table.notes() == []
    table.write(x, tmp_path / "back.csv")
    assert _column(tmp_path / "back.csv") == cells
    Table.from_json(table.to_json()).write(x, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "back.csv").read_bytes()
    frame = table.frame(x)
    expected = pd.to_datetime(pd.Series(cells), format=form.replace("%-", "%"))
    assert (frame["v"] == expected).all()
    again = table.encode_frame(frame)
    assert all(torch.equal(again[leaf], x[leaf]) for leaf in x)


@pytest.mark.parametrize("form", [form for form in FORMS if "d" in form])
def test_new_dates_have_the_form_and_are_new(tmp_path, form):
    cells = _moments().strftime(form).tolist()
    table, x = Table.fit(_save(tmp_path / "t.csv", cells))
    drawn = {**x, "v": x["v"] + 0.3 * torch.randn(x["v"].shape, generator=torch.Generator().manual_seed(0))}
    table.write(drawn, tmp_path / "s.csv")
    new = _column(tmp_path / "s.csv")
    assert pd.to_datetime(pd.Series(new), format=form.replace("%-", "%")).dt.strftime(form).tolist() == new
    assert len(set(new) - set(cells)) > 0.5 * len(set(new))


@pytest.mark.parametrize(
    "texts, form, unclear",
    [
        (["05/04/2023", "13/04/2023"], "%d/%m/%Y", False),
        (["05/04/2023", "04/13/2023"], "%m/%d/%Y", False),
        (["05/04/2023", "06/03/2023"], "%d/%m/%Y", True),
        (["01/02/2023", "01/03/2023"], "%d/%m/%Y", False),  # firsts of months
        (["02/01/2023", "03/01/2023"], "%m/%d/%Y", False),
        (["05.04.2023", "06.03.2023"], "%d.%m.%Y", False),
        (["05/04/2023 1:05 PM", "06/03/2023 2:00 AM"], "%m/%d/%Y %-I:%M %p", False),
        (["1 May 2021", "2 May 2021"], "%-d %b %Y", False),
        (["31-DEC-2020", "01-JAN-2021"], "%d-%b-%Y", False),
    ],
)
def test_evidence_of_the_whole_column(texts, form, unclear):
    scale = WrittenDates.understand(texts)
    assert scale is not None and scale.form == form and bool(scale.note) == unclear
    assert scale.write(scale.parse(texts)) == texts


@pytest.mark.parametrize("texts", [["31/02/2020"], ["12/13/2020", "13/12/2020"], ["555-123-4567"], ["1/2/2020", "1.2.2020"]])
def test_no_dates(texts):
    assert WrittenDates.understand(texts) is None


def test_two_digit_years_are_of_one_century():
    texts = [f"01/{1 + y % 12:02d}/{y:02d}" for y in [*range(45, 100), *range(6)]] + ["31/01/50"]
    scale = WrittenDates.understand(texts)
    years = sorted({int(text[:4]) for text in scale.plain(texts)})
    assert years == list(range(1945, 2006)) and scale.write(scale.parse(texts)) == texts
    scale = WrittenDates.understand(["31/01/19", "28/02/24"])
    assert scale.plain(["31/01/19", "28/02/24"]) == ["2019-01-31", "2024-02-28"]


def test_other_columns_and_people_decide_the_order(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text(
        "a,b\n" + "".join(f"{i % 12 + 1:02d}/{i % 11 + 1:02d}/2020,{i % 28 + 1:02d}/05/2021\n" for i in range(60))
    )
    table, _ = Table.fit(path)
    assert table.notes() == [] and all("day first" in line.values for line in table.lines())
    path.write_text(
        "a,b\n" + "".join(f"{i % 12 + 1:02d}/{i % 11 + 1:02d}/2020,05/{i % 28 + 1:02d}/2021\n" for i in range(60))
    )
    assert all("month first" in line.values for line in Table.fit(path)[0].lines())
    path.write_text("a,b\n" + "".join(f"{i % 12 + 1:02d}/{i % 11 + 1:02d}/2020,x\n" for i in range(60)))
    table, _ = Table.fit(path)
    assert "day first or the month first" in table.notes()[0] and "day first" in table.lines()[0].values
    table, _ = Table.fit(path, {"a": {"kind": "date", "form": "month first"}})
    assert table.notes() == [] and "month first" in table.lines()[0].values


def test_markers_beside_dates(tmp_path):
    cells = ["n/a" if i % 9 == 0 else text for i, text in enumerate(_moments().strftime("%d.%m.%Y"))]
    table, x = Table.fit(_save(tmp_path / "t.csv", cells))
    assert table.columns[0].kind == "date" and table.columns[0].missing == "n/a"
    table.write(x, tmp_path / "back.csv")
    assert _column(tmp_path / "back.csv") == cells


@pytest.mark.parametrize("wrong", ["2024-02-30", "2024-02-20 10:00", "soon"])
def test_a_mistake_among_dates_is_missing_and_said(tmp_path, wrong):
    cells = [*(str(np.datetime64("2000-01-01") + i) for i in range(400)), wrong]
    table, x = Table.fit(_save(tmp_path / "t.csv", cells))
    assert table.columns[0].kind == "date" and table.frame(x)["v"].isna().sum() == 1
    assert f"row 401: {wrong!r} is no date" in table.notes()[0]
