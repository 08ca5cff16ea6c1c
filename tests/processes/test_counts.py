"""Counts without end: laws against sums written out, the process against the same, predictions, errors and mutants.

Drawn laws are compared by chi-square at level 1e-7 a test (fewer than 20 of them: a false alarm of the file has probability
below 2e-6), and each statistic rejects its planted mutant.
"""

from itertools import product as pairs
from math import comb, exp, factorial, inf, log

import pytest
import torch

import unnoise as un
from unnoise.count_laws import Tabulated, Thinned
from unnoise.objectives import decoders
from unnoise.objectives.closed_forms import rate
from unnoise.verify.bounds import identity_checks
from unnoise.verify.kernels import kernel_checks
from unnoise.verify.subjects import count_subject

DEATH, ARRIVING = un.Thinning((1,)), un.Thinning((1,), immigration=1.3)
WEIGHTS = torch.tensor([0.2, 0.5, 0.3], dtype=torch.float64)
RATES = torch.tensor([[0.4], [1.5], [4.0]], dtype=torch.float64)
KINDS = {"death": (un.Remaining, un.Intensity, un.CountRatio), "arriving": (un.Intensity, un.CountRatio)}
EACH = [(process, kind) for process, kinds in KINDS.items() for kind in kinds]


def process_of(name: str) -> un.Thinning:
    return DEATH if name == "death" else ARRIVING


def poisson(k: int, mean: float) -> float:
    return 0.0 if k < 0 else exp(-mean) * mean**k / factorial(k)


def thinned(x: int, n: int, keep: float, mean: float) -> float:
    """Binomial(n, keep) + Poisson(mean) at x, term by term."""
    return sum(comb(n, j) * keep**j * (1 - keep) ** (n - j) * poisson(x - j, mean) for j in range(n + 1))


def column(*values: int) -> torch.Tensor:
    return torch.tensor(values).unsqueeze(-1)


# laws ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mean", [0.0, 0.7, 3.0])
@pytest.mark.parametrize("keep", [0.0, 0.3, 1.0])
def test_thinned_is_the_sum_over_survivors(keep, mean):
    cases = list(pairs(range(5), range(9)))
    n, x = column(*[c[0] for c in cases]), column(*[c[1] for c in cases])
    survive, lose, arrive = torch.tensor([keep, 1 - keep, mean], dtype=torch.float64)
    law = Thinned(0 * n, n, survive, lose, arrive if mean else None)
    exact = torch.tensor([thinned(y, m, keep, mean) for m, y in cases], dtype=torch.float64)
    assert torch.allclose(law.log_prob(x).exp(), exact, rtol=1e-12, atol=1e-15)


def test_impossible_counts_have_no_mass():
    law = Thinned(column(2), column(3), torch.tensor(0.5), torch.tensor(0.5))
    assert [law.log_prob(column(x)).item() for x in (1, 6)] == [-inf, -inf]
    assert abs(law.log_prob(column(5)).item() - log(0.125)) < 1e-14
    table = Tabulated(torch.full((1, 1, 4), log(0.25), dtype=torch.float64))
    assert table.log_prob(column(4)).item() == -inf and table.log_prob(column(3)).item() == log(0.25)


def test_divergences_in_closed_form():
    one = torch.ones(1, 1, dtype=torch.float64)
    zero = column(0)
    ours = Thinned(zero, mean=3.0 * one).kl(Thinned(zero, mean=5.0 * one)).item()
    assert abs(ours - (3 * log(3 / 5) - 3 + 5)) < 1e-13
    n, p, q = 10_000, 0.3, 0.31
    many = column(n)
    laws = [Thinned(zero, many, c * one, (1 - c) * one) for c in (p, q)]
    assert laws[0].nodes().shape[-1] < 1000  # a window, not all of 0 ... n
    exact = n * (p * log(p / q) + (1 - p) * log((1 - p) / (1 - q)))
    assert abs(laws[0].kl(laws[1]).item() - exact) < 1e-9
    assert laws[0].kl(laws[0]).item() == 0


