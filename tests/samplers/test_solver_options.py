"""Options of methods on numbers, each against a few lines of numpy or a closed form."""

import math

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.samplers import (
    DDIM,
    DEIS,
    LMS,
    Ancestral,
    Clip,
    DPMSolverPP,
    EulerMaruyama,
    Exponential,
    Heun,
    Threshold,
    UniPC,
)
from unnoise.samplers.grids import Clipped, Even, Karras, LogSNR, Shifted, Timesteps

M, V = torch.tensor([0.7, -0.3], dtype=torch.float64), torch.tensor([0.5, 0.3], dtype=torch.float64)


def normal(schedule=None, kind=None):
    return un.oracles.normal(un.Gaussian((2,), schedule or un.schedules.LinearBeta()), M, torch.diag(V), kind)


def start(rows: int = 5):
    return un.NoiseSource(3, rows).normal((2,))


def grid(denoiser, steps: int, end: float):
    """Times, alpha, sigma and lambda of a Karras grid, as numpy arrays."""
    times = Karras().times(denoiser.process, steps, 0.98, end)
    schedule = denoiser.process.schedule
    alpha, sigma = schedule.alpha(times).numpy(), schedule.sigma(times).numpy()
    with np.errstate(divide="ignore"):
        return times, alpha, sigma, np.log(alpha) - np.log(sigma)


def clean(x, alpha, sigma):
    """E[x_0 | x_t] of the normal data."""
    m, v = M.numpy(), V.numpy()
    return m + alpha * v / (alpha**2 * v + sigma**2) * (x - alpha * m)


# --- published rules, written out


def rule_2m(lam, i, values, heun=False):
    h, before = lam[i + 1] - lam[i], lam[i] - lam[i - 1]
    slope = (values[-1] - values[-2]) * h / before
    weight = 1 - (1 - math.exp(-h)) / h if heun else (1 - math.exp(-h)) / 2
    return (1 - math.exp(-h)) * values[-1] + weight * slope


def rule_3m(lam, i, values):
    h = lam[i + 1] - lam[i]
    r0, r1 = (lam[i] - lam[i - 1]) / h, (lam[i - 1] - lam[i - 2]) / h
    first, second = (values[-1] - values[-2]) / r0, (values[-2] - values[-3]) / r1
    one, two = first + r0 / (r0 + r1) * (first - second), (first - second) / (r0 + r1)
    return (1 - math.exp(-h)) * values[-1] + ((math.exp(-h) - 1) / h + 1) * one - ((math.exp(-h) - 1 + h) / h**2 - 0.5) * two


def by_hand(denoiser, x, steps, end, order, rule):
    """A multistep method from the published update: DDIM, then `rule`."""
    _, alpha, sigma, lam = grid(denoiser, steps, end)
    x, values = x.numpy(), []
    for i in range(steps):
        values.append(clean(x, alpha[i], sigma[i]))
        if sigma[i + 1] == 0:
            x = alpha[i + 1] * values[-1]
            continue
        known = min(len(values), order)
        gain = (1 - math.exp(lam[i] - lam[i + 1])) * values[-1] if known == 1 else rule(lam, i, values, known)
        x = sigma[i + 1] / sigma[i] * x + alpha[i + 1] * gain
    return torch.from_numpy(x)


@pytest.mark.parametrize("end", [0.0, 0.02])
@pytest.mark.parametrize("steps", [5, 17])
def test_published_rules(end, steps):
    denoiser, x = normal(), start()
    times = grid(denoiser, steps, end)[0]
    once = {"start_again": False, "lower_final": False}
    for sampler, order, rule in (
        (DPMSolverPP(2, lower_final=False), 2, lambda lam, i, v, n: rule_2m(lam, i, v)),
        (DPMSolverPP(2, rule="exact", lower_final=False), 2, lambda lam, i, v, n: rule_2m(lam, i, v, True)),
        (
            DPMSolverPP(3, rule="published", **once),
            3,
            lambda lam, i, v, n: rule_2m(lam, i, v) if n == 2 else rule_3m(lam, i, v),
        ),
    ):
        got, _ = un.sample(denoiser, x=x, sampler=sampler, grid=times, seed=0)
        torch.testing.assert_close(got, by_hand(denoiser, x, steps, end, order, rule), rtol=0, atol=1e-12)


