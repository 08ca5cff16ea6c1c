"""Recorded networks and runs, where there is no accelerator: the plain way, and clear errors."""

import pytest
import torch

import unnoise as un
from unnoise.samplers import DDIM, Ancestral, CapturedRun, Euler, FirstHitting, Frozen, Leaves, captured, sample

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


class OnHost(CapturedRun):
    """What a recording does, without an accelerator: the same work, by the same tensors, at every replay."""

    recorded_on = ("cpu",)

    @staticmethod
    def record(work):
        work()
        return work


MIXED = un.Product(x=un.Gaussian((2,)), c=un.Masking(3, (4,)))


class Told(torch.nn.Module):
    """A network of two numbers and four letters that is told a label."""

    def __init__(self):
        super().__init__()
        self.line = torch.nn.Linear(2 + 4 + 1, 2 + 12)

    def forward(self, x, t, label):
        t = t["c"] if isinstance(t, dict) else t
        h = self.line(torch.cat([x["x"], x["c"].to(x["x"]), (t + label).to(x["x"]).unsqueeze(1)], 1))
        return {"x": h[:, :2], "c": h[:, 2:].reshape(-1, 4, 3)}


def started(first: int, count: int) -> dict:
    prior = MIXED.prior(count, torch.float32)
    return prior.draw(un.NoiseSource(9, torch.arange(first, first + count)))


def same(x, y) -> bool:
    return all(torch.equal(x[name], y[name]) for name in y)


@pytest.mark.parametrize(
    "method", [Leaves(x=DDIM(), c=Ancestral()), Leaves(x=Frozen(), c=Ancestral()), Leaves(DDIM(), c=Euler())]
)
def test_every_replay_has_its_own_states_condition_and_rows(method):
    """A leaf that is held, and one that a leap may leave masked, which is drawn at the end."""
    denoiser = un.Denoiser(Told(), MIXED, {"x": un.Clean, "c": un.Posterior})
    label = torch.arange(6.0)
    draw = OnHost(denoiser, 6, 5, method, seed=2, x=started(0, 6), condition={"label": label})
    assert draw.replay is not None
    for first, told in ((0, None), (6, None), (6, label.flip(0)), (0, label)):
        x, info = draw(first, x=started(first, 6), condition=None if told is None else {"label": told})
        condition = {"label": label if told is None else told}
        plain, plainly = sample(denoiser, None, 5, method, seed=2, x=started(first, 6), first=first, condition=condition)
        assert same(x, plain) and (info.calls, info.rows, info.seed) == (plainly.calls, plainly.rows, 2)
    chosen = torch.tensor([40, 2, 7, 7, 0, 5])
    x, _ = draw(x=started(0, 6), rows=chosen, condition={"label": label})
    assert same(x, sample(denoiser, None, 5, method, seed=2, x=started(0, 6), rows=chosen, condition={"label": label})[0])
    kept = {name: value.clone() for name, value in x.items()}
    draw(12, x=started(12, 6))
    assert same(x, kept)  # what was drawn is not written over


def test_replays_from_the_prior_are_the_next_samples():
    draw = OnHost(ORACLE, 4, 6, DDIM(1.0), seed=2, warm_up=False)
    both = torch.cat([draw(0)[0], draw(4)[0]])
    assert torch.equal(both, sample(ORACLE, 8, 6, DDIM(1.0), seed=2)[0])
    assert draw(4)[1].calls == 6


def test_a_recorded_run_starts_where_a_plain_one_does():
    """Where a method has no use of t = 1 both start a little before."""

    class Late(DDIM):
        def latest(self, process):
            return 0.9

    draw = OnHost(ORACLE, 4, 6, Late(), seed=2)
    assert float(draw.times[0]) == 0.9 and torch.equal(draw()[0], sample(ORACLE, 4, 6, Late(), seed=2)[0])
    few = OnHost(ORACLE, 4, sampler=DDIM(), calls=3, seed=2)
    assert few()[1].calls == 3


def test_what_differs_from_the_recording_is_refused():
    label, denoiser = torch.zeros(6), un.Denoiser(Told(), MIXED, {"x": un.Clean, "c": un.Posterior})
    method = Leaves(x=DDIM(), c=Ancestral())
    draw = OnHost(denoiser, 6, 3, method, seed=0, x=started(0, 6), condition={"label": label})
    with pytest.raises(ValueError, match="from states x: pass them"):
        draw(0)
    with pytest.raises(ValueError, match="x has 5 rows, and the run was recorded for 6"):
        draw(0, x=started(0, 5))
    for wrong in ({}, {"label": label, "more": label}, {"label": torch.zeros(6, 2)}):
        with pytest.raises(ValueError, match="condition has another form"):
            draw(0, x=started(0, 6), condition=wrong)
    with pytest.raises(ValueError, match="from the prior: leave x out"):
        OnHost(ORACLE, 4, 6, DDIM(), seed=0)(0, x=torch.zeros(4, 2))
