"""exp(g R) against references of more digits: decimal uniformization, closed forms, aggregated chains."""

from decimal import Decimal, localcontext
from math import expm1, log

import pytest
import torch

from unnoise import rate_matrices
from unnoise.generators import semigroup
from unnoise.generators.semigroup import Eigen, PowerTable, Series, checked_rates, stationary

F64 = torch.float64
NAN, INF = float("nan"), float("inf")


def closed(off):
    off = off.double().clone().fill_diagonal_(0.0)
    return off - torch.diag(off.sum(0))


def random_rates(size, seed=0):
    return closed(torch.rand(size, size, dtype=F64, generator=torch.Generator().manual_seed(seed)))


def kernel(semi, g, size, transposed=False):
    """exp(g R), or its transpose, as a matrix."""
    eye = torch.eye(size, dtype=F64)
    return semi.apply_to(eye, torch.full((size,), g, dtype=F64), transposed).T


def relative(ours, exact, least=0.0):
    keep = exact > least
    return float(((ours - exact).abs() / exact)[keep].max())


def make(method, base, longest=690.0):
    if method == "series":
        return Series(base.to_sparse(), longest)
    return PowerTable(base, longest) if method == "table" else Eigen(base)


# -- against the matrix exponential -----------------------------------------------------------------------------------


@pytest.mark.parametrize("g", [0.0, 1e-9, 1e-3, 0.1, 1.0, 7.3, 40.0])
@pytest.mark.parametrize("method", ["table", "series", "eigen"])
def test_matrix_exponential(method, g):
    base = rate_matrices.discretised_gaussian(6, 1.5, torch.tensor([0.1, 0.2, 0.3, 0.2, 0.15, 0.05]))
    semi = make(method, base, 100.0)
    exact = torch.linalg.matrix_exp(g * base)
    ours = kernel(semi, g, 6)
    torch.testing.assert_close(ours, exact, rtol=0, atol=2e-13)  # what matrix_exp itself loses by squaring
    torch.testing.assert_close(kernel(semi, g, 6, transposed=True), ours.T, rtol=0, atol=1e-15)


@pytest.mark.parametrize("g", [1e-6, 0.3, 5.0])
@pytest.mark.parametrize("method", ["table", "series"])
def test_rates_without_detailed_balance(method, g):
    base = random_rates(7)
    exact = torch.linalg.matrix_exp(g * base)
    torch.testing.assert_close(kernel(make(method, base, 10.0), g, 7), exact, rtol=0, atol=2e-14)


