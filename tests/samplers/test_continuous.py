"""Samplers on numbers, against the exact flow and the exact law of Gaussian data.

With C_t = alpha^2 C + sigma^2 I, whose eigenvectors do not depend on time, the reverse SDE of stochasticity eta takes a
deviation from the mean alpha_t m, along an axis with eigenvalues c_t, from time b to time a by the factor

    K = (alpha_b/alpha_a)^(eta^2) (c_a/c_b)^((1 + eta^2)/2)

and leaves the marginal law as it is.  With eta = 0 that is the probability flow,

    x_a = alpha_a m + C_a^1/2 C_b^-1/2 (x_b - alpha_b m).

Orders are slopes of log error over log steps, on a fixed interval inside (0, 1): [0.05, 0.95], or [0.05, 0.7] for VE and
Linear.  With these two the third-order error of some method has opposite signs in two parts of the longer interval and
nearly cancels, which spoils the fit (VE then shows 4 for DPM-Solver++ 3M, Linear 2.2 for DEIS 3).
"""

import math

import pytest
import torch
from torch import Tensor

import unnoise as un
from unnoise.denoiser import AnyDenoiser
from unnoise.samplers import (
    DDIM,
    DEIS,
    LMS,
    Ancestral,
    DPMSolverPP,
    EulerMaruyama,
    Exponential,
    Heun,
    UniPC,
    base,
    combinations,
    exponential,
    heun,
    linear,
    sample,
    weights,
)

M = torch.tensor([0.7, -0.3], dtype=torch.float64)
C = torch.tensor([[0.5, 0.2], [0.2, 0.3]], dtype=torch.float64)
EYE = torch.eye(2, dtype=torch.float64)
LOW, HIGH = 0.05, {"Cosine": 0.95, "LinearBeta": 0.95, "VE": 0.7, "Linear": 0.7}
SCHEDULES = {
    "Cosine": un.schedules.Cosine,
    "LinearBeta": un.schedules.LinearBeta,
    "VE": lambda: un.schedules.VE(0.01, 10.0),
    "Linear": un.schedules.Linear,
}


def setting(name: str = "Cosine", **options):
    return un.Gaussian((2,), SCHEDULES[name](), **options)


def noised(process, t) -> tuple[Tensor, Tensor]:
    """Mean and covariance of x_t."""
    alpha, sigma = process.schedule.alpha(t), process.schedule.sigma(t)
    return alpha * M, alpha**2 * C + sigma**2 * EYE


def posterior_mean(process, t) -> tuple[Tensor, Tensor]:
    """E[x_0 | x_t] = A x_t + b."""
    mean, covariance = noised(process, t)
    gain = process.schedule.alpha(t) * torch.linalg.solve(covariance, C)
    return gain, M - gain @ mean


def factor(process, high: float, eta: float = 0.0) -> Tensor:
    """The matrix K from `high` to LOW."""
    (values_b, axes), values_a = torch.linalg.eigh(noised(process, high)[1]), torch.linalg.eigvalsh(noised(process, LOW)[1])
    fall = process.schedule.alpha(high) / process.schedule.alpha(LOW)
    return axes @ torch.diag(fall ** (eta**2) * (values_a / values_b) ** ((1 + eta**2) / 2)) @ axes.T


class Exact(AnyDenoiser):
    """The posterior mean of Gaussian data by two matrices: the oracle's, at less cost."""

    def __init__(self, process, variance=None):
        super().__init__()
        self.process, self.variance = process, variance

    def forward(self, x_t, t, **condition):
        gain, shift = posterior_mean(self.process, t.reshape(-1)[0])  # all rows are at one time
        return un.Clean(x_t @ gain.T + shift, self.process, x_t, t, self.variance)


def slope(steps, errors) -> float:
    """The order, by least squares in logarithms."""
    n, e = (torch.tensor([math.log(v) for v in values], dtype=torch.float64) for values in (steps, errors))
    return -float(((n - n.mean()) * (e - e.mean())).sum() / (n - n.mean()).square().sum())


# --- order of the flow


def flow_order(sampler, name: str, steps=(64, 128, 256)) -> float:
    process, high = setting(name), HIGH[name]
    away = torch.tensor([[1.0, 0.3], [-0.4, 1.2], [0.8, -0.9]], dtype=torch.float64) * process.schedule.sigma(high)
    x, exact = noised(process, high)[0] + away, noised(process, LOW)[0] + away @ factor(process, high)
    runs = [sample(Exact(process), x=x, sampler=sampler, steps=n, start=high, end=LOW, seed=0)[0] for n in steps]
    return slope(steps, [float((run - exact).square().mean().sqrt()) for run in runs])


