"""Columns of shares: one point of the simplex, and all columns again as they were, exactly one or 100 in sum."""

from decimal import Decimal
from math import lgamma, log

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.data import composition
from unnoise.data.base import BadData
from unnoise.data.composition import moves, on_grid
from unnoise.data.table import Table
from unnoise.data.table_cells import decode
from unnoise.data.table_files import overrides

RNG = np.random.default_rng(0)
Y = RNG.dirichlet([3, 2, 1], 300)
PARTS = ("sand", "silt", "clay")
SAID = {"sand": {"kind": "composition", "with": ["silt", "clay"]}}


def written(path, rows, names=PARTS, kind=False):
    rows = [[*row, "xyz"[i % 3]] if kind else row for i, row in enumerate(rows)]
    path.write_text("\n".join(",".join(row) for row in [[*names, "kind"] if kind else names, *rows]) + "\n")
    return path


def texts(digits, total=1, y=Y):
    units = on_grid(y, total * 10**digits).astype(int)
    return [[str(Decimal(int(n)).scaleb(-digits)) for n in row] for row in units]


CASES = {
    "four decimals": texts(4),
    "six decimals": texts(6),
    "whole percent": texts(0, 100),
    "percent with two decimals": texts(2, 100),
    "zeros, and parts alone": texts(2, y=np.concatenate([np.eye(3), [[0, 0.5, 0.5]], Y])),
    "tenths": texts(1),
}


