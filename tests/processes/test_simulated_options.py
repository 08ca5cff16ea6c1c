"""What lowers the variance of a path's bound leaves its mean alone, and marginals that are known replace paths.

Means are checked at four standard errors: off by chance once in 16,000 runs; seeds are fixed.
"""

from math import log, pi

import pytest
import torch
from test_simulated import Linear, Tabled, birth_death, enumerated_bound, exact_bound, mean_of, ornstein

import unnoise as un
from unnoise.predictions import slopes
from unnoise.spaces import Euclidean, Finite
from unnoise.verify.rows import Place
from unnoise.verify.simulated_paths import marginal_rows

ROWS, STEPS = 6_000, 40
F64 = torch.float64


def again(process, **options):
    """The same process with other options."""
    own = {"steps": process.steps, "visits": process.visits} | options
    return un.Simulated(process.space, process._local, process._prior, **own)


def bounds(denoiser, x0, times=None):
    with torch.no_grad():
        return un.bound(denoiser, x0, times, seed=0).total


def case(name, **options):
    """(bounds, the chain's exact one): an Ornstein-Uhlenbeck process from 3, and a birth-death chain from 0."""
    if name == "ornstein":
        denoiser, x0 = un.Denoiser(Linear(0.6), again(ornstein(STEPS), **options)), torch.full((ROWS, 1), 3.0, dtype=F64)
        return bounds(denoiser, x0), exact_bound(STEPS, 0.6, 3.0)
    denoiser = un.Denoiser(Tabled(0.4), again(birth_death(STEPS), **options))
    exact = enumerated_bound(un.Denoiser(Tabled(0.4), birth_death(STEPS)), torch.arange(5).unsqueeze(1))[0]
    return bounds(denoiser, torch.zeros(ROWS, 1, dtype=torch.int64)), float(exact)


def slow(*case):
    return pytest.param(*case, marks=pytest.mark.conformance)


@pytest.mark.parametrize(
    ("name", "visits", "options", "lower"),
    [
        ("ornstein", 4, {"control": True}, 10),  # measured: 14.9
        ("birth-death", 4, {"control": True}, 5),  # 6.2
        slow("ornstein", STEPS, {"antithetic": True}, 2.5),  # 3.0: more than the two paths' own 2
        slow("birth-death", STEPS, {"antithetic": True}, 3),  # 4.4
        ("ornstein", 4, {"control": True, "antithetic": True}, 20),  # 29.6
    ],
)
def test_the_mean_stays_and_the_variance_falls(name, visits, options, lower):
    plain, exact = case(name, visits=visits)
    found, _ = case(name, visits=visits, **options)
    mean, error = mean_of(found)
    assert abs(mean - exact) < 4 * error, (mean, exact, error)
    assert float(plain.var() / found.var()) > lower


@pytest.mark.parametrize(("name", "space"), [("ornstein", Euclidean), ("birth-death", Finite)])
def test_a_control_whose_mean_is_forgotten_is_seen(name, space, monkeypatch):
    """The mutant: slope . (y - x), whose mean is slope . h b."""

    def along(self, slope, law, x, y):
        if name == "ornstein":
            return (slope * (y - x)).sum(1)
        return slope.scatter(-1, x.unsqueeze(-1), 0.0).gather(-1, y.unsqueeze(-1)).flatten()

    monkeypatch.setattr(space, "along", along)
    found, exact = case(name, visits=4, control=True)
    mean, error = mean_of(found)
    assert abs(mean - exact) > 10 * error


def test_a_source_in_a_mirror():
    noise = un.NoiseSource(3, 5).at("a")
    mirror = noise.mirrored().at("b", 2)
    assert torch.equal(mirror.uniform((4,)), 1 - noise.at("b", 2).uniform((4,)))
    assert torch.equal(mirror.normal((4,), torch.float32), -noise.at("b", 2).normal((4,), torch.float32))
    assert torch.equal(mirror.mirrored().normal(), noise.at("b", 2).normal())
    assert torch.equal(mirror.of(torch.tensor([1])).normal(), mirror.normal()[1:2])


