"""The Kac process: its law with the atom, its paths, the bound of a path and the reversal, against what is known exactly.

Drawn laws are compared by the largest gap of distribution functions, at 2.7/sqrt(n): by chance exceeded once in a million.
"""

from math import exp, log, log2, pi

import numpy as np
import pytest
import torch

import unnoise as un
from unnoise.processes.kac_law import log_densities

A, C = 3.0, 2.0
X, W = (torch.from_numpy(part) for part in np.polynomial.legendre.leggauss(200))


def state(x, v):
    return torch.stack([torch.as_tensor(x, dtype=torch.float64), torch.as_tensor(v, dtype=torch.float64)], 1).unsqueeze(2)


def oracle(**options):
    process = un.Kac((1,), speed=3.0, rate=3.0, **options)
    made = un.oracles.KacMixture(
        process, torch.tensor([0.4, 0.6]), torch.tensor([[-1.0], [1.0]]), torch.tensor([[0.4], [0.3]]), nodes=48
    )
    process._prior = made.prior_of
    return made


def gap_of(drawn, cdf):
    """The largest gap of distribution functions, in units of 1/sqrt(n)."""
    x = drawn.double().flatten().sort().values
    n, exact = len(x), cdf(x)
    steps = torch.arange(n + 1) / n
    return max(float((exact - steps[:-1]).max()), float((steps[1:] - exact).max())) * n**0.5


def data_cdf(x):
    normal = torch.distributions.Normal
    return 0.4 * normal(-1.0, 0.4).cdf(x) + 0.6 * normal(1.0, 0.3).cdf(x)


@pytest.mark.parametrize("t", [0.01, 0.3, 1.0, 8.0])
def test_the_law_has_mass_one_with_its_atom_and_not_without(t):
    same, other = log_densities(C * t * X, torch.tensor(t, dtype=torch.float64), A, C)
    mass = float((C * t * W * (same.exp() + other.exp())).sum())
    assert abs(mass + exp(-A * t) - 1) < 1e-9
    if t < 1:
        assert mass < 0.7  # the atom forgotten


def test_kernels_compose_with_their_atoms():
    """q(z_1 | z_0) from q(z_s | z_0) and q(z_1 | z_s), by quadrature over the middle, with the atoms of both."""
    process, s = un.Kac((1,), speed=C, rate=A), 0.4
    z0 = state([0.0], [C])
    for x1, v1 in ((0.3, C), (-1.2, C), (0.7, -C), (-1.1, -C)):
        z1 = state([x1], [v1])
        total = 0.0
        places = ((-C * s, C * s), (x1 - C * (1 - s), x1 + C * (1 - s)))
        low, high = max(p[0] for p in places), min(p[1] for p in places)
        y = low + (high - low) * (X + 1) / 2
        for w in (-C, C):
            middle = state(y, torch.full_like(y, w))
            first = process.transition(z0.expand(len(y), -1, -1), 0.0, s).coordinates(middle)[0].exp()
            then = process.transition(middle, s, 1.0).coordinates(z1.expand(len(y), -1, -1))[0].exp()
            total += float(((high - low) / 2 * W * first.flatten() * then.flatten()).sum())
        moved = state([C * s], [C])  # not turned in the first part
        total += exp(-A * s) * float(process.transition(moved, s, 1.0).coordinates(z1)[0].exp())
        origin = state([x1 - v1 * (1 - s)], [v1])  # not turned in the second
        total += exp(-A * (1 - s)) * float(process.transition(z0, 0.0, s).coordinates(origin)[0].exp())
        assert abs(total - float(process.transition(z0, 0.0, 1.0).log_prob(z1).exp())) < 1e-6
    assert abs(float(process.transition(z0, 0.0, 1.0).log_prob(state([C], [C]))) + A) < 1e-12  # a mass


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
    truth = oracle(cap=1e6)
    gap = un.bound(truth, X0, seed=0).total + truth.log_prob(X0)
    assert float(gap.abs().max()) < 2e-5

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
    truth = un.oracles.KacMixture(
        process, torch.ones(2), torch.tensor([[-1.0, -1.0], [1.0, 1.0]]), torch.full((2, 2), 0.5), nodes=48
    )
    process._prior = truth.prior_of
    x0 = truth.draw(un.NoiseSource(0, 12))
    assert float((un.bound(truth, x0, seed=0).total + truth.log_prob(x0)).abs().max()) < 2e-5


class Half(torch.nn.Module):
    """A wrong network: ratios too near to one."""

    def __init__(self, truth):
        super().__init__()
        self.truth = truth

    def forward(self, x, t):
        return 0.5 * self.truth(x, t).value


def test_a_wrong_network_bounds_a_law_of_mass_at_most_one():
    """The integral of exp(-bound), each bound a mean over 60 paths."""
    truth = oracle(cap=30.0)
    x = torch.linspace(-3.5, 3.5, 41, dtype=torch.float64)
    with torch.no_grad():
        bounds = un.bound(un.Denoiser(Half(truth), truth.process), x.repeat_interleave(60).unsqueeze(1), seed=1).total
    mass = float((-bounds.reshape(41, 60).mean(1)).exp().sum() * 7 / 40)
    assert 0.1 < mass < 1, mass


def test_the_reverse_from_the_prior_returns_the_data():
    truth = oracle(cap=12.0)
    drawn, info = un.sample(truth, 4000, seed=3)
    assert drawn.shape == (4000, 1) and gap_of(drawn, data_cdf) < 2.7
    again, _ = un.sample(truth, rows=torch.tensor([7, 3]), n=2, seed=3)
    torch.testing.assert_close(again, drawn[[7, 3]])

    class Unturned(un.Kac):
        def flow(self, z, h):
            return super().flow(z, h.abs())

    process = Unturned((1,), speed=3.0, rate=3.0, cap=12.0, prior=truth.prior_of)
    wrong = un.oracles.KacMixture(process, truth.log_weights.exp(), truth.means, truth.stds, nodes=48)
    assert gap_of(un.sample(wrong, 1000, seed=3)[0], data_cdf) > 5


def test_training_finds_ratios():
    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.slope = torch.nn.Parameter(torch.zeros(()))

        def forward(self, x, t):
            return self.slope * x[:, 0] * x[:, 1] * t.unsqueeze(1)

    denoiser = un.Denoiser(Net(), un.Kac((1,), speed=2.0, rate=2.0, visits=2))
    objective, optimiser = un.Objective(denoiser), torch.optim.Adam(denoiser.parameters(), lr=0.03)
    for i in range(40):
        optimiser.zero_grad()
        objective(un.NoiseSource(i, 256).normal((1,), torch.float32), un.NoiseSource(i, 256)).loss.mean().backward()
        optimiser.step()
    # x and v go together in one's data: the opposite velocity is the rarer one, so log r falls with x v
    assert float(denoiser.network.slope) < -0.1


def test_what_it_cannot_answer_it_refuses():
    process = un.Kac((1,), speed=C, rate=A)
    x0 = torch.zeros(2, 1, dtype=torch.float64)
    with pytest.raises(un.checks.Unanswered, match="prior_kl"):
        process.prior_kl(x0)
    with pytest.raises(ValueError, match="has the velocity 1, and here all are -2 or 2"):
        process.state_space.check(state([0.0], [1.0]))
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
