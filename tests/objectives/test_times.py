"""Time rules: unbiased for integrals that are known, stratified over workers, and finite in variance under masking."""

from math import comb, exp, log

import pytest
import torch

import unnoise as un
from unnoise.objectives import times as rules
from unnoise.objectives.times import strata

schedules = un.schedules
F64 = torch.float64
PROCESS = un.Gaussian((1,), schedules.Linear())

INTEGRANDS = {
    "square": (lambda t: t**2, lambda low: (1 - low**3) / 3),
    "inverse": (lambda t: 1 / t, lambda low: -log(low)),
    "exponential": (lambda t: torch.exp(-3 * t), lambda low: (exp(-3 * low) - exp(-3)) / 3),
}
RULES = {
    "uniform": rules.UniformTimes(),
    "uniform-3": rules.UniformTimes(3),
    "stratified": rules.Stratified(),
    "stratified-2": rules.Stratified(2),
    "importance": rules.Importance(),
    "importance-3": rules.Importance(3, power=2.0),
}


def estimates(rule, f, low, seeds, rows):
    """One estimate of the integral per seed: the mean over a batch."""
    x0 = torch.zeros(rows, 1, dtype=F64)
    out = []
    for seed in range(seeds):
        visits = rule.visit(PROCESS, x0, low, un.NoiseSource(seed, rows))
        assert visits.t.shape == visits.weight.shape and visits.t.shape[1] == rows
        assert float(visits.t.min()) >= low and float(visits.t.max()) <= 1
        out.append((visits.weight * f(visits.t)).sum(0).mean())
    return torch.stack(out)


def assert_mean(sample, expected, sigmas=4.0):
    error = float(sample.std() / len(sample) ** 0.5)
    assert abs(float(sample.mean()) - expected) < sigmas * error, (float(sample.mean()), expected, error)
    return error


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize(("f", "integral"), INTEGRANDS.values(), ids=INTEGRANDS.keys())
@pytest.mark.parametrize("low", [0.01, 0.3])
def test_unbiased(name, f, integral, low):
    sample = estimates(RULES[name], f, low, seeds=400, rows=8)
    error = assert_mean(sample, integral(low))
    assert error < 0.05 * integral(low)  # so that a wrong weight would show


@pytest.mark.parametrize("draws", [1, 4])
@pytest.mark.parametrize("kind", [rules.UniformTimes, rules.Stratified, rules.Importance])
def test_more_draws_are_visits_of_their_own(kind, draws):
    visits = kind(draws).visit(PROCESS, torch.zeros(6, 1, dtype=F64), 0.1, un.NoiseSource(0, 6))
    assert visits.t.shape == (draws, 6) and len(visits.t.flatten().unique()) == 6 * draws
    assert float(visits.weight.mean(1).sum()) == pytest.approx(0.9, rel=0.5)


def test_strata_have_less_variance_and_grading_suits_what_grows_towards_zero():
    f, _ = INTEGRANDS["square"]
    spread = {name: float(estimates(RULES[name], f, 0.01, 200, 16).std()) for name in ("uniform", "stratified")}
    assert spread["stratified"] < 0.3 * spread["uniform"]
    f, _ = INTEGRANDS["inverse"]
    spread = {name: float(estimates(RULES[name], f, 0.01, 200, 16).std()) for name in ("stratified", "importance")}
    assert spread["importance"] < 0.2 * spread["stratified"]


@pytest.mark.parametrize("low", [0.0, 0.01, 0.3])
def test_quadrature_is_exact_for_polynomials(low):
    """n Gauss nodes integrate degree 2n - 1 in u; t^k has degree 4k + 3 there."""
    visits = un.Quadrature(8).visit(PROCESS, torch.zeros(2, 1, dtype=F64), low, un.NoiseSource(0, 2))
    assert visits.t.shape == (8, 2)
    for k in range(4):
        value = (visits.weight * visits.t**k).sum(0)
        torch.testing.assert_close(value, torch.full((2,), (1 - low ** (k + 1)) / (k + 1), dtype=F64), rtol=1e-13, atol=0)
    if low < 0.1:  # and not beyond
        assert abs(float((visits.weight * visits.t**4).sum(0)[0]) - (1 - low**5) / 5) > 1e-13