@pytest.mark.parametrize("case", CASES)
def test_every_composition_comes_back(tmp_path, case):
    """By way of float32, to the last decimal; and what is drawn sums to the total to that decimal too."""
    path = written(tmp_path / "a.csv", CASES[case])
    table, x = Table.fit(path, SAID)
    assert list(x) == ["sand_silt_clay"] and x["sand_silt_clay"].dtype == torch.float32
    assert isinstance(table.process().leaves["sand_silt_clay"], un.WrightFisher) and table.space.check(x)
    assert float(x["sand_silt_clay"].min()) > 1e-7
    table.write(x, tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == path.read_text()
    again = Table.from_json(table.to_json())
    assert torch.equal(again.encode(path)["sand_silt_clay"], x["sand_silt_clay"])
    total = 100 if "percent" in case else 1
    drawn = decode(table, {"sand_silt_clay": torch.as_tensor(RNG.dirichlet([0.3, 1, 1], 500)).float()})
    assert {sum(map(Decimal, row)) for row in zip(*drawn.values(), strict=True)} == {total}
    (tmp_path / "kinds.yaml").write_text(table.kinds())
    same, _ = Table.fit(path, overrides(tmp_path / "kinds.yaml"))
    assert same.columns[2].partners == PARTS and same.kinds() == table.kinds()


def test_the_largest_remainders_matter(tmp_path, monkeypatch):
    """Rounding each part by itself misses the total, and moves that go too far do not come back."""
    path = written(tmp_path / "a.csv", CASES["whole percent"])
    table, x = Table.fit(path, SAID)
    monkeypatch.setattr(composition, "on_grid", lambda y, units: np.round(y * units))
    drawn = decode(table, {"sand_silt_clay": torch.as_tensor(Y).float()})
    assert {sum(map(Decimal, row)) for row in zip(*drawn.values(), strict=True)} == {99, 100, 101}
    monkeypatch.undo()
    monkeypatch.setattr(composition, "moves", lambda u, zero: 2 * moves(u, zero))
    table.write(table.encode(path), tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() != path.read_text()


def test_moves_keep_the_sum_and_fill_the_step():
    """Of 20,000 rows of four parts the deviation of one is that of a uniform number less the mean of four, in the main."""
    u = RNG.uniform(-0.5, 0.5, (20_000, 4))
    zero = np.zeros(u.shape, dtype=bool)
    d = moves(u, zero)
    assert np.abs(d).max() < 0.5 and np.abs(d.sum(1)).max() < 1e-12
    assert d[:, 0].std() == pytest.approx((0.75 / 12) ** 0.5, rel=0.05)
    zero[:, 0] = True
    d = moves(u, zero)
    assert d[:, 0].min() >= 0 and np.abs(d.sum(1)).max() < 1e-12 and np.abs(d).max() < 0.5


def test_what_is_done_is_said(tmp_path):
    rows = CASES["percent with two decimals"]
    table, x = Table.fit(written(tmp_path / "a.csv", [["0", "40.5", "59.5"], *rows]), SAID)
    assert [line.process for line in table.lines()][0] == "on the simplex, with silt, clay"
    (note,) = table.notes()
    assert note == (
        "column 'sand': its shares sum to 100, with silt, clay; 1 of 301 rows have zeros, so 0.005 of every part is mixed "
        "into all rows, and taken out of samples"
    )
    assert 5e-5 <= float(x["sand_silt_clay"][0, 0]) < 1.1e-4  # half a step, and a place in the other half
    plain, _ = Table.fit(written(tmp_path / "b.csv", texts(6)), SAID)
    assert not plain.notes()


def test_sums_within_rounding(tmp_path):
    """Shares that were rounded one by one, and exponents among them, are divided by their sum."""
    rows = [[f"{a:.3f}" for a in row] for row in Y]
    rows[0] = ["1e-03", "0.499", "0.5"]
    table, x = Table.fit(written(tmp_path / "a.csv", rows), SAID)
    assert {round(sum(map(float, row)), 9) for row in rows} == {0.999, 1.0, 1.001}
    drawn = decode(table, x)
    assert {sum(map(Decimal, row)) for row in zip(*drawn.values(), strict=True)} == {1}


BAD_ROWS = {
    "another sum": (["0.5", "0.3", "0.1"], "row 4: sand, silt, clay sum to 0.9, .* 1 or 100: correct them, divide them by"),
    "negative": (["-0.5", "0.5", "1"], "column 'sand', row 4: '-0.5' is no share, from 0 to 1 or to 100: correct it"),
    "too large": (["0.5", "101", "0.5"], "column 'silt', row 4: '101' is no share"),
    "infinite": (["0.5", "inf", "0.5"], "column 'silt', row 4: 'inf' is not a number"),
    "more than the whole": (["0.7", "0.7", ""], "row 4: sand, silt, clay sum to 1.4"),
}


@pytest.mark.parametrize("case", BAD_ROWS)
def test_rows_that_are_no_composition(tmp_path, case):
    row, said = BAD_ROWS[case]
    rows = CASES["four decimals"]
    kinds = dict.fromkeys(PARTS, "composition")
    with pytest.raises(BadData, match=said):
        Table.fit(written(tmp_path / "a.csv", [*rows[:3], row, *rows]), kinds)
    gone = [["", *rows[0][1:]], *rows]
    for data in (rows, gone):
        table, _ = Table.fit(written(tmp_path / "b.csv", [*data[:1], *data]), SAID)
        other = written(tmp_path / "c.csv", [*rows[:3], row])
        with pytest.raises(BadData, match=r"c.csv: (row 4: sand, silt, clay sum to|column .*row 4: )"):
            table.encode(other)


BAD_WISHES = {
    "no such part": ({"sand": {"kind": "composition", "with": ["rock"]}}, "with 'rock', which is no column of the model"),
    "itself": ({"sand": {"kind": "composition", "with": ["sand"]}}, "with itself: name its other parts"),
    "alone": ({"sand": "composition"}, "'sand' is a composition by itself: name its other parts"),
    "a word": ({"sand": {"kind": "composition", "with": ["kind"]}}, "column 'kind', row 1: 'x' is not a number"),
    "another kind": (SAID | {"clay": "number"}, "with 'clay', which is of kind number: make that composition"),
    "in two": (
        {"sand": {"kind": "composition", "with": "silt"}, "clay": {"kind": "composition", "with": "silt"}},
        "'silt' is in two compositions, and a share is of one whole: leave it out of one",
    ),
}


@pytest.mark.parametrize("case", BAD_WISHES)
def test_wishes_that_make_no_composition(tmp_path, case):
    wish, said = BAD_WISHES[case]
    rows = [["0.25", "0.75", "0.25"], ["0.5", "0.5", "0.5"]] if case == "in two" else CASES["four decimals"]
    with pytest.raises(BadData, match=said):
        Table.fit(written(tmp_path / "a.csv", rows, kind=True), wish)


def test_missing_shares_stay_missing(tmp_path):
    """One is what is left, two or more are a uniform point of it, whose density counts."""
    rows = [row.copy() for row in CASES["four decimals"]]
    rows[0][0] = rows[1][0] = rows[1][1] = ""
    rows[2] = ["", "", ""]
    path = written(tmp_path / "a.csv", rows)
    table, x = Table.fit(path, SAID)
    table.write(x, tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == path.read_text()
    points, mixed = x["sand_silt_clay"].double(), log(1 - 3 * 5e-5)
    assert float(points[0, 0]) == pytest.approx(float(CASES["four decimals"][0][0]), abs=1e-4)
    left = 1 - float(rows[1][2])
    fill = table.log_fill(x)[:4].tolist()
    assert fill == pytest.approx([0, -log(left) - mixed, lgamma(3) - 2 * mixed, 0], abs=1e-5)


def test_the_fill_is_uniform_on_what_is_left(tmp_path):
    """Two of three shares missing, where 0.4 is left: mean 0.2 and variance 0.4^2/12 within 4.5 errors, which chance fails
    once in 1e5."""
    rows = [["0.6", "0.1", "0.3"], *[["0.6", "", ""]] * 4000]
    table, x = Table.fit(written(tmp_path / "a.csv", rows), SAID)
    silt = table.joints["sand_silt_clay"]._outside(x["sand_silt_clay"][1:].double().numpy())[:, 1]
    assert abs(silt.mean() - 0.2) < 4.5 * 0.4 / (12 * 4000) ** 0.5
    assert abs(silt.var() / (0.4**2 / 12) - 1) < 4.5 * (0.8 / 4000) ** 0.5


def test_given_and_gaps(tmp_path):
    rows = CASES["four decimals"]
    table, _ = Table.fit(written(tmp_path / "a.csv", rows), SAID)
    values, fixed = table.given({"sand": "0.5", "silt": "0.3", "clay": "0.2"})["sand_silt_clay"]
    assert np.allclose(values, [0.5, 0.3, 0.2], atol=1e-4) and bool(fixed.all())
    with pytest.raises(BadData, match="given sand without silt, clay: shares are one composition, so give all of"):
        table.given({"sand": "0.5"})
    with pytest.raises(BadData, match="given: sand, silt, clay sum to 0.6"):
        table.given({"sand": "0.2", "silt": "0.2", "clay": "0.2"})
    gaps = written(tmp_path / "b.csv", [["", "", ""], rows[1]])
    x, known = table.gaps(gaps)
    assert known["sand_silt_clay"].tolist() == [[False] * 3, [True] * 3] and table.count_gaps(known) == 3
    drawn = {"sand_silt_clay": table.encode(written(tmp_path / "c.csv", rows[:2]))["sand_silt_clay"]}
    table.write_filled(drawn, gaps, tmp_path / "d.csv")
    assert (tmp_path / "d.csv").read_text() == (tmp_path / "c.csv").read_text() and table.space.check(x)
    with pytest.raises(BadData, match="row 2: silt, clay without sand"):
        table.gaps(written(tmp_path / "e.csv", [rows[0], ["", *rows[1][1:]]]))


def test_typed_shares_keep_their_type():
    pa = pytest.importorskip("pyarrow")
    units = on_grid(Y, 100)
    source = pa.table({name: pa.array(units[:, i] / 100, pa.float32()) for i, name in enumerate(PARTS)})
    table, x = Table.of_arrow(source, SAID)
    back = table.arrow(x)
    assert back.schema.types == source.schema.types and back.to_pylist() == source.to_pylist()
    whole = pa.table({name: pa.array(units[:, i].astype(int), pa.int16()) for i, name in enumerate(PARTS)})
    table, x = Table.of_arrow(whole, SAID)
    assert table.arrow(x).to_pylist() == whole.to_pylist()
    halves = pa.table({"sand": [20, 30], "silt": [40.5, 20], "clay": [39.5, 50]})
    with pytest.raises(BadData, match="column 'sand' holds whole numbers and its partners do not: store it as floats"):
        Table.of_arrow(halves, SAID)
