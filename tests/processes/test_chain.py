"""A chain that ends before t = 1: its prior stands at its last time, and so does the first term of its bound."""

from math import log

import pytest
import torch

import unnoise as un
from unnoise.generators.kolmogorov import states
from unnoise.likelihoods import Enumeration
from unnoise.noise import NoiseSource
from unnoise.verify.wrong import Perturbed

EARLY = torch.tensor([0.0, 0.2, 0.4, 0.6], dtype=torch.float64)


def test_the_prior_term_of_categories_is_that_of_the_last_time():
    """Uniform on 3: x_0 has alpha + (1 - alpha)/3, the others (1 - alpha)/3 each, against thirds."""
    process = un.Uniform(3, ())
    keeps, moves = (float(process.marginal(torch.tensor([0]), 0.6).log_prob(torch.tensor([x])).exp()) for x in (0, 1))
    expected = keeps * log(3 * keeps) + 2 * moves * log(3 * moves)
    assert expected > 0.1
    found = un.Chain(process, EARLY).prior_kl(torch.tensor([0, 1, 2]))
    torch.testing.assert_close(found, torch.full((3,), expected, dtype=torch.float64), rtol=1e-10, atol=0)


def test_the_prior_term_of_numbers_is_that_of_the_last_time():
    """KL(N(alpha x_0, sigma^2) || N(0, 1)) at t = 0.6."""
    process = un.Gaussian((1,), un.schedules.Cosine())
    alpha, sigma = float(process.schedule.alpha(0.6)), float(process.schedule.sigma(0.6))
    x = torch.tensor([[-1.0], [0.5]], dtype=torch.float64)
    expected = 0.5 * (sigma**2 + (alpha * x[:, 0]) ** 2 - 1) - log(sigma)
    torch.testing.assert_close(un.Chain(process, [0.1, 0.3, 0.6]).prior_kl(x), expected, rtol=1e-10, atol=0)


def excess() -> torch.Tensor:
    """The bound less -log p of the chain's own law, by enumeration, for every state."""
    chain = un.Chain(un.Uniform(3, (1,)), EARLY)
    oracle = un.oracles.table(chain.process, torch.tensor([0.5, 0.3, 0.2])).predicting(None, chain)
    model = Perturbed(oracle, 0.3, 5)
    x = states(chain.space)
    log_p, _ = Enumeration().log_prob(model, x, NoiseSource(0, len(x)), {})
    return un.bound(model, x, exact=True).total + log_p


def test_the_bound_bounds_the_law_of_a_chain_that_ends_early(monkeypatch):
    assert 0 <= float(excess().min()) < 0.05
    monkeypatch.setattr(un.Chain, "prior_kl", lambda self, x0: self.process.prior_kl(x0))  # the mutant: at t = 1
    assert float(excess().min()) < -0.05


@pytest.mark.parametrize("t", [0.0, 0.2, 0.6])
def test_the_prior_term_at_a_time_of_ones_own(t):
    chain, x = un.Chain(un.Uniform(3, (2,)), EARLY), torch.tensor([[0, 2]])
    torch.testing.assert_close(chain.prior_kl(x, t), chain.process.prior_kl(x, t), rtol=0, atol=0)
