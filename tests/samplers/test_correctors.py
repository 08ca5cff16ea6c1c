"""Predictor-correctors: exact moments on Gaussian data, exact laws by matrices on small finite spaces."""

import math

import pytest
import torch
from torch import Tensor

import unnoise as un
from unnoise.generators.kolmogorov import states
from unnoise.laws import Categorical
from unnoise.noise import NoiseSource
from unnoise.samplers import DDIM, Ancestral, DPMSolverPP, Euler, FirstHitting, Problem, State, UniPC, sample
from unnoise.samplers.correctors import DetailedBalance, Langevin, PredictorCorrector
from unnoise.samplers.leaps import leap
from unnoise.verify.finite_kernels import marginal_matrix


def slope(steps, errors) -> float:
    """The order, by least squares in logarithms."""
    n, e = (torch.tensor([math.log(v) for v in values], dtype=torch.float64) for values in (steps, errors))
    return -float(((n - n.mean()) * (e - e.mean())).sum() / (n - n.mean()).square().sum())


# --- numbers: the mean and covariance of Gaussian data move by affine maps

M = torch.tensor([0.7, -0.3], dtype=torch.float64)
C = torch.tensor([[0.5, 0.2], [0.2, 0.3]], dtype=torch.float64)
EYE = torch.eye(2, dtype=torch.float64)
NOISE = torch.tensor([[1.0, 0.4], [0.4, 0.7]], dtype=torch.float64)
HIGH, LOW, STEPS = 0.95, 0.05, (64, 128, 256)


def noised(process, t) -> tuple[Tensor, Tensor]:
    alpha, sigma = process.schedule.alpha(t), process.schedule.sigma(t)
    return alpha * M, alpha**2 * C + sigma**2 * noise_covariance(process)


POINTS = torch.cat([torch.zeros(1, 2, dtype=torch.float64), EYE])


def affine(moved: Tensor) -> tuple[Tensor, Tensor]:
    """(A, b) of x -> A x + b for each step, from the images [steps, 3, 2] of 0 and the unit vectors."""
    return (moved[:, 1:] - moved[:, :1]).mT, moved[:, 0]


def noise_covariance(process) -> Tensor:
    return EYE if process.covariance is None else process.covariance.root @ process.covariance.root.T


def told(oracle, t: Tensor):
    """Predictions at the three points, at every time."""
    return oracle(POINTS.repeat(len(t), 1), t.repeat_interleave(3))


def predicted(predictor, oracle, times) -> tuple[Tensor, Tensor, Tensor]:
    """Map, shift and covariance of every step."""
    prediction = told(oracle, times[:-1])
    if isinstance(predictor, Ancestral):
        step = prediction.step(times[1:].repeat_interleave(3))
        added = step.std[::3, :1, None].square() * noise_covariance(oracle.process)
        return *affine(step.mean.reshape(-1, 3, 2)), added
    rows = predictor.table(oracle.process, times)
    keep, weight = (
        torch.tensor(v).double()[:, None, None] for v in zip(*[(r.keep, r.weights[0]) for r in rows], strict=True)
    )
    clean = prediction.to(un.Clean).value.reshape(-1, 3, 2)
    return *affine(keep * POINTS + weight * clean), torch.zeros(len(rows), 2, 2, dtype=torch.float64)


def corrected(corrector, oracle, times) -> tuple[Tensor, Tensor, Tensor]:
    """The same of a move at the end of every step."""
    keep, weight, scale = (torch.stack(c)[:, None, None] for c in zip(*corrector.rows(oracle.process, times), strict=True))
    clean = told(oracle, times[1:]).to(un.Clean).value.reshape(-1, 3, 2)
    return *affine(keep * POINTS + weight * clean), scale**2 * noise_covariance(oracle.process)


def law(predictor, corrector, oracle, n: int, rounds: int = 1) -> tuple[Tensor, Tensor]:
    mean, covariance = noised(oracle.process, HIGH)
    times = torch.linspace(HIGH, LOW, n + 1, dtype=torch.float64)
    kinds = [predicted(predictor, oracle, times)]
    kinds += [corrected(corrector, oracle, times)] * rounds if corrector is not None else []
    for i in range(n):
        for moves, shifts, added in kinds:
            mean, covariance = moves[i] @ mean + shifts[i], moves[i] @ covariance @ moves[i].T + added[i]
    return mean, covariance


