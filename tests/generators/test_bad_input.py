"""Unusual input to operators and their equations: answered where it has a meaning, else refused with value and remedy."""

from math import inf, log, nan, pi

import pytest
import torch

import unnoise as un
from unnoise import generators
from unnoise.generators import FokkerPlanck, Generator, KroneckerSum, divergence_rate, uniformised
from unnoise.laws import LOG_ZERO

F64 = torch.float64
LINE = un.Euclidean((1,))
X = torch.tensor([[0.5], [1.0]], dtype=F64)
Z = torch.tensor([[0, 1], [2, 2]])
FLIP = torch.tensor([[-1.0, 2.0], [1.0, -2.0]])


def square(x):
    return x.double().square().sum(1)


def pull(t=0.0, speed=1.0):
    return Generator(LINE, lambda x: un.Local(drift=-speed * x, diffusion=torch.ones_like(x)))


def letters():
    table = torch.arange(1.0, 10.0, dtype=F64).reshape(3, 3)
    return Generator(un.Finite(3, (2,)), lambda z: un.Local(log_rates=table[z].log().scatter(-1, z.unsqueeze(-1), LOG_ZERO)))


def paths(rows=4):
    return generators.simulated(pull, torch.zeros(rows, 1, dtype=F64), [0.0, 0.5, 1.0], un.NoiseSource(0, rows))


def grid(**options):
    return FokkerPlanck(pull, **({"low": [-4.0], "high": [4.0], "cells": [8]} | options))


EVEN = torch.full((8,), 1 / 8, dtype=F64)
REFUSED = {
    "a function with a column": (lambda: pull().act(lambda y: y.square(), X), "one number for each row"),
    "a number for all": (lambda: pull().adjoint(lambda y: y.sum(), X), "one number for each row"),
    "a martingale of a column": (lambda: generators.exponential_martingale(pull, lambda y: y, paths()), "each row"),
    "a function of time": (lambda: generators.dynkin(pull, lambda y, t: y, paths()), "each row"),
    "a weight for each row": (lambda: (pull() * torch.ones(2)).local(X), "weight"),
    "one time": (lambda: generators.simulated(pull, X, [0.0], un.NoiseSource(0, 2)), "two or more"),
    "a time twice": (lambda: generators.simulated(pull, X, [0.0, 0.0, 1.0], un.NoiseSource(0, 2)), "all up or all down"),
    "there and back": (lambda: generators.simulated(pull, X, [0.0, 1.0, 0.5], un.NoiseSource(0, 2)), "all up or all down"),
    "NaN for a time": (lambda: generators.simulated(pull, X, [0.0, nan], un.NoiseSource(0, 2)), "finite"),
    "noise of others": (lambda: generators.simulated(pull, X, [0.0, 1.0], un.NoiseSource(0, 5)), "noise for 5 rows"),
    "no paths": (lambda: generators.dynkin(pull, lambda y, t: square(y) * t, paths(0)), "a mean over no paths"),
    "no steps": (lambda: grid().solve(EVEN, 0.0, 1.0, 0), "at least one"),
    "a law of other cells": (lambda: grid().solve(EVEN[:3], 0.0, 1.0, 2), "for each of 8 cells"),
    "a law with NaN": (lambda: grid().solve(EVEN * nan, 0.0, 1.0, 2), "a mass >= 0"),
    "a negative law": (lambda: grid().solve(-EVEN, 0.0, 1.0, 2), "a mass >= 0"),
    "an endless grid": (lambda: grid(low=[-inf]), "both finite"),
    "half a cell": (lambda: grid(cells=[7.5]), "cells"),
    "a negative diffusion": (lambda: FokkerPlanck(lambda t: wrong(), [-4.0], [4.0], [8]).rates(0.0), "negative or not"),
    "no coordinates": (lambda: KroneckerSum([]), "no coordinates"),
    "for ever": (lambda: KroneckerSum([FLIP]).evolve(torch.tensor([1.0, 0.0]), inf), "finite time"),
    "a negative rate": (lambda: uniformised(KroneckerSum([FLIP]), -1.0, torch.tensor([1.0, 0.0]), 1.0), "largest rate"),
    "too small a rate": (lambda: uniformised(KroneckerSum([FLIP]), 0.02, torch.tensor([1.0, 0.0]), 40.0), "give more"),
}


def wrong():
    return Generator(LINE, lambda x: un.Local(diffusion=-torch.ones_like(x)))


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_meaning_is_refused(name):
    call, words = REFUSED[name]
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_no_rows_are_no_rows():
    """An empty batch has an empty answer everywhere."""
    density = lambda y: (-square(y)).exp()  # noqa: E731
    for generator, x in ((pull(), X[:0]), (letters(), Z[:0])):
        assert generator.act(square, x).shape == generator.adjoint(density, x).shape == (0,)
        assert generator.extended(lambda y, t: square(y) * t, x, 0.5).shape == (0,)
        for other in (generator.reversed(lambda y: -square(y)), generator.tilted(lambda y: -square(y))):
            assert other.act(square, x).shape == (0,)
        assert divergence_rate(generator.space, generator.local(x), generator.local(x), x).shape == (0,)


