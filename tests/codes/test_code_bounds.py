"""The bounds of models of categories by vectors: under every process, order and choice of training they are bounds."""

from math import pi

import pytest
import torch
from exact_codes import ExactPair, Told

import unnoise as un
from unnoise import codes

Q = torch.tensor([[0.35, 0.05], [0.1, 0.5]], dtype=torch.float64)


def gaussian(code, **options):
    return un.Denoiser(Told(code, 1, shown="self_condition" in options), un.Gaussian(code.shape), code=code, **options)


def in_order(code):
    shifts = torch.tensor([[2.0], [-2.0]]).expand(code.shape)
    code.cutoff = 0.05
    return un.Denoiser(
        Told(code, 2), un.Gaussian(code.shape, un.schedules.Staggered(un.schedules.Cosine(), shifts)), code=code
    )


def on_the_orthant(code):
    return un.Denoiser(Told(code, 3), un.CoxIngersollRoss(code.shape, alpha=1.0), code=code)


MODELS = {
    "analog bits": lambda: gaussian(codes.bits(4, (1,)).double()),
    "shown its estimate": lambda: gaussian(codes.bits(2, (2,)).double(), self_condition=True),
    "simplex": lambda: gaussian(codes.one_hot(2, (1,), 0.8).double()),
    "embedding": lambda: gaussian(codes.embeddings(3, (1,), 2, seed=4).double()),
    "one after another": lambda: in_order(codes.bits(2, (2,)).double()),
    "positive numbers": lambda: on_the_orthant(codes.corners(2, (1,)).double()),
    "one positive number": lambda: on_the_orthant(
        codes.Codebook(un.Finite(3, (1,)), torch.tensor([[0.0], [1.0], [4.0]])).double()
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_bound_of_a_random_network_is_a_bound(name):
    denoiser = MODELS[name]()
    with torch.no_grad():
        bound = un.bound(denoiser, denoiser.space.states(), times=un.Quadrature(24), exact=True).total
    assert 0.1 < float((-bound).exp().sum()) <= 1 + 1e-6


class Slow(un.CoxIngersollRoss):
    """The mutant: what conditioned_local says of the reverse is half of it, so that the rate is of another process."""

    def conditioned_local(self, x_t, x0, t):
        return self.reverse_local(x_t, 0.5 * self.marginal(x0, t).lines(x_t), t)


def test_on_the_orthant_another_rate_is_no_bound():
    code = codes.corners(2, (1,)).double()
    half = un.Denoiser(Half(), Slow(code.shape, alpha=1.0), code=code)
    with torch.no_grad():
        total = un.bound(half, half.space.states(), times=un.Quadrature(24), exact=True, fast=False).total
    assert abs(float((-total).exp().sum()) - 1) > 0.05


class Half(torch.nn.Module):
    def forward(self, x, t):
        return x.new_zeros(len(x), 1, 2)


@pytest.mark.parametrize("kind", ["bits", "corners", "in order"])
def test_the_exact_model_has_the_entropy_of_the_data(kind):
    """Every bound is -log q(x): one position on the orthant, two dependent ones under Gaussian noise."""
    if kind == "corners":
        code = codes.corners(2, (1,)).double()
        denoiser = un.Denoiser(Half(), un.CoxIngersollRoss(code.shape, alpha=1.0), code=code)
        wanted = torch.full((2,), 2.0, dtype=torch.float64).log()
    else:
        code = codes.bits(2, (2,)).double()
        schedule = un.schedules.Staggered(un.schedules.Cosine(), torch.tensor([[2.0], [-2.0]]))
        process = un.Gaussian(code.shape, schedule if kind == "in order" else None)
        code.cutoff = 0.05
        denoiser = un.Denoiser(ExactPair(code, process, Q), process, code=code)
        wanted = -Q.flatten().log()
    x = denoiser.space.states()
    order = (x[:, 0] * 2 + x[:, 1]) if kind != "corners" else x[:, 0]
    with torch.no_grad():
        bound = un.bound(denoiser, x, times=un.Quadrature(48), exact=True).total
    assert float((bound - wanted[order]).abs().max()) < 3e-4


@torch.no_grad()
def exact_and_spread(denoiser, objective):
    x = denoiser.space.states()
    exact = un.bound(denoiser, x, times=un.Quadrature(32), exact=True).total
    return exact, float(objective(x.repeat(4000, 1), un.noise.NoiseSource(0, 8000)).total.std())


def test_time_is_warped_by_a_learned_schedule():
    """It moves by the bound's variance, which falls; the bound is that of the exact model before and after."""
    code = codes.bits(2, (1,)).double()
    code.cutoff = 0.0  # the schedule's own `high` is the noise level at which vectors are read
    denoiser = un.Denoiser(Half(), un.Gaussian(code.shape, un.schedules.Learned(high=3.2, low=-10.0)), code=code)
    objective = un.Objective(denoiser, times=un.Stratified())
    first, before = exact_and_spread(denoiser, objective)
    un.fit_schedule(objective, denoiser.space.states(), steps=40, batch=256, seed=0)
    last, after = exact_and_spread(denoiser, objective)
    for exact in (first, last):
        assert float((exact - torch.tensor(2.0).log()).abs().max()) < 1e-4
    assert after < 0.85 * before


def own_law(denoiser, steps=150, points=401, reach=5.0):
    """The law of two categories that the reverse diffusion of one number draws: its steps as matrices on a grid."""
    z = torch.linspace(-reach, reach, points, dtype=torch.float64)
    h, low = float(z[1] - z[0]), denoiser.cutoff
    p = torch.exp(-0.5 * z.square()) / (2 * pi) ** 0.5
    times = low + (1 - low) * torch.linspace(1, 0, steps + 1, dtype=torch.float64)
    for t, s in zip(times[:-1], times[1:], strict=True):
        law = denoiser(z[:, None, None], t).step(s)
        mean, std = law.mean.flatten(), law.std.expand(points, 1, 1).flatten()
        kernel = torch.exp(-0.5 * ((z - mean[:, None]) / std[:, None]).square()) / (std[:, None] * (2 * pi) ** 0.5)
        p = (p @ kernel) * h
    assert float(p.sum() * h) == pytest.approx(1, abs=1e-3)
    return (p[:, None] * denoiser(z[:, None, None], low).log_probs[:, 0].exp()).sum(0) * h


@pytest.mark.parametrize("seed", [0, 2])
def test_the_bound_lies_above_the_model_s_own_law(seed):
    """-log p(x) of the reverse diffusion, on a grid of 401 numbers in 150 steps, is never above the bound."""
    code = codes.bits(2, (1,)).double()
    denoiser = un.Denoiser(Told(code, seed, 2.0), un.Gaussian(code.shape), code=code)
    with torch.no_grad():
        law = own_law(denoiser)
        bound = un.bound(denoiser, denoiser.space.states(), times=un.Quadrature(64), exact=True).total
    gap = bound + law.log()
    assert float(law.sum()) == pytest.approx(1, abs=1e-3)
    assert float(gap.min()) > -2e-3 and float(gap.max()) > 5e-3


def own_law_on_the_orthant(denoiser, steps=30, points=170, reach=8.5):
    """The same of one positive number z = y^2/4, by short steps of bridges on a grid of y; what the grid misses, less
    than 0.008, is put back."""
    y = (torch.arange(points, dtype=torch.float64) + 0.5) * reach / points
    h, low, z = float(y[1] - y[0]), denoiser.cutoff, y.square() / 4
    p = torch.exp(-z) * y / 2  # the density of y under the prior
    times = torch.linspace(1, low, steps + 1, dtype=torch.float64)
    near, far = z.repeat_interleave(points)[:, None, None], z.repeat(points)[:, None, None]
    for t, s in zip(times[:-1], times[1:], strict=True):
        kernel = denoiser(near, t).step(s).log_prob(far).exp().reshape(points, points) * y / 2
        whole = kernel.sum(1) * h
        assert float((whole - 1)[:-30].abs().max()) < 8e-3
        p = (p / whole) @ kernel * h
    return (p[:, None] * denoiser(z[:, None, None], low).log_probs[:, 0].exp()).sum(0) * h


def test_the_bound_lies_above_the_own_law_on_the_orthant():
    code = codes.Codebook(un.Finite(3, (1,)), torch.tensor([[0.0], [1.0], [4.0]])).double()
    schedule = un.schedules.VE(0.3, 2.5)
    denoiser = un.Denoiser(Told(code, 1, 1.5), un.CoxIngersollRoss(code.shape, alpha=1.0, schedule=schedule), code=code)
    code.cutoff = 0.2
    with torch.no_grad():
        law = own_law_on_the_orthant(denoiser)
        bound = un.bound(denoiser, denoiser.space.states(), times=un.Quadrature(48), exact=True).total
    gap = bound + law.log()
    assert float(law.sum()) == pytest.approx(1, abs=1e-3)
    assert float(gap.min()) > -5e-3 and float(gap.max()) > 5e-3


def test_cross_entropy_is_that_of_the_categories():
    """By hand: -log p(x^k | z_t), at even times; the gradient keeps learned vectors apart."""
    code = codes.embeddings(3, (2,), 4, seed=0).double()
    denoiser = un.Denoiser(Told(code), un.Gaussian(code.shape), code=code)
    x, t = torch.tensor([[0, 2], [1, 1]]), torch.tensor([0.4, 0.7], dtype=torch.float64)
    z0 = code.encode(x, un.noise.NoiseSource(0, 2), {})[0]
    prediction = denoiser(denoiser.process.marginal(z0, t).draw(un.noise.NoiseSource(0, 2)), t)
    found = un.weightings.CrossEntropy().rate(prediction, denoiser.process, z0)
    wanted = -prediction.log_probs.gather(-1, x.unsqueeze(-1)).sum((1, 2))
    assert float((found - wanted).detach().abs().max()) == 0
    loss = un.Objective(denoiser, un.weightings.CrossEntropy(), times=un.Stratified())(x).loss
    loss.sum().backward()
    assert float(code.raw.grad.abs().sum()) > 0
