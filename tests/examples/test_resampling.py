"""docs/examples/resampling.py, through `un.sample`."""

from dataclasses import replace
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest
import torch

import unnoise as un
from unnoise.samplers import DPMSolverPP

ROOT = Path(__file__).parents[2]
SPEC = spec_from_file_location("resampling", ROOT / "docs" / "examples" / "resampling.py")
resampling = module_from_spec(SPEC)
SPEC.loader.exec_module(resampling)

SLOPE, RUNS, ROWS = 1.0, 16, 400


def score(method) -> float:
    """How many standard errors the mean of RUNS runs lies from the tilted law's."""
    oracle = resampling.model()
    means = torch.stack([un.sample(oracle, n=ROWS, steps=24, sampler=method, seed=seed)[0].mean() for seed in range(RUNS)])
    return float((means.mean() - resampling.tilted_mean(SLOPE)).abs() / (means.std() / RUNS**0.5))


def reward(x):
    return SLOPE * x.squeeze(-1)


@pytest.mark.parametrize("sde", [True, False])
def test_the_tilted_law_is_drawn(sde):
    """Student's t with 15 degrees of freedom exceeds 6 in one run of 40,000; the runs are independent."""
    assert score(resampling.Resampled(DPMSolverPP(2, sde=sde), reward)) < 6


def test_without_resampling_the_mean_is_another():
    assert score(DPMSolverPP(2, sde=True)) > 20


class Shuffled(resampling.Resampled):
    """Rows are permuted, not drawn."""

    def __init__(self, order, with_history=True):
        super().__init__(DPMSolverPP(3), reward, share=2.0)
        self.order, self.with_history = order, with_history

    def drawn(self, state, u):
        moved = state.rows(self.order)
        return moved if self.with_history else replace(moved, memory=state.memory)


def test_rows_bring_their_history_along():
    """Without noise a run that is permuted in every step ends in the permuted samples, bit for bit; planted: x alone."""
    oracle, order, steps = resampling.model(), torch.tensor([3, 0, 4, 1, 2]), 5
    plain, _ = un.sample(oracle, n=5, steps=steps, sampler=DPMSolverPP(3), seed=0)
    whole = torch.arange(5)
    for _ in range(steps):
        whole = whole[order]
    moved, _ = un.sample(oracle, n=5, steps=steps, sampler=Shuffled(order), seed=0)
    assert torch.equal(moved, plain[whole])
    forgetful, _ = un.sample(oracle, n=5, steps=steps, sampler=Shuffled(order, with_history=False), seed=0)
    assert not torch.allclose(forgetful, plain[whole], atol=1e-3)


def test_systematic_resampling_takes_each_row_as_often_as_its_weight_says():
    log_weight = torch.tensor([0.1, 0.4, 0.2, 0.3]).double().log()
    counts = [torch.bincount(resampling.systematic(log_weight, u), minlength=4) for u in torch.linspace(0.001, 0.999, 999)]
    torch.testing.assert_close(torch.stack(counts).double().mean(0), 4 * log_weight.exp(), rtol=0, atol=5e-3)
    assert resampling.effective(torch.zeros(7)) == pytest.approx(7) and resampling.effective(log_weight) < 4


def test_the_page_shows_the_module():
    module = (ROOT / "docs" / "examples" / "resampling.py").read_text(encoding="utf-8")
    page = (ROOT / "docs" / "extending-sampler.md").read_text(encoding="utf-8")
    assert f"```python\n{module}```" in page, "docs/extending-sampler.md and docs/examples/resampling.py differ"