def test_quadrature_converges_where_the_integrand_grows_towards_zero():
    """int_{1e-4}^1 dt/t: grading keeps the digits that equal nodes would lose."""
    x0, noise = torch.zeros(1, 1, dtype=F64), un.NoiseSource(0, 1)
    errors = {}
    for power in (1.0, 4.0):
        visits = un.Quadrature(64, power).visit(PROCESS, x0, 1e-4, noise)
        errors[power] = abs(float((visits.weight / visits.t).sum()) - log(1e4))
    assert errors[4.0] < 1e-9 and errors[1.0] > 1e-3


# -- workers ----------------------------------------------------------------------------------------------------------


def on_worker(monkeypatch, rank, world):
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_rank", lambda: rank)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: world)


@pytest.mark.parametrize("seed", range(3))
def test_every_stratum_of_the_global_batch_is_visited_once(monkeypatch, seed):
    world, rows = 4, 8
    numbers = []
    for rank in range(world):
        on_worker(monkeypatch, rank, world)
        noise = un.NoiseSource(seed, torch.arange(rows) + rank * rows)
        numbers.append(strata(rows, noise))
    u = torch.cat(numbers)
    assert (u * world * rows).floor().long().sort().values.tolist() == list(range(world * rows))
    gaps = u.sort().values.diff()
    torch.testing.assert_close(gaps, torch.full_like(gaps, 1 / (world * rows)), rtol=0, atol=1e-12)


def test_workers_together_estimate_like_one_large_batch(monkeypatch):
    f, integral = INTEGRANDS["square"]
    parts = []
    for rank in range(4):
        on_worker(monkeypatch, rank, 4)
        parts.append(estimates(un.Stratified(), f, 0.01, 200, 8))
    together = torch.stack(parts).mean(0)
    assert_mean(together, integral(0.01))
    monkeypatch.undo()
    whole = estimates(un.Stratified(), f, 0.01, 200, 32)
    torch.testing.assert_close(together, whole, rtol=1e-12, atol=0)  # the same offset, the same strata
    assert float(together.std()) < 0.4 * float(torch.stack(parts).std(1).mean())


@pytest.mark.parametrize("rule", [un.Importance(), un.MaskedCount()], ids=["importance", "count"])
def test_rules_that_stratify_do_so_over_workers(monkeypatch, rule):
    process = un.Masking(3, 5)
    seen = []
    for rank in range(2):
        on_worker(monkeypatch, rank, 2)
        visits = rule.visit(process, torch.zeros(16, 5, dtype=torch.int64), 0.0, un.NoiseSource(0, 16))
        root = 0.25 if isinstance(rule, un.Importance) else 1.0
        seen.append(visits.t[0] ** root)
    u = torch.cat(seen)
    assert (u * 32).floor().long().sort().values.tolist() == list(range(32))


# -- counts under masking ---------------------------------------------------------------------------------------------


def count_visits(process, rows, low=0.0, seed=0):
    """Count's draws for a batch of identical data: n, subsets, beta and weights on the summed cross-entropy."""
    x0 = torch.zeros(rows, process.space.dimension, dtype=torch.int64)
    visits = un.MaskedCount().visit(process, x0, low, un.NoiseSource(seed, rows))
    masked = visits.x_t == process.mask
    t = visits.t[0]
    hazard = -process.schedule.d_alpha(t) / process.schedule.beta(t)
    return masked, process.schedule.beta(t), visits.weight[0] * hazard


def chi_square(counts, expected):
    return float(((counts - expected) ** 2 / expected).sum())


@pytest.mark.parametrize("schedule", [schedules.Linear(), schedules.Cosine()], ids=["linear", "cosine"])
def test_counts_are_uniform_and_so_are_subsets(schedule):
    d, rows = 5, 40_000
    masked, _, weight = count_visits(un.Masking(3, d, schedule), rows)
    n = masked.sum(1)
    torch.testing.assert_close(weight, d / n.double(), rtol=1e-9, atol=0)
    counts = torch.bincount(n, minlength=d + 1).double()
    assert counts[0] == 0
    assert chi_square(counts[1:], rows / d) < 25.0  # 4 degrees of freedom: beyond 25 with probability 5e-5
    code = (masked.long() * 2 ** torch.arange(d)).sum(1)
    for size in range(1, d):
        subsets = torch.bincount(code[n == size], minlength=2**d).double()
        subsets = subsets[subsets > 0]
        assert len(subsets) == comb(d, size)
        # up to 9 degrees of freedom: beyond 40 with probability 1e-5
        assert chi_square(subsets, float(subsets.sum()) / len(subsets)) < 40.0


