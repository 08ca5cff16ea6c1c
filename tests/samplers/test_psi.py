"""Psi-samplers: their kernels by matrices, on spaces small enough to write them out."""

from math import log2

import pytest
import torch

import unnoise as un
from unnoise.generators.kolmogorov import states
from unnoise.laws import LOG_ZERO
from unnoise.noise import NoiseSource
from unnoise.predictions import RawPosterior
from unnoise.samplers import CategoricalDDIM, Psi, Remasking, Tokens, sample, written
from unnoise.samplers.problem import Problem
from unnoise.samplers.psi import MaxRescale, PsiLaw, admissible
from unnoise.samplers.remasking import Cap, Rescale
from unnoise.verify.law_matrices import marginal_matrix

STEADY, LINEAR = un.schedules.LinearBeta(2.0, 2.0), un.schedules.Linear()
SKEW = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
HOLE = torch.tensor([0.0, 0.6, 0.4], dtype=torch.float64)
LAW = torch.tensor([0.19, 0.05, 0.12, 0.21, 0.07, 0.04, 0.03, 0.16, 0.13], dtype=torch.float64)
PROCESSES = {
    "masking": lambda shape: un.Masking(3, shape),
    "uniform": lambda shape: un.Uniform(3, shape, STEADY),
    "skew": lambda shape: un.Interpolation(3, shape, SKEW, STEADY),
    "hole": lambda shape: un.Interpolation(3, shape, HOLE, LINEAR),
    "with-mask": lambda shape: un.Interpolation(3, shape, un.noise_laws.uniform_with_mask(3), STEADY),
    "argmax": lambda shape: un.Uniform(3, shape, un.hybrids.ArgmaxSchedule(3)),
    "mixture": lambda shape: un.Mixture.uniform_and_mask(3, shape),
    "rates": lambda shape: un.RateMatrix(un.rate_matrices.nearest_neighbour(3), shape, STEADY),
}
STEPS = [(0.7, 0.4), (0.9, 0.2), (0.35, 0.3), (0.5, 0.0)]


def told(process, x0: int, t: float) -> RawPosterior:
    """What an oracle of a single x_0 says, at every state."""
    points = states(process.state_space)
    logits = torch.full((len(points), 3), LOG_ZERO, dtype=torch.float64)
    logits[:, x0] = 0.0
    return RawPosterior(logits, process, points, t)


def kernel(process, x0: int, t: float, s: float, kappa: float) -> torch.Tensor:
    """Psi(x_s | x_t, x_0), a row for every x_t."""
    prediction, share = told(process, x0, t), torch.tensor([kappa], dtype=torch.float64)
    return PsiLaw(prediction, prediction.log_probs(), share, True, torch.tensor(s, dtype=torch.float64)).probs


def kappas(process, t: float, s: float) -> list[float]:
    low, high = (float(v) for v in admissible(process, torch.tensor([t, s], dtype=torch.float64)))
    low, high = max(low, -5.0), min(high, 5.0)
    return [low, high, 0.0, 1.0, 0.37, (low + high) / 2]


def excess(process, t: float, s: float) -> float:
    """How far the marginals given x_0 are from those of the process, at most, over all admissible kappa and x_0."""
    worst = 0.0
    for x0 in range(3):
        x = torch.tensor([x0])
        q_t, q_s = (process.marginal(x, torch.tensor(v, dtype=torch.float64)).probs[0] for v in (t, s))
        for kappa in kappas(process, t, s):
            law = kernel(process, x0, t, s, kappa)
            seen = q_t > 1e-14
            worst = max(worst, float((law.sum(-1) - 1)[seen].abs().max()), float((q_t @ law - q_s).abs().max()))
    return worst


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("t, s", STEPS)
def test_the_kernel_has_the_marginals_given_x0_for_every_admissible_kappa(process, t, s):
    assert excess(PROCESSES[process](()), t, s) < 1e-12


def test_a_kernel_that_noises_to_the_wrong_time_is_caught(monkeypatch):
    right = PsiLaw.__init__

    def late(self, prediction, log_theta, kappa, share, s):
        right(self, prediction, log_theta, kappa, share, s)
        self.process = type("Late", (), {"widen": prediction.process.widen})()
        self.process.log_push = lambda log_v, _, s: prediction.process.log_push(log_v, None, prediction.t)

    monkeypatch.setattr(PsiLaw, "__init__", late)
    assert excess(un.Uniform(3, (), STEADY), 0.7, 0.4) > 0.01


