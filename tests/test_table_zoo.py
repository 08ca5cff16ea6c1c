"""`benchmarks/table_zoo.py`: who is first and who is behind, by one rule, and gaps of as many rows as are real."""

import importlib.util
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "table_zoo.py"


@pytest.fixture(scope="module")
def zoo():
    spec = importlib.util.spec_from_file_location("table_zoo", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def scores(gaps):
    return {k: {"two_sample": 0.5, "trend": 0.9, "gap": gap} for k, gap in enumerate(gaps)}


def last_line(zoo, ours, copula):
    return zoo.report({"tips": {"ours": scores(ours), "copula": scores(copula)}}).splitlines()[-1]


@pytest.mark.parametrize(
    ("apart", "by_error", "in_mean"),
    [
        ([0.01, 0.01, 0.01, 0.02, 0.00], True, True),
        ([0.03, -0.03, 0.03, -0.03, 0.01], False, True),  # a mean of 0.002, with an error of 0.014
        ([-0.01, -0.01, 0.00, -0.02, -0.01], False, False),
        ([0.0, 0.0, 0.0, 0.0, 0.0], False, False),
    ],
)
def test_behind_by_the_rule_of_first(zoo, apart, by_error, in_mean):
    copula = [0.1, 0.12, 0.11, 0.09, 0.1]
    words = last_line(zoo, [c + a for c, a in zip(copula, apart, strict=True)], copula)
    rule, mean = words.split("; in the plain mean: ")
    assert rule.endswith("tips" if by_error else "none") and mean == ("tips" if in_mean else "none")
    assert "1 of 1 tables" in rule


def test_halvings_that_both_have(zoo):
    assert last_line(zoo, [0.1, 0.1, 0.9], [0.1, 0.2]).endswith("error: none; in the plain mean: none")


def test_the_gap_is_the_mean_over_sets_of_as_many_rows(zoo):
    g = np.random.default_rng(0)
    real = pd.DataFrame(g.normal(size=(50, 3)), columns=list("abc"))
    fake = pd.DataFrame(g.normal(size=(120, 3)), columns=list("abc"))  # two sets, and twenty rows that make none
    each = [zoo.gap(real, fake.iloc[k : k + 50]) for k in (0, 50)]
    assert zoo.gap(real, fake) == pytest.approx(np.mean(each)) and each[0] != each[1]
    by_hand = [
        abs(np.corrcoef(real[a], real[b])[0, 1] - np.corrcoef(fake[a][:50], fake[b][:50])[0, 1])
        for a, b in ("ab", "ac", "bc")
    ]
    assert each[0] == pytest.approx(np.mean(by_hand))
    assert zoo.gap(real, fake.iloc[:20]) == pytest.approx(
        zoo.gap(real, fake.iloc[:20].copy())
    )  # one set, though it is short


def test_halvings_have_seeds_of_their_own(zoo):
    assert zoo.seed_of(Path("out/zoo/breast_cancer-3")) == "3"
