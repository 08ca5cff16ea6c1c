"""The bound under jump-diffusion: with the exact denoiser it is -log q; wrong networks and mutants are seen."""

import pytest
import torch

import unnoise as un
from unnoise.generators import FokkerPlanck, divergence, path_divergence, simulated
from unnoise.oracles import cloud_mixture
from unnoise.verify.bounds import prior_mismatch
from unnoise.verify.wrong import Perturbed

PROCESS = un.JumpDiffusion((1,), un.schedules.LinearBeta(), jumps=2.0, scale=1.5)
WEIGHTS, MEANS = torch.tensor([0.3, 0.7]).double(), torch.tensor([[-2.0], [1.0]]).double()
VARIANCES = torch.tensor([0.3, 0.2]).double()
X0 = torch.tensor([[-1.6]]).double()


def oracle():
    return cloud_mixture(PROCESS, WEIGHTS, MEANS, VARIANCES)


def total(denoiser, times=20, decoder=None):
    decoder = decoder or un.decoders.ExactDecoder(oracle())
    terms = un.bound(denoiser, X0, exact=True, times=un.Quadrature(times), cutoff=0.05, decoder=decoder)
    return float(terms.total[0])


class Turned(un.AnyDenoiser):
    """The exact denoiser, its jumps replaced by what `change` makes of them."""

    def __init__(self, change, exact=None):
        super().__init__()
        self.inner, self.change = exact or oracle(), change
        self.process = self.inner.process

    def forward(self, x_t, t, /, **condition):
        prediction = self.inner(x_t, t)
        local = prediction.local()
        prediction.local = lambda: un.Local(local.drift, local.diffusion, jumps=self.change(local.jumps))
        return prediction


class UpsideDown(un.JumpKernel):
    """The ratio of densities the wrong way round."""

    def __init__(self, jumps):
        self.jumps = jumps

    def log_rate(self, x, y):
        return self.jumps.forward.log_rate(y, x) - self.jumps.log_ratio(x, y)

    def nodes(self, x):
        return self.jumps.nodes(x)


class WithoutScale(un.decoders.ThrownDecoder):
    """The mutant that forgets the Jacobian alpha of the decoder."""

    def nll(self, process, prediction, x0, x_eps, eps):
        log_alpha = process.schedule.alpha(torch.tensor(eps, dtype=torch.float64)).log()
        return super().nll(process, prediction, x0, x_eps, eps) + log_alpha


def test_exact_denoiser_gives_the_density_and_an_upside_down_ratio_does_not():
    """-log q(x_0) and the prior's mismatch, which is about 1e-4 here."""
    exact = float((prior_mismatch(oracle(), PROCESS, X0) - oracle().log_prob(X0))[0])
    assert abs(total(oracle()) - exact) < 1e-6
    assert total(Turned(UpsideDown)) > exact + 0.1
    assert total(Turned(lambda jumps: jumps.forward)) > exact + 0.05  # thrown at the forward rate


def test_bounds_of_wrong_networks_are_of_a_law():
    """int exp(-bound) dx_0 <= 1, all by nodes, under noise that leaves something of the data at t = 1: ten standard
    deviations from the data too, where the bound is far below -log q.  One without the prior's term is no bound."""
    process = un.JumpDiffusion((1,), un.schedules.VE(0.1, 1.2), jumps=0.5, scale=1.5)
    exact = cloud_mixture(process, WEIGHTS, MEANS, VARIANCES)
    x0 = torch.arange(-9, 9, 1.0, dtype=torch.float64).unsqueeze(1)
    terms = un.bound(Perturbed(exact, 0.1, 3), x0, exact=True, times=un.Quadrature(6), cutoff=0.1)
    assert 0.5 < float((-terms.total).exp().sum()) <= 1
    assert float((terms.prior - terms.total).exp().sum()) > 1.1
    assert float(terms.total[0] + exact.log_prob(x0[:1])[0]) < -30  # and yet a law


def test_destinations_may_be_drawn():
    """In the mean the rate is that of nodes: 4,000 draws at each of two states, 5 standard errors (1 false alarm in 1e6)."""
    x, rows = torch.tensor([[-1.0], [2.5]]).double(), 4_000
    t = torch.full((2,), 0.4, dtype=torch.float64)

    def rate(process, states, clock):
        own = cloud_mixture(process, WEIGHTS, MEANS, VARIANCES)
        return divergence(process.reverse(states, X0.expand(len(states), 1), clock), Perturbed(own, 1.0, 3)(states, clock))

    drawn = un.JumpDiffusion((1,), un.schedules.LinearBeta(), jumps=2.0, scale=1.5, draws=2)
    exact = rate(PROCESS, x, t)
    near = x.repeat_interleave(rows, 0) + 1e-9 * torch.arange(rows).repeat(2).unsqueeze(1)  # other bits, other destinations
    own = rate(drawn, near, t.repeat_interleave(rows)).reshape(2, rows)
    assert bool(((own.mean(1) - exact).abs() < 5 * own.std(1) / rows**0.5).all())
    assert torch.equal(own[:, :1], rate(drawn, x, t).unsqueeze(1))  # a state has its own, in any batch


