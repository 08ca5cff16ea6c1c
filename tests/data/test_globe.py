"""Columns of latitude and longitude: one point of the sphere, and both columns again as they were."""

from math import log, pi

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.data.base import BadData
from unnoise.data.globe import Parallels, points, radians, reach
from unnoise.data.table import Table
from unnoise.data.table_cells import decode
from unnoise.data.table_files import overrides

RNG = np.random.default_rng(0)
NORTH = np.degrees(np.arcsin(RNG.uniform(-1, 1, 400)))
NORTH[np.abs(NORTH) < 0.1] = 1.0  # not -0.0
EAST = RNG.uniform(-179, 179, 400)


def written(path, up, around, names=("lat", "lon"), other=True):
    head = ",".join([*names, "kind"] if other else names)
    rows = [",".join([a, b, "xyz"[i % 3]] if other else [a, b]) for i, (a, b) in enumerate(zip(up, around, strict=True))]
    path.write_text("\n".join([head, *rows]) + "\n")
    return path


CASES = {
    "five decimals": ([f"{a:.5f}" for a in NORTH], [f"{b:.5f}" for b in EAST]),
    "a grid of a tenth": ([f"{a:.1f}" for a in NORTH], [f"{b:.1f}" for b in EAST]),
    "whole degrees, the poles too": (
        [str(a) for a in [90, -90, *range(-89, 89, 3)]],
        [str(b) for b in [0, 0, *range(-180, 180, 6)]],
    ),
    "longitudes from 0 to 360": ([f"{a:.3f}" for a in NORTH], [f"{b % 360:.3f}" for b in EAST]),
    "few decimals in one": ([f"{a:.2f}" for a in NORTH], [f"{b:.4f}" for b in EAST]),
}


