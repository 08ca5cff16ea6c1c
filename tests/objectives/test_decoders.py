"""The last term of the bound: every decoder is a law of x_0, and the bound with it bounds."""

from math import e, log, pi

import pytest
import torch

import unnoise as un
from unnoise import decoders


class Centre(torch.nn.Module):
    """Predicts x_0 by a fixed smooth function."""

    def forward(self, x, t):
        return 0.9 * torch.tanh(x)


def test_gaussian_decoder_is_its_own_entropy():
    process = un.Gaussian((2,), un.schedules.Linear())
    x0 = torch.randn(4, 2, dtype=torch.float64)
    value = decoders.GaussianDecoder().nll(process, None, x0, None, 0.1)
    std = 0.1 / 0.9
    assert torch.allclose(value, torch.full((4,), 2 * (log(std) + 0.5 * log(2 * pi * e)), dtype=torch.float64), atol=1e-12)


def test_gaussian_decoder_by_drawing_agrees_with_its_closed_form():
    """-log N(x_0; x_eps/alpha, (sigma/alpha)^2) averaged over x_eps, within 4 standard errors."""
    process, eps, n = un.Gaussian((1,), un.schedules.Linear()), 0.2, 20_000
    x0 = torch.full((n, 1), 0.7, dtype=torch.float64)
    x_eps = process.marginal(x0, eps).draw(un.NoiseSource(0, n))
    std = torch.tensor(0.2 / 0.8, dtype=torch.float64)
    drawn = 0.5 * ((x0 - x_eps / 0.8) / std).square().squeeze(1) + std.log() + 0.5 * log(2 * pi)
    exact = decoders.GaussianDecoder().nll(process, None, x0[:1], None, eps).item()
    assert abs(drawn.mean().item() - exact) < 4 * drawn.std().item() / n**0.5


@pytest.mark.parametrize("levels", [2, 5, 256])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_discretised_gaussian_sums_to_one_over_the_levels(levels, dtype):
    process = un.Gaussian((1,), un.schedules.Linear())
    denoiser = un.Denoiser(Centre(), process, un.Clean)
    grid = torch.linspace(-1, 1, levels, dtype=torch.float64).to(dtype)
    for state in (-3.0, -0.2, 0.6, 40.0):
        x_eps = torch.full((levels, 1), state, dtype=dtype)
        nll = decoders.DiscretisedGaussian(levels).nll(process, denoiser(x_eps, 0.05), grid.unsqueeze(1), x_eps, 0.05)
        assert abs(float((-nll).exp().sum()) - 1) < (1e-5 if dtype == torch.float32 else 1e-10)


def test_discretised_gaussian_keeps_its_tail():
    """A level 60 standard deviations away has a finite surprise, and the right one."""
    process = un.Gaussian((1,), un.schedules.Linear())
    denoiser = un.Denoiser(Centre(), process, un.Clean)
    x_eps = torch.tensor([[-5.0]], dtype=torch.float64)
    x0 = torch.tensor([[0.0]], dtype=torch.float64)
    nll = decoders.DiscretisedGaussian(3).nll(process, denoiser(x_eps, 0.01), x0, x_eps, 0.01).item()
    std, centre = 0.01 / 0.99, 0.9 * torch.tanh(x_eps).item()
    z = (-0.5 - centre) / std  # the bin's near edge
    assert nll == pytest.approx(0.5 * z * z + log(abs(z)) + 0.5 * log(2 * pi), rel=1e-3)


def test_categorical_decoder_is_the_posterior():
    process = un.Uniform(3, (2,))
    oracle = un.oracles.table(process, torch.full((9,), 1 / 9))
    x0, x_eps, eps = torch.tensor([[0, 1]]), torch.tensor([[0, 2]]), 0.1
    # a uniform law: the posterior of each coordinate is its own likelihood, normalised
    stay, move = 0.9 + 0.1 / 3, 0.1 / 3
    value = decoders.CategoricalDecoder().nll(process, oracle(x_eps, eps), x0, x_eps, eps).item()
    assert value == pytest.approx(-log(stay) - log(move), abs=1e-12)


@pytest.mark.parametrize("kind", [un.Ratio, un.Rates])
def test_ratios_of_no_posterior_are_decoded_by_their_kernel(kind):
    """Wild ratios have no posterior; the bound still bounds: sum_x exp(-bound) <= 1 at the default cut-off."""
    process = un.Uniform(3, (1,))

    class Wild(torch.nn.Module):
        def forward(self, x, t):
            return torch.tensor([-15.0, 3.0, 1.0], dtype=torch.float64).expand(*x.shape, 3) + x.unsqueeze(-1)

    denoiser = un.Denoiser(Wild(), process, kind)
    total = un.bound(denoiser, process.space.states(), exact=True, times=un.Quadrature(200)).total
    assert total.isfinite().all() and float((-total).exp().sum()) <= 1


