"""Straight scores: numbers come back, on their grid or to the last digit, and their points fill the grid evenly."""

import json

import numpy as np
import pytest

from unnoise.data.straight import Straight

GRID = np.array([1.0, 1.1, 1.3, 1.3, 2.0, 1.7])
FREE = np.array([0.1234567890123, 3.3, -17.00000000012, 2.718281828459045, 400.25])


def again(straight):
    return Straight.from_json(json.loads(json.dumps(straight.to_json())))


def test_scores_have_mean_0_and_variance_1():
    z = Straight.fit(GRID).encode(GRID)
    assert abs(z.mean()) < 1e-12 and abs(z.std() - 1) < 1e-12


@pytest.mark.parametrize("place", [0.001, 0.5, 0.999])
def test_a_number_on_a_grid_owns_the_interval_around_it(place):
    straight = again(Straight.fit(GRID))
    assert straight.step == pytest.approx(0.1)
    points = straight.encode(GRID, place)
    assert np.allclose(np.round(straight.decode(points.astype(np.float32)), 1), GRID)
    assert np.allclose(straight.unit * (points - straight.encode(GRID)), (place - 0.5) * 0.1)


def test_numbers_on_no_grid_come_back_to_the_last_digit():
    straight = again(Straight.fit(FREE))
    assert straight.step == 0 and np.array_equal(straight.decode(straight.encode(FREE, 0.9).astype(np.float32)), FREE)
    between = straight.encode(np.array([3.0]))
    assert straight.decode(between) == pytest.approx(3.0)


def test_decoded_numbers_stay_in_the_range():
    assert Straight.fit(GRID).decode(np.array([-50.0, 50.0])).tolist() == [1.0, 2.0]
    assert np.abs(Straight.fit(GRID).encode(np.array([-1e9, 1e9]))).tolist() == [8.0, 8.0]


@pytest.mark.parametrize("x", [[1.0, 1.0], [], [1.0, np.nan, 2.0]])
def test_what_has_no_scale(x):
    with pytest.raises(ValueError, match="distinct values"):
        Straight.fit(np.array(x))
