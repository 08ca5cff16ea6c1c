"""Clouds from a network: shapes, a start at which no two are alike, and a bound that training lowers."""

import pytest
import torch

import unnoise as un
from unnoise.networks import CloudMLPConfig, default_network


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_default_network_of_a_jump_diffusion_learns(shape):
    """Some updates on two far points, also in six dimensions: the bound falls, and samples are drawn."""
    process = un.JumpDiffusion(shape, un.schedules.LinearBeta(), draws=4)
    denoiser = un.Denoiser(default_network(process, "tiny", seed=0, width=16, clouds=3), process)
    x = torch.where(torch.arange(64) % 4 == 0, 2.0, -1.0).reshape(-1, *[1] * len(shape)).expand(64, *shape).clone()
    x = x + 0.1 * torch.randn(x.shape, generator=torch.Generator().manual_seed(0))
    optimiser = torch.optim.Adam(denoiser.parameters(), lr=1e-2)
    losses = []
    for update in range(40):
        optimiser.zero_grad()
        losses.append(un.bound(denoiser, x, seed=update).total.mean())
        losses[-1].backward()
        optimiser.step()
    assert sum(losses[-10:]) / 10 < sum(losses[:10]) / 10 - 0.3
    drawn, _ = un.sample(denoiser, n=3, steps=4, seed=0)
    assert drawn.shape == (3, *shape) and bool(drawn.isfinite().all())


def test_untrained_clouds_are_unlike_and_ignore_the_state():
    process = un.JumpDiffusion((2,))
    network = default_network(process, "tiny", seed=0)
    out = network(torch.randn(5, 2), torch.rand(5, dtype=torch.float64)).detach()
    assert out.shape == (5, 8, 4) and torch.equal(out[0], out[1])
    assert float(torch.pdist(out[0, :, :2]).min()) > 1e-2
    with pytest.raises(ValueError, match="clouds = 0: at least one"):
        CloudMLPConfig(shape=(2,), clouds=0)
