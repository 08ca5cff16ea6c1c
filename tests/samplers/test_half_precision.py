"""A network in half precision: its calls alone are rounded."""

import pytest
import torch

import unnoise as un
from unnoise.samplers import DDIM, Ancestral, captured, half_precision, sample


class Line(torch.nn.Module):
    """Remembers in which precision its product was made."""

    def __init__(self, inputs: int, outputs: int):
        super().__init__()
        self.line, self.seen = torch.nn.Linear(inputs, outputs), []

    def forward(self, x, t):
        y = self.line(x)
        self.seen.append(y.dtype)
        return y


class InTwoParts(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.table, self.out, self.seen = torch.nn.Embedding(5, 8), torch.nn.Linear(8, 5), []

    def features(self, x, t):
        return torch.nn.functional.linear(self.table(x), torch.eye(8))

    def head(self, h):
        y = self.out(h)
        self.seen.append((h.dtype, y.dtype, len(h)))
        return y

    def forward(self, x, t):
        return self.head(self.features(x, t))


def test_only_the_network_is_rounded():
    network = Line(3, 3)
    denoiser = un.Denoiser(network, un.Gaussian((3,)), un.Clean)
    x = torch.randn(4, 3)
    whole, half = denoiser(x, 0.5), half_precision(denoiser)(x, 0.5)
    assert network.seen == [torch.float32, torch.bfloat16]
    assert half.value.dtype is torch.float32 and half.x_t is x
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(half.value, network.line(x).float())
    assert not torch.equal(whole.value, half.value)
    torch.testing.assert_close(whole.value, half.value, rtol=2e-2, atol=2e-2)
    assert denoiser.network is network and network.line.weight.dtype is torch.float32  # what was given is left as it was
    drawn, _ = sample(half_precision(denoiser), 4, 3, DDIM(), seed=0)
    assert drawn.dtype is torch.float32


def test_the_sampling_arithmetic_is_not_rounded():
    """The same logits in bfloat16, drawn from as float32: the same categories."""
    network = InTwoParts()
    process = un.RateMatrix(un.rate_matrices.nearest_neighbour(5), (6,))
    half = half_precision(un.Denoiser(network, process))
    x, _ = sample(half, 64, 8, Ancestral(), seed=0)
    assert {(h, y) for h, y, _ in network.seen} == {(torch.bfloat16, torch.bfloat16)}

    class Rounded(torch.nn.Module):
        def forward(self, x, t):
            with torch.autocast("cpu", torch.bfloat16):
                return network(x, t).float()

    plain, _ = sample(un.Denoiser(Rounded(), process), 64, 8, Ancestral(), seed=0)
    assert torch.equal(x, plain)


def test_the_head_sees_the_rows_that_are_asked_for():
    network, process = InTwoParts(), un.Uniform(5, (6,))
    half = half_precision(un.Denoiser(network, process))
    x = process.prior(200).draw(un.NoiseSource(0, 200))
    half(x, 0.5).step(0.49).draw(un.NoiseSource(1, 200))
    assert 0 < sum(rows for *_, rows in network.seen) < 0.2 * x.numel()


def test_wrapped_once_more():
    denoiser = un.Denoiser(Line(3, 3), un.Gaussian((3,)), un.Clean)
    one, _ = sample(half_precision(denoiser), 5, 4, DDIM(), seed=0)
    other, _ = sample(captured(half_precision(denoiser)), 5, 4, DDIM(), seed=0)
    assert torch.equal(one, other)
    assert half_precision(denoiser).dtype is torch.float32


def test_what_is_no_half_precision_is_refused():
    denoiser = un.Denoiser(Line(3, 3), un.Gaussian((3,)), un.Clean)
    with pytest.raises(ValueError, match="dtype = torch.float32: choose torch.bfloat16"):
        half_precision(denoiser, torch.float32)
    oracle = un.oracles.normal(un.Gaussian((2,)), torch.zeros(2), torch.eye(2))
    with pytest.raises(TypeError, match="has no network"):
        half_precision(oracle)