@pytest.mark.parametrize("powers", [True, False])
@pytest.mark.parametrize("method", ["table", "series", "eigen"])
def test_matrices_are_the_action_on_unit_vectors(method, powers, monkeypatch):
    """For clocks of any shape, with the first powers at hand and without: every entry, small ones too, and their slopes."""
    monkeypatch.setattr(semigroup, "MOST_POWERS", 512 if powers else 4)
    base = rate_matrices.discretised_gaussian(6, 1.5, torch.tensor([0.1, 0.2, 0.3, 0.2, 0.15, 0.05]))
    semi = make(method, base, 100.0)
    g = torch.tensor([[0.0, 1e-9, 1e-3], [0.1, 1.0, 40.0]], dtype=F64, requires_grad=True)
    ours = semi.matrix(g)
    assert ours.shape == (2, 3, 6, 6)
    for place in [(i, j) for i in range(2) for j in range(3)]:
        one = kernel(semi, g[place].item(), 6)
        torch.testing.assert_close(ours[place], one, rtol=1e-12 if method != "eigen" else 0, atol=1e-15)
    weights = torch.arange(36.0, dtype=F64).reshape(6, 6)
    (slope,) = torch.autograd.grad((ours * weights).sum(), g)
    exact = (base @ torch.linalg.matrix_exp(g.detach()[..., None, None] * base) * weights).sum((-2, -1))
    torch.testing.assert_close(slope, exact, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("method", ["table", "series", "eigen"])
def test_each_vector_has_a_clock_of_its_own(method):
    base = rate_matrices.banded(5, 2)
    semi = make(method, base, 100.0)
    v = torch.rand(4, 3, 5, dtype=F64)
    g = torch.tensor([0.0, 1e-4, 0.7, 30.0], dtype=F64).unsqueeze(1)
    ours = semi.apply_to(v, g)
    for i in range(4):
        exact = v[i] @ torch.linalg.matrix_exp(g[i] * base).T
        torch.testing.assert_close(ours[i], exact, rtol=0, atol=1e-13)


def test_gradient_in_the_clock():
    """d/dg exp(g R) v = R exp(g R) v, through the digits of g."""
    base, v = rate_matrices.banded(4, 2), torch.rand(4, dtype=F64)
    for method in ("table", "series", "eigen"):
        for clock in (0.0, 1e-7, 0.83, 4.0):
            g = torch.tensor(clock, dtype=F64, requires_grad=True)
            out = make(method, base, 5.0).apply_to(v, g)
            weights = torch.arange(4.0, dtype=F64)
            slope = torch.autograd.grad((out * weights).sum(), g)[0]
            exact = weights @ base @ torch.linalg.matrix_exp(clock * base) @ v
            assert float(slope) == pytest.approx(float(exact), rel=1e-10)


# -- small entries --------------------------------------------------------------------------------------------------------


def exact_binomial(most, g):
    """Pure death at rates x: Binomial(x, e^-g), in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        alpha = (-Decimal(g)).exp()
        column, choose = [], Decimal(1)
        for k in range(most + 1):
            column.append(float(choose * alpha**k * (1 - alpha) ** (most - k)))
            choose = choose * (most - k) / (k + 1)
    return torch.tensor(column, dtype=F64)


@pytest.mark.parametrize("mean", [0.5, 0.77, 3.0, 41.3, 1000.0])
def test_pure_death_has_every_digit(mean):
    """From 100 units: entries down to 1e-200 and below, relative error 1e-10 (1e-12 as it is)."""
    most = 100
    x = torch.arange(most + 1, dtype=F64)
    base = closed(torch.diag(x[1:], 1))
    g = mean / most
    ours, exact = kernel(PowerTable(base, 690.0), g, most + 1)[:, -1], exact_binomial(most, g)
    assert mean > 1 or float(exact.min()) < 1e-200
    assert relative(ours, exact, 1e-290) < 1e-10
    assert bool((ours[exact == 0] == 0).all())


def decimal_neighbours(size, step, g):
    """The first column of exp(g R), steps of one at rate `step` up or down, by uniformization in 60 digits."""
    with localcontext() as context:
        context.prec = 60
        mean = 2 * Decimal(step) * Decimal(g)
        term = [Decimal(1)] + [Decimal(0)] * (size - 1)
        weight, total = (-mean).exp(), [Decimal(0)] * size
        for n in range(size + 60 + 4 * int(mean)):
            total = [a + weight * b for a, b in zip(total, term, strict=True)]
            # both ends stay with probability 1/2
            left, right = [term[0], *term[:-1]], [*term[1:], term[-1]]
            term = [(a + b) / 2 for a, b in zip(left, right, strict=True)]
            weight = weight * mean / (n + 1)
        assert abs(sum(total) - 1) < Decimal("1e-30")
    return torch.tensor([float(v) for v in total], dtype=F64)


@pytest.mark.parametrize("mean", [0.5, 0.9, 6.0, 90.0])
def test_nearest_neighbours_have_every_digit(mean):
    size, step = 110, 3.0
    base = closed(step * (torch.diag(torch.ones(size - 1), 1) + torch.diag(torch.ones(size - 1), -1)))
    g = mean / (2 * step)
    exact = decimal_neighbours(size, step, g)
    ours = kernel(PowerTable(base, 690.0), g, size)[:, 0]
    assert mean > 1 or float(exact.min()) < 1e-200
    assert relative(ours, exact, 1e-290) < 1e-10
    # a series of the terms themselves is right to 1e-19 of the mass, eigenvectors to 1e-15
    assert float((kernel(Series(base.to_sparse(), g), g, size)[:, 0] - exact).abs().max()) < 1e-15
    assert relative(kernel(Series(base.to_sparse(), g), g, size)[:, 0], exact, 1e-15) < 1e-10
    assert float((kernel(Eigen(base), g, size)[:, 0] - exact).abs().max()) < 1e-13


def test_shorter_clocks_lose_entries_below_1e50_only():
    most, g = 80, 1e-3 / 80
    x = torch.arange(most + 1, dtype=F64)
    ours = kernel(PowerTable(closed(torch.diag(x[1:], 1)), 690.0), g, most + 1)[:, -1]
    exact = exact_binomial(most, g)
    assert relative(ours, exact, 1e-50) < 1e-10
    assert float((ours - exact).abs().max()) < 1e-15
    assert bool((ours <= exact * (1 + 1e-12)).all())


def test_eigenvectors_over_a_short_step():
    """Below L g = 1/2 reversible rates take the series: entries of 1e-30 have their digits."""
    size = 20
    base = closed(torch.diag(torch.ones(size - 1), 1) + torch.diag(torch.ones(size - 1), -1))
    exact = decimal_neighbours(size, 1.0, 1e-3)
    ours = kernel(Eigen(base), 1e-3, size)[:, 0]
    assert relative(ours, exact, 1e-60) < 1e-10


# -- stiff and long -------------------------------------------------------------------------------------------------------

SIZE, HALF = 256, 128
TO_B, TO_A = 2e-6, 1e-6  # the slow rates between two blocks


def log_uniform(*shape, low=-6.0, high=6.0, seed=0):
    u = torch.rand(*shape, dtype=F64, generator=torch.Generator().manual_seed(seed))
    return 10 ** (low + (high - low) * u)


def blocks():
    """Rates of 1 to 1e6 within each half, in no balance; every state leaves its half at the same slow rate, so that the
    half is a chain of two states."""
    off = torch.zeros(SIZE, SIZE, dtype=F64)
    off[:HALF, :HALF], off[HALF:, HALF:] = log_uniform(2, HALF, HALF, low=0.0)
    off[HALF:, :HALF], off[:HALF, HALF:] = TO_B / HALF, TO_A / HALF
    return closed(off)


STIFF = {
    "dense": lambda: closed(log_uniform(SIZE, SIZE)),
    "blocks": blocks,
    "birth and death": lambda: closed(sum(torch.diag(v, d) for v, d in zip(log_uniform(2, SIZE - 1), (-1, 1), strict=True))),
}
CLOCKS = [(1e-9, 3e-9), (1e-6, 2.5e-4), (0.02, 1.7), (90.0, 600.0)]


class NotSummedToOne(PowerTable):
    """The mutant: powers that are squared and squared again, as they come."""

    @staticmethod
    def _columns(kernel):
        return kernel


@pytest.mark.parametrize("name", STIFF)
def test_stiff_rates_over_any_clock(name):
    """Rates from 1e-6 to 1e6, clocks from 1e-9 to 690: laws to 1e-12, and Q(g1) Q(g2) = Q(g1 + g2) to 1e-10."""
    base = STIFF[name]()
    semi = PowerTable(base, 690.0)
    for first, second in CLOCKS:
        a, b, both = (kernel(semi, g, SIZE) for g in (first, second, first + second))
        for q in (a, b, both):
            assert bool((q >= 0).all())
            assert float((q.sum(0) - 1).abs().max()) < 1e-12
        assert float((a @ b - both).abs().max()) < 1e-10
    mutant = kernel(NotSummedToOne(base, 690.0), 690.0, SIZE)
    assert float((mutant.sum(0) - 1).abs().max()) > 1e-6


@pytest.mark.parametrize("g", [1e-9, 1e-3, 1.0, 690.0])
def test_the_slow_mode_relaxes_at_its_own_rate(g):
    """A billion times slower than the rest: 2e-6/3e-6 (1 - exp(-3e-6 g)) of the mass is in the other half."""
    base = blocks()
    exact = TO_B / (TO_A + TO_B) * -expm1(-(TO_A + TO_B) * g)
    crossed = kernel(PowerTable(base, 690.0), g, SIZE)[HALF:, :HALF].sum(0)
    assert float((crossed / exact - 1).abs().max()) < 1e-10
    if g > 100:
        mutant = kernel(NotSummedToOne(base, 690.0), g, SIZE)[HALF:, :HALF].sum(0)
        assert float((mutant / exact - 1).abs().max()) > 1e-8


def test_a_clock_that_relaxes_the_slow_mode():
    """The same chain over 1e7: the slow mode is gone, and what is left is the law that state reduction finds."""
    base = blocks()
    law = stationary(base)
    assert float(law[HALF:].sum()) == pytest.approx(TO_B / (TO_A + TO_B), rel=1e-12)
    q = kernel(PowerTable(base, 1e8), 2e7, SIZE)
    torch.testing.assert_close(q, law.unsqueeze(1).expand_as(q), rtol=1e-10, atol=0)


def test_beyond_its_reach_a_clock_is_cut():
    semi = PowerTable(random_rates(4), 2.0)
    far = kernel(semi, 1e9, 4)
    assert bool(far.isfinite().all()) and float((far.sum(0) - 1).abs().max()) < 1e-12
    assert semi.step * 2 ** len(semi.powers) >= 2.0
    assert len(PowerTable(random_rates(4), 1e300).powers) <= semigroup.LEVELS
    torch.testing.assert_close(
        kernel(PowerTable(random_rates(4), 1e300), 1e300, 4), kernel(PowerTable(random_rates(4), 690.0), 690.0, 4)
    )


@pytest.mark.parametrize("size", [24, 32, 48, 128])
def test_eigenvectors_over_a_long_clock_lose_no_mass(size):
    """The least eigenvalue is 0, not 1e-13: over a clock of 690 that would be 1e-10 of the mass."""
    base = rate_matrices.nearest_neighbour(size)
    semi, exact = Eigen(base), PowerTable(base, 690.0)
    for g in (3.0, 690.0):
        q = kernel(semi, g, size)
        assert float((q.sum(0) - 1).abs().max()) < 1e-12
        torch.testing.assert_close(q, kernel(exact, g, size), rtol=0, atol=1e-12)


def test_a_long_series_sums_to_one():
    base = rate_matrices.nearest_neighbour(6)
    g = 15_000 / float(-base.diagonal().min())
    q = kernel(Series(base.to_sparse(), g), g, 6)
    assert float((q.sum(0) - 1).abs().max()) < 1e-12
    torch.testing.assert_close(q, kernel(PowerTable(base, 690.0), g, 6), rtol=1e-12, atol=0)


# -- what is refused ------------------------------------------------------------------------------------------------------

GOOD = closed(torch.tensor([[0.0, 2.0, 0.5], [1.0, 0.0, 0.3], [0.0, 0.7, 0.0]], dtype=F64))


def changed(y, x, value):
    bad = GOOD.clone()
    bad[y, x] = value
    return bad


WRONG = {
    "negative": (changed(0, 1, -2.0), r"the rate 1 -> 0, entry \[0, 1\], is -2: rates are finite and not negative"),
    "NaN": (changed(2, 0, NAN), r"the rate 0 -> 2, entry \[2, 0\], is nan"),
    "infinite": (changed(1, 2, INF), r"the rate 2 -> 1, entry \[1, 2\], is inf"),
    "diagonal": (changed(1, 1, -2.0), r"column 1 sums to 0\.7, not 0: entry \[1, 1\] must be minus the exit rate 2\.7$"),
    "diagonal above 0": (changed(0, 0, 1.0), r"column 0 sums to 2, not 0: entry \[0, 0\].*exit rate 1$"),
    "transposed": (
        GOOD.T,
        r"column 0 sums to 1\.5, not 0.*rows do sum to 0, so transpose it \(entry \[y, x\] is the rate x",
    ),
    "zero": (torch.zeros(3, 3), r"every rate is 0: nothing would be noised"),
    "not square": (torch.zeros(2, 3), r"shape \(2, 3\): pass a square one, entry \[y, x\] the rate x -> y"),
    "a vector": (torch.zeros(3), r"shape \(3,\): pass a square one"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_matrix_is_named_by_its_entry(name):
    bad, message = WRONG[name]
    with pytest.raises(ValueError, match=f"(?s){message}"):
        checked_rates(bad)


def test_what_is_accepted():
    torch.testing.assert_close(checked_rates(GOOD), GOOD, rtol=0, atol=1e-15)
    off = GOOD - torch.diag(GOOD.diagonal())
    torch.testing.assert_close(checked_rates(off), GOOD, rtol=0, atol=1e-15)  # the diagonal may be left out
    torch.testing.assert_close(checked_rates(off.to_sparse()), GOOD, rtol=0, atol=1e-15)
    single = closed(log_uniform(50, 50, low=-1, high=1)).float()  # whose columns sum to 1e-7 of their rates
    ours = checked_rates(single)
    assert ours.dtype == F64 and float(ours.sum(0).abs().max()) < 1e-12
    absorbing = torch.tensor([[0.0, 1.0], [0.0, 0.0]])
    assert checked_rates(absorbing).tolist() == [[0, 1], [0, -1]]


def test_eigenvectors_of_rates_without_detailed_balance_are_refused():
    cycle = torch.eye(4, dtype=F64).roll(1, 0) + 0.1 * (torch.eye(4, dtype=F64).roll(-1, 0))
    with pytest.raises(
        ValueError, match=r"not reversible: the flow (\d) -> (\d) is 0\.\d+ and back 0\.\d+; .*method='uniformization'"
    ) as e:
        Eigen(closed(cycle))
    words = str(e.value).split()
    x, y = int(words[4]), int(words[6])
    assert (y - x) % 4 in (1, 3)  # a pair of the cycle
    with pytest.raises(ValueError, match=r"state 1 leads to no state before it: the rate matrix is not irreducible"):
        Eigen(closed(torch.tensor([[0.0, 0.0], [1.0, 0.0]])))


def test_a_sparse_series_that_would_never_end_is_refused():
    base = (100 * rate_matrices.nearest_neighbour(5)).to_sparse()
    with pytest.raises(ValueError, match=r"over a clock of 690 take a series of .* terms, more than 20000: use a schedule"):
        Series(base, 690.0)
    Series(base, 10.0)


# -- stationary laws ------------------------------------------------------------------------------------------------------


def test_stationary_law_of_birth_and_death():
    """pi(x + 1)/pi(x) = birth(x)/death(x + 1): a law that spans 1e-150 to 1, every digit right."""
    births, deaths = log_uniform(2, 59, low=-3, high=3)
    births[:30] *= 1e4
    law = stationary(closed(torch.diag(births, -1) + torch.diag(deaths, 1)))
    log_exact = torch.cat([torch.zeros(1, dtype=F64), (births.log() - deaths.log()).cumsum(0)]).log_softmax(0)
    assert float(log_exact.min()) < log(1e-100)
    torch.testing.assert_close(law.log(), log_exact, rtol=1e-12, atol=1e-12)


def test_stationary_law_of_any_rates():
    base = closed(log_uniform(40, 40))
    law = stationary(base)
    assert float(law.sum()) == pytest.approx(1, abs=1e-14) and bool((law > 0).all())
    assert float((base @ law).abs().max()) < 1e-12 * float((base.diagonal() * law).abs().max())
