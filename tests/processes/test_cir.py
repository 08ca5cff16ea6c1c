"""Cox-Ingersoll-Ross noise: equations of Kolmogorov, Dynkin, the bound two ways, reversal, the flow, what it refuses."""

import pytest
import torch

import unnoise as un
from unnoise.generators import FokkerPlanck, Generator
from unnoise.objectives import default_decoder
from unnoise.oracles import orthant_mixture

PROCESS = un.CoxIngersollRoss((), 1.3, 2.0, un.schedules.VE(0.3, 8.0))
POINTS, AGES = torch.tensor([0.4, 3.0], dtype=torch.float64), torch.tensor([0.3, 0.5])


def slope(function, t, h=2e-3):
    """d/dt by five points: the rest is of the order h^4."""
    far, near = (function(t + k * h) - function(t - k * h) for k in (2, 1))
    return (8 * near - far) / (12 * h)


def oracle(process=PROCESS):
    return orthant_mixture(process, torch.tensor([0.4, 0.6]), POINTS, AGES)


class Tabulated(torch.nn.Module):
    """An oracle's values by linear interpolation on a fine grid of sqrt(x): the same numbers, at less cost."""

    def __init__(self, truth, nodes=3000, most=12.0):
        super().__init__()
        self.truth, self.grid = truth, torch.linspace(1e-9, most, nodes, dtype=torch.float64)

    def forward(self, x, t):
        table = self.truth(self.grid.square(), t[:1].double()).value
        place = (x.double().sqrt() / self.grid[-1] * (len(self.grid) - 1)).clamp(0, len(self.grid) - 1.001)
        low = place.floor().long()
        return torch.lerp(table[low], table[low + 1], place - low).to(x.dtype)


class Shifted(Tabulated):
    """A wrong network."""

    def forward(self, x, t):
        return super().forward(x, t) + 0.5


def test_forward_backward_and_dynkin():
    """d/dt q = L* q, d/ds q = -L q, and d/dt E phi = E L phi by the process's own nodes."""
    t, x0, x = 0.5, torch.tensor([0.4, 3.0]).double(), torch.tensor([1.1, 0.3]).double()
    change = slope(lambda s: PROCESS.marginal(x0, s).log_prob(x).exp(), t)
    flow = PROCESS.generator(t).adjoint(lambda y: PROCESS.marginal(x0, t).log_prob(y).exp(), x)
    assert torch.allclose(change, flow, rtol=1e-6)
    change = slope(lambda s: PROCESS.transition(x0, s, 0.7).log_prob(x).exp(), t)
    acted = PROCESS.generator(t).act(lambda y: PROCESS.transition(y, t, 0.7).log_prob(x).exp(), x0)
    assert torch.allclose(change, -acted, rtol=1e-6)

    def mean(function, t):
        nodes, log_weight = PROCESS.support(x0, t)
        return (log_weight.exp() * torch.stack([function(y) for y in nodes])).sum(0)

    change = slope(lambda s: mean(torch.sin, s), t)
    assert torch.allclose(change, mean(lambda y: PROCESS.generator(t).act(torch.sin, y), t), rtol=1e-6)


@pytest.mark.conformance
def test_the_bound_by_paths_is_that_by_the_integral():
    """E log dP/dQ over 4,000 simulated paths, of Gamma steps, against the divergence integral.

    For a wrong network; within 4.5 standard errors (a false alarm in 1e-5) and the share 0.03 that 200 steps leave.
    """
    n, eps = 4000, 0.3
    shift = un.Denoiser(Shifted(oracle()), PROCESS)
    x0 = torch.full((n,), 0.8).double()
    times = torch.linspace(eps, 1.0, 201, dtype=torch.float64)
    noise, total = un.NoiseSource(0, n), torch.zeros(n).double()
    x = PROCESS.marginal(x0, 1.0).draw(noise.at("end"))
    for i in range(200, 0, -1):  # the true reverse, conditioned on x_0, and the model's, from the same state
        t, step = times[i], times[i] - times[i - 1]
        true, ours = PROCESS.reverse(x, x0, t).local(), shift(x, t).local()
        laws = [PROCESS.space.step_law(local, x, step) for local in (true, ours)]
        x = laws[0].draw(noise.at(i))
        total = total + laws[0].log_prob(x) - laws[1].log_prob(x)
    clock = (times[1:] + times[:-1]) / 2
    exact = torch.zeros(1).double()
    for t in clock:
        nodes, log_weight = PROCESS.support(x0[:1], t)
        start = x0[:1].expand(len(nodes))
        y = nodes[:, 0]
        true, ours = PROCESS.reverse(y, start, t).local(), shift(y, t).local()
        gap = PROCESS.space.divergence(true, ours, y)
        exact = exact + (times[1] - times[0]) * (log_weight[:, 0].exp() * gap).sum()
    assert abs(float(total.mean() - exact)) < 4.5 * float(total.std()) / n**0.5 + 0.03 * float(exact)
    assert float(exact) > 0.3


