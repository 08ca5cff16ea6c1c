"""A diffusion and jumps on one path: at every proportion the same marginals, one network, and a bound linear in it."""

import math

import pytest
import torch

import unnoise as un
from unnoise.generators import FokkerPlanck, Generator, path_divergence, simulated
from unnoise.generators.kolmogorov import matrices, solve
from unnoise.generators.local import divergence_rate
from unnoise.noise import NoiseSource
from unnoise.objectives import bound
from unnoise.processes.superposition import FreshJumps, NormalShares, tilted
from unnoise.samplers import DDIM, FromGenerator, Reversible, stirred
from unnoise.verify.superpositions import left_over
from unnoise.verify.wrong import Perturbed

DOUBLE = torch.float64
WEIGHTS = [0.0, 0.5, 1.0]


def mixture(d, weight=0.5, schedule=None, eta=1.0):
    process = un.Superposition((d,), schedule or un.schedules.LinearBeta(), weight, eta)
    means = torch.tensor([[-1.0, 0.5], [1.2, -0.4]], dtype=DOUBLE)[:, :d]
    return un.oracles.round_mixture(process, torch.tensor([0.4, 0.6]), means, torch.tensor([0.1, 0.3]))


def points(d, count=5):
    return 3 * torch.rand(count, d, generator=torch.Generator().manual_seed(d), dtype=DOUBLE) - 1.5


# --- the path


@pytest.mark.parametrize("schedule", [un.schedules.Cosine(), un.schedules.VE(0.05, 3.0)], ids=["Cosine", "VE"])
@pytest.mark.parametrize("weight", WEIGHTS)
def test_the_reverse_process_undoes_the_path(weight, schedule):
    for eta in (1.0, 0.0, 1.6) if weight else (1.0,):
        exact = mixture(1, weight, schedule, eta)
        assert float(left_over(exact, points(1), 0.4).abs().max()) < 1e-10


def test_mutants_of_the_path(monkeypatch):
    exact, x = mixture(1, 0.0), points(1)
    with monkeypatch.context() as patch:
        patch.setattr(
            un.Superposition, "speed", lambda self, t: self.schedule.diffusion(t) / self.schedule.sigma(t).square()
        )
        assert float(left_over(exact, x, 0.4).abs().max()) > 1e-2  # twice as fast
    with monkeypatch.context() as patch:
        total = FreshJumps.total
        patch.setattr(FreshJumps, "total", lambda self, x: 0 * total(self, x) + total(self, x).mean())
        assert float(left_over(exact, x, 0.4).abs().max()) > 1e-2  # a rate without |z|^2
    with monkeypatch.context() as patch:
        given = NormalShares.given
        patch.setattr(NormalShares, "given", lambda self, x, a, s: given(self, 0 * x, a, s))
        assert float(left_over(exact, x, 0.4).abs().max()) > 1e-2  # the evidence of x_t left out


# --- jumps


@pytest.mark.parametrize("d", [1, 2])
def test_rates_add_up_and_draws_follow_them(d):
    """Means of functions of where jumps lead, from one state: 4 within 4.5 standard errors, a false alarm in 36,000."""
    x = points(d, 1)
    jumps = mixture(d, 0.0)(x, torch.tensor(0.5, dtype=DOUBLE)).local().jumps
    y, rates = jumps.rates(x)
    assert torch.allclose(rates.sum(1), jumps.total(x), rtol=1e-9)
    many = x.expand(20_000, d)
    kernel = mixture(d, 0.0)(many, torch.tensor(0.5, dtype=DOUBLE)).local().jumps
    drawn = kernel.draw(many, NoiseSource(3, len(many)))
    for phi in (lambda v: v[:, 0], lambda v: v.square().sum(1), lambda v: (2 * v).sin().sum(1), lambda v: v.cos().prod(1)):
        exact = (rates[0] * phi(y[0])).sum() / rates.sum()
        values = phi(drawn)
        gap = abs(float((values.mean() - exact) / (values.std() / len(drawn) ** 0.5)))
        assert gap < 4.5


def test_the_tilted_law():
    """h with the density (m + sqrt(v) h)^2 phi(h)/(m^2 + v): its distribution function at the inverse is u."""
    u = torch.linspace(0.001, 0.999, 201, dtype=DOUBLE)
    for m, v in ((0.0, 1.0), (0.7, 0.2), (-2.0, 1e-9)):
        h = tilted(torch.full_like(u, m), torch.full_like(u, v), u)
        line = torch.linspace(-9, 9, 40_001, dtype=DOUBLE)
        density = (m + v**0.5 * line).square() * (-0.5 * line.square()).exp() / (2 * math.pi) ** 0.5 / (m * m + v)
        whole = torch.cumulative_trapezoid(density, line)
        found = whole[(torch.searchsorted(line, h) - 1).clamp(0, len(whole) - 1)]
        assert float((found - u).abs().max()) < 1e-3 and bool((h[1:] > h[:-1]).all())


# --- the bound


