"""The Kac process: its law with the atom, its paths, the bound of a path and the reversal, against what is known exactly.

Drawn laws are compared by the largest gap of distribution functions, at 2.7/sqrt(n): by chance exceeded once in a million.
"""

from math import exp, log, log2, pi

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise import networks
from unnoise.processes.kac_law import KacLaw, log_densities
from unnoise.verify import subject_of
from unnoise.verify.kac_kernels import kac_kernels

A, C = 3.0, 2.0
X, W = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(200))


def state(x, v):
    return torch.stack([torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(v, dtype=torch.float64)], 1).unsqueeze(2)


def oracle(nodes=40, **options):
    process = un.Kac((1,), speed=2.0, rate=1.5, **options)
    made = un.oracles.KacMixture(
        process, torch.tensor([0.4, 0.6]), torch.tensor([[-1.0], [1.0]]), torch.tensor([[0.4], [0.3]]), nodes
    )
    return made.ending_exactly()


def gap_of(drawn, cdf):
    """The largest gap of distribution functions, in units of 1/sqrt(n)."""
    x = drawn.double().flatten().sort().values
    n, exact = len(x), cdf(x)
    steps = torch.arange(n + 1) / n
    return max(float((exact - steps[:-1]).max()), float((steps[1:] - exact).max())) * n**0.5


def data_cdf(x):
    normal = torch.distributions.Normal
    return 0.4 * normal(-1.0, 0.4).cdf(x) + 0.6 * normal(1.0, 0.3).cdf(x)


def failing(rows):
    return [row.quantity for row in rows if not row.ok]


def test_the_law_its_atom_composition_and_equations():
    """Mass 1e-9, composition 1e-6, equations 1e-8; and each mistake fails the row that is there for it."""
    subject = subject_of(un.Kac((1,), speed=C, rate=A), "Kac")
    assert not failing(kac_kernels(subject))


def test_an_atom_forgotten_is_seen(monkeypatch):
    subject = subject_of(un.Kac((1,), speed=C, rate=A), "Kac")
    monkeypatch.setattr(KacLaw, "on_atom", lambda self, z: torch.zeros_like(z[:, 0], dtype=torch.bool))
    assert "the reverse never turns on the atom" in failing(kac_kernels(subject))
    monkeypatch.setattr(un.Kac, "atom", lambda self, t: 0.0)
    assert any("mass of the law" in quantity for quantity in failing(kac_kernels(subject)))


@pytest.mark.parametrize(("rate", "time"), [(300.0, 1.0), (1e-6, 1.0), (A, 1e-9)])
def test_the_mass_is_one_where_turns_are_many_or_rare(rate, time):
    process = un.Kac((1,), speed=C, rate=rate)
    y = C * time * X  # of a law much narrower than its reach, more nodes than one rule has
    if rate > 100:
        edges = torch.linspace(-C * time, C * time, 41, dtype=torch.float64)
        y, w = (edges[:-1, None] + (X + 1) / 2 * (edges[1] - edges[0])).flatten(), W.repeat(40) * (edges[1] - edges[0]) / 2
    else:
        w = C * time * W
    same, other = log_densities(y, torch.tensor(time, dtype=torch.float64), rate, C)
    assert abs(float((w * (same.exp() + other.exp())).sum()) + process.atom(time) - 1) < 1e-9


def cdf_table(t):
    """Of x_t from 0 with a fair sign, beside its atoms."""
    e = torch.linspace(-C * t, C * t, 20_001, dtype=torch.float64)
    same, other = log_densities(e, torch.tensor(t, dtype=torch.float64), A, C)
    density = 0.5 * (same.exp() + same.flip(0).exp()) + other.exp()
    area = torch.cat([torch.zeros(1, dtype=torch.float64), ((density[1:] + density[:-1]) / 2 * (e[1] - e[0])).cumsum(0)])
    return e, area / area[-1]


