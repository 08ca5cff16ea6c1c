"""Heat kernels of spheres against 60 digits, and drawn angles against their waves."""

import mpmath
import pytest
import torch
from mpmath import mp, mpf

from unnoise.heat_laws import WrappedLaw
from unnoise.noise import NoiseSource
from unnoise.sphere_laws import (
    SphereLaw,
    UniformOnSphere,
    draw_angle,
    heat_slope,
    log_angle_density,
    log_heat,
    log_volume,
    rule,
)


def exact(w, v, d):
    """The series of waves, with digits enough for what cancels."""
    mp.dps = 40 + int(w * w / (2 * v) / 2.3)
    w, v = mpf(w), mpf(v)
    last = int(mpmath.sqrt((w * w / v + 200) / v)) + 20
    if d == 3:
        terms = ((n + 1) * mpmath.exp(-n * (n + 2) * v / 2) * mpmath.sin((n + 1) * w) / mpmath.sin(w) for n in range(last))
        return mpmath.fsum(terms) / (2 * mp.pi**2)
    if d > 3:
        area, order = 2 * mp.pi ** (mpf(d + 1) / 2) / mpmath.gamma(mpf(d + 1) / 2), mpf(d - 1) / 2
        before, now, total = mpf(0), mpf(1), mpf(1)
        for n in range(1, last):
            before, now = now, (2 * (n + order - 1) * mpmath.cos(w) * now - (n + 2 * order - 2) * before) / n
            total += (2 * n + d - 1) / mpf(d - 1) * mpmath.exp(-n * (n + d - 1) * v / 2) * now
        return total / area
    c, before, now, total = mpmath.cos(w), mpf(1), mpmath.cos(w), 1 + 3 * mpmath.exp(-v) * mpmath.cos(w)
    for n in range(2, last):
        before, now = now, ((2 * n - 1) * c * now - (n - 1) * before) / n
        total += (2 * n + 1) * mpmath.exp(-n * (n + 1) * v / 2) * now
    return total / (4 * mp.pi)


PLACES = ((0.01, 3.1), (0.02, 1e-3), (0.02, 2.9), (0.05, 2.5), (0.3, 1.5), (0.999, 3.1), (1.0, 3.1), (8.0, 0.3))
CASES = [(d, v, w) for d in (2, 3) for v, w in PLACES]


@pytest.mark.parametrize(("d", "v", "w"), CASES + [(d, v, w) for d in (4, 5, 9) for v, w in PLACES if v > 0.01])
def test_density_and_slope_have_their_digits(d, v, w):
    angle, variance = torch.tensor([w], dtype=torch.float64), torch.tensor([v], dtype=torch.float64)
    true, h = mpmath.log(exact(w, v, d)), mpf("1e-12")
    assert abs(float(mpf(log_heat(angle, variance, d).item()) - true)) < 1e-10  # of the density, also at e^-480 of its peak
    slope = float((mpmath.log(exact(mpf(w) + h, v, d)) - mpmath.log(exact(mpf(w) - h, v, d))) / (2 * h))
    assert heat_slope(angle, variance, d).item() == pytest.approx(slope, rel=1e-8)


@pytest.mark.parametrize("d", [2, 3])
@pytest.mark.parametrize("v", [0.05, 0.3, 0.999])
def test_both_poles_keep_their_digits(d, v):
    """Where sin w vanishes the images are differences of large numbers, and the slope one of infinite ones."""
    variance, h = torch.tensor(v, dtype=torch.float64), mpf("1e-13")
    for w in [torch.pi - gap for gap in (1e-12, 1e-9, 1e-6, 1e-3, 0.3, 1.57, 1.58)] + [1e-12, 1e-9, 1e-6, 1e-3]:
        angle = torch.tensor(w, dtype=torch.float64)
        true = float(mpmath.log(exact(w, v, d)))
        assert log_heat(angle, variance, d).item() == pytest.approx(true, abs=1e-13 / v)
        slope = float((mpmath.log(exact(mpf(w) + h, v, d)) - mpmath.log(exact(mpf(w) - h, v, d))) / (2 * h))
        assert heat_slope(angle, variance, d).item() == pytest.approx(slope, abs=2e-12 / v)


