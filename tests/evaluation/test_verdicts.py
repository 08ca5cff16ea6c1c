"""What is said of samples, and within which time."""

from pathlib import Path

import pandas as pd
import pytest
import torch

from unnoise.evaluation import tables, verdicts
from unnoise.evaluation.budget import Budget, affordable
from unnoise.evaluation.report import LEAST_SECONDS, allowed
from unnoise.evaluation.scores import TRIED, Study
from unnoise.evaluation.table_study import likely_target, mean_score, parts_of
from unnoise.training import Run


def figures(two=0.97, trend=0.95, closest=0.2, copies=0.0, utility=None):
    found = {"rows": 100, "two_sample": two, "two_sample_se": 0.01, "trend": trend, "closest": closest, "copies": copies}
    return found | ({} if utility is None else {"utility": utility})


def result(**samples):
    return {
        "samples": figures(**samples),
        "control_unseen_rows": figures(1.0, 0.99, 0.2),
        "control_independent_columns": figures(0.1, 0.7, 0.3, utility=0.5),
        "control_training_rows": {"rows": 100, "utility": 0.9},
        "target": "t",
        "columns": {"a": {"samples": 0.9, "unseen_rows": 0.95}, "b": {"samples": 0.94, "unseen_rows": 0.95}},
    }


@pytest.mark.parametrize(("two", "level"), [(0.97, "as real"), (0.85, "close"), (0.6, "off"), (0.2, "far")])
def test_the_level_goes_by_the_two_sample_score(two, level):
    found = verdicts.of_table(result(two=two, utility=0.8))
    assert found["level"] == level and found["weakest_column"] == "a" and not found["repeats_training_rows"]
    assert found["trend_share"] == pytest.approx(0.25 / 0.29) and found["utility_share"] == pytest.approx(0.75)
    assert "to predict t: 0.800 of 0.900 by real rows (0.500)" in found["words"]


def test_rows_that_repeat_training_rows_are_named():
    assert verdicts.of_table(result(closest=0.05))["repeats_training_rows"]
    assert "repeats what it has seen" in verdicts.of_table(result(copies=0.1))["words"]


def test_so_few_rows_that_nothing_is_told():
    few = result(two=0.8)
    few["samples"]["two_sample_se"] = 0.2
    assert "by so few" in verdicts.of_table(few)["words"]
    none = result(two=None)
    assert verdicts.of_table(none)["level"] is None and "too few rows" in verdicts.of_table(none)["words"]


def test_sequences_by_the_way_from_independent_symbols():
    sets = {"samples": 0.3, "control_independent_symbols": 0.7, "control_unseen_rows": 0.2}
    found = verdicts.of_sequences({name: {"ngram_distance_4": v, "copies": 0.0} for name, v in sets.items()})
    assert found["level"] == "close" and "80 % of the way" in found["words"]


def test_a_target_where_none_is_named():
    frame = pd.DataFrame({"a": list("pq") * 20, "n": range(40), "name": [f"x{i}" for i in range(40)]})
    assert (
        likely_target(frame) == "a" and likely_target(frame[["n", "name"]]) == "name" and likely_target(frame[["n"]]) is None
    )


def test_means_over_sets_of_one_size():
    frame = pd.DataFrame({"a": range(100)})
    assert [list(part.a[:1]) for part in parts_of(frame, 30)] == [[0], [30], [60]]
    one, other = (tables.TableScore(5, shape, None, None, None, 0.0, 0.1, 0.1) for shape in (0.5, 0.7))
    assert mean_score([one, other]).shape == pytest.approx(0.6) and mean_score([one, other]).trend is None


def test_an_evaluation_takes_as_long_as_the_training(tmp_path):
    run = Run.__new__(Run)
    run.metrics = tmp_path / "metrics.jsonl"
    run.metrics.write_text('{"step": 1, "seconds": 90.0}\n')
    assert allowed(run, None) == 90 and allowed(run, 0.1) == 6
    run.metrics.write_text('{"step": 1, "seconds": 2.0}\n')
    assert allowed(run, None) == LEAST_SECONDS
    assert affordable(1000, 100, 1.0, 5.0) == 500 and affordable(1000, 100, 1.0, 0.0) == 100


def test_samples_are_cut_and_it_is_said():
    budget, asked, none = Budget(0.0), [], torch.zeros(1)
    common = {"seed": 0, "where": none.device, "folder": Path(), "trained_with": 0, "budget": budget}
    study = Study(none, none, lambda n: asked.append(n) or torch.zeros(n), samples=None, **common)
    assert len(study.samples_in_time(5000)) == TRIED and asked == [TRIED]
    assert budget.cuts == [f"samples: {TRIED} of 5000"]
    told = Study(none, none, torch.zeros, samples=5000, **common)
    assert len(told.samples_in_time(5000)) == 5000  # asked for by number
