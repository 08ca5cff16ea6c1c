"""DDIM for categories: its kernels and laws by matrices, on spaces small enough to write them out."""

from itertools import pairwise
from math import log2

import pytest
import torch

import unnoise as un
from unnoise.generators.kolmogorov import states
from unnoise.laws import Categorical
from unnoise.noise import NoiseSource
from unnoise.samplers import Tokens, sample
from unnoise.samplers.categorical_ddim import CategoricalDDIM, Mixed, alpha_beta
from unnoise.samplers.problem import Problem
from unnoise.samplers.remasking import Cap, Remasking
from unnoise.verify.finite_kernels import marginal_matrix

LATE, EARLY = 0.8, 0.3
STEADY = un.schedules.LinearBeta(2.0, 2.0)
LAW = torch.tensor([0.19, 0.05, 0.12, 0.21, 0.07, 0.04, 0.03, 0.16, 0.13], dtype=torch.float64)
SKEW = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)

PROCESSES = {
    "masking": lambda shape: un.Masking(3, shape),
    "uniform": lambda shape: un.Uniform(3, shape, STEADY),
    "skew": lambda shape: un.Interpolation(3, shape, SKEW, STEADY),
    "with-mask": lambda shape: un.Interpolation(3, shape, un.noise_laws.uniform_with_mask(3), STEADY),
}
MEMBERS = {
    "keep": (lambda: CategoricalDDIM(), 1),
    "rate": (lambda: CategoricalDDIM(rate=3.0), 1),
    "some": (lambda: CategoricalDDIM(0.3), None),
    "none": (lambda: CategoricalDDIM(1.0), None),
}


def oracle_of(name: str, shape: tuple[int, ...] = (2,)):
    process = PROCESSES[name](shape)
    return un.oracles.table(process, LAW if shape else LAW[:3] / LAW[:3].sum())


def marginal(oracle, t: float) -> torch.Tensor:
    process = oracle.process
    data = process.space.states()
    return marginal_matrix(process, data, states(process.state_space), t) @ oracle.log_prob(data).exp()


def matrix(law: Categorical, points: torch.Tensor) -> torch.Tensor:
    probs = law.probs.reshape(len(law.probs), -1, law.probs.shape[-1])
    flat = points.reshape(len(points), -1)
    return torch.stack([probs[:, k, flat[:, k]] for k in range(flat.shape[1])]).prod(0)


def law_of(sampler: CategoricalDDIM, oracle, times: list[float], i: int = 0, x=None) -> Mixed:
    x = states(oracle.process.state_space) if x is None else x
    problem = Problem(oracle, torch.as_tensor(times, dtype=torch.float64), NoiseSource(0, len(x)), {})
    return sampler.law(sampler.tables(problem), oracle(x, times[i]), x, i)


def error(sampler, oracle, steps: int) -> float:
    points = states(oracle.process.state_space)
    times = torch.linspace(LATE, EARLY, steps + 1, dtype=torch.float64)
    tables = sampler.tables(Problem(oracle, times, NoiseSource(0, len(points)), {}))
    law = marginal(oracle, LATE)
    for i in range(steps):
        law = law @ matrix(sampler.law(tables, oracle(points, times[i]), points, i), points)
    return float((law - marginal(oracle, EARLY)).abs().sum())


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("member", MEMBERS)
def test_one_coordinate_is_exact_at_any_number_of_steps(member, process):
    for steps in (1, 5):
        assert error(MEMBERS[member][0](), oracle_of(process, ()), steps) < 1e-12


def test_shares_that_do_not_balance_are_caught(monkeypatch):
    right = CategoricalDDIM.shares

    def wrong(self, process, times):  # the noise of x_t is forgotten
        keep, clean, fresh = right(self, process, times)
        return keep, clean - 0.5 * fresh, 1.5 * fresh

    monkeypatch.setattr(CategoricalDDIM, "shares", wrong)
    assert error(CategoricalDDIM(0.3), oracle_of("uniform", ()), 5) > 0.01


@pytest.mark.parametrize("process", ["masking", "uniform"])
@pytest.mark.parametrize("member", ["keep", "rate"])
def test_order_one_in_law(member, process):
    build, order = MEMBERS[member]
    assert build().order == order == 1
    coarse, fine = (error(build(), oracle_of(process), steps) for steps in (32, 64))
    assert fine < 0.01
    assert log2(coarse / fine) == pytest.approx(1, abs=0.1)