def test_lowered_at_the_end():
    """With so many steps left, no more predictions."""
    denoiser, x = normal(), start()
    for steps, end in ((5, 0.02), (17, 0.02), (5, 0.0)):
        times = grid(denoiser, steps, end)[0]

        def rule(lam, i, v, n, steps=steps):
            n = min(n, steps - i)
            if n == 1:
                return (1 - math.exp(lam[i] - lam[i + 1])) * v[-1]
            return rule_2m(lam, i, v) if n == 2 else rule_3m(lam, i, v)

        expected = by_hand(denoiser, x, steps, end, 3, rule)
        sampler = DPMSolverPP(3, rule="published", start_again=False, lower_final=True)
        torch.testing.assert_close(
            un.sample(denoiser, x=x, sampler=sampler, grid=times, seed=0)[0], expected, rtol=0, atol=1e-12
        )
        default = DPMSolverPP(3, rule="published", start_again=False)
        same = torch.allclose(un.sample(denoiser, x=x, sampler=default, grid=times, seed=0)[0], expected, rtol=0, atol=1e-12)
        assert same == (steps < 15 and end > 0)  # unless told: in few steps that end at a finite lambda


def test_single_steps_by_hand():
    """2S: DDIM to the middle, then from the start again by the published rule."""
    denoiser, x = normal(), start()
    times, alpha, sigma, lam = grid(denoiser, 6, 0.02)
    y = x.numpy()
    for i in (0, 2, 4):
        first = clean(y, alpha[i], sigma[i])
        middle = sigma[i + 1] / sigma[i] * y + alpha[i + 1] * (1 - math.exp(lam[i] - lam[i + 1])) * first
        second, h = clean(middle, alpha[i + 1], sigma[i + 1]), lam[i + 2] - lam[i]
        slope = (second - first) * h / (lam[i + 1] - lam[i])
        y = sigma[i + 2] / sigma[i] * y + alpha[i + 2] * (1 - math.exp(-h)) * (first + slope / 2)
    got, info = un.sample(denoiser, x=x, sampler=DPMSolverPP(2, single=True, lower_final=False), grid=times, seed=0)
    assert info.calls == 6
    torch.testing.assert_close(got, torch.from_numpy(y), rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="single"):
        DPMSolverPP(2, sde=True, single=True)
    with pytest.raises(TypeError, match="undo the moves"):
        un.samplers.PredictorCorrector(DPMSolverPP(2, single=True), un.samplers.Langevin())


def test_linear_multistep_by_hand():
    """Adams-Bashforth of order 2 on dy/drho = eps with uneven steps, to rho = 0."""
    denoiser, x = normal(), start()
    times, alpha, sigma, _ = grid(denoiser, 6, 0.0)
    rho, y, slopes = sigma / alpha, (x / denoiser.process.schedule.alpha(0.98)).numpy(), []
    for i in range(6):
        slopes.append((y - clean(alpha[i] * y, alpha[i], sigma[i])) / rho[i])
        h = rho[i + 1] - rho[i]
        bend = 0 if i == 0 else (slopes[-1] - slopes[-2]) / (rho[i] - rho[i - 1])
        y = y + h * slopes[-1] + h**2 / 2 * bend
    got, _ = un.sample(denoiser, x=x, sampler=LMS(2), grid=times, seed=0)
    torch.testing.assert_close(got, torch.from_numpy(y), rtol=0, atol=1e-12)


