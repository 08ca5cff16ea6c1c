"""Representations of an encoder as states: the bound is one for any encoder, and what cannot be read apart is paid for."""

from math import log

import pytest
import torch

import unnoise as un
from unnoise import codes
from unnoise.networks import SequenceTransformer, SequenceTransformerConfig

TEXTS = un.Finite(2, (2,)).states()


class Mixed(torch.nn.Module):
    """A number for each of two positions, each of which has seen both symbols."""

    def __init__(self, weights):
        super().__init__()
        self.weights = torch.nn.Parameter(torch.tensor(weights, dtype=torch.float64))

    def forward(self, x):
        return (torch.tanh(x.double() @ self.weights.T) + 0.3 * x[:, :1] * x[:, 1:]).unsqueeze(-1)


class Loose(torch.nn.Module):
    """A random network of velocities and logits."""

    def __init__(self, seed, read=3.0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.hidden = torch.randn(16, 3, generator=generator, dtype=torch.float64)
        self.out = torch.randn(6, 16, generator=generator, dtype=torch.float64) * 0.5
        self.read = read

    def forward(self, z, t):
        seen = torch.cat([z.flatten(1), t[:, None]], 1)
        return (torch.tanh(seen @ self.hidden.T) @ self.out.T).reshape(len(z), 2, 3)


def model(encoder, seed, cutoff=0.1):
    code = codes.FromEncoder(encoder, un.Finite(2, (2,)), 1, cutoff).double()
    return un.Denoiser(Loose(seed), un.Gaussian(code.shape), code=code)


ENCODERS = {
    "of both symbols": [[1.0, -0.5], [0.7, 1.2]],
    "of one symbol alone": [[1.5, 0.0], [-1.0, 0.0]],
    "that says nothing": [[0.0, 0.0], [0.0, 0.0]],
}


@pytest.mark.parametrize("name", ENCODERS)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_bound_is_one_for_any_encoder(name, seed):
    denoiser = model(Mixed(ENCODERS[name]), seed)
    with torch.no_grad():
        terms = un.bound(denoiser, TEXTS, times=un.Quadrature(32), exact=True)
    total = float((-terms.total).exp().sum())
    assert 0 < total <= 1 + 1e-6
    # the mutant: without what reads the text, the four texts of one place would all be certain
    if name == "that says nothing":
        assert float((terms.reconstruction - terms.total).exp().sum()) > total * 2


class Perfect(torch.nn.Module):
    """Where all texts have the vectors 0: the exact velocity, and even symbols."""

    def forward(self, z, t):
        sigma = un.schedules.Cosine().sigma(t)[:, None, None]
        alpha = un.schedules.Cosine().alpha(t)[:, None, None]
        return torch.cat([alpha / sigma * z, z.new_zeros(*z.shape[:-1], 2)], -1)


def test_texts_at_one_place_cost_what_tells_them_apart():
    """All four are at 0: the rate is 0, and the bound is 2 log 2 at every cut-off."""

    def nothing(x):
        return torch.zeros(*x.shape, 1, dtype=torch.float64)

    for cutoff in (0.01, 0.4):
        code = codes.FromEncoder(nothing, un.Finite(2, (2,)), 1, cutoff).double()
        denoiser = un.Denoiser(Perfect(), un.Gaussian(code.shape), code=code)
        bound = un.bound(denoiser, TEXTS, times=un.Quadrature(32), exact=True).total
        assert float((bound - 2 * log(2)).abs().max()) < 1e-9


def test_vectors_of_a_trained_network_are_frozen_and_settled():
    """A masked model of the library's own is trained a little, and its features are the states of another."""
    torch.manual_seed(0)
    config = SequenceTransformerConfig(size=3, width=8, layers=1, heads=2, length=4)
    masked = un.Denoiser(SequenceTransformer(config), un.Masking(size=3, shape=(4,)))
    x = torch.randint(3, (96, 4), generator=torch.Generator().manual_seed(1))
    optimiser = torch.optim.Adam(masked.parameters(), 0.01)
    for _ in range(3):
        optimiser.zero_grad()
        un.Objective(masked)(x).loss.mean().backward()
        optimiser.step()
    network = masked.network

    class Features(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, x):
            return self.network.features(x, torch.zeros(len(x)))

    code = codes.FromEncoder(Features(), un.Finite(3, (4,)), 8)
    code.prepare(lambda n: x[:n], None, torch.device("cpu"), 0)
    z, added = code.encode(x, un.noise.NoiseSource(0, 96), {})
    assert not added and z.shape == (96, 4, 8)
    assert float(z.mean((0, 1)).abs().max()) < 1e-4 and float((z.std((0, 1)) - 1).abs().max()) < 1e-3
    body = SequenceTransformer(
        SequenceTransformerConfig(size=8 + 3, extra=0, numbers=8, width=16, layers=1, heads=2, length=4)
    )
    denoiser = un.Denoiser(body, un.Gaussian(code.shape), code=code)
    before = [p.clone() for p in code.parameters()]
    optimiser, losses = torch.optim.Adam([p for p in denoiser.parameters() if p.requires_grad], 0.01), []
    for step in range(16):
        optimiser.zero_grad()
        loss = un.Objective(denoiser)(x, noise=un.noise.NoiseSource(step, 96)).loss.mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    assert all(torch.equal(a, b) for a, b in zip(before, code.parameters(), strict=True))
    assert sum(losses[-5:]) < 0.85 * sum(losses[:5])
    drawn, info = un.sample(denoiser, n=5, steps=6, seed=0)
    assert drawn.shape == (5, 4) and float(info.times[-1]) == pytest.approx(0.05)


def test_what_is_wrong_with_an_encoder_is_named():
    space, noise = un.Finite(2, (2,)), un.noise.NoiseSource(0, 4)
    with pytest.raises(ValueError, match="a vector for each position is"):
        codes.FromEncoder(lambda x: x.double(), space, 1).double().encode(TEXTS, noise, {})

    def broken(x):
        return torch.where(x == 1, torch.nan, 1.0).double().unsqueeze(-1)

    with pytest.raises(FloatingPointError, match="row 1 are not finite"):
        codes.FromEncoder(broken, space, 1).double().encode(TEXTS, noise, {})
    with pytest.raises(ValueError, match="number 0 of the encoder's vectors is the same"):
        codes.FromEncoder(lambda x: torch.ones(*x.shape, 1, dtype=torch.float64), space, 1).double().settle(TEXTS)

    def same(z, t):
        return z

    network = torch.nn.Module()
    network.forward = same
    denoiser = un.Denoiser(network, un.Gaussian((2, 1)), code=model(Mixed(ENCODERS["of both symbols"]), 0).code)
    with pytest.raises(ValueError, match="1 numbers and 2 logits"):
        denoiser(torch.zeros(1, 2, 1).double(), 0.5)
