"""What is said of curves whose end is known."""

from math import exp

import numpy as np
import pytest

from unnoise.training.convergence import convergence, curve_of, doubling_gain


def lines(bound, steps=2000, points=24, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    at = np.linspace(0, steps, points + 1).astype(int)
    return [{"step": int(s), "validation_bound": float(bound(s) + noise * rng.normal())} for s in at]


def said(curve, dimension=10, **options):
    return convergence(curve, dimension, 60.0, **options)


def test_a_power_of_time_has_its_gain():
    """10 + 40/sqrt(s): the next doubling gains 40 (2000^-1/2 - 4000^-1/2) = 0.262; smoothing adds a little."""
    curve = lines(lambda s: 10 + 40 / (s + 1) ** 0.5)
    gain, ratio = doubling_gain(curve_of(curve))
    assert gain == pytest.approx(0.262, rel=0.1) and 0.6 < ratio <= 0.71
    found = said(curve)
    assert found.verdict == "improving" and "0.26 nats" in found.words and found.minutes >= 4


def test_an_exponential_has_converged_or_not():
    assert said(lines(lambda s: 10 + 5 * exp(-s / 200))).verdict == "converged"
    assert said(lines(lambda s: 10 + 5 * exp(-s / 2000))).verdict == "improving"
    flat = said(lines(lambda s: 10.0 if s else 30.0), reason="patience")
    assert flat.verdict == "converged" and "stopped by itself" in flat.words and flat.gain_per_doubling == 0


def test_a_curve_that_turns_is_overfitting():
    found = said(lines(lambda s: 10 + 5 * exp(-s / 100) + max(0, s - 600) / 1000))
    assert found.verdict == "overfitting" and "best state is kept" in found.words
    step = int(found.words.split("step ")[1].split()[0])
    assert 450 <= step <= 750


@pytest.mark.parametrize("seed", range(5))
def test_noise_changes_nothing(seed):
    """Of deviation 0.03 where the tolerance is 0.1."""
    assert said(lines(lambda s: 10 + 5 * exp(-s / 150), noise=0.03, seed=seed)).verdict == "converged"
    assert said(lines(lambda s: 10 + 60 / (s + 1) ** 0.5, noise=0.03, seed=seed)).verdict == "improving"


def test_the_error_of_few_rows_is_the_tolerance():
    curve = lines(lambda s: 10 + 10 / (s + 1) ** 0.5)
    assert said(curve).verdict == "improving" and said(curve, se=20.0).verdict == "converged"
    assert said(curve, se=float("nan")).verdict == "improving"


def test_few_measurements():
    assert said([]).verdict == said(lines(lambda s: 1.0, points=0)).verdict == "unknown"
    assert said([{"step": 0, "validation_bound": 30.0}, {"step": 9, "validation_bound": 20.0}]).verdict == "improving"
    bad = [{"step": 0, "validation_bound": float("inf")}, {"step": 9, "validation_bound": float("nan")}]
    assert said(bad).verdict == "unknown"


def test_a_training_that_is_still_warming_up_has_hardly_begun():
    flat = lines(lambda s: 10 - s / 1000, steps=50)
    assert said(flat).verdict == "converged" and said(flat, warmup=100).verdict == "improving"
    assert "hardly begun: 50 steps" in said(flat, warmup=100).words
    stuck = lines(lambda s: 10.0, steps=900)
    assert said(stuck, warmup=100).verdict == "improving" and said(stuck, warmup=50).verdict == "converged"
