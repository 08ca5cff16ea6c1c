"""The errors of the bound against the truth: the spread over many held-out sets, and over many draws of one set.

A ratio of a deviation of 100 sets to its truth leaves [0.75, 1.33] by chance once in 7000 (chi-square of 99 degrees of
freedom).
"""

from math import isnan
from types import SimpleNamespace

import pytest
import torch

import unnoise as un
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective
from unnoise.oracles import mixture
from unnoise.processes import Gaussian, Masking, Product
from unnoise.training.data_order import InMemory
from unnoise.training.validation import error_words, even, summary, validate

ALONE = SimpleNamespace(device=torch.device("cpu"), num_processes=1, process_index=0, gather=lambda x: x)


class Linear(torch.nn.Module):
    """A fixed network that is far from exact: its guess shrinks with time, and ignores the letters."""

    def forward(self, x, t):
        clock = (t["x"] if isinstance(t, dict) else t).to(x["x"])[:, None]
        push = x["x"].mean(1)[:, None, None] * (1 - clock[:, :, None])
        logits = push * torch.tensor([1.0, 0.0, -1.0]).expand(len(clock), 2, 3)
        return {"x": x["x"] * (1 - clock) + 0.3 * clock, "k": logits}


PROCESS = Product(x=Gaussian((3,)), k=Masking(size=3, shape=(2,)))


def held_out(seed, rows):
    """Numbers of different scales for the letter that goes with them."""
    noise = NoiseSource(seed, rows).at("law")
    k = (noise.at("k").uniform((2,)) * 3).long()
    return {"x": (noise.at("x").normal((3,), torch.float32) * (0.5 + k[:, :1]) + 0.5), "k": k}


def measured(objective, x0, seed, draws, batch=64):
    rows = len(x0["k"]) if isinstance(x0, dict) else len(x0)
    return validate(objective, InMemory(x0), torch.arange(rows), ALONE, batch, draws, seed)


def ratio(found, name):
    """The spread of the bounds over the error that was stated, in the mean of squares."""
    bounds = torch.tensor([entry.bound for entry in found], dtype=torch.float64)
    stated = torch.tensor([getattr(entry, name) for entry in found], dtype=torch.float64).square().mean().sqrt()
    return float(bounds.std() / stated)


@pytest.mark.conformance
@pytest.mark.parametrize(("rows", "draws"), [(34, 2), (100, 2)])
def test_the_spread_of_the_bound_is_the_error_that_is_stated(rows, draws):
    """100 fresh held-out sets of a known law and one fixed network; then 100 noisings of one set."""
    denoiser = un.Denoiser(Linear(), PROCESS, {"x": un.Clean, "k": un.Posterior})
    objective = Objective(denoiser)
    found = [measured(objective, held_out(seed, rows), seed, draws) for seed in range(100)]
    assert 0.75 < ratio(found, "se") < 1.33
    assert all(entry.draw_se <= entry.se for entry in found)
    x0 = held_out(1000, rows)
    again = [measured(objective, x0, seed, draws) for seed in range(100)]
    assert 0.75 < ratio(again, "draw_se") < 1.33
    assert ratio(again, "se") < 1.05  # the rows' own part is in it


def test_an_exact_denoiser_has_the_error_of_its_rows():
    """The same of an oracle, whose bound is the entropy of the law in the mean."""
    weights, mean, sd = torch.tensor([0.3, 0.7]), torch.tensor([[-2.0, 0.0], [1.0, 1.0]]), torch.tensor([0.3, 0.8])
    oracle = mixture(
        Gaussian((2,)), weights.double(), mean.double(), torch.diag_embed(sd[:, None].expand(2, 2).double() ** 2)
    )
    objective = Objective(oracle)

    def rows(seed):
        noise = NoiseSource(seed, 30).at("rows")
        which = (noise.at("which").uniform() > 0.3).long()
        return mean[which] + sd[which, None] * noise.at("normal").normal((2,), torch.float32)

    found = [measured(objective, rows(seed), seed, 2) for seed in range(100)]
    again = [measured(objective, rows(0), seed, 2) for seed in range(100)]
    assert 0.75 < ratio(found, "se") < 1.33 and 0.75 < ratio(again, "draw_se") < 1.33


def test_batches_are_as_large_as_one_another():
    """A last batch of few rows, cut from a full one, would see some of the times only."""
    assert [even(100, 64), even(64, 64), even(65, 64), even(3, 64), even(1000, 256)] == [50, 64, 33, 3, 250]


def test_few_rows_have_words_instead_of_an_error():
    found = summary(torch.randn(8, 2, 3, dtype=torch.float64))
    assert isnan(found.se) and error_words(found.se, 2) == " (of 2 held-out rows: too few to tell its error)"
    assert error_words(0.1234, 50) == " ± 0.12" and error_words(None) == ""
    single = summary(torch.randn(1, 50, 3, dtype=torch.float64))
    assert isnan(single.draw_se) and single.se > 0
