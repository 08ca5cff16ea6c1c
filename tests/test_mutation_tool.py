"""`benchmarks/mutants.py` kills what a test sees, and names what none does: on a package of one file."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"

TOY = '''"""Costs: 2 + 3."""
RATE = 0.5


def cost(price: int, count: int = 1) -> float:
    """price * count."""
    if price < 0:
        raise ValueError(f"price = {price + 0}")
    return price * count + 0 * RATE


def unused(x):
    return x + 1
'''

TESTS = """
from toy.costs import cost
import pytest

def test_cost():
    assert cost(3, 4) == 12 and cost(5) == 5

def test_free():
    assert cost(0) == 0

def test_refused():
    with pytest.raises(ValueError):
        cost(-1)

def test_fails_by_itself():
    assert cost(1) == 2
"""


@pytest.fixture(scope="module")
def toy(tmp_path_factory):
    root = tmp_path_factory.mktemp("toy")
    for name, text in {"src/toy/__init__.py": "", "src/toy/costs.py": TOY, "tests/test_costs.py": TESTS}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


@pytest.fixture
def sites(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from mutating import sites

    return sites


@pytest.mark.conformance
def test_the_tool_kills_and_reports(toy):
    options = ["--only", "costs", "--count", "100", "--controls", "3", "--workers", "1", "--tests", "tests", "--limit", "5"]
    command = [sys.executable, str(BENCHMARKS / "mutants.py"), "--root", str(toy), "--out", str(toy / "out"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    (file,) = (toy / "out").glob("*/report.json")
    said, results = json.loads(file.read_text()), (file.parent / "results.jsonl").read_text().splitlines()
    rows = {(row["line"], row["what"], row["new"]): row for row in map(json.loads, results)}
    assert said["mutants"] == len(rows) - said["controls"] and 0 < said["controls"] < 4 and not said["controls killed"]
    killed = rows[9, "operator", "(price / count)"]
    assert killed["verdict"] == "killed" and killed["by"].endswith(("test_cost", "test_free"))
    assert rows[7, "comparison", "(price <= 0)"]["by"].endswith("test_free")
    assert rows[7, "condition", "(not price < 0)"]["verdict"] == rows[5, "constant", "2"]["verdict"] == "killed"
    assert rows[13, "constant", "2"]["verdict"] == "uncovered"
    assert rows[2, "constant", "0.25"]["verdict"] == "survived"  # RATE is multiplied by 0: the same program
    assert said["killed"] + said["survived"] + said["uncovered"] == said["mutants"] and not said["unknown"]
    assert {(row["line"], row["what"]) for row in said["survivors"]} >= {(2, "constant"), (13, "operator")}
    assert "    -     return x + 1\n    +     return (x - 1)\n" in done.stdout
    low, high = said["interval"]
    assert low < said["share"] < high and f"killed {said['share']:.1%}" in done.stdout
    again = subprocess.run(command, capture_output=True, text=True, timeout=240)  # goes on, with nothing left
    assert json.loads(file.read_text()) == said and "1/" not in again.stdout.splitlines()[1]


def test_what_is_no_computation_is_left_alone(toy, sites):
    found = sites.mutants_of(toy, toy / "src/toy/costs.py")
    assert {m.line for m in found} == {2, 5, 7, 9, 13}  # no docstring, message or annotation
    source = TOY.encode()
    assert all(m.old == source[m.start : m.end].decode() for m in found)
    assert all(ast.dump(ast.parse(m.applied(source))) != ast.dump(ast.parse(source)) for m in found)
    assert [m.imported for m in found if m.line in (2, 9)] == [True, *[False] * sum(m.line == 9 for m in found)]


def test_the_interval(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from mutants import wilson

    low, high = wilson(8, 10)  # the roots of (p - 0.8)^2 = 1.96^2 p (1 - p)/10
    for p in (low, high):
        assert (p - 0.8) ** 2 == pytest.approx(1.96**2 * p * (1 - p) / 10, rel=1e-12)
    assert low < 0.8 < high
