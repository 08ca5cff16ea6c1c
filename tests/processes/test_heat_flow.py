"""Brownian motion of angles: composition, both equations of Kolmogorov, Dynkin's formula, and what it refuses."""

from math import pi

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.heat_laws import TURN

PROCESS = un.WrappedNormal((1,))


def rows(*values):
    return torch.tensor(values, dtype=torch.float64).reshape(-1, 1)


@pytest.mark.parametrize(("s", "t"), [(0.2, 0.5), (0.6, 0.95), (0.0, 1.0)])
def test_kernels_compose(s, t):
    """q(x_t | x_0) = int q(x_t | x_s) q(x_s | x_0) dx_s, by 2,048 nodes."""
    x0, x_t = rows(0.4, -3.0), rows(-2.8, 3.0)
    nodes, weights = PROCESS.space.nodes(4096)
    total = torch.zeros(2, dtype=torch.float64)
    for i in range(2):
        first = PROCESS.marginal(x0[i : i + 1].expand_as(nodes), s).log_prob(nodes)
        second = PROCESS.transition(nodes, s, t).log_prob(x_t[i : i + 1].expand_as(nodes))
        total[i] = (weights * (first + second).exp()).sum()
    assert torch.allclose(total, PROCESS.marginal(x0, t).log_prob(x_t).exp(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("t", [0.3, 0.7, 0.95])
def test_forward_and_backward_equations(t):
    """d/dt q = L* q in x_t, and d/ds q(x_t | x_s) = -L q in x_s."""
    x0, x = rows(0.4, 0.5, -3.0, 2.0), rows(0.45, -0.2, 3.0, 1.0)
    clock = torch.full((4,), t, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(PROCESS.marginal(x0, clock).log_prob(x).exp().sum(), clock)[0]
    flow = PROCESS.generator(t).adjoint(lambda y: PROCESS.marginal(x0, t).log_prob(y).exp(), x)
    assert torch.allclose(slope, flow, rtol=1e-9)
    early = torch.full((4,), t, dtype=torch.float64, requires_grad=True)
    slope = torch.autograd.grad(PROCESS.transition(x, early, 0.99).log_prob(x0).exp().sum(), early)[0]
    acted = PROCESS.generator(t).act(lambda y: PROCESS.transition(y, t, 0.99).log_prob(x0).exp(), x)
    assert torch.allclose(slope, -acted, rtol=1e-9)


def test_dynkins_formula():
    """E phi(x_t) - E phi(x_s) = int E (L phi)(x_u) du, by the process's own nodes and Gauss's in time."""

    def phi(y):
        return torch.cos(2 * y[:, 0]) + torch.sin(y[:, 0])

    def mean(function, t):
        nodes, log_weight = PROCESS.support(rows(0.7), t)
        return (log_weight[:, 0].exp() * function(nodes[:, 0])).sum()

    low, high = 0.4, 0.9
    line, weight = (torch.as_tensor(v) for v in np.polynomial.legendre.leggauss(40))
    times = low + (high - low) * (line + 1) / 2
    acted = [mean(lambda y, t=t: PROCESS.generator(float(t)).act(phi, y), float(t)) for t in times]
    change = (high - low) / 2 * (weight * torch.stack(acted)).sum()
    assert torch.allclose(change, mean(phi, high) - mean(phi, low), rtol=1e-9)


def test_waves_fade_as_they_must():
    """E e^{ik x_t} = e^{ik x_0 - k^2 v/2} for any noise: the nodes of narrow and of wide laws know it."""
    x0 = rows(*[0.7] * 6)
    t = torch.tensor([0.0, 0.3, 0.56, 0.6, 0.8, 1.0], dtype=torch.float64)
    nodes, log_weight = PROCESS.support(x0, t)
    v = PROCESS.variance(t, x0)[:, 0]
    for k in (1, 2):
        found = (log_weight.exp() * torch.cos(k * nodes[..., 0])).sum(0)
        assert torch.allclose(found, torch.exp(-k * k * v / 2) * torch.cos(torch.tensor(0.7 * k)), atol=1e-10)


def test_the_size_of_scores_is_within_an_eighth():
    v = torch.tensor([1e-3, 0.1, 0.5, 1.0, 1.5, 2.0, 4.0, 9.0], dtype=torch.float64)
    t = PROCESS.schedule.time_of_log_snr(-v.log())
    x = TURN / 1024 * torch.arange(1024, dtype=torch.float64) - pi
    for one, clock in zip(v.tolist(), t.tolist(), strict=True):
        law = PROCESS.marginal(torch.zeros(1024, 1, dtype=torch.float64), clock)
        mean_square = TURN / 1024 * (law.log_prob(x[:, None]).exp() * law.score(x[:, None])[:, 0].square()).sum()
        ratio = float(mean_square / PROCESS.score_size(clock, x[:, None])[0].square())
        assert 1 - 1e-3 < ratio < 1.126, one


def test_the_prior_is_counted():
    short = un.WrappedNormal((2,), un.schedules.VE(0.01, 1.0))
    x0 = torch.tensor([[0.1, 3.0], [-2.0, 0.5]])
    x = TURN / 512 * torch.arange(512, dtype=torch.float64)
    log_h = torch.stack([-0.5 * (x + TURN * k).square() for k in range(-8, 9)]).logsumexp(0) - 0.5 * torch.tensor(TURN).log()
    exact = 2 * TURN / 512 * (log_h.exp() * (log_h + torch.tensor(TURN).log())).sum()
    assert torch.allclose(short.prior_kl(x0).double(), exact.double(), rtol=1e-5)
    assert torch.allclose(short.prior_kl(x0, torch.tensor([1.0, 1.0])).double(), exact.double(), rtol=1e-5)
    assert float(PROCESS.prior_kl(x0[:, :1]).max()) < 1e-8


def test_a_fixed_schedules_information_is_remembered_and_a_learned_ones_is_not():
    x = rows(0.1, 3.0)
    process = un.WrappedNormal((1,), un.schedules.VE(0.01, 1.5))
    first = process.information(1.0, x)
    assert torch.equal(first, process.information(1.0, x)) and torch.equal(first, process.prior_kl(x, torch.ones(2)))
    process.schedule = un.schedules.VE(0.01, 1.0)
    assert float(process.information(1.0, x)[0]) > 2 * float(first[0])


def test_float32_states_stay_float32():
    x0 = torch.tensor([[0.3], [3.1]])
    law = PROCESS.marginal(x0, 0.5)
    x_t = law.draw(un.NoiseSource(0, 2))
    assert (
        x_t.dtype
        == torch.float32
        == law.score(x_t).dtype
        == PROCESS.posterior(x_t, x0, 0.2, 0.5).draw(un.NoiseSource(1, 2)).dtype
    )
    assert PROCESS.local(x_t, 0.5).diffusion.dtype == torch.float32
    assert PROCESS.reverse(x_t, x0, 0.5).local().drift.dtype == torch.float32
    assert PROCESS.prior(2, torch.float32).draw(un.NoiseSource(0, 2)).dtype == torch.float32


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"Cosine scales the data by alpha = .*VE\(0.01, 4.5\)"):
        un.WrappedNormal((1,), un.schedules.Cosine())
    with pytest.raises(ValueError, match="does not fit"):
        un.WrappedNormal((3,), un.schedules.PerCoordinate([un.schedules.VE(), un.schedules.VE()]))
    with pytest.raises(ValueError, match="exact expectation over 3 angles"):
        un.WrappedNormal((3,)).support(torch.zeros(1, 3), 0.5)
    with pytest.raises(ValueError, match="not before"):
        PROCESS.transition(rows(0.0), 0.5, 0.4)
    bare = un.HeatProcess(un.Circle(), un.schedules.VE(), un.schedules.VE())
    with pytest.raises(TypeError, match="does not say its heat kernel: write the method law"):
        bare.marginal(torch.zeros(1), 0.5)
    with pytest.raises(TypeError, match="uniform law"):
        bare.prior(1)
