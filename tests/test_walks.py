"""The walks in CONTRIBUTING.md are what happens: every hop exists, and is met for the first time in the order given."""

import contextlib
import io
import re
import sys
from pathlib import Path

import pytest
import torch

import unnoise as un

ROOT = Path(__file__).parents[1]
PACKAGE = str(Path(un.__file__).parent)
HOP = re.compile(r"^\d+\. `([\w/.]+): ([\w.]+)`$", re.MULTILINE)


def walks() -> dict[str, list[tuple[str, str]]]:
    """The hops of each walk, by the call in its heading."""
    text = (ROOT / "CONTRIBUTING.md").read_text().split("## Walks")[1].split("\n## ")[0]
    parts = re.split(r"^`(un\.\w+|unnoise \w+)[^\n]*:$", text, flags=re.MULTILINE)
    return {name: HOP.findall(body) for name, body in zip(parts[1::2], parts[2::2], strict=True)}


def traced(run) -> list[tuple[str, str]]:
    """Functions of the package in the order of their first call."""
    met = {}

    def note(frame, event, argument):
        file = frame.f_code.co_filename
        if event == "call" and file.startswith(PACKAGE):
            met.setdefault((file[len(PACKAGE) + 1 :], frame.f_code.co_qualname.replace("<locals>.", "")), None)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        run()
    finally:
        sys.setprofile(before)
    return list(met)


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x, t):
        return self.layer(torch.cat([x, t.unsqueeze(1)], 1))


def command(*words):
    from unnoise.cli import main

    with contextlib.redirect_stdout(io.StringIO()), contextlib.suppress(SystemExit):
        main(list(words))


@pytest.fixture
def calls(tmp_path):
    denoiser, table = un.Denoiser(Network(), un.Gaussian((2,))), tmp_path / "people.csv"
    table.write_text("a,b\n" + "\n".join(f"{i % 7 / 3},{'xy'[i % 2]}" for i in range(40)) + "\n")
    options = ["--steps", "2", "--device", "cpu", "--json", "--set", "panels=0"]
    return {
        "un.bound": lambda: un.bound(denoiser, torch.zeros(4, 2), fast=False),
        "un.sample": lambda: un.sample(denoiser, n=4, steps=2),
        "unnoise train": lambda: command("train", str(table), "--out", str(tmp_path / "run"), *options),
        "unnoise verify": lambda: command("verify", "--only", "uniform/scalar", "--json"),
    }


@pytest.mark.parametrize("name", ["un.bound", "un.sample", "unnoise train", "unnoise verify"])
def test_a_walk_is_what_happens(name, calls):
    hops = walks()[name]
    assert len(hops) == len(set(hops)) > 8
    met = traced(calls[name])
    missing = [hop for hop in hops if hop not in met]
    assert not missing, f"never called: {missing}"
    places = [met.index(hop) for hop in hops]
    assert places == sorted(places), [hop for hop, a, b in zip(hops, places, places[1:], strict=False) if a > b]


def test_a_hop_that_does_not_exist_is_noticed(calls):
    assert ("objectives/bound.py", "Objective.backward") not in traced(calls["un.bound"])