def test_a_time_for_each_row():
    """(d/dt + L) of t x^2 at the times 0.5 and 2: x^2 + t (1 - 2 x^2)."""
    found = pull().extended(lambda y, t: t * square(y), X, torch.tensor([0.5, 2.0], dtype=F64))
    assert found.tolist() == pytest.approx([0.25 + 0.5 * 0.5, 1 - 2.0])


@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_nothing_moves_where_nothing_does(dtype):
    """No rates, or only a drift: a law that rests, a path that is a line; in float32 states keep their dtype."""
    rest = Generator(un.Finite(3, (2,)), lambda z: un.Local(log_rates=torch.full((*z.shape, 3), LOG_ZERO)))
    along = generators.simulated(lambda t: rest, Z, [0.0, 1.0], un.NoiseSource(0, 2))
    assert torch.equal(along.states[-1], Z)
    assert KroneckerSum([0 * FLIP, 0 * FLIP]).evolve(torch.eye(4)[1], 3.0).tolist() == [0, 1, 0, 0]
    wind = Generator(LINE, lambda x: un.Local(drift=torch.ones_like(x).double()))
    line = generators.simulated(lambda t: wind, X.to(dtype), [0.0, 0.5, 2.0], un.NoiseSource(0, 2))
    assert line.states[-1].dtype == dtype and torch.equal(line.states[-1], (X + 2).to(dtype))
    carried = FokkerPlanck(lambda t: wind, [0.0], [1.0], [10]).solve(torch.eye(10)[0].double(), 0.0, 50.0, 1)
    assert float(carried[-1]) == pytest.approx(1, abs=1e-9)  # against the wall, which nothing passes


class Kicks(un.JumpKernel):
    """N(shift, 0.5^2) at a rate."""

    def __init__(self, rate, shift):
        self.rate, self.shift = rate, shift

    def log_rate(self, x, y):
        z = ((y - x - self.shift) / 0.5).squeeze(-1)
        return log(self.rate / 0.5) - 0.5 * log(2 * pi) - 0.5 * z.square()

    def nodes(self, x):
        steps = torch.linspace(-6, 6, 481, dtype=F64)
        return x.unsqueeze(1) + steps.reshape(1, -1, 1), torch.full((len(x), 481), log(12 / 480), dtype=F64)


def test_the_divergence_of_drift_diffusion_and_jumps_is_their_sum():
    """1/2 gap^2/a + [m - l + l log(l/m) + l KL of the two kicks], and infinite where diffusions differ."""
    true = un.Local(drift=-X, diffusion=torch.full_like(X, 2.0), jumps=Kicks(2.0, 0.3))
    model = un.Local(drift=0.5 * X, diffusion=torch.full_like(X, 2.0), jumps=Kicks(3.0, -0.1))
    wanted = 0.25 * (1.5 * X[:, 0]).square() + 3 - 2 + 2 * (log(2 / 3) + 0.5 * (0.4 / 0.5) ** 2)
    torch.testing.assert_close(divergence_rate(LINE, true, model, X), wanted, rtol=1e-10, atol=0)
    wider = un.Local(drift=-X, diffusion=torch.full_like(X, 2.1), jumps=Kicks(2.0, 0.3))
    assert divergence_rate(LINE, true, wider, X).tolist() == [inf, inf]


def test_a_change_of_measure_of_drift_diffusion_and_jumps_by_paths():
    """Girsanov: dQ/dP of the tilted process is h(x_T)/h(x_0) exp(-int L h/h), and with this weight means are those under Q.
    At four standard errors (off by chance once in 16,000 runs), seed fixed; the untilted mean is far off."""
    both = Generator(LINE, lambda x: un.Local(drift=-x, diffusion=torch.ones_like(x), jumps=FewKicks(1.0, 0.4)))
    log_h = lambda x: 0.7 * x.sin().sum(1)  # noqa: E731
    n, times = 4000, torch.linspace(0, 1, 33).tolist()
    start = torch.zeros(n, 1, dtype=F64)
    free = generators.simulated(lambda t: both, start, times, un.NoiseSource(0, n)).states
    led = generators.simulated(lambda t: both.tilted(log_h), start, times, un.NoiseSource(1, n)).states[-1]
    h = lambda x: log_h(x).exp()  # noqa: E731
    rate = torch.stack([both.act(h, x) / h(x) for x in free])
    weight = (log_h(free[-1]) - log_h(start) - ((rate[1:] + rate[:-1]) / 64).sum(0)).exp()
    under, weighted, plain = led.squeeze(1), weight * free[-1].squeeze(1), free[-1].squeeze(1)
    error = float((under.var() / n + weighted.var() / n).sqrt())
    assert abs(float(under.mean() - weighted.mean())) < 4 * error + 1 / 32, (under.mean(), weighted.mean())
    assert abs(float(under.mean() - plain.mean())) > 10 * error


class FewKicks(Kicks):
    def nodes(self, x):
        steps = torch.linspace(-2.6, 3.4, 25, dtype=F64)
        return x.unsqueeze(1) + steps.reshape(1, -1, 1), torch.full((len(x), 25), log(0.25), dtype=F64)