@pytest.mark.conformance
def test_bounds_are_above_the_density_of_the_models_own_law():
    """Its reverse process solved on a grid of u = sqrt(x), where du = (b/2u - g^2/8u) dt + g/2 dW, and decoded: -log p(x_0)
    is never above the bound, and is the bound of the exact denoiser (0.01 for the grid)."""
    truth, eps = oracle(), 0.3
    x0 = torch.tensor([0.2, 0.8, 4.0], dtype=torch.float64)
    for model, decoder in ((truth, truth.decoder), (un.Denoiser(Shifted(truth), PROCESS), default_decoder(PROCESS))):

        def at(t, model=model):
            def local(u):
                now = model(u[:, 0].square(), torch.full((len(u),), float(t), dtype=torch.float64)).local()
                g2 = now.diffusion.detach().reshape(-1, 1).expand_as(u)
                return un.Local(drift=now.drift.detach().reshape(-1, 1) / (2 * u) - g2 / (8 * u), diffusion=g2 / 4)

            return Generator(un.Euclidean((1,)), local)

        grid = FokkerPlanck(at, [0.0], [7.0], [240])
        places = grid.points[:, 0]
        start = grid.law_of(lambda y: PROCESS.prior(len(y), torch.float64).log_prob(y[:, 0].square()) + y[:, 0].log())
        law = grid.solve(start, 1.0, eps, 50)
        given = [decoder.log_prob(PROCESS, None, x.expand(len(places)), places.square(), eps) for x in x0]
        exact = -torch.stack([(log_p.exp() * law).sum() for log_p in given]).log()
        ours = un.bound(model, x0, exact=True, times=un.Quadrature(24), cutoff=eps, decoder=decoder).total.detach()
        gap = ours - exact
        assert float(gap.min()) > -0.01 and (model is not truth or float(gap.max()) < 0.01), gap
    assert float(gap.max()) > 0.05


@pytest.mark.conformance
def test_the_flow_has_the_datas_density():
    x, truth = torch.tensor([0.05, 0.8, 6.0], dtype=torch.float64), oracle()
    log_p, _ = un.likelihood(truth, x)
    assert torch.allclose(log_p, truth.log_marginal(x, 0.0), atol=1e-3)


@pytest.mark.parametrize("missing", ["metric", "prior"])
def test_mutants_break_the_identity(missing, monkeypatch):
    """Drifts compared without 1/x, or the prior of another scale: the exact model's bound leaves -log q."""
    truth, x = oracle(), torch.tensor([0.5], dtype=torch.float64)

    def bound():
        return un.bound(truth, x, exact=True, times=un.Quadrature(32), decoder=truth.decoder).total

    assert torch.allclose(bound(), -truth.log_prob(x), atol=1e-6)
    if missing == "metric":
        flat = lambda self, true, model, x: 0.5 * ((true.drift - model.drift).square() / true.diffusion)  # noqa: E731
        monkeypatch.setattr(un.Orthant, "divergence", flat)
    else:
        kl = un.CoxIngersollRoss.prior_kl
        monkeypatch.setattr(
            un.CoxIngersollRoss, "prior_kl", lambda self, x0, t=1.0: kl(self, x0, t) + torch.tensor(2.0).log()
        )
    assert float((bound() + truth.log_prob(x)).abs()) > 0.05


def test_the_default_network_learns_beside_categories():
    process = un.Product(a=un.CoxIngersollRoss((2,)), c=un.Masking(3, (1,)))
    denoiser = un.Denoiser(un.networks.default_network(process, "tiny", seed=0), process)
    x0 = {"a": torch.tensor([[0.2, 3.0], [1.0, 0.0]]), "c": torch.tensor([[0], [2]])}
    un.Objective(denoiser)(x0, un.NoiseSource(0, 2)).loss.mean().backward()
    assert all(bool(p.grad.isfinite().all()) for p in denoiser.parameters() if p.grad is not None)
    x, _ = un.sample(denoiser, n=4, steps=8, seed=0)
    assert x["a"].dtype == torch.float32 and float(x["a"].min()) > 0


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="alpha = 0.5: pass a number of at least 1"):
        un.CoxIngersollRoss((), 0.5)
    with pytest.raises(ValueError, match="scale = -1.0: pass a positive number"):
        un.CoxIngersollRoss((), 2.0, -1.0)
    with pytest.raises(ValueError, match="Cosine scales the data"):
        un.CoxIngersollRoss((), schedule=un.schedules.Cosine())
    with pytest.raises(ValueError, match="x0 has the number -1, "):
        PROCESS.marginal(torch.tensor([1.0, -1.0]), 0.5)
    with pytest.raises(ValueError, match="two numbers at most"):
        un.CoxIngersollRoss((3,)).support(torch.ones(1, 3), 0.5)
    with pytest.raises(TypeError, match="has no kernel but that of a small step"):
        oracle()(torch.ones(1).double(), 0.5).step(0.4)


@pytest.mark.conformance
def test_the_exact_reverse_returns_the_data():
    """50,000 samples by 128 steps from fresh draws of the prior, against the law at the last noise.

    Kolmogorov's distance: above 0.01 in one run in 1e-4, and 0.003 for the steps.
    """
    n, truth = 50000, oracle()
    x, _ = un.sample(un.Denoiser(Tabulated(truth), PROCESS), n=n, steps=128, seed=0, dtype=torch.float64)
    root = (torch.arange(6000, dtype=torch.float64) + 0.5) / 6000 * 8
    density = truth.log_marginal(root.square(), 0.0).exp() * 2 * root * 8 / 6000
    ours = torch.searchsorted(x.sort().values, (root + 4 / 6000).square()) / n
    assert abs(float(density.sum()) - 1) < 1e-6
    assert float((ours - density.cumsum(0)).abs().max()) < 0.013
