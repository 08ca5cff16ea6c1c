"""Recorded updates: buffers carry all that differs, so that a replay is the plain update; else they are run plainly.

There is no accelerator here, so a replay is the update's own code, called again on its buffers.
"""

import pytest
import torch

import unnoise as un
from unnoise.networks.presets import default_network
from unnoise.noise import NoiseSource
from unnoise.training.captured import PLAIN, Captured
from unnoise.training.config import TrainConfig
from unnoise.training.learner import Learner, accelerator_for

LR = 2.0**-8  # a rate that float32 holds


def replaying(update):
    """A stand-in for a graph: nothing happens when it is recorded."""
    return update


def learner(process, captured: bool, optimiser: str) -> Learner:
    torch.manual_seed(0)
    denoiser = un.Denoiser(default_network(process, "tiny"), process, un.predictions.default_kind(process))
    config = TrainConfig(steps=9, device="cpu", ema=(0.5, 0.9), optimiser=optimiser)
    made = Learner(denoiser, config, accelerator_for(config))
    if captured:
        made.captured = Captured(made.apply, replaying)
    return made


def trained(made: Learner, x0, steps: int = PLAIN + 4) -> list[torch.Tensor]:
    for step in range(steps):
        rows = torch.tensor([3, 1, 4, 1 + step])
        part = un.tree.map_leaves(lambda leaf, rows=rows: leaf[rows], x0)
        made.update([(part, NoiseSource(7, rows).at("epoch", 0, "batch", step))], 1, step + 1, LR / (step + 1))
    sums, good, bad = made.read()
    assert good == steps and not bad
    state = [p for part in made.parts().values() for p in part.values()]
    return [*state, torch.tensor(list(sums.values()))]


PROCESSES = {
    "masking": un.Masking(5, (6,)),
    "numbers": un.Gaussian((3,)),
    "table": un.Product(a=un.Gaussian((1,)), c=un.Masking([2, 3], (2,))),
}


@pytest.mark.parametrize("name", PROCESSES)
@pytest.mark.parametrize("optimiser", ["adamw", "muon"])
def test_a_replay_is_the_plain_update(name, optimiser):
    process = PROCESSES[name]
    x0 = process.prior(12, torch.float32).draw(NoiseSource(0, 12))
    x0 = un.tree.map_leaves(lambda leaf: leaf if leaf.dtype.is_floating_point else leaf % 2, x0)
    plain = trained(learner(process, False, optimiser), x0)
    made = learner(process, True, optimiser)
    replayed = trained(made, x0)
    assert made.captured.recorded and not made.captured.refused
    for one, other in zip(plain, replayed, strict=True):
        torch.testing.assert_close(one, other, rtol=2e-5, atol=2e-6)


def test_a_key_that_is_not_renewed_would_show(monkeypatch):
    process = PROCESSES["masking"]
    x0 = torch.randint(5, (12, 6), generator=torch.Generator().manual_seed(0))
    plain = trained(learner(process, False, "adamw"), x0)
    made = learner(process, True, "adamw")
    kept = NoiseSource.keyed
    monkeypatch.setattr(NoiseSource, "keyed", lambda key, rows: kept(0, rows))  # a planted mistake: the key is frozen
    replayed = trained(made, x0)
    assert max(float((a.double() - b.double()).abs().max()) for a, b in zip(plain, replayed, strict=True)) > 1e-2


def test_what_cannot_be_recorded_is_run_plainly():
    def refusing(update):
        raise RuntimeError("operation not permitted when stream is capturing\nmore")

    process = PROCESSES["numbers"]
    x0 = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    plain, made = trained(learner(process, False, "adamw"), x0), learner(process, False, "adamw")
    made.captured = Captured(made.apply, refusing)
    with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
        other = trained(made, x0)
    assert all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))


def test_gradients_of_a_failed_recording_are_not_added_to():
    process = PROCESSES["numbers"]
    x0 = torch.randn(12, 3, generator=torch.Generator().manual_seed(0))
    plain, made = trained(learner(process, False, "adamw"), x0), learner(process, False, "adamw")

    def failing(update):
        for p in made.optimiser.parameters:  # as of a backward pass that was recorded and never ran
            p.grad = torch.full_like(p, 100.0)
        raise RuntimeError("operation not permitted when stream is capturing")

    made.captured = Captured(made.apply, failing, made.optimiser.parameters)
    with pytest.warns(UserWarning, match="not permitted when stream is capturing"):
        other = trained(made, x0)
    assert all(torch.equal(a, b) for a, b in zip(plain, other, strict=True))


@pytest.mark.parametrize("labels", [(), ("step", 3), (2, "leaf", 1)])
def test_a_key_on_the_device_gives_the_same_numbers(labels):
    rows = torch.tensor([5, 0, 2**40])
    base = NoiseSource(11, rows).at("epoch", 4)
    one, other = base.at(*labels), NoiseSource.keyed(torch.tensor(base.key), rows).at(*labels)
    assert torch.equal(one.uniform((3,)), other.uniform((3,))) and torch.equal(one.normal(), other.normal())
    assert torch.equal(one.shared_uniform(), other.shared_uniform())
    assert torch.equal(one.of(torch.tensor([2])).uniform(), other.of(torch.tensor([2])).uniform())
    assert torch.equal(one.repeated(2).uniform((2,)), other.repeated(2).uniform((2,)))