def test_small_noise_has_a_tail():
    """4.7e-27 and less, where a truncated series has noise."""
    v, w = torch.tensor([0.01], dtype=torch.float64), torch.tensor([1.2], dtype=torch.float64)
    for d in (2, 3):
        assert log_heat(w, v, d).item() == pytest.approx(float(mpmath.log(exact(1.2, 0.01, d))), abs=1e-11)


def points(d, rows):
    return UniformOnSphere(torch.zeros(rows, d + 1, dtype=torch.float64)).draw(NoiseSource(5, rows))


@pytest.mark.parametrize("d", [1, 2, 3, 4, 9])
@pytest.mark.parametrize("v", [1e-3, 0.3, 2.5])
def test_draws_fade_as_they_must(d, v):
    """E cos w = e^{-d v/2}, and the second wave like e^{-(d+1) v}: within 4.5 standard errors, false alarms 1e-4 in all."""
    rows = 20_000
    mean = points(d, rows)
    x = SphereLaw(mean, torch.full((rows, 1), v)).draw(NoiseSource(6, rows))
    assert torch.allclose(x.norm(dim=1), torch.ones(rows).double())
    c = (x * mean).sum(1)
    second = ((d + 1) * c.square() - 1) / d
    for values, rate in ((c, d / 2), (second, d + 1)):
        gap = (values.mean() - torch.exp(torch.tensor(-rate * v))).abs()
        assert gap < 4.5 * values.std() / rows**0.5 + 1e-6
    assert float(x.mean(0).abs().max()) < 4.5 / rows**0.5


@pytest.mark.parametrize("d, off", [(1, 2e-6), (2, 1e-9), (3, 2e-6)])
@pytest.mark.parametrize("v", [1e-3, 0.3, 0.49, 0.51, 2.5])
def test_drawn_angles_invert_their_distribution_function(d, off, v):
    """The share below the angle that u gives is u."""
    u = torch.tensor([1e-4, 0.01, 0.2, 0.5, 0.9, 0.999, 1 - 1e-6], dtype=torch.float64)
    variance = torch.full((7,), v, dtype=torch.float64)
    w = draw_angle(u, variance, d)
    place, weight = rule(60, w)
    density = log_angle_density(w.unsqueeze(1) * place, variance.unsqueeze(1), d).exp()
    assert torch.allclose(w * (weight * density).sum(1), u, rtol=0, atol=off)


def test_a_circle_in_the_plane_is_a_circle():
    angle, other = torch.tensor([[0.4], [3.0]], dtype=torch.float64), torch.tensor([[-1.0], [-3.1]], dtype=torch.float64)
    m, x = (torch.cat([a.cos(), a.sin()], 1) for a in (angle, other))
    for v in (0.05, 1.5, 6.0):
        flat, round_ = WrappedLaw(angle, torch.tensor([[v]])), SphereLaw(m, torch.full((2, 1), v))
        assert torch.allclose(flat.log_prob(other), round_.log_prob(x), rtol=1e-9)
        assert torch.allclose(flat.information(), round_.information(), rtol=1e-7, atol=1e-9)
        along = torch.cat([-other.sin(), other.cos()], 1)
        assert torch.allclose((round_.score(x) * along).sum(1, keepdim=True), flat.score(other), rtol=1e-7, atol=1e-9)


def test_what_is_not_known_is_refused():
    with pytest.raises(ValueError, match="rows of two numbers or more"):
        SphereLaw(torch.ones(3, 1), torch.ones(1, 1))
    with pytest.raises(TypeError, match="from a WrappedLaw is not known"):
        SphereLaw(torch.eye(3)[:1], torch.ones(1, 1)).kl(WrappedLaw(torch.zeros(1, 1), torch.ones(1, 1)))
    assert log_volume(2) == pytest.approx(float(mpmath.log(4 * mp.pi)))
