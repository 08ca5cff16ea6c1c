"""Recorded networks and runs, where there is no accelerator: the plain way, and clear errors."""

import pytest
import torch

import unnoise as un
from unnoise.samplers import DDIM, CapturedRun, FirstHitting, captured, sample

ORACLE = un.oracles.normal(un.Gaussian((2,)), torch.tensor([0.7, -0.3]), torch.diag(torch.tensor([0.5, 0.3])))


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(2, 2)

    def forward(self, x, t):
        return self.line(x)


def test_on_the_cpu_a_captured_network_is_itself():
    denoiser = un.Denoiser(Network(), un.Gaussian((2,)), un.Clean)
    plain, _ = sample(denoiser, 5, 4, DDIM(), seed=0)
    recorded, _ = sample(captured(denoiser), 5, 4, DDIM(), seed=0)
    assert torch.equal(plain, recorded)
    assert isinstance(denoiser.network, Network)  # the denoiser given is left as it was


def test_on_the_cpu_a_captured_run_samples_in_the_plain_way():
    draw = CapturedRun(ORACLE, 4, 6, DDIM(), seed=2)
    both = torch.cat([draw(0)[0], draw(4)[0]])
    assert torch.equal(both, sample(ORACLE, 8, 6, DDIM(), seed=2)[0])


def test_a_chain_is_recorded_on_its_own_grid():
    chain = ORACLE.predicting(None, un.Chain(ORACLE.process, 5))
    x, info = CapturedRun(chain, 4, sampler=DDIM(), seed=0)(0)
    assert info.calls == 5 and torch.equal(x, sample(chain, 4, sampler=DDIM(), seed=0)[0])


def test_what_cannot_be_recorded_is_refused():
    masked = un.oracles.table(un.Masking(3, (2,)), torch.ones(9) / 9)
    with pytest.raises(TypeError, match="cannot be recorded"):
        CapturedRun(masked, 4, 6, FirstHitting(), seed=0)
    with pytest.raises(ValueError, match="at least one sample"):
        CapturedRun(ORACLE, 0, 6, DDIM(), seed=0)
    with pytest.raises(TypeError, match="no network to record"):
        captured(ORACLE)
