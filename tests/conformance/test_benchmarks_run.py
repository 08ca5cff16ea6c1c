"""The benchmark of sequences runs, on little data, and prints what it says it does."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.conformance


def printed(name: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore", str(ROOT / "benchmarks" / name), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_text_quality(tmp_path):
    rng = np.random.default_rng(0)
    for name, letters in (("train", 6000), ("valid", 1500)):
        x, follows = rng.integers(4, size=letters), rng.random(letters) < 0.9
        for i in range(1, letters):  # mostly the next letter of the alphabet
            x[i] = (x[i - 1] + 1) % 4 if follows[i] else x[i]
        text = "".join("ACGT"[i] for i in x)
        (tmp_path / f"{name}.txt").write_text(text)
        (tmp_path / f"{name}.fa").write_text(f">{name}\n{text}\n")
    files = [str(tmp_path / f"{name}.{kind}") for kind in ("txt", "fa") for name in ("train", "valid")]
    out = tmp_path / "figures.json"
    options = ("--minutes=0.04", "--length=30", f"--json-out={out}", "--set", "panels=0")
    printed("text_quality.py", "--text", *files[:2], "--dna", *files[2:], *options)
    figures = json.loads(out.read_text())
    for job in ("text", "dna"):
        found = figures[job]
        assert found["symbols"] == 4 and found["training windows"] == 200 and found["validation windows"] == 50
        assert found["markov"]["bits"] < 1.2 and found["markov"]["order"] >= 1
        assert all(0 < found[name]["bits"] < 2.3 for name in ("causal", "masking", "uniform"))
        assert found["masking / causal"] == pytest.approx(found["masking"]["bits"] / found["causal"]["bits"])
