"""Tokens of large vocabularies are those of the distribution function written down in float64."""

import pytest
import torch

from unnoise.laws import LOG_ZERO
from unnoise.samplers import tokens
from unnoise.samplers.tokens import Tokens


def by_function(logits, u):
    cumulative = logits.double().softmax(-1).cumsum(-1)
    return (cumulative <= u.unsqueeze(-1)).sum(-1).clamp_max(logits.shape[-1] - 1)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [tokens.MANY, tokens.MANY + 1, 50_257])
def test_many_categories_are_drawn_as_few_are(size, dtype):
    torch.manual_seed(size)
    logits, u = (4 * torch.randn(200, size)).to(dtype), torch.rand(200, dtype=torch.float64)
    u[:2] = torch.tensor([0.0, 1 - 2**-53])
    assert torch.equal(Tokens().draw(logits, u), by_function(logits, u))


def test_a_tail_of_tiny_probabilities_is_reached_and_an_impossible_category_never():
    """One category has all but 1e-9 of the mass, which the last thousand share."""
    size = 2 * tokens.MANY
    logits = torch.full((1, size), LOG_ZERO)
    logits[0, 3], logits[0, -1000:] = 0.0, torch.tensor(1e-12).log()
    u = 1 - 1e-9 * torch.linspace(0.001, 0.999, 500, dtype=torch.float64)
    drawn = Tokens().draw(logits.expand(500, -1), u)
    torch.testing.assert_close(drawn.double(), size - 1000 * (1 - u) / 1e-9, rtol=0, atol=1.01)
    assert int(Tokens().draw(logits, torch.tensor([0.5], dtype=torch.float64))) == 3
