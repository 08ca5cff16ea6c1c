"""Mixtures of tokens as a network's input."""

import pytest
import torch
from torch import nn

from unnoise.networks.mixtures import mixed_tokens
from unnoise.networks.transformer import SequenceTransformer, SequenceTransformerConfig

SIZE = 7


def parts(rows: int = 4, length: int = 3, k: int = 3):
    """A few tokens with weights and what is left for each of the others; and the same weights for all."""
    torch.manual_seed(0)
    ids = torch.rand(rows, length, SIZE).argsort(-1)[..., :k]
    share = torch.rand(rows, length, k + 1, dtype=torch.float64)
    share = share / share.sum(-1, keepdim=True)
    rest = share[..., -1] / (SIZE - k)
    whole = rest.unsqueeze(-1).expand(rows, length, SIZE).clone().scatter(-1, ids, share[..., :k])
    return {"ids": ids, "weights": share[..., :k], "rest": rest}, whole


def test_few_tokens_and_a_rest_are_the_mean_of_the_table():
    few, whole = parts()
    torch.testing.assert_close(whole.sum(-1), torch.ones(4, 3, dtype=torch.float64))
    gradients = []
    for mixture in (few, whole):
        table = nn.Embedding(SIZE + 1, 5, dtype=torch.float64)
        with torch.no_grad():
            table.weight.copy_(torch.sin(torch.arange(40.0)).reshape(8, 5))
        found = mixed_tokens(table, mixture, SIZE)
        torch.testing.assert_close(found, (whole.unsqueeze(-1) * table.weight[:SIZE]).sum(-2))
        found.square().sum().backward()
        gradients.append(table.weight.grad)
        assert float(table.weight.grad[SIZE].abs().max()) == 0  # MASK is in no mixture
    torch.testing.assert_close(*gradients)


def network(**options) -> SequenceTransformer:
    torch.manual_seed(1)
    config = SequenceTransformerConfig(size=SIZE, width=16, layers=1, heads=2, **options)
    made = SequenceTransformer(config)
    nn.init.normal_((made.out or made.project).weight)
    return made


@pytest.mark.parametrize("tied", [False, True])
def test_a_one_hot_mixture_is_the_token(tied):
    net, t = network(tied=tied), torch.tensor([0.2, 0.7])
    x, other = torch.tensor([[0, 3, 6], [2, 2, 1]]), torch.zeros(2, 3, dtype=torch.int64)
    few = {"ids": torch.stack([x, (x + 1) % SIZE], -1), "weights": torch.tensor([1.0, 0.0]).expand(2, 3, 2)}
    few["rest"] = torch.zeros(2, 3)
    for mixture in (nn.functional.one_hot(x, SIZE).float(), few):
        torch.testing.assert_close(net(other, t, mixture=mixture), net(x, t))
    soft = net(x, t, mixture=torch.full((2, 3, SIZE), 1 / SIZE))
    assert float((soft - net(x, t)).detach().abs().max()) > 0.01


def test_shapes_other_than_sequences():
    net, t = network(), torch.tensor([0.2, 0.7])
    few, whole = parts(2, 4)
    shaped = {name: value.reshape(2, 2, 2, *value.shape[2:]) for name, value in few.items()}
    x = torch.zeros(2, 2, 2, dtype=torch.int64)
    torch.testing.assert_close(
        net(x, t, mixture=shaped), net(x, t, mixture=whole.reshape(2, 2, 2, SIZE)), rtol=1e-4, atol=1e-5
    )


def test_refusals():
    t, x = torch.tensor([0.2, 0.7]), torch.zeros(2, 3, dtype=torch.int64)
    with pytest.raises(ValueError, match="8 weights does not fit 7 tokens"):
        network()(x, t, mixture=torch.zeros(2, 3, 8))
    with pytest.raises(ValueError, match="autoregressive"):
        network(causal=True)(x, mixture=torch.zeros(2, 3, 7))