@pytest.mark.parametrize("process", ["masking", "uniform", "skew", "hole", "with-mask", "argmax"])
@pytest.mark.parametrize("t, s", STEPS[:3])
def test_the_range_of_kappa_is_all_of_it(process, t, s):
    """A little beyond either end some probability is negative."""
    process = PROCESSES[process](())
    low, high = (float(v) for v in admissible(process, torch.tensor([t, s], dtype=torch.float64)))
    assert low < 0 and high >= 1

    def least(kappa: float) -> float:
        found = []
        for x0 in range(3):
            prediction = told(process, x0, t)
            seen = process.marginal(torch.tensor([x0]), torch.tensor(t, dtype=torch.float64)).probs[0] > 0
            back = prediction.step(torch.tensor(s, dtype=torch.float64)).probs
            afresh = process.marginal(torch.tensor([x0]), torch.tensor(s, dtype=torch.float64)).probs
            found.append((kappa * back + (1 - kappa) * afresh)[seen].min())
        return float(min(found))

    assert least(low) > -1e-14 and least(high) > -1e-14
    assert least(low - 1e-3) < -1e-6 and least(high + 1e-3) < -1e-6


def test_the_lower_end_under_masking():
    """-1.5 at alpha_t = 0.3, alpha_s = 0.6, where all that is clean is masked again."""
    low, high = admissible(un.Masking(3), torch.tensor([0.7, 0.4], dtype=torch.float64))
    assert float(low) == pytest.approx(-1.5, abs=1e-12) and float(high) == 1
    times = torch.rand(50, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64).sort(1, descending=True)[0]
    for t, s in times.tolist():
        low, _ = admissible(un.Masking(3), torch.tensor([t, s], dtype=torch.float64))
        alpha_t, alpha_s = 1 - t, 1 - s
        assert float(low) == pytest.approx(1 - min(1, (1 - alpha_s) / alpha_t) / (1 - alpha_s), rel=1e-9)


def oracle_of(name: str, shape: tuple[int, ...] = (2,)):
    return un.oracles.table(PROCESSES[name](shape), LAW if shape else LAW[:3] / LAW[:3].sum())


def law_of(sampler: Psi, oracle, t: float = 0.7, s: float = 0.4, x=None):
    x = states(oracle.process.state_space) if x is None else x
    problem = Problem(oracle, torch.tensor([t, s], dtype=torch.float64), NoiseSource(0, len(x)), {})
    return sampler.law(sampler.tables(problem)[0], oracle(x, t), problem.clock[1])


def test_under_masking_it_is_ancestral_ddim_and_remasking_at_the_stated_kappa():
    oracle, points = oracle_of("masking"), states(un.Masking(3, (2,)).state_space)
    times = torch.tensor([0.7, 0.4], dtype=torch.float64)
    ancestral = oracle(points, 0.7).step(0.4).probs
    torch.testing.assert_close(law_of(Psi(1), oracle).probs, ancestral, rtol=0, atol=1e-14)
    for eta in (0.0, 0.3, 1.0):
        ddim, problem = CategoricalDDIM(eta), Problem(oracle, times, NoiseSource(0, len(points)), {})
        expected = ddim.law(ddim.tables(problem), oracle(points, 0.7), points, 0).probs
        torch.testing.assert_close(law_of(Psi(1 - eta), oracle).probs, expected, rtol=0, atol=1e-14)
        sigma = float(ddim.shares(oracle.process, times)[0])  # of x_t that is kept
        torch.testing.assert_close(law_of(Psi(sigma * 0.7 / 0.4), oracle).probs, expected, rtol=0, atol=1e-14)
    clean, masked = points != 3, points == 3
    for rule in (Cap(0.1), Cap(1.0), Rescale(0.4), Rescale(1.0)):  # the most of all is kappa = -1.5
        sigma, reveal = Remasking(rule).chances(oracle.process, times)
        kappa = 1 - float(sigma) / 0.4
        assert (rule.sigma(torch.ones(1), times[:1], times[1:]) == 1).all() == (abs(kappa + 1.5) < 1e-12)
        probs = law_of(Psi(kappa), oracle).probs
        torch.testing.assert_close(probs[..., 3][clean], sigma.expand(points.shape)[clean], rtol=0, atol=1e-14)
        torch.testing.assert_close(1 - probs[..., 3][masked], reveal.expand(points.shape)[masked], rtol=0, atol=1e-14)
        shown = oracle(points, 0.7).to(un.RawPosterior).log_probs().exp()[masked]  # what is revealed has the posterior
        torch.testing.assert_close(probs[masked][:, :3], shown * reveal.flatten()[0], rtol=0, atol=1e-14)


