"""Columns that begin again after a period: hours, degrees, days of the year and times of day come back as they were."""

from math import pi

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.data.around import PERIODS, Around
from unnoise.data.base import BadData
from unnoise.data.clock_times import ClockTimes
from unnoise.data.columns import Column
from unnoise.data.table import Table
from unnoise.data.table_cells import decode


def written(path, name, values, others=True):
    lines = [f"{name},other" if others else name]
    lines += [f"{value},{'ab'[i % 2]}" if others else str(value) for i, value in enumerate(values)]
    path.write_text("\n".join(lines) + "\n")
    return path


CASES = {
    "hours": ([str(h) for h in range(24)], 24, (0.0, 1.0)),
    "hours from 1": ([str(h) for h in range(1, 25)], 24, (1.0, 1.0)),
    "degrees": ([f"{d:.1f}" for d in np.arange(0, 360, 0.7)], "degrees", (0.0, 0.7)),
    "signed degrees": ([str(d) for d in range(-180, 180, 5)], 360, (-180.0, 5.0)),
    "days of the year": ([str(d) for d in range(1, 367)], "days", (1.0, 1.0)),
    "radians": ([f"{a:.3f}" for a in np.arange(-3.14, 3.14, 0.017)], "radians", (-pi, 0.017)),
    "few and far between": (["3", "23", "11"] * 5, 24, (0.0, 0.0)),
}


@pytest.mark.parametrize("case", CASES)
def test_every_number_comes_back(tmp_path, case):
    """Wherever in its interval it is put, and by way of float32."""
    texts, period, (low, step) = CASES[case]
    path = written(tmp_path / "a.csv", "x", texts * 3)
    table, x = Table.fit(path, {"x": {"kind": "angle", "period": period}})
    column = table.columns[0]
    assert column.kind == "angle" and column.scores.low == pytest.approx(low)
    if step:
        assert column.scores.step == pytest.approx(step, rel=1e-6)
    assert isinstance(table.process().leaves["x"], un.WrappedNormal) and table.process().space.check(x)
    assert float(x["x"].abs().max()) <= pi + 1e-6
    back = tmp_path / "b.csv"
    table.write(x, back)
    assert back.read_text() == path.read_text()
    for place in (0.001, 0.5, 0.999):
        scores = column.scores.encode(column.scale.parse(texts), place).astype(np.float32)
        assert column.scale.write(column.scores.decode(scores)) == texts
    again = Table.from_json(table.to_json())
    assert torch.equal(again.encode(path)["x"], x["x"])


def test_the_ends_of_a_period_are_neighbours():
    hours = Around.fit(np.arange(24.0), 24.0)
    gap = hours.encode(np.array([23.0])) - hours.encode(np.array([0.0]))
    assert float(np.cos(gap)[0]) == pytest.approx(np.cos(2 * pi / 24))
    degrees = Around.fit(np.array([0.0, 90.0, 360.0]), 360.0)  # both ends: one angle, written as the first
    assert degrees.decode(degrees.encode(np.array([0.0, 360.0, 90.0]))).tolist() == [0, 0, 90]


def test_all_that_is_drawn_is_of_the_grid():
    angles = np.linspace(-pi, pi, 10_001)
    for numbers, period in ((np.arange(24.0), 24.0), (np.arange(1.0, 367.0), 365.25), (np.arange(-180.0, 180.0, 45), 360.0)):
        around = Around.fit(numbers, period)
        drawn = np.unique(around.decode(angles))
        assert np.allclose(drawn, numbers)
        shares = np.array([(around.decode(angles) == one).mean() for one in numbers])
        assert shares.min() > 0.5 / len(numbers)  # the last day of a leap year has the least


def test_a_seed_of_angles_is_spread_over_its_interval(tmp_path):
    """A density, not atoms: 300 rows at one hour have 300 angles, all within half an hour."""
    path = written(tmp_path / "a.csv", "h", ["7"] * 300 + [str(h) for h in range(24)])
    _, x = Table.fit(path, {"h": {"kind": "angle", "period": 24}})
    angles = x["h"][:300, 0].double()
    assert len(angles.unique()) == 300
    assert float((angles - 2 * pi * 7 / 24).abs().max()) <= pi / 24 + 1e-6


