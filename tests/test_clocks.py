"""The clocks of a run: the times themselves in float64, and rounded as each would be by itself."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import clocks
from unnoise.clocks import Timetable, as_told, spread

F32, F64 = torch.float32, torch.float64
TIMES = torch.linspace(0.9999, 1e-4, 13, dtype=F64)


@pytest.mark.parametrize("chunk", [1, 7, 2**20])
def test_rounded_as_each_by_itself(chunk, monkeypatch):
    monkeypatch.setattr(clocks, "CHUNK", chunk)
    made = clocks.moments(TIMES)
    for dtype, rows in ((F32, 3), (torch.bfloat16, 3), (F32, 5)):
        for moment, t in zip(made, TIMES, strict=True):
            clock = spread(moment, rows)
            assert clock.dtype == F64 and torch.equal(clock, t.expand(rows))
            told = as_told(clock, dtype)
            assert told.dtype == dtype and told.is_contiguous() and torch.equal(told, t.expand(rows).to(dtype))


def test_nothing_is_done_to_what_is_exact_or_is_no_clock_of_a_run():
    clock, t = spread(clocks.moments(TIMES)[0], 3), torch.rand(3, dtype=F64)
    assert as_told(clock, F64) is clock
    assert torch.equal(as_told(t, F32), t.float()) and spread(t, 3) is t
    assert torch.equal(as_told(spread(t[0], 4), F32), t[:1].float().expand(4))


def test_many_are_rounded_at_once(monkeypatch):
    asked, rounded = [], Timetable.rounded

    def noted(self, *which):
        before = self.known
        out = rounded(self, *which)
        asked.append(self.known != before)
        return out

    monkeypatch.setattr(Timetable, "rounded", noted)
    monkeypatch.setattr(clocks, "CHUNK", 5 * 4)
    for moment in clocks.moments(TIMES):
        as_told(spread(moment, 4), F32)
    assert [i for i, new in enumerate(asked) if new] == [0, 5, 10]


class Told(nn.Module):
    """Keeps the times that it is told."""

    def __init__(self, dtype):
        super().__init__()
        self.weight, self.times = nn.Parameter(torch.ones((), dtype=dtype)), []

    def forward(self, x, t):
        self.times.append(t)
        return 0.5 * x * self.weight


@pytest.mark.parametrize("dtype", [F32, F64])
@pytest.mark.parametrize(
    "sampler", [un.samplers.DDIM(), un.samplers.Ancestral(2), un.samplers.Heun()], ids=lambda s: type(s).__name__
)
def test_a_network_is_told_the_times_of_the_grid(sampler, dtype):
    network = Told(dtype)
    denoiser = un.Denoiser(network, un.Gaussian((2,)), un.Clean)
    _, info = un.sample(denoiser, 4, 6, sampler, seed=0, start=0.9, end=0.05)
    told = torch.stack(network.times)
    assert told.dtype == dtype and told.shape == (info.calls, 4)
    expected = {1: info.times[:-1], 2: info.times[:-1].repeat_interleave(2)}[sampler.stages]
    if isinstance(sampler, un.samplers.Heun):
        expected = torch.stack([info.times[:-1], info.times[1:]], 1).flatten()
    assert torch.equal(told, expected.to(dtype).unsqueeze(1).expand(-1, 4))
