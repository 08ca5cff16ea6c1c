"""What is registered or given another value is told at once what it lacks."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import networks
from unnoise.data.base import Format
from unnoise.data.registry import register_format

X = torch.zeros(2, 1, dtype=torch.float64)


class Nameless(Format):
    pass


class Plain(nn.Module):
    def forward(self, x, t):
        return x


class Bare(un.Process):
    def __init__(self):
        super().__init__()
        self.space = self.state_space = un.Euclidean((1,))


def test_a_format_without_a_kind():
    with pytest.raises(TypeError, match="Nameless.* has no kind"):
        register_format(Nameless)


def test_a_network_without_its_options():
    """The class would be lost: what stands in its place is the decorator."""
    with pytest.raises(TypeError, match=r"no dataclass: write @register\(Options\)"):
        networks.register(Plain)


def test_a_process_that_admits_nothing():
    un.predictions.admitted_kinds.register(Bare)(lambda process: ())
    with pytest.raises(TypeError, match="predicts = Velocity does not fit Bare, and no kind is admitted"):
        un.Denoiser(Plain(), Bare(), un.Velocity)


def test_a_value_for_what_has_none():
    marginal = un.FromMarginal(lambda x, t: -x.square().sum(1), un.Gaussian((1,)), X, torch.full((2,), 0.5))
    with pytest.raises(TypeError, match="a FromMarginal has no value"):
        marginal.with_value(X)


def test_an_energy_is_tilted_by_a_function():
    energy = un.Energy(lambda x, rows: -x.square().sum(1), un.Gaussian((1,)), X, torch.full((2,), 0.5))
    with pytest.raises(TypeError, match="tilted by a function of .*, not a dict"):
        un.predictions.tilt(energy, {"a": X})
    tilted = un.predictions.tilt(energy, lambda x, rows: x.sum(1))
    torch.testing.assert_close(tilted.to(un.Score).value, torch.ones_like(X))
