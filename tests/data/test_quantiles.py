"""The quantile transform: normal scores, an exact inverse, monotone, within the range."""

import json

import numpy as np
import pytest
from scipy.stats import kstest, norm

from unnoise.data.quantiles import KNOTS, Quantiles

LEVEL = 0.01  # of the Kolmogorov-Smirnov tests


def _laws(n: int) -> dict[str, np.ndarray]:
    g = np.random.default_rng(0)
    return {
        "lognormal": g.lognormal(3.0, 2.0, n),
        "skewed": g.gamma(0.3, size=n),
        "two bumps": np.where(g.random(n) < 0.3, g.normal(-50, 1, n), g.normal(50, 0.1, n)),
        "tied": np.floor(g.lognormal(4.0, 1.0, n)),  # whole numbers, many of them repeated
        "few": g.integers(0, 9, n) * 1.0,
    }


@pytest.mark.parametrize("law", sorted(_laws(2)))
@pytest.mark.parametrize("n", [800, 30_000])
def test_scores_are_standard_normal(law, n):
    x = _laws(n)[law]
    q = Quantiles.fit(x)
    z = q.encode(x, np.random.default_rng(1).random(n))
    assert kstest(z, "norm").pvalue > LEVEL
    # without the draw, repeated values pile up: the same test sees it
    if law == "few":
        assert kstest(q.encode(x), "norm").pvalue < LEVEL


def test_held_out_values_are_standard_normal():
    x = np.random.default_rng(3).lognormal(0.0, 1.5, 60_000)
    z = Quantiles.fit(x[:40_000]).encode(x[40_000:])
    assert kstest(z, "norm").statistic < 1.63 * (1 / 20_000 + 1 / 40_000) ** 0.5  # two-sample, level 0.01


@pytest.mark.parametrize("law", sorted(_laws(2)))
def test_inverse_is_exact_on_all_values_while_they_are_knots(law):
    x = _laws(KNOTS)[law]
    q = Quantiles.fit(x)
    place = np.random.default_rng(1).random(len(x))
    assert (q.decode(q.encode(x, place)) == x).all()
    assert (q.decode(q.encode(x, place).astype(np.float32)) == x).all()  # as a network holds them


def test_inverse_beyond_the_knots():
    x = _laws(50_000)["lognormal"]
    q = Quantiles.fit(x)
    assert len(q.values) <= 2 * KNOTS
    assert (q.decode(q.encode(q.values)) == q.values).all()
    np.testing.assert_allclose(q.decode(q.encode(x)), x, rtol=1e-6)
    whole = _laws(50_000)["tied"]
    place = np.random.default_rng(1).random(len(whole))
    q = Quantiles.fit(whole, knots=100)
    assert (np.round(q.decode(q.encode(whole, place).astype(np.float32))) == whole).all()


def test_a_repeated_value_owns_an_interval():
    q = Quantiles.fit(np.array([1.0, 2.0, 2.0, 2.0, 2.0, 5.0]))
    assert q.low[1] < q.high[1] and q.low[0] == q.high[0]
    inside = np.linspace(q.low[1], q.high[1], 101)
    assert (q.decode(inside) == 2.0).all()
    ends = q.encode(np.array([2.0, 2.0]), np.array([1e-9, 1 - 1e-9]))
    np.testing.assert_allclose(ends, [q.low[1], q.high[1]], atol=1e-6)


@pytest.mark.parametrize("law", sorted(_laws(2)))
def test_monotone(law):
    x = _laws(5000)[law]
    q = Quantiles.fit(x)
    grid = np.linspace(x.min() - 1, x.max() + 1, 20_001)
    assert (np.diff(q.encode(grid)) >= 0).all()
    assert (np.diff(q.decode(np.linspace(-9, 9, 20_001))) >= 0).all()


def test_tails_are_clipped_or_go_on():
    x = np.arange(11.0)
    far = np.array([-7.0, 7.0])
    assert Quantiles.fit(x).decode(far).tolist() == [0.0, 10.0]
    free = Quantiles.fit(x, clip=False)
    low, high = free.decode(far)
    assert low < -1 and high > 11
    np.testing.assert_allclose(free.decode(free.encode(np.array([-2.0, 11.5]))), [-2.0, 11.5])


def test_beyond_the_range_the_last_slope_goes_on():
    """Three values, unevenly apart: the line through the last two of them on either side, both ways."""
    values, z = np.array([0.0, 1.0, 5.0]), _scores(3)
    free = Quantiles.fit(values, clip=False)
    slopes = np.array([1.0 / (z[1] - z[0]), 4.0 / (z[2] - z[1])])
    outside = np.array([-1.5, 7.0])
    scores = np.array([z[0] - 1.5 / slopes[0], z[2] + 2.0 / slopes[1]])
    np.testing.assert_allclose(free.encode(outside), scores, rtol=1e-12)
    np.testing.assert_allclose(Quantiles.fit(values).encode(outside), scores, rtol=1e-12)
    np.testing.assert_allclose(free.decode(scores), outside, rtol=1e-12)


def test_one_value():
    q = Quantiles.fit(np.array([3.5]))
    assert q.decode(np.array([-1.0, 0.0, 2.0])).tolist() == [3.5] * 3 and q.encode(np.array([3.5])).tolist() == [0.0]


def test_json_is_exact():
    x = _laws(5000)["lognormal"]
    q = Quantiles.fit(x)
    back = Quantiles.from_json(json.loads(json.dumps(q.to_json())))
    assert (back.encode(x) == q.encode(x)).all() and (back.decode(q.low) == q.decode(q.low)).all()


@pytest.mark.parametrize("x", [[], [1.0, np.nan], [np.inf]])
def test_what_is_no_number_is_refused(x):
    with pytest.raises(ValueError, match="finite"):
        Quantiles.fit(np.array(x))


def test_few_knots_follow_the_tails_and_keep_what_repeats():
    x = np.sort(_laws(50_000)["lognormal"])
    q = Quantiles.fit(x)
    scores = _scores(len(x))
    assert np.abs(q.encode(x) - scores).max() < 0.05  # the last thousandth included
    repeats = np.concatenate([x, np.full(40, x[20_000])])  # a share of 1 / 1250
    kept = Quantiles.fit(repeats)
    at = np.searchsorted(kept.values, x[20_000])
    assert kept.values[at] == x[20_000] and kept.low[at] < kept.high[at]


def _scores(n: int) -> np.ndarray:
    return norm.ppf((np.arange(n) + 0.5) / n)
