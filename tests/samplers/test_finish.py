"""Samples are data, and the defaults of schedules, kinds and samplers go together."""

from itertools import product

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import samplers as S

F64 = torch.float64
LAW = torch.tensor([0.5, 0.2, 0.3], dtype=F64)
LEAPS = [S.Euler, S.TauLeaping, S.ThetaTrapezoidal, S.ThetaRK2, S.FromGenerator]


class Constant(nn.Module):
    """The same output for every state."""

    def __init__(self, value=None):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()) if value is None else value)

    def forward(self, x, t):
        return 0 * x + self.weight if x.dtype.is_floating_point else self.weight.expand(*x.shape, -1)


def pairs():
    law = torch.rand(9, dtype=F64, generator=torch.Generator().manual_seed(0))
    return un.oracles.table(un.Masking(3, (2,)), law / law.sum())


@pytest.mark.parametrize("method", LEAPS)
def test_no_mask_is_left(method):
    x, info = un.sample(pairs(), 400, 8, method(), seed=0)
    raw, before = un.sample(pairs(), 400, 8, method(), seed=0, finish=False)
    left = raw == 3
    assert left.any() and not (x == 3).any()
    assert torch.equal(x[~left], raw[~left])  # nothing else is touched
    assert info.calls == before.calls + 1 and info.rows == before.rows + int(left.any(1).sum())


def test_nothing_is_asked_where_nothing_is_left():
    x, info = un.sample(pairs(), 50, 8, S.Ancestral(), seed=0)
    assert info.calls == 8 and not (x == 3).any()


def test_a_budget_has_room_for_the_last_call():
    for calls in (4, 9):
        _, info = un.sample(pairs(), 400, sampler=S.ThetaTrapezoidal(), calls=calls, seed=0)
        assert info.calls <= calls
    _, info = un.sample(pairs(), 400, sampler=S.Ancestral(), calls=9, seed=0)
    assert info.calls == 9
    with pytest.raises(ValueError, match="needs 2"):
        un.sample(pairs(), 4, sampler=S.Euler(), calls=1, seed=0)


def test_what_is_stopped_or_ends_before_the_data_is_left_as_it_is():
    x, _ = un.sample(pairs(), 200, 4, S.Euler(), seed=0, end=0.5)
    assert (x == 3).any()

    def stop(i, t, state):
        raise S.StopSampling

    x, info = un.sample(pairs(), 200, 4, S.Euler(), seed=0, callback=stop)
    assert (x == 3).any() and info.stopped is not None


def test_trajectories_end_on_the_samples():
    x, info = un.sample(pairs(), 100, 4, S.Euler(), seed=0, trajectory=True)
    assert torch.equal(info.trajectory[-1], x) and (info.trajectory[-2] == 3).any()


def chi_square(x, law):
    counts = torch.bincount(x, minlength=len(law)).double()
    expected = law * len(x)
    return float(((counts - expected).square() / expected).sum())


@pytest.mark.parametrize("method", [S.Euler, S.TauLeaping])
def test_one_coordinate_has_the_law_of_the_data(method):
    """What leaps reveal and what the last step draws both have the model's law: chi-square with 2 degrees of freedom, above
    27.6 once in a million.  Filled in by a uniform draw it is far above."""
    oracle = un.oracles.table(un.Masking(3, (1,)), LAW)
    x, _ = un.sample(oracle, 20000, 3, method(), seed=0)
    assert chi_square(x.flatten(), LAW) < 27.6
    raw, _ = un.sample(oracle, 20000, 3, method(), seed=0, finish=False)
    wrong = torch.where(raw == 3, torch.randint(3, raw.shape, generator=torch.Generator().manual_seed(0)), raw)
    assert chi_square(wrong.flatten(), LAW) > 60


def test_two_coordinates_have_the_law_that_is_stated():
    """Euler's chain of two steps, worked out over all 16 states, then the last draw with coordinates as if independent:
    chi-square with 8 degrees of freedom, above 42.7 once in a million.  Drawn jointly, as the data are, it is far above."""
    oracle = pairs()
    process, states = oracle.process, torch.tensor(list(product(range(4), repeat=2)))
    p = torch.zeros(16, dtype=F64)
    p[15] = 1.0

    def kernel(t, s):
        rates = oracle(states, t).local().rates.double()
        total = rates.sum(-1, keepdim=True)
        leave = -torch.expm1(-(t - s) * total)
        probs = leave * rates / total.clamp_min(1e-300)
        probs = probs.scatter(-1, states.unsqueeze(-1), 1 - leave)
        return (probs[:, 0, :, None] * probs[:, 1, None, :]).flatten(1)

    p = p @ kernel(1.0, 0.5) @ kernel(0.5, 0.0)
    clean = oracle(states, 0.5).clean_law().probs.double()  # of what is not masked it is the value itself
    law = (p[:, None] * (clean[:, 0, :, None] * clean[:, 1, None, :]).flatten(1)).sum(0)
    x, _ = un.sample(oracle, 20000, 2, S.Euler(), seed=1)
    places = x[:, 0] * 3 + x[:, 1]
    assert chi_square(places, law) < 42.7
    data = oracle.draw(un.NoiseSource(0, 20000))
    assert chi_square(data[:, 0] * 3 + data[:, 1], law) > 80
    assert process.unfinished(x).sum() == 0


