"""The Gaussian autoencoder by oracles: linear networks around an exact diffusion of normal states."""

from math import log, pi, sqrt

import numpy as np
import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.denoiser import Coded
from unnoise.latent import NormalCode, NumbersLaw
from unnoise.noise import NoiseSource

NODES, WEIGHTS = (torch.tensor(part) for part in np.polynomial.hermite_e.hermegauss(40))
WEIGHTS = WEIGHTS / sqrt(2 * pi)
MEAN, VARIANCE = 0.1, 0.8  # of the latent law
SLOPE, NOISE = 1.2, 0.3  # of the decoder
KL = 0.758471  # of N(0.6, 0.1) from N(0.1, 0.8)


class Nodes(NoiseSource):
    """Gauss's nodes in the place of draws: row i has node i."""

    def __init__(self, nodes=NODES):
        super().__init__(0, len(nodes))
        self.nodes = nodes

    def at(self, *labels):
        return self

    def normal(self, shape=(), dtype=torch.float64):
        return self.nodes.reshape(-1, *[1] * len(shape)).expand(-1, *shape).to(dtype)


class Affine(nn.Module):
    """x -> (slope x + offset, log-variance)."""

    def __init__(self, slope, offset, variance):
        super().__init__()
        self.slope, self.offset, self.log_variance = (
            nn.Parameter(torch.tensor(v, dtype=torch.float64)) for v in (slope, offset, log(variance))
        )

    def forward(self, x):
        return torch.stack([self.slope * x + self.offset, self.log_variance.expand_as(x)], -1)


class Scaled(nn.Module):
    def __init__(self, slope=SLOPE):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(slope, dtype=torch.float64))

    def forward(self, z):
        return self.slope * z


def code(slope, offset, variance):
    return NormalCode(un.Euclidean((1,)), (1,), Affine(slope, offset, variance), Scaled(), NumbersLaw((1,), NOISE)).double()


def exact():
    process = un.Gaussian((1,))
    return un.oracles.normal(process, torch.tensor([MEAN]).double(), torch.tensor([[VARIANCE]]).double())


def terms_at(own, x, cutoff, noise=None):
    oracle = exact()
    decoder = un.decoders.ExactDecoder(oracle)
    objective = un.Objective(Coded(oracle, own), times=un.Quadrature(48), exact=True, cutoff=cutoff, decoder=decoder)
    return objective(x, Nodes() if noise is None else noise)


def minus_log_p(x):
    variance = SLOPE**2 * VARIANCE + NOISE**2
    return 0.5 * log(2 * pi * variance) + (x - SLOPE * MEAN) ** 2 / (2 * variance)


@pytest.mark.parametrize("cutoff", [1e-3, 0.4])
def test_the_latent_terms_less_the_entropy_are_the_divergence(cutoff):
    terms = terms_at(code(0.0, 0.6, 0.1), torch.zeros(40, 1, dtype=torch.float64), cutoff)
    whole = (WEIGHTS * (terms.total - terms["likelihood"])).sum()
    assert whole.item() == pytest.approx(KL, abs=2e-6)
    without = (WEIGHTS * (terms.total - terms["likelihood"] - terms["entropy"])).sum()
    assert abs(without.item() - KL) > 0.2  # the mutant


@pytest.mark.parametrize("x", [-1.0, 2.0])
def test_with_the_posterior_as_encoder_the_whole_is_the_likelihood(x):
    precision = 1 / VARIANCE + (SLOPE / NOISE) ** 2
    posterior = code(SLOPE / NOISE**2 / precision, MEAN / VARIANCE / precision, 1 / precision)
    terms = terms_at(posterior, torch.full((40, 1), x, dtype=torch.float64), 0.05)
    middle = NODES.abs() < 5
    assert (terms.total - minus_log_p(x))[middle].abs().max().item() < 1e-5
    assert set(terms.terms) == {"prior", "diffusion", "reconstruction", "entropy", "likelihood"}


def test_standardised_states_have_the_same_whole():
    """Shift and scale move the states and the density of the encoder: with the latent law moved alike nothing changes."""
    precision = 1 / VARIANCE + (SLOPE / NOISE) ** 2
    own = code(SLOPE / NOISE**2 / precision, MEAN / VARIANCE / precision, 1 / precision)
    own.shift.fill_(0.7)
    own.scale.fill_(0.4)
    x = torch.full((40, 1), 0.3, dtype=torch.float64)
    mean, variance = (MEAN - 0.7) / 0.4, VARIANCE / 0.16
    process = un.Gaussian((1,))
    oracle = un.oracles.normal(process, torch.tensor([mean]).double(), torch.tensor([[variance]]).double())
    decoder = un.decoders.ExactDecoder(oracle)
    model = Coded(oracle, own)
    total = un.Objective(model, times=un.Quadrature(48), exact=True, cutoff=0.05, decoder=decoder)(x, Nodes()).total
    assert (total - minus_log_p(0.3))[NODES.abs() < 5].abs().max().item() < 1e-5


def test_joint_training_of_a_linear_autoencoder_reaches_the_likelihood():
    """Encoder and decoder from a wrong start, on the exact bound of data of the model's own law: it ends at -E log p(x)."""
    few, weights = (torch.tensor(part) for part in np.polynomial.hermite_e.hermegauss(8))
    weights = weights / weights.sum()
    deviation = sqrt(SLOPE**2 * VARIANCE + NOISE**2)
    x = (SLOPE * MEAN + deviation * few).repeat_interleave(8).unsqueeze(1)
    both = (weights[:, None] * weights).flatten()
    own = code(0.2, 0.0, 0.5)
    with torch.no_grad():
        own.decoder.slope.fill_(0.8)
    oracle = exact()
    decoder = un.decoders.ExactDecoder(oracle)
    objective = un.Objective(Coded(oracle, own), times=un.Quadrature(8), exact=True, cutoff=0.3, decoder=decoder)
    optimiser = torch.optim.LBFGS(own.parameters(), max_iter=20, line_search_fn="strong_wolfe")

    def loss():
        optimiser.zero_grad()
        value = (both * objective(x, Nodes(few.repeat(8))).total).sum()
        value.backward()
        return value

    first = float(loss().detach())
    optimiser.step(loss)
    wanted = 0.5 * log(2 * pi * deviation**2) + 0.5
    assert first > wanted + 0.5
    assert float(loss().detach()) == pytest.approx(wanted, abs=1e-4)
    assert abs(float(own.decoder.slope.detach())) == pytest.approx(SLOPE, abs=0.02)


def test_one_loss_has_a_gradient_for_every_part():
    """Drawn times, drawn encodings: encoder, decoder, denoiser and a learned schedule's ends."""
    own = NormalCode.of(un.Finite(3, (4,)), latent=2, patch=2)
    process = un.Gaussian(own.shape, un.schedules.Learned(high=8.0, low=-8.0))
    denoiser = un.Denoiser(un.networks.default_network(process, "tiny", name="MLP", width=8), process, code=own)
    with torch.no_grad():
        for part in denoiser.parameters():
            part.add_(0.02 * torch.randn(part.shape, generator=torch.Generator().manual_seed(part.numel())))
    x = torch.randint(3, (16, 4), generator=torch.Generator().manual_seed(0))
    objective = un.Objective(denoiser, times=un.Stratified())
    objective(x, NoiseSource(0, 16)).loss.mean().backward()
    still = [name for name, p in denoiser.named_parameters() if p.grad is None or not float(p.grad.abs().sum()) > 0]
    assert still == []
    found = un.fit_schedule(objective, x, steps=2, batch=8, seed=0)
    assert bool(found["bound"].isfinite().all())
