"""The table in words."""

import pytest

from unnoise.bench import Aim, BenchReport, BenchSetting, Figure, Origin, Timing
from unnoise.bench.figures import GIB
from unnoise.bench.report import HEAD, cells, seconds

ORIGIN = Origin(date="2026-01-02", machine="a machine", size="tiny", versions={"torch": "2"}, command="c", seconds=61.4)
GOOD = Figure(
    row="masking",
    what="a step",
    ours=Timing(8.4e-3, 0.05e-3, int(0.42 * GIB)),
    floor=Timing(7e-3, 0.0, GIB // 4),
    floor_is="the body",
    peers={"other": Timing(0.0518, 0.0, 2 * GIB)},
    aim=Aim(ratio=1.15, memory=0.5),
)
BAD = Figure(row="table", what="rows", error="RuntimeError: no room")


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (1234.4, "1234 s"),
        (12.34, "12.3 s"),
        (1.0, "1 s"),
        (0.99996, "1000 ms"),
        (0.0123, "12.3 ms"),
        (1e-3, "1 ms"),
        (4.5678e-5, "45.7 µs"),
    ],
)
def test_units(value, told):
    assert seconds(Timing(value)) == told


def test_a_line():
    assert cells(GOOD) == [
        "masking",
        "a step",
        "7 ms, the body",
        "8.4 ± 0.05 ms",
        "1.20",
        "≤ 1.15 ×, ≤ 0.5 GiB: not reached",
        "other 51.8 ms (2.00 GiB)",
        "0.42 GiB, floor 0.25",
    ]
    assert cells(Figure(row="r", what="w", ours=Timing(0.813, 0.1123)))[3] == "813 ± 110 ms"
    assert cells(BAD) == ["table", "rows", "-", "failed", "-", "-", "-", "-"]
    assert cells(Figure(row="r", what="w", ours=Timing(2.0))) == ["r", "w", "-", "2 s", "-", "-", "-", "-"]


def test_the_report():
    parts = Figure(row="table", what="rows", ours=Timing(3.0), parts={"drawing": 2.0, "import": 1.0})
    report = BenchReport([GOOD, parts, BAD], ORIGIN)
    assert report.failed == [BAD]
    assert report.notes() == ["table: rows: drawing 2.00 s, import 1.00 s", "table failed: RuntimeError: no room"]
    lines = report.text().splitlines()
    assert lines[0].split() == HEAD and lines[-1] == "2026-01-02, a machine; size tiny; torch 2; 61 s"
    marked = report.markdown().splitlines()
    assert marked[0] == "`c`: 2026-01-02, a machine; size tiny; torch 2; 61 s"
    assert {line.count("|") for line in marked[2:7]} == {len(HEAD) + 1}
    assert report.json()["date"] == "2026-01-02" and len(report.json()["rows"]) == 3


def test_the_origin_names_machine_and_versions():
    origin = Origin.of(BenchSetting.of("cpu", "tiny"), "unnoise bench", 1.0)
    assert "threads" in origin.machine and {"python", "torch"} <= set(origin.versions) and origin.size == "tiny"
