"""Processes on other spaces than numbers and categories, and control, on an accelerator: as on the host."""

import math

import pytest
import torch

import unnoise as un
from unnoise.networks import default_network
from unnoise.noise import NoiseSource

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs an accelerator"),
    pytest.mark.filterwarnings("ignore:Synchronization debug mode"),
]

ROWS = 64
DEVICES = ("cpu", "cuda")
PROCESSES = {
    "angles": un.WrappedNormal((3,)),
    "globe": un.SphereHeat(2),
    "S3": un.SphereHeat(3),
    "rotations": un.RotationHeat(),
    "compositions": un.WrightFisher([1.5, 2.0, 1.0]),
    "vertices": un.WrightFisher(3, vertices=True),
    "positive numbers": un.CoxIngersollRoss((3,)),
    "jumps": un.JumpDiffusion((2,), jumps=2.0, scale=2.0),
    "superposition": un.Superposition((2,)),
    "Kac": un.Kac((2,), visits=4),
    "zig-zag": un.ZigZag((2,), visits=4),
    "Hamiltonian": un.RandomisedHamiltonian((2,), visits=4),
    "bouncy": un.BouncyParticle((2,), visits=4),
}
WAITING = ("compositions", "vertices", "Kac", "zig-zag", "Hamiltonian", "bouncy")  # their draws look at the data
TURNING = ("angles",)  # where a whole turn is no difference


def data_of(name, process):
    noise = NoiseSource(0, ROWS)
    if name == "vertices":
        return process.space.vertices((3 * noise.uniform()).long())
    return process.prior(ROWS).draw(noise) if process.has_density and not process.by_paths else noise.normal((2,))


def denoiser_of(process, device):
    """With weights that are the same on both devices, and none of them 0."""
    network = default_network(process, "tiny", seed=0)
    for i, parameter in enumerate(network.parameters()):
        with torch.no_grad():
            parameter.copy_(0.1 * NoiseSource(i, 1).normal(tuple(parameter.shape))[0])
    return un.Denoiser(network, process).to(device)


def near(ours, theirs, atol, turning=False):
    """Up to rounding in all rows but one in 16: where an event is drawn, rounding may decide it for a few of them."""
    gap = (ours.double() - theirs.double()).abs()
    if turning:
        gap = torch.minimum(gap, (gap - 2 * math.pi).abs())
    rows = gap.reshape(len(gap), -1).amax(1) > atol * max(1.0, float(theirs.abs().max()))
    return float(rows.double().mean()) <= 1 / 16


@pytest.mark.parametrize("name", PROCESSES)
def test_a_space_is_the_same_on_both_devices(name):
    """Draws, bounds of rows, gradients and samples; and no step of training waits for the device, where none has to."""
    process, found = PROCESSES[name], {}
    start = data_of(name, process)
    for device in DEVICES:
        denoiser, x0 = denoiser_of(process.to(device), device), start.to(device)
        objective = un.Objective(denoiser)
        losses = objective(x0, NoiseSource(1, ROWS, device)).loss
        losses.median().backward()
        grads = torch.cat([p.grad.flatten() for p in denoiser.network.parameters() if p.grad is not None])
        drawn = x0 if process.by_paths else process.marginal(x0, 0.6).draw(NoiseSource(2, ROWS, device))
        samples, _ = un.sample(denoiser, n=ROWS, steps=4, seed=3, device=device)
        found[device] = [part.detach().cpu() for part in (losses, drawn, samples, grads[None])]
        if device == "cuda" and name not in WAITING:
            torch.cuda.set_sync_debug_mode("error")
            try:
                objective(x0, NoiseSource(1, ROWS, device)).loss.mean().backward()
            finally:
                torch.cuda.set_sync_debug_mode("default")
    turning = name in TURNING
    for part, ours, theirs, atol in zip(
        ("bounds", "draws", "samples", "gradients"), found["cuda"], found["cpu"], (1e-3, 1e-4, 5e-3, 5e-3), strict=True
    ):
        assert bool(ours.isfinite().all()), (name, part)
        assert near(ours, theirs, atol, turning), (name, part, float((ours - theirs).abs().max()))


def steered(name, device):
    """A target of a network with weights of its own, a method and a number of steps."""
    if name == "rewarded numbers":
        numbers = denoiser_of(un.Gaussian((2,)), device)
        return un.targets.rewarded(numbers, lambda x: x.sum(-1), 1.0), un.samplers.Particles(8), 16
    letters = denoiser_of(un.Masking(3, (8,)), device)
    if name == "tempered letters":
        return un.targets.tempered(letters, 2.0), un.samplers.Particles(8), None
    return un.targets.restricted(letters, un.guidance.regular("a.*(bb|cc).*", "abc")), un.samplers.Particles(8), None


@pytest.mark.parametrize("name", ["tempered letters", "letters by a rule", "rewarded numbers"])
def test_particles_are_the_same_on_both_devices(name):
    found = {}
    for device in DEVICES:
        target, sampler, steps = steered(name, device)
        x, info = un.sample(target, n=ROWS, sampler=sampler, steps=steps, seed=0, device=device)
        found[device] = (x.cpu(), torch.tensor(info.particles.estimate()))
    assert near(found["cuda"][0], found["cpu"][0], 1e-3)
    assert float((found["cuda"][1] - found["cpu"][1]).abs().max()) < 1e-2
