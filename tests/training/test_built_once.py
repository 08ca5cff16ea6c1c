"""A command reads its file once, and builds its process, its network and its objective once."""

import builtins
import io
import json
import os
from collections import Counter

import numpy as np
import pytest

from unnoise.cli import main
from unnoise.data.arrays import Array
from unnoise.data.sequences import Sequences
from unnoise.data.table import Table
from unnoise.networks import MLP, ColumnTransformer, SequenceTransformer
from unnoise.objectives import Objective
from unnoise.training.learner import Learner

TABLE = "item,price\n" + "".join(f"{'tea' if i % 3 else 'cake'},{1.5 * i + i * i % 7}\n" for i in range(80))
CASES = {
    "table.csv": (Table, ColumnTransformer, TABLE.encode(), ()),
    "text.txt": (Sequences, SequenceTransformer, b"the cat sat on the mat. " * 40, ("--length", "8")),
    "array.npy": (Array, MLP, None, ("--schedule", "learned")),
}


@pytest.fixture
def counted(monkeypatch):
    """Counts of calls, and of files opened; and those at the first update."""
    counts = Counter()
    counts.first = None

    def count(owner, name, key):
        original = getattr(owner, name)

        def wrapped(*args, **kwargs):
            counts[key] += 1
            return original(*args, **kwargs)

        monkeypatch.setattr(owner, name, wrapped)

    def opened(file, *args, **kwargs):
        if isinstance(file, str | os.PathLike):
            counts[os.path.basename(file)] += 1
        return kept(file, *args, **kwargs)

    kept = builtins.open
    monkeypatch.setattr(builtins, "open", opened)
    monkeypatch.setattr(io, "open", opened)
    for format, network, _, _ in CASES.values():
        count(format, "process", "process")
        count(network, "__init__", "network")
    count(Objective, "__init__", "objective")
    update = Learner.update

    def updated(self, *args):
        counts.first = counts.first or dict(counts)
        return update(self, *args)

    monkeypatch.setattr(Learner, "update", updated)
    return counts


@pytest.mark.parametrize("name", CASES)
def test_a_training_builds_each_thing_once(tmp_path, monkeypatch, capsys, counted, name):
    _, _, content, options = CASES[name]
    monkeypatch.chdir(tmp_path)
    if content is None:
        np.save(name, np.random.default_rng(0).normal(size=(60, 2)))
    else:
        (tmp_path / name).write_bytes(content)
    counted.clear()
    with pytest.raises(SystemExit) as ended:
        main(["train", name, "--out", "run", "--steps", "3", *options, "--set", "tensorboard=false", "--json"])
    assert ended.value.code == 0, capsys.readouterr().err
    for counts in (counted.first, counted):
        assert counts[name] == counts["process"] == counts["network"] == 1
        assert counts["objective"] == 2  # what is trained, and the bound of the held-out rows
    assert len(json.loads((tmp_path / "run" / "data.json").read_text())["digest"]) == 64  # of the same bytes
    counted.clear()
    with pytest.raises(SystemExit):
        main(["sample", "run", "-n", "2", "--steps", "2", "--json"])
    assert counted["process"] == counted["network"] == 1 and counted[name] == 0
    counted.clear()
    with pytest.raises(SystemExit):
        main(["train", "--resume", "run", "--steps", "4", "--json"])
    assert counted["process"] == counted["network"] == counted[name] == 1