def test_divergence_is_infinite_where_mass_is_impossible():
    one, zero = torch.ones(1, 1, dtype=torch.float64), column(0)
    some, none = Thinned(zero, mean=one), Thinned(zero)
    assert some.kl(none).item() == inf and abs(none.kl(some).item() - 1) < 1e-15
    few = Thinned(zero, column(3), 0.5 * one, 0.5 * one)
    assert some.kl(few).item() == inf and few.kl(some).item() < inf


def test_tables_of_different_length_compare():
    long = torch.tensor([0.5, 0.3, 0.2, 0.0], dtype=torch.float64).clamp_min(0).log().clamp_min(-1e30).reshape(1, 1, 4)
    short = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log().reshape(1, 1, 3)
    exact = 0.5 * log(0.5 / 0.2) + 0.2 * log(0.2 / 0.5)
    assert abs(Tabulated(long).kl(Tabulated(short)).item() - exact) < 1e-14
    assert abs(Tabulated(short).kl(Tabulated(long)).item() + 0.2 * log(0.5 / 0.2) - 0.5 * log(0.5 / 0.2)) < 1e-14
    assert Tabulated(short).kl(Tabulated(short[..., :2])).item() == inf
    with pytest.raises(TypeError, match="no closed form"):
        Tabulated(short).kl(un.Gaussian((1,)).prior(1))


# draws -----------------------------------------------------------------------------------------------------------------

DRAWS, LEVEL = 50_000, 1e-7


def chi_square_rejects(drawn: torch.Tensor, law, size: int) -> bool:
    """Pearson's statistic over 0 ... size - 1 and the rest, cells of fewer than 5 expected pooled."""
    probs = law.log_terms(torch.arange(size).expand(*law.nodes().shape[:-1], size))[0, 0].exp()
    expected = torch.cat([probs, (1 - probs.sum()).clamp_min(0).reshape(1)]) * len(drawn)
    observed = torch.bincount(drawn.flatten().clamp_max(size), minlength=size + 1).double()
    assert int(observed[:-1][probs <= 1e-300].sum()) == 0, "an impossible count was drawn"
    rare = expected < 5
    if bool(rare.any()):
        expected = torch.cat([expected[~rare], expected[rare].sum().reshape(1)])
        observed = torch.cat([observed[~rare], observed[rare].sum().reshape(1)])
    keep = expected > 1e-9
    statistic = ((observed - expected)[keep].square() / expected[keep]).sum()
    freedom = keep.sum().double() - 1
    return bool(freedom > 0) and float(torch.special.gammaincc(freedom / 2, statistic / 2)) < LEVEL


def repeated(law_of, rows: int = DRAWS):
    return law_of(torch.full((rows, 1), 7)), law_of(torch.full((1, 1), 7))


LAWS = {
    "death": lambda x: DEATH.marginal(x, 0.4),
    "death, hardly": lambda x: DEATH.marginal(x, 1e-4),
    "death, nearly all": lambda x: DEATH.marginal(x, 1 - 1e-4),
    "immigration": lambda x: ARRIVING.marginal(x, 0.6),
    "many arrive": lambda x: un.Thinning((1,), immigration=40.0).marginal(x, 0.9),
    "bridge": lambda x: DEATH.posterior(x - 5, x, 0.3, 0.8),
    "bridge with immigration": lambda x: ARRIVING.posterior(x - 5, x, 0.3, 0.8),
    "prior": lambda x: ARRIVING.prior(len(x)),
}


@pytest.mark.conformance
@pytest.mark.parametrize("name", LAWS)
def test_what_is_drawn_has_the_law_that_is_computed(name):
    law, single = repeated(LAWS[name])
    assert not chi_square_rejects(law.draw(un.NoiseSource(1, DRAWS)), single, 80)


@pytest.mark.conformance
def test_a_wrong_bridge_is_seen_in_its_draws():
    """Units come back with probability 1 - alpha_s in place of (alpha_s - alpha_t)/(1 - alpha_t)."""
    law, single = repeated(LAWS["bridge"])
    law.keep, law.lose = torch.full_like(law.keep, 1 - 0.7), torch.full_like(law.keep, 0.7)
    assert chi_square_rejects(law.draw(un.NoiseSource(1, DRAWS)), single, 80)