def test_exact_decoder_on_a_product_is_bayes():
    process = un.Product(y=un.Gaussian((1,)), c=un.Uniform(2, (1,)))
    oracle = un.oracles.conditional_gaussian(
        process, torch.tensor([0.3, 0.7]), torch.tensor([[-1.0], [1.0]]), torch.tensor([[[0.2]], [[0.4]]])
    )
    x0 = oracle.draw(un.NoiseSource(0, 1))
    x_eps = process.marginal(x0, 0.3).draw(un.NoiseSource(1, 1))
    line = torch.linspace(-6, 6, 4001, dtype=torch.float64)
    total = 0.0
    for c in (0, 1):
        data = {"y": line.unsqueeze(1), "c": torch.full((4001, 1), c)}
        state = {name: value.expand(4001, 1) for name, value in x_eps.items()}
        total += float(oracle.log_decode(data, state, 0.3).exp().sum()) * 12 / 4000
    assert total == pytest.approx(1.0, abs=1e-8)


def test_learned_variance_between_its_ends():
    """v = 0 is the posterior's variance, v = 1 the forward one, and the bound of the chain is what those give."""
    process = un.Gaussian((1,), un.schedules.Cosine())
    chain = un.Chain(process, [0.1, 0.4, 1.0])
    x0 = torch.tensor([[0.5], [-1.0]], dtype=torch.float64)

    class Pair(Centre):
        def __init__(self, v):
            super().__init__()
            self.v = v

        def forward(self, x, t):
            return super().forward(x, t), torch.full_like(x, self.v)

    for v, fixed in ((0.0, un.variances.PosteriorVariance()), (1.0, un.variances.ForwardVariance())):
        learned = un.bound(
            un.Denoiser(Pair(v), chain, un.Clean, variance=un.variances.LearnedVariance()), x0, exact=True
        ).total
        plain = un.bound(un.Denoiser(Centre(), chain, un.Clean, variance=fixed), x0, exact=True).total
        torch.testing.assert_close(learned, plain, atol=1e-12, rtol=0)


def test_fitted_clean_variance_interpolates_in_time():
    clean_variance = un.variances.fitted(torch.tensor([0.2, 0.6, 1.0]), torch.tensor([0.1, 0.5, 0.9]))
    x_t = torch.zeros(3, 1, dtype=torch.float64)
    value = clean_variance(x_t, torch.tensor([0.1, 0.4, 1.0], dtype=torch.float64)).flatten()
    torch.testing.assert_close(value, torch.tensor([0.1, 0.3, 0.9], dtype=torch.float64), atol=1e-6, rtol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_fitted_variance_beats_the_fixed_ones(dtype):
    """Gaussian data, exact mean: the measured variance gives the exact reverse kernel, so the 4-step bound is -log q."""
    process = un.Gaussian((1,), un.schedules.Cosine())
    chain = un.Chain(process, [0.1, 0.4, 0.7, 0.9, 1.0])
    mean, variance = 0.7, 0.4

    class Exact(torch.nn.Module):
        def forward(self, x, t):
            alpha, sigma = (f(t.double()).to(x.dtype).unsqueeze(1) for f in (process.schedule.alpha, process.schedule.sigma))
            return mean + alpha * variance / (alpha**2 * variance + sigma**2) * (x - alpha * mean)

    data = (mean + variance**0.5 * un.NoiseSource(0, 40_000).normal((1,))).to(dtype)
    oracle = un.oracles.normal(process, torch.tensor([mean]), torch.tensor([[variance]]))
    plain = un.Denoiser(Exact(), chain, un.Clean)
    fitted = un.fit_variance(plain, data, un.NoiseSource(1, len(data)))
    x = data[:200].double()
    totals = [un.bound(d, x, exact=True, decoder=oracle.decoder).total for d in (fitted, plain)]
    exact = -oracle.log_prob(x)
    assert (totals[0] - exact).abs().max() < 0.02  # the variance is measured to about 1 %
    assert totals[0].mean() < totals[1].mean() - 0.05


def test_fit_variance_wants_a_gaussian_chain():
    with pytest.raises(TypeError, match="fitted to a Gaussian chain"):
        un.fit_variance(un.Denoiser(Centre(), un.Gaussian((1,)), un.Clean), torch.zeros(2, 1))
