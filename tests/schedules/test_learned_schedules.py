"""Learned schedules: values, gradients, and what the bound of an exact model says of their parameters.

With the exact denoiser and decoder bound(x) = -log q(x) + E log(q_1/p_1)(x_1) whatever the schedule, so the gradient of the
bound in every parameter of the interior and in the data end is 0, and in the noise end it is that of the last term alone.
"""

from math import log, pi

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.objectives import MixedTimes
from unnoise.oracles import GaussianLeaf
from unnoise.schedules import Learned, PerCoordinate
from unnoise.training.schedules import scheduled
from unnoise.verify.bounds import prior_mismatch
from unnoise.verify.subjects import mixture_components
from unnoise.verify.wrong import Perturbed

F64 = torch.float64
TIMES = torch.tensor([0.0, 1e-7, 0.2, 0.55, 0.9, 1.0], dtype=F64)


def bend(schedule, seed=0):
    """Move the interior away from where it starts."""
    source = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in schedule.interior():
            parameter += torch.randn(parameter.shape, generator=source, dtype=F64)
    return schedule


def shifted_mixture(process):
    """A mixture that is far from the prior's mean, so that the noise end matters."""
    weights, means, covariances = mixture_components(process.space.dimension)
    return un.oracles.mixture(process, weights, means + 1.5, covariances)


# --- values


@pytest.mark.parametrize("seed", range(5))
def test_log_snr_falls_from_end_to_end(seed):
    schedule = bend(Learned(high=7.0, low=-5.0), seed)
    t = torch.linspace(0, 1, 2001, dtype=F64)
    with torch.no_grad():
        value, slope = schedule.log_snr(t), schedule.d_log_snr(t)
        assert schedule.validate() is schedule
    assert bool((value.diff() < 0).all()) and bool((slope < 0).all())
    assert value[0].item() == pytest.approx(7.0, abs=1e-14) and value[-1].item() == pytest.approx(-5.0, abs=1e-14)


def test_it_starts_close_to_a_line():
    schedule = Learned(high=13.0, low=-6.0)
    t = torch.linspace(0, 1, 101, dtype=F64)
    with torch.no_grad():
        assert float((schedule.log_snr(t) - (13 - 19 * t)).abs().max()) < 0.01
        assert float((schedule.d_log_snr(t) / -19 - 1).abs().max()) < 0.01