@pytest.mark.parametrize("by_path", [True, False])
def test_draws_have_the_law_and_its_atom(by_path):
    process, n, t = un.Kac((1,), speed=C, rate=A), 20_000, 0.5
    law = process.marginal(torch.zeros(n, 1, dtype=torch.float64), t)
    if by_path:
        flights = process.flights(torch.zeros(n, 1, dtype=torch.float64), un.NoiseSource(1, n))
        z = process.at(flights, torch.full((n,), t, dtype=torch.float64))
    else:
        z = law.draw(un.NoiseSource(0, n))
    atom = law.on_atom(z).flatten()
    share, wanted = float(atom.double().mean()), exp(-A * t)
    assert abs(share - wanted) < 5 * (wanted * (1 - wanted) / n) ** 0.5  # by chance once in two million
    e, area = cdf_table(t)
    assert gap_of(z[~atom, 0], lambda x: torch.from_numpy(np.interp(x, e, area))) < 2.7
    assert abs(float(z[:, 0].var()) / process.spread(t) - 1) < 0.05


def test_rows_are_drawn_alike_in_any_batch():
    """However often others turn."""
    process, x = un.Kac((2,), rate=20.0), torch.zeros(50, 2)
    together = process.marginal(x, 0.7).draw(un.NoiseSource(0, 50))
    paths = process.flights(x, un.NoiseSource(0, 50)).end
    for i in range(0, 50, 7):
        alone = un.NoiseSource(0, torch.tensor([i]))
        assert torch.equal(process.marginal(x[:1], 0.7).draw(alone), together[i : i + 1])
        torch.testing.assert_close(process.flights(x[:1], alone).end, paths[i : i + 1], rtol=0, atol=1e-6)


def test_it_tends_to_brownian_motion_with_order_one():
    gaps = []
    for a in (50.0, 100.0, 200.0, 400.0):
        c = a**0.5  # c^2/a = 1
        e = torch.linspace(-3, 3, 201, dtype=torch.float64)
        same, other = log_densities(e, torch.tensor(1.0, dtype=torch.float64), a, c)
        density = 0.5 * (same.exp() + same.flip(0).exp()) + other.exp()
        gaps.append(float((density - (-e.square() / 2).exp() / (2 * pi) ** 0.5).abs().max()))
    orders = [log2(a / b) for a, b in zip(gaps, gaps[1:], strict=False)]
    assert all(0.9 < order < 1.1 for order in orders), orders


def test_the_reverse_given_the_data_never_turns_on_the_atom():
    process = un.Kac((1,), speed=C, rate=A)
    x0, t = torch.zeros(2, 1, dtype=torch.float64), 0.5
    z = state([C * t, 0.2], [C, C])
    local = process.conditioned_local(z, x0, t)
    rates = local.jumps.total(z)
    assert float(rates[0]) == 0 and float(rates[1]) > 0
    law = process.marginal(x0, t)
    turned = state([0.2, 0.2], [-C, -C])
    wanted = A * float((law.log_prob(turned) - law.log_prob(z))[1].exp())
    assert abs(float(rates[1]) / wanted - 1) < 1e-12
    assert torch.equal(local.drift[:, 0], -z[:, 1])


X0 = torch.linspace(-2, 2, 9, dtype=torch.float64).repeat(4).unsqueeze(1)


def test_with_the_exact_reverse_the_bound_of_every_path_is_the_likelihood():
    truth = oracle(64, cap=1e6)
    gap = un.bound(truth, X0, seed=0).total + truth.log_prob(X0)
    assert float(gap.abs().max()) < 1e-8 and float(gap.std()) < 1e-8, gap

    class Inverted(un.AnyDenoiser):
        process = truth.process

        def forward(self, x_t, t, **condition):
            return un.FlipRatios(-truth(x_t, t).value, self.process, x_t, t)

    assert float((un.bound(Inverted(), X0, seed=0).total + truth.log_prob(X0)).mean()) > 0.5


def test_visits_estimate_the_same_bound():
    """Over 4000 paths, at five standard errors: by chance once in two million."""
    truth = oracle(cap=1e6, visits=2)
    x0 = torch.full((4000, 1), 0.5, dtype=torch.float64)
    found = un.bound(truth, x0, seed=0).total
    error = float(found.std()) / len(x0) ** 0.5
    assert abs(float(found.mean() + truth.log_prob(x0[:1]))) < 5 * error and error < 0.06