@pytest.mark.parametrize("schedule", [schedules.Linear(), schedules.Polynomial(3.0)], ids=["linear", "polynomial"])
def test_noise_given_the_count_is_beta(schedule):
    """1 - alpha given n is Beta(n, d - n + 1): its distribution function is P[Binomial(d, b) >= n] (Kolmogorov-Smirnov)."""
    d, rows = 6, 30_000
    masked, beta, _ = count_visits(un.Masking(3, d, schedule), rows, seed=1)
    n = masked.sum(1)
    for count in range(1, d + 1):
        b = beta[n == count].sort().values
        cdf = sum(comb(d, j) * b**j * (1 - b) ** (d - j) for j in range(count, d + 1))
        empirical = torch.arange(len(b) + 1, dtype=F64) / len(b)
        distance = max(float((cdf - empirical[:-1]).abs().max()), float((cdf - empirical[1:]).abs().max()))
        assert distance * len(b) ** 0.5 < 2.2  # exceeded with probability 1e-4
        wrong = sum(comb(d, j) * b**j * (1 - b) ** (d - j) for j in range(count + 1, d + 1)) if count < d else b**0
        assert float((wrong - empirical[1:]).abs().max()) * len(b) ** 0.5 > 2.2


def markov_oracle(schedule, length=20):
    initial = torch.tensor([0.5, 0.3, 0.2], dtype=F64)
    transition = torch.tensor([[0.7, 0.2, 0.1], [0.2, 0.6, 0.3], [0.1, 0.2, 0.6]], dtype=F64)
    return un.oracles.MarkovChain(un.Masking(3, length, schedule), initial, transition)


@pytest.mark.parametrize("schedule", [schedules.Linear(), schedules.Cosine()], ids=["linear", "cosine"])
def test_counted_bound_is_the_negative_log_likelihood_on_average(schedule):
    """The masked bound of exact posteriors is -log q(x); each estimate is at most d times the largest surprise."""
    oracle, rows = markov_oracle(schedule), 20_000
    x = oracle.draw(un.NoiseSource(5, 1))
    value = un.bound(oracle, x.expand(rows, -1), times=un.MaskedCount(), seed=0).total
    error = assert_mean(value, -float(oracle.log_prob(x)))
    assert error < 0.01 * float(value.mean())
    # a posterior of this chain is at least (0.1)^2: its surprise at most -2 log 0.1, for every draw there can ever be
    assert float(value.max()) <= 20 * -2 * log(0.1)
    halves = value[::2].std(), value[1::2].std()
    assert float(halves[0] / halves[1]) == pytest.approx(1.0, abs=0.05)


def test_counting_with_a_cut_off_leaves_out_what_lies_before_it():
    """Up to the cut-off the integral is that of the same rule by quadrature, for a network that depends on time."""
    process = un.Masking(3, 3)
    table = torch.randn(4, 3, dtype=F64, generator=torch.Generator().manual_seed(0))

    class Network(torch.nn.Module):
        def forward(self, x, t):
            return table[x.roll(1, 1)] * (1 + 3 * t).reshape(-1, 1, 1)

    denoiser = un.Denoiser(Network(), process)
    x = torch.tensor([[0, 1, 2]])
    exact = un.bound(denoiser, x, exact=True, times=un.Quadrature(40), cutoff=0.2).diffusion.item()
    drawn = un.bound(denoiser, x.expand(40_000, -1), times=un.MaskedCount(), cutoff=0.2, seed=0).diffusion
    error = assert_mean(drawn, exact)
    assert error < 0.01 * exact
    whole = un.bound(denoiser, x, exact=True, times=un.Quadrature(40)).diffusion.item()
    assert abs(whole - exact) > 10 * error


def test_uniform_times_have_the_tail_that_counting_lacks():
    """Under the linear schedule the weight 1/t has no variance: the largest draws exceed all that counting can give."""
    oracle, rows = markov_oracle(schedules.Linear()), 20_000
    x = oracle.draw(un.NoiseSource(5, 1)).expand(rows, -1)
    counted = un.bound(oracle, x, times=un.MaskedCount(), seed=0).total
    uniform = un.bound(oracle, x, times=rules.UniformTimes(), seed=0).total
    assert float(uniform.std()) > 2 * float(counted.std())
    assert float(uniform.max()) > 20 * -2 * log(0.1) > float(counted.max())


