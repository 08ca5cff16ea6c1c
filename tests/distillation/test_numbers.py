"""Consistency distillation of numbers against the exact flow of a Gaussian."""

import pytest
import torch
from normal_law import MEAN, PROCESS, VARIANCE, Exact
from torch import nn

import unnoise as un
from unnoise.distillation import Consistency
from unnoise.distillation.consistency import ddim, ends_in_itself
from unnoise.noise import NoiseSource

SCHEDULE = PROCESS.schedule
ROWS = 256


def moments(t):
    alpha, sigma = SCHEDULE.alpha(t), SCHEDULE.sigma(t)
    return alpha * MEAN, (alpha**2 * VARIANCE + sigma**2).sqrt()


def flow(x, t, s):
    """The probability flow from t to s: standardised values stay."""
    (m, d), (n, e) = moments(t), moments(s)
    return n[:, None] + (e / d)[:, None] * (x - m[:, None])


class Ends(nn.Module):
    """The velocity whose clean prediction is a given f(x, t), plus c times a feature of x."""

    def __init__(self, f):
        super().__init__()
        self.f, self.c = f, nn.Parameter(torch.zeros(2, dtype=torch.float64))

    def forward(self, x, t):
        alpha, sigma = SCHEDULE.alpha(t)[:, None], SCHEDULE.sigma(t)[:, None].clamp_min(1e-30)
        return (alpha * x - self.f(x, t)) / sigma + self.c[0] * x + self.c[1]


def end_of_flow(x, t):
    return flow(x, t, torch.zeros_like(t))


def run_of(f, **options) -> Consistency:
    made = un.Denoiser(Ends(f), PROCESS, un.Velocity)
    options = {"delta": 1 / 8, "rounds": 1, "metric": "squared", **options}
    run = Consistency(made, made, **options)
    run.teacher = Exact()
    return run


def loss_and_gradient(run: Consistency):
    x0 = MEAN + VARIANCE**0.5 * NoiseSource(0, ROWS).at("x").normal((1,))
    run.eval()
    loss = run(x0, NoiseSource(1, ROWS)).loss.mean()
    return float(loss.detach()), float(torch.autograd.grad(loss, run.denoiser.network.c)[0].abs().max())


class ExactSteps(Consistency):
    """Pairs on the exact flow."""

    def pair(self, x0, t, s, noise, told):
        x_t = self.parts[""].marginal(x0, t).draw(noise.at(""))
        return x_t, flow(x_t, t, s)


def test_the_flow_s_end_is_the_fixed_point_of_exact_steps(monkeypatch):
    monkeypatch.setattr(Consistency, "pair", ExactSteps.pair)
    loss, gradient = loss_and_gradient(run_of(end_of_flow))
    assert loss < 1e-24 and gradient < 1e-12
    for wrong in (lambda x, t: end_of_flow(x, t) + 0.1 * t[:, None], lambda x, t: Exact()(x, t).clean()):
        loss, gradient = loss_and_gradient(run_of(wrong))
        assert loss > 1e-5 and gradient > 1e-4


def composed(delta: float, solver: str):
    """The teacher's own steps from t down to 0, delta after delta."""

    def f(x, t):
        exact = Exact()
        while bool((t > 0).any()):
            s = (t - delta).clamp_min(0.0)
            here = t.clamp_min(1e-30)
            clean = exact(x, here).clean()
            y = ddim(PROCESS, x, clean, here, s)
            if solver == "heun":
                y = ddim(PROCESS, x, (clean + exact(y, s).clean()) / 2, here, s)
            x, t = torch.where((t > 0)[:, None], y, x), s
        return x

    return f


@pytest.mark.parametrize("solver", ["ddim", "heun"])
def test_composed_steps_are_the_fixed_point(solver):
    loss, gradient = loss_and_gradient(run_of(composed(1 / 8, solver), solver=solver))
    assert loss < 1e-20 and gradient < 1e-10
    other = "heun" if solver == "ddim" else "ddim"
    loss, gradient = loss_and_gradient(run_of(composed(1 / 8, other), solver=solver))
    assert loss > 1e-6 and gradient > 1e-5


def test_composed_steps_near_the_flow():
    """DDIM with order 1; the step of Heun's kind is nearer at every delta."""
    x, t = NoiseSource(3, 50).normal((1,)), torch.ones(50, dtype=torch.float64)

    def far(delta, solver):
        return float((composed(delta, solver)(x, t) - end_of_flow(x, t)).abs().max())

    errors = [far(1 / n, "ddim") for n in (16, 32, 64)]
    assert all(1.8 < a / b < 2.2 for a, b in zip(errors, errors[1:], strict=False))
    assert all(far(1 / n, "heun") < far(1 / n, "ddim") / 3 for n in (16, 64))