def error(predictor, corrector, oracle, n: int, rounds: int = 1) -> float:
    mean, covariance = law(predictor, corrector, oracle, n, rounds)
    exact_mean, exact = noised(oracle.process, LOW)
    return float(((mean - exact_mean).square().sum() + (covariance - exact).square().sum()).sqrt())


def gaussian(name: str = "Cosine", covariance=None):
    return un.oracles.normal(un.Gaussian((2,), getattr(un.schedules, name)(), covariance), M, C)


PREDICTORS = {"ancestral": Ancestral, "DDIM": DDIM}


@pytest.mark.parametrize("covariance", [None, NOISE], ids=["independent", "correlated"])
@pytest.mark.parametrize("name", ["Cosine", "LinearBeta"])
@pytest.mark.parametrize("predictor", PREDICTORS)
def test_order_with_langevin(predictor, name, covariance):
    sampler = PredictorCorrector(PREDICTORS[predictor](), Langevin())
    assert sampler.order == 1
    oracle = gaussian(name, covariance)
    errors = [error(sampler.predictor, sampler.corrector, oracle, n) for n in STEPS]
    assert abs(slope(STEPS, errors) - sampler.order) < 0.25, errors


def without_half_the_noise(rows):
    return lambda self, *a: [(keep, weight, scale / 2**0.5) for keep, weight, scale in rows(self, *a)]


def at_the_wrong_time(rows):
    """The coefficients of a later time than the state's."""
    return lambda self, process, times: rows(self, process, times + 0.04)


@pytest.mark.parametrize("mutant", [without_half_the_noise, at_the_wrong_time])
def test_a_wrong_langevin_has_no_order(mutant, monkeypatch):
    monkeypatch.setattr(Langevin, "rows", mutant(Langevin.rows))
    oracle = gaussian()
    errors = [error(DDIM(), Langevin(), oracle, n) for n in STEPS]
    assert slope(STEPS, errors) < 0.5
    assert errors[-1] > 5e-3


@pytest.mark.parametrize("predictor, once, often", [("ancestral", 1.4, 2.3), ("DDIM", 5.0, 2.9)])
def test_langevin_improves_a_coarse_predictor(predictor, once, often):
    """One move of the default size, and many small ones, whose limit is their own bias: errors shrink by these factors."""
    build, oracle = PREDICTORS[predictor], gaussian()
    alone = error(build(), None, oracle, 8)
    assert error(build(), Langevin(), oracle, 8) < alone / once
    assert error(build(), Langevin(scale=0.2), oracle, 8, rounds=20) < alone / often


@pytest.mark.parametrize("snr", [0.1, 0.3])
@pytest.mark.parametrize("covariance", [None, NOISE], ids=["independent", "correlated"])
def test_bias_of_a_fixed_ratio(snr, covariance):
    """After many moves at one time a whitened direction of variance c has c/(1 - snr^2 sigma^2/c)."""
    corrector, oracle = Langevin(snr=snr), gaussian(covariance=covariance)
    assert corrector.order is None and PredictorCorrector(DDIM(), corrector).order is None
    times = torch.tensor([0.6, 0.5], dtype=torch.float64)
    mean, exact = noised(oracle.process, times[1])
    move, shift, added = (part[0] for part in corrected(corrector, oracle, times))
    found, centre = exact, 0 * mean
    for _ in range(3000):
        found, centre = move @ found @ move.T + added, move @ centre + shift
    torch.testing.assert_close(centre, mean, rtol=0, atol=1e-10)
    root = torch.linalg.cholesky(noise_covariance(oracle.process))
    white = torch.linalg.solve(root, torch.linalg.solve(root, exact).T)
    c, axes = torch.linalg.eigh(white)
    sigma = oracle.process.schedule.sigma(times[1])
    expected = root @ axes @ torch.diag(c / (1 - snr**2 * sigma**2 / c)) @ axes.T @ root.T
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)
    assert float((found - exact).diagonal().min()) > 0.5 * snr**2 * float(sigma**2)


def test_a_fixed_ratio_has_no_order():
    errors = [error(DDIM(), Langevin(snr=0.3), gaussian(), n) for n in STEPS]
    assert abs(slope(STEPS, errors)) < 0.25


