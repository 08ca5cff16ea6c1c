"""Densities along the probability flow of closed spaces, with the term of volume, against oracles.

With the prior that the oracle has at t = 1 the flow's density is the oracle's at the cut-off, to the solver's tolerance.
The uniform prior, of which samples begin, is off by the slowest wave, 2 e^{-v/2} = 8e-5 at the default v = 4.5^2.
"""

import pytest
import torch

import unnoise as un
from unnoise.samplers.adaptive import FlowField

F64, TOLERANCE = torch.float64, 1e-6


def oracle(name):
    if name == "torus":
        means = torch.tensor([[-2.9, 0.4], [0.8, 3.0]], dtype=F64)
        process = un.WrappedNormal((2,))
    else:
        process = un.SphereHeat(int(name))
        means = process.space.project(un.NoiseSource(5, 2).normal((int(name) + 1,)))
    return un.oracles.heat_mixture(process, torch.tensor([0.6, 0.4]), means, torch.tensor([0.05, 0.3]))


SPACES = ["torus", *(pytest.param(name, marks=pytest.mark.conformance) for name in "123")]


@pytest.mark.parametrize("name", SPACES)
def test_the_flows_density_is_the_oracles(name):
    truth = oracle(name)
    x = truth.draw(un.NoiseSource(0, 3))
    ends = un.ProbabilityFlow(rtol=TOLERANCE, atol=TOLERANCE, prior=lambda y: truth.log_marginal(y, 1.0))
    found, info = un.likelihood(truth, x, ends)
    gap = (found - truth.log_marginal(x, 0.0)).abs()
    assert float(gap.max()) < 2e-5 and bool((gap < 2 * info.error + 1e-7).all()), (gap, info.error)
    even, _ = un.likelihood(truth, x, un.ProbabilityFlow(rtol=TOLERANCE, atol=TOLERANCE))
    assert float((even - found).abs().max()) < 2e-4


@pytest.mark.parametrize("name", SPACES)
def test_without_the_volume_it_is_no_density(name, monkeypatch):
    """The mutants: no divergence of the flow at all; and on spheres one with the radius's, u + x/2."""
    truth = oracle(name)
    x = truth.draw(un.NoiseSource(0, 3))
    wanted = truth.log_marginal(x, 0.0)
    velocity = FlowField.velocity

    def off(mutant):
        monkeypatch.setattr(FlowField, "velocity", mutant)
        found, _ = un.likelihood(truth, x, un.ProbabilityFlow(rtol=1e-3, atol=1e-3))
        return float((found - wanted).abs().max())

    assert off(lambda *state: velocity(*state).detach() + 0 * state[1]) > 1
    if name != "torus":
        assert off(lambda *state: velocity(*state) + 0.5 * (state[1] - state[1].detach())) > 0.5
