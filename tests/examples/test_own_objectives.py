"""A time rule and a weighting from outside the package, as the docs show them."""

import sys
from pathlib import Path

import pytest
import torch

import unnoise as un

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "docs" / "examples"))

import own_times  # noqa: E402
import own_weighting  # noqa: E402

F64 = torch.float64
LAW = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=F64)


@pytest.mark.parametrize(("page", "module"), [("extending-times", "own_times"), ("extending-weighting", "own_weighting")])
def test_the_page_shows_the_module(page, module):
    text = (ROOT / "docs" / "examples" / f"{module}.py").read_text(encoding="utf-8")
    assert f"```python\n{text}```" in (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")


class Wrong(own_times.HalfLate):
    """A mutant: the density of the even half alone, vouched for."""

    is_bound = True

    def density(self, t, low):
        return torch.full_like(t, 1 / (1 - low))


def errors(rule, draws):
    oracle, rows = un.oracles.table(un.Uniform(2, (2,)), LAW), 20_000
    x0 = torch.tensor([[0, 1]])
    exact = un.bound(oracle, x0, exact=True, cutoff=0.05).total.item()
    found = un.bound(oracle, x0.expand(rows, 2), times=rule(draws), cutoff=0.05, seed=1).total
    return abs(float(found.mean()) - exact) / float(found.std() / rows**0.5)


@pytest.mark.parametrize("draws", [1, 3])
def test_the_mean_over_times_is_the_exact_bound(draws):
    assert errors(own_times.HalfLate, draws) < 4  # a false alarm in 16,000
    assert errors(Wrong, draws) > 6


def test_times_train_chains_and_weightings_too():
    chain = un.oracles.table(un.Uniform(2, (2,)), LAW).predicting(None, un.Chain(un.Uniform(2, (2,)), 6))
    x0, rows = torch.tensor([[0, 1]]), 20_000
    exact = un.bound(chain, x0, exact=True).total.item()
    found = un.bound(chain, x0.expand(rows, 2), times=own_times.HalfLate(), seed=1).total
    assert abs(float(found.mean()) - exact) < 4 * float(found.std() / rows**0.5)


def gaussian_case(kind):
    process, schedule = un.Gaussian((2,)), un.schedules.Cosine()
    x0, eps, model = (un.NoiseSource(i, 6).normal((2,)) for i in range(3))
    t = torch.linspace(0.1, 0.9, 6, dtype=F64)
    alpha, sigma = schedule.alpha(t).unsqueeze(1), schedule.sigma(t).unsqueeze(1)
    clean = un.Clean(model, process, alpha * x0 + sigma * eps, t)
    return process, x0, clean.to(kind), (x0 - model).square().sum(1), (sigma / alpha).squeeze(1)


@pytest.mark.parametrize("kind", [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow], ids=lambda k: k.__name__)
def test_the_weighting_is_the_stated_squared_error(kind):
    process, x0, prediction, error, s = gaussian_case(kind)
    ours = own_weighting.Fading(0.7).rate(prediction, process, x0)
    torch.testing.assert_close(ours, error / (1 + (s / 0.7) ** 2), rtol=1e-9, atol=0)


def test_the_weighting_trains_and_adds():
    network = torch.nn.Linear(2, 2, dtype=F64)
    network.forward = lambda x, t: torch.nn.functional.linear(x, network.weight, network.bias)
    denoiser, x0 = un.Denoiser(network, un.Gaussian((2,)), un.Velocity), un.NoiseSource(0, 8).normal((2,))
    both = un.Objective(denoiser, un.weightings.Bound() + 0.1 * own_weighting.Fading())(x0, un.NoiseSource(1, 8))
    alone = un.Objective(denoiser, own_weighting.Fading())(x0, un.NoiseSource(1, 8))
    torch.testing.assert_close(both.loss, both.total + 0.1 * alone.loss)
    both.loss.mean().backward()
    assert bool(network.weight.grad.isfinite().all()) and not both.is_bound