def test_under_uniform_noise_ddim_is_another_family():
    """The same where both forget x_t, and at no other kappa."""
    oracle = un.oracles.table(un.Uniform(4), LAW[:4] / LAW[:4].sum())
    points, times = states(oracle.process.state_space), torch.tensor([0.7, 0.4], dtype=torch.float64)

    def ddim(eta: float) -> torch.Tensor:
        method = CategoricalDDIM(eta)
        return method.law(method.tables(Problem(oracle, times, NoiseSource(0, 4), {})), oracle(points, 0.7), points, 0).probs

    torch.testing.assert_close(law_of(Psi(0.0), oracle).probs, ddim(1.0), rtol=0, atol=1e-14)
    afresh, back = (law_of(Psi(kappa), oracle).probs for kappa in (0, 1))
    torch.testing.assert_close(law_of(Psi(0.25), oracle).probs, 0.25 * back + 0.75 * afresh, rtol=0, atol=1e-14)
    family = [kappa * back + (1 - kappa) * afresh for kappa in torch.linspace(0, 1, 1001).tolist()]
    others = [ddim(eta) for eta in (0.0, 0.5, 0.9, 0.99)]
    gaps = [min(float((other - psi).abs().max()) for psi in family) for other in others]
    assert all(a > b > 1e-4 for a, b in zip(gaps, gaps[1:], strict=False)) and gaps[0] > 0.1


def test_max_rescale_is_the_printed_formula():
    process, times = un.Uniform(3, (2,)), torch.tensor([1.0, 0.6, 0.3, 0.001, 0.0], dtype=torch.float64)
    found = MaxRescale(0.05).kappa(process, times[:-1], times[1:]).flatten()
    for i, (t, s) in enumerate(zip(times[:-1].tolist(), times[1:].tolist(), strict=True)):
        alpha_t, beta_s = 1 - t, s
        sigma = 0.05 * (min(1.0, beta_s / alpha_t) if alpha_t > 0 else 1.0)
        exact = min(1.0, max(0.0, 1 - sigma / beta_s)) if beta_s > 0 else 1.0
        assert float(found[i]) == pytest.approx(exact, abs=1e-14)
    assert 0 < found[3 - 1] < 1 and float(MaxRescale(0.0).kappa(process, times[:-1], times[1:]).min()) == 1


def marginal(oracle, t: float) -> torch.Tensor:
    data = oracle.process.space.states()
    return marginal_matrix(oracle.process, data, states(oracle.process.state_space), t) @ oracle.log_prob(data).exp()


def error(sampler, oracle, steps: int) -> float:
    points = states(oracle.process.state_space)
    times = torch.linspace(0.8, 0.3, steps + 1, dtype=torch.float64)
    problem = Problem(oracle, times, NoiseSource(0, len(points)), {})
    tables, law = sampler.tables(problem), marginal(oracle, 0.8)
    flat = points.reshape(len(points), -1)
    for i in range(steps):
        own = sampler.law(tables[i], oracle(points, float(times[i])), problem.clock[i + 1])
        probs = own.probs.reshape(len(points), flat.shape[1], -1)
        law = law @ torch.stack([probs[:, k, flat[:, k]] for k in range(flat.shape[1])]).prod(0)
    return float((law - marginal(oracle, 0.3)).abs().sum())


@pytest.mark.parametrize("process", PROCESSES)
def test_one_coordinate_is_exact_at_any_number_of_steps(process):
    rules = [Psi(1), Psi(0.3), Psi(lambda s, t: (s / t) ** 2)]
    rules += [] if process in ("mixture", "rates") else [Psi(), Psi(MaxRescale(1.0)), Psi(-0.05)]
    for sampler in rules:
        assert error(sampler, oracle_of(process, ()), 5) < 1e-12


@pytest.mark.parametrize("process", ["masking", "uniform"])
def test_the_reversal_alone_has_an_order(process):
    assert Psi(1).order == 1 and Psi(0.9).order is None and Psi().order is None and Psi(1, Tokens(0.5)).order is None
    coarse, fine = (error(Psi(1), oracle_of(process), steps) for steps in (16, 32))
    assert log2(coarse / fine) == pytest.approx(1, abs=0.15)
    coarse, fine = (error(Psi(0.7), oracle_of(process), steps) for steps in (16, 32))
    assert fine > 0.01 and log2(coarse / fine) < 0.5


