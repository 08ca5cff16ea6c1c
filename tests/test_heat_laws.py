"""Wrapped normal laws against 50 digits, their divergences against sums, and drawn bridges against their density."""

import mpmath
import pytest
import torch
from mpmath import mp, mpf

from unnoise.heat_laws import (
    SWITCH,
    TURN,
    AngleBridge,
    UniformAngles,
    WrappedLaw,
    angle_information,
    log_wrapped,
    wrap,
    wrapped_score,
)
from unnoise.laws import Normal
from unnoise.noise import NoiseSource

mp.dps = 50
GAPS = (0.0, 0.3, 1.0, 2.0, 2.9, 3.1, -1.7, -3.13)
VARIANCES = (1e-4, 3e-3, 0.05, 0.3, 1.0, 1.7, SWITCH - 1e-9, SWITCH, 3.0, 6.0, 20.0, 60.0)


def exact(gap, variance):
    """log h_v and its slope by 400 images, with 50 digits."""
    gap, variance = mpf(gap), mpf(variance)
    reach = 3 + int(mpmath.sqrt(variance) * 16)
    ways = [gap + 2 * mp.pi * k for k in range(-reach, reach + 1)]
    terms = [mpmath.exp(-way * way / (2 * variance)) for way in ways]
    density = mpmath.fsum(terms) / mpmath.sqrt(2 * mp.pi * variance)
    slope = -mpmath.fsum(way * term for way, term in zip(ways, terms, strict=True)) / mpmath.fsum(terms) / variance
    return mpmath.log(density), slope


@pytest.mark.parametrize("variance", VARIANCES)
def test_density_and_score_have_ten_digits(variance):
    gaps, v = torch.tensor(GAPS, dtype=torch.float64), torch.tensor(variance, dtype=torch.float64)
    ours, slopes = log_wrapped(gaps, v), wrapped_score(gaps, v)
    for gap, value, slope in zip(GAPS, ours.tolist(), slopes.tolist(), strict=True):
        true, true_slope = exact(gap, variance)
        assert abs(float(mpf(value) - true)) < 1e-10  # of the density, also at e^-42000 of its peak
        assert abs(float(mpf(slope) - true_slope)) < 1e-10 * max(float(abs(true_slope)), 1e-14)


def test_angles_half_a_turn_apart_have_a_law_however_narrow():
    gap = torch.tensor([-torch.pi, torch.pi, 3.1], dtype=torch.float64, requires_grad=True)
    for v in (1e-30, 1e-16, 1e-3, 1.9):
        value, slope = log_wrapped(gap, torch.tensor(v).double()), wrapped_score(gap, torch.tensor(v).double())
        assert bool((value.isfinite() & slope.isfinite()).all())
        assert bool(torch.autograd.grad(value.sum(), gap)[0].isfinite().all())


def test_neither_form_would_do_alone(monkeypatch):
    """Waves lose the tail at little noise, and few images the mass at much: each must fail where the other holds."""
    import unnoise.heat_laws as module

    gap = torch.tensor([2.5], dtype=torch.float64)
    for switch, variance in ((1e-6, 0.05), (100.0, 60.0)):
        monkeypatch.setattr(module, "SWITCH", switch)
        wrong = log_wrapped(gap, torch.tensor(variance, dtype=torch.float64))
        assert not abs(float(wrong) - float(exact(2.5, variance)[0])) < 1e-3


def test_the_score_is_the_slope_of_the_log_density():
    gap = torch.linspace(-3.0, 3.0, 13, dtype=torch.float64, requires_grad=True)
    v = torch.tensor([[0.01], [0.5], [1.9], [2.1], [9.0]], dtype=torch.float64)
    slope = torch.autograd.grad(log_wrapped(gap, v).sum(), gap, create_graph=True)[0]
    assert torch.allclose(slope, wrapped_score(gap, v).sum(0), rtol=1e-12, atol=1e-12)
    again = torch.autograd.grad(slope.sum(), gap)[0]
    assert torch.allclose(again, torch.autograd.grad(wrapped_score(gap, v).sum(), gap)[0], rtol=1e-10, atol=1e-10)


def test_wrapping_leaves_what_is_wrapped():
    inside = torch.tensor([-torch.pi, -3.0, 0.0, 1e-9, 3.1415926], dtype=torch.float64)
    assert torch.equal(wrap(inside), inside)
    assert torch.allclose(wrap(inside + 5 * TURN), inside, atol=1e-14)
    assert bool((wrap(torch.linspace(-40, 40, 1001)).abs() <= torch.pi + 1e-6).all())


