"""Muon: what the iteration approaches, which weights it moves, and that a void update moves nothing."""

import pytest
import torch
from torch import nn

from unnoise.training.config import TrainConfig
from unnoise.training.muon import MOMENTUM, SCALE, Muon, inner_matrices, orthogonalised
from unnoise.training.optimiser import Optimiser

ZERO, ONE = torch.zeros(()), torch.ones(())


@pytest.mark.parametrize("shape", [(3, 6, 6), (2, 4, 12), (2, 12, 4)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_singular_values_are_pulled_to_one_and_directions_kept(shape, dtype):
    m = torch.randn(shape, dtype=dtype, generator=torch.Generator().manual_seed(0))
    found = orthogonalised(m)
    u, s, v = torch.linalg.svd(m, full_matrices=False)
    near = torch.linalg.svdvals(found)
    assert found.dtype == dtype
    assert float(near[s > 0.1 * s[:, :1]].min()) > 0.6 and float(near.max()) < 1.25
    inside = u.mT @ found @ v.mT  # diagonal: the singular vectors are those of m
    off = inside - torch.diag_embed(inside.diagonal(dim1=-2, dim2=-1))
    assert float(off.abs().max()) < (1e-4 if dtype == torch.float32 else 1e-10)


def test_many_rounds_of_another_polynomial_would_show(monkeypatch):
    m = torch.randn(6, 6, generator=torch.Generator().manual_seed(0))
    monkeypatch.setattr("unnoise.training.muon.COEFFICIENTS", (1.0, -0.1, 0.0))  # a planted mistake
    assert float(torch.linalg.svdvals(orthogonalised(m)).max()) < 0.6


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.first, self.second = nn.Embedding(5, 8), nn.Linear(8, 16), nn.Linear(16, 8)
        self.head = nn.Linear(8, 5)

    def forward(self, x):
        return self.head(self.second(self.first(self.embedding(x)).relu()))


def made() -> Net:
    torch.manual_seed(0)
    return Net()


def stepped(net: nn.Module, optimiser: Optimiser, unless: torch.Tensor, bad: bool = False) -> None:
    net(torch.arange(5)).square().mean().backward()
    if bad:
        net.first.weight.grad.fill_(float("nan"))
    optimiser.update(0.1, unless)


def test_the_matrices_inside_are_muons():
    assert inner_matrices(made()) == {"first.weight", "second.weight"}
    optimiser = Optimiser(made(), TrainConfig(steps=1, optimiser="muon"))
    assert set(optimiser.muon.named) == {"first.weight", "second.weight"}
    assert "head.weight" in optimiser.by_adam and "embedding.weight" in optimiser.by_adam
    assert Optimiser(made(), TrainConfig(steps=1)).muon is None


def test_an_update_by_hand():
    p = nn.Parameter(torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0)))
    before, g = p.detach().clone(), torch.randn(4, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    p.grad = g.clone()
    muon = Muon({"p": p}, weight_decay=0.5)
    muon.update(0.1, ZERO)
    momentum = (1 - MOMENTUM) * g
    way = orthogonalised(MOMENTUM * momentum + (1 - MOMENTUM) * g)
    torch.testing.assert_close(muon.momenta["p"], momentum)
    torch.testing.assert_close(p.detach(), before * 0.95 - 0.1 * SCALE * 8**0.5 * way)


def test_a_convolution_is_a_matrix_with_a_row_per_output():
    generator = torch.Generator().manual_seed(0)
    weight, g = (torch.randn(4, 2, 3, 3, dtype=torch.float64, generator=generator) for _ in range(2))
    conv, flat = nn.Parameter(weight.clone()), nn.Parameter(weight.flatten(1).clone())
    conv.grad, flat.grad = g.clone(), g.flatten(1).clone()
    for p in (conv, flat):
        Muon({"p": p}, weight_decay=0.1).update(0.1, ZERO)
    assert torch.equal(conv.detach().flatten(1), flat.detach()) and not torch.equal(conv.detach(), weight)
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten(), nn.Linear(4, 2))
    assert inner_matrices(net) == {"0.weight", "1.weight"}


def test_a_void_update_moves_nothing_though_a_gradient_is_not_a_number():
    net = made()
    optimiser = Optimiser(net, TrainConfig(steps=1, optimiser="muon"))
    stepped(net, optimiser, ZERO)
    weights = {k: v.clone() for k, v in net.state_dict().items()}
    moments = {k: v.clone() for k, v in optimiser.state_dict().items()}
    stepped(net, optimiser, ONE, bad=True)
    for name, value in net.state_dict().items():
        assert torch.equal(value, weights[name]), name
    for name, value in optimiser.state_dict().items():
        assert torch.equal(value, moments[name]), name


def test_saved_momenta_go_on_where_they_were():
    one, other = made(), made()
    first, second = (Optimiser(net, TrainConfig(steps=1, optimiser="muon")) for net in (one, other))
    for _ in range(2):
        stepped(one, first, ZERO)
    saved = {k: v.clone() for k, v in first.state_dict().items()}
    other.load_state_dict(one.state_dict())
    second.load_state_dict(saved)
    stepped(one, first, ZERO)
    stepped(other, second, ZERO)
    for name, value in one.state_dict().items():
        assert torch.equal(value, other.state_dict()[name]), name
