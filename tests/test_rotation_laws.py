"""Heat kernels of rotations against 50 digits, their distribution functions, and drawn rotations against their waves."""

from math import pi

import mpmath
import pytest
import torch
from mpmath import mp, mpf

from unnoise import rotation_laws
from unnoise.heat_laws import WrappedLaw
from unnoise.noise import NoiseSource
from unnoise.rotation_laws import (
    RotationLaw,
    UniformRotations,
    draw_angle,
    heat_slope,
    log_angle_density,
    log_heat,
    share_below,
)
from unnoise.rotation_matrices import angle_of, exponential, vee
from unnoise.sphere_laws import rule


def exact(w, v):
    """The series of waves, with 50 digits beyond those that cancel."""
    mp.dps = 50 + int(w * w / (2 * v) / 2.3)
    w, v = mpf(w), mpf(v)
    last = int(mpmath.sqrt((w * w / v + 260) / v)) + 20
    waves = ((2 * n + 1) * mpmath.exp(-n * (n + 1) * v / 2) * mpmath.sin((n + mpf(1) / 2) * w) for n in range(last))
    return mpmath.fsum(waves) / mpmath.sin(w / 2)


def numbers(*values):
    return torch.tensor(values, dtype=torch.float64)


CASES = [(0.02, 1e-3), (0.02, 2.9), (0.05, 2.5), (0.3, 1.5), (0.7, 3.14), (0.999, 3.1), (1.0, 3.1), (1.0, 0.2), (8.0, 0.3)]


@pytest.mark.parametrize(("v", "w"), CASES)
def test_density_and_slope_have_their_digits(v, w):
    true, h = exact(w, v), mpf("1e-12")
    assert abs(float(mpf(log_heat(numbers(w), numbers(v)).exp().item()) / true - 1)) < 1e-10
    slope = float((mpmath.log(exact(mpf(w) + h, v)) - mpmath.log(exact(mpf(w) - h, v))) / (2 * h))
    assert heat_slope(numbers(w), numbers(v)).item() == pytest.approx(slope, rel=1e-8)


def test_the_far_tail_is_where_waves_alone_have_none():
    """4.27e-25 at the angle 2.5 and the variance 0.05; the waves in double precision add up to rounding."""
    ours = log_heat(numbers(2.5), numbers(0.05)).exp().item()
    n = torch.arange(200, dtype=torch.float64)
    waves = ((2 * n + 1) * torch.exp(-n * (n + 1) * 0.025) * torch.sin((n + 0.5) * 2.5)).sum() / torch.sin(numbers(1.25))
    assert ours == pytest.approx(float(exact(2.5, 0.05)), rel=1e-10) and f"{ours:.2e}" == "4.27e-25"
    assert abs(waves.item()) > 1e-17


@pytest.mark.parametrize("v", [1e-3, 0.05, 0.109, 0.111, 0.3, 1.0, 6.0])
def test_the_distribution_function_is_the_integral_of_the_density(v):
    place, weight = rule(80, numbers(v))
    for w in (0.3 * v**0.5, 1.5 * v**0.5, min(4 * v**0.5, pi), pi):
        points = min(w, 12 * v**0.5)
        mass = points * (weight * log_angle_density(points * place, numbers(v)).exp()).sum()
        assert share_below(numbers(w), numbers(v))[0].item() == pytest.approx(mass.item(), abs=1e-13)


@pytest.mark.parametrize("v", [1e-8, 1e-3, 0.05, 0.2, 1.0, 6.0])
def test_drawn_angles_invert_it_to_rounding(v):
    u = numbers(0.0, 1e-12, 1e-6, 1e-4, 0.01, 0.2, 0.5, 0.9, 0.999, 1 - 1e-6, 1 - 1e-12)
    w = draw_angle(u, torch.full_like(u, v))
    assert torch.allclose(share_below(w, numbers(v))[0], u, rtol=0, atol=1e-13) and bool((w.diff() > 0).all())
    ours = share_below(w[1:], numbers(v))[1]
    assert torch.allclose(ours, log_angle_density(w[1:], numbers(v)).exp(), rtol=1e-7, atol=1e-12)


