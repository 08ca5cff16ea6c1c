"""Jump-diffusion: kernels by quadrature, the operator's equations, the way back, and what each mutant would change."""

import pytest
import torch

import unnoise as un
from unnoise.jump_laws import graded_nodes
from unnoise.oracles import cloud_mixture
from unnoise.processes.jump_kernels import NormalJumps

PROCESS = un.JumpDiffusion((1,), un.schedules.LinearBeta(), jumps=3.0, scale=1.5)
X = torch.linspace(-4, 4, 9, dtype=torch.float64).unsqueeze(1)
H = 0.02
LINE = torch.arange(-24, 24, H, dtype=torch.float64).unsqueeze(1)
WEIGHTS, MEANS = torch.tensor([0.3, 0.7]).double(), torch.tensor([[-2.0], [1.0]]).double()
VARIANCES = torch.tensor([0.09, 0.04]).double()


def oracle(process=PROCESS):
    return cloud_mixture(process, WEIGHTS, MEANS, VARIANCES)


def from_point(value, rows):
    return torch.full((rows, 1), value, dtype=torch.float64)


def test_kernels_compose_to_the_marginal():
    """int q(x_t | x_s) q(x_s | x_0) dx_s = q(x_t | x_0), and all are densities: 1e-6 asked, 1e-10 here."""
    before = PROCESS.marginal(from_point(0.7, len(LINE)), 0.3).log_prob(LINE).exp()
    assert abs(float(before.sum()) * H - 1) < 1e-10
    for x in X:
        after = PROCESS.transition(LINE, 0.3, 0.8).log_prob(x.expand(len(LINE), 1)).exp()
        whole = PROCESS.marginal(from_point(0.7, 1), 0.8).log_prob(x.reshape(1, 1)).exp()
        torch.testing.assert_close((after * before).sum() * H, whole[0], rtol=0, atol=1e-10)


def test_posterior_is_bayes():
    s, t, x_t, x0 = 0.3, 0.8, from_point(1.4, 41), from_point(0.7, 41)
    x_s = torch.linspace(-3, 3, 41, dtype=torch.float64).unsqueeze(1)
    ours = PROCESS.posterior(x_t, x0, s, t).log_prob(x_s)
    exact = PROCESS.transition(x_s, s, t).log_prob(x_t) + PROCESS.marginal(x0, s).log_prob(x_s)
    exact = exact - PROCESS.marginal(x0, t).log_prob(x_t)
    torch.testing.assert_close(ours, exact, rtol=0, atol=1e-9)


class UnscaledJumps(un.JumpDiffusion):
    """The mutant that forgets the factor a of a throw in its generator."""

    def _rates(self, t):
        return NormalJumps(torch.full_like(t, self.jumps), torch.full_like(t, self.scale**2))