def test_heun_by_hand():
    """EDM's algorithm 2 in its own variables: churn with scaled noise, and the last step to sigma = 0 by Euler."""
    schedule = un.schedules.VE(0.01, 10.0)
    denoiser, x = normal(schedule), start()
    times = Karras().times(denoiser.process, 6, 0.9, 0.0)
    levels = schedule.sigma(times)
    for churn, noise in ((0.0, 1.0), (1.2, 1.0), (1.2, 1.007)):
        gamma, y = min(churn / 6, 2**0.5 - 1), x.clone()
        for i in range(6):
            high = levels[i] * (1 + gamma)
            z = un.NoiseSource(4, 5).at("churn", i).normal((2,))
            y = y + noise * (high**2 - levels[i] ** 2).sqrt() * z
            slope = (y - torch.from_numpy(clean(y.numpy(), 1.0, high.item()))) / high
            end = y + (levels[i + 1] - high) * slope
            if levels[i + 1] > 0:
                second = (end - torch.from_numpy(clean(end.numpy(), 1.0, levels[i + 1].item()))) / levels[i + 1]
                end = y + (levels[i + 1] - high) * (slope + second) / 2
            y = end
        got, _ = un.sample(denoiser, x=x, sampler=Heun(churn, noise=noise), grid=times, seed=4)
        torch.testing.assert_close(got, y, rtol=0, atol=1e-9)
    with pytest.raises(ValueError, match="noise"):
        Heun(1.0, noise=-1.0)


# --- clean predictions


def test_thresholds_against_numpy():
    values = 2 * un.NoiseSource(0, 7).normal((3, 5))
    flat = values.reshape(7, -1).numpy()
    for quantile, bound, most in ((0.995, 1.0, math.inf), (0.5, 1.0, 1.2), (0.9, 3.0, math.inf), (1.0, 0.1, 0.5)):
        s = np.clip(np.quantile(np.abs(flat), quantile, axis=1), bound, most)[:, None]
        expected = np.clip(flat, -s, s) / s * bound
        got = Threshold(quantile, bound, most)(values)
        np.testing.assert_allclose(got.reshape(7, -1).numpy(), expected, rtol=0, atol=1e-12)
        assert Threshold(quantile, bound, most)(values.float()).dtype == torch.float32
    np.testing.assert_array_equal(Clip(0.3)(values).numpy(), np.clip(values.numpy(), -0.3, 0.3))
    for bad in (lambda: Clip(0.0), lambda: Threshold(0.0), lambda: Threshold(0.9, 2.0, 1.0)):
        with pytest.raises(ValueError):
            bad()


METHODS = {
    "DDIM": DDIM,
    "Euler": lambda clean: EulerMaruyama(0.0, clean),
    "2M": lambda clean: DPMSolverPP(2, clean=clean),
    "3M": lambda clean: DPMSolverPP(3, clean=clean),
    "UniPC": lambda clean: UniPC(clean=clean),
    "DEIS": lambda clean: DEIS(clean=clean),
    "LMS": lambda clean: LMS(clean=clean),
    "Heun": lambda clean: Heun(clean=clean),
}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", [un.Clean, un.Velocity])
def test_a_changed_clean_prediction_is_that_of_a_changed_network(method, kind):
    """Sampling with `clean` is sampling a denoiser whose own D is changed, whatever kind it predicts."""

    class Changed(un.AnyDenoiser):
        process = normal().process

        def forward(self, x_t, t, **condition):
            return un.Clean(Clip(0.6)(normal()(x_t, t).to(un.Clean).value), self.process, x_t, t)

    make = METHODS[method]
    options = {"x": start(), "steps": 8, "start": 0.98, "end": 0.05, "seed": 0}
    got, _ = un.sample(normal(kind=kind), sampler=make(clean=Clip(0.6)), **options)
    told, _ = un.sample(Changed(), sampler=make(clean=None), **options)
    torch.testing.assert_close(got, told, rtol=0, atol=1e-9)
    plain, _ = un.sample(normal(kind=kind), sampler=make(clean=None), **options)
    assert not torch.allclose(got, plain, atol=1e-2)


# --- stochasticity as a function of time


