"""The network that sees tokens and vectors, and says either or both."""

import pytest
import torch

import unnoise as un
from unnoise import hybrids, networks


def transformer(**options):
    fields = {"size": 3, "width": 16, "layers": 1, "heads": 2, "vectors": 2, **options}
    network = networks.build("SequenceTransformer", fields, seed=0)
    for module in network.modules():  # what begins at 0 would say nothing
        for name, parameter in module.named_parameters(recurse=False):
            torch.nn.init.normal_(parameter, std=0.2) if name == "weight" else None
    return network


def test_it_is_told_of_both_and_of_the_time_of_the_vectors():
    network = transformer()
    x = {"tokens": torch.tensor([[0, 3, 1, 2]]), "vectors": torch.randn(1, 4, 2)}
    t = torch.full((1,), 0.5)
    said = network(x, t)
    assert said.shape == (1, 4, 3)
    for name, other in (("tokens", torch.tensor([[0, 3, 1, 1]])), ("vectors", torch.randn(1, 4, 2))):
        assert not torch.allclose(network({**x, name: other}, t), said)
    assert torch.equal(network(x, {"tokens": torch.zeros(1), "vectors": t}), said)
    assert not torch.allclose(network(x, {"tokens": t, "vectors": torch.zeros(1)}), said)
    both = transformer(answers=2)(x, t)
    assert both["tokens"].shape == (1, 4, 3) and both["vectors"].shape == (1, 4, 2)


def test_without_vectors_it_is_the_network_that_it_was():
    torch.manual_seed(0)
    plain = networks.build("SequenceTransformer", {"size": 3, "width": 16, "layers": 1, "heads": 2}, seed=0)
    with_vectors = networks.build(
        "SequenceTransformer", {"size": 3, "width": 16, "layers": 1, "heads": 2, "vectors": 2}, seed=0
    )
    own = with_vectors.state_dict()
    assert all(torch.equal(value, own[name]) for name, value in plain.state_dict().items())


def test_it_serves_every_code():
    x, space = torch.tensor([[0, 2, 1, 1], [2, 2, 0, 1]]), un.Finite(3, (4,))
    told = hybrids.CoEvolving(space, hybrids.Blend(3, 2), 2)
    for code, answers in ((hybrids.Paired.learned(space, 2), 0), (hybrids.Blended(space, 2), 0), (told, 2)):
        denoiser = un.Denoiser(transformer(answers=answers), hybrids.beside(space, 2), code=code)
        terms = un.bound(denoiser, x, seed=0)
        assert bool(terms.total.isfinite().all())
        terms = un.Objective(denoiser)(x)
        terms.loss.sum().backward()
        assert float(denoiser.network.beside.weight.grad.abs().sum()) > 0


def test_self_conditioning_shows_the_tokens_first_estimate():
    space = un.Finite(3, (4,))
    network = transformer(self_condition=True)
    denoiser = un.Denoiser(network, hybrids.beside(space, 2), self_condition=True, code=hybrids.Paired.learned(space, 2))
    x_t = {"tokens": torch.tensor([[0, 3, 3, 2]]), "vectors": torch.randn(1, 4, 2)}
    twice = denoiser(x_t, 0.5)["tokens"].value
    denoiser.passes = 1
    assert not torch.allclose(denoiser(x_t, 0.5)["tokens"].value, twice)


def test_what_makes_no_network_is_refused():
    with pytest.raises(ValueError, match="leave out causal and numbers"):
        transformer(causal=True)