def test_a_draw_does_not_depend_on_its_batch():
    x = torch.arange(30).reshape(-1, 1) * 7
    for process in (DEATH, ARRIVING):
        for t in (0.01, 0.5, 0.99):
            whole = process.marginal(x, t).draw(un.NoiseSource(3, 30))
            for i in (0, 4, 29):
                alone = process.marginal(x[i : i + 1], t).draw(un.NoiseSource(3, torch.tensor([i])))
                assert torch.equal(alone, whole[i : i + 1])


def test_large_counts_have_their_mean_and_variance():
    x = torch.full((4000, 1), 1_000_000)
    drawn = DEATH.marginal(x, 0.3).draw(un.NoiseSource(0, 4000)).double()
    std = (1e6 * 0.7 * 0.3) ** 0.5
    assert abs(drawn.mean().item() - 7e5) < 5 * std / 4000**0.5
    assert abs(drawn.std().item() / std - 1) < 5 / 8000**0.5


def test_rare_events_have_their_right_probability():
    """Whether comes first: a loss of probability 1e-13 a unit is seen among the smallest uniforms, not rounded away."""
    n, lose = torch.tensor([[3]]), torch.tensor([[1e-13]], dtype=torch.float64)
    law = Thinned(0 * n, n, 1 - lose, lose)

    class Low(un.NoiseSource):
        def at(self, *labels):
            return self

        def uniform(self, shape=()):
            return torch.full((1, *shape), 2.9e-13, dtype=torch.float64)

    assert law.draw(Low(0, 1)).item() == 2
    law = Thinned(0 * n, n, 1 - 0.9 * lose, 0.9 * lose)
    assert law.draw(Low(0, 1)).item() == 3


# the process -----------------------------------------------------------------------------------------------------------


def test_bridge_is_the_binomial_one():
    law = DEATH.posterior(column(2), column(6), 0.3, 0.8)
    p = 0.5 / 0.8  # (alpha_s - alpha_t)/(1 - alpha_t)
    for k in range(5):
        assert abs(law.log_prob(column(2 + k)).exp().item() - comb(4, k) * p**k * (1 - p) ** (4 - k)) < 1e-14


def test_bridge_with_immigration_is_bayes():
    s, t, x0, x_t, lam = 0.3, 0.8, 3, 2, 1.3
    joint = [thinned(x_t, x, 0.2 / 0.7, lam * 0.5 / 0.7) * thinned(x, x0, 0.7, lam * 0.3) for x in range(30)]
    law = ARRIVING.posterior(column(x_t), column(x0), s, t)
    for x in range(12):
        assert abs(law.log_prob(column(x)).exp().item() - joint[x] / sum(joint)) < 1e-13


@pytest.mark.parametrize("process", [DEATH, ARRIVING], ids=["death", "immigration"])
def test_conditioned_rates_in_closed_form(process):
    t, lam = 0.4, process.immigration
    c = 1 / 0.6
    for x0, x in pairs(range(5), range(4)):
        if lam == 0 and x > x0:
            continue
        down, up = process.conditioned_local(column(x), column(x0), t).rates[0, 0].tolist()
        here = thinned(x, x0, 0.6, lam * 0.4)
        assert abs(up - c * (x + 1) * thinned(x + 1, x0, 0.6, lam * 0.4) / here) < 1e-12
        assert abs(down - (c * lam * thinned(x - 1, x0, 0.6, lam * 0.4) / here if x else 0)) < 1e-12
        if lam == 0:
            assert abs(up - (x0 - x) / 0.4) < 1e-12 and down == 0