def check_draws(sampler, oracle, n: int = 6, rows: int = 10000) -> None:
    """Draws have the moments of the recursion, each within 5 standard errors."""
    mean, covariance = noised(oracle.process, HIGH)
    x = mean + un.NoiseSource(7, rows).normal((2,)) @ torch.linalg.cholesky(covariance).T
    x, info = sample(oracle, x=x, sampler=sampler, steps=n, start=HIGH, end=LOW, seed=0)
    assert info.calls == n * sampler.stages
    mean, covariance = law(sampler.predictor, sampler.corrector, oracle, n, sampler.rounds)
    away = x - mean
    assert ((away.mean(0) / (covariance.diagonal() / rows).sqrt()).abs() < 5).all()
    spread = ((covariance.square() + torch.outer(covariance.diagonal(), covariance.diagonal())) / rows).sqrt()
    assert (((away.T @ away / rows - covariance) / spread).abs() < 5).all()


@pytest.mark.parametrize("covariance", [None, NOISE], ids=["independent", "correlated"])
def test_draws_have_the_moments_of_the_recursion(covariance, monkeypatch):
    oracle = gaussian(covariance=covariance)
    for sampler in (
        PredictorCorrector(DDIM(), Langevin(scale=0.7), rounds=2),
        PredictorCorrector(Ancestral(), Langevin(snr=0.2)),
    ):
        check_draws(sampler, oracle)
    predict = un.samplers.Problem.predict
    monkeypatch.setattr(un.samplers.Problem, "predict", lambda self, x, t: predict(self, x, self.clock[0]))
    with pytest.raises(AssertionError):
        check_draws(PredictorCorrector(DDIM(), Langevin()), oracle)


@pytest.mark.parametrize("kind", [un.Noise, un.Score, un.Velocity, un.Flow, un.Energy], ids=lambda k: k.__name__)
def test_langevin_does_not_depend_on_what_the_denoiser_says(kind):
    oracle = gaussian(covariance=NOISE)
    sampler = PredictorCorrector(DDIM(), Langevin())
    runs = [
        sample(view, 5, 6, sampler, start=0.98, seed=0)[0] for view in (oracle.predicting(un.Clean), oracle.predicting(kind))
    ]
    torch.testing.assert_close(*runs, rtol=0, atol=1e-9)


def test_langevin_with_a_schedule_per_coordinate():
    """Two coordinates with schedules of their own are two problems of one."""
    schedules = [un.schedules.Cosine(), un.schedules.LinearBeta()]
    both = un.oracles.normal(un.Gaussian((2,), un.schedules.PerCoordinate(schedules)), M, torch.diag(C.diagonal()))
    sampler = PredictorCorrector(DDIM(), Langevin())
    x, _ = sample(both, 5, 6, sampler, start=0.98, seed=0)
    for k, schedule in enumerate(schedules):
        rows = Langevin().rows(un.Gaussian((1,), schedule), torch.linspace(0.98, 0, 7, dtype=torch.float64))
        pair = Langevin().rows(both.process, torch.linspace(0.98, 0, 7, dtype=torch.float64))
        for one, two in zip(rows, pair, strict=True):
            assert all(float(a) == pytest.approx(float(b[k]), abs=1e-12) for a, b in zip(one, two, strict=True))
    assert bool(x.isfinite().all())


def test_nothing_is_done_where_there_is_no_noise():
    x, info = sample(gaussian(), 5, 6, PredictorCorrector(DDIM(), Langevin(), rounds=2), seed=0)
    assert info.calls == 6 + 2 * 5 and bool(x.isfinite().all())
    _, info = sample(gaussian(), 5, 6, PredictorCorrector(DDIM(), Langevin(), rounds=2), end=0.1, seed=0)
    assert info.calls == 6 + 2 * 6


# --- categories: laws are vectors, steps are matrices

LATE, EARLY, COUNTS = 0.8, 0.3, (16, 32, 64)
LAW = torch.tensor([0.19, 0.05, 0.12, 0.21, 0.07, 0.04, 0.03, 0.16, 0.13], dtype=torch.float64)
STEADY = un.schedules.LinearBeta(2.0, 2.0)
PROCESSES = {
    "masking": lambda: un.Masking(3, (2,)),
    "uniform": lambda: un.Uniform(3, (2,), STEADY),
    "rates": lambda: un.RateMatrix(un.rate_matrices.nearest_neighbour(3), (2,), STEADY),
}


def marginal(oracle, t: float) -> Tensor:
    process, data = oracle.process, oracle.process.space.states()
    return marginal_matrix(process, data, states(process.state_space), t) @ oracle.log_prob(data).exp()


def probabilities(law: Categorical, points: Tensor) -> Tensor:
    probs = law.probs.reshape(len(law.probs), -1, law.probs.shape[-1])
    return torch.stack([probs[:, k, points[:, k]] for k in range(points.shape[1])]).prod(0)