def test_times_of_day_are_read_and_written(tmp_path):
    texts = ["00:00", "23:59", "08:30", "12:05"] * 4
    path = written(tmp_path / "a.csv", "start", texts)
    table, x = Table.fit(path, {"start": "angle"})
    column = table.columns[0]
    assert column.scores.period == 24 and "times of day" in [line.values for line in table.lines()][0]
    table.write(x, tmp_path / "b.csv")
    assert (tmp_path / "b.csv").read_text() == path.read_text()
    values, fixed = table.given({"start": "23:30"})["start"]
    assert float(values) == pytest.approx(2 * pi * 23.5 / 24 - 2 * pi, abs=1e-6) and bool(fixed)
    seconds = ClockTimes.understand(["8:30:05.25", "23:59:59.5"])
    assert seconds.write(seconds.parse(["8:30:05.25", "23:59:59.50"])) == ["8:30:05.25", "23:59:59.50"]
    assert ClockTimes.understand(["08:30"]).write(np.array([23.9999, -0.5])) == ["00:00", "23:30"]
    assert ClockTimes.understand(["24:00"]) is ClockTimes.understand(["08:30", "08:30:10"]) is None


def test_typed_angles_keep_their_type():
    pa = pytest.importorskip("pyarrow")
    source = pa.table({"at": [f"{h % 24:02d}:15" for h in range(40)], "hour": pa.array(np.arange(40) % 24, pa.int8())})
    source = source.append_column("deg", pa.array(np.arange(40.0) * 9, pa.float32()))
    wishes = {"at": "angle", "hour": {"kind": "angle", "period": 24}, "deg": {"kind": "angle", "period": "degrees"}}
    table, x = Table.of_arrow(source, wishes)
    assert table.arrow(x).schema.types == source.schema.types and table.arrow(x).to_pylist() == source.to_pylist()


def test_missing_angles_stay_missing(tmp_path):
    path = written(tmp_path / "a.csv", "wind", ["", "10", "350", "NaN", "90", "180"] * 5)
    table, x = Table.fit(path, {"wind": {"kind": "angle", "period": 360}})
    assert table.columns[0].missing is not None and bool((x["wind"].abs() <= pi + 1e-6).all())
    drawn = decode(table, x)["wind"]
    assert [text is None for text in drawn] == [text in ("", "NaN") for text in ["", "10", "350", "NaN", "90", "180"] * 5]
    unread = sum(text is None for text in drawn)
    assert float(table.log_fill(x).sum()) == pytest.approx(-unread * np.log(2 * pi))


def test_degrees_taken_for_radians_are_refused(tmp_path):
    path = written(tmp_path / "a.csv", "wind", [str(d) for d in range(0, 360, 3)])
    with pytest.raises(BadData, match=r"from 0 to 357, more than once around the period 2 pi: they look like degrees"):
        Table.fit(path, {"wind": "angle"})
    with pytest.raises(BadData, match="more than once around the period 24: say"):
        Table.fit(path, {"wind": {"kind": "angle", "period": 24}})
    radians = written(tmp_path / "b.csv", "wind", [f"{a:.3f}" for a in np.linspace(-3, 3, 40)])
    table, _ = Table.fit(radians, {"wind": {"kind": "angle", "period": "degrees"}})
    assert any("if they are radians" in note for note in table.notes())
    table, _ = Table.fit(radians, {"wind": {"kind": "angle", "period": "radians"}})
    assert not table.notes()


def test_wishes_that_mean_nothing_are_refused(tmp_path):
    path = written(tmp_path / "a.csv", "h", [str(h) for h in range(24)])
    for wish, said in (
        ({"kind": "angle", "period": "fortnights"}, "use a number such as 24, or one of radians"),
        ({"kind": "angle", "period": -3}, "use a number such as 24"),
        ({"kind": "number", "period": 24}, "a period belongs to kind angle"),
    ):
        with pytest.raises(BadData, match=said):
            Table.fit(path, {"h": wish})
    words = written(tmp_path / "w.csv", "h", ["noon", "8", "9"])
    with pytest.raises(BadData, match="'noon' is not a number or a time of day"):
        Table.fit(words, {"h": "angle"})


def test_the_kinds_file_says_the_period(tmp_path):
    from unnoise.data.table_files import overrides

    path = written(tmp_path / "a.csv", "h", [str(h) for h in range(24)])
    table, x = Table.fit(path, {"h": {"kind": "angle", "period": 24}})
    (tmp_path / "kinds.yaml").write_text(table.kinds())
    assert '"h": {kind: angle, period: hours}' in table.kinds()
    again, same = Table.fit(path, overrides(tmp_path / "kinds.yaml"))
    assert torch.equal(same["h"], x["h"]) and isinstance(again.columns[0], Column)
    assert set(PERIODS) >= {"hours", "degrees", "days"}


def test_angles_alone_are_a_table_too(tmp_path):
    path = written(tmp_path / "a.csv", "deg", [str(d) for d in range(0, 360, 5)], others=False)
    table, x = Table.fit(path, {"deg": {"kind": "angle", "period": 360}})
    assert set(table.process().leaves) == {"deg"} and table.objective_options() == {}
    bound = un.bound(un.Denoiser(un.networks.default_network(table.process(), "tiny", seed=0), table.process()), x, seed=0)
    assert bool(bound.total.isfinite().all())