def test_linear_in_the_weight_and_infinite_for_an_ode():
    x0, x = points(2), points(2) + 0.3
    t = torch.full((5,), 0.4, dtype=DOUBLE)

    def rate(weight, eta=1.0):
        model, true = mixture(2, weight, eta=eta), un.Superposition((2,), un.schedules.LinearBeta(), weight, eta)
        return divergence_rate(true.space, true.conditioned_local(x, x0, t), model(x, t).local(), x)

    jumps, half, diffusion = (rate(w) for w in WEIGHTS)
    assert torch.allclose(half, (jumps + diffusion) / 2, rtol=1e-12)
    assert float(jumps.min()) > 0 < float(diffusion.min())
    gaussian = un.oracles.mixture(un.Gaussian((2,), un.schedules.LinearBeta()), torch.tensor([0.4, 0.6]), *_plain())
    true = gaussian.process.reverse(x, x0, t)
    assert torch.allclose(diffusion, un.divergence(true, gaussian(x, t)), rtol=1e-9)
    assert torch.allclose(rate(1.0, 2.0), diffusion * (5 / 4) ** 2, rtol=1e-9)
    assert bool(rate(0.5, 0.0).isinf().all())
    with pytest.raises(ValueError, match="ODE, whose bound is infinite"):
        bound(mixture(2, 0.5, eta=0.0), x0)
    assert bool(bound(mixture(2, 0.0, eta=0.0), x0, seed=0).total.isfinite().all())


def _plain():
    means = torch.tensor([[-1.0, 0.5], [1.2, -0.4]], dtype=DOUBLE)
    return means, torch.tensor([0.1, 0.3], dtype=DOUBLE).reshape(2, 1, 1) * torch.eye(2, dtype=DOUBLE)


def test_the_rate_of_jumps_is_its_integral():
    """By brute force over a fine line."""
    x0, x, t = points(1), points(1) - 0.4, torch.full((5,), 0.3, dtype=DOUBLE)
    oracle, y = mixture(1, 0.0), torch.linspace(-6, 6, 4001, dtype=DOUBLE).unsqueeze(1)
    true, model = oracle.process.conditioned_local(x, x0, t), oracle(x, t).local()
    ours = divergence_rate(oracle.process.space, true, model, x)
    a, b = (j.log_rate(x.repeat_interleave(len(y), 0), y.repeat(5, 1)).reshape(5, -1) for j in (true.jumps, model.jumps))
    exact = torch.trapezoid(b.exp() - a.exp() + a.exp() * (a - b), y.squeeze(1))
    assert torch.allclose(ours, exact, rtol=1e-6)


@pytest.mark.conformance
def test_path_densities_agree_with_the_divergence():
    """The way back given x_0 against a wrong model's, by half diffusion and half jumps: log dP/dQ of chains of small steps
    less the integral of the divergence is of order 1 in the step, so 2 gap(h/2) - gap(h) is 0 within 4 standard errors (a
    false alarm in 6e-5); half of the divergence is not."""
    rows, model = 1_000, Perturbed(mixture(1, 0.5), 0.5, 3)
    process, x0 = model.process, points(1, 1).expand(rows, 1)
    x = process.marginal(x0, 0.8).draw(NoiseSource(1, rows))

    def true(t):
        return Generator(process.space, lambda y: process.conditioned_local(y, x0, t))

    def wrong(t):
        return Generator(process.space, lambda y: model(y, t).local())

    gaps, sizes = [], []
    for steps in (24, 48):
        times = torch.linspace(0.8, 0.3, steps + 1, dtype=DOUBLE).tolist()
        by_paths, by_rates = path_divergence(true, wrong, simulated(true, x, times, NoiseSource(2, rows)))
        gaps.append((by_paths.mean - by_rates.mean, by_paths.error))
        sizes.append(by_rates.mean)
    (coarse, error), (fine, finer) = gaps
    allowed = 4 * (4 * finer**2 + error**2) ** 0.5
    assert abs(2 * fine - coarse) < allowed < 0.5 * sizes[-1], (gaps, sizes)


@pytest.mark.conformance
@pytest.mark.parametrize("weight", [0.5, 1.0])
@pytest.mark.parametrize("scale", [0.0, 0.3])
def test_bounds_are_above_the_density_of_the_models_own_law(scale, weight):
    """The reverse process of a network solved on a grid with its jumps, and decoded: -log p(x_0) is never above the bound
    (0.005 for the grid), and is the bound of the exact denoiser where there are no jumps."""
    truth, eps = mixture(1, weight), 0.2
    process, decoder = truth.process, truth.decoder
    model, x0 = Perturbed(truth, scale, 3), torch.tensor([[-1.4], [-0.6], [0.4], [1.5]], dtype=DOUBLE)
    grid = FokkerPlanck(lambda t: Generator(process.space, lambda y: model(y, float(t)).local()), [-6.0], [6.0], [120])
    start = grid.law_of(lambda y: process.prior(len(y), DOUBLE).log_prob(y))
    law, y = grid.solve(start, 1.0, eps, 60), grid.points
    given = [decoder.log_prob(process, model(y, eps), x.expand(len(y), 1), y, eps) for x in x0]
    exact = -torch.stack([(log_p.exp() * law).sum() for log_p in given]).log()
    with torch.no_grad():
        ours = bound(model, x0, exact=True, times=un.Quadrature(16), cutoff=eps, decoder=decoder).total
    gap = ours - exact
    assert float(gap.min()) > -0.005, gap
    assert float(gap.max()) < 0.005 if scale == 0 and weight == 1 else float(gap.max()) > 0.03, gap


