"""The zig-zag process: what it leaves as it is, its turns by thinning, and its reversal against a transport solver.

Drawn laws are compared by the largest gap of distribution functions, at 2.7/sqrt(n): by chance exceeded once in a million.
"""

from math import log2

import pytest
import torch

import unnoise as un
from unnoise.oracles.flip_grid import PhaseGrid
from unnoise.verify import subject_of
from unnoise.verify.flights import resting_checks

ROWS = 50_000
WEIGHTS, MEANS, STDS = torch.tensor([0.4, 0.6]), torch.tensor([[-1.0], [1.0]]), torch.tensor([[0.4], [0.3]])
normal = torch.distributions.Normal


def gap_of(drawn, cdf):
    """The largest gap of distribution functions, in units of 1/sqrt(n)."""
    x = drawn.double().flatten().sort().values
    n, exact = len(x), cdf(x)
    steps = torch.arange(n + 1) / n
    return max(float((exact - steps[:-1]).max()), float((steps[1:] - exact).max())) * n**0.5


def data_cdf(x):
    return 0.4 * normal(-1.0, 0.4).cdf(x) + 0.6 * normal(1.0, 0.3).cdf(x)


def truth(steps=400, **options):
    return un.oracles.FlipGrid(un.ZigZag((1,), **options), WEIGHTS, MEANS, STDS, steps).ending_exactly()


def ended(process, rows=ROWS):
    """Where paths from N(0, 1) end, with how far x and v are from independent, in standard errors."""
    x0 = un.NoiseSource(5, rows).normal((1,)).double()
    end = process.flights(x0, un.NoiseSource(6, rows)).end
    together = float((end[:, 0] * end[:, 1]).mean()) / process.speed * rows**0.5
    return gap_of(end[:, 0], normal(0.0, 1.0).cdf), abs(together), float(end[:, 0].square().mean())


def square(x):
    return 0.5 * x.square().flatten(1).sum(1)


@pytest.mark.parametrize("how", ["inversion", "thinning", "fast"])
def test_it_leaves_a_standard_normal_law_as_it_is(how):
    """50,000 paths; second moments at five standard errors, once in two million by chance."""
    options = {
        "inversion": {},
        "thinning": {"potential": square, "growth": 2.5, "prior": lambda rows: un.ZigZag((1,)).prior(rows)},
        "fast": {"speed": 2.0},
    }[how]
    rows = 10_000 if how == "thinning" else ROWS
    gap, together, second = ended(un.ZigZag((1,), duration=3.0, **options), rows)
    assert gap < 2.7 and together < 5 and abs(second - 1) < 5 * (2 / rows) ** 0.5


def test_a_wrong_rate_is_seen(monkeypatch):
    process = un.ZigZag((1,), duration=3.0)
    assert all(row.ok for row in resting_checks(subject_of(process, "zig-zag")))
    process.growth = 1.5  # turns come too early
    assert ended(process, 20_000)[0] > 2.7
    monkeypatch.setattr(un.ZigZag, "slopes", lambda self, z: 1.3 * z[:, 0].double() * z[:, 1].double())
    assert not all(row.ok for row in resting_checks(subject_of(process, "zig-zag")))


def test_another_target_by_thinning():
    """U = x^2/2 + cos(2 x)/2: two humps; from anywhere the law is exp(-U) after a while."""

    def potential(x):
        return (0.5 * x.square() + 0.5 * torch.cos(2 * x)).flatten(1).sum(1)

    def prior(rows):
        raise NotImplementedError

    process = un.ZigZag((1,), duration=15.0, potential=potential, growth=3.0, prior=prior)
    end = process.flights(torch.full((5000, 1), 2.0, dtype=torch.float64), un.NoiseSource(0, 5000)).end
    y = torch.linspace(-7, 7, 4001, dtype=torch.float64)
    weight = (-potential(y.unsqueeze(1))).exp().cumsum(0)
    at = lambda x: (weight / weight[-1])[((x + 7) / 14 * 4000).round().long().clamp(0, 4000)]  # noqa: E731
    assert gap_of(end[:, 0], at) < 2.7
    with pytest.raises(ValueError, match="growth = 0.5: along a way of"):
        un.ZigZag((1,), potential=potential, growth=0.5, prior=prior).flights(
            torch.full((200, 1), 2.0, dtype=torch.float64), un.NoiseSource(0, 200)
        )