def test_generator_never_asks_below_zero():
    x = torch.tensor([[0, 3], [2, 0]])
    process = un.Thinning((2,), immigration=0.7)
    asked = []

    def phi(y):
        asked.append(int(y.min()))
        return y.double().square().sum(-1)

    generator, c = process.generator(0.3), 1 / 0.7
    exact = (c * x * ((x - 1) ** 2 - x**2) + c * 0.7 * ((x + 1) ** 2 - x**2)).sum(-1)
    assert torch.allclose(generator.act(phi, x), exact.double(), atol=1e-12)
    generator.adjoint(lambda y: phi(y).neg().exp(), x)
    generator.reversed(phi).local(x)
    assert min(asked) == 0


def test_adjoint_is_the_forward_equation():
    for process in (DEATH, ARRIVING):
        x0, x, h = column(4, 4, 4, 4), column(0, 2, 4, 7), 1e-5
        q = [process.marginal(x0, t).log_prob(x).exp() for t in (0.4 - h, 0.4 + h)]

        def at(y, process=process):
            return process.marginal(torch.full_like(y, 4), 0.4).log_prob(y).exp()

        assert torch.allclose(process.generator(0.4).adjoint(at, x), (q[1] - q[0]) / (2 * h), atol=1e-8)


def test_immigration_keeps_its_poisson_law():
    counts = torch.arange(60)
    law = ARRIVING.prior(60).log_prob(counts.unsqueeze(-1)).reshape(1, 1, 60)
    moved = ARRIVING.push(law, 0.2, 0.6)[..., :40]
    assert torch.allclose(moved.exp(), law[..., :40].exp(), atol=1e-14)


def test_support_holds_all_the_mass():
    x0 = torch.tensor([[3, 0], [1, 5]])
    for process in (un.Thinning((2,)), un.Thinning((2,), immigration=2.0)):
        nodes, log_weights = process.support(x0, 0.6)
        assert nodes.shape == (*log_weights.shape, 2)
        assert torch.allclose(log_weights.exp().sum(0), torch.ones(2, dtype=torch.float64), atol=1e-14)
        assert torch.allclose(process.marginal(x0, 0.6).log_prob(nodes[7]).exp(), log_weights[7].exp())


# predictions -----------------------------------------------------------------------------------------------------------


def test_poisson_data_has_constant_intensity():
    oracle = un.oracles.poisson_mixture(DEATH, torch.ones(1), torch.tensor([[2.5]]))
    for t in (0.0, 0.3, 1.0):
        assert torch.allclose(oracle(torch.arange(20).unsqueeze(-1), t).value, torch.tensor(log(2.5)).double(), atol=1e-7)


def test_remaining_is_the_expected_rest_per_signal_lost():
    """E[x_0 - x_t | x_t]/(1 - alpha) by summing over x_0, for Poisson and binomial mixtures."""
    probs = torch.tensor([[0.15], [0.5], [0.8]], dtype=torch.float64)
    poissons = un.oracles.poisson_mixture(DEATH, WEIGHTS, RATES)
    for oracle in (poissons, un.oracles.binomial_mixture(DEATH, WEIGHTS, 9, probs)):
        x0 = torch.arange(80).unsqueeze(-1)
        for x, t in pairs((0, 2, 5), (0.1, 0.6, 0.99)):
            weight = (oracle.log_prob(x0) + DEATH.marginal(x0, t).log_prob(torch.full_like(x0, x))).exp()
            rest = (weight * (x0 - x).squeeze(-1)).sum() / weight.sum() / t
            assert abs(oracle(column(x), t).value.exp().item() - rest.item()) < 1e-11 * max(1, rest.item())


