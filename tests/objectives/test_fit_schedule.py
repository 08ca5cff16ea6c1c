"""Fitting a learned schedule: the interior lowers the variance of the estimate, not its mean; the ends lower the bound."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.denoiser import AnyDenoiser
from unnoise.objectives.closed_forms import rate
from unnoise.schedules import Learned
from unnoise.verify.subjects import mixture_components

F64 = torch.float64
HIGH, LOW = 6.0, -6.0


class Wrong(AnyDenoiser):
    """An oracle's prediction plus a wave in x_t and log-SNR: wrong, and blind to t itself."""

    def __init__(self, oracle, scale=0.5):
        super().__init__()
        self.process, self.kinds, self.oracle, self.scale = oracle.process, oracle.kinds, oracle, scale

    def forward(self, x_t, t, **condition):
        exact = self.oracle(x_t, t)
        log_snr = self.process.schedule.log_snr(exact.t).reshape(-1, *[1] * (x_t.ndim - 1))
        return type(exact)(exact.value + self.scale * torch.sin(2 * x_t + 0.5 * log_snr), exact.process, x_t, exact.t)


def misshapen(schedule):
    """Nearly all of the fall in log-SNR in a twentieth of the time."""
    with torch.no_grad():
        schedule.slope.fill_(-1.5)
        schedule.height.fill_(-4.0)
        schedule.height[schedule.hidden // 2] = 1.0
        schedule.steepness[schedule.hidden // 2] = 30.0
    return schedule


def oracle_on(schedule, shift=0.0):
    weights, means, covariances = mixture_components(1)
    return un.oracles.mixture(un.Gaussian((1,), schedule), weights, means + shift, covariances, predicts=un.Velocity)


def data(rows=2000, shift=0.0):
    return oracle_on(un.schedules.Linear(), shift).draw(un.NoiseSource(1, rows))


@torch.no_grad()
def exact_bound(denoiser, x, decoder=None, nodes=128):
    return un.Objective(denoiser, exact=True, times=un.Quadrature(nodes, power=1.0), decoder=decoder)(x).total


@torch.no_grad()
def moments(objective, x, draws=10):
    """Mean and variance of the diffusion term over data, times and noise."""
    parts = [objective(x, noise=un.NoiseSource(1000 + i, len(x))).diffusion for i in range(draws)]
    every = torch.cat(parts)
    return every.mean().item(), every.var().item()


@torch.no_grad()
def least_second_moment(x, nodes=60):
    """min over schedules of E[D^2] = int (log_snr')^2 E[r^2] dt: by Cauchy-Schwarz it is (int sqrt(E[r^2]) dl)^2, where r is
    the rate per unit of log-SNR."""
    schedule = un.schedules.LogSNRLinear(HIGH, LOW)
    process = un.Gaussian((1,), schedule)
    model = Wrong(oracle_on(schedule))
    visits = un.Quadrature(nodes, power=1.0).visit(process, x[:1], 0.0, un.NoiseSource(0, 1))
    total = 0.0
    for t, weight in zip(visits.t[:, 0], visits.weight[:, 0], strict=True):
        states, log_weight = process.support(x, t)
        flat, start = states.flatten(0, 1), x.repeat(len(states), 1)
        r = rate(model(flat, t), process, start).reshape(log_weight.shape) / (HIGH - LOW)
        square = (log_weight.exp() * r.square()).sum(0).mean()
        total += weight.item() * (HIGH - LOW) * square.sqrt().item()
    return total**2


@pytest.mark.parametrize("seed", range(3))
def test_the_exact_bound_is_blind_to_the_interior(seed):
    x = torch.tensor([[-1.3], [0.4], [1.9]], dtype=F64)
    line, bent = Learned(high=HIGH, low=LOW), Learned(high=HIGH, low=LOW)
    with torch.no_grad():
        for parameter in bent.interior():
            parameter += torch.randn(parameter.shape, generator=torch.Generator().manual_seed(seed), dtype=F64)
    totals = []
    for schedule in (line, bent):
        oracle = oracle_on(schedule)
        totals.append(exact_bound(Wrong(oracle), x, oracle.decoder))
    assert float((line.log_snr(0.5) - bent.log_snr(0.5)).detach().abs()) > 0.1
    torch.testing.assert_close(totals[0], totals[1], rtol=0, atol=1e-6)
    exact = -oracle.log_prob(x)
    assert bool((totals[0] > exact + 0.05).all())  # the network is wrong


@pytest.mark.conformance
def test_the_variance_falls_and_the_mean_stays():
    x, schedule = data(), misshapen(Learned(high=HIGH, low=LOW, learn_ends=False))
    objective = un.Objective(Wrong(oracle_on(schedule)), times=un.Stratified())
    mean, before = moments(objective, x)
    history = un.fit_schedule(objective, x, steps=140, batch=256, seed=0)
    again, after = moments(objective, x)
    assert after < 0.4 * before, f"variance {before:.1f} -> {after:.1f}"
    assert abs(again - mean) < 5 * (before / 20_000) ** 0.5
    # and no schedule could do much better
    least = least_second_moment(x[::20])
    reached = after + again**2
    assert least < 1.1 * reached and reached < 1.25 * least, f"{reached:.1f} reached, {least:.1f} is least"
    assert float(schedule.high.detach()) == pytest.approx(HIGH, abs=1e-12) and float(schedule.low.detach()) == LOW
    assert history["variance"].shape == history["bound"].shape == (140,)
    assert float(history["variance"][-50:].mean()) < 0.6 * float(history["variance"][:10].mean())


@pytest.mark.conformance
def test_the_ends_lower_the_bound():
    """Data far from 0 and a schedule that leaves 12 % of it: the prior term is large until `low` falls."""
    x, schedule = data(shift=3.0), Learned(high=5.0, low=-2.0)
    oracle = oracle_on(schedule, shift=3.0)
    objective = un.Objective(oracle, times=un.Stratified())
    some = x[:12]
    prior = oracle.process.prior_kl(some).mean().item()
    before = exact_bound(oracle, some, nodes=64).mean().item()
    un.fit_schedule(objective, x, steps=80, batch=256, seed=0)
    after = exact_bound(oracle, some, nodes=64).mean().item()
    truth = -oracle.log_prob(some).mean().item()
    assert prior > 0.4 and oracle.process.prior_kl(some).mean().item() < 0.2 * prior
    assert after - truth < 0.3 * (before - truth), f"{before:.3f} -> {after:.3f}, of which {truth:.3f} is the data's"
    assert float(schedule.low.detach()) < -4


class Shrink(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.tensor(0.5, dtype=F64))

    def forward(self, x, t):
        return self.gain * x


def test_it_trains_the_schedules_and_nothing_else():
    process = un.Product(y=un.Gaussian((2,), Learned((2,), hidden=3)), c=un.Masking(3, (1,)))

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.y, self.c = Shrink(), nn.Parameter(torch.zeros(3))

        def forward(self, x, t):
            return {"y": self.y(x["y"], t), "c": self.c.expand(len(x["c"]), 1, 3)}

    objective = un.Objective(un.Denoiser(Both(), process, {"y": un.Clean}), times=un.Stratified())
    before = {name: p.detach().clone() for name, p in objective.named_parameters()}
    x = {"y": torch.randn(30, 2, dtype=F64), "c": torch.randint(3, (30, 1))}
    with torch.no_grad():  # a caller's no_grad does not stop it
        un.fit_schedule(objective, x, steps=3, batch=8)
    for name, parameter in objective.named_parameters():
        moved = float((parameter.detach() - before[name]).abs().max()) > 0
        assert moved == ("schedule" in name), name
        assert parameter.grad is None and parameter.requires_grad, name


def test_the_seed_decides_and_none_is_a_fresh_one():
    """Fresh ones come from torch's generator, so that they can be repeated by its seed too."""
    ends = []
    for seed in (0, 0, 1, None, None, None):
        if len(ends) in (3, 5):
            torch.manual_seed(4)
        schedule = Learned(hidden=3)
        objective = un.Objective(un.Denoiser(Shrink(), un.Gaussian((1,), schedule), un.Clean), times=un.Stratified())
        un.fit_schedule(objective, data(50), steps=3, batch=8, seed=seed)
        ends.append(torch.cat([p.detach().flatten() for p in schedule.parameters()]))
    assert torch.equal(ends[0], ends[1]) and not torch.equal(ends[0], ends[2])
    assert not torch.equal(ends[3], ends[0]) and not torch.equal(ends[3], ends[4]) and torch.equal(ends[3], ends[5])


def learned_objective(**options):
    return un.Objective(un.Denoiser(Shrink(), un.Gaussian((1,), Learned(hidden=3)), un.Clean), **options)


def frozen_objective():
    objective = learned_objective()
    objective.denoiser.process.requires_grad_(False)
    return objective


class Flat(nn.Module):
    def forward(self, x, t):
        return torch.zeros(*x.shape, 3, dtype=F64)


X = torch.zeros(4, 1, dtype=F64)
REFUSED = {
    "no learned schedule": (
        lambda: (un.Objective(un.Denoiser(Shrink(), un.Gaussian((1,)), un.Clean)), X),
        TypeError,
        r"Gaussian has no learned schedule: build it on one, as in Gaussian\(\(2,\), schedules.Learned\(\)\)",
    ),
    "categories": (
        lambda: (
            un.Objective(un.Denoiser(Flat(), un.Uniform(3, (1,), Learned())), exact=True),
            torch.zeros(4, 1, dtype=torch.int64),
        ),
        TypeError,
        "Uniform has a learned schedule, but its drawn states jump",
    ),
    "exact": (lambda: (learned_objective(exact=True), X), ValueError, "exact=True leaves the estimate no variance"),
    "weighted": (lambda: (learned_objective(weighting=un.weightings.Simple()), X), ValueError, "Simple is no bound"),
    "chain": (
        lambda: (un.Objective(un.Denoiser(Shrink(), un.Chain(un.Gaussian((1,), Learned()), 4), un.Clean)), X),
        TypeError,
        "the bound of a chain depends on the whole schedule",
    ),
    "frozen": (lambda: (frozen_objective(), X), ValueError, r"frozen: call schedule.requires_grad_\(True\)"),
    "no rows": (lambda: (learned_objective(), X[:0]), ValueError, "no rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case):
    make, error, says = REFUSED[case]
    objective, x = make()
    with pytest.raises(error, match=says):
        un.fit_schedule(objective, x, steps=1, batch=2)


def test_a_learned_schedule_of_categories_is_refused():
    process = un.Product(y=un.Gaussian((1,), Learned(hidden=3)), c=un.Uniform(3, (1,), Learned(hidden=3)))
    process.leaves["c"].requires_grad_(False)  # frozen, so that the objective itself takes it

    class Both(nn.Module):
        def forward(self, x, t):
            return {"y": 0.5 * x["y"], "c": torch.zeros(*x["c"].shape, 3, dtype=F64)}

    objective = un.Objective(un.Denoiser(Both(), process, {"y": un.Clean}), times=un.Stratified())
    with pytest.raises(TypeError, match="Uniform has a learned schedule, but its drawn states jump.*Gaussian"):
        un.fit_schedule(objective, {"y": X, "c": torch.zeros(4, 1, dtype=torch.int64)}, steps=1, batch=2)


@pytest.mark.parametrize("options", [{"steps": 0}, {"batch": 1}, {"lr": 0.0}])
def test_bad_options_are_refused(options):
    ((name, value),) = options.items()
    with pytest.raises(ValueError, match=f"{name} = {value}"):
        un.fit_schedule(learned_objective(), X, **options)
