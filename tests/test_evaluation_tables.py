"""Scores of tables: known answers, and what they must notice."""

import numpy as np
import pandas as pd
import pytest

from unnoise.evaluation import tables


def frame(n: int, seed: int, link: float = 0.9) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=n)
    y = link * x + (1 - link**2) ** 0.5 * rng.normal(size=n)
    c = np.where(rng.uniform(size=n) < 1 / (1 + np.exp(-2 * x)), "a", "b")
    return pd.DataFrame({"x": x, "y": y, "c": c, "d": rng.choice(["p", "q", "r"], size=n, p=[0.5, 0.3, 0.2])})


REAL, FRESH = frame(3000, 0), frame(3000, 1)


def test_shape_of_known_columns():
    labels = pd.Series(["a"] * 60 + ["b"] * 40), pd.Series(["a"] * 50 + ["b"] * 30 + ["z"] * 20)
    assert tables.similarity(*labels) == pytest.approx(0.8)
    numbers = pd.Series([1.0, 2.0, 3.0, 4.0]), pd.Series([1.0, 2.0, 3.0, 10.0, 10.0, 10.0, 10.0, 10.0])
    assert tables.column_shape(*numbers) == pytest.approx(1 - 5 / 8)
    assert tables.shape(REAL, REAL) == 1 and tables.trend(REAL, REAL) == pytest.approx(1)


def test_trend_of_two_numbers_is_that_of_their_correlation():
    real, fake = frame(4000, 2)[["x", "y"]], frame(4000, 3, link=0.1)[["x", "y"]]
    expected = 1 - abs(real.x.corr(real.y) - fake.x.corr(fake.y)) / 2
    assert tables.trend(real, fake) == pytest.approx(expected) and expected < 0.65


def test_independent_columns_keep_shapes_and_lose_trends():
    loose = tables.shuffled(REAL)
    assert tables.shape(REAL, loose) == pytest.approx(1) and (loose.dtypes == REAL.dtypes).all()
    assert tables.trend(REAL, loose) < tables.trend(REAL, FRESH) - 0.05
    assert tables.two_sample(REAL, loose, trees=40) < 0.6 < 0.9 < tables.two_sample(REAL, FRESH, trees=40)


def test_a_table_that_is_another_is_told_apart():
    shifted = FRESH.assign(x=FRESH.x + 3)
    assert tables.two_sample(REAL, shifted, trees=40) < 0.05


def test_utility_is_that_of_the_rows_it_is_trained_on():
    good, bad = tables.utility(REAL, FRESH, "c", trees=40), tables.utility(tables.shuffled(REAL), FRESH, "c", trees=40)
    assert good > 0.8 and abs(bad - 0.5) < 0.08
    several = tables.utility(REAL, FRESH, "d", trees=10)
    assert abs(several - 0.5) < 0.08


def test_copies_and_distances():
    fake = pd.concat([FRESH.head(90), REAL.head(10)], ignore_index=True)
    assert tables.copies(REAL, fake) == pytest.approx(0.1)
    distance = tables.closest(REAL, fake)
    assert np.all(distance[90:] == 0) and distance[:90].min() > 0
    assert tables.closest(REAL, FRESH, most=50).shape == (50,)
    honest, repeats = tables.score(REAL, FRESH), tables.score(REAL, REAL)
    assert repeats.closest == repeats.closest_low == 0 < honest.closest_low < honest.closest


def test_all_figures_at_once():
    score = tables.score(REAL, FRESH, frame(1000, 5), "c").json()
    figures = {"shape", "trend", "two_sample", "copies", "closest", "closest_low", "utility"}
    assert set(score) == figures and score["copies"] == 0
