"""A denoiser with a code is a model of data: its bound, what it draws, and what it refuses."""

import pytest
import torch

import unnoise as un
from unnoise import codes


class Logits(torch.nn.Module):
    """Random leave-one-out logits that depend on the state and the time."""

    def __init__(self, code, seed=0, spread=1.0):
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        d, out = torch.Size(code.shape).numel(), (code.space.dimension, code.space.size)
        self.weight = spread * torch.randn(out[0] * out[1], d + 1, generator=generator, dtype=torch.float64)
        self.shape = (*code.space.shape, code.space.size)

    def forward(self, x, t):
        seen = torch.cat([torch.tanh(x.flatten(1)), t[:, None]], 1)
        return (seen @ self.weight.T).reshape(len(x), *self.shape)


def model(code, seed=0, cutoff=None):
    code = code.double()
    code.cutoff = cutoff
    return un.Denoiser(Logits(code, seed), un.Gaussian(code.shape), code=code)


CODES = {
    "two bits": lambda: codes.bits(4, (1,)),
    "three of two bits": lambda: codes.bits(3, (1,)),
    "two coordinates": lambda: codes.bits(2, (2,)),
    "one hot": lambda: codes.one_hot(2, (1,), 0.7),
    "embedded": lambda: codes.embeddings(3, (1,), 2, seed=1),
}


@pytest.mark.parametrize("name", CODES)
def test_the_bound_of_a_wrong_network_is_a_bound(name):
    denoiser = model(CODES[name](), cutoff=1e-3)
    x = denoiser.space.states()
    bound = un.bound(denoiser, x, times=un.Quadrature(48), exact=True).total.detach()
    assert 0.1 < float((-bound).exp().sum()) <= 1 + 1e-6


def test_a_bound_without_what_reads_the_data_is_none():
    """The mutant: at a cut-off where noise hides the data, the last term is what makes it a bound."""
    denoiser = model(codes.bits(4, (1,)), cutoff=0.3)
    x = denoiser.space.states()
    terms = un.bound(denoiser, x, times=un.Quadrature(48), exact=True)
    assert float((-terms.total).exp().sum()) <= 1
    assert float((terms.reconstruction - terms.total).exp().sum()) > 1.05


def test_the_exact_model_has_the_entropy_of_the_data():
    """One category under bits: leave-one-out logits are log q(x), and the bound is -log q(x) at any cut-off."""
    q = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)

    class Prior(torch.nn.Module):
        def forward(self, x, t):
            return q.log().expand(len(x), 1, 4)

    for cutoff in (0.01, 0.2):
        code = codes.bits(4, (1,)).double()
        code.cutoff = cutoff
        denoiser = un.Denoiser(Prior(), un.Gaussian(code.shape), code=code)
        bound = un.bound(denoiser, torch.arange(4)[:, None], times=un.Quadrature(64), exact=True).total
        assert float((bound + q.log()).abs().max()) < 2e-6


def test_samples_are_data_and_have_the_law():
    """One category by bits with the exact logits: 40,000 draws, total variation below 0.02 (false alarm below 1e-6)."""
    q = torch.tensor([0.1, 0.2, 0.3, 0.4], dtype=torch.float64)

    class Prior(torch.nn.Module):
        def forward(self, x, t):
            return q.log().expand(len(x), 1, 4)

    code = codes.bits(4, (1,)).double()
    code.cutoff = 0.05
    denoiser = un.Denoiser(Prior(), un.Gaussian(code.shape), code=code)
    x, info = un.sample(denoiser, n=40_000, steps=64, seed=0)
    assert x.shape == (40_000, 1) and x.dtype == torch.int64
    assert float(info.times[-1]) == pytest.approx(0.05)
    assert float((torch.bincount(x[:, 0], minlength=4) / 40_000 - q).abs().sum() / 2) < 0.02
    z, _ = un.sample(denoiser, n=10, steps=8, seed=0, decode=False)
    assert z.shape == (10, 1, 2)


def test_evidence_is_the_density_of_the_noise():
    code = codes.embeddings(5, (3,), 4, seed=0).double()
    process, t = un.Gaussian(code.shape), torch.tensor([0.2, 0.6], dtype=torch.float64)
    z = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    found = code.evidence(z, t, process)
    alpha, sigma = process.schedule.alpha(t).reshape(2, 1, 1, 1), process.schedule.sigma(t).reshape(2, 1, 1, 1)
    gaps = z.unsqueeze(2) - alpha * code.vectors
    wanted = -(gaps / sigma).square().sum(-1) / 2
    gap = (found - wanted).detach()
    assert float((gap - gap[..., :1]).abs().max()) < 1e-10


def test_learned_vectors_have_gradients_and_one_length():
    code = codes.embeddings(3, (1,), 2, seed=1).double()
    code.cutoff = 1e-3
    denoiser = un.Denoiser(Logits(code), un.Gaussian(code.shape), code=code)
    un.Objective(denoiser)(torch.tensor([[0], [1], [2]])).loss.sum().backward()
    assert float(code.raw.grad.abs().sum()) > 0
    assert torch.allclose(code.vectors.norm(dim=1), torch.tensor(2.0, dtype=torch.float64).sqrt())


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="the same vector"):
        codes.Codebook(un.Finite(2, (1,)), torch.ones(2, 3))
    with pytest.raises(ValueError, match="one vector per category"):
        codes.Codebook(un.Finite(2, (1,)), torch.ones(3, 3))
    denoiser = model(codes.bits(4, (1,)))
    with pytest.raises(TypeError, match="use un.bound"):
        un.likelihood(denoiser, torch.zeros(1, 1, dtype=torch.int64))
    with pytest.raises(ValueError, match="is no category"):
        un.bound(denoiser, torch.full((1, 1), 4))
    short = un.Denoiser(torch.nn.Identity(), un.Gaussian((1, 2)), code=codes.bits(4, (1,)))
    with pytest.raises(TypeError):
        un.bound(short, torch.zeros(1, 1, dtype=torch.int64))
