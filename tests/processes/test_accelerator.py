"""Processes that live on another device: nothing is read back from it, and nothing is left behind.

A meta tensor has no values: any look at one, which would make the host wait for a device, raises.
"""

import pytest
import torch

import unnoise as un

PROCESSES = {
    "interpolation": lambda: un.Interpolation(3, 2, torch.tensor([0.5, 0.2, 0.3])),
    "interpolation, own": lambda: un.Interpolation(3, 2, torch.tensor([[0.5, 0.2, 0.3], [0.1, 0.1, 0.8]])),
    "interpolation, mask": lambda: un.Interpolation(3, 2, un.noise_laws.uniform_with_mask(3)),
    "mixture": lambda: un.Mixture.uniform_and_mask(3, 2),
    "rates": lambda: un.RateMatrix(un.rate_matrices.nearest_neighbour(3), 2),
    "rates, shared": lambda: un.RateMatrix(un.rate_matrices.nearest_neighbour(2), 3),
    "eigen": lambda: un.RateMatrix(un.rate_matrices.nearest_neighbour(3), 2, method="eigen"),
    "birth and death": lambda: un.BirthDeath(2, 2),
    "pure death": lambda: un.BirthDeath(2, 2, occupancy=0.0),
}


@pytest.mark.parametrize("name", PROCESSES)
def test_values_are_not_read(name):
    process = PROCESSES[name]().to("meta")
    shape, size = process.space.shape, process.space.size
    s, t = (torch.zeros(4, dtype=torch.float64, device="meta") for _ in range(2))
    x = torch.zeros(4, *shape, dtype=torch.int64, device="meta")
    rows = torch.zeros(4, dtype=torch.int64, device="meta")
    noise, full = un.NoiseSource(0, rows), (4, *shape, process.state_space.size)
    assert process.marginal(x, t).log_probs.shape == full
    assert process.marginal(x, t).draw(noise).shape == x.shape
    assert process.transition(x, s, t).draw(noise).shape == x.shape
    assert process.posterior(x, x, s, t).log_probs.shape == full
    assert process.local(x, t).log_rates.shape == full
    assert process.reverse(x, x, t).local().log_rates.shape == full
    assert process.prior_kl(x).shape == (4,) and process.prior_kl(x).device.type == "meta"
    assert process.prior(4, device="meta").draw(noise).shape == x.shape
    assert process.movable(x).shape == x.shape
    prediction = un.Posterior(torch.zeros(4, *shape, size, device="meta"), process, x, t)
    assert prediction.step(s).log_probs.shape == full and prediction.local().log_rates.shape == full
