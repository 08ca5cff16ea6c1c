"""The bound of latent models on data that can be listed, with random networks: sum_x exp(-bound(x)) <= 1, and no bound lies
below -log p(x) of the law that the model draws from.  Expectations are sums and quadrature; nothing is drawn."""

from functools import cache
from math import pi, sqrt

import numpy as np
import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.latent import FixedCode, NormalCode, QuantisedCode, likelihood_of
from unnoise.laws import Categorical
from unnoise.noise import NoiseSource
from unnoise.tree import repeat_rows

NODES, WEIGHTS = (torch.tensor(part) for part in np.polynomial.hermite_e.hermegauss(24))
WEIGHTS = WEIGHTS / sqrt(2 * pi)
SPACE = un.Finite(3, (2,))
STEPS = 12


class Nodes(NoiseSource):
    """Of every row of the data, Gauss's nodes one after another."""

    def __init__(self, rows):
        super().__init__(0, rows * len(NODES))

    def at(self, *labels):
        return self

    def normal(self, shape=(), dtype=torch.float64):
        return NODES.repeat(len(self.rows) // len(NODES)).reshape(-1, *[1] * len(shape)).to(dtype)


def drawn(*shape, seed, scale=1.0):
    return scale * torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


class Encoder(nn.Module):
    """Three clusters of three states each, with random means around them, and small variances."""

    def __init__(self, seed):
        super().__init__()
        middle = 1.3 * (torch.arange(9) // 3 - 1)
        self.mean, self.log_variance = middle + drawn(9, seed=seed, scale=0.02), drawn(9, seed=seed + 1, scale=0.2) - 5.5

    def forward(self, x):
        which = SPACE.code(x)
        return torch.stack([self.mean[which], self.log_variance[which]], -1).unsqueeze(1)


class Decoder(nn.Module):
    """Any logits of two coordinates of three categories: those of the cluster, and random ones."""

    def __init__(self, seed):
        super().__init__()
        self.inward, self.out = drawn(1, 8, seed=seed + 2), drawn(8, 6, seed=seed + 3, scale=0.3)

    def forward(self, z):
        first = -4 * (z - 1.3 * torch.arange(-1, 2, dtype=z.dtype)).square()
        return torch.cat([first, torch.zeros_like(first)], 1) + torch.tanh(z @ self.inward) @ self.out


class Network(nn.Module):
    """The mean of three clusters given a noisy number, and something random that depends on number and time."""

    def __init__(self, seed, schedule=None):
        super().__init__()
        self.inward, self.out = drawn(2, 6, seed=seed + 4), drawn(6, 1, seed=seed + 5, scale=0.03)
        self.schedule = un.schedules.Cosine() if schedule is None else schedule

    def forward(self, z, t):
        alpha, sigma = (part(t)[:, None] for part in (self.schedule.alpha, self.schedule.sigma))
        middle, variance = 1.3 * torch.arange(-1, 2, dtype=z.dtype), 0.005
        whole = alpha**2 * variance + sigma**2
        share = (-0.5 * (z - alpha * middle).square() / whole).softmax(1)
        means = middle + alpha * variance / whole * (z - alpha * middle)
        clean = (share * means).sum(1, keepdim=True)
        return clean + sigma * torch.tanh(torch.cat([z, t[:, None]], 1) @ self.inward) @ self.out


def gaussian_model(seed):
    """A chain, whose law can be had by products of matrices."""
    code = NormalCode(SPACE, (1,), Encoder(seed), Decoder(seed)).double()
    process = un.Gaussian((1,))
    chain = un.Chain(process, torch.linspace(0.05, 1.0, STEPS + 1).double())
    return un.Denoiser(Network(seed), chain, predicts=un.Clean, code=code)


@cache
@torch.no_grad()
def gaussian_bound(seed):
    """E_e of every term, [9]."""
    x = SPACE.states()
    objective = un.Objective(gaussian_model(seed), exact=True)
    terms = objective(repeat_rows(x, len(NODES)), Nodes(len(x)))
    return {name: (value.reshape(9, -1) * WEIGHTS).sum(1) for name, value in {**terms.terms, "total": terms.total}.items()}


@cache
@torch.no_grad()
def gaussian_law(seed):
    """log p(x) by a grid: the prior, the chain's kernels, the decoder of states, then that of data."""
    denoiser = gaussian_model(seed)
    chain = denoiser.process
    line = torch.linspace(-6, 6, 601, dtype=torch.float64).unsqueeze(1)
    h = float(line[1, 0] - line[0, 0])
    p = (-0.5 * line[:, 0].square()).exp() / sqrt(2 * pi)

    def density(law):
        gap = (line.T - law.mean[:, :1]) / law.std[:, :1]
        return (-0.5 * gap.square()).exp() / (law.std[:, :1] * sqrt(2 * pi))

    for i in range(chain.steps, 0, -1):
        t, s = (chain.grid[j].expand(len(line)) for j in (i, i - 1))
        p = h * p @ density(denoiser(line, t).step(s))
    schedule = chain.base.schedule
    alpha, sigma = (float(part(chain.grid[0])) for part in (schedule.alpha, schedule.sigma))
    p = h * p @ density(un.laws.Normal(line / alpha, torch.full_like(line, sigma / alpha)))
    assert float(h * p.sum()) == pytest.approx(1, abs=1e-6)
    given = denoiser.code.law(line, 0.0, None, None).log_probs.exp()
    x = SPACE.states()
    return (h * p @ (given[:, 0, x[:, 0]] * given[:, 1, x[:, 1]])).log()


@pytest.mark.parametrize("seed", [0, 10])
def test_a_gaussian_code_with_random_networks_has_a_valid_bound(seed):
    found = gaussian_bound(seed)
    log_p = gaussian_law(seed)
    assert float(log_p.exp().sum()) == pytest.approx(1, abs=1e-6)
    assert 0.1 < float((-found["total"]).exp().sum()) <= 1
    assert bool((found["total"] >= -log_p - 1e-6).all())


@pytest.mark.parametrize("dropped", ["entropy", "likelihood"])
def test_without_one_of_its_terms_it_is_none(dropped):
    """The mutants: somewhere what is left is below the model's own -log p."""
    for seed in (0, 10):
        found = gaussian_bound(seed)
        assert float((found["total"] - found[dropped] + gaussian_law(seed)).min()) < -0.2


CODES = 2


class Vectors(nn.Module):
    """Whether each coordinate is above 0, as a vector that lies near one of the two codes."""

    def __init__(self, seed):
        super().__init__()
        self.apart = drawn(9, 2, 2, seed=seed, scale=0.1)

    def forward(self, x):
        return nn.functional.one_hot((x > 0).long(), 2).double() + self.apart[SPACE.code(x)]


class FromVectors(nn.Module):
    def __init__(self, seed):
        super().__init__()
        self.out = torch.tensor([[2.0, 0.0, 0.0], [-2.0, 0.0, 0.0]]).double() + drawn(2, 3, seed=seed + 3, scale=0.5)

    def forward(self, z):
        return (z @ self.out).flatten(1)


class Logits(nn.Module):
    def __init__(self, seed, extra):
        super().__init__()
        self.table = drawn(2, CODES + extra, 2 * CODES, seed=seed + 6, scale=0.5)
        self.time = drawn(2 * CODES, seed=seed + 7, scale=0.5)

    def forward(self, z, t):
        return (sum(self.table[k, z[:, k]] for k in (0, 1)) + t[:, None] * self.time).reshape(-1, 2, CODES)


def quantised_model(seed, noise):
    vectors = torch.eye(CODES).double() + drawn(CODES, 2, seed=seed + 8, scale=0.1)
    code = QuantisedCode(SPACE, 2, Vectors(seed), FromVectors(seed), vectors).double()
    process = {"masking": un.Masking, "uniform": un.Uniform}[noise](CODES, (2,))
    network = Logits(seed, process.state_space.size - CODES)
    return un.Denoiser(network, process, code=code), network


@torch.no_grad()
@pytest.mark.parametrize("noise", ["masking", "uniform"])
@pytest.mark.parametrize("seed", [0, 10])
def test_a_quantised_code_with_random_networks_has_a_valid_bound(noise, seed):
    """p(x) = sum over all codes of p(z) p(x | z), with p(z) enumerated."""
    denoiser, network = quantised_model(seed, noise)
    x, z = SPACE.states(), un.Finite(CODES, (2,)).states()
    terms = un.bound(denoiser, x, times=un.Quadrature(48), exact=True)
    plain = un.Denoiser(network, denoiser.process)
    log_z, _ = un.likelihood(plain, z)
    assert float(log_z.exp().sum()) == pytest.approx(1, abs=1e-6)
    given = denoiser.code.law(z, 0.0, None, None).log_probs.exp()
    log_p = (log_z.exp() @ (given[:, 0, x[:, 0]] * given[:, 1, x[:, 1]])).log()
    assert set(terms.terms) == {"prior", "diffusion", "reconstruction", "likelihood"}  # a map has no entropy
    assert 0.1 < float((-terms.total).exp().sum()) <= 1
    assert bool((terms.total >= -log_p - 1e-5).all())
    assert float((-terms["likelihood"]).exp().sum()) > 1.2  # the mutants: the latent bound dropped,
    assert float((terms["likelihood"] - terms.total).exp().sum()) > 1.2  # or the likelihood


@torch.no_grad()
def test_a_map_to_numbers_is_read_at_the_cut_off():
    """z = e(x) has no density: the decoder sees noisy states, and its likelihood there is the last term."""
    encoder, decoder, data = Encoder(3).mean.unsqueeze(1), Decoder(5), likelihood_of(SPACE)

    class Map(nn.Module):
        def forward(self, x):
            return encoder[SPACE.code(x)]

    code = FixedCode(SPACE, Map(), lambda z: data.law(decoder(z)), cutoff=0.2).double()
    denoiser = un.Denoiser(Network(2), un.Gaussian((1,)), predicts=un.Clean, code=code)
    terms = un.bound(denoiser, SPACE.states(), times=un.Quadrature(48), exact=True)
    assert 0.1 < float((-terms.total).exp().sum()) <= 1
    assert float((terms.reconstruction - terms.total).exp().sum()) > 1.2  # the mutant: without it
    x, info = un.sample(denoiser, n=50, steps=8, seed=0)
    assert float(info.times[-1]) == pytest.approx(0.2) and x.dtype == torch.int64


def test_a_map_to_numbers_cannot_end_at_zero():
    code = FixedCode(SPACE, lambda x: x[:, :1].double(), lambda z: Categorical(z), rounds=False)
    denoiser = un.Denoiser(Network(2), un.Gaussian((1,)), predicts=un.Clean, code=code)
    with pytest.raises(ValueError, match="has no density"):
        un.bound(denoiser, SPACE.states())


@torch.no_grad()
def test_a_map_to_categories_has_an_exact_bound():
    """A bijection, and the exact law of its states: the bound is -log p(x)."""
    q = torch.tensor([0.1, 0.2, 0.7], dtype=torch.float64)

    class Prior(nn.Module):
        def forward(self, z, t):
            return q.log().expand(len(z), 1, 3)

    own = un.Finite(3, (1,))

    def decode(z):
        return Categorical.normalised(50.0 * nn.functional.one_hot((z + 1) % 3, 3).double())

    code = FixedCode(own, lambda x: (x + 2) % 3, decode, rounds=False)
    denoiser = un.Denoiser(Prior(), un.Masking(3, (1,)), code=code)
    x = own.states()
    total = un.bound(denoiser, x, times=un.Quadrature(48), exact=True).total
    assert torch.allclose(total, -q[(x[:, 0] + 2) % 3].log(), atol=1e-6)