def test_the_boundary_holds_whatever_the_network_says():
    class Any(nn.Module):
        def forward(self, x, t):
            return 17.0 - 3 * x

    x, zero = NoiseSource(0, 9).normal((1,)), torch.zeros(9, dtype=torch.float64)
    assert torch.equal(un.Denoiser(Any(), PROCESS, un.Velocity)(x, zero).clean(), x)
    t = torch.full((9,), 0.4, dtype=torch.float64)
    for schedule in (un.schedules.Cosine(), un.schedules.Linear()):  # c_skip and c_out
        a, s = schedule.alpha(t)[:, None], schedule.sigma(t)[:, None]
        found = un.Denoiser(Any(), un.Gaussian((1,), schedule), un.Velocity)(x, t).clean()
        torch.testing.assert_close(found, (a * x - s * (17.0 - 3 * x)) / (a**2 + s**2))


def test_which_kinds_end_in_themselves():
    cosine, linear = un.Gaussian((1,), un.schedules.Cosine()), un.Gaussian((1,), un.schedules.Linear())
    assert ends_in_itself(cosine, un.Velocity) and ends_in_itself(linear, un.Velocity) and ends_in_itself(linear, un.Flow)
    assert not any(ends_in_itself(cosine, kind) for kind in (un.Clean, un.Noise, un.Score))
    assert not ends_in_itself(un.Gaussian((1,), un.schedules.LogSNRLinear()), un.Velocity)
    clean = un.Denoiser(nn.Linear(1, 1), PROCESS, un.Clean)
    with pytest.raises(ValueError, match="predicts velocities"):
        Consistency(clean, clean)


@pytest.mark.parametrize("mutant", ["other noise", "teacher at the wrong time", "target at the wrong time"])
def test_mutants(mutant, monkeypatch):
    right = Consistency.pair

    def wrong(self, x0, t, s, noise, told):
        x_t, x_s = right(self, x0, t, s, noise, told)
        if mutant == "other noise":
            return x_t, self.parts[""].marginal(x0, s.clamp_min(1e-30)).draw(noise.at("other"))
        if mutant == "teacher at the wrong time":
            return x_t, ddim(PROCESS, x_t, self.teacher(x_t, s.clamp_min(1e-9)).clean(), t, s)
        return x_t, ddim(PROCESS, x_t, self.teacher(x_t, t).clean(), t, (s - 0.02).clamp_min(0.0))

    monkeypatch.setattr(Consistency, "pair", wrong)
    loss, gradient = loss_and_gradient(run_of(composed(1 / 8, "ddim"), solver="ddim"))
    assert loss > 1e-5 and gradient > 1e-4


def test_multistep_sampling_keeps_the_law():
    """Of the exact f, at 1 and at 3 steps: mean and variance of 20,000 samples within 5 standard errors (a false alarm in
    a million); f's place taken by a mean, as of a denoiser, the variance is far too small."""
    n, sampler = 20_000, un.samplers.MultistepConsistency()
    for steps in (1, 3):
        x = un.sample(un.Denoiser(Ends(end_of_flow), PROCESS, un.Velocity), n, steps, sampler, seed=0)[0]
        assert abs(float(x.mean()) - MEAN) < 5 * (VARIANCE / n) ** 0.5
        assert abs(float(x.var()) - VARIANCE) < 5 * VARIANCE * (2 / n) ** 0.5
    assert float(un.sample(Exact(), n, 1, sampler, seed=0)[0].var()) < 0.1 * VARIANCE


def test_the_target_follows_and_comes_back():
    run = run_of(end_of_flow, averaged=0.75)
    with torch.no_grad():
        run.denoiser.network.c.fill_(1.0)
    run.train()
    x0 = torch.zeros(4, 1, dtype=torch.float64)
    run(x0, NoiseSource(0, 4))
    assert float(run.target.network.c[0]) == 0.25 and not run.target.training
    other = run_of(end_of_flow, averaged=0.75)
    kept = {name: value for name, value in run.kept().items() if not name.startswith("teacher")}
    other.restore({**other.kept(), **kept})
    assert float(other.target.network.c[1]) == 0.25


def test_un_distill():
    """A small network: one step after distillation is nearer to the teacher's 64 than one step of the teacher's own."""
    torch.manual_seed(0)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(2, 32), nn.SiLU(), nn.Linear(32, 1))

        def forward(self, x, t):
            return self.body(torch.cat([x, t[:, None]], 1))

    x0 = MEAN + VARIANCE**0.5 * NoiseSource(0, 512).normal((1,), torch.float32)
    teacher = un.Denoiser(Net(), PROCESS, un.Velocity)
    adam = torch.optim.Adam(teacher.parameters(), 1e-2)
    for k in range(80):
        bound = un.Objective(teacher, un.weightings.V())(x0[:128], NoiseSource(k, 128))
        adam.zero_grad()
        bound.loss.mean().backward()
        adam.step()
    student = un.distill(teacher, x0, "consistency", 1, updates=80, lr=1e-2, delta=1 / 4, averaged=0.5)
    start = NoiseSource(5, 400).normal((1,), torch.float32)
    long = un.sample(teacher, x=start, steps=64, sampler=un.samplers.DDIM())[0]
    one, own = un.sample(student, x=start)[0], un.sample(teacher, x=start, steps=1, sampler=un.samplers.DDIM())[0]
    assert float((one - long).square().mean()) < 0.2 * float((own - long).square().mean())
    assert student.plan.steps == 1 and un.sample(student, 3)[1].calls == 1