@pytest.mark.parametrize("process", ["masking", "uniform"])
@pytest.mark.parametrize("member", ["some", "none"])
def test_no_order_where_a_share_is_drawn_anew_in_every_step(member, process):
    build, order = MEMBERS[member]
    assert build().order is order is None
    coarse, fine = (error(build(), oracle_of(process), steps) for steps in (32, 128))
    assert fine > 0.01  # more steps do not help
    assert log2(coarse / fine) < 0.5


@pytest.mark.parametrize("member", MEMBERS)
def test_the_kernel_has_the_marginals_given_x0(member):
    """By the printed formula, with its own sigma, and averaged over q(x_t | x_0)."""
    process, t, s = un.Interpolation(3, (), SKEW, STEADY), 0.7, 0.4
    sampler = MEMBERS[member][0]()
    keep, clean, fresh = (v[0] for v in sampler.shares(process, torch.tensor([t, s], dtype=torch.float64)))
    alpha_t, alpha_s = (float(process.schedule.alpha(v)) for v in (t, s))
    sigma_max = min((1 - alpha_s) / (1 - alpha_t), alpha_s / alpha_t)
    assert 0 <= float(keep) <= sigma_max + 1e-15
    assert float(clean) == pytest.approx(alpha_s - float(keep) * alpha_t, abs=1e-14)
    assert float(fresh) == pytest.approx((1 - alpha_s) - (1 - alpha_t) * float(keep), abs=1e-14)
    eye = torch.eye(3, dtype=torch.float64)
    for x0 in range(3):
        q_t = alpha_t * eye[x0] + (1 - alpha_t) * SKEW
        kernel = keep * eye + clean * eye[x0] + fresh * SKEW  # a row per x_t
        torch.testing.assert_close(q_t @ kernel, alpha_s * eye[x0] + (1 - alpha_s) * SKEW, rtol=0, atol=1e-14)


def test_what_the_reversal_is_and_is_not():
    """Under masking keeping the most is the reversal, and letting go remasks; under uniform noise no member is it."""
    points, times = states(un.Masking(3, (2,)).state_space), [0.7, 0.4]
    masking = oracle_of("masking")
    expected = masking(points, 0.7).step(0.4).probs
    torch.testing.assert_close(law_of(CategoricalDDIM(), masking, times).probs, expected, rtol=0, atol=1e-14)
    probs = law_of(CategoricalDDIM(0.6), masking, times).probs
    sigma, reveal = Remasking(Cap(0.6 * 0.4)).chances(masking.process, torch.tensor(times, dtype=torch.float64))
    clean, masked = points != 3, points == 3
    torch.testing.assert_close(probs[..., 3][clean], sigma.expand(points.shape)[clean], rtol=0, atol=1e-14)
    torch.testing.assert_close(1 - probs[..., 3][masked], reveal.expand(points.shape)[masked], rtol=0, atol=1e-14)

    uniform = oracle_of("uniform", ())
    points = states(uniform.process.state_space)
    ancestral = uniform(points, 0.7).step(0.4).probs
    for eta in torch.linspace(0, 1, 101).tolist():
        assert float((law_of(CategoricalDDIM(eta), uniform, times).probs - ancestral).abs().max()) > 1e-3


@pytest.mark.parametrize("process", ["masking", "uniform", "with-mask"])
def test_draws_have_the_law(process):
    oracle, n = oracle_of(process), 20_000
    x = states(oracle.process.state_space)[7:8].expand(n, -1)
    law = law_of(CategoricalDDIM(0.4), oracle, [0.7, 0.4], x=x)
    drawn, probs = law.draw(NoiseSource(3, n)), law.probs[0]
    assert off(drawn, probs) < 4.5
    swapped = Mixed(law.process, law.x, law.log_theta, law.fresh, law.clean, law.keep)
    assert off(swapped.draw(NoiseSource(3, n)), probs) > 10


def off(drawn: torch.Tensor, probs: torch.Tensor) -> float:
    """How many standard deviations frequencies are from probabilities, at most."""
    n = len(drawn)
    found = torch.stack([column.bincount(minlength=probs.shape[-1]) for column in drawn.T]) / n
    return float(((found - probs) / (probs * (1 - probs) / n).sqrt().clamp_min(1e-9)).abs().max())


