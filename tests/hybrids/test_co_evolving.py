"""Tokens with representations of the whole text: every position's rate counts, down to where the vectors are dropped."""

from math import log

import pytest
import torch
from known_pairs import KnownTogether, Wrong, law, swapped

import unnoise as un
from unnoise import hybrids
from unnoise.objectives.weightings import Bound
from unnoise.samplers import Ancestral

BITS = un.Finite(2, (2,))


def together(encoder=swapped, cutoff=1e-2, space=BITS, vectors=un.Clean):
    return hybrids.CoEvolving(space, encoder, 1, vectors=vectors, cutoff=cutoff)


def known(code, q):
    process = hybrids.beside(code.space, 1)
    return un.Denoiser(KnownTogether(code, process, q), process, code=code)


def bound(denoiser, x, nodes):
    return un.bound(denoiser, x, times=un.Quadrature(nodes), exact=True)


@pytest.fixture
def masked_alone(monkeypatch):
    """The mutant: only the vectors beside masked tokens count."""

    def rate(self, prediction, process, x0, *rest):
        tokens = whole(self, prediction["tokens"], process.leaves["tokens"], x0["tokens"], *rest)
        vectors = prediction["vectors"]
        masked = prediction["tokens"].x_t == process.leaves["tokens"].mask
        aimed = torch.where(masked.unsqueeze(-1), vectors.value, x0["vectors"])
        return tokens + whole(self, vectors.with_value(aimed), process.leaves["vectors"], x0["vectors"], *rest)

    whole = Bound.rate
    monkeypatch.setattr(Bound, "rate", rate)


def test_the_vectors_of_masked_positions_alone_give_no_bound(request):
    """Two fair bits whose vectors are swapped: all positions give 2 log 2, the masked ones 1.0815, so that the sum of
    exp(-1.0815) over the texts is 1.356."""
    denoiser = known(together(), torch.full((4,), 0.25, dtype=torch.float64))
    x = BITS.states()[1:2]  # all four are alike
    assert float(bound(denoiser, x, 20).total) == pytest.approx(2 * log(2), abs=3e-6)
    request.getfixturevalue("masked_alone")
    total = float(bound(denoiser, x, 20).total)
    assert total == pytest.approx(1.0815, abs=1e-4) and total < 2 * log(2)
    assert 4 * torch.tensor(-total).exp().item() == pytest.approx(1.3563, abs=2e-4)


@pytest.mark.conformance
@pytest.mark.parametrize("encoder", [swapped, lambda x: ((2 * x - 1) + 0.5 * x.flip(1)).double().unsqueeze(-1)])
def test_exact_answers_give_the_entropy_for_any_encoder(encoder):
    q = law(2, 2, seed=1)
    total = bound(known(together(encoder), q), BITS.states(), 24).total
    assert float((total + q.log()).abs().max()) < 2e-5


def test_what_is_masked_at_the_cut_off_is_read_off(monkeypatch):
    """At a late cut-off the reading is a part of the bound: with it the bound is a bound, without it none."""
    space = un.Finite(3, (1,))
    code = together(lambda x: (x - 1.0).double().unsqueeze(-1), 0.4, space)
    terms = bound(known(code, law(3, 1)), space.states(), 48)
    assert float((terms.total + law(3, 1).log()).abs().max()) < 1e-6
    assert float(terms.reconstruction.min()) > 1e-3
    assert float((terms.reconstruction - terms.total).exp().sum()) > 1.01


@pytest.mark.parametrize("kind", [un.Clean, un.Velocity])
def test_the_bound_of_a_wrong_network_is_a_bound(kind):
    space = un.Finite(3, (1,))
    code = together(lambda x: (x - 1.0).double().unsqueeze(-1), 0.2, space, kind)
    denoiser = un.Denoiser(Wrong(code, spread=0.3, answers=True), hybrids.beside(space, 1), code=code)
    assert 0.1 < float((-bound(denoiser, space.states(), 48).total).exp().sum()) <= 1 + 1e-7


@pytest.mark.conformance
def test_the_bound_of_a_wrong_network_is_a_bound_for_two_tokens():
    code = together(swapped, 0.2)
    denoiser, wrong = known(code, law(2, 2)), Wrong(code, spread=0.1, answers=True)

    def off(module, given, said):
        return {name: part + wrong(*given)[name] for name, part in said.items()}

    denoiser.network.register_forward_hook(off)
    assert 0.1 < float((-bound(denoiser, BITS.states(), 16).total).exp().sum()) <= 0.95


def test_samples_of_the_exact_model_have_the_law_of_the_data():
    """Two bits that depend on each other, their vectors swapped: 5,000 draws, total variation below 0.035 (by chance alone
    less than once in 1e6); a network that takes each vector for that of its own token is 0.1 away at least."""
    q = torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=torch.float64)

    def distance(denoiser):
        x, _ = un.sample(denoiser, n=5_000, steps=40, sampler=Ancestral(), seed=0)
        return float((torch.bincount(2 * x[:, 0] + x[:, 1], minlength=4) / 5_000 - q).abs().sum() / 2)

    right, wrong = known(together(), q), known(together(), q)
    wrong.network.z0 = wrong.network.z0.flip(1)
    wrong.network.register_forward_hook(lambda module, given, said: {**said, "vectors": said["vectors"].flip(1)})
    assert distance(right) < 0.035
    assert distance(wrong) > 0.1


def test_an_encoder_is_held_unless_it_is_learned():
    space, x = un.Finite(3, (4,)), torch.tensor([[0, 1, 2, 2]])
    held = torch.nn.Sequential(torch.nn.Embedding(3, 2), torch.nn.Dropout(0.9))
    code = hybrids.CoEvolving(space, held, 2).train()
    assert torch.equal(code.vectors_of(x), held[0].weight[x].detach())
    assert not code.vectors_of(x).requires_grad and not any(p.requires_grad for p in code.parameters())
    learned = hybrids.CoEvolving(space, hybrids.Blend(3, 2, learned=True).double(), 2, learned=True)
    network = Wrong(learned, spread=0.1, answers=True)
    un.Objective(un.Denoiser(network, hybrids.beside(space, 2), code=learned))(x).loss.sum().backward()
    assert float(learned.encoder.raw.grad.abs().sum()) > 0


def test_an_encoder_that_does_not_fit_is_named():
    x = torch.tensor([[0, 1]])
    network = Wrong(together(), answers=True)

    def asked(encoder):
        return un.bound(un.Denoiser(network, hybrids.beside(BITS, 1), code=together(encoder)), x)

    with pytest.raises(ValueError, match=r"the encoder returned shape \(1, 2\); .* \(1, 2, 1\)"):
        asked(lambda x: x.double())
    with pytest.raises(ValueError, match="vectors.*(nan|finite)"):
        asked(lambda x: swapped(x) * float("nan"))
