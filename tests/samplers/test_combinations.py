"""Sums of a step: the plain way against sums written out, and what is folded for one kernel against the plain way.

The kernel itself is tried in tests/kernels; here a stand-in takes its place, which gets what the kernel would get.
"""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.noise import NoiseSource
from unnoise.samplers import (
    DDIM,
    DEIS,
    LMS,
    Ancestral,
    DPMSolverPP,
    EulerMaruyama,
    Exponential,
    Heun,
    Leaves,
    UniPC,
    combinations,
    sample,
)
from unnoise.samplers.combinations import StepSums, combine

F64 = torch.float64
ROWS, STEPS = 5, 9
COVARIANCE = un.covariance.Covariance(torch.eye(4, dtype=F64) + 0.4 * torch.ones(4, 4, dtype=F64))


class StandIn:
    """What `kernels.linear` does, by torch; `calls` counts its launches."""

    MOST_INPUTS, MOST_SUMS, TYPES = combinations.fused.MOST_INPUTS, combinations.fused.MOST_SUMS, combinations.fused.TYPES

    def __init__(self):
        self.calls = []

    def available(self, device):
        return True

    def combine(self, inputs, matrix, scale=None, rows=None, key=None):
        assert len(inputs) <= self.MOST_INPUTS and len(matrix) <= self.MOST_SUMS
        assert all(len(row) == len(inputs) and all(isinstance(c, float) for c in row) for row in matrix)
        out = [sum(c * v for c, v in zip(row, inputs, strict=True)) for row in matrix]
        if rows is not None:
            assert isinstance(key, int)
            out[-1] = out[-1] + scale * NoiseSource.keyed(key, rows).normal(tuple(inputs[0].shape[1:]), inputs[0].dtype)
        self.calls.append(rows is not None)
        return out


@pytest.fixture
def fused(monkeypatch):
    stand_in = StandIn()
    monkeypatch.setattr(combinations, "fused", stand_in)
    return stand_in


def arrays(count, dtype=F64):
    return [torch.randn(ROWS, 4, dtype=dtype) for _ in range(count)]


def test_sums_of_sums():
    a, b, c = arrays(3)
    for coefficient in (0.7, torch.rand(4, dtype=F64)):
        first, second = combine((a, b, c), [[(2.0, 0), (-0.5, 1)], [(coefficient, 2), (3.0, ~0)]])
        torch.testing.assert_close(first, 2 * a - 0.5 * b, rtol=1e-15, atol=1e-15)
        torch.testing.assert_close(second, coefficient * c + 3 * first, rtol=1e-15, atol=1e-15)


def test_the_places_of_a_step():
    x, y = arrays(2)
    sums = StepSums()
    one, other = sums.given(x), sums.given(y)
    middle = sums.of((0.3, one), (0.6, other))
    end = sums.of((2.0, middle))
    made = sums.made()
    assert made[one] is x and made[other] is y
    torch.testing.assert_close(made[end], 2 * (0.3 * x + 0.6 * y))


def test_inputs_are_left_alone():
    x, y = arrays(2)
    before = x.clone(), y.clone()
    combine((x, y), [[(1.0, 0)], [(1.0, 1), (2.0, ~0)]], 0.5, NoiseSource(0, ROWS))
    assert torch.equal(x, before[0]) and torch.equal(y, before[1])


@pytest.mark.parametrize("covariance", [None, COVARIANCE], ids=["white", "coloured"])
def test_noise(covariance):
    (x,), noise = arrays(1), NoiseSource(3, ROWS).at("a")
    z = noise.normal((4,))
    coloured = z if covariance is None else covariance.colour(z)
    torch.testing.assert_close(combine((x,), [[(2.0, 0)]], 0.3, noise, covariance)[0], 2 * x + 0.3 * coloured)
    scale = torch.rand(ROWS, 4, dtype=F64)  # of each whitened coordinate
    expected = 2 * x + (scale * z if covariance is None else covariance.colour(scale * z))
    torch.testing.assert_close(combine((x,), [[(2.0, 0)]], scale, noise, covariance)[0], expected)
    assert torch.equal(combine((x,), [[(2.0, 0)]], 0.0, None, covariance)[0], 2 * x)


@pytest.mark.parametrize("covariance", [None, COVARIANCE], ids=["white", "coloured"])
@pytest.mark.parametrize("held", [False, True], ids=["key of the host", "key of the device"])
def test_folded_for_one_kernel(covariance, held, fused, monkeypatch):
    inputs, noise = arrays(4), NoiseSource(3, ROWS).at("a")
    if held:
        noise = NoiseSource.keyed(torch.tensor(noise.key), noise.rows)
    sums = [[(0.2, 1), (0.9, 0)], [(1.5, 2), (0.4, ~0), (-0.7, 3)], [(0.8, ~1), (0.1, ~0), (0.6, 3)]]
    with torch.no_grad():
        together = combine(inputs, sums, 0.3, noise, covariance)
    assert fused.calls == [covariance is None and not held]
    monkeypatch.setattr(fused, "available", lambda device: False)
    for a, b in zip(together, combine(inputs, sums, 0.3, noise, covariance), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-13)


