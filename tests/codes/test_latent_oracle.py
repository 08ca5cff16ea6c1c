"""Latent models of which every term is known: linear encoders and decoders around an exact diffusion of normal states."""

from math import log, pi, sqrt

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise import codes
from unnoise.denoiser import Coded
from unnoise.laws import Normal

NODES, WEIGHTS = (torch.tensor(part) for part in np.polynomial.hermite_e.hermegauss(40))
WEIGHTS = WEIGHTS / sqrt(2 * pi)
MEAN, VARIANCE = 0.1, 0.8  # of the latent law
SLOPE, NOISE = 1.2, 0.3  # of the decoder


class Linear(codes.Code):
    """N(mean, variance) of every row at Gauss's nodes, which stand in for draws: row i is node i."""

    def __init__(self, mean, variance, decoder=False, entropy=True):
        super().__init__()
        self.space = un.Euclidean((1,))
        self.mean, self.variance, self.decoder, self.entropy = mean, variance, decoder, entropy

    def encode(self, x, noise, condition):
        z = (self.mean + sqrt(self.variance) * NODES).reshape(-1, 1)
        log_e = -0.5 * NODES.square() - 0.5 * log(2 * pi * self.variance)
        terms = {"entropy": log_e} if self.entropy else {}
        return z, terms | ({"likelihood": -self.law(z, 0.0, None, None).log_prob(x)} if self.decoder else {})

    def law(self, z, t, process, prediction):
        return Normal(SLOPE * z, torch.full_like(z, NOISE))


def bound(code, x, cutoff):
    process = un.Gaussian((1,))
    oracle = un.oracles.normal(process, torch.tensor([MEAN]).double(), torch.tensor([[VARIANCE]]).double())
    model, data = Coded(oracle, code), torch.full((len(NODES), 1), x, dtype=torch.float64)
    decoder = un.decoders.ExactDecoder(oracle)
    return un.bound(model, data, times=un.Quadrature(64), exact=True, cutoff=cutoff, decoder=decoder)


@pytest.mark.parametrize("cutoff", [1e-3, 0.05, 0.4])
def test_the_terms_less_the_entropy_are_the_divergence_of_the_encoder(cutoff):
    """KL(N(0.6, 0.1) || N(0.1, 0.8)) = 0.758471 at every cut-off."""
    total = bound(Linear(0.6, 0.1), 0.0, cutoff).total
    assert float((WEIGHTS * total).sum()) == pytest.approx(0.758471, abs=2e-6)


def test_without_the_entropy_it_is_not():
    total = bound(Linear(0.6, 0.1, entropy=False), 0.0, 0.05).total
    assert abs(float((WEIGHTS * total).sum()) - 0.758471) > 0.2


@pytest.mark.parametrize("x", [-1.0, 0.3, 2.0])
def test_with_the_true_posterior_the_whole_is_the_likelihood(x):
    """Node by node: log e(z | x) - log p(z) - log p(x | z) = -log p(x)."""
    precision = 1 / VARIANCE + (SLOPE / NOISE) ** 2
    mean = (MEAN / VARIANCE + SLOPE * x / NOISE**2) / precision
    variance = SLOPE**2 * VARIANCE + NOISE**2
    wanted = 0.5 * log(2 * pi * variance) + (x - SLOPE * MEAN) ** 2 / (2 * variance)
    terms = bound(Linear(mean, 1 / precision, decoder=True), x, 0.05)
    middle = NODES.abs() < 5  # beyond, nodes lie where quadrature in x_t has few
    assert float((terms.total - wanted)[middle].abs().max()) < 1e-5
    assert set(terms.terms) == {"prior", "diffusion", "reconstruction", "entropy", "likelihood"}


def test_another_encoder_only_bounds():
    terms = bound(Linear(0.5, 0.2, decoder=True), 0.3, 0.05)
    variance = SLOPE**2 * VARIANCE + NOISE**2
    exact = 0.5 * log(2 * pi * variance) + (0.3 - SLOPE * MEAN) ** 2 / (2 * variance)
    assert float((WEIGHTS * terms.total).sum()) > exact + 0.05


def test_samples_are_of_the_data():
    """x = 1.2 z + 0.3 n has the variance 1.242: 40,000 draws, five standard errors (false alarm 6e-7)."""
    process = un.Gaussian((1,))
    oracle = un.oracles.normal(process, torch.tensor([MEAN]).double(), torch.tensor([[VARIANCE]]).double())
    x, _ = un.sample(Coded(oracle, Linear(0.6, 0.1, decoder=True)), n=40_000, steps=64, seed=0)
    wanted = SLOPE**2 * VARIANCE + NOISE**2
    assert abs(float(x.var()) - wanted) < 5 * wanted * sqrt(2 / 40_000) + 0.01
    assert abs(float(x.mean()) - SLOPE * MEAN) < 5 * sqrt(wanted / 40_000)