def at_every_step(oracle, times) -> tuple[Tensor, Tensor, Tensor]:
    """All points, with the start and end of every step."""
    points = states(oracle.process.state_space)
    n = len(points)
    return points.repeat(len(times) - 1, 1), times[:-1].repeat_interleave(n), times[1:].repeat_interleave(n)


def step_kernels(predictor, oracle, times) -> Tensor:
    """P[i, x, y] of every step."""
    x, t, s = at_every_step(oracle, times)
    points = states(oracle.process.state_space)
    if isinstance(predictor, Ancestral):
        step = oracle(x, t).step(s)
    else:
        problem = Problem(oracle, times, NoiseSource(0, len(x)), {})
        step = predictor.law(problem, predictor.rates(oracle(x, t)), State(x), (t - s).reshape(-1, 1, 1), 0)
    return probabilities(step, points).reshape(-1, len(points), len(points))


def move_kernels(corrector, oracle, times) -> Tensor:
    """The same of a move at the end of every step."""
    x, t, s = at_every_step(oracle, times)
    points = states(oracle.process.state_space)
    move = leap(x, corrector.rates(oracle(x, s)), corrector.scale * (t - s).reshape(-1, 1, 1))
    return probabilities(move, points).reshape(-1, len(points), len(points))


def law_after(predictor, corrector, oracle, n: int, rounds: int = 1) -> Tensor:
    law, times = marginal(oracle, LATE), torch.linspace(LATE, EARLY, n + 1, dtype=torch.float64)
    kernels = step_kernels(predictor, oracle, times)
    if corrector is not None:
        kernels = kernels @ torch.linalg.matrix_power(move_kernels(corrector, oracle, times), rounds)
    for kernel in kernels:
        law = law @ kernel
    return law


def total_variation(predictor, corrector, oracle, n: int, rounds: int = 1) -> float:
    return 0.5 * float((law_after(predictor, corrector, oracle, n, rounds) - marginal(oracle, EARLY)).abs().sum())


def table(name: str):
    return un.oracles.table(PROCESSES[name](), LAW)


@pytest.mark.parametrize("predictor", [Euler, Ancestral])
@pytest.mark.parametrize("name", PROCESSES)
def test_order_with_detailed_balance(name, predictor):
    sampler = PredictorCorrector(predictor(), DetailedBalance())
    assert sampler.order == 1
    errors = [total_variation(sampler.predictor, sampler.corrector, table(name), n) for n in COUNTS]
    assert abs(slope(COUNTS, errors) - sampler.order) < 0.25, errors


def only_reverse(rates):
    def mutant(self, prediction):
        return prediction.local().rates.double()

    return mutant


def wrong_time(rates):
    """The rates of a later time than the state's."""

    def mutant(self, prediction):
        later = un.Posterior(prediction.logits, prediction.process, prediction.x_t, prediction.t + 0.1)
        return rates(self, later)

    return mutant


@pytest.mark.parametrize("mutant", [only_reverse, wrong_time])
@pytest.mark.parametrize("name", PROCESSES)
def test_an_unbalanced_corrector_has_no_order(name, mutant, monkeypatch):
    monkeypatch.setattr(DetailedBalance, "rates", mutant(DetailedBalance.rates))
    errors = [total_variation(Euler(), DetailedBalance(), table(name), n) for n in COUNTS]
    assert slope(COUNTS, errors) < 0.5
    assert errors[-1] > 5e-3


@pytest.mark.parametrize("name", PROCESSES)
def test_the_rates_are_in_detailed_balance(name):
    """q(x) C(y, x) = q(y) C(x, y) for every pair, to rounding: the law of that time is stationary."""
    oracle, s = table(name), 0.4
    points, q = states(oracle.process.state_space), marginal(oracle, s)
    rates = DetailedBalance().rates(oracle(points, s))
    flow = torch.zeros(len(points), len(points), dtype=torch.float64)
    for i, x in enumerate(points):
        for j, y in enumerate(points):
            if int((x != y).sum()) == 1:
                k = int((x != y).nonzero())
                flow[i, j] = q[i] * rates[i, k, y[k]]
    torch.testing.assert_close(flow, flow.T, rtol=1e-9, atol=1e-14)
    assert float(flow.sum()) > 0.1