def test_a_reverse_step_with_another_variance_loses_the_continuous_limit(monkeypatch):
    """With 1.5 times the forward step's, each step costs 1/2 (log 1.5 + 1/1.5 - 1) = 0.036 more, however many there are."""
    local = slopes.Slopes.local
    x0, gaps = torch.full((150, 1), 0.7, dtype=F64), {}
    for steps in (20, 80):
        denoiser = un.Denoiser(Linear(1.0), ornstein(steps, steps))
        right = bounds(denoiser, x0).mean()
        monkeypatch.setattr(slopes.Slopes, "local", lambda self: un.Local(local(self).drift, 1.5 * local(self).diffusion))
        gaps[steps] = float(bounds(denoiser, x0).mean() - right)
        monkeypatch.setattr(slopes.Slopes, "local", local)
    each = 0.5 * (log(1.5) + 1 / 1.5 - 1)
    assert all(abs(gap / (steps * each) - 1) < 0.15 for steps, gap in gaps.items()), gaps


# marginals that are known


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(torch.tensor(0.7, dtype=F64))

    def forward(self, x, t):
        return -self.a.to(x.dtype) * x / (1 + 0.3 * t.unsqueeze(1).to(x.dtype))


GAUSSIAN = un.Gaussian((2,), un.schedules.LinearBeta())


def known(score=False, steps=50):
    """The library's variance-preserving process, written by its generator and its marginal."""

    def slope(x, x0, t):
        law = GAUSSIAN.marginal(x0, t)
        return -(x - law.mean) / law.std.square()

    prior = lambda rows: GAUSSIAN.prior(rows, F64)  # noqa: E731
    return un.Simulated(
        un.Euclidean((2,)), GAUSSIAN.local, prior, steps, marginal=GAUSSIAN.marginal, slope=slope if score else None
    )


