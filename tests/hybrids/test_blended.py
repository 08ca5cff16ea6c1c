"""Vectors that neighbours add up to: their evidence by brute force, the bound, what is revealed costs nothing."""

from itertools import product

import pytest
import torch
from known_pairs import Wrong

import unnoise as un
from unnoise import hybrids


def code_of(size, length, width=1, reach=1, cutoff=1e-2, **options):
    space = un.Finite(size, (length,))
    return hybrids.Blended(space, width, reach, cutoff=cutoff, **options).double(), hybrids.beside(space, width)


def test_neighbours_add_their_vectors():
    encoder = hybrids.Blend(3, 4, reach=2, seed=1)
    tables = torch.nn.functional.normalize(encoder.raw, dim=-1) * 2
    x = torch.tensor([[0, 1, 2, 2], [2, 0, 1, 0]])
    z = encoder(x)
    for k in range(4):
        wanted = sum(tables[j + 2][x[:, k + j]] for j in range(-2, 3) if 0 <= k + j < 4) / 5**0.5
        assert torch.allclose(z[:, k], wanted, atol=1e-6)
    assert encoder(x[:, :1]).shape == (2, 1, 4)
    assert not list(encoder.parameters()) and len(list(hybrids.Blend(3, 4, learned=True).parameters())) == 1


def said(code, process, tokens, z, t):
    """log p of tokens by the vectors alone."""
    x_t = {"tokens": tokens, "vectors": z}
    logits = torch.zeros(*tokens.shape, code.space.size, dtype=torch.float64)
    return code.prediction(logits, process, x_t, torch.full((len(tokens),), t, dtype=torch.float64))


def test_the_evidence_of_a_masked_token_alone_is_bayes():
    """One of five tokens is masked, at each place in turn: its law by the densities of all vectors."""
    code, process = code_of(3, 5, width=2, seed=2)
    x = torch.tensor([[0, 2, 1, 1, 2]])
    z = torch.randn(1, 5, 2, dtype=torch.float64) + code.vectors_of(x)
    t = torch.tensor([0.6], dtype=torch.float64)
    schedule = process.leaves["vectors"].schedule
    for k in range(5):
        tokens = x.clone()
        tokens[0, k] = 3
        texts = x.repeat(3, 1)
        texts[:, k] = torch.arange(3)
        gaps = z - schedule.alpha(t) * code.vectors_of(texts)
        wanted = (-gaps.square().sum((1, 2)) / (2 * schedule.sigma(t).square())).log_softmax(0)
        found = said(code, process, tokens, z, 0.6)
        assert torch.allclose(found["tokens"].value[0, k], wanted, atol=1e-10)
        mean = torch.einsum("n,nld->ld", wanted.exp(), code.vectors_of(texts))
        assert torch.allclose(found["vectors"].value[0], mean, atol=1e-10)


def test_the_evidence_of_two_masked_tokens_is_that_of_normal_neighbours():
    """Tokens 0 and 1 masked: the other's vectors as a normal law, of its table's mean and variance, written out."""
    code, process = code_of(3, 2, width=1, seed=3)
    z, t = torch.tensor([[[0.4], [-0.7]]], dtype=torch.float64), 0.5
    schedule, e = process.leaves["vectors"].schedule, code.encoder.tables[..., 0] / 3**0.5  # by offset -1, 0, 1
    alpha, sigma = (float(part(torch.tensor(t).double())) for part in (schedule.alpha, schedule.sigma))
    found = said(code, process, torch.tensor([[3, 3]]), z, t)["tokens"].value[0]
    mean, variance = e.mean(1), e.var(1, unbiased=False)
    for k, other in ((0, 1), (1, 0)):
        wanted = 0.0
        for i in range(2):  # z^i = e_{k-i}(x^k) + e_{other-i}(x^other)
            own, rest = k - i + 1, other - i + 1
            gap = z[0, i, 0] - alpha * (e[own] + mean[rest])
            wanted = wanted - gap.square() / (2 * (sigma**2 + alpha**2 * variance[rest]))
        assert torch.allclose(found[k], wanted.log_softmax(0), atol=1e-10)


def test_what_is_revealed_costs_nothing():
    code, process = code_of(4, 6, width=3)
    code, x = code.float(), torch.tensor([[0, 1, 2, 3, 1, 0]])
    z0 = code.vectors_of(x)
    prediction = said(code, process, x, torch.randn(1, 6, 3), 0.02)
    assert torch.equal(prediction["vectors"].value.float(), z0)


@pytest.mark.parametrize("reach", [0, 1])
def test_the_bound_of_a_wrong_network_is_a_bound(reach):
    code, process = code_of(2, 1, reach=reach, cutoff=1e-3)
    total = un.bound(
        un.Denoiser(Wrong(code), process, code=code), code.space.states(), times=un.Quadrature(48), exact=True
    ).total
    assert 0.1 < float((-total).exp().sum()) <= 1 + 1e-7


@pytest.mark.conformance
@pytest.mark.parametrize("learned", [False, True])
def test_the_bound_of_a_wrong_network_is_a_bound_for_two_tokens(learned):
    code, process = code_of(2, 2, learned=learned, seed=5)
    denoiser = un.Denoiser(Wrong(code, spread=0.3), process, code=code)
    with torch.no_grad():
        total = un.bound(denoiser, code.space.states(), times=un.Quadrature(20), exact=True).total
    assert 0.1 < float((-total).exp().sum()) <= 1 + 1e-5


def test_learned_tables_have_gradients():
    code, process = code_of(3, 4, width=2, learned=True)
    x = torch.tensor(list(product(range(3), repeat=4)))
    un.Objective(un.Denoiser(Wrong(code, spread=0.1), process, code=code))(x).loss.sum().backward()
    assert float(code.encoder.raw.grad.abs().sum()) > 0


def test_samples_are_texts():
    code, process = code_of(3, 4, width=2)
    x, _ = un.sample(un.Denoiser(Wrong(code, spread=0.1), process, code=code), n=16, steps=8, seed=0)
    assert x.shape == (16, 4) and x.dtype == torch.int64 and 0 <= int(x.min()) <= int(x.max()) < 3


def test_what_does_not_fit_is_refused():
    code, process = code_of(2, 2)
    with pytest.raises(ValueError, match="it returns logits"):
        un.bound(un.Denoiser(Wrong(code, answers=True), process, code=code), torch.zeros(1, 2, dtype=torch.int64))
    with pytest.raises(ValueError, match="reach = -1"):
        hybrids.Blend(3, 4, reach=-1)