def test_what_goes_the_plain_way(fused):
    """Gradients, coefficients of their own for coordinates, scales likewise, more inputs than there is room for, shapes that
    differ."""
    x, y = arrays(2)
    one = [[(0.5, 0), (0.25, 1)]]
    combine((x.requires_grad_(), y), one)[0].sum().backward()
    assert torch.equal(x.grad, torch.full_like(x, 0.5))
    with torch.no_grad():
        combine((x, y), [[(torch.rand(4, dtype=F64), 0), (0.25, 1)]])
        combine((x, y), one, torch.rand(4, dtype=F64), NoiseSource(0, ROWS))
        combine((x, y[:, :1]), one)
        combine(arrays(7), [[(0.5, k) for k in range(7)]])
        assert not fused.calls
        combine((x, y), one)
        assert fused.calls == [False]


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.line = nn.Linear(5, 4, dtype=F64)

    def forward(self, x, t):
        return self.line(torch.cat([x, t.unsqueeze(1)], 1)).tanh()


ONE = {  # methods whose steps are one kernel each
    "ddim": DDIM(),
    "ddim eta": DDIM(0.7),
    "euler-maruyama": EulerMaruyama(),
    "ancestral": Ancestral(),
    "2m": DPMSolverPP(2),
    "2m sde": DPMSolverPP(2, sde=True),
    "3m sde": DPMSolverPP(3, sde=True),
    "2s": DPMSolverPP(2, single=True),
    "3s": DPMSolverPP(3, single=True),
    "unipc 2": UniPC(2),
    "unipc": UniPC(3),
    "unipc four": UniPC(4, start_again=False),
}
MORE = {
    "two rounds": Ancestral(2),
    "3m": DPMSolverPP(3),
    "unipc 4": UniPC(4),
    "exponential": Exponential(3),
    "heun": Heun(),
    "churn": Heun(churn=5.0),
    "deis": DEIS(4),
    "lms": LMS(),
}


def drawn(kind, sampler, **options):
    torch.manual_seed(0)
    denoiser = un.Denoiser(Line(), un.Gaussian((4,), un.schedules.LinearBeta()), kind)
    return sample(denoiser, ROWS, STEPS, sampler, seed=1, start=0.98, end=0.02, **options)


@pytest.mark.parametrize("kind", [un.Clean, un.Noise, un.Velocity])
@pytest.mark.parametrize("name", ONE)
def test_a_step_is_one_kernel(name, kind, monkeypatch):
    plain, _ = drawn(kind, ONE[name])
    stand_in = StandIn()
    monkeypatch.setattr(combinations, "fused", stand_in)
    fused, _ = drawn(kind, ONE[name])
    assert len(stand_in.calls) == STEPS and set(stand_in.calls) == {ONE[name].draws}
    torch.testing.assert_close(fused, plain, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", MORE)
def test_other_methods_by_the_kernel(name, monkeypatch):
    plain, _ = drawn(un.Noise, MORE[name])
    monkeypatch.setattr(combinations, "fused", StandIn())
    fused, _ = drawn(un.Noise, MORE[name])
    torch.testing.assert_close(fused, plain, rtol=1e-11, atol=1e-11)


@pytest.mark.parametrize("name", ["2m", "unipc", "unipc four", "2m sde"])
def test_states_that_a_callback_changes(name, monkeypatch):
    def callback(i, t, state):
        return un.samplers.State(state.x.index_fill(0, torch.tensor([1]), 0.5), state.memory) if i == 4 else None

    plain, _ = drawn(un.Noise, ONE[name], callback=callback)
    monkeypatch.setattr(combinations, "fused", StandIn())
    fused, _ = drawn(un.Noise, ONE[name], callback=callback)
    torch.testing.assert_close(fused, plain, rtol=1e-11, atol=1e-11)


def test_leaves_of_a_product(monkeypatch):
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Line(), Line()

        def forward(self, x, t):
            return {"a": self.a(x["a"] + x["b"], t), "b": self.b(x["b"], t)}

    def draw():
        torch.manual_seed(0)
        process = un.Product(a=un.Gaussian((4,)), b=un.Gaussian((4,), covariance=COVARIANCE))
        denoiser = un.Denoiser(Both(), process, {"a": un.Velocity, "b": un.Clean})
        return sample(denoiser, ROWS, STEPS, Leaves(a=UniPC(), b=Ancestral()), seed=1)[0]

    plain, stand_in = draw(), StandIn()
    monkeypatch.setattr(combinations, "fused", stand_in)
    fused = draw()
    assert len(stand_in.calls) == 2 * STEPS
    for name, x in plain.items():
        torch.testing.assert_close(fused[name], x, rtol=1e-11, atol=1e-11)


def test_a_wrong_fold_is_found(monkeypatch):
    """Planted: a sum of sums forgets what it is a multiple of."""
    right = combinations._folded

    def wrong(inputs, sums, scale):
        return right(inputs, [[(1.0 if k < 0 else c, k) for c, k in terms] for terms in sums], scale)

    plain, _ = drawn(un.Noise, UniPC())
    monkeypatch.setattr(combinations, "fused", StandIn())
    monkeypatch.setattr(combinations, "_folded", wrong)
    fused, _ = drawn(un.Noise, UniPC())
    assert float((fused - plain).abs().max()) > 1e-3
