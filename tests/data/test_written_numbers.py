"""Numbers as people write them: each form is understood from the whole column and written back in the very same form."""

import numpy as np
import pytest
import torch

from unnoise.data.table import Table
from unnoise.data.written_numbers import WrittenNumbers

N = 400


def _grouped(value: float, decimals: int, group: str, decimal: str) -> str:
    whole, _, part = f"{abs(value):,.{decimals}f}".partition(".")
    return whole.replace(",", group) + (decimal + part if part else "")


def _signed(text: str, value: float, form: str = "-{}") -> str:
    return form.format(text) if value < 0 else text


def _dollar(v: float) -> str:
    return _signed("$" + _grouped(v, 2, ",", "."), v)


FORMS = {
    "decimal comma": lambda v: _signed(_grouped(v, 2, "", ","), v),
    "decimal comma, points": lambda v: _signed(_grouped(v, 2, ".", ","), v),
    "thousands by comma": lambda v: _signed(_grouped(v, 1, ",", "."), v),
    "whole by comma": lambda v: _signed(_grouped(v, 0, ",", "."), v),
    "spaces": lambda v: _signed(_grouped(v, 1, " ", ","), v),
    "narrow spaces": lambda v: _signed(_grouped(v, 1, "\u202f", ","), v),
    "apostrophes": lambda v: _signed(_grouped(v, 2, "'", "."), v),
    "dollars": _dollar,
    "dollars, sign within": lambda v: "$" + _signed(_grouped(v, 2, ",", "."), v),
    "euros before": lambda v: _signed("€ " + _grouped(v, 2, ".", ","), v),
    "euros after": lambda v: _signed(_grouped(v, 2, ".", ",") + " €", v),
    "code before": lambda v: _signed("USD " + _grouped(v, 0, ",", "."), v),
    "code after": lambda v: _signed(_grouped(v, 2, "'", ".") + " CHF", v),
    "percent": lambda v: _signed(_grouped(v / 100, 1, "", ".") + "%", v),
    "percent, comma": lambda v: _signed(_grouped(v / 100, 1, "", ",") + " %", v),
    "parentheses": lambda v: _signed(_grouped(v, 0, ",", "."), v, "({})"),
    "dollars in parentheses": lambda v: _signed("$" + _grouped(v, 2, ",", "."), v, "({})"),
    "minus at the end": lambda v: _signed(_grouped(v, 2, ".", ","), v, "{}-"),
    "plus": lambda v: _signed(_grouped(v, 2, "", "."), v) if v < 0 else "+" + _grouped(v, 2, "", "."),
    "true minus": lambda v: _signed(_grouped(v, 2, "", ","), v, "−{}"),
}


def _numbers() -> np.ndarray:
    g = np.random.default_rng(0)
    return g.lognormal(7, 1.5, N) * np.where(g.random(N) < 0.3, -1, 1)


def _save(path, cells: list[str], name: str = "v", separator: str = ";"):
    path.write_text(f"{name}{separator}b\n" + "".join(f"{cell}{separator}{'xy'[i % 2]}\n" for i, cell in enumerate(cells)))
    return path


def _column(path, where: int = 0) -> list[str]:
    return [line.split(";")[where] for line in path.read_text().splitlines()[1:]]


@pytest.mark.parametrize("form", FORMS)
def test_a_form_comes_back(tmp_path, form):
    cells = [FORMS[form](v) for v in _numbers()]
    table, x = Table.fit(_save(tmp_path / "t.csv", cells))
    assert table.columns[0].scores is not None and table.columns[0].scale.noun == "number"
    table.write(x, tmp_path / "back.csv")
    assert _column(tmp_path / "back.csv") == cells
    again = Table.from_json(table.to_json())
    again.write(x, tmp_path / "again.csv")
    assert (tmp_path / "again.csv").read_bytes() == (tmp_path / "back.csv").read_bytes()
    # the numbers, in a frame: as their definition says
    percent = 100 if form.startswith("percent") else 1
    digits = 0 if form in ("whole by comma", "code before", "parentheses") else 2
    np.testing.assert_allclose(table.frame(x)["v"], _numbers() / percent, atol=0.5 * 10.0**-digits + 0.05)
    assert torch.equal(table.encode_frame(table.frame(x))["v"], x["v"])


@pytest.mark.parametrize("form", FORMS)
def test_new_numbers_have_the_form_and_are_new(tmp_path, form):
    cells = [FORMS[form](v) for v in _numbers()]
    table, x = Table.fit(_save(tmp_path / "t.csv", cells))
    drawn = {**x, "v": x["v"] + 0.3 * torch.randn(x["v"].shape, generator=torch.Generator().manual_seed(0))}
    table.write(drawn, tmp_path / "s.csv")
    new = _column(tmp_path / "s.csv")
    assert len(set(new) - set(cells)) > 0.4 * len(set(new))
    scale = table.columns[0].scale
    assert [FORMS[form](v * (100 if form.startswith("percent") else 1)) for v in scale.parse(new)] == new
    assert WrittenNumbers.understand(new) is not None


def _of(texts: list[str]) -> tuple[str, str, list[float], bool] | None:
    scale = WrittenNumbers.understand(texts)
    return scale and (scale.decimal, scale.group, scale.parse(texts).tolist(), bool(scale.note))


