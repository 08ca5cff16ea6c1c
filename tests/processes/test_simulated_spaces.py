"""Processes by their generator on other spaces: counts, a product whose leaves depend on each other, closed spaces.

All are at rest where they start, so that the exact slope is that of one law at all times, and the chain's bound tends to
-log of that law.  Means are checked at four standard errors (by chance off once in 16,000 runs), with fixed seeds.
"""

from math import exp, lgamma, log, pi, sinh

import pytest
import torch
from test_simulated import enumerated_bound, mean_of

import unnoise as un
from unnoise.count_laws import Thinned
from unnoise.laws import LOG_ZERO, Categorical, Joint, Normal

F64 = torch.float64


def bounds(denoiser, x0, seed=0):
    with torch.no_grad():
        return un.bound(denoiser, x0, seed=seed).total


class Immigrants(torch.nn.Module):
    """Differences of log Poisson(mean): to x - 1 and to x + 1."""

    def __init__(self, mean=3.0):
        super().__init__()
        self.mean = mean

    def forward(self, x, t):
        x = x.double()
        return torch.stack([(x.clamp_min(1) / self.mean).log(), (self.mean / (x + 1)).log()], -1)


def immigration(steps, **options):
    """Each of x dies at rate 2, 2 * 3 come: it rests in Poisson(3)."""

    def local(x, t):
        down = torch.where(x > 0, (2.0 * x.clamp_min(1)).log(), LOG_ZERO)
        return un.Local(log_rates=torch.stack([down, torch.full_like(down, log(6.0))], -1).double())

    def prior(rows):
        return Thinned(torch.zeros(rows, 1, dtype=torch.int64), mean=torch.full((rows, 1), 3.0, dtype=F64))

    return un.Simulated(un.spaces.Counts((1,)), local, prior, steps, **options)


def test_counts_without_end():
    """The bound is that of the enumerated chain (0 ... 17 hold all but 1e-8 of it), and tends to -log Poisson(3)."""
    levels, wanted = torch.arange(18).unsqueeze(1), 3 - 2 * log(3) + lgamma(3.0)
    gaps = [float(enumerated_bound(un.Denoiser(Immigrants(), immigration(n)), levels)[2]) - wanted for n in (8, 16)]
    assert min(gaps) > 0 and all(0.8 < log(a / b, 2) < 1.3 for a, b in zip(gaps, gaps[1:], strict=False)), gaps
    for options in ({"visits": 8}, {"visits": 2, "control": True}):
        wrong = un.Denoiser(Immigrants(4.0), immigration(8, **options))
        found, error = mean_of(bounds(wrong, torch.full((1000, 1), 2)))
        assert abs(found - float(enumerated_bound(wrong, levels)[2])) < 4 * error and error < 0.1
    drawn, _ = un.sample(un.Denoiser(Immigrants(), immigration(32)), 1000, seed=0)
    assert abs(float(drawn.double().mean()) - 3) < 4 * (3 / 1000) ** 0.5 + 3 / 32


SWITCH = un.spaces.ProductSpace(x=un.Euclidean((1,)), mode=un.Finite(2, ()))


def switching(steps, **options):
    """A number with a force of 1 more, one way or the other by its mode, which flips the sooner the farther out it drives:

    b = -x + v,   v = 2 mode - 1,   flips at (v x)_+ + 1/2;   N(0, 1) and even modes are at rest."""

    def local(state, t):
        x, mode = state["x"], state["mode"]
        push = (2.0 * mode - 1).unsqueeze(1)
        flip = torch.where(mode == 0, -x.squeeze(1), x.squeeze(1)).clamp_min(0) + 0.5
        rates = torch.stack([torch.where(mode == 1, flip.log(), LOG_ZERO), torch.where(mode == 0, flip.log(), LOG_ZERO)], -1)
        return {"x": un.Local(drift=push - x, diffusion=2 * torch.ones_like(x)), "mode": un.Local(log_rates=rates)}

    def prior(rows):
        even = Categorical(torch.full((rows, 2), 0.5, dtype=F64).log())
        return Joint({"x": Normal(torch.zeros(rows, 1, dtype=F64), torch.ones((), dtype=F64)), "mode": even})

    return un.Simulated(SWITCH, local, prior, steps, **options)


class SwitchingAtRest(torch.nn.Module):
    def forward(self, state, t):
        return {"x": -state["x"], "mode": torch.zeros(len(t), 2, dtype=F64)}


def test_leaves_that_depend_on_each_other():
    """A zig-zag with noise: the law at rest is known, and the bound tends to its surprise; leaves share one generator."""
    rest = switching(4).generator(0.5)
    state = {"x": torch.tensor([[0.3], [-1.2], [0.8]], dtype=F64), "mode": torch.tensor([0, 1, 1])}
    density = lambda s: (-0.5 * s["x"].square()).exp().squeeze(1)  # noqa: E731
    assert float(rest.adjoint(density, state).abs().max()) < 1e-12
    x0 = {"x": torch.full((3000, 1), 0.4, dtype=F64), "mode": torch.ones(3000, dtype=torch.int64)}
    wanted, gaps = 0.5 * log(2 * pi) + 0.08 + log(2), []
    for steps in (8, 32):
        found, error = mean_of(bounds(un.Denoiser(SwitchingAtRest(), switching(steps, visits=steps)), x0))
        gaps.append(abs(found - wanted))
        assert error < 0.03
        few, error = mean_of(bounds(un.Denoiser(SwitchingAtRest(), switching(steps, visits=4, control=True)), x0))
        assert abs(few - found) < 4 * error + 0.05 and error < 0.08
    assert gaps[1] < 0.45 * gaps[0] + 4 * error, gaps
    lacking = torch.nn.Module()
    lacking.forward = lambda state, t: {"x": state["x"]}
    with pytest.raises((TypeError, ValueError), match="the network's output"):
        un.bound(un.Denoiser(lacking, switching(8)), x0)