@pytest.mark.parametrize(
    "name", ["alpha", "sigma", "beta", "log_snr", "d_log_snr", "d_alpha", "d_sigma", "drift", "diffusion"]
)
def test_each_coordinate_has_a_schedule_of_its_own(name):
    ends = {"high": torch.tensor([[3.0, 4, 5], [6, 7, 8]]), "low": torch.tensor([-9.0, -8, -7])}
    joint = bend(Learned((2, 3), hidden=4, **ends)).requires_grad_(False)
    parts = []
    for i in range(6):
        part = Learned(hidden=4).requires_grad_(False)
        for own, all_of_them in zip(part.state_dict().values(), joint.state_dict().values(), strict=True):
            own.copy_(all_of_them[i // 3, i % 3])
        parts.append(part)
    apart = PerCoordinate(parts, (2, 3))
    for t in (TIMES, TIMES.float(), 0.3, TIMES.reshape(2, 3)):
        ours, theirs = getattr(joint, name)(t), getattr(apart, name)(t)
        assert ours.shape == theirs.shape
        torch.testing.assert_close(ours, theirs, rtol=1e-13, atol=0)
    s, t = TIMES[:-1], TIMES[1:]
    for step in ("step_alpha", "step_variance"):
        torch.testing.assert_close(getattr(joint, step)(s, t), getattr(apart, step)(s, t), rtol=1e-9, atol=1e-16)


def test_gaussian_takes_it_and_owns_its_parameters():
    schedule = Learned((2,), hidden=3)
    process = un.Gaussian((2,), schedule)
    assert process.cutoff == 0.0
    owned = {id(p) for p in process.parameters()}
    assert {id(p) for p in schedule.parameters()} == owned and len(owned) == 6
    assert all(p.dtype == F64 and p.requires_grad for p in schedule.parameters())
    frozen = Learned(learn_ends=False)
    assert frozen.ends() == [] and len(frozen.interior()) == 4
    assert float(frozen.high.detach()) == pytest.approx(10.0, abs=1e-14) and float(frozen.low.detach()) == -10.0


def test_a_narrow_copy_of_the_parameters_is_computed_with_in_float64():
    schedule = bend(Learned()).requires_grad_(False)
    saved = schedule.state_dict()
    narrow = Learned().requires_grad_(False)
    narrow.load_state_dict(saved)
    narrow.float()
    assert narrow.alpha(TIMES).dtype == F64
    torch.testing.assert_close(narrow.log_snr(TIMES), schedule.log_snr(TIMES), rtol=1e-5, atol=1e-5)


# --- gradients of the schedule


class Call(nn.Module):
    def __init__(self, schedule, name):
        super().__init__()
        self.schedule, self.name = schedule, name

    def forward(self, *times):
        return getattr(self.schedule, self.name)(*times)


def as_function(schedule, name):
    """The quantity as a function of time and of every parameter."""
    call, names = Call(schedule, name), [n for n, _ in schedule.named_parameters()]

    def function(t, *values):
        return torch.func.functional_call(call, {f"schedule.{n}": v for n, v in zip(names, values, strict=True)}, (t,))

    return function, [p.detach().clone().requires_grad_() for p in schedule.parameters()]


QUANTITIES = ["log_snr", "alpha", "sigma", "beta", "d_log_snr", "d_alpha", "d_sigma", "diffusion"]


@pytest.mark.parametrize("shape", [(), (2,)])
@pytest.mark.parametrize("name", QUANTITIES)
def test_gradients_in_time_and_parameters(name, shape):
    function, values = as_function(bend(Learned(shape, hidden=3, high=4.0, low=-3.0)), name)
    t = torch.tensor([0.1, 0.6, 0.95], dtype=F64).requires_grad_()
    assert torch.autograd.gradcheck(function, (t, *values), eps=1e-6, atol=1e-8, rtol=1e-6)
    gradients = torch.autograd.grad(function(t, *values).sum(), values)
    assert all(float(g.abs().max()) > 1e-6 for g in gradients)


@pytest.mark.parametrize("name", QUANTITIES)
def test_float32_times_give_the_gradients_of_the_times_they_are(name):
    function, values = as_function(bend(Learned(hidden=3)), name)
    t = torch.tensor([0.1, 0.6, 0.95])
    narrow, wide = function(t, *values), function(t.double(), *values)
    assert narrow.dtype == torch.float32
    torch.testing.assert_close(narrow, wide.float(), rtol=0, atol=0)  # rounded once, at the end
    weight = torch.tensor([1.0, 2.0, 0.5])
    a, b = (torch.autograd.grad((v * weight).sum(), values) for v in (narrow, wide))
    torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


@pytest.mark.parametrize(("name", "value"), [("time_of_log_snr", [3.0, -1.0]), ("time_of_beta", [0.05, 0.7])])
def test_inverses_move_with_the_parameters(name, value):
    schedule = bend(Learned(hidden=3, high=6.0, low=-6.0))
    function, values = as_function(schedule, name)
    at = torch.tensor(value, dtype=F64)
    direct = getattr(schedule, name.removeprefix("time_of_"))(function(at, *values))
    torch.testing.assert_close(direct, at, rtol=1e-12, atol=0)
    assert torch.autograd.gradcheck(function, (at.requires_grad_(), *values), eps=1e-6, atol=1e-7, rtol=1e-5)


# --- gradients of the bound


class Share(un.objectives.Quadrature):
    """Some of the nodes of a quadrature: a graph over all of them at once would not fit."""

    def __init__(self, nodes, part):
        super().__init__(nodes, power=1.0)
        self.part = part

    def visit(self, process, x0, low, noise):
        visits = super().visit(process, x0, low, noise)
        return type(visits)(visits.t[self.part], visits.weight[self.part])


def gradient_of_bound(denoiser, decoder, x, parameters, nodes, at_once):
    """The mean bound and its gradient, exact over states and times."""
    total, gradients = 0.0, [torch.zeros_like(p) for p in parameters]
    for i in range(0, nodes, at_once):
        rule = Share(nodes, slice(i, i + at_once))
        result = un.Objective(denoiser, exact=True, times=rule, decoder=decoder, cutoff=0.0)(x)
        value = (result.diffusion if i else result.total).mean()  # the other two terms once
        total += value.item()
        parts = torch.autograd.grad(value, parameters, allow_unused=True)
        gradients = [g if part is None else g + part for g, part in zip(gradients, parts, strict=True)]
    return total, gradients


def mismatch_of(oracle, x):
    """E_{q(x_1|x)} log(q_1/p_1)(x_1), as `verify.bounds.prior_mismatch` has it, at all nodes together."""
    nodes, log_weight = oracle.process.support(x, 1.0)
    flat = nodes.flatten(0, 1)
    gap = oracle.log_marginal(flat, 1.0) - oracle.process.prior(len(flat), F64).log_prob(flat)
    return (log_weight.exp() * gap.reshape(log_weight.shape)).sum(0)


def gaps(oracle, x, nodes=128, at_once=128, denoiser=None):
    """How far the gradient of the bound is from that of E log(q_1/p_1), by parameter; and the gradients themselves."""
    schedule = oracle.process.schedule
    parameters = list(schedule.parameters())
    total, gradients = gradient_of_bound(denoiser or oracle, oracle.decoder, x, parameters, nodes, at_once)
    mismatch = mismatch_of(oracle, x).mean()
    expected = [None] * len(parameters)
    if mismatch.requires_grad:
        expected = torch.autograd.grad(mismatch, parameters, allow_unused=True)
    expected = [torch.zeros_like(g) if e is None else e for g, e in zip(gradients, expected, strict=True)]
    names = [name for name, _ in schedule.named_parameters()]
    gap = {n: float((g - e).abs().max()) for n, g, e in zip(names, gradients, expected, strict=True)}
    gap["value"] = abs(total - float(mismatch.detach()) + float(oracle.log_prob(x).mean()))
    return gap, {n: float(g.abs().max()) for n, g in zip(names, gradients, strict=True)}


INTERIOR = ("slope", "height", "steepness", "centre")
POINTS = torch.tensor([[-0.4], [1.1], [3.2]], dtype=F64)


def test_the_mismatch_is_that_of_verify():
    oracle = shifted_mixture(un.Gaussian((1,), Learned(low=-2.0).requires_grad_(False)))
    torch.testing.assert_close(mismatch_of(oracle, POINTS), prior_mismatch(oracle, oracle.process, POINTS))


@pytest.mark.parametrize(("low", "moves"), [(-2.0, True), (-20.0, False)])
def test_only_the_noise_end_moves_the_bound_of_an_exact_model(low, moves):
    oracle = shifted_mixture(un.Gaussian((1,), bend(Learned(hidden=6, high=8.0, low=low))))
    gap, size = gaps(oracle, POINTS)
    assert all(value < 1e-6 for value in gap.values()), gap
    assert all(size[name] < 1e-6 for name in (*INTERIOR, "above")), size
    assert size["below"] > 1e-2 if moves else size["below"] < 1e-6


def test_the_same_with_a_schedule_per_coordinate():
    schedule = Learned((2,), hidden=2, high=torch.tensor([4.0, 5.0]), low=torch.tensor([-3.0, -2.0]))
    oracle = shifted_mixture(un.Gaussian((2,), bend(schedule)))
    gap, size = gaps(oracle, torch.tensor([[0.8, 2.4]], dtype=F64), nodes=32, at_once=4)
    assert all(value < 1e-6 for value in gap.values()), gap
    assert size["below"] > 1e-2 and all(size[name] < 1e-6 for name in size if name != "below"), size


def test_a_wrong_network_moves_the_bound_with_everything():
    """A network of t itself: its error comes at other log-SNRs when the interior moves."""
    oracle = shifted_mixture(un.Gaussian((1,), bend(Learned(hidden=6, high=8.0, low=-2.0))))
    gap, _ = gaps(oracle, POINTS, denoiser=Perturbed(oracle.predicting(un.Velocity), 0.5, seed=3))
    assert all(value > 1e-3 for value in gap.values()), gap


def no_gradient(patch, owner, name):
    original = getattr(owner, name)

    def detached(*arguments):
        value = original(*arguments)
        return tuple(v.detach() for v in value) if isinstance(value, tuple) else value.detach()

    patch.setattr(owner, name, detached)


@pytest.mark.parametrize(
    ("owner", "name"),
    [(Learned, "exact_d_log_snr"), (Learned, "exact_log_snr"), (Learned, "_whole"), (GaussianLeaf, "_alpha_sigma")],
    ids=["weight", "state", "normalisation", "oracle"],
)
def test_a_gradient_that_is_lost_on_the_way_is_noticed(owner, name, monkeypatch):
    oracle = shifted_mixture(un.Gaussian((1,), bend(Learned(hidden=6, high=8.0, low=-2.0))))
    no_gradient(monkeypatch, owner, name)
    gap, size = gaps(oracle, POINTS, nodes=64)
    assert gap["value"] < 1e-6  # the bound itself is still right
    assert max(size[name] for name in INTERIOR) > 1e-3, size


class SeesLogSNR(nn.Module):
    """x_0 = x/alpha shrunk, by a number that depends on log-SNR."""

    def __init__(self, schedule):
        super().__init__()
        self.schedule, self.gain = [schedule], nn.Parameter(torch.tensor(0.5, dtype=F64))

    def forward(self, x, t):
        return torch.sigmoid(self.gain + 0.3 * self.schedule[0].log_snr(t)).reshape(-1, *[1] * (x.ndim - 1)) * x


@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("kind", [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow])
def test_one_backward_pass_reaches_schedule_and_network(kind, exact):
    process = un.Gaussian((1,), Learned(hidden=4))
    objective = un.Objective(un.Denoiser(SeesLogSNR(process.schedule), process, predicts=kind), exact=exact)
    assert objective.cutoff == 0.0
    objective(POINTS, noise=un.NoiseSource(0, 3)).total.mean().backward()
    for name, parameter in objective.named_parameters():
        assert parameter.grad is not None and bool(parameter.grad.isfinite().all()), name
        assert float(parameter.grad.abs().max()) > 0, name
    assert len(list(objective.parameters())) == 7


def test_the_exact_gradient_of_the_ends_in_closed_form():
    """A model that says x_0 = 0: every term is elementary."""

    class Nothing(nn.Module):
        def forward(self, x, t):
            return 0 * x

    schedule = Learned(hidden=3, high=5.0, low=-3.0)
    process = un.Gaussian((1,), schedule)
    denoiser = un.Denoiser(Nothing(), process, predicts=un.Clean)
    total = un.Objective(denoiser, exact=True, times=un.Quadrature(128, power=1.0))(POINTS).total.mean()
    high, low = (end.detach().requires_grad_() for end in (schedule.high, schedule.low))
    square = POINTS.square().mean()
    prior = square / 2 * low.exp()  # the variances agree, the means differ by alpha_1 x
    diffusion = square / 2 * (high.exp() - low.exp())  # -SNR'/2 x^2, integrated
    truth = prior + diffusion + 0.5 * (log(2 * pi) + 1 - high)  # and a Gaussian of variance 1/SNR_0
    assert float(total.detach()) == pytest.approx(float(truth.detach()), rel=1e-12)
    by_high, by_low = torch.autograd.grad(truth, (high, low))
    by_above, by_below = torch.autograd.grad(total, (schedule.above, schedule.below))
    torch.testing.assert_close(by_above, by_high * torch.sigmoid(schedule.above.detach()), rtol=1e-10, atol=0)
    torch.testing.assert_close(by_below, -by_low * torch.sigmoid(schedule.below.detach()), rtol=1e-10, atol=1e-10)


# --- times


@pytest.mark.parametrize("name", ["log_snr_linear", "learned"])
def test_times_are_even_where_the_schedule_does_the_grading(name):
    """Of columns beside numbers the bound's estimate spreads less than with times graded for 1/t, or merely even ones."""
    numbers = {"a": un.Gaussian((1,)), "b": un.Gaussian((1,))}
    process, options = scheduled(un.Product(c=un.Masking(6, 8), **numbers), name, {})
    assert type(scheduled(un.Product(**numbers), name, {})[1]["times"]) is un.Stratified
    assert type(scheduled(un.Gaussian((1,)), name, {})[1]["times"]) is un.Stratified
    assert "times" not in scheduled(un.Product(**numbers), "cosine", {})[1]

    class Nothing(nn.Module):
        def forward(self, x, t):
            return {"c": torch.zeros(*x["c"].shape, 6, dtype=F64), "a": 0 * x["a"], "b": 0 * x["b"]}

    denoiser = un.Denoiser(Nothing(), process, {"a": un.Velocity, "b": un.Velocity})
    rows = 20_000
    noise = un.NoiseSource(0, rows)
    x0 = {"c": (noise.at("c").uniform((8,)) * 6).long(), "a": noise.at("a").normal((1,)), "b": noise.at("b").normal((1,))}
    spread = {}
    for rule, times in (("own", options["times"]), ("graded", MixedTimes()), ("even", un.Stratified())):
        with torch.no_grad():
            found = un.Objective(denoiser, times=times)(x0, un.NoiseSource(1, rows)).diffusion
        spread[rule] = float(found.std())
    assert spread["own"] < 0.7 * spread["graded"] and spread["own"] < 0.95 * spread["even"], spread
