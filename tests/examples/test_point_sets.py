"""docs/examples/point_sets.py and own_network.py: a format and a network from outside, through the `unnoise` command."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from unnoise.cli import main
from unnoise.data import FORMATS, Reading, read
from unnoise.networks import REGISTRY
from unnoise.training import Run

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"
LOAD = ("--load", "point_sets")


@pytest.fixture
def unnoise(tmp_path, monkeypatch, capsys):
    """The command in a folder that holds the modules and a file of rings and clouds."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(EXAMPLES))
    rng = np.random.default_rng(0)
    with open("sets.jsonl", "w") as file:
        for i in range(200):
            points = rng.normal(size=(3, 2))
            points = points / np.linalg.norm(points, axis=1, keepdims=True) if i % 2 else 0.3 * points
            file.write(json.dumps({"label": ["cloud", "ring"][i % 2], "points": (points + [3, 4]).tolist()}) + "\n")

    def run(*arguments, status=0):
        with pytest.raises(SystemExit) as ended:
            main([*map(str, arguments)])
        printed = capsys.readouterr()
        assert ended.value.code == status, printed.err
        return printed.out if status == 0 else printed.err

    return run


@pytest.mark.parametrize("page, name", [("extending-format", "point_sets"), ("extending-network", "own_network")])
def test_pages_show_the_modules(page, name):
    """In a block that the page's test does not run: these tests do, and a name is registered once."""
    module = (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")
    text = (EXAMPLES.parent / f"{page}.md").read_text(encoding="utf-8")
    assert f"```py\n{module}```" in text, f"docs/{page}.md and docs/examples/{name}.py differ"


def lines(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


@pytest.mark.conformance
def test_a_format_is_trained_sampled_evaluated_and_filled(unnoise):
    told = unnoise("train", "sets.jsonl", *LOAD, "--dry-run")
    assert "2: cloud, ring" in told and "200 examples" in told
    unnoise("train", "sets.jsonl", *LOAD, "--out", "run", "--steps", 30, "--json")
    config = json.loads(Path("run/config.json").read_text())
    assert config["format"]["kind"] == "point_sets" and config["train"]["batch_size"] == 48
    assert config["network"]["name"] == "ColumnTransformer"
    unnoise("sample", "run", *LOAD, "-n", 20, "--steps", 8)
    drawn = lines("run/samples.jsonl")
    assert len(drawn) == 20 and {row["label"] for row in drawn} <= {"cloud", "ring"}
    assert all(np.shape(row["points"]) == (3, 2) for row in drawn)
    assert np.abs(np.mean([row["points"] for row in drawn], (0, 1)) - [3, 4]).max() < 1.5
    unnoise("sample", "run", *LOAD, "-n", 5, "--steps", 8, "--given", "label=ring", "--out", "rings.jsonl")
    assert [row["label"] for row in lines("rings.jsonl")] == ["ring"] * 5
    result = json.loads(unnoise("evaluate", "run", *LOAD, "--draws", 2, "--samples", 40, "--json"))
    assert set(result["samples"]) == set(result["control_unseen_rows"]) == {"label_distance", "radius_ratio"}
    assert abs(result["control_unseen_rows"]["radius_ratio"] - 1) < 0.3
    known = [[3.0, 5.0], None, [2.0, 4.0]]
    Path("gaps.jsonl").write_text(json.dumps({"label": None, "points": known}) + "\n")
    told = json.loads(unnoise("infill", "run", "gaps.jsonl", *LOAD, "--out", "full.jsonl", "--steps", 4, "--json"))
    (row,) = lines("full.jsonl")
    assert told["filled"] == 2 and told["parts"]["points"].startswith("approximate")
    assert np.allclose([row["points"][0], row["points"][2]], [known[0], known[2]], atol=1e-5)
    assert json.loads(unnoise("train", "--resume", "run", *LOAD, "--steps", 32, "--json").splitlines()[-1])["step"] == 32


def test_a_network_is_taken_by_name(unnoise):
    both = (*LOAD, "--load", "own_network")
    options = ("--network", "SetNetwork", "--set-network", "width=16", "--steps", 4)
    unnoise("train", "sets.jsonl", *both, "--out", "run", *options, "--json")
    config = json.loads(Path("run/config.json").read_text())
    assert config["network"] == {"name": "SetNetwork", "options": {"labels": 2, "width": 16, "layers": 2}}
    denoiser = Run.open("run").denoiser()
    _, x0 = read(Path("sets.jsonl"))
    x, t = {"label": x0["label"][:2], "points": x0["points"][:2]}, torch.tensor([0.3, 0.8])
    whole, turned = (denoiser.network({**x, "points": x["points"].roll(k, 1)}, t)["points"] for k in (0, 1))
    assert torch.allclose(whole.roll(1, 1), turned, atol=1e-6)  # the order of the points says nothing
    unnoise("sample", "run", *both, "-n", 3, "--steps", 4)
    assert len(lines("run/samples.jsonl")) == 3


def test_options_and_names_of_formats(unnoise):
    unnoise("train", "sets.jsonl", *LOAD, "--dry-run", "--option", "scale=2")
    assert read(Path("sets.jsonl"), Reading(options={"scale": "2"}))[0].scale == 2
    wrong = unnoise("train", "sets.jsonl", *LOAD, "--dry-run", "--option", "colour=red", status=2)
    assert "--option colour is an option of no format; sets.jsonl is of the format point_sets: leave it out" in wrong
    wrong = unnoise("train", "sets.jsonl", *LOAD, "--length", 3, status=2)
    assert "--length is for sequences; sets.jsonl is of the format point_sets" in wrong
    Path("sets.jsonl").rename("sets.json")
    assert "nothing is known of files with the suffix '.json'" in unnoise("train", "sets.json", *LOAD, status=2)
    assert "200 examples" in unnoise("train", "sets.json", *LOAD, "--format", "point_sets", "--dry-run")
    assert "no data format 'sets': choose from array, conditional, images, pairs, point_sets" in unnoise(
        "train", "sets.json", "--format", "sets", status=2
    )
    assert "--load nowhere: No module named 'nowhere'" in unnoise("train", "sets.json", "--load", "nowhere", status=2)


def test_a_run_s_folder_causes_no_import(unnoise, monkeypatch):
    """A run of a format or a network that nobody registered is refused in one line, importable as it may be."""
    unnoise("train", "sets.jsonl", *LOAD, "--load", "own_network", "--network", "SetNetwork", "--out", "run", "--steps", 2)
    monkeypatch.delitem(FORMATS, "point_sets")
    for module in ("point_sets", "own_network"):
        monkeypatch.delitem(sys.modules, module)
    wrong = unnoise("sample", "run", "-n", 2, status=2)
    assert "there is no data format 'point_sets': choose from array" in wrong and "--load MODULE" in wrong
    assert wrong.count("\n") == 1 and "point_sets" not in sys.modules
    unnoise("sample", "run", "-n", 2, *LOAD)  # registers it again
    monkeypatch.delitem(REGISTRY, "SetNetwork")
    assert "there is no network 'SetNetwork': choose from" in unnoise("sample", "run", "-n", 2, *LOAD, status=2)
    assert "own_network" not in sys.modules