# closed spaces


class Wind(torch.nn.Module):
    """The slope of exp(k cos x), or of exp(k z) on the sphere."""

    def __init__(self, k=1.5):
        super().__init__()
        self.k = k

    def forward(self, x, t):
        if x.shape[1] == 1:
            return -self.k * x.sin()
        up = torch.tensor([0.0, 0.0, 1.0], dtype=x.dtype)
        return self.k * (up - x[:, 2:] * x)


class Windy(un.laws.Law):
    """Density exp(k cos x)/(2 pi I_0(k)) of an angle, exp(k z) k/(4 pi sinh k) on the globe; draws are not asked for."""

    def __init__(self, rows, k, globe):
        self.rows, self.k, self.globe = rows, k, globe

    def log_prob(self, x):
        if self.globe:
            return self.k * x[:, 2] + log(self.k / (4 * pi * sinh(self.k)))
        return self.k * x[:, 0].cos() - log(2 * pi) - torch.special.i0(torch.tensor(self.k, dtype=F64)).log()

    def kl(self, other):
        raise TypeError

    draw = kl


def windy(globe, steps, k=1.5, **options):
    """Langevin's dynamics at rest in exp(k cos x), or exp(k z)."""
    space = un.Sphere(2) if globe else un.Torus((1,))

    def local(x, t):
        return un.Local(drift=Wind(k)(x, t), diffusion=2 * torch.ones_like(x[:, :1]))

    return un.Simulated(space, local, lambda rows: Windy(rows, k, globe), steps, **options)


@pytest.mark.parametrize("globe", [False, pytest.param(True, marks=pytest.mark.conformance)])
def test_langevin_on_closed_spaces(globe):
    x0 = torch.tensor([[0.6, 0.0, 0.8]] if globe else [[1.0]], dtype=F64).expand(2000, -1)
    wanted, gaps = -float(Windy(1, 1.5, globe).log_prob(x0[:1])), []
    for steps in (8, 32):
        found, error = mean_of(bounds(un.Denoiser(Wind(), windy(globe, steps, visits=steps)), x0))
        gaps.append(abs(found - wanted))
        assert error < 0.03
    assert gaps[1] < 0.45 * gaps[0] + 4 * error and gaps[1] < 0.15, gaps
    other, _ = mean_of(bounds(un.Denoiser(Wind(0.5), windy(globe, 32, visits=32)), x0))
    assert other > wanted + gaps[1] + 0.03  # another model's


def test_brownian_motion_on_the_globe_is_its_own_reverse():
    """Steps there and back have one density, so that each path's bound is log 4 pi, whatever the step."""

    class Even(torch.nn.Module):
        def forward(self, x, t):
            return torch.zeros_like(x)

    class EvenLaw(Windy):
        def log_prob(self, x):
            return torch.full((len(x),), -log(4 * pi), dtype=F64)

    local = lambda x, t: un.Local(diffusion=3 * torch.ones_like(x[:, :1]))  # noqa: E731
    process = un.Simulated(un.Sphere(2), local, lambda rows: EvenLaw(rows, 1, True), 5, antithetic=True)
    x0 = torch.nn.functional.normalize(un.NoiseSource(0, 50).normal((3,)), dim=1)
    torch.testing.assert_close(bounds(un.Denoiser(Even(), process), x0), torch.full((50,), log(4 * pi), dtype=F64))
    with pytest.raises(TypeError, match="Sphere does not say what a slope says of a step"):
        bounds(
            un.Denoiser(Even(), un.Simulated(un.Sphere(2), local, lambda rows: EvenLaw(rows, 1, True), 5, control=True)), x0
        )


@pytest.mark.parametrize("d", [1, 2, 3])
@pytest.mark.parametrize("a", [0.05, 1.0])
def test_a_geodesic_steps_density_is_that_of_its_draws(d, a):
    """It sums to 1 over the sphere, its mean is that of 50,000 draws; without the area's factor it is no density."""
    sphere = un.Sphere(d)
    x = torch.nn.functional.normalize(torch.tensor([[1.0, 0.7, -0.4, 0.2][: d + 1]], dtype=F64), dim=1)
    drift = sphere.tangent(torch.tensor([[0.2, -0.9, 0.3, 0.5][: d + 1]], dtype=F64), x)
    local = un.Local(drift=drift, diffusion=torch.ones(1, 1, dtype=F64))
    if d < 3:
        points, weights = sphere.nodes(128)
    else:  # draws of the uniform law stand for a rule
        points = torch.nn.functional.normalize(un.NoiseSource(1, 200_000).normal((4,)), dim=1)
        weights = torch.full((len(points),), exp(sphere.log_volume) / len(points), dtype=F64)
    law = sphere.step_law(local, x, torch.tensor(a, dtype=F64))
    density = law.log_prob(points).exp() * weights
    slack = 0.06 if d == 3 else 1e-9 if d == 1 or a < 1 else 5e-3  # at a = 1 the long ways round have a pole
    assert abs(float(density.sum()) - 1) < slack
    n = 50_000
    many = un.Local(drift.expand(n, -1), torch.ones(n, 1, dtype=F64))
    drawn = sphere.step_law(many, x.expand(n, -1), torch.tensor(a)).draw(un.NoiseSource(2, n))
    gap = (drawn.mean(0) - density @ points).abs()
    assert float((gap / (drawn.std(0) / n**0.5 + slack)).max()) < 4
    assert d == 1 or a < 1 or abs(float((density * ((x * points).sum(1).acos().sinc())).sum()) - 1) > 0.01