def test_leaves_of_a_product_are_finished_each():
    space = un.Product(a=un.Masking(3, (2,)), y=un.Gaussian((2,)), b=un.Masking(4, (1,)))

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))

        def forward(self, x, t):
            a, b = (torch.zeros(*x[name].shape, size) for name, size in (("a", 3), ("b", 4)))
            return {"a": a + self.weight, "y": 0 * x["y"] + self.weight, "b": b + self.weight}

    method = S.Leaves(a=S.Euler(), y=S.DDIM(), b=S.TauLeaping())
    model = un.Denoiser(Network(), space)
    raw, _ = un.sample(model, 200, 4, method, seed=0, finish=False)
    x, _ = un.sample(model, 200, 4, method, seed=0)
    assert (raw["a"] == 3).any() and (raw["b"] == 4).any()
    assert not (x["a"] == 3).any() and not (x["b"] == 4).any()
    assert torch.equal(x["y"], raw["y"])


NUMBERS = [S.Ancestral, S.DDIM, S.EulerMaruyama, S.Exponential, S.DPMSolverPP, S.UniPC, S.DEIS, S.Heun, S.AdaptiveODE]
CATEGORIES = [S.Ancestral, S.Euler, S.TauLeaping, S.ThetaTrapezoidal, S.ThetaRK2, S.FromGenerator]


@pytest.mark.parametrize("kind", [un.Clean, un.Velocity, un.Noise, un.Score, un.Flow])
def test_every_kind_of_numbers_samples_under_the_default_schedule(kind):
    """The noise and the score say nothing of x_0 at t = 1, where alpha = 0: a run starts where alpha/sigma is e^-5."""
    process = un.Gaussian((2,))
    model = un.Denoiser(Constant(), process, kind)
    for method in (None, *(make() for make in NUMBERS)):
        x, info = un.sample(model, 4, None if method is None else 8, method, seed=0)
        assert bool(x.isfinite().all())
        start = float(info.times[0])
        if kind in (un.Noise, un.Score):
            assert abs(float(process.schedule.log_snr(start)) + 10) < 1e-6
        else:
            assert start == 1


@pytest.mark.parametrize("kind", [un.Posterior, un.RawPosterior, un.Ratio, un.Rates])
@pytest.mark.parametrize("process", [un.Masking(3, (2,)), un.Uniform(3, (2,))], ids=["masking", "uniform"])
def test_every_kind_of_categories_samples_under_the_default_schedule(process, kind):
    size = process.state_space.size if kind in (un.Ratio, un.Rates) else 3
    model = un.Denoiser(Constant(torch.zeros(size)), process, kind)
    for method in (None, *(make() for make in CATEGORIES)):
        x, info = un.sample(model, 20, None if method is None else 8, method, seed=0)
        assert int(x.max()) < 3
        frozen = method is not None and not isinstance(method, S.Ancestral)
        early = process.absorbing or not (frozen or kind in (un.Ratio, un.Rates))
        assert (float(info.times[0]) == 1) == early


def test_the_stand_in_for_the_first_law_hardly_differs():
    """Noise prediction on Gaussian data: what the prior lacks at the start is e^-10 |x_0|^2/2 nats."""
    oracle = un.oracles.normal(un.Gaussian((1,)), torch.tensor([2.0], dtype=F64), torch.tensor([[0.25]], dtype=F64))
    start = oracle.process.latest
    gap = float(oracle.process.prior_kl(torch.full((1, 1), 2.0, dtype=F64), start))
    assert 0 < gap < 1e-3
    x, _ = un.sample(oracle, 4000, 64, S.DPMSolverPP(), seed=0, start=start)
    assert abs(float(x.mean()) - 2) < 5 * 0.5 / 4000**0.5 and abs(float(x.std()) - 0.5) < 5 * 0.5 / 8000**0.5


def test_the_last_step_of_edm():
    """To sigma = 0: the clean prediction at the last state; of normal data x shrinks by C/(C + sigma^2) towards the mean."""
    process = un.Gaussian((1,), un.schedules.EDM(0.5, 80.0))
    mean, variance = torch.tensor([2.0], dtype=F64), torch.tensor([[0.25]], dtype=F64)
    oracle = un.oracles.normal(process, mean, variance)
    options = {"steps": 12, "sampler": S.Heun(), "grid": S.grids.Karras(), "seed": 0}
    raw, before = un.sample(oracle, 50, **options)
    x, info = un.sample(oracle, 50, **options, denoise=True)
    torch.testing.assert_close(x, mean + 0.25 / (0.25 + 0.25) * (raw - mean))
    assert info.calls == before.calls + 1
    plain = un.oracles.normal(un.Gaussian((1,)), mean, variance)  # which ends without noise
    again = [un.sample(plain, 50, steps=8, seed=0, denoise=denoise) for denoise in (False, True)]
    assert torch.equal(again[0][0], again[1][0]) and again[0][1].calls == again[1][1].calls
