"""Rows drawn given a column, against the exact conditional law, and against those of a model that is off."""

from math import sqrt

import numpy as np
import pandas as pd
import pytest
import torch

import unnoise as un
from unnoise.data.base import Format
from unnoise.evaluation import calibration
from unnoise.noise import NoiseSource
from unnoise.oracles import conditional_gaussian
from unnoise.samplers import default_sampler
from unnoise.training.drawing import draw, fill

MEAN = torch.tensor([1.0, -0.5, 0.2], dtype=torch.float64)
COVARIANCE = torch.tensor([[1.0, 0.7, -0.3], [0.7, 0.9, 0.1], [-0.3, 0.1, 0.6]], dtype=torch.float64)
NAMES = ("x", "y", "z")
PROCESS = un.Product(**{name: un.Gaussian((1,)) for name in NAMES})


class ExactGaussian(torch.nn.Module):
    """E[x_0 | x_t] of a normal law, each leaf at a time of its own:  mu + S A (A S A + B^2)^-1 (x_t - A mu)."""

    def forward(self, x, t):
        schedule = PROCESS.leaves["x"].schedule
        times = [t[name] if isinstance(t, dict) else t for name in NAMES]
        a, b = (
            torch.stack([torch.as_tensor(f(time)).double() for time in times], 1) for f in (schedule.alpha, schedule.sigma)
        )
        z = torch.cat([x[name] for name in NAMES], 1).double()
        noised = a[:, :, None] * COVARIANCE * a[:, None, :] + torch.diag_embed(b**2)
        gain = torch.linalg.solve(noised, (z - a * MEAN).unsqueeze(-1)).squeeze(-1)
        clean = MEAN + (a * gain) @ COVARIANCE
        return {name: clean[:, i : i + 1].to(x[name]) for i, name in enumerate(NAMES)}


class Numbers(Format):
    """Of which `given` alone is asked."""

    kind, suffix = "three numbers", ".txt"

    def given(self, assignments):
        value = torch.tensor([float(assignments["x"])])
        return {"x": (value, torch.ones(1, dtype=torch.bool))}

    lines = process = encode = write = to_json = from_json = None


def test_draws_given_a_number_have_the_exact_conditional_law():
    """With an exact denoiser: mean and variance of y and z given x = 2.25 in closed form.

    Four means and variances of 4000 draws within 4.5 standard errors: one false alarm in 30,000 (the method's own error,
    some 0.01 deviations, included in a margin of 0.02).
    """
    denoiser = un.Denoiser(ExactGaussian(), PROCESS, dict.fromkeys(NAMES, un.Clean))
    n, value = 4000, 2.25
    found, _ = draw(denoiser, Numbers(), n, seed=0, device="cpu", given={"x": str(value)}, batch=n)
    assert float((found["x"] - value).abs().max()) == 0
    slope = COVARIANCE[1:, 0] / COVARIANCE[0, 0]
    mean = MEAN[1:] + slope * (torch.tensor(value).double() - MEAN[0])
    variance = (COVARIANCE[1:, 1:] - slope[:, None] * COVARIANCE[0, 1:]).diagonal()
    for i, name in enumerate(NAMES[1:]):
        drawn, sd = found[name].double(), sqrt(variance[i])
        assert abs(float(drawn.mean() - mean[i])) < (4.5 / sqrt(n) + 0.02) * sd
        assert abs(float(drawn.var()) - variance[i]) < (4.5 * sqrt(2 / n) + 0.04) * variance[i]


def test_labels_given_a_number_have_their_exact_probabilities():
    """Nine pairs of labels with a normal number: P(k | x) = p_k N(x; mu_k, 0.3) / sum.

    Nine shares of 4000 draws within 4.5 errors and 0.005: one false alarm in 10^5.
    """
    process = un.Product(k=un.Masking(size=3, shape=(2,)), x=un.Gaussian((1,)))
    some = torch.Generator().manual_seed(0)
    p = torch.rand(9, generator=some, dtype=torch.float64)
    mu = torch.linspace(-2, 2, 9, dtype=torch.float64)[torch.randperm(9, generator=some)]
    oracle = conditional_gaussian(process, p / p.sum(), mu[:, None], torch.full((9, 1, 1), 0.3, dtype=torch.float64))
    n, value = 4000, 0.4
    plan = default_sampler(process)
    held = plan.sampler.holding(["x"])
    start = {"k": torch.full((n, 2), 3), "x": torch.full((n, 1), value, dtype=torch.float64)}
    drawn, info = un.sample(oracle, x=start, steps=plan.steps, sampler=held, seed=0)
    assert info.calls == 2
    found = torch.bincount(drawn["k"][:, 0] * 3 + drawn["k"][:, 1], minlength=9) / n
    weight = p * torch.exp(-0.5 * (value - mu) ** 2 / 0.3)
    exact = weight / weight.sum()
    assert bool(((found - exact).abs() < 4.5 * (exact * (1 - exact) / n).sqrt() + 0.005).all())


def test_the_comparison_finds_a_model_that_is_off():
    """Rows of the exact law keep their means when two columns are drawn anew given one; shifted ones are named."""
    denoiser = un.Denoiser(ExactGaussian(), PROCESS, dict.fromkeys(NAMES, un.Clean))
    noise = torch.linalg.cholesky(COVARIANCE) @ NoiseSource(1, 900).at("law").normal((3,), torch.float64).T
    rows = (MEAN + noise.T).float()
    x = {name: rows[:400, i : i + 1] for i, name in enumerate(NAMES)}
    known = {name: torch.full((400, 1), name == "x") for name in NAMES}
    anew, _ = fill(denoiser, x, known, seed=3, device="cpu")

    def frame(state):
        return pd.DataFrame({name: state[name][:, 0].numpy() for name in NAMES})

    real = pd.DataFrame(rows[400:].numpy(), columns=list(NAMES))
    good = calibration.summarised(calibration.compare("x", frame(anew), frame(x), real))
    assert good["of"] == 6 and good["agrees"] and good["rms_in_errors"] < 2
    off = frame(anew)
    off["z"] += 0.5
    bad = calibration.summarised(calibration.compare("x", off, frame(x), real))
    assert not bad["agrees"] and "most for z given x" in bad["words"] and "train longer" in bad["words"]
    assert bad["differ"] >= 3 and bad["differ_from_real"] >= 3


def test_neighbourhoods_are_thirds_and_labels():
    rng = np.random.default_rng(0)
    real = pd.DataFrame({"n": rng.normal(size=300), "c": rng.choice(list("abbb"), 300)})
    thirds = calibration.neighbourhoods("n", real)
    assert [int(inside(real.n).sum()) for inside in thirds.values()] == [100, 100, 100]
    assert list(calibration.neighbourhoods("c", real)) == ["= b", "= a"]
    entry = calibration.compare("n", real, real, real)[0]
    assert entry["column"] == "c" and entry["mean"] == pytest.approx(
        float((real.c == "b")[real.n < np.quantile(real.n, 1 / 3)].mean())
    )
