"""Tables with angles and places, as people use them: fitted, drawn, filled, kept and gone on with."""

import numpy as np
import pandas as pd
import pytest

import unnoise as un
from unnoise.cli import main
from unnoise.data.base import BadData

RNG = np.random.default_rng(0)
N = 40
TABLE = pd.DataFrame(
    {
        "hour": RNG.integers(0, 24, N).astype("int32"),
        "wind": RNG.uniform(0, 360, N).round(1),
        "lat": np.degrees(np.arcsin(RNG.uniform(-1, 1, N))).round(4),
        "lon": RNG.uniform(-180, 180, N).round(4).astype("float32"),
        "kind": RNG.choice(list("abc"), N),
    }
)
TABLE.loc[3, "wind"] = np.nan
KINDS = {"hour": {"kind": "angle", "period": 24}, "wind": {"kind": "angle", "period": "degrees"}}
QUICK = {"preset": "tiny", "steps": 3, "batch_size": 16, "random_state": 0}


def in_range(table):
    wind = table["wind"].dropna()
    assert table["hour"].between(0, 23).all() and wind.between(0, 360).all()
    assert table["lat"].between(-90, 90).all() and table["lon"].between(-180, 180).all()


def test_from_a_frame_and_back(tmp_path):
    model = un.fit(TABLE, kinds=KINDS, **QUICK)
    assert {"lat_lon"} <= set(model.format_.process().leaves)
    x = model.sample(20, steps=6, seed=1)
    assert (x.dtypes == TABLE.dtypes).all()
    in_range(x)
    given = model.sample(3, given={"hour": 5, "lat": 10.0, "lon": 20.0}, steps=6)
    assert (given["hour"] == 5).all() and (given["lat"] == 10).all() and (given["lon"] == 20).all()
    with pytest.raises(BadData, match="given lat without lon: a place is one point"):
        model.sample(3, given={"lat": 10.0})

    holes = TABLE.iloc[:6].astype({"hour": "float64"})
    holes.loc[0, "hour"], holes.loc[1, ["lat", "lon"]], holes.loc[2, "kind"] = np.nan, np.nan, None
    whole = model.infill(holes, steps=4)
    in_range(whole)
    assert not whole.isna().any(axis=None)
    for name in holes:
        known = holes[name].notna()
        assert (whole[name][known] == holes[name][known]).all()

    assert np.isfinite(model.bound(TABLE.iloc[:4])).all()
    again = un.load(model.save(tmp_path / "run"))
    assert again.sample(20, steps=6, seed=1).equals(x)
    with pytest.raises(TypeError, match="for a likelihood take un.bound"):
        model.likelihood(TABLE.iloc[:2])


@pytest.mark.conformance
def test_by_commands(tmp_path, monkeypatch):
    def run(*words):
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        assert ended.value.code == 0

    monkeypatch.chdir(tmp_path)
    TABLE.to_csv("t.csv", index=False)
    (tmp_path / "kinds.yaml").write_text("hour: {kind: angle, period: 24}\nwind: {kind: angle, period: degrees}\n")
    run("train", "t.csv", "--columns", "kinds.yaml", "--preset", "tiny", "--steps", "3", "--batch-size", "16")
    run("train", "--resume", "run", "--steps", "5")
    run("sample", "run", "-n", "20", "--steps", "6", "--out", "s.csv")
    in_range(pd.read_csv("s.csv"))
    TABLE.assign(lat=np.nan, lon=np.nan).to_csv("gaps.csv", index=False)
    run("infill", "run", "gaps.csv", "--steps", "4", "--out", "full.csv")
    in_range(full := pd.read_csv("full.csv"))
    assert (full["hour"] == TABLE["hour"]).all()
    run("evaluate", "run", "--samples", "20", "--exact-rows", "0")