def test_the_solver_meets_the_telegraph_law_with_order_four_and_keeps_the_mass():
    process = un.Kac((1,), speed=2.0, rate=1.5)
    exact = un.oracles.KacMixture(process, WEIGHTS, MEANS, STDS, nodes=96)
    x = torch.linspace(-3, 3, 61, dtype=torch.float64)
    z = torch.cat([torch.stack([x, torch.full_like(x, v)], 1) for v in (-2.0, 2.0)]).unsqueeze(2)
    gaps = []
    for steps in (20, 40, 80):
        grid = un.oracles.FlipGrid(process, WEIGHTS, MEANS, STDS, steps)
        gaps.append(float((grid.log_marginal(z, 1.0).exp() - exact.log_marginal(z, 1.0).exp()).abs().max()))
    orders = [log2(a / b) for a, b in zip(gaps, gaps[1:], strict=False)]
    assert all(3.5 < order < 4.5 for order in orders) and gaps[-1] < 3e-8, (gaps, orders)
    places = PhaseGrid.within(process, 80, 9.0)
    table = places.forward((-0.5 * places.x.square()).exp() / (2 * torch.pi) ** 0.5) * places.gap
    assert float((table.sum((1, 2)) - 1).abs().max()) < 1e-7


X0 = torch.linspace(-1.6, 1.6, 9, dtype=torch.float64).repeat(20).unsqueeze(1)


def test_with_the_rates_of_the_solver_the_bound_of_a_path_is_the_likelihood():
    """Along every path, with an error of order two in the grid; and the law it forgets into is a prior as good."""
    gaps = []
    for steps in (150, 300, 600):
        exact = truth(steps, cap=1e6)
        gap = un.bound(exact, X0, seed=0).total + exact.log_prob(X0)
        gaps.append(float(gap.abs().mean()))
    orders = [log2(a / b) for a, b in zip(gaps, gaps[1:], strict=False)]
    assert gaps[-1] < 2e-4 and float(gap.std()) < 5e-4 and all(order > 1.5 for order in orders), (gaps, orders)
    resting = exact.predicting(process=un.ZigZag((1,), cap=1e6))
    mismatch = float((un.bound(resting, X0, seed=0).total - un.bound(exact, X0, seed=0).total).mean())
    assert abs(mismatch) < 2e-3


def test_a_few_times_of_a_path_estimate_the_same_bound():
    """At four standard errors: by chance once in 16,000."""
    exact = truth(cap=1e6, visits=4)
    x0 = torch.full((4000, 1), 0.7, dtype=torch.float64)
    found = un.bound(exact, x0, seed=0).total
    error = float(found.std()) / len(x0) ** 0.5
    assert abs(float(found.mean() + exact.log_prob(x0[:1]))) < 4 * error + 1e-3 and error < 0.05


def test_two_coordinates_together():
    process = un.ZigZag((2,), cap=1e6)
    means, stds = torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), torch.full((2, 2), 0.4)
    exact = un.oracles.FlipGrid(process, torch.ones(2), means, stds).ending_exactly()
    x0 = exact.draw(un.NoiseSource(0, 12))
    assert float((un.bound(exact, x0, seed=0).total + exact.log_prob(x0)).abs().max()) < 5e-3


@pytest.mark.parametrize("rows", [1000, pytest.param(ROWS, marks=pytest.mark.conformance)])
def test_the_reverse_from_the_prior_returns_the_data(rows):
    exact = truth(cap=30.0)
    drawn, info = un.sample(exact, rows, seed=3)
    assert drawn.shape == (rows, 1) and gap_of(drawn, data_cdf) < 2.7

    if rows == ROWS:  # runs away, and takes long

        class Unturned(un.ZigZag):
            def flow(self, z, h):
                return super().flow(z, h.abs())

        wrong = exact.predicting(process=Unturned((1,), cap=30.0))
        assert gap_of(un.sample(wrong, 300, seed=3)[0], data_cdf) > 4


def test_single_precision_follows_double():
    exact = truth(cap=1e6)
    x0 = X0[:18]
    narrow, wide = (un.bound(exact, x, seed=0).total for x in (x0.float(), x0))
    assert float((narrow - wide).abs().max()) < 1e-2


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="duration = 0"):
        un.ZigZag((1,), duration=0.0)
    with pytest.raises(ValueError, match="refresh = -1"):
        un.ZigZag((1,), refresh=-1.0)
    with pytest.raises(ValueError, match="a potential needs growth="):
        un.ZigZag((1,), potential=square)
    with pytest.raises(ValueError, match="is that of a potential"):
        un.ZigZag((1,), growth=2.0)
    with pytest.raises(TypeError, match="has no density: use the bound of its paths"):
        un.ZigZag((1,)).marginal(torch.zeros(1, 1), 0.5).log_prob(torch.zeros(1, 2, 1))
    process = un.ZigZag((1,), potential=square, growth=1.0, prior=un.ZigZag((1,)).prior)
    with pytest.raises(ValueError, match="do not move by themselves"):
        un.oracles.FlipGrid(process, WEIGHTS, MEANS, STDS)