def test_coordinates_are_judged_together():
    process = un.Kac((2,), speed=2.0, rate=2.0, cap=1e6)
    means, stds = torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), torch.full((2, 2), 0.5)
    truth = un.oracles.KacMixture(process, torch.ones(2), means, stds, nodes=48).ending_exactly()
    x0 = truth.draw(un.NoiseSource(0, 12))
    assert float((un.bound(truth, x0, seed=0).total + truth.log_prob(x0)).abs().max()) < 2e-5


@pytest.mark.parametrize("rows", [1000, pytest.param(50_000, marks=pytest.mark.conformance)])
def test_the_reverse_from_the_prior_returns_the_data(rows):
    """From fresh draws of the prior; a velocity that is not turned back, or ratios inverted, return something else."""
    truth = oracle(24, cap=30.0)  # what a cap of 8 cuts off is seen in 50,000 samples
    drawn, info = un.sample(truth, rows, seed=3)
    assert drawn.shape == (rows, 1) and gap_of(drawn, data_cdf) < 2.7
    again, _ = un.sample(truth, rows=torch.tensor([7, 3]), n=2, seed=3)
    torch.testing.assert_close(again, drawn[[7, 3]])

    class Unturned(un.Kac):
        def flow(self, z, h):
            return super().flow(z, h.abs())

    process = Unturned((1,), speed=2.0, rate=1.5, cap=30.0, prior=truth.prior_of)
    wrong = un.oracles.KacMixture(process, truth.log_weights.exp(), truth.means, truth.stds, nodes=24)
    assert gap_of(un.sample(wrong, 300, seed=3)[0], data_cdf) > 5


def test_the_default_network_learns_two_coordinates():
    process = un.Kac((2,), speed=2.0, rate=2.0, visits=2)
    denoiser = un.Denoiser(networks.default_network(process, "tiny", seed=0), process)
    x0 = torch.where(un.NoiseSource(0, 128).uniform((1,)) < 0.5, -1.0, 1.0) + 0.1 * un.NoiseSource(1, 128).normal((2,))
    z = torch.stack([x0, torch.full_like(x0, 2.0)], 1).float()
    assert not bool(denoiser(z, 0.5).value.any())  # neutral: the opposite velocity is as likely
    objective, optimiser = un.Objective(denoiser), torch.optim.Adam(denoiser.parameters(), lr=3e-3)
    losses = []
    for i in range(30):
        optimiser.zero_grad()
        loss = objective(x0.float(), un.NoiseSource(i, 128)).loss.mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert sum(losses[-5:]) < sum(losses[:5]) - 2.5  # half a nat
    drawn, info = un.sample(denoiser, 4, seed=0)
    assert drawn.shape == (4, 2) and drawn.dtype == torch.float32


def test_what_it_cannot_answer_it_refuses():
    process = un.Kac((1,), speed=C, rate=A)
    x0 = torch.zeros(2, 1, dtype=torch.float64)
    with pytest.raises(un.checks.Unanswered, match="prior_kl"):
        process.prior_kl(x0)
    with pytest.raises(ValueError, match="has the velocity 1, and here all are -2 or 2"):
        process.state_space.check(state([0.0], [1.0]))
    with pytest.raises(ValueError, match="is nan; drop or impute"):
        process.state_space.check(state([float("nan")], [C]))
    with pytest.raises(ValueError, match="is nan; drop or impute"):
        process.state_space.check(state([0.0], [float("nan")]))
    with pytest.raises(TypeError, match="leaf 'x' is a Kac: its bound is that of whole paths"):
        un.Product(x=process, y=un.Gaussian((1,)))
    with pytest.raises(ValueError, match="rate = -1"):
        un.Kac((1,), rate=-1.0)
    with pytest.raises(ValueError, match="cap = 0.5"):
        un.Kac((1,), cap=0.5)
    with pytest.raises(TypeError, match="predicts = Score"):
        un.Denoiser(torch.nn.Linear(1, 1), process, un.Score)
    with pytest.raises(TypeError, match="ThinnedFlights runs processes of finite speed"):
        un.sample(
            un.oracles.normal(un.Gaussian((1,)), torch.zeros(1), torch.eye(1)), 2, sampler=un.samplers.ThinnedFlights()
        )
    assert log(process.atom(1.0)) == -A