def test_counting_belongs_to_masking_with_one_schedule():
    x0 = torch.zeros(2, 2, dtype=torch.int64)
    several = schedules.PerCoordinate([schedules.Linear(), schedules.Cosine()])
    for process in (un.Uniform(3, 2), un.Masking(3, 2, several)):
        with pytest.raises(TypeError, match="count-based times belong to Masking"):
            un.MaskedCount().visit(process, x0, 0.0, un.NoiseSource(0, 2))


# -- chains -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "rule", [None, rules.UniformTimes(), un.Stratified(), un.Importance()], ids=lambda r: type(r).__name__
)
@pytest.mark.parametrize("family", ["gaussian", "uniform", "masking"])
def test_a_random_step_of_a_chain_estimates_the_sum_over_all(family, rule):
    """Each rule's own weights belong to it in discrete time too; the expectation over x_t is exact, the step is drawn."""
    if family == "gaussian":
        process, x = un.Gaussian((1,), schedules.Linear()), torch.tensor([[0.4]], dtype=F64)
        oracle = un.oracles.normal(process, torch.zeros(1, dtype=F64), torch.eye(1, dtype=F64))
    else:
        process = {"uniform": un.Uniform, "masking": un.Masking}[family](2, 2)
        oracle, x = un.oracles.table(process, torch.tensor([0.4, 0.1, 0.2, 0.3], dtype=F64)), torch.tensor([[0, 1]])
    chain = un.Chain(process, [0.05, 0.1, 0.3, 0.6, 1.0])
    denoiser = oracle.predicting(process=chain)
    exact = un.bound(denoiser, x, exact=True).diffusion.item()
    rule = rule if rule is not None else un.Objective(denoiser).times
    estimates = []
    for seed in range(80):
        value = un.bound(denoiser, x.expand(3, -1), exact=True, times=rule, seed=seed)
        estimates.append(value.diffusion.mean())
    estimates = torch.stack(estimates)
    error = assert_mean(estimates, exact)
    assert error < 0.15 * exact and float(estimates.std()) > 1e-6


@pytest.mark.parametrize("kind", [un.RawPosterior, un.Ratio])
def test_a_leaf_of_a_product_has_the_cut_off_that_it_has_alone(kind):
    """Without one the integral of an inexact network diverges at t = 0: it would grow with the nodes of the rule."""
    table = torch.randn(3, 3, dtype=F64, generator=torch.Generator().manual_seed(0))
    uniform = un.Uniform(3, (1,), schedules.LinearBeta())

    class Network(torch.nn.Module):
        def forward(self, x, t):
            return {"u": table[x["u"]]} if isinstance(x, dict) else table[x]

    x = torch.tensor([[0], [1], [2]])
    nested = un.Product(a=un.Product(u=uniform), b=un.Gaussian((1,)))
    assert un.Denoiser(Network(), nested, {"a": {"u": kind}}).cutoff == 1e-4
    assert un.Denoiser(Network(), nested).cutoff == nested.cutoff
    found = [
        un.bound(un.Denoiser(Network(), process, kinds), data, exact=True, times=un.Quadrature(nodes)).total.mean().item()
        for process, kinds, data in ((uniform, kind, x), (un.Product(u=uniform), {"u": kind}, {"u": x}))
        for nodes in (64, 256)
    ]
    assert found == pytest.approx([found[0]] * 4, rel=1e-3)


# -- rules of one's own -----------------------------------------------------------------------------------------------


class Later(rules.Times):
    """Density (1/2 + v)/(1 - low) at t = low + (1 - low) v: late times more often, and no weight above 2 (1 - low)."""

    def draw(self, noise, low):
        return low + (1 - low) * ((1 + 8 * noise.uniform()).sqrt() - 1) / 2  # (v + v^2)/2 is uniform

    def density(self, t, low):
        return (0.5 + (t - low) / (1 - low)) / (1 - low)


class Twice(Later):
    draws = 2


class Unlike(Later):
    """A mutant: the times of another rule under the density of this one."""

    def draw(self, noise, low):
        return low + (1 - low) * noise.uniform()


@pytest.mark.parametrize("rule", [Later(), Twice()], ids=lambda r: type(r).__name__)
@pytest.mark.parametrize("name", ["square", "exponential"])
def test_a_rule_by_its_density_is_unbiased(rule, name):
    """Weights are bounded, so means are normal: the rule is off by 4 sigma once in 16,000, the mutant by 15."""
    f, integral = INTEGRANDS[name]
    assert_mean(estimates(rule, f, 0.1, seeds=400, rows=8), integral(0.1))
    wrong = estimates(Unlike(), f, 0.1, seeds=400, rows=8)
    assert abs(float(wrong.mean()) - integral(0.1)) > 6 * float(wrong.std() / len(wrong) ** 0.5)