@pytest.mark.parametrize("score", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_with_its_marginal_it_is_the_librarys_process(score, dtype):
    """Row by row, at the same draws: prior and diffusion are those of `un.Gaussian`; so are the gradients."""
    x0 = un.NoiseSource(1, 64).normal((2,)).to(dtype)
    found = []
    for process, kind in ((known(score), un.Slopes), (GAUSSIAN, un.Score)):
        denoiser = un.Denoiser(Net(), process, kind)
        terms = un.bound(denoiser, x0, seed=3, cutoff=1 / 50)
        terms.diffusion.sum().backward()
        found.append((terms.prior, terms.diffusion.detach(), denoiser.network.a.grad))
    close = {"rtol": 1e-9, "atol": 1e-10} if dtype == F64 else {"rtol": 2e-4, "atol": 1e-5}
    for own, wanted in zip(*found, strict=True):
        torch.testing.assert_close(own.double(), wanted.double(), **close)


@pytest.mark.conformance
def test_its_bound_and_that_of_its_paths_agree():
    """At one data point and 400 steps; the last step of the one is a step of the other."""
    x0, process = torch.tensor([[0.4, -1.1]], dtype=F64).expand(1000, 2), known(steps=400)
    first, error = mean_of(bounds(un.Denoiser(Net(), process), x0, un.Importance(32)))
    second, other = mean_of(bounds(un.Denoiser(Net(), again(process, visits=8, control=True)), x0))
    assert abs(first - second) < 4 * (error**2 + other**2) ** 0.5 + 0.02 and max(error, other) < 0.1, (first, second)


def test_a_birth_death_chain_with_its_marginal():
    """Two states, their kernel known: with the exact slopes the bound is the data's surprise, down to the cut-off."""
    law = torch.tensor([0.3, 0.7], dtype=F64)

    def kernel(x0, t):
        keep = torch.exp(-6 * torch.as_tensor(t, dtype=F64)).expand(len(x0)).reshape(-1, 1, 1)
        same = torch.nn.functional.one_hot(x0, 2).double()
        return un.laws.Categorical((keep * same + (1 - keep) * law).log())

    def local(x, t):
        rates = 6 * law.expand(*x.shape, 2)
        return un.Local(log_rates=rates.log().scatter(-1, x.unsqueeze(-1), -1e30))

    class AtRest(torch.nn.Module):
        def forward(self, x, t):
            return law.log() - law.log()[x].unsqueeze(-1)

    prior = lambda rows: un.laws.Categorical(law.log().expand(rows, 1, 2))  # noqa: E731
    process = un.Simulated(un.Finite(2, (1,)), local, prior, 200, marginal=kernel)
    x0 = torch.tensor([[0], [1]]).repeat(8000, 1)  # beside each other: times are stratified over the rows
    found = bounds(un.Denoiser(AtRest(), process), x0, un.Importance(4)).reshape(-1, 2)
    for row, share in zip(found.T, law, strict=True):
        mean, error = mean_of(row)
        assert abs(mean + log(share)) < 4 * error + 0.01 and error < 0.03, (mean, error)


def test_options_that_contradict_each_other_are_refused():
    prior, local = (lambda rows: GAUSSIAN.prior(rows, F64)), GAUSSIAN.local
    space = un.Euclidean((2,))
    with pytest.raises(ValueError, match="without marginal"):
        un.Simulated(space, local, prior, slope=lambda x, x0, t: x)
    with pytest.raises(ValueError, match="control and antithetic are of paths"):
        un.Simulated(space, local, prior, control=True, marginal=GAUSSIAN.marginal)
    with pytest.raises(TypeError, match="prior"):  # of the checked annotations, or the constructor's own
        un.Simulated(space, local, GAUSSIAN.prior(3, F64))
    mixed = un.Product(a=un.Simulated(space, local, prior), b=un.Uniform(3, (2,)))
    net = torch.nn.ParameterDict({"a": torch.zeros(1, 2, dtype=F64), "b": torch.zeros(1, 2, 3, dtype=F64)})

    class Both(torch.nn.Module):
        def forward(self, x, t):
            return {name: value.expand(len(t), *value.shape[1:]) for name, value in net.items()}

    x0 = {"a": torch.zeros(1, 2, dtype=F64), "b": torch.zeros(1, 2, dtype=torch.int64)}
    with pytest.raises(TypeError, match="a leaf of a product"):
        un.bound(un.Denoiser(Both(), mixed), x0)
    whole = un.Product(a=known(), b=un.Uniform(3, (2,)))
    assert bool(un.bound(un.Denoiser(Both(), whole), x0, seed=0).total.isfinite().all())
    assert float(un.bound(un.Denoiser(Net(), known()), x0["a"], seed=0).total.detach()) > -2 * log(2 * pi)


@pytest.mark.parametrize("wrong", [None, "marginal", "slope"])
def test_verify_puts_a_marginal_to_its_generator(wrong):
    """A marginal of another process, or a slope of twice the size, fails its row; the right ones fail none."""
    right = known(score=True)

    class Wider(un.schedules.LinearBeta):
        def __init__(self):
            super().__init__(0.1, 15.0)

    marginal = un.Gaussian((2,), Wider()).marginal if wrong == "marginal" else GAUSSIAN.marginal
    slope = (lambda *state: 2 * right._slope(*state)) if wrong == "slope" else None
    process = un.Simulated(right.space, GAUSSIAN.local, right._prior, 200, marginal=marginal, slope=slope)
    rows = marginal_rows(process, Place("own"), un.NoiseSource(0, 6).normal((2,)))
    failed = {row.quantity.split(",")[0] for row in rows if not row.ok}
    wanted = {"marginal": {"forward equation of the generator"}, "slope": {"reverse given x_0 = reversed generator"}}
    assert failed == wanted.get(wrong, set()), failed