# --- sampling and learning


def test_one_network_at_every_weight():
    """Trained at a half, by drawn times: the bound falls at every weight, and samples come from each."""
    process = un.Superposition((1,), un.schedules.LinearBeta())
    data = mixture(1).draw(NoiseSource(0, 400)).float()
    network = un.networks.default_network(process, "tiny", seed=0)
    denoiser, test = un.Denoiser(network, process), data[:64]

    def totals():
        with torch.no_grad():
            return [
                float(bound(un.Denoiser(network, process.mixed(w)), test, seed=9, times=un.Quadrature(8)).total.mean())
                for w in WEIGHTS
            ]

    before, objective = totals(), un.Objective(denoiser)
    optimiser = torch.optim.Adam(network.parameters(), 3e-3)
    for step in range(30):
        loss = objective(data[(64 * step + torch.arange(64)) % 400], NoiseSource(step, 64)).loss.mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    assert all(new < old - 0.05 for old, new in zip(before, totals(), strict=True))
    for weight in WEIGHTS:
        x, info = un.sample(un.Denoiser(network, process.mixed(weight)), n=8, steps=6, seed=0)
        assert x.dtype == torch.float32 and bool(x.isfinite().all()) and info.calls == 6
    x, _ = un.sample(denoiser, n=8, steps=6, sampler=DDIM(), seed=0)
    assert bool(x.isfinite().all())


@pytest.mark.conformance
@pytest.mark.parametrize("weight", WEIGHTS)
@pytest.mark.parametrize("d", [1, 2])
def test_the_data_law_is_drawn(d, weight):
    """50,000 draws from the prior: mean waves within 4.5 standard errors, 8 at most, a false alarm in 18,000 runs."""
    exact = mixture(d, weight)
    x, _ = un.sample(exact, n=50_000, steps=120, sampler=FromGenerator(), seed=1, dtype=DOUBLE)
    data = exact.draw(NoiseSource(2, 50_000))
    ours, theirs = (torch.cat([(k * v).cos() for k in (1, 2)] + [(k * v).sin() for k in (1, 2)], 1) for v in (x, data))
    gap = (ours.mean(0) - theirs.mean(0)) / ((ours.var(0) + theirs.var(0)) / 50_000).sqrt()
    assert float(gap.abs().max()) < 4.5


# --- finite spaces


@pytest.mark.parametrize("weight", [0.0, 0.3, 1.0])
def test_two_rate_matrices_with_the_same_marginals(weight):
    """The reversal stirred, and the fewest jumps, in any proportion: the data law; divergences mix at most linearly."""
    probs = torch.rand(6, generator=torch.Generator().manual_seed(1), dtype=DOUBLE) + 0.1
    exact = un.oracles.table(un.Uniform([2, 3]), probs / probs.sum())

    def mixed(prediction):
        busy = stirred(prediction, Reversible(1.5))
        forward = exact.process.local(prediction.x_t, prediction.t).rates
        fewest = un.Local(log_rates=(prediction.local().rates - forward).clamp_min(1e-300).log())
        return weight * busy + (1 - weight) * fewest

    def rates(times):
        return matrices(exact.process.state_space, lambda x, t: mixed(exact(x, t)), times)

    start, end = (exact.log_marginal(exact.process.space.states(), t).exp() for t in (0.9, 0.05))
    assert float((solve(rates, start, 0.9, 0.05) - end).abs().max()) < 1e-8


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: un.Superposition((1,), weight=1.2), "choose it in"),
        (lambda: un.Superposition((1,), eta=-1.0), "choose 1 for the reversed"),
        (lambda: un.Superposition((2,), un.schedules.PerCoordinate([un.schedules.Linear()] * 2)), "moves all coordinates"),
        (lambda: un.Superposition((1,)).transition(points(1), 0.1, 0.2), "x_s"),
        (lambda: mixture(1)(points(1), 0.5).step(0.4), "FromGenerator"),
        (lambda: un.sample(mixture(1), n=2, steps=2, sampler=un.samplers.Ancestral()), "FromGenerator"),
        (lambda: un.MixturePosterior(torch.zeros(5, 1, 4), un.Superposition((1,)), points(1), 0.5), "3 laws"),
        (lambda: bound(mixture_of_three(), torch.zeros(2, 3, dtype=DOUBLE)), "out of reach"),
    ],
)
def test_refusals(make, words):
    with pytest.raises((TypeError, ValueError, NotImplementedError), match=words):
        make()


def mixture_of_three():
    process = un.Superposition((3,), un.schedules.LinearBeta())
    return un.oracles.round_mixture(process, torch.ones(1), torch.zeros(1, 3), torch.ones(1))
