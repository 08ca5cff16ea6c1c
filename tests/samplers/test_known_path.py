"""Particles along the known path: the law of the rest given what is known, where replacement is a step behind."""

import pytest
import torch

import unnoise as un
from unnoise.samplers import Particles, particles, proposals
from unnoise.samplers.known_path import KnownPath
from unnoise.training.drawing import fill

F64 = torch.float64
PLACE = torch.arange(6, dtype=F64)
COVARIANCE = 0.9 ** (PLACE[:, None] - PLACE).abs()
KNOWN = PLACE % 3 == 0
VALUES = torch.tensor([1.0, 0, 0, -1.0, 0, 0], dtype=F64)
GAIN = COVARIANCE[~KNOWN][:, KNOWN] @ torch.linalg.inv(COVARIANCE[KNOWN][:, KNOWN])
MEAN, REST = GAIN @ VALUES[KNOWN], COVARIANCE[~KNOWN][:, ~KNOWN] - GAIN @ COVARIANCE[KNOWN][:, ~KNOWN]
ROOT = torch.linalg.cholesky(REST)


def neighbours():
    return un.oracles.normal(un.Gaussian((6,), un.schedules.Cosine()), torch.zeros(6, dtype=F64), COVARIANCE)


def off_by(count, steps, n=1500):
    """Of neighbours of correlation 0.9, in conditional standard deviations: the mean in the worst direction, and the least
    deviation; one standard error of each is 1 / sqrt(n) or less.
    """
    known = (VALUES.expand(n, -1), KNOWN.expand(n, -1))
    x, _ = un.sample(neighbours(), n, steps=steps, sampler=Particles(count, known=known), seed=0, dtype=F64)
    assert torch.equal(x[:, KNOWN], VALUES[KNOWN].expand(n, -1))
    white = torch.linalg.solve_triangular(ROOT, (x[:, ~KNOWN] - MEAN).T, upper=False)
    return float(white.mean(1).norm()), float(torch.linalg.eigvalsh(white.cov()).sqrt().min())


def test_numbers_come_nearer_with_particles_and_steps():
    """On average 4 standard errors of the mean of four coordinates are 0.05."""
    means = [off_by(count, 32)[0] for count in (1, 4, 16)]
    assert means[0] > 1.2 and means[1] < 0.6 * means[0] and means[2] < 0.5 * means[1]
    deviations = [1 - off_by(24, steps)[1] for steps in (8, 32)]
    assert deviations[1] < 0.5 * deviations[0]  # an order of one would be 0.25; the rest is of 24 particles and 1500 rows


def test_weights_of_where_the_known_went_are_needed(monkeypatch):
    monkeypatch.setattr(proposals, "log_density", lambda *told: torch.zeros(len(told[2]), dtype=F64))
    assert off_by(16, 32)[0] > 1.2


class NoiselessPath(KnownPath):
    """Planted: a path on which nothing happens, as if what is known had no noise."""

    def __init__(self, *told):
        super().__init__(*told)
        self.path = [self.path[-1]] * len(self.path)


class ForgetfulPath(KnownPath):
    """Planted: the right law at every time, and no path."""

    def __init__(self, problem, x, *told):
        super().__init__(problem, x, *told)
        times = enumerate(problem.clock[:-1])
        self.path[:-1] = [problem.process.marginal(x, t).draw(problem.noise.at("other", k)) for k, t in times]


def worst_step(kind, monkeypatch):
    """In standard errors: the furthest that mean and variance of a whitened step of the path are from 0 and 1."""
    seen = []

    class Watched(kind):
        def __init__(self, problem, *told):
            super().__init__(problem, *told)
            seen.append((problem, self.path))

    monkeypatch.setattr(particles, "KnownPath", Watched)
    off_by(1, 8, n=4000)
    (problem, path), worst = seen[0], 0.0
    for k in range(problem.steps):
        law = problem.process.transition(path[k + 1], problem.clock[k + 1], problem.clock[k])
        white = ((path[k] - law.mean) / law.std)[:, KNOWN].flatten()
        count = len(white)
        worst = max(worst, abs(float(white.mean())) * count**0.5, abs(float(white.var()) - 1) * (count / 2) ** 0.5)
    return worst


def test_what_is_known_follows_the_forward_process(monkeypatch):
    """16 figures within 4.5 standard errors: a false alarm in 9,000 runs."""
    assert worst_step(KnownPath, monkeypatch) < 4.5


@pytest.mark.parametrize("planted", [NoiselessPath, ForgetfulPath])
def test_a_path_of_another_law_is_seen(planted, monkeypatch):
    assert worst_step(planted, monkeypatch) > 9