@pytest.mark.parametrize("process, kappa", [("masking", 0.6), ("masking", -1.2), ("uniform", 0.6), ("mixture", 0.6)])
def test_draws_have_the_law(process, kappa):
    """20,000 draws of each coordinate: 4.5 standard deviations of any of at most 8 shares, a false alarm in 20,000."""
    oracle, n = oracle_of(process), 20_000
    x = states(oracle.process.state_space)[7:8].expand(n, -1)
    law = law_of(Psi(kappa), oracle, x=x)
    assert law.share == (kappa > 0)
    drawn, probs = law.draw(NoiseSource(3, n)), law.probs[0]
    assert off(drawn, probs) < 4.5
    assert off(law_of(Psi(kappa + 0.3), oracle, x=x).draw(NoiseSource(3, n)), probs) > 8


def off(drawn: torch.Tensor, probs: torch.Tensor) -> float:
    n = len(drawn)
    found = torch.stack([column.bincount(minlength=probs.shape[-1]) for column in drawn.T]) / n
    return float(((found - probs).abs() / (probs * (1 - probs) / n).sqrt().clamp_min(1e-9)).max())


def test_tokens_change_what_is_taken_for_x0_in_both_parts():
    oracle, tokens = oracle_of("uniform"), Tokens(top_k=1)
    points = states(oracle.process.state_space)
    found = law_of(Psi(0.4, tokens), oracle).probs
    best = oracle(points, 0.7).to(un.RawPosterior).log_probs().argmax(-1)
    back = oracle.process.posterior(points, best, 0.4, 0.7).probs
    torch.testing.assert_close(found, 0.4 * back + 0.6 * oracle.process.marginal(best, 0.4).probs, rtol=0, atol=1e-12)


def test_a_schedule_for_each_coordinate_and_sizes_that_differ():
    schedule = un.schedules.PerCoordinate([un.schedules.Linear(), un.schedules.Polynomial(3.0)])
    low, high = admissible(un.Masking(3, (2,), schedule), torch.tensor([0.7, 0.4], dtype=torch.float64))
    assert low.shape == high.shape == (1, 2) and float(low[0, 0]) == pytest.approx(-1.5)
    column = LAW[:3] / LAW[:3].sum()
    oracle = un.oracles.table(un.Masking(3, (2,), schedule), torch.outer(column, SKEW).flatten())
    assert error(Psi(-0.08), oracle, 4) < 1e-12 and error(Psi(), oracle, 4) < 1e-12
    process = un.Uniform([2, 3])
    low, _ = admissible(process, torch.tensor([0.7, 0.4], dtype=torch.float64))
    alone = [admissible(un.Uniform(k), torch.tensor([0.7, 0.4], dtype=torch.float64))[0] for k in (2, 3)]
    torch.testing.assert_close(low[0], torch.cat(alone))


def test_a_run():
    oracle = oracle_of("uniform")
    x, info = sample(oracle, 50, 6, Psi(0.8), seed=0)
    assert int(x.max()) <= 2 and info.calls == 6
    alone, _ = sample(oracle, 5, 6, Psi(0.8), first=20, seed=0)
    assert torch.equal(alone, x[20:25])
    assert isinstance(written("Psi(MaxRescale(0.1), tokens=Tokens(top_p=0.9))").rule, MaxRescale)


def test_refusals():
    oracle = oracle_of("masking")
    with pytest.raises(ValueError, match=r"kappa = -1.6 in the step from t = 0.7 to 0.4, where.*outside \[-1.5, 1\]"):
        law_of(Psi(-1.6), oracle)
    with pytest.raises(ValueError, match="kappa = 1.1"):
        law_of(Psi(lambda s, t: 1.1), oracle)
    with pytest.raises(ValueError, match="return a number for each"):
        law_of(Psi(lambda s, t: torch.ones(3)), oracle)
    with pytest.raises(TypeError, match="kappa = 'one'"):
        Psi("one")
    with pytest.raises(ValueError, match="kappa = nan"):
        Psi(float("nan"))
    with pytest.raises(ValueError, match="eta = 2"):
        MaxRescale(2.0)
    assert "draws categories" in Psi().refuse(un.Gaussian((2,)))
    assert (
        "max-rescale asks for alpha" in Psi().refuse(PROCESSES["rates"](()))
        and Psi(0.5).refuse(PROCESSES["rates"](())) is None
    )
