"""Hard vectors are a model of their own, for every code; what its samples are is tested beside those of soft ones."""

import pytest
import torch
from known_pairs import KnownPaired, KnownTogether, paired, swapped

import unnoise as un
from unnoise import hybrids


def test_its_bound_is_a_bound_and_larger():
    code, process = paired(2, 1, cutoff=1e-2)
    soft = un.Denoiser(KnownPaired(code, process, torch.tensor([0.3, 0.7]).double()), process, code=code)

    def mass(denoiser):
        total = un.bound(denoiser, code.space.states(), times=un.Quadrature(48), exact=True).total
        return float((-total).exp().sum())

    assert mass(soft) == pytest.approx(1, abs=1e-6)
    assert 0.1 < mass(hybrids.Hardened(soft)) < 0.99


@pytest.mark.parametrize("kind", [un.Clean, un.Velocity])
def test_it_aims_at_the_vectors_of_the_likeliest_text(kind):
    space = un.Finite(2, (2,))
    code, process = hybrids.CoEvolving(space, swapped, 1, vectors=kind), hybrids.beside(space, 1)
    network = KnownTogether(code, process, torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64))
    x_t = {"tokens": torch.tensor([[2, 0], [2, 2]]), "vectors": torch.randn(2, 2, 1, dtype=torch.float64)}
    prediction = hybrids.Hardened(un.Denoiser(network, process, code=code))(x_t, 0.8)
    law = prediction["tokens"].clean_law().log_probs
    assert type(prediction["vectors"]) is kind
    clean = prediction["vectors"].to(un.Clean).value
    assert torch.allclose(clean, swapped(law.argmax(-1)), atol=1e-12)
    assert law.argmax(-1)[0, 1] == 0


def test_it_needs_vectors_beside_tokens():
    with pytest.raises(TypeError, match=r"hybrids\.Paired"):
        hybrids.Hardened(un.Denoiser(torch.nn.Identity(), un.Gaussian((2,))))
