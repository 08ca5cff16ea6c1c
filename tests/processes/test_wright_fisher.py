"""The Wright-Fisher process: composition, both equations of Kolmogorov, reversal, moments of its nodes, what it refuses."""

import pytest
import torch

import unnoise as un

PROCESS = un.WrightFisher([1.5, 2.0], un.schedules.VE(0.2, 2.0))
THREE = un.WrightFisher([1.5, 2.0, 1.0], un.schedules.VE(0.2, 2.0))
VERTICES = un.WrightFisher(3, vertices=True)


def slope(function, t, h=2e-3):
    """d/dt by five points: the rest is of the order h^4."""
    far, near = (function(t + k * h) - function(t - k * h) for k in (2, 1))
    return (8 * near - far) / (12 * h)


def rows(*values):
    return torch.tensor(values, dtype=torch.float64)


def test_kernels_compose():
    """q(x_t | x_0) = int q(x_t | x_s) q(x_s | x_0) dx_s, by the process's own nodes."""
    x0, x_t = rows([0.3, 0.7], [0.9, 0.1]), rows([0.5, 0.5], [0.2, 0.8])
    nodes, log_weight = PROCESS.support(x0, 0.2)
    each = [PROCESS.transition(x, 0.2, 0.6).log_prob(x_t) for x in nodes]
    total = (log_weight + torch.stack(each)).exp().sum(0)
    assert torch.allclose(total, PROCESS.marginal(x0, 0.6).log_prob(x_t).exp(), rtol=1e-6)


@pytest.mark.parametrize("process", [THREE, VERTICES])
def test_forward_and_backward_equations(process):
    """d/dt q = L* q in x_t, and d/ds q(x_t | x_s) = -L q in x_s."""
    t = 0.5
    x0, x = rows([0.0, 1.0, 0.0], [1.0, 0.0, 0.0]), rows([0.3, 0.5, 0.2], [0.6, 0.1, 0.3])
    change = slope(lambda s: process.marginal(x0, s).log_prob(x).exp(), t)
    flow = process.generator(t).adjoint(lambda y: process.marginal(x0, t).log_prob(y).exp(), x)
    assert torch.allclose(change, flow, rtol=1e-6)
    start = rows([0.2, 0.2, 0.6], [0.5, 0.2, 0.3])
    change = slope(lambda s: process.transition(start, s, 0.7).log_prob(x).exp(), t)
    acted = process.generator(t).act(lambda y: process.transition(y, t, 0.7).log_prob(x).exp(), start)
    assert torch.allclose(change, -acted, rtol=1e-6)


@pytest.mark.parametrize("process", [PROCESS, un.WrightFisher([1.5, 2.0], vertices=True)])
def test_dynkins_formula(process):
    """d/dt E phi = E L phi, by the nodes of the process; with another stationary law it is not."""
    x0, t = torch.eye(process.space.size, dtype=torch.float64)[:2], 0.5

    def mean(function, t):
        nodes, log_weight = process.support(x0, t)
        return (log_weight.exp() * torch.stack([function(y) for y in nodes])).sum(0)

    def phi(x):
        return torch.sin(2 * x[:, 0]) + x[:, 1].square()

    change = slope(lambda s: mean(phi, s), t)
    assert torch.allclose(change, mean(lambda y: process.generator(t).act(phi, y), t), rtol=1e-6)
    other = un.WrightFisher(process.alpha + 0.5, process.schedule, process.vertices)
    assert not torch.allclose(change, mean(lambda y: other.generator(t).act(phi, y), t), rtol=1e-2)


@pytest.mark.parametrize("process", [THREE, VERTICES])
def test_the_reverse_is_that_of_the_generator(process):
    """The closed form, in which the stationary law has cancelled, against the reversed generator by autograd."""
    x0, x = rows([0.0, 1.0, 0.0], [1.0, 0.0, 0.0]), rows([0.3, 0.5, 0.2], [0.6, 0.1, 0.3])
    closed = process.reverse(x, x0, 0.4).local()
    general = un.processes.Process.conditioned_local(process, x, x0, 0.4)
    assert torch.allclose(closed.drift, general.drift, rtol=1e-8) and torch.equal(closed.diffusion, general.diffusion)