@pytest.mark.parametrize("make", [DDIM, EulerMaruyama, lambda eta: Exponential(2, eta)])
def test_eta_of_t(make):
    denoiser, x = normal(), start()
    options = {"x": x, "steps": 8, "start": 0.98, "seed": 0}
    constant = un.sample(denoiser, sampler=make(0.7), **options)[0]
    same = un.sample(denoiser, sampler=make(lambda t: torch.full_like(t, 0.7)), **options)[0]
    torch.testing.assert_close(same, constant, rtol=0, atol=1e-12)
    # until t = 0.5 with noise, then without: two runs
    switched = un.sample(denoiser, sampler=make(lambda t: 0.7 * (t > 0.5).double()), **options, trajectory=True)[
        1
    ].trajectory
    times = torch.linspace(0.98, 0, 9, dtype=torch.float64)
    late = int((times > 0.5).sum())
    first = un.sample(denoiser, sampler=make(0.7), **options, trajectory=True)[1].trajectory
    torch.testing.assert_close(switched[late], first[late], rtol=0, atol=1e-12)
    if make is DDIM:
        rest = un.sample(denoiser, x=first[late], sampler=make(0.0), grid=times[late:], seed=0)[0]
        torch.testing.assert_close(switched[-1], rest, rtol=0, atol=1e-12)
    with pytest.raises(ValueError, match="negative"):
        un.sample(denoiser, sampler=make(lambda t: -t), **options)


@pytest.mark.conformance
def test_the_law_with_eta_of_t():
    """Any amount at any time leaves the law alone: in many steps draws have the mean and variance of the data."""
    n = 20_000
    x, _ = un.sample(normal(), n=n, steps=200, sampler=DDIM(lambda t: torch.sin(3 * t).square()), seed=1)
    assert ((x.mean(0) - M).abs() < 5 * (V / n).sqrt() + 0.003).all()
    assert ((x.var(0) - V).abs() < 5 * V * (2 / n) ** 0.5 + 0.006).all()


# --- grids


def test_spacings():
    """As diffusers 0.42 prints them (DDIMScheduler, 1000 steps; they count from 0), and its formula of the shift."""
    for spacing, offset, expected in (
        ("leading", 1, [801, 601, 401, 201, 1]),
        ("trailing", 0, [999, 799, 599, 399, 199]),
        ("linspace", 0, [999, 749, 500, 250, 0]),
    ):
        assert (Timesteps(spacing, 1000, offset).numbers(5) - 1).tolist() == expected
    assert (Timesteps("trailing").numbers(7) - 1).tolist() == [999, 856, 713, 570, 428, 285, 142]
    assert (Timesteps("linspace").numbers(7) - 1).tolist() == [999, 832, 666, 500, 333, 166, 0]
    process = un.Gaussian((2,), un.schedules.Linear())
    assert Timesteps("trailing").times(process, 5, 1.0, 0.0).tolist() == [1.0, 0.8, 0.6, 0.4, 0.2, 0.0]
    shifted = Shifted(3.0).times(process, 4, 1.0, 0.0)
    torch.testing.assert_close(shifted, torch.tensor([1.0, 0.9, 0.75, 0.5, 0.0], dtype=torch.float64), rtol=0, atol=1e-15)
    x, info = un.sample(normal(), 3, 5, DDIM(), Timesteps("leading"), seed=0)
    assert info.times.tolist() == [0.801, 0.601, 0.401, 0.201, 0.001, 0.0] and bool(x.isfinite().all())
    for bad in (
        lambda: Timesteps("middle"),
        lambda: Timesteps(of=0),
        lambda: Timesteps().numbers(1001),
        lambda: Shifted(0.0),
    ):
        with pytest.raises(ValueError):
            bad()


