"""`benchmarks/unchanged.py` notices what it is there to notice, down to a bit."""

import importlib.util
import sys
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="module")
def unchanged():
    sys.path.insert(0, str(BENCHMARKS))
    spec = importlib.util.spec_from_file_location("unchanged", BENCHMARKS / "unchanged.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["unchanged"] = module
    spec.loader.exec_module(module)
    yield module
    sys.path.remove(str(BENCHMARKS))


def refused():
    raise TypeError(f"{object()} does not fit")


def results(unchanged, **changed):
    x = torch.linspace(0, 1, 5, dtype=torch.float64)
    tree = {"x": x, "calls": 3, "text": "red,1"}
    cases = {"a": lambda: tree, "b": lambda: {"n": x.float()}, "c": refused}
    return unchanged.recorded([(name, changed.get(name, case)) for name, case in cases.items()])


def verdicts(unchanged, expected=None, **changed):
    rows = unchanged.compare(results(unchanged), results(unchanged, **changed), expected or {})
    return {row.name: row for row in rows}


def test_the_same_is_identical(unchanged):
    rows = verdicts(unchanged)
    assert set(rows) == {"a.x", "a.calls", "a.text", "b.n", "c"}
    assert all(row.verdict == "identical" and row.fine for row in rows.values())


def test_one_bit_is_noticed_and_measured(unchanged):
    x = torch.linspace(0, 1, 5)
    near = torch.where(x == 1, torch.nextafter(x, torch.zeros(())), x)
    row = verdicts(unchanged, b=lambda: {"n": near})["b.n"]
    assert row.verdict == "differs" and not row.fine and "at most 5.96e-08" in row.detail and "1 of 5" in row.detail
    assert verdicts(unchanged, b=lambda: {"n": torch.tensor([-0.0, *x[1:]])})["b.n"].verdict == "differs"


def test_other_shapes_types_counts_and_words_are_noticed(unchanged):
    x = torch.linspace(0, 1, 5, dtype=torch.float64)
    rows = verdicts(unchanged, a=lambda: {"x": x.reshape(5, 1), "calls": 4, "text": "red,2"}, b=lambda: {"n": x})
    assert [rows[name].verdict for name in ("a.x", "a.calls", "a.text", "b.n")] == ["differs"] * 4
    assert "1 of 1, at first 3 -> 4 at [0]" in rows["a.calls"].detail


def test_errors_and_missing_results_are_noticed(unchanged):
    def other():
        raise TypeError("it does not fit")

    assert verdicts(unchanged, c=other)["c"].verdict == "words"
    assert verdicts(unchanged, c=lambda: 1.0)["c"].verdict == "error"
    rows = verdicts(unchanged, b=lambda: {"m": 1.0})
    assert rows["b.n"].verdict == rows["b.m"].verdict == "missing" and not rows["b.m"].fine


def test_what_is_expected_has_a_reason(unchanged):
    rows = verdicts(unchanged, {"a.*: differs": "it was asked for"}, a=lambda: {"x": 1.0, "calls": 3, "text": "red,1"})
    assert rows["a.x"].reason == "it was asked for" and rows["a.x"].fine and rows["a.calls"].reason is None


def test_two_cases_of_one_name_are_refused(unchanged):
    with pytest.raises(ValueError, match="two results are called a"):
        unchanged.recorded([("a", lambda: 1.0), ("a", lambda: 2.0)])


def test_the_fixed_set_has_a_few_of_everything_and_is_the_same_twice(unchanged):
    import unchanged_cases

    cases = list(unchanged_cases.cases())
    names = [name for name, _ in cases]
    assert len(names) == len(set(names)) > 4000
    few = ("noise/step/*", "sample/Masking-Cosine/Ancestral", "bound/Chain-VE/Grid/Clean")
    chosen = [case for case in cases if any(fnmatchcase(case[0], pattern) for pattern in few)]
    first, second = unchanged.recorded(chosen), unchanged.recorded(chosen)
    assert first == second and len(first) > 20
    assert not any("error" in found for found in first.values())


def test_names_are_followed(unchanged):
    from unchanged_cases import adapter

    assert adapter.spellings("rates.banded") == ["rate_matrices.banded", "rates.banded"]
    assert adapter.spellings("decoders.Gaussian")[0] == "decoders.GaussianDecoder"
    with pytest.raises(LookupError, match="the library has none of nothing.of.the.kind"):
        adapter.name("nothing.of.the.kind")

    def together(x, condition=None):
        return condition

    def apart(x, **condition):
        return condition

    given = {"label": 1}
    assert adapter.call(together, 0, condition=given) == adapter.call(apart, 0, condition=given) == given
