"""The table of all methods on a few words: rows are trained on as many symbols, and kept from call to call."""

import importlib.util
import json
import random
import sys
from pathlib import Path

import pytest

BENCHMARK = Path(__file__).parents[1] / "benchmarks" / "method_table.py"
WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "that", "was", "all"]


@pytest.fixture(scope="module")
def method_table():
    spec = importlib.util.spec_from_file_location("method_table", BENCHMARK)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(path, words, seed):
    path.write_text(" ".join(random.Random(seed).choices(WORDS, k=words)))
    return str(path)


def test_rows_are_added_to_one_table(method_table, tmp_path, monkeypatch, capsys):
    files = [write(tmp_path / "train.txt", 2000, 0), write(tmp_path / "valid.txt", 200, 1)]
    small = ["--out", str(tmp_path / "out"), "--length", "16", "--symbols", "4096", "--steps", "4", "--samples", "8"]
    for row in ("masking", "autoregressive", "analog-bits"):
        call = [
            "method_table.py",
            *files,
            *small,
            "--row",
            row,
            "--draws",
            "1",
            "--judge-minutes",
            "0.02",
            "--batch-size",
            "32",
        ]
        monkeypatch.setattr(sys, "argv", call)
        method_table.main()
    told = json.loads((tmp_path / "out" / "table.json").read_text())
    assert set(told["rows"]) == {"masking", "autoregressive", "analog-bits"}
    assert {row["updates"] for row in told["rows"].values()} == {4096 // (32 * 16)}  # all have seen as many symbols
    assert all(0 < row["bits"] < 20 for row in told["rows"].values())
    assert 0 < told["rows"]["masking"]["4"]["entropy"] <= 4.8 and told["rows"]["masking"]["4"]["perplexity"] > 1
    lines = capsys.readouterr().out.strip().splitlines()[-5:]
    assert lines[0].startswith("| method | bits per symbol") and sum("(exact)" in line for line in lines) == 1


def test_all_registered_models_have_a_row(method_table, monkeypatch):
    rows = method_table.methods()
    for name in ("analog-bits", "simplex", "cir", "embedding", "duo", "duo, no curriculum", "cadd", "ccdd", "vq", "uniform"):
        assert name in rows
    monkeypatch.setattr(sys, "argv", ["method_table.py", "a", "b", "--out", "c", "--row", "nothing"])
    with pytest.raises(SystemExit):
        method_table.parsed()