@pytest.mark.parametrize("case", CASES)
def test_every_place_comes_back(tmp_path, case):
    """By way of float32, to the last of five decimals."""
    path = written(tmp_path / "a.csv", *CASES[case])
    table, x = Table.fit(path)
    assert [column.kind for column in table.columns[:2]] == ["latitude", "longitude"]
    process = table.process()
    assert isinstance(process.leaves["lat_lon"], un.SphereHeat) and set(process.leaves) == {"categories", "lat_lon"}
    assert x["lat_lon"].dtype == torch.float32 and process.space.check(x)
    table.write(x, tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == path.read_text()
    again = Table.from_json(table.to_json())
    assert torch.equal(again.encode(path)["lat_lon"], x["lat_lon"])


def test_the_points_are_those_of_the_globe():
    at = points(np.radians([90.0, 0.0, 0.0, 45.0]), np.radians([10.0, 0.0, 90.0, 180.0]))
    want = [[0, 0, 1], [1, 0, 0], [0, 1, 0], [-(0.5**0.5), 0, 0.5**0.5]]
    assert np.allclose(at, want)
    up, around = radians(points(np.radians(NORTH), np.radians(EAST)))
    assert np.allclose(np.degrees(up), NORTH) and np.allclose(np.degrees(around), EAST)
    assert reach(np.radians(NORTH), np.radians(EAST)) > 1 and reach(np.zeros(9), np.linspace(-0.1, 0.1, 9)) < 0.1


def test_all_that_is_drawn_is_of_the_grid():
    for low, high, step in ((-90, 90, 1.0), (-60, 75, 2.5), (-89.5, 89.5, 1.0)):
        grid = np.arange(low, high + step / 2, step)
        parallels = Parallels.fit(grid, 360.0)
        drawn = np.unique(parallels.decode(np.linspace(-pi / 2, pi / 2, 20_001)))
        assert np.abs(drawn).max() <= 90 and np.allclose((drawn - grid[0]) / step, np.round((drawn - grid[0]) / step))
        for place in (0.01, 0.5, 0.99):
            assert np.allclose(parallels.decode(parallels.encode(grid, place)), grid)


def test_places_are_said_and_told(tmp_path):
    """In the table of what was understood, and in the kinds file, from which they are read again."""
    path = written(tmp_path / "a.csv", *CASES["five decimals"], names=("Home Latitude", "Home Longitude"))
    table, x = Table.fit(path)
    lines = table.lines()
    assert lines[0].process == "on the sphere, with Home Longitude" and lines[1].kind == "longitude"
    assert not table.notes()
    (tmp_path / "kinds.yaml").write_text(table.kinds())
    assert '"Home Latitude": {kind: latitude, with: "Home Longitude", period: degrees}' in table.kinds()
    _, same = Table.fit(path, overrides(tmp_path / "kinds.yaml"))
    assert torch.equal(same["Home_Latitude_Home_Longitude"], x["Home_Latitude_Home_Longitude"])
    numbers, _ = Table.fit(path, {"Home Latitude": "number"})
    assert not numbers.joints
    odd = written(tmp_path / "b.csv", *CASES["five decimals"], names=("up", "around"))
    assert not Table.fit(odd)[0].joints
    assert list(Table.fit(odd, {"up": "latitude", "around": "longitude"})[0].joints) == ["up_around"]


WITH = {"up": {"kind": "latitude", "with": "around"}}
TWO_UNITS = {"up": {"kind": "latitude", "period": "degrees"}, "around": {"kind": "longitude", "period": "radians"}}
BAD_WISHES = {
    "none such": (
        {"up": {"kind": "latitude", "with": "north"}},
        "is to be with north: name the one column of its longitude",
    ),
    "two of them": ({"up": {"kind": "latitude", "with": ["around", "kind"]}}, "name the one column of its longitude"),
    "no number": ({"up": {"kind": "latitude", "with": "kind"}}, "column 'kind', row 1: 'x' is not a number"),
    "another kind": (WITH | {"around": "number"}, "with 'around', which is of kind number: make that longitude"),
    "both latitudes": (WITH | {"around": "latitude"}, "with 'around', which is of kind latitude: make that longitude"),
    "no leaf": ({"up": {"kind": "number", "with": "around"}}, "with kind number: it belongs to latitude, longitude"),
    "two units": (TWO_UNITS, "one in degrees and one in radians"),
}


@pytest.mark.parametrize("case", BAD_WISHES)
def test_wishes_that_make_no_place(tmp_path, case):
    around = {"two units": np.radians(EAST), "both latitudes": EAST / 2}.get(case, EAST)
    path = written(tmp_path / "a.csv", *([f"{a:.4f}" for a in x] for x in (NORTH, around)), names=("up", "around"))
    wish, said = BAD_WISHES[case]
    with pytest.raises(BadData, match=said):
        Table.fit(path, wish)
    if case == "none such":
        assert Table.fit(path, WITH)[0].columns[1].partners == ("up", "around")
        few = written(tmp_path / "b.csv", ["10", "1", "12"], ["20", "2", "200"], names=("up", "around"))
        assert Table.fit(few, WITH)[0].joints  # which would be ordinals


def test_swapped_columns_are_asked_about(tmp_path):
    """By their range where it tells them apart, else by their names."""
    up, around = CASES["five decimals"]
    path = written(tmp_path / "a.csv", around, up)
    notes = Table.fit(path)[0].notes()
    assert any("are taken as numbers" in note and "are the two swapped?" in note for note in notes)
    with pytest.raises(BadData, match="is no latitude, from -90 to 90 degrees: .* swapped"):
        Table.fit(path, {"lat": "latitude", "lon": "longitude"})
    halves = [f"{a / 2:.4f}" for a in EAST]
    path = written(tmp_path / "b.csv", halves, up)
    assert Table.fit(path, {"lat": "latitude", "lon": "longitude"})[0].notes() == []
    (note,) = Table.fit(path, {"lon": "latitude", "lat": "longitude"})[0].notes()
    assert note == "column 'lon': 'lon' is told to be a latitude and 'lat' a longitude: are the two swapped?"


def test_two_places_in_a_row(tmp_path):
    up, around = CASES["five decimals"]
    names = ("start_lat", "start_lng", "end_lat", "end_lng")
    rows = [",".join(row) for row in zip(up, around, up[::-1], around[::-1], strict=True)]
    (tmp_path / "a.csv").write_text("\n".join([",".join(names), *rows]) + "\n")
    table, x = Table.fit(tmp_path / "a.csv")
    assert list(table.joints) == ["start_lat_start_lng", "end_lat_end_lng"] == list(x)


def test_a_patch_stays_two_numbers(tmp_path):
    path = written(tmp_path / "a.csv", [f"{47 + a / 200:.4f}" for a in NORTH], [f"{-122 + b / 400:.4f}" for b in EAST])
    table, _ = Table.fit(path)
    assert not table.joints and not table.notes()
    told, _ = Table.fit(path, {"lat": "latitude"})
    assert told.joints and any("kind number tells them apart" in note for note in told.notes())


def test_numbers_that_are_no_places(tmp_path):
    """Out of range: numbers and a note, an error where people said so; radians are told from degrees, or asked about."""
    high = written(tmp_path / "a.csv", [*CASES["five decimals"][0][:-1], "95"], CASES["five decimals"][1])
    table, _ = Table.fit(high)
    assert not table.joints and any("'lat' holds 95 and a latitude is from -90 to 90" in note for note in table.notes())
    with pytest.raises(BadData, match="row 400: '95' is no latitude, from -90 to 90 degrees: correct it"):
        Table.fit(high, {"lat": "latitude", "lon": "longitude"})
    small = written(tmp_path / "b.csv", [f"{a:.4f}" for a in np.radians(NORTH)], [f"{b:.4f}" for b in np.radians(EAST)])
    table, _ = Table.fit(small)
    assert not table.joints and any("may be radians" in note for note in table.notes())
    told = {"lat": {"kind": "latitude", "period": "radians"}, "lon": {"kind": "longitude", "period": "radians"}}
    table, x = Table.fit(small, told)
    assert np.allclose(x["lat_lon"][:, 2], np.sin(np.radians(NORTH)), atol=2e-4) and "period: radians" in table.kinds()
    (note,) = Table.fit(small, {"lat": "latitude"})[0].notes()
    assert "these degrees may be radians" in note
    degrees = written(tmp_path / "c.csv", *CASES["five decimals"])
    with pytest.raises(BadData, match="radians: are they degrees"):
        Table.fit(degrees, told)
    with pytest.raises(BadData, match="it is degrees or radians"):
        Table.fit(degrees, {"lat": {"kind": "latitude", "period": 24}, "lon": "longitude"})
    with pytest.raises(BadData, match="'kind', row 1: 'x' is not a number"):
        Table.fit(degrees, {"lat": "number", "lon": "longitude", "kind": "latitude"})
    with pytest.raises(BadData, match="'lon' is a longitude without a latitude"):
        Table.fit(degrees, {"lat": "number", "lon": "longitude"})


def test_other_rows_must_be_places_too(tmp_path):
    table, _ = Table.fit(written(tmp_path / "a.csv", *CASES["five decimals"]))
    with pytest.raises(BadData, match="row 1: '-91.00000' is no latitude, from -90 to 90"):
        table.encode(written(tmp_path / "b.csv", ["-91.00000"], ["0.00000"]))
    with pytest.raises(BadData, match="'400' is no longitude"):
        table.given({"lat": "10", "lon": "400"})


def test_missing_places_stay_missing(tmp_path):
    """Half a place too; what stands in the gap is a uniform point, and counts as one."""
    up, around = ([*column] for column in CASES["five decimals"])
    up[0] = around[0] = up[1] = around[2] = ""
    path = written(tmp_path / "a.csv", up, around)
    table, x = Table.fit(path)
    table.write(x, tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == path.read_text()
    assert table.log_fill(x)[:4].tolist() == pytest.approx([-log(4 * pi), -log(2), -log(2 * pi), 0])


def test_the_fill_is_uniform_on_the_globe(tmp_path):
    """A third of the rows: mean of x_3 and of x_3^2 within 4.5 errors of 0 and 1/3, which chance fails once in 1e5."""
    up = ["" if i % 3 else f"{a:.5f}" for i, a in enumerate(np.tile(NORTH, 15))]
    around = ["" if i % 3 else f"{b:.5f}" for i, b in enumerate(np.tile(EAST, 15))]
    table, x = Table.fit(written(tmp_path / "a.csv", up, around))
    z = x["lat_lon"][[text == "" for text in up]].double()
    error = 1 / (3 * len(z)) ** 0.5
    assert float(z.mean(0).abs().max()) < 4.5 * error
    assert float((z.square().mean(0) - 1 / 3).abs().max()) < 4.5 * 0.3 / len(z) ** 0.5


def test_given_and_gaps(tmp_path):
    up, around = CASES["five decimals"]
    table, _ = Table.fit(written(tmp_path / "a.csv", up, around))
    values, fixed = table.given({"lat": "90", "lon": "0"})["lat_lon"]
    assert np.allclose(values, [0, 0, 1], atol=1e-6) and bool(fixed.all())
    with pytest.raises(BadData, match="given lat without lon: a place is one point, so give all of"):
        table.given({"lat": "10"})
    gaps = written(tmp_path / "b.csv", ["", up[1]], ["", around[1]])
    x, known = table.gaps(gaps)
    assert known["lat_lon"].tolist() == [[False] * 3, [True] * 3] and table.count_gaps(known) == 2
    assert set(table.gap_parts({"lat_lon": "exact"}, known)) == {"lat", "lon"} and table.space.check(x)
    drawn = {**x, "lat_lon": table.encode(written(tmp_path / "c.csv", up[:2], around[:2]))["lat_lon"]}
    table.write_filled(drawn, gaps, tmp_path / "d.csv")
    assert (tmp_path / "d.csv").read_text() == (tmp_path / "c.csv").read_text()
    with pytest.raises(BadData, match="row 1: lon without lat"):
        table.gaps(written(tmp_path / "e.csv", ["", up[1]], [around[0], around[1]]))


def test_typed_places_keep_their_type():
    pa = pytest.importorskip("pyarrow")
    source = pa.table({"lat": pa.array(np.round(NORTH, 2), pa.float32()), "lon": pa.array(np.round(EAST), pa.int16())})
    table, x = Table.of_arrow(source)
    assert list(x) == ["lat_lon"] and table.objective_options() == {}
    back = table.arrow(x)
    assert back.schema.types == source.schema.types and back.to_pylist() == source.to_pylist()
    assert decode(table, x)["lon"][0] == str(int(np.round(EAST[0])))


@pytest.mark.conformance
def test_a_model_of_places():
    """By the default recipe: draws, gaps and conditions, and a bound that beats the uniform law's log 4 pi on two caps."""
    pd = pytest.importorskip("pandas")
    cap = np.arange(600) % 2
    frame = pd.DataFrame({"lat": np.where(cap, 50, -30) + RNG.normal(0, 4, 600), "lon": np.where(cap, 178, 20.0)})
    frame["lon"] = (frame["lon"] + RNG.normal(0, 5, 600) + 180) % 360 - 180
    frame["cap"] = np.where(cap, "north", "south")
    frame = frame.round(3)
    model = un.fit(frame, steps=150, preset="tiny", seed=0)
    drawn = model.sample(200, seed=1)
    assert list(drawn.columns) == list(frame.columns) and drawn["lat"].between(-90, 90).all()
    north = model.sample(60, given={"cap": "north"}, seed=1)
    assert (north["lat"] > 10).mean() > 0.8 and (north["lon"].abs() > 120).mean() > 0.8
    here = model.sample(40, given={"lat": 50.0, "lon": 178.0}, seed=1)
    assert (here["lat"] == 50).all() and (here["cap"] == "north").mean() > 0.8
    gaps = frame.head(20).copy()
    gaps.loc[:9, ["lat", "lon"]] = np.nan
    filled = model.infill(gaps, seed=0)
    assert filled["lat"].notna().all() and (filled["lat"][10:] == frame["lat"][10:20]).all()
    assert float(np.mean(model.bound(frame.head(200)))) < log(4 * pi) + log(2) - 1