def test_shifted_and_clipped():
    process = un.Gaussian((2,), un.schedules.Linear())
    for start_, end in ((1.0, 0.0), (0.95, 0.05)):
        even, shifted = (rule.times(process, 6, start_, end) for rule in (Shifted(1.0), Shifted(2.5)))
        torch.testing.assert_close(even, Even().times(process, 6, start_, end), rtol=0, atol=1e-15)
        assert (float(shifted[0]), float(shifted[-1])) == (start_, end)
    back = shifted / (2.5 - 1.5 * shifted)
    torch.testing.assert_close(back.diff(), back.diff().mean().expand(6), rtol=1e-12, atol=0)
    for schedule in (un.schedules.Cosine(), un.schedules.LinearBeta()):
        process = un.Gaussian((2,), schedule)
        times = Clipped(-3.0, 2.0).times(process, 6, 1.0, 0.0)
        ends = schedule.log_snr(times[[0, -1]]) / 2
        torch.testing.assert_close(ends, torch.tensor([-3.0, 2.0], dtype=torch.float64), rtol=0, atol=1e-9)
        assert torch.equal(Clipped(-100.0).times(process, 6, 0.9, 0.1), Even().times(process, 6, 0.9, 0.1))
    for bad in (lambda: Clipped(1.0, 0.0), lambda: Clipped(-90.0, -80.0).times(process, 4, 0.5, 0.1)):
        with pytest.raises(ValueError):
            bad()


# --- from data to noise


def on_flow(schedule, x0, t):
    """Where the flow of normal data takes x_0."""
    alpha, sigma = schedule.alpha(t), schedule.sigma(t)
    return alpha * M + ((alpha**2 * V + sigma**2) / V).sqrt() * (x0 - M)


@pytest.mark.parametrize(
    "sampler", [DDIM(), DPMSolverPP(2), DPMSolverPP(3), UniPC(), DEIS(), LMS(), Heun(), DPMSolverPP(2, single=True)]
)
@pytest.mark.parametrize(
    "schedule", [un.schedules.LinearBeta(), pytest.param(un.schedules.Cosine(), marks=pytest.mark.conformance)]
)
def test_encoding(sampler, schedule):
    denoiser, x0, low = normal(schedule), M + V.sqrt() * start(), torch.tensor(0.02, dtype=torch.float64)
    begun, errors = on_flow(schedule, x0, low) / schedule.alpha(low), []  # exactly on the flow of x_0, where the run begins
    for steps in (102, 204):
        z, info = un.encode(denoiser, begun, steps, sampler, LogSNR(), start=0.02, end=0.95)
        errors.append(float((z - on_flow(schedule, x0, 0.95)).abs().max()))
        assert info.times[0] < info.times[-1] and len(info.times) == steps + 1
    assert errors[1] < 0.02 and math.log2(errors[0] / errors[1]) > sampler.order - 0.5
    z, _ = un.encode(denoiser, x0, 200, sampler)  # there and back, over the whole of time
    back, _ = un.sample(denoiser, x=z, steps=200, sampler=sampler, seed=0)
    assert (back - x0).abs().max() < (0.1 if sampler.order == 1 else 0.01)


def test_encoding_refused():
    x0 = start()
    for sampler in (DDIM(1.0), Ancestral(), Heun(churn=1.0), DPMSolverPP(2, sde=True)):
        with pytest.raises(TypeError, match="way back"):
            un.encode(normal(), x0, 4, sampler)
    for options in ({"start": 0.0}, {"start": 0.5, "end": 0.2}, {"grid": [0.5, 0.2]}, {"grid": [0.0, 0.5]}):
        with pytest.raises(ValueError):
            un.encode(normal(), x0, sampler=DDIM(), **options)
    z, info = un.encode(normal(), x0, grid=[0.1, 0.4, 0.9], trajectory=True)
    assert info.times.tolist() == [0.1, 0.4, 0.9] and len(info.trajectory) == 3 and torch.equal(info.trajectory[-1], z)
    x0 = start().requires_grad_()
    assert torch.autograd.grad(un.encode(normal(), x0, 4, grad=True)[0].sum(), x0)[0].abs().sum() > 0
