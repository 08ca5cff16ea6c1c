"""The combined denoiser of the docs against the law that it is: bound, samples, and what it says of itself."""

import importlib.util
import json
from pathlib import Path

import pytest
import torch

import unnoise as un
from unnoise.cli.verify import Verify

PATH = Path(__file__).parents[2] / "docs" / "examples" / "combined_denoiser.py"
spec = importlib.util.spec_from_file_location("combined_denoiser", PATH)
combined_denoiser = importlib.util.module_from_spec(spec)
spec.loader.exec_module(combined_denoiser)

WEIGHTS = [(1.5, -0.5), (0.3, 0.7)]


@pytest.mark.parametrize("weights", WEIGHTS)
def test_its_bound_is_that_of_the_law(weights):
    combined, truth = combined_denoiser.example(weights)
    x = truth.draw(un.NoiseSource(0, 20))
    ours, theirs = (un.bound(d, x, seed=1) for d in (combined, truth))
    torch.testing.assert_close(ours.diffusion, theirs.diffusion, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(ours.total, theirs.total, rtol=1e-9, atol=1e-9)
    other, _ = combined_denoiser.example((0.5, 0.5))
    assert float((un.bound(other, x, seed=1).total - theirs.total).abs().max()) > 0.1


@pytest.mark.parametrize("weights", WEIGHTS)
def test_its_samples_are_those_of_the_law(weights):
    combined, truth = combined_denoiser.example(weights)
    ours, theirs = (un.sample(d, 500, 16, seed=3)[0] for d in (combined, truth))
    torch.testing.assert_close(ours["size"], theirs["size"], rtol=1e-8, atol=1e-8)
    assert torch.equal(ours["colour"], theirs["colour"])
    mean = weights[0] * torch.tensor([1.0, 0.0]) + weights[1] * torch.tensor([-1.0, 2.0])
    assert float((ours["size"].mean(0) - mean).abs().max()) < 5 * (0.8 / 500) ** 0.5


def test_what_it_says_of_itself():
    combined, _ = combined_denoiser.example()
    assert combined.passes == 2 and combined.dtype is torch.float64
    assert combined.kinds == {"size": un.Velocity, "colour": un.Posterior}
    assert combined.cutoff == combined.process.cutoff


def test_unnoise_verify_takes_its_maker(monkeypatch, capsys):
    monkeypatch.chdir(PATH.parent)
    monkeypatch.syspath_prepend(str(PATH.parent))
    assert Verify(denoiser="combined_denoiser:denoiser", json=True).run() == 0
    rows = json.loads(capsys.readouterr().out)
    told = {row["quantity"]: row["verdict"] for row in rows}
    assert told.pop("bound and law of the model") == "not checked"
    assert set(told.values()) == {"ok"} and "passes: evaluations of networks in one call" in told


def test_the_page_shows_the_module():
    page = (PATH.parents[1] / "extending-denoiser.md").read_text(encoding="utf-8")
    assert f"```python\n{PATH.read_text(encoding='utf-8')}```" in page
