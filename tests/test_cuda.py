"""What holds on an accelerator: skipped where there is none."""

import pytest
import torch

import unnoise as un
from unnoise.noise import Noise
from unnoise.samplers import DDIM, Ancestral, CapturedRun, DPMSolverPP, Heun, Reveal, UniPC, captured, sample

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator")


def test_numbers_are_the_same_on_both_devices():
    for shape in ((), (7,), (3, 500)):
        here, there = Noise(5, 33).at("a", 2), Noise(5, 33, "cuda").at("a", 2)
        assert torch.equal(here.uniform(shape), there.uniform(shape).cpu())
        torch.testing.assert_close(here.normal(shape), there.normal(shape).cpu(), rtol=1e-13, atol=1e-15)
        single = there.normal(shape, torch.float32).cpu()
        torch.testing.assert_close(here.normal(shape).float(), single, rtol=1e-6, atol=1e-7)
    negative = Noise(2**61 + 12345, torch.tensor([5, -9]))
    assert torch.equal(negative.uniform((4,)), Noise(2**61 + 12345, torch.tensor([5, -9]), "cuda").uniform((4,)).cpu())


def small_denoiser(kind=un.Clean):
    torch.manual_seed(0)

    class Small(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(9, 32), torch.nn.SiLU(), torch.nn.Linear(32, 8))

        def forward(self, x, t):
            return self.body(torch.cat([x, t.unsqueeze(1)], 1))

    return un.Denoiser(Small(), un.Gaussian((8,), un.schedules.LinearBeta()), predicts=kind)


SAMPLERS = {
    "ddim": DDIM(),
    "ddim-1": DDIM(1.0),
    "2m": DPMSolverPP(2),
    "3m": DPMSolverPP(3),
    "unipc": UniPC(),
    "heun": Heun(),
}


@pytest.mark.parametrize("name", SAMPLERS)
@pytest.mark.parametrize("kind", [un.Clean, un.Velocity])
def test_samples_are_the_same_on_both_devices(name, kind):
    denoiser = small_denoiser(kind)
    here, _ = sample(denoiser, 20, 12, SAMPLERS[name])
    there, _ = sample(denoiser.cuda(), 20, 12, SAMPLERS[name])
    torch.testing.assert_close(here, there.cpu(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", SAMPLERS)
def test_a_captured_network_gives_the_same_samples(name):
    denoiser = small_denoiser().cuda()
    plain, _ = sample(denoiser, 20, 12, SAMPLERS[name])
    recorded = captured(denoiser)
    for _ in range(2):
        again, info = sample(recorded, 20, 12, SAMPLERS[name])
        torch.testing.assert_close(plain, again, rtol=0, atol=1e-6)
    assert len(recorded.network.recordings) == 1 and info.calls >= 12
    other, _ = sample(recorded, 7, 12, SAMPLERS[name])
    torch.testing.assert_close(plain[:7], other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", SAMPLERS)
def test_no_step_waits_for_the_device(name):
    """After a first run, whose kernels are compiled: from the first call of the network on nothing is read."""
    denoiser = small_denoiser(un.Velocity).cuda()
    sample(denoiser, 20, 12, SAMPLERS[name])
    forward = denoiser.network.forward

    def watched(*arguments):
        torch.cuda.set_sync_debug_mode("error")
        return forward(*arguments)

    denoiser.network.forward = watched
    try:
        sample(denoiser, 20, 12, SAMPLERS[name])
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_no_reveal_waits_for_the_device():
    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = torch.nn.Embedding(12, 16), torch.nn.Linear(16, 11)

        def forward(self, x, t):
            torch.cuda.set_sync_debug_mode("error")
            return self.out(self.embed(x))

    denoiser = un.Denoiser(Tokens().cuda(), un.Masking(11, (24,)))
    try:
        x, _ = sample(denoiser, 20, 12, Reveal())
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert int(x.max()) < 11


@pytest.mark.parametrize("name", [*SAMPLERS, "ancestral"])
def test_a_captured_run_draws_the_same_samples(name):
    denoiser, sampler = small_denoiser().cuda(), {**SAMPLERS, "ancestral": Ancestral()}[name]
    draw = CapturedRun(denoiser, 20, 12, sampler, seed=3)
    for first in (0, 20, 0):
        again, info = draw(first)
        plain, told = sample(denoiser, 20, 12, sampler, seed=3, first=first)
        torch.testing.assert_close(plain, again, rtol=0, atol=1e-6)
        assert info.calls == told.calls


def test_a_captured_run_of_categories():
    class Tokens(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.out = torch.nn.Embedding(12, 16), torch.nn.Linear(16, 11)

        def forward(self, x, t):
            return self.out(self.embed(x))

    denoiser = un.Denoiser(Tokens().cuda(), un.Masking(11, (24,)))
    x, _ = CapturedRun(denoiser, 20, 12, Ancestral())(0)
    assert torch.equal(x, sample(denoiser, 20, 12, Ancestral())[0])