def forward_gap(process, t=0.4):
    """d/dt q_t - L_t* q_t of the noised data law."""
    own, clock = oracle(PROCESS), torch.full((len(X),), t, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(own.log_marginal(X, clock).exp().sum(), clock)[0]
    ours = process.generator(t).adjoint(lambda x: own.log_marginal(x, t).exp(), X)
    return float((ours - slope).abs().max())


def test_closed_form_solves_the_forward_equation_and_a_missing_scale_is_seen():
    assert forward_gap(PROCESS) < 1e-8
    assert forward_gap(UnscaledJumps((1,), un.schedules.LinearBeta(), 3.0, 1.5)) > 1e-2


def test_adjoint_is_dual_to_the_action():
    generator, own = PROCESS.generator(0.4), oracle()
    x, h = LINE[::5], 5 * H

    def phi(y):
        return torch.sin(y[:, 0]) + 0.1 * y[:, 0].square()

    def q(y):
        return own.log_marginal(y, 0.4).exp()

    left, right = q(x) * generator.act(phi, x), phi(x) * generator.adjoint(q, x)
    torch.testing.assert_close(left.sum() * h, right.sum() * h, rtol=0, atol=1e-8)


def test_way_back_is_the_reversed_generator():
    """The closed mixture against `Generator.reversed`, its rate against quadrature, and the law of its destinations."""
    for t in (0.05, 0.4):
        own, clock = oracle(), torch.full((len(X),), t, dtype=torch.float64)
        closed, defined = own(X, clock).local(), un.FromMarginal(own.log_marginal, PROCESS, X, clock).local()
        torch.testing.assert_close(closed.drift, defined.drift, rtol=0, atol=1e-9)
        y = X.flip(0) + 0.3
        rates = closed.jumps.log_rate(X, y)
        torch.testing.assert_close(rates, defined.jumps.log_rate(X, y), rtol=0, atol=1e-9)
        torch.testing.assert_close(closed.jumps.total(X), closed.jumps.rates(X)[1].sum(1), rtol=1e-7, atol=0)
        torch.testing.assert_close(rates, closed.jumps.law(X).log_prob(y), rtol=0, atol=1e-9)


def test_conditional_rate_counts_throws():
    """E[N | x_t, x_0]/t in all; a ratio upside down is another number."""
    x0, t = from_point(0.7, len(X)), torch.full((len(X),), 0.4, dtype=torch.float64)
    back = PROCESS.conditioned_local(X, x0, t).jumps
    weight = PROCESS.marginal(x0, t).log_terms(X).softmax(1)
    exact = (weight * torch.arange(PROCESS.terms)).sum(1) / 0.4
    torch.testing.assert_close(back.total(X), exact, rtol=1e-10, atol=0)
    y, log_weight = back.nodes(X)
    here, there = X.repeat_interleave(y.shape[1], 0), y.flatten(0, 1)
    upside_down = (back.forward.log_rate(there, here) - back.log_ratio(here, there)).reshape(log_weight.shape)
    assert float(((upside_down + log_weight).exp().sum(1) / exact - 1).abs().max()) > 0.5


def test_prior_misses_what_it_says():
    x0 = torch.tensor([[-2.0], [0.3], [1.1]]).double()
    early = un.JumpDiffusion((1,), un.schedules.VE(0.01, 2.0), jumps=2.0, scale=3.0)
    exact, bound = early.prior_kl(x0), early.marginal(x0, 1.0).kl_bound(early.prior(3, torch.float64))
    assert bool((exact > 0).all()) and bool((exact <= bound).all()) and float((bound - exact).max()) < 0.2
    assert float(un.JumpDiffusion((1,)).prior_kl(x0).abs().max()) < 1e-12  # alpha_1 = 0


def test_draws_have_the_law():
    """Moments of 40,000 draws within 5 standard errors: a false alarm in 1e-6 for each of four."""
    rows, process = 40_000, un.JumpDiffusion((2,), un.schedules.LinearBeta(), jumps=3.0, scale=1.5)
    x0 = torch.tensor([[0.7, -1.0]]).double().expand(rows, 2)
    x = process.marginal(x0, 0.4).draw(un.NoiseSource(3, rows))
    alpha, sigma = (float(f(0.4)) for f in (process.schedule.alpha, process.schedule.sigma))
    gap = x - alpha * x0
    throw, mean = (alpha * 1.5) ** 2, 3.0 * 0.4
    square = gap.square()
    for own, exact in ((gap, 0.0), (square, sigma**2 + mean * throw), (square.prod(1), None)):
        exact = (sigma**2 + mean * throw) ** 2 + mean * throw**2 if exact is None else exact  # throws move both
        assert bool(((own.mean(0) - exact).abs() < 5 * own.std(0) / rows**0.5).all())


def test_nodes_of_the_plane_and_single_precision():
    centre, one = torch.tensor([[0.3, -0.2]]).double(), torch.ones(1).double()
    y, log_weight = graded_nodes(centre, 0.1 * one, 9 * one, 2)
    for width in (0.1, 1.0):
        density = torch.exp(-0.5 * (y - centre.unsqueeze(1)).square().sum(2) / width**2) / (2 * torch.pi * width**2)
        torch.testing.assert_close((density * log_weight.exp()).sum(1), one, rtol=1e-8, atol=0)
    x = X.float()
    assert PROCESS.marginal(x, 0.4).draw(un.NoiseSource(0, len(x))).dtype is torch.float32
    assert oracle()(x, 0.4).local().drift.dtype is torch.float32


class Same(torch.nn.Module):
    def forward(self, x, t):
        return x


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="jumps = 0: pass a positive number"):
        un.JumpDiffusion((1,), jumps=0)
    with pytest.raises(ValueError, match="at most 2"):
        un.JumpDiffusion((3,)).local(torch.zeros(1, 3), 0.4).jumps.nodes(torch.zeros(1, 3))
    with pytest.raises(ValueError, match="for each cloud the 1 numbers of its mean"):
        un.Denoiser(Same(), PROCESS)(X, 0.4)
