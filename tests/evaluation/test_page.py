"""The page of a run: its sentence, its curves, and a table's pictures."""

import json
import re

import numpy as np
import pytest

from unnoise.cli import main
from unnoise.evaluation.page import curves, said, write_report
from unnoise.training import Run
from unnoise.training.convergence import Convergence


@pytest.fixture(scope="module")
def ended(tmp_path_factory):
    """A table trained for a moment by the command: (the run, what was printed)."""
    folder = tmp_path_factory.mktemp("page")
    rng = np.random.default_rng(0)
    x = rng.normal(size=200)
    rows = [
        f"{a:.3f},{a + 0.2 * b:.3f},{k}"
        for a, b, k in zip(x, rng.normal(size=200), rng.choice(list("uv"), 200), strict=True)
    ]
    (folder / "t.csv").write_text("\n".join(["left,right,kind", *rows]) + "\n")
    command = ["train", str(folder / "t.csv"), "--out", str(folder / "run"), "--steps", "12"]
    with pytest.raises(SystemExit) as left:
        main([*command, "--set", "panels=1", "--set", "log_every=4"])
    assert not left.value.code
    return Run.open(folder / "run")


def test_the_page_of_a_table(ended):
    page = ended.report.read_text()
    for words in (
        "hardly begun",
        "--minutes",
        "held-out rows",
        "training rows",
        "Pairs of columns",
        "mean gap",
        "Samples on the",
    ):
        assert words.lower() in page.lower(), words
    assert "nothing to draw yet" not in page and not re.search(r"<script|https?://", page)
    steps = [entry["step"] for entry in map(json.loads, ended.metrics.read_text().splitlines()) if "training_bound" in entry]
    assert steps[0] == 0 and steps[-1] == 12


def test_without_a_file_to_compare_with_there_are_no_pictures(ended):
    path = next(ended.samples.glob("last*"))
    noted = ended.folder / "data.json"
    kept = noted.read_text()
    noted.unlink()
    page = write_report(ended, path).read_text()
    assert "no pictures of real rows" in page and "Pairs of columns" not in page and "<h2>Samples</h2>" in page
    noted.write_text(kept)
    assert "Pairs of columns" in write_report(ended, path).read_text()


def test_what_to_do_stands_beside_the_sentence(ended):
    told = said(Convergence("improving", "still improving", minutes=4.0), ended)
    assert "Still improving." in told and "unnoise train --resume run --minutes 4" in told
    assert "--resume" not in said(Convergence("overfitting", "overfitting: a <b>"), ended)
    assert "a &lt;b&gt;" in said(Convergence("overfitting", "overfitting: a <b>"), ended)


def test_curves_without_a_bound_say_so():
    assert "nothing to draw yet" in curves([{"step": 1, "loss": 2.0}])