def check_flow(sampler, name: str) -> None:
    """Of higher order on finer grids: there the midpoint rule has all its weight on three points.  Multiples of 6 for 2S and
    3S.
    """
    grids = {3: (132, 264, 528), 4: (258, 516, 1032)}
    steps = grids[3] if getattr(sampler, "single", False) else grids.get(sampler.order, (64, 128, 256))
    assert abs(flow_order(sampler, name, steps) - sampler.order) < 0.25, flow_order(sampler, name, steps)


FLOWS = {
    "DDIM": DDIM,
    "Euler": lambda: EulerMaruyama(eta=0.0),
    "Exponential 1": lambda: Exponential(1),
    "Exponential 2": lambda: Exponential(2),
    "Exponential 3": lambda: Exponential(3),
    "DPM++ 2M": lambda: DPMSolverPP(2),
    "DPM++ 3M": lambda: DPMSolverPP(3),
    "DPM++ 2M, exact": lambda: DPMSolverPP(2, rule="exact"),
    "DPM++ 3M, exact": lambda: DPMSolverPP(3, rule="exact"),
    "DPM++ 2S": lambda: DPMSolverPP(2, single=True),
    "DPM++ 2S, exact": lambda: DPMSolverPP(2, rule="exact", single=True),
    "DPM++ 3S": lambda: DPMSolverPP(3, single=True),
    "DPM++ 3S, exact": lambda: DPMSolverPP(3, rule="exact", single=True),
    "UniPC 2": lambda: UniPC(2),
    "UniPC 3": lambda: UniPC(3),
    "UniPC 4": lambda: UniPC(4),
    "UniPC 2, bh1": lambda: UniPC(2, "bh1"),
    "UniPC 3, bh1": lambda: UniPC(3, "bh1"),
    "UniPC 3, exact": lambda: UniPC(3, "exact"),
    "UniPC 4, exact": lambda: UniPC(4, "exact"),
    "DEIS 1": lambda: DEIS(1),
    "DEIS 2": lambda: DEIS(2),
    "DEIS 3": lambda: DEIS(3),
    "DEIS 4": lambda: DEIS(4),
    "DEIS 3, in t": lambda: DEIS(3, "t"),
    "DEIS 4, in t": lambda: DEIS(4, "t"),
    "LMS 1": lambda: LMS(1),
    "LMS 2": lambda: LMS(2),
    "LMS 3": lambda: LMS(3),
    "LMS 4": lambda: LMS(4),
    "Heun": Heun,
}
ORDERS = {"DDIM": 1, "Euler": 1, "Heun": 2}


def test_the_exact_denoiser_is_the_oracle():
    for name in SCHEDULES:
        process, x = setting(name), torch.randn(5, 2, dtype=torch.float64)
        for t in (0.1, 0.6):
            told = un.oracles.normal(process, M, C)(x, t).to(un.Clean).value
            torch.testing.assert_close(
                Exact(process)(x, torch.tensor(t, dtype=torch.float64)).value, told, rtol=0, atol=1e-12
            )