@pytest.mark.parametrize(
    "texts, expected",
    [
        (["1,234", "5,678"], (".", ",", [1234.0, 5678.0], True)),  # thousands, but who knows
        (["1,234", "12"], (".", ",", [1234.0, 12.0], False)),
        (["1,234,567", "1,000"], (".", ",", [1234567.0, 1000.0], False)),
        (["0,123", "5,678"], (",", "", [0.123, 5.678], False)),  # no group begins with a zero
        (["1,234", "5,67"], (",", "", [1.234, 5.67], False)),  # groups of another length
        (["1,234", "1234"], (",", "", [1.234, 1234.0], True)),  # thousands would be grouped everywhere
        (["1.234.567", "1.000"], (",", ".", [1234567.0, 1000.0], False)),
        (["1234", "12 345"], (".", " ", [1234.0, 12345.0], False)),
        (["$5", "€5"], None),
        (["5%", "$5"], None),
        (["(5)", "-5"], None),
        (["0012", "0013"], None),
        (["AB 12", "AB 13"], None),
        (["1,23,456", "12"], None),
        (["12 34", "5"], None),
    ],
)
def test_evidence_of_the_whole_column(texts, expected):
    assert _of(texts) == expected


def test_other_columns_and_people_decide_what_a_column_leaves_open(tmp_path):
    rows = [f"{i},{i + 100};{i % 9 + 1},{i % 7}5;{'ab'[i % 2]}" for i in range(1, 300)]
    path = tmp_path / "t.csv"
    path.write_text("v;w;b\n" + "\n".join(rows) + "\n")
    table, x = Table.fit(path)
    assert [column.scale.decimal for column in table.columns[:2]] == [",", ","] and table.notes() == []
    path.write_text("v;b\n" + "".join(f"{i},{i + 100};{'ab'[i % 2]}\n" for i in range(1, 300)))
    table, _ = Table.fit(path)
    assert table.columns[0].scale.decimal == "." and "separator of thousands" in table.notes()[0]
    table, x = Table.fit(path, {"v": {"kind": "number", "form": "decimal comma"}})
    assert table.columns[0].scale.decimal == "," and table.notes() == []
    assert table.frame(x)["v"][0] == 1.101


@pytest.mark.parametrize("marker", ["n/a", "N/A", "NA", "null", "none", "-", "--", "?", ".", "missing", "unknown", "#N/A"])
def test_markers_beside_numbers_are_missing(tmp_path, marker):
    cells = [marker if i % 5 == 0 else "" if i % 50 == 1 else f"{v:.2f}" for i, v in enumerate(_numbers())]
    table, x = Table.fit(_save(tmp_path / "t.csv", cells))
    column = table.columns[0]
    assert column.kind == "number" and column.missing == marker
    table.write(x, tmp_path / "back.csv")
    assert _column(tmp_path / "back.csv") == [cell or marker for cell in cells]  # by the commonest
    words = ["red" if i % 2 else marker for i in range(40)]
    assert set(Table.fit(_save(tmp_path / "w.csv", words))[0].columns[0].texts) == {"red", marker}


def test_a_mistake_among_numbers_is_missing_and_said(tmp_path):
    cells = ["fifty" if i == 57 else "NA" if i == 60 else f"{v:.2f}" for i, v in enumerate(_numbers())]
    table, x = Table.fit(_save(tmp_path / "t.csv", cells))
    assert table.columns[0].kind == "number" and table.columns[0].missing == "NA"
    (note,) = table.notes()
    assert note.startswith("column 'v': row 58: 'fifty' is no number") and "taken as missing" in note
    assert table.frame(x)["v"].isna().sum() == 2
    table.write(x, tmp_path / "back.csv")
    assert "fifty" not in (tmp_path / "back.csv").read_text()
    assert torch.equal(table.encode(tmp_path / "t.csv")["v"], x["v"])


def test_given_and_gaps_take_both_spellings(tmp_path):
    cells = [_dollar(v) for v in _numbers()]
    table, x = Table.fit(_save(tmp_path / "t.csv", cells))
    plain = str(float(table.columns[0].scale.parse([cells[7]])[0]))
    assert torch.equal(table.given({"v": cells[7]})["v"][0], table.given({"v": plain})["v"][0])
    _save(tmp_path / "g.csv", [*cells[:5], ""])
    filled, fixed = table.gaps(tmp_path / "g.csv")
    assert fixed["v"][:, 0].tolist() == [True] * 5 + [False]
    table.write_filled(filled, tmp_path / "g.csv", tmp_path / "o.csv")
    assert _column(tmp_path / "o.csv")[:5] == cells[:5] and _column(tmp_path / "o.csv")[5][:1] in "$-"


def test_large_integers_are_exact(tmp_path):
    g = np.random.default_rng(0)
    values = [2**60 + int(k) * 7 + 3 for k in g.integers(0, 10**6, N)]
    path = _save(tmp_path / "t.csv", [str(v) for v in values])
    table, x = Table.fit(path)
    assert table.columns[0].kind == "count" or table.columns[0].kind == "number"
    table.write(x, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_bytes() == path.read_bytes()
    assert table.frame(x)["v"].dtype == "int64" and table.frame(x)["v"].tolist() == values
    drawn = {**x, "v": torch.randn(x["v"].shape, generator=torch.Generator().manual_seed(0))}
    new = table.frame(drawn)["v"]
    assert set(new) - set(values) and {(v - 2**60 - 3) % 7 for v in new.tolist()} == {0}
    few, y = Table.fit(_save(tmp_path / "f.csv", [str(2**60 + i % 3) for i in range(60)]))
    few.write(y, tmp_path / "back.csv")
    assert (tmp_path / "back.csv").read_bytes() == (tmp_path / "f.csv").read_bytes()
