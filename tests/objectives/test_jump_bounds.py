"""The bound under jump-diffusion: with the exact denoiser it is -log q; wrong networks and mutants are seen."""

import pytest
import torch

import unnoise as un
from unnoise.generators import path_divergence, simulated
from unnoise.oracles import cloud_mixture

PROCESS = un.JumpDiffusion((1,), un.schedules.LinearBeta(), jumps=2.0, scale=1.5)
WEIGHTS, MEANS = torch.tensor([0.3, 0.7]).double(), torch.tensor([[-2.0], [1.0]]).double()
VARIANCES = torch.tensor([0.3, 0.2]).double()
X0 = torch.tensor([[-1.6]]).double()


def oracle():
    return cloud_mixture(PROCESS, WEIGHTS, MEANS, VARIANCES)


def total(denoiser, times=12, decoder=None):
    decoder = decoder or un.decoders.ExactDecoder(oracle())
    terms = un.bound(denoiser, X0, exact=True, times=un.Quadrature(times), cutoff=0.05, decoder=decoder)
    return float(terms.total[0])


class Turned(un.AnyDenoiser):
    """The exact denoiser, its jumps replaced by what `change` makes of them."""

    def __init__(self, change):
        super().__init__()
        self.process, self.inner, self.change = PROCESS, oracle(), change

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
    """-log q(x_0) and the prior's mismatch, about 1e-4 here; 1e-4 of quadrature in time."""
    exact = -float(oracle().log_prob(X0)[0])
    assert -1e-4 < total(oracle()) - exact < 4e-4
    assert total(Turned(UpsideDown)) > exact + 0.1
    assert total(Turned(lambda jumps: jumps.forward)) > exact + 0.05  # thrown at the forward rate


def test_default_decoder_is_a_density_of_the_data():
    """int p(x_0 | x_eps) dx_0 = 1; without alpha it is 1/alpha."""
    x, h, eps = torch.arange(-80, 80, 0.02, dtype=torch.float64).unsqueeze(1), 0.02, 0.5
    there = torch.full_like(x, 0.4)
    both = (un.decoders.ThrownDecoder(), WithoutScale())
    mass = [float((-decoder.nll(PROCESS, None, x, there, eps)).exp().sum() * h) for decoder in both]
    assert abs(mass[0] - 1) < 1e-9 and mass[1] > 1.5


def test_wrong_networks_stay_finite_and_above():
    class Network(torch.nn.Module):
        def forward(self, x, t):
            return torch.stack([torch.cat([0.3 * x + k, 0 * x - 1, 0 * x], 1) for k in (-1.0, 1.0)], 1)

    wrong = total(un.Denoiser(Network(), PROCESS))
    assert -float(oracle().log_prob(X0)[0]) + 0.01 < wrong < 50


@pytest.mark.conformance
def test_path_densities_agree_with_the_divergence():
    """The reverse process given x_0 against a wrong one over 40 small steps: log dP/dQ and the integral of the divergence,
    within 5 standard errors and 4 % for the steps (a false alarm in 1e-6)."""
    rows = 600
    x0, own = X0.expand(rows, 1), oracle()
    x = PROCESS.marginal(x0, 0.8).draw(un.NoiseSource(1, rows))
    times = torch.linspace(0.8, 0.3, 41, dtype=torch.float64).tolist()

    def true(t):
        return un.Generator(PROCESS.space, lambda y: PROCESS.conditioned_local(y, x0, t))

    def model(t):
        return un.Generator(PROCESS.space, lambda y: own(y, t).local())

    paths = simulated(true, x, times, un.NoiseSource(2, rows))
    by_paths, by_rates = path_divergence(true, model, paths)
    assert by_rates.mean > 0.2
    assert abs(by_paths.mean - by_rates.mean) < 5 * by_paths.error + 0.04 * by_rates.mean
