"""Leaves of every kind beside categories: the bound of what is independent is the sum of the leaves' own."""

from math import log

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.tree import map_leaves

SLOW = pytest.mark.conformance
ROWS = {"rotation": 512, "jumps": 1024, "composition": 128}
LEAVES = {
    "rotation": un.RotationHeat(),
    "jumps": un.JumpDiffusion((2,)),
    "composition": un.WrightFisher(3),
    "mixture": un.Superposition((2,)),
}
APART = 3.0  # standard errors of the difference: one true case in 400 is refused, and the seed is fixed


class Apart(nn.Module):
    """The leaf's own network, and even categories."""

    def __init__(self, process: un.Process):
        super().__init__()
        self.own = un.networks.default_network(process, "tiny", seed=0)

    def forward(self, x, t):
        label = x["label"]
        return {"x": self.own(x["x"], t["x"] if isinstance(t, dict) else t), "label": torch.zeros(*label.shape, 3)}


@pytest.mark.parametrize("name", ["rotation", pytest.param("jumps", marks=SLOW), pytest.param("composition", marks=SLOW)])
@torch.no_grad()
def test_a_leaf_beside_a_label(name):
    leaf, n = LEAVES[name], ROWS[name]
    process = un.Product(x=leaf, label=un.Masking(3, (1,)))
    network = Apart(leaf)
    both, alone = un.Denoiser(network, process), un.Denoiser(network.own, leaf)
    x, _ = un.sample(both, n=64, steps=16, seed=0)
    assert process.space.check(x) is not None and x["label"].unique().tolist() == [0, 1, 2]

    data = process.prior(n, torch.float32).draw(un.NoiseSource(1, n))
    data["label"] = torch.arange(n).unsqueeze(1) % 3
    data["x"] = leaf.space.inside(data["x"], 0.01) if name == "composition" else data["x"]
    found = un.bound(both, data, un.Quadrature(16), seed=0).total
    ours = un.bound(alone, data["x"], un.Quadrature(16), seed=0).total
    error = float(((found.var() + ours.var()) / n) ** 0.5)
    gap = float((found - ours).mean())
    assert abs(gap - log(3)) < APART * error < log(3)  # so that a label that is forgotten is seen


@pytest.mark.parametrize("name", [name for name in LEAVES if name != "jumps"])
def test_the_network_of_a_table_says_such_leaves(name):
    process = un.Product(x=LEAVES[name], label=un.Masking(3, (1,)))
    denoiser = un.Denoiser(un.networks.default_network(process, "tiny", seed=0), process)
    x, _ = un.sample(denoiser, n=4, steps=4, seed=0)
    data = map_leaves(torch.clone, x)
    if name == "composition":
        data["x"] = LEAVES[name].space.inside(data["x"], 0.01)
    loss = un.Objective(denoiser)(data, un.NoiseSource(0, 4)).loss.mean()
    loss.backward()
    assert bool(loss.isfinite()) and all(p.grad is not None for p in denoiser.network.numbers.parameters())


def test_clouds_are_no_columns():
    process = un.Product(x=un.JumpDiffusion((2,)), label=un.Masking(3, (1,)))
    with pytest.raises(TypeError, match=r"leaf \['x'\] is a JumpDiffusion, .* returns \[batch, clouds, 4\] for this leaf"):
        un.networks.default_network(process)


def test_a_likelihood_that_has_no_kernels_says_what_has_none():
    process = un.Product(x=un.RotationHeat(), label=un.Masking(3, (1,)))
    denoiser = un.Denoiser(Apart(process.leaves["x"]), process)
    with pytest.raises(TypeError, match="for a likelihood take un.bound"):
        un.likelihood(denoiser, {"x": torch.eye(3).expand(2, 3, 3), "label": torch.zeros(2, 1, dtype=torch.int64)})