@pytest.mark.parametrize("name", PROCESSES)
def test_a_move_leaves_the_law_of_its_time_to_first_order(name):
    oracle, q, gaps = table(name), marginal(table(name), 0.4), []
    for h in (0.02, 0.01):
        kernel = move_kernels(DetailedBalance(), oracle, torch.tensor([0.4 + h, 0.4], dtype=torch.float64))[0]
        gaps.append(float((q @ kernel - q).abs().sum()))
    assert math.log2(gaps[0] / gaps[1]) == pytest.approx(2, abs=0.25)


@pytest.mark.parametrize("name, once, often", [("masking", 1.4, 5.0), ("uniform", 1.1, 3.5), ("rates", 1.1, 3.5)])
def test_detailed_balance_improves_a_coarse_predictor(name, once, often):
    oracle = table(name)
    alone = total_variation(Euler(), None, oracle, 4)
    assert total_variation(Euler(), DetailedBalance(), oracle, 4) < alone / once
    assert total_variation(Euler(), DetailedBalance(scale=0.2), oracle, 4, rounds=20) < alone / often


def test_draws_on_categories_have_the_law_of_the_matrices():
    """A chi-square test against the method's own law, with a false-alarm level of 1e-6; masked states come and go."""
    oracle, n, rows = table("masking"), 3, 4000
    sampler = PredictorCorrector(Euler(), DetailedBalance(), rounds=2)
    noise = un.NoiseSource(1, rows)
    x = oracle.process.marginal(oracle.draw(noise.at("data")), LATE).draw(noise.at("noise"))
    found, info = sample(oracle, x=x, sampler=sampler, steps=n, start=LATE, end=EARLY, trajectory=True, seed=0)
    law = law_after(Euler(), sampler.corrector, oracle, n, 2)
    counts = torch.bincount(found[:, 0] * 4 + found[:, 1], minlength=16).double()
    statistic = ((counts - rows * law).square() / (rows * law)).sum()
    assert float(torch.special.gammaincc(torch.tensor(7.5).double(), statistic / 2)) > 1e-6
    again = sum(int(((a != 3) & (b == 3)).sum()) for a, b in zip(info.trajectory[:-1], info.trajectory[1:], strict=True))
    assert again > 0 and info.calls == n * sampler.stages == 9
    assert int(info.jumps.sum()) > 0


# --- both


@pytest.mark.parametrize(
    "oracle, sampler",
    [
        (gaussian(), PredictorCorrector(DPMSolverPP(2), Langevin(snr=0.2), rounds=2)),
        (table("uniform"), PredictorCorrector(Euler(), DetailedBalance())),
    ],
    ids=["numbers", "categories"],
)
def test_sample_i_is_the_same_in_any_batch(oracle, sampler):
    x, _ = sample(oracle, 9, 5, sampler, start=0.9, seed=3)
    for n, first in ((1, 4), (5, 4)):
        torch.testing.assert_close(
            sample(oracle, n, 5, sampler, start=0.9, seed=3, first=first)[0], x[first : first + n], rtol=0, atol=1e-12
        )


def test_refusals():
    chain = un.MatrixChain(un.d3pm.uniform(3, torch.linspace(0.1, 0.9, 8).double()), (2,))
    numbers, categories = PredictorCorrector(DDIM(), Langevin()), PredictorCorrector(Euler(), DetailedBalance())
    assert numbers.refuse(un.Gaussian((2,))) is None and categories.refuse(un.Uniform(3, (2,))) is None
    assert "numbers" in numbers.refuse(un.Uniform(3, (2,)))
    assert "Langevin" in PredictorCorrector(Ancestral(), Langevin()).refuse(un.Uniform(3, (2,)))
    assert "DetailedBalance" in PredictorCorrector(Ancestral(), DetailedBalance()).refuse(un.Gaussian((2,)))
    assert "no generator" in PredictorCorrector(Ancestral(), DetailedBalance()).refuse(chain.process)
    for build in (
        lambda: PredictorCorrector(FirstHitting(), DetailedBalance()),
        lambda: PredictorCorrector(UniPC(), Langevin()),
    ):
        with pytest.raises(TypeError):
            build()
    for build in (
        lambda: PredictorCorrector(DDIM(), Langevin(), rounds=0),
        lambda: Langevin(scale=0.0),
        lambda: Langevin(snr=1.0),
        lambda: DetailedBalance(scale=-1.0),
    ):
        with pytest.raises(ValueError):
            build()


def test_order_is_the_lower_of_both():
    assert PredictorCorrector(DPMSolverPP(3), Langevin()).order == 1
    assert PredictorCorrector(DPMSolverPP(3), Langevin(snr=0.1)).order is None