@pytest.mark.parametrize("name", RULES)
@pytest.mark.parametrize("low", [0.0, 0.01, 0.3])
def test_the_weight_is_one_over_the_density(name, low):
    rule = RULES[name]
    visits = rule.visit(PROCESS, torch.zeros(16, 1, dtype=F64), low, un.NoiseSource(3, 16))
    torch.testing.assert_close(visits.weight * rule.draws * rule.density(visits.t, low), torch.ones_like(visits.t))
    u = torch.linspace(low, 1, 200_001, dtype=F64)[1:] - (1 - low) / 400_000  # the density integrates to one
    total = (rule.density(u, low) * (1 - low) / 200_000).sum()
    assert float(total) == pytest.approx(1.0, abs=2e-3 if low else 0.05)


@pytest.mark.parametrize("schedule", [schedules.Linear(), schedules.Cosine()], ids=lambda s: type(s).__name__)
@pytest.mark.parametrize("rule", [un.MaskedCount(), un.MaskedCount(3), un.MixedTimes(2)], ids=lambda r: type(r).__name__)
def test_the_weight_is_one_over_the_ratio_of_joint_densities(rule, schedule):
    process, x0 = un.Masking(3, (4,), schedule), torch.zeros(16, 4).long()
    visits = rule.visit(process, x0, 0.01, un.NoiseSource(3, 16))
    t = visits.t.flatten()
    ratio = rule.density_ratio(process, visits.x_t, t, 0.01, {})
    torch.testing.assert_close(visits.weight.flatten() * rule.draws * ratio, torch.ones_like(t), rtol=1e-9, atol=0)


@pytest.mark.parametrize("low", [0.02, 0.3])
def test_joint_densities_are_densities(low):
    """Summed over all sets of masked coordinates with their probability, and integrated over t, the ratio gives one."""
    process = un.Masking(2, (3,), schedules.Cosine())
    every = torch.cartesian_prod(*[torch.tensor([0, process.mask])] * 3)
    t = torch.linspace(low, 1, 4001, dtype=F64)[1:] - (1 - low) / 8000
    for rule in (un.MaskedCount(), un.MixedTimes(power=2.0)):
        total = torch.zeros_like(t)
        for x_t in every:
            states = x_t.expand(len(t), 3)
            q = process.marginal(torch.zeros_like(states), t).log_prob(states).exp()
            total = total + q * rule.density_ratio(process, states, t, low, {})
        assert float(total.mean() * (1 - low)) == pytest.approx(1.0, abs=1e-4)


def test_what_a_rule_redefines_it_answers_for():
    class Weighted(Later):
        def weight(self, t, low):
            return torch.ones_like(t)

    class Visiting(Later):
        def visit(self, process, x0, low, noise):
            return super().visit(process, x0, low, noise)

    class Vouched(Visiting):
        is_bound = True

    class Moved(un.Importance):
        def draw(self, noise, low):
            return low + (1 - low) * noise.uniform()

    class Declared(Moved):
        def draw(self, noise, low):
            return low + (1 - low) * noise.uniform()

        def density(self, t, low):
            return torch.full_like(t, 1 / (1 - low))

        is_bound = True

    class Drawing(un.MaskedCount):
        def draw_joint(self, process, x0, low, noise, known):
            return super().draw_joint(process, x0, low, noise, known)

    for rule in (Weighted, Visiting, Moved, Unlike, Drawing):
        assert not rule.is_bound, rule
    for rule in (Later, Twice, Vouched, Declared, un.Quadrature, un.Grid, un.MaskedCount, un.MixedTimes, un.Stratified):
        assert rule.is_bound, rule
    t = torch.tensor([0.2, 0.7], dtype=F64)
    assert Declared().weight(t, 0.1).tolist() == pytest.approx([0.9, 0.9])  # not the slope of the rule that it extends
    with pytest.raises(TypeError, match=r"Silent says no times: write draw\(noise, low\)"):
        type("Silent", (rules.Times,), {})().visit(PROCESS, torch.zeros(2, 1), 0.1, un.NoiseSource(0, 2))
    with pytest.raises(TypeError, match=r"Half says no density: write density\(t, low\)"):
        half = type("Half", (rules.Times,), {"draw": Later.draw})
        half().visit(PROCESS, torch.zeros(2, 1), 0.1, un.NoiseSource(0, 2))