def test_every_law_has_the_mass_one_and_two_mutants_do_not(monkeypatch):
    """A density without the factor 1 - cos w, and one without e^{v/8}."""
    place, weight = rule(96, numbers(1.0))

    def mass(v, density):
        return float(pi * (weight * density(pi * place, numbers(v)).exp()).sum())

    for v in (0.05, 0.5, 1.5):
        assert mass(v, log_angle_density) == pytest.approx(1, abs=1e-12)
        assert abs(mass(v, lambda w, v: log_heat(w, v) - torch.tensor(pi).log()) - 1) > 0.1
    images = rotation_laws._images
    monkeypatch.setattr(rotation_laws, "_images", lambda w, v: images(w, v) - v / 8)
    assert abs(mass(0.5, log_angle_density) - 1) > 0.05


def rotations(rows, seed=5):
    return UniformRotations(torch.zeros(rows, 3, 3, dtype=torch.float64)).draw(NoiseSource(seed, rows))


@pytest.mark.parametrize("v", [1e-3, 0.05, 0.3, 2.5])
def test_draws_fade_as_they_must(v):
    """E chi_l = (2l + 1) e^{-l(l+1)v/2} for the first three waves: within 4.5 standard errors, false alarms 1e-4 in all."""
    rows = 20_000
    mean = rotations(rows)
    x = RotationLaw(mean, torch.full((rows, 1), v)).draw(NoiseSource(6, rows))
    assert torch.allclose(x.mT @ x, torch.eye(3).double().expand_as(x), atol=1e-12)
    w = angle_of(mean.mT @ x)
    for n in (1, 2, 3):
        wave = torch.sin((n + 0.5) * w) / torch.sin(w / 2) / (2 * n + 1)
        gap = (wave.mean() - torch.exp(numbers(-n * (n + 1) * v / 2))).abs()
        assert float(gap) < 4.5 * float(wave.std()) / rows**0.5
    assert float(x.mean(0).abs().max()) < 4.5 / (3 * rows) ** 0.5


def test_the_uniform_law_is_that_of_the_group():
    """The angle has the density (1 - cos w)/pi, mean pi/2 + 2/pi; an angle that is uniform itself is a mutant."""
    w = angle_of(rotations(20_000))
    assert abs(float(w.mean()) - (pi / 2 + 2 / pi)) < 4.5 * float(w.std()) / 20_000**0.5
    assert abs(pi / 2 - (pi / 2 + 2 / pi)) > 100 * float(w.std()) / 20_000**0.5


def test_the_score_is_the_slope_along_turns():
    mean, x = rotations(6), rotations(6, 8)
    for v in (0.3, 2.0):
        law, h = RotationLaw(mean, torch.full((6, 1), v)), 1e-6
        ours = vee(x.mT @ law.score(x))
        for i in range(3):
            a = h * torch.eye(3, dtype=torch.float64)[i].expand(6, 3)
            slope = (law.log_prob(x @ exponential(a)) - law.log_prob(x @ exponential(-a))) / (2 * h)
            assert torch.allclose(ours[:, i], slope, rtol=1e-6, atol=1e-7)
        assert torch.equal(law.score(mean).isfinite(), torch.ones_like(mean, dtype=torch.bool))


def test_information_is_that_of_the_density():
    """At little noise that of a normal law in three dimensions, log 8 pi^2 - 3/2 log(2 pi e v), and e^{-2v} 9/2 at much."""
    law = RotationLaw(rotations(2), numbers(1e-4, 6.0))
    narrow = torch.log(numbers(8 * pi**2)) - 1.5 * torch.log(numbers(2 * pi * torch.e * 1e-4))
    assert law.information()[0].item() == pytest.approx(narrow.item(), abs=1e-3)
    assert law.information()[1].item() == pytest.approx(4.5 * float(torch.exp(numbers(-12.0))), rel=0.02)
    assert torch.equal(law.kl(UniformRotations(law.mean)), law.information())


def test_what_is_not_known_is_refused():
    law = RotationLaw(rotations(1), torch.ones(1, 1))
    for one in (law, UniformRotations(rotations(1))):
        with pytest.raises(TypeError, match="from a WrappedLaw is not known"):
            one.kl(WrappedLaw(torch.zeros(1, 1), torch.ones(1, 1)))