@pytest.mark.parametrize("process", [PROCESS, THREE, VERTICES])
@pytest.mark.parametrize("t", [0.0, 0.5, 1.0])
def test_nodes_know_the_moments(process, t):
    """Mass one, and E x = m + (x_0 - m) e^{-theta tau/2}."""
    size = process.space.size
    x0 = torch.eye(size, dtype=torch.float64)[:2]
    nodes, log_weight = process.support(x0, t)
    weight, m = log_weight.exp(), process.alpha / process.theta
    mean = m + (x0 - m) * torch.exp(-process.theta * process.tau(t, x0) / 2).unsqueeze(-1)
    assert torch.allclose(weight.sum(0), torch.ones(2, dtype=torch.float64), atol=1e-6)
    assert torch.allclose((weight.unsqueeze(-1) * nodes).sum(0), mean, atol=1e-6)


@pytest.mark.conformance
def test_the_prior_is_counted_and_of_the_named_measure():
    """KL at vertices by the nodes; inside at most what is counted, and near; a prior on the flat measure of all shares is
    not it.
    """
    short = un.WrightFisher(3, un.schedules.VE(0.2, 0.8), vertices=True)
    x0 = torch.eye(3, dtype=torch.float64)
    nodes, log_weight = short.support(x0, 1.0)
    log_r = torch.stack([short.marginal(x0, 1.0).log_ratio(x) for x in nodes])
    exact = (log_weight.exp() * log_r).sum(0)
    assert torch.allclose(short.prior_kl(x0), exact, atol=1e-6) and float(exact.min()) > 0.1
    inside = un.WrightFisher([1.5, 2.0, 1.0], un.schedules.VE(0.2, 0.8))
    x0 = rows([0.3, 0.5, 0.2])
    nodes, log_weight = inside.support(x0, 1.0)
    log_r = torch.stack([inside.marginal(x0, 1.0).log_ratio(x) for x in nodes])
    kl = (log_weight.exp() * log_r).sum(0)
    assert bool((kl < inside.prior_kl(x0)).all()) and float((inside.prior_kl(x0) / kl).max()) < 2.2
    points, weights = un.Simplex(3).nodes(24)
    mass = (weights * inside.prior(len(points), torch.float64).log_prob(points).exp()).sum()
    assert abs(float(mass) - 1) < 1e-3 and abs(float(mass) * 3**0.5 - 1) > 0.5  # by area it would be sqrt(3)


@pytest.mark.conformance
def test_the_flow_has_the_datas_density():
    """Along the probability flow, with its volume, from the least noise on: within the integrator's tolerance."""
    process = un.WrightFisher([1.5, 2.0], un.schedules.VE(0.35, 2.2))
    points, ages = rows([0.2, 0.8], [0.7, 0.3]), torch.tensor([0.1, 0.2])
    truth = un.oracles.simplex_mixture(process, torch.tensor([0.4, 0.6]), points, ages)
    x = rows([0.1, 0.9], [0.5, 0.5], [0.97, 0.03])
    log_p, _ = un.likelihood(truth, x)
    assert torch.allclose(log_p, truth.log_marginal(x, 0.0), atol=1e-3)
    with pytest.raises(TypeError, match="has no kernel but that of a small step: .* un.bound"):
        un.likelihood(un.oracles.vertex_table(VERTICES, torch.ones(3) / 3), torch.eye(3).double())


def test_float32_states_stay_float32():
    x0 = torch.eye(3)
    law = VERTICES.marginal(x0, 0.5)
    x_t = law.draw(un.NoiseSource(0, 3))
    assert x_t.dtype == law.score(x_t).dtype == VERTICES.local(x_t, 0.5).drift.dtype == torch.float32
    assert VERTICES.reverse(x_t, x0, 0.5).local().drift.dtype == torch.float32
    assert VERTICES.prior(2, torch.float32).draw(un.NoiseSource(0, 2)).dtype == torch.float32


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="a number of at least 1"):
        un.WrightFisher([0.5, 2.0])
    with pytest.raises(ValueError, match="Cosine scales the data"):
        un.WrightFisher(3, un.schedules.Cosine())
    with pytest.raises(ValueError, match="begin with at least 0.01"):
        un.WrightFisher(3, un.schedules.VE(0.001, 2.0))
    with pytest.raises(ValueError, match="row 0 of x0 has the largest share 0.5"):
        VERTICES.marginal(rows([0.5, 0.3, 0.2]), 0.5)
    with pytest.raises(ValueError, match="at most size 3"):
        un.WrightFisher(4).support(torch.full((1, 4), 0.25), 0.5)
    with pytest.raises(TypeError, match="VertexPosterior is for data at vertices"):
        un.Denoiser(torch.nn.Identity(), THREE, predicts=un.VertexPosterior)