@pytest.mark.parametrize("variance", [1e-4, 0.119, 0.121, 0.7, 2.0, 5.0, 20.0])
def test_information_is_the_divergence_from_the_uniform_law(variance):
    x = TURN / 8192 * torch.arange(8192, dtype=torch.float64)
    log_h = log_wrapped(x, torch.tensor(variance, dtype=torch.float64))
    exact = TURN / 8192 * (log_h.exp() * (log_h + torch.tensor(TURN).double().log())).sum()
    ours = angle_information(torch.tensor([variance], dtype=torch.float64))
    assert abs(float(ours - exact)) < 1e-7  # the sum knows 2 pi in float32
    law = WrappedLaw(torch.tensor([[0.3, -2.0]], dtype=torch.float64), torch.tensor([[variance]]))
    uniform = UniformAngles(law.mean)
    assert torch.allclose(law.kl(uniform), 2 * ours, atol=1e-14)
    assert torch.allclose(super(WrappedLaw, law).kl(uniform), 2 * ours, atol=1e-9)  # by nodes


def bridges(s, t):
    x0, x_t = torch.tensor([[0.5], [-3.0], [2.0]]).double(), torch.tensor([[-2.9], [3.0], [1.9]]).double()
    return AngleBridge(x0, x_t, torch.tensor([[s]]).double(), torch.tensor([[t - s]]).double(), 8)


@pytest.mark.parametrize(("s", "t"), [(1e-3, 1.0), (0.5, 4.0), (9.0, 16.0), (15.9, 16.0)])
def test_a_divergence_of_bridges_is_its_sum_around_the_circle(s, t):
    bridge = bridges(s, t)
    other = WrappedLaw(bridge.x_t - 0.1, torch.tensor([[0.8 * (t - s)]]).double())
    x = (TURN / 40000 * torch.arange(40000, dtype=torch.float64)).reshape(-1, 1, 1) - torch.pi
    log_p = bridge.log_density(x)
    assert torch.allclose(TURN / 40000 * log_p.exp().sum(0), torch.ones(3, 1).double(), atol=1e-9)
    terms = torch.where(log_p > -700, log_p.exp() * (log_p - other.log_density(x)), 0.0)
    assert torch.allclose(bridge.kl(other), TURN / 40000 * terms.sum((0, 2)), rtol=1e-8, atol=1e-9)


def worst(bridge, draw, rows=20_000):
    """The largest error of a wave's mean over draws, in standard errors, over three bridges and six waves."""
    x = (TURN / 4096 * torch.arange(4096, dtype=torch.float64)).reshape(-1, 1, 1) - torch.pi
    weight = TURN / 4096 * bridge.log_density(x).exp()
    found = 0.0
    for i in range(3):
        one = AngleBridge(*[v[i : i + 1].expand(rows, 1) for v in (bridge.x0, bridge.x_t)], bridge.before, bridge.step, 8)
        drawn = draw(one, NoiseSource(7 + i, rows))
        for k in (1, 2, 3):
            for wave in (torch.sin, torch.cos):
                exact = (weight[:, i] * wave(k * x[:, 0])).sum()
                values = wave(k * drawn)
                found = max(found, float((values.mean() - exact).abs() / (values.std() / rows**0.5)))
    return found


def no_turns(bridge, noise):
    """A mutant: the shortest way is taken for the only one."""
    gone = wrap(bridge.x_t - bridge.x0)
    return wrap(bridge.x0 + bridge.before / (bridge.before + bridge.step) * gone + bridge.width() * noise.normal((1,)))


def test_drawn_bridges_have_their_density():
    """18 waves within 4.5 standard errors: a false alarm in 8,000 seeds; the seed is fixed."""
    bridge = bridges(1.5, 5.0)
    assert worst(bridge, AngleBridge.draw) < 4.5
    assert worst(bridge, no_turns) > 20


def test_draws_have_the_law_and_its_dtype():
    law = WrappedLaw(torch.full((40_000, 1), 2.0), torch.full((40_000, 1), 0.8))
    drawn = law.draw(NoiseSource(3, 40_000))
    assert drawn.dtype == torch.float32 and bool((drawn.abs() <= torch.pi + 1e-6).all())
    error = (torch.cos(drawn.double() - 2.0).mean() - torch.exp(torch.tensor(-0.4))).abs() * 200  # sd of a cosine < 1
    assert error < 4
    uniform = UniformAngles(torch.zeros(40_000, 1)).draw(NoiseSource(4, 40_000)).double()
    assert uniform.cos().mean().abs() * 200 < 4 and uniform.abs().mean() - torch.pi / 2 < 0.02


def test_what_is_no_angle_is_refused():
    law = WrappedLaw(torch.zeros(1, 1), torch.ones(1, 1))
    with pytest.raises(TypeError, match="compared with a Normal"):
        law.kl(Normal(torch.zeros(1, 1), torch.ones(1, 1)))
    narrow = AngleBridge(torch.zeros(1, 1), torch.zeros(1, 1), torch.full((1, 1), 1e-12), torch.ones(1, 1), 3)
    with pytest.raises(ValueError, match="too narrow for a divergence"):
        narrow.kl(law)