def marginal_gap(x, probs):
    return float((torch.bincount(x, minlength=len(probs)) / len(x) - probs).abs().sum()) / 2


@pytest.mark.conformance
def test_categories_under_uniform_noise():
    """One of two letters that mostly agree: in total variation; 4 standard errors of 2000 draws are 0.036."""
    probs = torch.tensor([[8.0, 1, 1], [1, 8, 1], [1, 1, 8]], dtype=F64).flatten() / 30
    oracle, n, gaps = un.oracles.table(un.Uniform(3, 2), probs), 2000, []
    known = (torch.tensor([[0, 2]]).expand(n, -1), torch.tensor([[False, True]]).expand(n, -1))
    for count in (1, 4, 32):
        x, _ = un.sample(oracle, n, steps=32, sampler=Particles(count, known=known), seed=0)
        assert bool((x[:, 1] == 2).all())
        gaps.append(marginal_gap(x[:, 0], torch.tensor([0.1, 0.1, 0.8])))
    assert gaps[0] > 0.15 and gaps[1] < 0.6 * gaps[0] and gaps[2] < 0.04


@pytest.mark.conformance
def test_a_product_of_numbers_and_masked_categories():
    """A number tells a category and a second number: Bayes, within 4 standard errors of 2000 draws."""
    process = un.Product(x=un.Gaussian((2,)), c=un.Masking(2, ()))
    means = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=F64)
    oracle = un.oracles.conditional_gaussian(
        process, torch.tensor([0.5, 0.5], dtype=F64), means, 0.3 * torch.eye(2, dtype=F64).expand(2, 2, 2)
    )
    n, at = 2000, 0.2
    x = {"x": torch.tensor([[at, 0.0]], dtype=F64).expand(n, -1), "c": torch.zeros(n, dtype=torch.int64)}
    fixed = {"x": torch.tensor([[True, False]]).expand(n, -1), "c": torch.zeros(n, dtype=torch.bool)}
    found, _ = un.sample(oracle, n, steps=64, sampler=Particles(16, known=(x, fixed)), seed=0, dtype=F64)
    share = torch.sigmoid(torch.tensor(2 * at / 0.3, dtype=F64))
    assert abs(float(found["c"].double().mean() - share)) < 4 * float((share * (1 - share) / n).sqrt()) + 0.01
    mean = float(2 * share - 1)
    assert (
        abs(float(found["x"][:, 1].mean()) - mean) < 4 * ((1 - mean**2 + 0.3) / n) ** 0.5 + 0.01
    )  # 0.01 for particles and steps


def test_masked_categories_that_are_known_stay():
    process = un.Product(x=un.Gaussian((2,)), c=un.Masking(2, ()))
    means = torch.tensor([[-1.0, -1.0], [1.0, 1.0]], dtype=F64)
    oracle = un.oracles.conditional_gaussian(
        process, torch.tensor([0.5, 0.5], dtype=F64), means, 0.3 * torch.eye(2, dtype=F64).expand(2, 2, 2)
    )
    n = 500
    x = {"x": torch.zeros(n, 2, dtype=F64), "c": torch.ones(n, dtype=torch.int64)}
    fixed = {"x": torch.zeros(n, 2) > 0, "c": torch.ones(n) > 0}
    found, _ = un.sample(oracle, n, steps=32, sampler=Particles(8, known=(x, fixed)), seed=0, dtype=F64)
    assert bool((found["c"] == 1).all()) and abs(float(found["x"].mean()) - 1) < 4 * (0.3 / (2 * n)) ** 0.5 + 0.02


def test_numbers_that_hang_together_are_refused():
    process = un.Gaussian((2,), covariance=torch.tensor([[1.0, 0.5], [0.5, 1.0]]))
    oracle = un.oracles.normal(process, torch.zeros(2, dtype=F64), torch.eye(2, dtype=F64))
    known = (torch.zeros(3, 2, dtype=F64), torch.tensor([[True, False]]).expand(3, -1))
    with pytest.raises(TypeError, match="not drawn apart"):
        un.sample(oracle, 3, steps=4, sampler=Particles(2, known=known), seed=0, dtype=F64)


def test_rows_are_filled_alike_in_any_batch():
    x, fixed = VALUES.float().expand(6, -1).clone(), KNOWN.expand(6, -1).clone()
    fixed[4] = False  # nothing is known: exact
    model = neighbours()
    whole, _ = fill(model, x, fixed, seed=3, steps=8, device="cpu")
    parts, _ = fill(model, x, fixed, seed=3, steps=8, device="cpu", batch=2)
    torch.testing.assert_close(whole, parts, rtol=1e-5, atol=1e-6)
    assert torch.equal(whole[fixed], x[fixed]) and bool(whole.isfinite().all())
