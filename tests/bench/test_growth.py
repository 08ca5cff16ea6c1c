"""Lines with an offset, and exponents, found from exact ones."""

import numpy as np
import pytest

from unnoise.bench.growth import Growth

NUMBERS = [1, 3, 10, 30, 100]


def test_an_exact_line():
    fit = Growth.of(NUMBERS, [2 + 0.5 * n for n in NUMBERS])
    assert (fit.offset, fit.slope, fit.r2, fit.exponent) == pytest.approx((2, 0.5, 1, 1))
    assert fit.at(8) == pytest.approx(6)


@pytest.mark.parametrize("power", [0.5, 1.0, 1.5, 2.0])
def test_the_exponent_of_an_exact_power_with_an_offset(power):
    fit = Growth.of(NUMBERS, [0.3 + 0.1 * n**power for n in NUMBERS])
    assert fit.exponent == pytest.approx(power)
    assert (fit.r2 > 1 - 1e-9) == (power == 1)


def test_what_does_not_grow():
    fit = Growth.of(NUMBERS, [4.0] * 5)
    assert (fit.offset, fit.slope, fit.r2) == pytest.approx((4, 0, 1))


def test_neither_offset_nor_slope_is_negative():
    falling = Growth.of(NUMBERS, [5.0, 4.0, 3.0, 2.0, 1.0])
    assert falling.slope == 0 and falling.offset > 0
    steep = Growth.of(NUMBERS, [float(n**2) for n in NUMBERS])
    assert steep.offset == 0 and steep.slope > 0


def test_relative_errors_count():
    """A percent at the small end weighs as much as a percent at the large one: the free least squares of t/t = 1."""
    times = np.array([1.1, 3.0, 10.0, 30.0, 101.0])
    fit = Growth.of(NUMBERS, times.tolist())
    design = np.stack([np.ones(5), NUMBERS], 1) / times[:, None]
    assert (fit.offset, fit.slope) == pytest.approx(tuple(np.linalg.lstsq(design, np.ones(5), rcond=None)[0]))


def test_r2_is_that_of_relative_errors():
    times = np.array([1.0, 4.0, 9.0, 35.0, 90.0])
    fit = Growth.of(NUMBERS, times.tolist())
    mean = (1 / times).sum() / (1 / times**2).sum()  # of times weighted by their inverse squares
    left = sum(((fit.at(n) - t) / t) ** 2 for n, t in zip(NUMBERS, times, strict=True))
    assert fit.r2 == pytest.approx(1 - left / (((times - mean) / times) ** 2).sum()) and 0.5 < fit.r2 < 1


def test_too_few_points():
    with pytest.raises(ValueError, match="three points or more"):
        Growth.of([1, 2], [1.0, 2.0])