@pytest.mark.parametrize("method", FLOWS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_order_of_the_flow(name, method):
    sampler = FLOWS[method]()
    assert sampler.order == (ORDERS.get(method) or int(method.split(",")[0].strip("MS")[-1]))
    check_flow(sampler, name)


class TwoBumps(AnyDenoiser):
    """The posterior mean of a mixture of two round normals of variance v."""

    means, v = torch.tensor([[1.0, 0.5], [-1.0, 0.2]], dtype=torch.float64), 0.15

    def __init__(self, process):
        super().__init__()
        self.process = process

    def forward(self, x_t, t, **condition):
        t = t.reshape(-1)[0]  # all rows are at one time
        alpha, sigma = self.process.schedule.alpha(t), self.process.schedule.sigma(t)
        variance, away = alpha**2 * self.v + sigma**2, x_t.unsqueeze(1) - alpha * self.means
        weight = (-0.5 * away.square().sum(-1) / variance + torch.tensor([0.4, 0.6]).double().log()).softmax(-1)
        clean = self.means + alpha * self.v / variance * away
        return un.Clean((weight.unsqueeze(-1) * clean).sum(1), self.process, x_t, t)


@pytest.mark.conformance
@pytest.mark.parametrize("name", SCHEDULES)
def test_order_on_a_mixture(name):
    """Against 1024 steps of a method of order 4, whose own error is far below all others'."""
    process, steps = setting(name), (96, 192, 384)
    denoiser, sigma = TwoBumps(process), process.schedule.sigma(0.7)
    x = sigma * torch.tensor([[1.0, 0.3], [-0.4, 1.2], [0.8, -0.9], [-1.3, -0.2]], dtype=torch.float64)
    oracle = un.oracles.mixture(process, torch.tensor([0.4, 0.6]), TwoBumps.means, TwoBumps.v * EYE.expand(2, 2, 2))
    told, t = oracle(x, 0.7).to(un.Clean).value, torch.tensor(0.7, dtype=torch.float64)
    torch.testing.assert_close(denoiser(x, t).value, told, rtol=0, atol=1e-7)  # the weights of the test are rounded

    def run(sampler, steps):
        return sample(denoiser, x=x, sampler=sampler, steps=steps, start=0.7, end=0.1, seed=0)[0]

    exact = run(UniPC(4, "exact"), 1024)
    for sampler in (DDIM(), DPMSolverPP(2), DPMSolverPP(3), UniPC(3), UniPC(4), DEIS(3), LMS(4), Heun()):
        errors = [float((run(sampler, n) - exact).square().mean().sqrt()) for n in steps]
        assert abs(slope(steps, errors) - sampler.order) < 0.4, (sampler, slope(steps, errors), errors)


# --- order of the law


def law(sampler, process, times, mean, covariance) -> tuple[Tensor, Tensor]:
    """Exact moments of a linear method's last state: D is affine, so (x, the last two D) moves by affine maps."""
    mean, joint = torch.cat([mean, torch.zeros(4, dtype=torch.float64)]), torch.zeros(6, 6, dtype=torch.float64)
    joint[:2, :2] = covariance
    for i, row in enumerate(sampler.table(process, times)):
        gain, shift = posterior_mean(process, times[i])
        weights = [float(w) for w in row.weights] + [0.0] * (3 - len(row.weights))
        move, add = torch.zeros(6, 6, dtype=torch.float64), torch.zeros(6, dtype=torch.float64)
        move[:2] = torch.cat([float(row.keep) * EYE + weights[0] * gain, weights[1] * EYE, weights[2] * EYE], 1)
        move[2:4, :2], move[4:, 2:4] = gain, EYE
        add[:2], add[2:4] = weights[0] * shift, shift
        mean, joint = move @ mean + add, move @ joint @ move.T
        if row.noise is not None:
            joint[:2, :2] += float(row.noise) ** 2 * EYE
    return mean[:2], joint[:2, :2]


def kernel_law(denoiser, times, mean, covariance) -> tuple[Tensor, Tensor]:
    """The same for the model's own kernel, whose affine mean is read off at three points."""
    points = torch.cat([torch.zeros(1, 2, dtype=torch.float64), EYE])
    for t, s in zip(times[:-1], times[1:], strict=True):
        step = denoiser(points, t).step(s)
        move = (step.mean[1:] - step.mean[0]).T
        mean, covariance = (
            move @ mean + step.mean[0],
            move @ covariance @ move.T + torch.diag(step.std[0].square().expand(2)),
        )
    return mean, covariance


def law_errors(method, eta: float, name: str, steps) -> list[float]:
    """Error of mean and covariance, from a start away from the mean, where D = m would hide an error of the drift."""
    process, high = setting(name), HIGH[name]
    (mean, covariance), away = noised(process, high), torch.tensor([0.5, -1.0], dtype=torch.float64)
    exact_mean, exact_covariance = noised(process, LOW)
    exact_mean = exact_mean + factor(process, high, eta) @ away
    out = []
    for n in steps:
        times = torch.linspace(high, LOW, n + 1, dtype=torch.float64)
        got_mean, got_covariance = method(process, times, mean + away, covariance)
        out.append(
            float(((got_mean - exact_mean).square().sum() + (got_covariance - exact_covariance).square().sum()).sqrt())
        )
    return out


def check_law(sampler, name: str, steps=(64, 128, 256)) -> None:
    errors = law_errors(lambda *start: law(sampler, *start), sampler.eta, name, steps)
    assert abs(slope(steps, errors) - sampler.order) < 0.25, errors


LAWS = {
    "ancestral": lambda: DDIM(eta=1.0),
    "Euler-Maruyama": lambda: EulerMaruyama(1.0),
    "Euler-Maruyama, half": lambda: EulerMaruyama(0.5),
    "Exponential 1, SDE": lambda: Exponential(1, eta=1.0),
    "SDE-DPM++ 2M": lambda: DPMSolverPP(2, sde=True),
    "SDE-DPM++ 3M": lambda: DPMSolverPP(3, sde=True),
}


@pytest.mark.parametrize("method", LAWS)
@pytest.mark.parametrize("name", SCHEDULES)
def test_order_of_the_law(name, method):
    """With a third D the error of order 3 is the larger one on coarse grids, so its order is fitted on finer ones."""
    sampler = LAWS[method]()
    assert sampler.order == (2 if "DPM" in method else 1)
    check_law(sampler, name, (512, 1024) if sampler.degree == 3 else (64, 128, 256))


@pytest.mark.parametrize("variance", [un.variances.PosteriorVariance(), un.variances.ForwardVariance()])
@pytest.mark.parametrize("name", SCHEDULES)
def test_order_of_the_ancestral_law(name, variance):
    steps = (32, 64, 128)
    errors = law_errors(lambda process, *start: kernel_law(Exact(process, variance), *start), 1.0, name, steps)
    assert abs(slope(steps, errors) - Ancestral.order) < 0.25, errors


def compare_moments(x: Tensor, mean: Tensor, covariance: Tensor, bound: float = 5.0) -> None:
    """Five moments, each within `bound` standard errors: at 5 a false alarm in 3 of a million runs."""
    n, away = len(x), x - mean
    assert ((away.mean(0) / (covariance.diagonal() / n).sqrt()).abs() < bound).all()
    error = ((covariance.square() + torch.outer(covariance.diagonal(), covariance.diagonal())) / n).sqrt()
    assert (((away.T @ away / n - covariance) / error).abs() < bound).all()


def check_draws(sampler, rows: int = 20000, steps: int = 12) -> None:
    """Draws have the moments of the method's table (no error of discretisation is allowed for)."""
    process = setting("Cosine")
    mean, covariance = noised(process, 0.95)
    z = un.NoiseSource(7, rows).normal((2,))
    x, _ = sample(
        Exact(process), x=mean + z @ torch.linalg.cholesky(covariance).T, sampler=sampler, steps=steps, start=0.95, seed=0
    )
    compare_moments(x, *law(sampler, process, torch.linspace(0.95, 0, steps + 1, dtype=torch.float64), mean, covariance))


@pytest.mark.parametrize("method", LAWS)
def test_draws_have_the_law_of_the_table(method):
    check_draws(LAWS[method]())


def check_churn(churn: float = 20.0, rows: int = 20000) -> None:
    """Churn leaves the marginal laws as they are; at 64 steps the method's own error is a tenth of a standard error."""
    process = setting("Cosine")
    mean, covariance = noised(process, 0.95)
    x = mean + un.NoiseSource(8, rows).normal((2,)) @ torch.linalg.cholesky(covariance).T
    compare_moments(
        sample(Exact(process), x=x, sampler=Heun(churn), steps=64, start=0.95, end=LOW, seed=0)[0], *noised(process, LOW)
    )


def test_churn():
    check_churn()
    process = setting("Cosine")
    x = torch.randn(4, 2, dtype=torch.float64)

    def run(seed, **options):
        return sample(Exact(process), x=x, sampler=Heun(**options), steps=8, seed=seed, start=0.95)[0]

    assert torch.equal(run(0), run(1))
    assert not torch.allclose(run(0, churn=5.0), run(1, churn=5.0))
    assert torch.equal(run(0, churn=5.0, low=100.0), run(0))  # no level of this grid is as high
    ratio = (process.schedule.sigma(0.475) / process.schedule.alpha(0.475)).item()  # of one level of this grid
    near = run(0, churn=5.0, low=0.999 * ratio, high=1.001 * ratio)
    assert not torch.equal(near, run(0)) and not torch.equal(near, run(0, churn=5.0))
    for bad in ({"churn": -1.0}, {"churn": 1.0, "low": 2.0, "high": 1.0}):
        with pytest.raises(ValueError):
            Heun(**bad)


# --- what the network predicts, and of which process

ALL = {**FLOWS, **LAWS, "Ancestral": Ancestral, "Heun, churn": lambda: Heun(churn=4.0)}
SOME = {
    name: ALL[name] for name in ("DDIM", "ancestral", "DPM++ 3M", "UniPC 3", "DEIS 3", "Heun", "SDE-DPM++ 2M", "Ancestral")
}


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("covariance", [None, [[1.0, 0.4], [0.4, 0.7]]])
def test_every_kind_gives_the_same_trajectory(method, covariance):
    process = setting("Cosine", covariance=covariance)
    oracle = un.oracles.normal(process, M, C)

    def run(kind):
        return sample(oracle.predicting(kind), 5, 8, ALL[method](), start=0.98, seed=0)[0]

    reference = run(un.Clean)
    for kind in (un.Noise, un.Score, un.Velocity, un.Flow, un.Energy):
        torch.testing.assert_close(run(kind), reference, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ALL)
def test_correlated_noise_is_independent_noise_in_whitened_coordinates(method):
    covariance = un.Covariance([[1.0, 0.4], [0.4, 0.7]])
    inverse = torch.linalg.inv(covariance.root)
    correlated = un.oracles.normal(setting("Cosine", covariance=covariance), M, C, un.Score)
    white = un.oracles.normal(setting("Cosine"), inverse @ M, inverse @ C @ inverse.T)
    x = sample(correlated, 6, 8, ALL[method](), start=0.98, seed=0)[0]
    y = sample(white, 6, 8, ALL[method](), start=0.98, seed=0)[0]
    torch.testing.assert_close(x, y @ covariance.root.T, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", [m for m in ALL if m != "Heun, churn"])
@pytest.mark.parametrize("kind", [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow])
def test_schedules_per_coordinate(method, kind):
    """Independent coordinates move as they would alone; with noise, the first of them, whose numbers are the same."""
    parts = [un.schedules.Cosine(), un.schedules.LinearBeta()]
    both = un.Gaussian((2,), un.schedules.PerCoordinate(parts))
    x = torch.randn(6, 2, dtype=torch.float64)
    joint = un.oracles.normal(both, M, torch.diag(C.diagonal()), kind)
    states, _ = sample(joint, x=x, sampler=ALL[method](), steps=8, start=0.98, seed=0)
    for j, schedule in enumerate(parts if method in FLOWS else parts[:1]):
        alone = un.oracles.normal(un.Gaussian((1,), schedule), M[j : j + 1], C[j : j + 1, j : j + 1], kind)
        expected, _ = sample(alone, x=x[:, j : j + 1], sampler=ALL[method](), steps=8, start=0.98, seed=0)
        torch.testing.assert_close(states[:, j : j + 1], expected, rtol=0, atol=1e-9)
    if kind not in (un.Noise, un.Score):  # from t = 1, where alpha = 0 for one of the two
        assert bool(sample(joint, x=x, sampler=ALL[method](), steps=8, seed=0)[0].isfinite().all())


def test_schedules_per_coordinate_refused():
    schedule = un.schedules.PerCoordinate([un.schedules.Cosine(), un.schedules.LinearBeta()])
    with pytest.raises(TypeError, match="churn"):
        sample(un.oracles.normal(un.Gaussian((2,), schedule), M, C), 2, 4, Heun(churn=1.0), seed=0)
    for kind in (un.Noise, un.Score):  # one of the coordinates has alpha = 0 at t = 1
        for sampler in (DDIM(), DPMSolverPP(2), Heun()):
            with pytest.raises((ValueError, un.InexactConversion), match="alpha"):
                sample(un.oracles.normal(un.Gaussian((2,), schedule), M, C, kind), 2, 4, sampler, seed=0, start=1.0)
            _, info = sample(un.oracles.normal(un.Gaussian((2,), schedule), M, C, kind), 2, 4, sampler, seed=0)
            assert 0.99 < float(info.times[0]) < 1  # unless told to start there


@pytest.mark.parametrize("method", SOME)
def test_learned_schedules(method):
    process = un.Gaussian((2,), un.schedules.Learned())
    x, _ = sample(un.oracles.normal(process, M, C), 5, 6, SOME[method](), seed=0)
    assert bool(x.isfinite().all()) and not x.requires_grad


@pytest.mark.parametrize("method", ALL)
def test_single_precision(method):
    oracle = un.oracles.normal(setting("Cosine"), M, C)
    single, double = (
        sample(oracle, 6, 16, ALL[method](), dtype=dtype, seed=0)[0] for dtype in (torch.float32, torch.float64)
    )
    assert single.dtype == torch.float32 and double.dtype == torch.float64
    torch.testing.assert_close(single.double(), double, rtol=0, atol=2e-5)


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("name", SCHEDULES)
def test_from_the_prior_to_the_data(method, name):
    """Both ends, where log-SNR is infinite for some schedules; 60 steps bring every coordinate near its law."""
    x, _ = sample(un.oracles.normal(setting(name), M, C), 400, 60, ALL[method](), seed=3)
    mean, covariance = x.mean(0), x.T.cov()
    assert bool(x.isfinite().all())
    assert (mean - M).abs().max() < 0.25 and (covariance - C).abs().max() < 0.3


class Line(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(2, 2)

    def forward(self, x, t):
        return self.linear(x) * t.unsqueeze(-1)


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("kind", [un.Clean, un.Velocity, un.Score])
@pytest.mark.parametrize("own", [False, True])
def test_no_value_is_read_from_the_device(method, kind, own):
    """A meta tensor has no values: any look at one, which would make the host wait for a device, raises."""
    if own and method == "Heun, churn":
        return
    parts = [un.schedules.Cosine(), un.schedules.LinearBeta()]
    process = un.Gaussian((2,), un.schedules.PerCoordinate(parts) if own else parts[0])
    denoiser = un.Denoiser(Line(), process, kind).to("meta")
    x, info = sample(denoiser, 3, 5, ALL[method](), start=0.98, seed=0)
    assert x.shape == (3, 2) and x.device.type == "meta" and x.dtype == torch.float32 and info.calls >= 5


# --- `sample`


def oracle(kind=None):
    return un.oracles.normal(setting("Cosine"), M, C, kind)


@pytest.mark.parametrize("method", SOME)
def test_a_sample_does_not_depend_on_its_batch(method):
    sampler = SOME[method]()
    ten, _ = sample(oracle(), 10, 6, sampler, seed=5)
    some, _ = sample(oracle(), 3, 6, sampler, seed=5, first=4)
    torch.testing.assert_close(some, ten[4:7], rtol=0, atol=1e-12)
    assert not torch.allclose(sample(oracle(), 10, 6, sampler, seed=6)[0], ten)
    torch.testing.assert_close(sample(oracle(), 10, 6, sampler, seed=5)[0], ten, rtol=0, atol=0)


@pytest.mark.parametrize("method", SOME)
def test_records(method):
    seen = []
    x, info = sample(
        oracle(), 4, 6, SOME[method](), trajectory=True, callback=lambda i, t, state: seen.append((i, t, state.x)), seed=0
    )
    assert [i for i, _, _ in seen] == list(range(6)) and [t for _, t, _ in seen] == info.times[1:].tolist()
    assert len(info.trajectory) == 7 and info.trajectory[-1] is x
    assert all(a is b for a, (_, _, b) in zip(info.trajectory[1:], seen, strict=True))
    start = info.trajectory[0]
    again, other = sample(oracle(), x=start, steps=6, sampler=SOME[method](), seed=0)
    torch.testing.assert_close(again, x, rtol=0, atol=0)
    assert other.trajectory is None


@pytest.mark.parametrize("method", ALL)
@pytest.mark.parametrize("steps", [1, 2])
def test_few_steps(method, steps):
    x, info = sample(oracle(), 4, steps, ALL[method](), seed=0)
    assert bool(x.isfinite().all()) and info.times.tolist() == torch.linspace(1, 0, steps + 1).tolist()
    if steps == 1 and method not in ("Euler-Maruyama", "Euler-Maruyama, half"):
        start = un.NoiseSource(0, 4).at("prior").normal((2,))
        torch.testing.assert_close(x, Exact(setting())(start, torch.tensor(1.0)).value, rtol=0, atol=1e-9)


def test_empty_batch():
    x, info = sample(oracle(), 0, 5, DDIM(), trajectory=True, seed=0)
    assert x.shape == (0, 2) and info.calls == 0 and len(info.trajectory) == 6
    assert sample(oracle(), x=torch.zeros(0, 2), sampler=DDIM(), seed=0)[0].shape == (0, 2)


def test_calls():
    for sampler, ends, expected in (
        (DDIM(), (0.95, 0.05), 10),
        (DPMSolverPP(2), (0.95, 0.05), 10),
        (DPMSolverPP(3), (0.95, 0.05), 11),  # a second call makes the first step of order 2
        (DPMSolverPP(3, sde=True), (0.95, 0.05), 10),
        (DPMSolverPP(3), (1.0, 0.0), 10),  # where the first step is DDIM's
        (UniPC(3), (0.95, 0.05), 10),
        (Heun(), (0.95, 0.05), 20),
        (Heun(), (1.0, 0.05), 19),
        (Heun(), (0.95, 0.0), 19),
        (Heun(), (1.0, 0.0), 18),
        (Ancestral(), (1.0, 0.0), 10),
    ):
        _, info = sample(oracle(), 3, 10, sampler, start=ends[0], end=ends[1], seed=0)
        assert (info.calls, info.rows) == (expected, 3 * expected), sampler


def test_grids_given():
    times = [1.0, 0.7, 0.2, 0.0]
    x, info = sample(oracle(), 3, sampler=DDIM(), grid=times, seed=0)
    assert info.times.tolist() == times
    for grid in (torch.tensor(times, dtype=torch.float64), un.samplers.grids.GivenTimes(times)):
        assert torch.equal(sample(oracle(), 3, 3, DDIM(), grid, seed=0)[0], x)
    for grid, match in (
        ([1.0, 0.5, 0.5, 0.0], "without repeats"),
        ([0.0, 0.5, 1.0], "must fall"),
        ([1.2, 0.5], "outside"),
        ([1.0, float("nan")], "outside"),
        ([1.0], "at least two"),
    ):
        with pytest.raises(ValueError, match=match):
            sample(oracle(), 3, sampler=DDIM(), grid=grid, seed=0)


def test_refusals():
    masking = un.Denoiser(torch.nn.Identity(), un.Masking(3, 2))
    for sampler in (DDIM(), EulerMaruyama(), DPMSolverPP(2), UniPC(3), DEIS(3), Heun()):
        with pytest.raises(TypeError, match="numbers under Gaussian noise, and Masking"):
            sample(masking, 2, 4, sampler, seed=0)
    for sampler in (DDIM(), DPMSolverPP(3), DEIS(3), Heun(), Ancestral()):
        for kind in (un.Noise, un.Score):
            with pytest.raises((ValueError, un.InexactConversion), match="alpha"):
                sample(oracle(kind), 2, 4, sampler, seed=0, start=1.0)
    for options, match in (
        ({}, "pass n"),
        ({"n": 2, "x": torch.zeros(2, 2)}, "pass n"),
        ({"n": -1}, "negative"),
        ({"n": 2, "steps": 0}, "at least one"),
        ({"n": 2, "steps": 2, "grid": [1.0, 0.0]}, "one of the two"),
        ({"n": 2, "start": 0.2, "end": 0.4}, "noise to data"),
        ({"n": 2, "grid": [1.0, 0.0], "end": 0.1}, "its own ends"),
    ):
        with pytest.raises(ValueError, match=match):
            sample(oracle(), sampler=DDIM(), **options, seed=0)
    for bad in (
        lambda: Exponential(4),
        lambda: UniPC(1),
        lambda: UniPC(5),
        lambda: DEIS(0),
        lambda: DDIM(1.5),
        lambda: EulerMaruyama(-1.0),
    ):
        with pytest.raises(ValueError):
            bad()


def test_chains():
    process = setting("Cosine")
    chain = un.Chain(process, 20)
    clean = oracle().predicting(un.Clean, chain)
    for sampler in (Ancestral(), DDIM(), DPMSolverPP(2)):
        x, info = sample(clean, 4, sampler=sampler, seed=0)
        assert torch.equal(info.times, chain.grid.flip(0)) and info.calls == 20
        torch.testing.assert_close(
            sample(oracle(un.Clean), 4, sampler=sampler, grid=info.times, seed=0)[0], x, rtol=0, atol=1e-12
        )
        torch.testing.assert_close(
            sample(oracle().predicting(un.Mean, chain), 4, sampler=sampler, seed=0)[0], x, rtol=0, atol=1e-9
        )
        _, info = sample(clean, 4, 5, sampler, seed=0)
        assert torch.equal(info.times, chain.grid.flip(0)[::4]) and info.calls == 5
        with pytest.raises(ValueError, match="Mean prediction belongs to the chain's own steps"):
            sample(oracle().predicting(un.Mean, chain), 4, 5, sampler, seed=0)
        with pytest.raises(ValueError, match="Mean prediction belongs to the chain's own steps"):
            sample(oracle().predicting(un.Mean, chain), 4, sampler=sampler, grid=chain.grid.flip(0)[::2], seed=0)
    tail = chain.grid.flip(0)[12:]
    assert bool(sample(oracle().predicting(un.Mean, chain), 4, sampler=DDIM(), grid=tail, seed=0)[0].isfinite().all())
    for options, match in (
        ({"steps": 30}, "fewer"),
        ({"grid": [1.0, 0.512, 0.0]}, "not on the chain's grid"),
        ({"grid": un.samplers.grids.Even()}, "its own grid"),
        ({"end": 0.5}, "its own ends"),
    ):
        with pytest.raises(ValueError, match=match):
            sample(clean, 4, sampler=DDIM(), **options, seed=0)


# --- mutants


def fails(check, *arguments) -> bool:
    try:
        check(*arguments)
    except AssertionError:
        return True
    return False


def test_halved_noise_is_found(monkeypatch):
    ddim_row = linear.ddim_row
    with monkeypatch.context() as patch:

        def halved(m, i, eta=0.0):
            row = ddim_row(m, i, eta)
            return linear.Coefficients(row.keep, row.weights, 0.5 * row.noise)

        patch.setattr(linear, "ddim_row", halved)
        assert fails(check_law, DDIM(eta=1.0), "Cosine")
    with monkeypatch.context() as patch:
        noised = combinations.noised
        patch.setattr(combinations, "noised", lambda x, scale, *how: noised(x, 0.5 * scale, *how))
        assert fails(check_draws, DDIM(eta=1.0)) and fails(check_draws, DPMSolverPP(2, sde=True))
    with monkeypatch.context() as patch:
        before = heun.Heun.before
        patch.setattr(
            heun.Heun, "before", lambda s, p, m, state, i: state.to(state.x + 0.5 * (before(s, p, m, state, i).x - state.x))
        )
        assert fails(check_churn)


@pytest.mark.conformance
def test_wrong_weights_are_found(monkeypatch):
    """Each time one number of a rule is off by a little: the order falls."""

    def off(rule, at, points):
        def changed(u, length):
            right = rule(u, length)
            if len(u) == points:  # the same sum, so that it is still of order 1
                right = [w + (0.05 * length if n == at else -0.05 * length if n == 0 else 0) for n, w in enumerate(right)]
            return right

        return changed

    for sampler in (DPMSolverPP(2), DPMSolverPP(2, single=True), UniPC(3)):
        with monkeypatch.context() as patch:
            patch.setattr(sampler, "rule", off(weights.midpoint, 1, 2))
            assert fails(check_flow, sampler, "Linear")
    for name, sampler in (("Linear", DPMSolverPP(3, rule="exact")), ("VE", DPMSolverPP(3))):
        with monkeypatch.context() as patch:
            patch.setattr(sampler, "rule", off(sampler.rule, 2, 3))
            assert fails(check_flow, sampler, name)
    correction = exponential.UniPC.correction

    def lighter(self, m, i, known):
        right = correction(self, m, i, known)
        if known == 3:
            first, second, *rest = right.weights
            right.weights = (0.95 * first, second + 0.05 * first, *rest)
        return right

    monkeypatch.setattr(exponential.UniPC, "correction", lighter)
    assert fails(check_flow, UniPC(4), "VE") and not fails(check_flow, UniPC(3), "VE")


@pytest.mark.conformance
def test_a_start_of_lower_order_is_found(monkeypatch):
    """Without its second call, and without the first two steps made again."""
    for sampler in (DPMSolverPP(3), LMS(4), UniPC(4)):
        with monkeypatch.context() as patch:
            patch.setattr(sampler, "twice", False)
            assert fails(check_flow, sampler, "VE")
    for sampler in (LMS(4), DEIS(4)):
        with monkeypatch.context() as patch:
            tables = type(sampler).tables

            def once(self, problem, tables=tables):
                out = tables(self, problem)
                out.again[2] = None
                return out

            patch.setattr(type(sampler), "tables", once)
            assert fails(check_flow, sampler, "VE")
    assert not fails(check_flow, LMS(4), "VE")


@pytest.mark.conformance
def test_options_that_lower_the_order():
    """They say so, and it is."""
    for sampler, order in (
        (DPMSolverPP(3, start_again=False), 2),
        (DPMSolverPP(3, lower_final=True), 2),
        (DPMSolverPP(3, rule="published"), 2),
        (UniPC(4, start_again=False), 3),
        (DEIS(3, start_again=False), 2),
        (DPMSolverPP(2, lower_final=True), 2),
    ):
        assert sampler.order == order
        steps = (258, 516, 1032)
        assert flow_order(sampler, "VE", steps) > order - 0.25


def test_a_skipped_last_step_is_found(monkeypatch):
    def run(self, problem, x, after):
        setup = self.setup(problem)
        state = self.init(problem, setup, x)
        for i in range(problem.steps - 1):
            state = self.step(problem, setup, state, i)
        return state.x

    monkeypatch.setattr(base.Stepping, "run", run)
    assert fails(check_flow, DPMSolverPP(2), "Cosine") and fails(check_flow, Heun(), "LinearBeta")
    assert fails(check_draws, DDIM(eta=1.0))


def test_swapped_times_are_found(monkeypatch):
    with monkeypatch.context() as patch:  # the network is asked at the step's end
        patch.setattr(
            linear.LinearMethod, "stage_times", lambda self, problem, tables: [(t,) for t in problem.times[1:].tolist()]
        )
        assert fails(check_flow, DPMSolverPP(2), "Cosine") and fails(check_flow, DEIS(2), "Linear")
    with monkeypatch.context() as patch:
        ddim_row = linear.ddim_row

        def swapped(m, i, eta=0.0):
            pairs = torch.stack([m.times[i + 1], m.times[i]], 1)
            return ddim_row(linear.Moments(m.schedule, pairs.flatten()), 2 * torch.arange(len(i)), eta)

        patch.setattr(linear, "ddim_row", swapped)
        assert fails(check_flow, DDIM(), "Cosine")
    assert not fails(check_flow, DDIM(), "Cosine")