def test_default_decoder_is_a_density_of_the_data():
    """int p(x_0 | x_eps) dx_0 = 1; without alpha it is 1/alpha."""
    x, h, eps = torch.arange(-80, 80, 0.02, dtype=torch.float64).unsqueeze(1), 0.02, 0.5
    there = torch.full_like(x, 0.4)
    both = (un.decoders.ThrownDecoder(), WithoutScale())
    mass = [float((-decoder.nll(PROCESS, None, x, there, eps)).exp().sum() * h) for decoder in both]
    assert abs(mass[0] - 1) < 1e-9 and mass[1] > 1.5


@pytest.mark.conformance
def test_path_densities_agree_with_the_divergence():
    """The reverse process given x_0 against a wrong one: log dP/dQ of chains of small steps less the integral of the
    divergence is of order 1 in the step, so 2 gap(h/2) - gap(h) is 0 within 4 standard errors (a false alarm in 6e-5)."""
    rows, gaps, own = 1_000, [], oracle()
    x0 = X0.expand(rows, 1)
    x = PROCESS.marginal(x0, 0.8).draw(un.NoiseSource(1, rows))

    def true(t):
        return un.Generator(PROCESS.space, lambda y: PROCESS.conditioned_local(y, x0, t))

    def model(t):
        return un.Generator(PROCESS.space, lambda y: own(y, t).local())

    for steps in (24, 48):
        times = torch.linspace(0.8, 0.3, steps + 1, dtype=torch.float64).tolist()
        paths = simulated(true, x, times, un.NoiseSource(2, rows))
        by_paths, by_rates = path_divergence(true, model, paths)
        assert by_rates.mean > 0.2
        gaps.append((by_paths.mean - by_rates.mean, by_paths.error))
    (coarse, error), (fine, finer) = gaps
    assert abs(2 * fine - coarse) < 4 * (4 * finer**2 + error**2) ** 0.5, gaps


@pytest.mark.conformance
@pytest.mark.parametrize("draws", [0, 4])
def test_the_bound_in_the_plane(draws):
    """Of a mixture in two dimensions, x_t and time drawn, and the way back of throws by nodes or drawn too: -log q(x_0)
    within 4 standard errors (a false alarm in 6e-5 each); with its ratio upside down it is not."""
    process = un.JumpDiffusion((2,), un.schedules.Cosine(), jumps=1.0, scale=1.5, draws=draws)  # alpha_1 = 0: no mismatch
    means = torch.tensor([[-1.0, 0.5], [1.0, 0.0]]).double()
    exact = cloud_mixture(process, WEIGHTS, means, VARIANCES)
    rows = 60_000 if draws else 2_000
    x0 = torch.tensor([[-0.6, 0.2]]).double().expand(rows, 2)

    def gap(denoiser):
        options = {"times": un.Importance(), "cutoff": 0.05, "decoder": exact.decoder, "seed": 4}
        total = un.bound(denoiser, x0, **options).total
        return float((total.mean() + exact.log_prob(x0[:1])) / (total.std() / rows**0.5))

    assert abs(gap(exact)) < 4
    if draws:
        assert gap(Turned(UpsideDown, exact)) > 4


@pytest.mark.conformance
@pytest.mark.parametrize("scale", [0.0, 0.5])
def test_bounds_are_above_the_density_of_the_models_own_law(scale):
    """The reverse process of a network solved on a grid with its jumps, and decoded: -log p(x_0) is never above the bound,
    and is the bound where the network is exact (0.005 for the grid)."""
    model, eps = Perturbed(oracle(), scale, 3), 0.2
    x0, decoder = torch.tensor([[-3.0], [-2.0], [-0.5], [0.8], [1.5]]).double(), oracle().decoder
    grid = FokkerPlanck(lambda t: un.Generator(PROCESS.space, lambda y: model(y, float(t)).local()), [-9.0], [9.0], [120])
    start = grid.law_of(lambda y: PROCESS.prior(len(y), torch.float64).log_prob(y))
    law, points = grid.solve(start, 1.0, eps, 60), grid.points
    given = [decoder.log_prob(PROCESS, model(points, eps), x.expand(len(points), 1), points, eps) for x in x0]
    exact = -torch.stack([(log_p.exp() * law).sum() for log_p in given]).log()
    with torch.no_grad():
        ours = un.bound(model, x0, exact=True, times=un.Quadrature(12), cutoff=eps, decoder=decoder).total
    gap = ours - exact
    assert float(gap.min()) > -0.005 and (float(gap.max()) < 0.005 if scale == 0 else float(gap.max()) > 0.03), gap
