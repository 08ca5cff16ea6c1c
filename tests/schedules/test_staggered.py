"""Coordinates whose log-SNRs differ by a number: values, derivatives, ends, and what is refused."""

import pytest
import torch

from unnoise.schedules import Cosine, Linear, LinearBeta, Staggered

SHIFTS = torch.tensor([[3.0, 0.0, -2.0], [0.5, -0.5, 1.0]], dtype=torch.float64)
T = torch.tensor([0.05, 0.3, 0.71, 0.98], dtype=torch.float64)


@pytest.mark.parametrize("other", [Cosine(), Linear(), LinearBeta()], ids=lambda s: type(s).__name__)
def test_log_snrs_differ_by_the_shifts(other):
    schedule = Staggered(other, SHIFTS)
    assert schedule.alpha(T).shape == (4, 2, 3)
    wanted = other.log_snr(T)[:, None, None] + SHIFTS
    assert torch.allclose(schedule.log_snr(T), wanted)
    assert torch.allclose(2 * (schedule.alpha(T) / schedule.sigma(T)).log(), wanted)
    assert torch.allclose(schedule.alpha(T).square() + schedule.sigma(T).square(), torch.ones(4, 2, 3).double())
    assert torch.allclose(schedule.beta(T), 1 - schedule.alpha(T))


@pytest.mark.parametrize("other", [Cosine(), Linear()], ids=lambda s: type(s).__name__)
def test_derivatives_are_those_of_the_values(other):
    schedule, h = Staggered(other, SHIFTS), 1e-6
    for value, slope in (
        (schedule.alpha, schedule.d_alpha),
        (schedule.sigma, schedule.d_sigma),
        (schedule.log_snr, schedule.d_log_snr),
    ):
        assert torch.allclose(slope(T), (value(T + h) - value(T - h)) / (2 * h), rtol=1e-6, atol=1e-7)
    assert torch.allclose(schedule.diffusion(T), -schedule.sigma(T).square() * schedule.d_log_snr(T))


def test_the_ends_are_clean_and_all_noise():
    schedule = Staggered(Cosine(), SHIFTS)
    assert float(schedule.sigma(0.0).max()) == 0 and float(schedule.alpha(1.0).max()) < 1e-15
    assert bool(schedule.d_alpha(1.0).isfinite().all()) and bool(schedule.d_sigma(0.0).isfinite().all())


def test_what_is_no_stagger_is_refused():
    with pytest.raises(ValueError, match="a finite number to add"):
        Staggered(Cosine(), torch.tensor([1.0, torch.inf]))
    with pytest.raises(ValueError, match="one schedule for all"):
        Staggered(Staggered(Cosine(), SHIFTS), SHIFTS)
    with pytest.raises(ValueError, match="ask `schedule`"):
        Staggered(Cosine(), SHIFTS).time_of_log_snr(0.0)