def test_intensities_of_several_coordinates_reverse_the_generator():
    process = un.Thinning((2,), un.schedules.Cosine(), immigration=0.7)
    rates = torch.tensor([[0.4, 2.0], [1.5, 0.3], [4.0, 0.0]], dtype=torch.float64)
    oracle = un.oracles.poisson_mixture(process, WEIGHTS, rates)
    x = un.Finite(4, (2,)).states()
    for t in (1e-4, 0.4, 1 - 1e-4):
        exact = process.generator(t).reversed(lambda y, t=t: oracle.log_marginal(y, t)).local(x).rates
        for kind in (un.Intensity, un.CountRatio):
            ours = oracle.predicting(kind)(x, t).local().rates
            assert torch.allclose(ours, exact, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(("name", "kind"), EACH)
@pytest.mark.parametrize("other", [un.Remaining, un.Intensity, un.CountRatio])
def test_round_trips(name, kind, other):
    process = process_of(name)
    oracle = un.oracles.poisson_mixture(process, WEIGHTS, RATES, kind)
    prediction = oracle(torch.arange(7).unsqueeze(-1), 0.6)
    if other is un.Remaining and name == "arriving":
        with pytest.raises(un.InexactConversion, match="does not determine Remaining: with immigration"):
            prediction.to(other)
        return
    back = prediction.to(other).to(kind)
    assert torch.allclose(back.local().rates, prediction.local().rates, rtol=1e-10, atol=0)
    read = ... if kind is un.Remaining else (slice(1, None), slice(None), slice(0 if name == "arriving" else 1, 2))
    assert torch.allclose(back.value[read], prediction.value[read], rtol=0, atol=1e-10)


def test_conversions_that_are_refused():
    x = column(1, 2)
    ratio = un.CountRatio(torch.full((2, 1, 2), -9.0, dtype=torch.float64), ARRIVING, x, 0.6)
    with pytest.raises(un.InexactConversion, match="no law of x_0"):
        ratio.to(un.Intensity)
    with pytest.raises(un.InexactConversion, match="alpha_t = 0"):
        un.CountRatio(torch.zeros(2, 1, 2), ARRIVING, x, 1.0).to(un.Intensity)
    with pytest.raises(un.InexactConversion, match="one lives on counts"):
        ratio.to(un.Posterior)
    with pytest.raises(un.InexactConversion, match="predict Intensity or CountRatio"):
        un.Remaining(torch.zeros(2, 1), ARRIVING, x, 0.6)


@pytest.mark.parametrize(("name", "kind"), EACH)
def test_steps_follow_the_rates(name, kind):
    """Over a short step the kernel moves up and down with probability (t - s) times the rates, to second order."""
    process, t = process_of(name), 0.5
    oracle = un.oracles.poisson_mixture(process, WEIGHTS, RATES, kind)
    x = torch.arange(6).unsqueeze(-1)
    wrong = kind(
        oracle(x, t).value + 0.3 * torch.sin(3.0 * torch.arange(6)).reshape(6, *[1] * (2 if kind.entries == 2 else 1)),
        process,
        x,
        t,
    )
    down, up = wrong.local().rates.unbind(-1)
    gaps = []
    for h in (1e-3, 1e-4):
        law = wrong.step(t - h)
        ours = law.log_terms(torch.cat([x - 1, x + 1], -1).unsqueeze(1)).exp()
        gaps.append((ours / h - torch.cat([down, up], -1).unsqueeze(1)).abs().max().item())
    assert gaps[1] < 0.2 * gaps[0]


# the bound -------------------------------------------------------------------------------------------------------------


class Constant(torch.nn.Module):
    """A network that says the same everywhere."""

    def __init__(self, entries: int, value: float = 0.7):
        super().__init__()
        self.value, self.entries = torch.nn.Parameter(torch.tensor(value, dtype=torch.float64)), entries

    def forward(self, x, t):
        shape = x.shape if self.entries == 1 else (*x.shape, 2)
        return self.value.expand(shape)


@pytest.mark.parametrize("schedule", [un.schedules.Linear(), un.schedules.Cosine()], ids=str)
@pytest.mark.parametrize(("lam", "kind"), [(0.0, un.Remaining), (0.0, un.Intensity), (1.3, un.Intensity)])
def test_the_bound_of_a_bounded_network_is_finite_from_time_zero(schedule, lam, kind):
    """Cut-offs 1e-6 and 0 differ by no more than t log(1/t); an unscaled m/t would add its m for every factor e."""
    denoiser = un.Denoiser(Constant(kind.entries), un.Thinning((1,), schedule, lam), kind)
    x = column(0, 3)
    totals = [
        un.bound(denoiser, x, exact=True, times=un.Quadrature(128), cutoff=eps, decoder=decoders.CountDecoder()).total
        for eps in (0.0, 1e-8, 1e-6)
    ]
    assert bool(totals[0].isfinite().all())
    for other in totals[1:]:
        assert torch.allclose(totals[0], other, rtol=0, atol=1e-4)


def test_unscaled_expectations_diverge():
    """What `Remaining` avoids: a constant m in place of E[x_0 - x_t | x_t] costs m/t, whose integral diverges."""
    times = torch.tensor([1e-2, 1e-4, 1e-6], dtype=torch.float64)
    process, x = DEATH, column(2, 2, 2)
    scaled = un.Remaining(torch.full((3, 1), 0.7, dtype=torch.float64), process, x, times)
    unscaled = un.Remaining(torch.full((3, 1), 0.7, dtype=torch.float64) - times.log().unsqueeze(-1), process, x, times)
    assert rate(scaled, process, x).max() < 2.1
    assert torch.allclose(rate(unscaled, process, x) * times, torch.tensor(exp(0.7)).double(), atol=1e-6)


@pytest.mark.parametrize(("name", "kind"), EACH)
def test_gradients(name, kind):
    """Of the rate, the step's divergence and the decoder, with respect to the network's output, by finite differences."""
    process, t = process_of(name), torch.tensor([0.3, 0.6, 0.9], dtype=torch.float64)
    x0, x_t = column(4, 3, 6), column(2, 0, 1)
    value = un.NoiseSource(0, 3).normal((1,) if kind.entries == 1 else (1, 2)).requires_grad_()

    def terms(value):
        prediction = kind(value, process, x_t, t)
        step = process.posterior(x_t, x0, t - 0.2, t).kl(prediction.step(t - 0.2))
        return (
            rate(prediction, process, x0),
            rate(prediction, process, x0, fast=False),
            step,
            prediction.step(None).log_prob(x0),
        )

    assert torch.autograd.gradcheck(terms, (value,), atol=1e-6, rtol=1e-5)
    for term in terms(value):
        assert bool(torch.autograd.grad(term.sum(), value)[0].isfinite().all())


def test_training_step_on_a_product():
    process = un.Product(n=un.Thinning((3,), immigration=0.5), c=un.Masking(4, (2,)), k=un.Thinning(()))

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(6, 6 + 8 + 1)

        def forward(self, x, t):
            out = self.layer(torch.cat([x["n"].float(), x["c"].float(), x["k"].float().unsqueeze(-1)], -1))
            return {"n": out[:, :6].reshape(-1, 3, 2), "c": out[:, 6:14].reshape(-1, 2, 4), "k": out[:, 14]}

    denoiser = un.Denoiser(Network(), process)
    assert denoiser.kinds == {"n": un.Intensity, "c": un.Posterior, "k": un.Remaining}
    x = {"n": torch.randint(5, (8, 3)), "c": torch.randint(4, (8, 2)), "k": torch.randint(9, (8,))}
    loss = un.Objective(denoiser)(x, un.NoiseSource(0, 8)).loss.mean()
    loss.backward()
    assert all(bool(p.grad.isfinite().all()) for p in denoiser.parameters()) and loss.isfinite()
    chain = un.Denoiser(Network(), un.Chain(process, 5))
    assert un.bound(chain, x, seed=0).total.isfinite().all()


def test_the_exact_mixture_beats_any_constant():
    oracle = un.oracles.poisson_mixture(DEATH, WEIGHTS, RATES)
    x = torch.arange(40).unsqueeze(-1)
    law = oracle.log_prob(x).exp()
    entropy = -(law * law.log()).sum().item()
    best = (law * un.bound(oracle, x, exact=True).total).sum().item()
    assert abs(best - entropy) < 1e-9
    mean = (law * x.squeeze(-1)).sum().item()
    constant = un.bound(un.Denoiser(Constant(1, log(mean)), DEATH), x, exact=True).total
    assert (law * constant).sum().item() > entropy + 0.1  # what a Poisson model misses of a mixture
    poisson_nll = mean - x.squeeze(-1) * log(mean) + torch.lgamma(x.squeeze(-1) + 1.0)
    assert torch.allclose(constant, poisson_nll.double(), atol=1e-5)  # constant remaining is a Poisson model, exactly


# mutants ---------------------------------------------------------------------------------------------------------------


def failures(subject, check, quantity):
    rows = [row for row in check(subject) if quantity in row.quantity]
    assert rows, f"no row of {check.__name__} speaks of {quantity!r}"
    return [row for row in rows if not row.ok]


def wrong_bridge(patch):
    """Units come back with probability (alpha_s - alpha_t)/alpha_s in place of (alpha_s - alpha_t)/(1 - alpha_t)."""
    original = un.Thinning.posterior

    def posterior(self, x_t, x0, s, t):
        law = original(self, x_t, x0, s, t)
        gone = self.survival(x_t, s, t)[1]
        return Thinned(law.base, law.n, gone, 1 - gone)

    patch.setattr(un.Thinning, "posterior", posterior)


def missing_factor(patch):
    """R0(up) without the x + 1 units that may die from there."""
    patch.setattr(un.CountRatio, "log_means", lambda self: tuple(self.value.double().unbind(-1)))


def missing_prior(patch):
    patch.setattr(un.Terms, "total", property(lambda self: self.diffusion + self.reconstruction))


def unscaled_remaining(patch):
    """E[x_0 - x_t | x_t] read as it is, with the rate h of pure death: what the scaling by 1 - alpha is for."""
    original = un.Thinning.log_speed
    patch.setattr(
        un.Thinning,
        "log_speed",
        lambda self, x, t: original(self, x, t) - self.coefficient(self.schedule.beta(self.times(t, x)), x).log(),
    )


def dead_immigrants(patch):
    """Arrivals at rate lam c counted as lam: the wrong clock."""
    original = un.Thinning._noised

    def noised(self, x, keep, lose):
        law = original(self, x, keep, lose)
        return law if law.mean is None else Thinned(law.base, law.n, keep, lose, self.immigration * lose * keep)

    patch.setattr(un.Thinning, "_noised", noised)


MUTANTS = [
    (wrong_bridge, "death", kernel_checks, "posterior = Bayes"),
    (missing_factor, "arriving", kernel_checks, "reverse rates"),
    (missing_factor, "death", identity_checks, "bound(x)"),
    (missing_prior, "weak", identity_checks, "bound(x)"),
    (unscaled_remaining, "death", identity_checks, "bound(x)"),
    (dead_immigrants, "arriving", kernel_checks, "forward equation"),
    (dead_immigrants, "arriving", kernel_checks, "composition"),
]


@pytest.mark.parametrize(("mutant", "name", "check", "quantity"), MUTANTS, ids=[f"{m[0].__name__}-{m[3]}" for m in MUTANTS])
def test_mutant_is_caught(mutant, name, check, quantity, monkeypatch):
    weak = un.Thinning((1,), un.schedules.LinearBeta(0.1, 4.0), immigration=0.6)  # alpha_1 = 0.36
    subject = count_subject(weak if name == "weak" else process_of(name), name)
    assert not failures(subject, check, quantity)
    mutant(monkeypatch)
    assert failures(subject, check, quantity)


# errors ----------------------------------------------------------------------------------------------------------------

ERRORS = [
    (lambda: DEATH.marginal(column(-1), 0.5), ValueError, r"x0\[0, 0\] = -1 is no count: use 0, 1, 2, ..."),
    (lambda: DEATH.marginal(torch.ones(1, 1), 0.5), TypeError, r"x0 has dtype torch.float32, .* pass x0.round\(\).long\(\)"),
    (lambda: DEATH.marginal(torch.ones(1, 2, dtype=torch.int64), 0.5), ValueError, r"shape \(1, 2\); expected \(batch, 1\)"),
    (lambda: DEATH.transition(column(1), 0.5, 0.5), ValueError, "s < t"),
    (
        lambda: un.Thinning((1,), un.schedules.LinearBeta()),
        ValueError,
        "the prior without immigration is 0.*immigration > 0",
    ),
    (lambda: un.Thinning((1,), un.schedules.VE(), 1.0), ValueError, "counts would hardly be noised"),
    (lambda: un.Thinning((1,), immigration=-1.0), ValueError, "immigration = -1.0: .* pass 0 or a positive number"),
    (lambda: un.Thinning((1,), immigration=inf), ValueError, "immigration = inf"),
    (lambda: un.Thinning((3,), un.schedules.PerCoordinate([un.schedules.Linear()] * 2)), ValueError, "does not fit"),
    (lambda: un.Thinning((8,)).support(torch.full((1, 8), 9), 0.5), ValueError, r"10\^8 nodes, more than .*: draw instead"),
    (lambda: ARRIVING.inverse(torch.ones(1, 1, 3), 0.1, 0.5), ValueError, "spreads a law over all counts.*immigration = 0"),
    (lambda: DEATH.inverse(torch.ones(1, 1, 3), 0.1, 1.0), ValueError, "the kernel has no inverse"),
    (lambda: un.Denoiser(Constant(1), ARRIVING, un.Remaining), TypeError, "Remaining does not fit.*Intensity or CountRatio"),
    (
        lambda: un.Denoiser(Constant(1), DEATH, un.Posterior),
        TypeError,
        "Posterior does not fit.*choose Remaining, Intensity",
    ),
    (lambda: un.Denoiser(Constant(2), DEATH)(column(1), 0.5), ValueError, r"shape \(1, 1, 2\); expected \(1, 1\)"),
    (lambda: un.Denoiser(Constant(1), ARRIVING)(column(1), 0.5), ValueError, r"shape \(1, 1\); expected \(1, 1, 2\)"),
    (lambda: un.CountRatio(torch.zeros(1, 1, 2), DEATH, column(1), 1.0).step(0.5), ValueError, "predict Remaining"),
    (lambda: un.oracles.poisson_mixture(DEATH, WEIGHTS, -RATES), ValueError, "rates are finite and not negative"),
    (lambda: un.oracles.poisson_mixture(DEATH, WEIGHTS, RATES[:, 0]), ValueError, r"expected \(components, 1\)"),
    (lambda: un.oracles.poisson_mixture(un.Masking(3, (1,)), WEIGHTS, RATES), TypeError, "does not noise counts"),
    (lambda: un.oracles.binomial_mixture(ARRIVING, WEIGHTS, 9, RATES / 5), ValueError, "pure death only"),
    (lambda: un.oracles.binomial_mixture(DEATH, WEIGHTS, 9, RATES), ValueError, r"keep them in \[0, 1\]"),
    (lambda: un.oracles.binomial_mixture(DEATH, WEIGHTS, -2, RATES / 5), ValueError, "whole numbers"),
    (
        lambda: un.bound(un.Denoiser(Constant(1), un.Chain(DEATH, [0.0, 0.5])), column(3)),
        ValueError,
        r"is infinite.*\(counts: 0\)",
    ),
    (
        lambda: un.bound(
            un.oracles.table(un.Uniform(3), torch.ones(3) / 3),
            torch.tensor([1]),
            decoder=decoders.CountDecoder(),
            cutoff=0.1,
        ),
        TypeError,
        "does not fit Uniform",
    ),
    (lambda: Thinned(column(0), mean=torch.tensor(1e300)).nodes(), ValueError, "the network's output is too large"),
]


@pytest.mark.parametrize(("act", "error", "message"), ERRORS, ids=[e[2][:40] for e in ERRORS])
def test_errors_name_value_and_remedy(act, error, message):
    with pytest.raises(error, match=message):
        act()


def test_a_learned_schedule_needs_exact_expectations():
    learned = un.Thinning((1,), un.schedules.Learned(), immigration=1.0)
    with pytest.raises(ValueError, match="categories or counts has no unbiased gradient"):
        un.Objective(un.Denoiser(Constant(2), learned))