def test_tokens_change_the_law_of_x0_only():
    oracle, times = oracle_of("uniform"), [0.7, 0.4]
    for tokens in (Tokens(0.0), Tokens(0.5), Tokens(top_k=2), Tokens(top_p=0.6)):
        sampler = CategoricalDDIM(0.4, tokens=tokens)
        assert sampler.order is None and CategoricalDDIM(tokens=tokens).order is None
        found, plain = law_of(sampler, oracle, times), law_of(CategoricalDDIM(0.4), oracle, times)
        for share in ("keep", "clean", "fresh"):
            assert torch.equal(getattr(found, share), getattr(plain, share))
        theta = tokens.log_probs(plain.log_theta.flatten(0, -2)).reshape(plain.log_theta.shape).exp()
        moved = plain.clean.unsqueeze(-1) * (theta - plain.log_theta.exp())
        torch.testing.assert_close(found.probs - plain.probs, moved, rtol=0, atol=1e-14)


def test_a_schedule_for_each_coordinate():
    """Each coordinate has the marginals of its own schedule; independent coordinates make the whole law exact."""
    schedule = un.schedules.PerCoordinate([un.schedules.Linear(), un.schedules.Polynomial(3.0)])
    column = LAW[:3] / LAW[:3].sum()
    oracle = un.oracles.table(un.Masking(3, (2,), schedule), torch.outer(column, SKEW).flatten())
    for build, _ in MEMBERS.values():
        assert error(build(), oracle, 4) < 1e-12
    _, beta = alpha_beta(oracle.process, torch.tensor([0.5], dtype=torch.float64))
    assert beta.shape == (1, 2) and float(beta[0, 0]) != float(beta[0, 1])


def test_categories_that_a_coordinate_does_not_have_carry_no_mass():
    for process in (un.Uniform([2, 3]), un.Masking([2, 3])):
        points = process.space.states()
        law = torch.rand(len(points), generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.1
        oracle = un.oracles.table(process, law / law.sum())
        start = process.prior(6).draw(NoiseSource(0, 6))
        probs = law_of(CategoricalDDIM(0.5), oracle, [0.9, 0.4], x=start).probs
        assert float(probs[:, 0, 2].max()) == 0
        torch.testing.assert_close(probs.sum(-1), torch.ones(6, 2, dtype=torch.float64))
        x, _ = sample(oracle, 500, 6, CategoricalDDIM(0.5), seed=0)
        assert int(x[:, 0].max()) == 1 and int(x[:, 1].max()) == 2


@pytest.mark.parametrize("process", ["masking", "uniform"])
def test_a_run(process):
    """Ends in data, counts what changed, and a sample does not depend on its batch."""
    oracle = oracle_of(process)
    x, info = sample(oracle, 60, 8, CategoricalDDIM(0.2), trajectory=True, seed=0)
    assert int(x.max()) <= 2 and info.calls == 8
    assert torch.equal(info.jumps, sum((a != b).sum(1) for a, b in pairwise(info.trajectory)))
    alone, _ = sample(oracle, 5, 8, CategoricalDDIM(0.2), first=33, seed=0)
    assert torch.equal(alone, x[33:38])
    fewer = sample(oracle, 2000, 32, CategoricalDDIM(), seed=0)[1].jumps.double().mean()
    assert fewer < sample(oracle, 2000, 32, CategoricalDDIM(rate=4.0), seed=0)[1].jumps.double().mean()


@pytest.mark.parametrize("kind", [un.RawPosterior, un.Ratio, un.Rates, un.Energy], ids=lambda k: k.__name__)
def test_any_kind_of_prediction_will_do(kind):
    oracle = oracle_of("uniform")
    expected = law_of(CategoricalDDIM(0.3), oracle, [0.7, 0.4]).probs
    found = law_of(CategoricalDDIM(0.3), oracle.predicting(kind), [0.7, 0.4]).probs
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def test_refusals():
    sampler = CategoricalDDIM()
    chain = un.MatrixChain(un.d3pm.uniform(3, torch.linspace(0.1, 0.9, 8).double()), (2,))
    for process in (
        un.Mixture.uniform_and_mask(3, (2,)),
        un.RateMatrix(un.rate_matrices.nearest_neighbour(3), (2,)),
        chain.process,
    ):
        assert f"and {type(process).__name__} has none" in sampler.refuse(process)
    assert "draws categories" in sampler.refuse(un.Gaussian((2,)))
    for build in PROCESSES.values():
        assert sampler.refuse(build((2,))) is None
    for eta in (-0.1, 1.5, float("nan")):
        with pytest.raises(ValueError, match="eta"):
            CategoricalDDIM(eta)
    for rate in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="rate"):
            CategoricalDDIM(rate=rate)
