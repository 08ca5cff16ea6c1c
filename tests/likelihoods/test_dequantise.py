"""Data in bins: bounds on the bins' probabilities, which are differences of the normal distribution function."""

from math import log

import pytest
import torch
from torch import Tensor

import unnoise as un
from unnoise.laws import sum_coordinates
from unnoise.likelihoods.base import Likelihood, LikelihoodInfo
from unnoise.likelihoods.dequantise import Dequantised, UniformDequantisation, VariationalDequantisation
from unnoise.likelihoods.flow import ProbabilityFlow
from unnoise.noise import NoiseSource

WIDTH, LOW, BINS = 0.4, -2.0, 10
WEIGHTS = torch.tensor([0.3, 0.7], dtype=torch.float64)
MEANS = torch.tensor([-0.7, 0.5], dtype=torch.float64)
STDS = torch.tensor([0.5, 0.3], dtype=torch.float64)


def cdf(x: Tensor) -> Tensor:
    return (WEIGHTS * torch.special.ndtr((x.unsqueeze(-1) - MEANS) / STDS)).sum(-1)


def density(x: Tensor) -> Tensor:
    z = (x.unsqueeze(-1) - MEANS) / STDS
    return (WEIGHTS * torch.exp(-0.5 * z.square()) / (STDS * (2 * torch.pi) ** 0.5)).sum(-1)


def log_mass(k: Tensor) -> Tensor:
    """log P of each row: coordinates are independent."""
    low = LOW + WIDTH * k.double()
    return sum_coordinates((cdf(low + WIDTH) - cdf(low)).log())


class Exact(Likelihood):
    """The data's own density, independent over coordinates."""

    def log_prob(self, denoiser, x0, noise, condition):
        rows = len(x0)
        return sum_coordinates(density(x0.double()).log()), LikelihoodInfo(
            "the data's", calls=1, rows=rows, dimension=x0[0].numel()
        )


class Optimal(torch.nn.Module):
    """u with the density of the data within the bin: the inverse of its distribution function, by bisection."""

    def forward(self, k, v):
        low = LOW + WIDTH * k.double()
        bottom, mass = cdf(low), cdf(low + WIDTH) - cdf(low)
        u, step = torch.zeros_like(v), 0.5
        for _ in range(52):
            u = torch.where(cdf(low + WIDTH * (u + step)) - bottom <= v * mass, u + step, u)
            step /= 2
        return u, sum_coordinates((density(low + WIDTH * u) * WIDTH / mass).log())


def bins(*shape: int) -> Tensor:
    return torch.arange(BINS).repeat_interleave(shape[0] // BINS).reshape(shape[0], *[1] * (len(shape) - 1)).expand(shape)


def ask(method: Dequantised, k: Tensor, seed: int = 0):
    denoiser = un.oracles.normal(un.Gaussian(tuple(k.shape[1:])), torch.zeros(k.shape[1:]), torch.eye(k[0].numel()))
    return method.log_prob(denoiser, k, NoiseSource(seed, len(k)), {})


NODES = (torch.arange(2000, dtype=torch.float64) + 0.5) / 2000


def uniform_gap(k: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and variance over u of log p(x) + log w - log P, by the midpoint rule."""
    x = LOW + WIDTH * (k.double().unsqueeze(-1) + NODES)
    value = density(x).log() + log(WIDTH) - log_mass(k).unsqueeze(-1)
    return value.mean(-1), value.var(-1, correction=0)


def check_uniform(method: Dequantised) -> None:
    """The mean over 4,000 draws of a bin is off by 5 standard errors with probability 6e-7."""
    k = bins(40_000)
    value, info = ask(method, k)
    gap, variance = uniform_gap(torch.arange(BINS))
    mean = (value - log_mass(k)).reshape(BINS, -1).mean(1)
    assert bool(((mean - gap).abs() < 5 * (variance / 4000).sqrt()).all())
    assert bool((gap < 0).all()) and float(gap.min()) < -0.02  # a bound, and not a tight one
    assert info.bound and info.error is None


def test_the_uniform_bound_and_its_gap():
    check_uniform(Dequantised(Exact(), WIDTH, LOW))


def test_a_forgotten_width_is_seen(monkeypatch):
    monkeypatch.setattr("unnoise.likelihoods.dequantise.log", lambda value: 0.0)
    with pytest.raises(AssertionError):
        check_uniform(Dequantised(Exact(), WIDTH, LOW))


def test_the_optimum_closes_the_gap():
    """Every single draw gives log P."""
    k = bins(20, 3)
    value, info = ask(Dequantised(Exact(), WIDTH, LOW, Optimal()), k)
    torch.testing.assert_close(value, log_mass(k), rtol=0, atol=1e-9)
    bits = info.bits_per_dim(value)
    torch.testing.assert_close(bits, -log_mass(k) / (3 * log(2)), rtol=0, atol=1e-9)
    assert info.dimension == 3 and info.offset == 0


def test_more_draws_are_tighter():
    """E[log (1/S) sum of weights] rises to log P; the mean of the weights is P itself at any S."""
    k = bins(20_000)
    one, _ = ask(Dequantised(Exact(), WIDTH, LOW), k)
    many, info = ask(Dequantised(Exact(), WIDTH, LOW, draws=16), k)
    told = log_mass(k)
    gaps = [(value - told).reshape(BINS, -1).mean(1) for value in (one, many)]
    wide = uniform_gap(torch.arange(BINS))[0] < -0.005
    assert bool((gaps[1][wide] > gaps[0][wide] / 4).all()) and bool((gaps[1] < 1e-3).all())
    error = (many.exp() / told.exp() - 1).reshape(BINS, -1)
    assert bool((error.mean(1).abs() < 5 * error.std(1) / 2000**0.5).all())
    many, info = ask(Dequantised(Exact(), WIDTH, LOW, draws=64), k)
    ratio = ((many - told) / info.error).square().reshape(BINS, -1).mean(1)
    assert bool(((ratio > 0.8) & (ratio < 1.4)).all())  # the error that is told is the error that is made


def test_the_logistic_law_is_a_density():
    """int q du = 1, and q is dv/du."""
    module = VariationalDequantisation((), bins=BINS)
    with torch.no_grad():
        module.constant.copy_(torch.tensor([0.3, -0.4]))
        module.slope.copy_(torch.tensor([-0.6, 0.2]))
    k = torch.full((len(NODES),), 3)
    v = NODES.clone().requires_grad_()
    u, log_q = module(k, v)
    slope = torch.autograd.grad(u.sum(), v)[0]
    u, log_q = u.detach(), log_q.detach()
    torch.testing.assert_close(log_q, -slope.log(), rtol=0, atol=1e-10)
    assert bool((u[1:] > u[:-1]).all()) and float(u[0]) > 0 and float(u[-1]) < 1
    mass = ((log_q[1:].exp() + log_q[:-1].exp()) / 2 * (u[1:] - u[:-1])).sum()
    assert abs(float(mass) - 1) < 1e-2
    zero, plain = VariationalDequantisation((), bins=BINS)(k, NODES), UniformDequantisation()(k, NODES)
    torch.testing.assert_close(zero[0], plain[0], rtol=0, atol=1e-15)
    torch.testing.assert_close(zero[1], plain[1], rtol=0, atol=1e-12)


@pytest.mark.parametrize("count", [2, BINS])
def test_the_lines_run_from_the_first_bin_to_the_last(count):
    """constant - slope at bin 0, constant + slope at the last one, of shift and of log scale."""
    module = VariationalDequantisation((), bins=count)
    constant, slope = torch.tensor([0.3, -0.4], dtype=torch.float64), torch.tensor([-0.6, 0.2], dtype=torch.float64)
    with torch.no_grad():
        module.constant.copy_(constant)
        module.slope.copy_(slope)
        said = torch.stack(module.parameters_of(torch.tensor([0, count - 1])), -1)
    torch.testing.assert_close(said, torch.stack([constant - slope, constant + slope]), rtol=0, atol=1e-12)


def test_training_closes_most_of_the_gap():
    """On one normal the log-density falls off about linearly within a bin, more so further out, as the lines can say."""
    module = VariationalDequantisation((), bins=BINS)
    method = Dequantised(Exact(), WIDTH, LOW, module)
    k = torch.arange(2, 8).repeat(40)
    optimiser = torch.optim.Adam(module.parameters(), lr=0.05)
    weight = log_mass(k).exp()

    def loss(seed: int) -> Tensor:
        x, log_q = method.draw(k, NoiseSource(seed, len(k)))
        return (weight * (log_q - density(x).log() + log_mass(k))).sum() / weight.sum()

    before = float(sum(loss(1000 + i).detach() for i in range(20)) / 20)
    for step in range(150):
        optimiser.zero_grad()
        loss(step).backward()
        optimiser.step()
    after = float(sum(loss(1000 + i).detach() for i in range(20)) / 20)
    assert 0 < after < 0.7 * before


def test_a_network_of_one_s_own():
    class Constant(torch.nn.Module):
        def forward(self, k):
            return torch.stack([0.5 * torch.ones_like(k), -0.2 * torch.ones_like(k)], -1)

    own, lines = VariationalDequantisation((2,), BINS, Constant()), VariationalDequantisation((2,), BINS)
    with torch.no_grad():
        lines.constant.copy_(torch.tensor([0.5, -0.2]).expand(2, 2))
    k, v = bins(20, 2), NoiseSource(3, 20).uniform((2,))
    for a, b in zip(own(k, v), lines(k, v), strict=True):
        torch.testing.assert_close(a, b, rtol=0, atol=1e-6)


def test_through_the_flow():
    """The flow's density of normal data at its cutoff, over bins: with many draws near the bins' exact probability."""
    process = un.Gaussian((2,), un.schedules.Linear())
    oracle = un.oracles.normal(process, torch.zeros(2), 0.25 * torch.eye(2), un.Clean)
    k = torch.tensor([[4, 5], [3, 6]])
    method = Dequantised(ProbabilityFlow(rtol=1e-5, atol=1e-5), WIDTH, LOW, draws=64)
    value, info = method.log_prob(oracle, k, NoiseSource(0, 2), {})
    low = LOW + WIDTH * k.double()
    std = (0.25 * (1 - process.cutoff) ** 2 + process.cutoff**2) ** 0.5
    told = sum_coordinates((torch.special.ndtr((low + WIDTH) / std) - torch.special.ndtr(low / std)).log())
    assert bool(((value - told).abs() < 5 * info.error).all()) and float(info.error.max()) < 0.1
    alone = torch.cat([method.log_prob(oracle, k[i : i + 1], NoiseSource(0, torch.tensor([i])), {})[0] for i in range(2)])
    torch.testing.assert_close(value, alone, rtol=0, atol=1e-9)  # a product of matrices rounds by the number of its rows


SIX, SHARED, OWN = 6, 0.9, 0.2  # coordinates x_i = SHARED z + OWN e_i


def log_mass_of_six(k: Tensor, cutoff: float) -> Tensor:
    """log P at the cutoff of Linear: given z the coordinates are independent, and z is summed over a fine grid."""
    z = torch.linspace(-8, 8, 4001, dtype=torch.float64).reshape(-1, 1, 1)
    shared, own = SHARED * (1 - cutoff), ((OWN * (1 - cutoff)) ** 2 + cutoff**2) ** 0.5
    low = LOW + WIDTH * k.double()
    inside = torch.special.ndtr((low + WIDTH - shared * z) / own) - torch.special.ndtr((low - shared * z) / own)
    weight = torch.exp(-0.5 * z[:, :, 0].square()) / (2 * torch.pi) ** 0.5 * (16 / 4000)
    return (inside.prod(-1) * weight).sum(0).log()


def test_what_is_called_a_bound_is_one():
    """Six correlated coordinates: the mean over 400 rows, which strays by 5 standard errors with probability 6e-7.

    Draws under an estimated trace lie above log P by more than a nat, and are no bound.
    """
    process = un.Gaussian((SIX,), un.schedules.Linear())
    covariance = SHARED**2 * torch.ones(SIX, SIX) + OWN**2 * torch.eye(SIX)
    oracle = un.oracles.normal(process, torch.zeros(SIX), covariance, un.Clean)
    k = ((oracle.draw(NoiseSource(5, 400)) - LOW) / WIDTH).floor().long()
    told = log_mass_of_six(k, process.cutoff)
    gaps = {}
    for trace in ("exact", "hutchinson"):
        for draws in (1, 16):
            method = Dequantised(ProbabilityFlow(trace, rtol=1e-4, atol=1e-4), WIDTH, LOW, draws=draws)
            value, info = method.log_prob(oracle, k, NoiseSource(0, len(k)), {})
            mean, error = float((value - told).mean()), float((value - told).std()) / len(k) ** 0.5
            assert info.bound == (mean < 5 * error), (trace, draws, mean, error)
            assert info.estimated == (trace == "hutchinson")
            gaps[trace, draws] = mean
    assert gaps["hutchinson", 16] > 1 and gaps["exact", 1] < -0.5 < gaps["exact", 16]


def test_conditions_are_repeated_with_the_draws():
    seen = {}

    class Spy(Exact):
        def log_prob(self, denoiser, x0, noise, condition):
            seen.update(condition, rows=noise.rows)
            return super().log_prob(denoiser, x0, noise, condition)

    denoiser = un.oracles.normal(un.Gaussian(()), torch.zeros(()), torch.eye(1))
    Dequantised(Spy(), WIDTH, LOW, draws=3).log_prob(
        denoiser, torch.tensor([1, 2]), NoiseSource(0, 2), {"y": torch.tensor([5, 6])}
    )
    assert seen["y"].tolist() == [5, 6] * 3
    assert len(set(seen["rows"].tolist())) == 6


def test_refusals():
    method = Dequantised(Exact(), WIDTH, LOW)
    with pytest.raises(TypeError, match="bins are numbered by integers"):
        ask(method, torch.rand(4))
    with pytest.raises(ValueError, match="width = 0"):
        Dequantised(Exact(), 0.0)
    with pytest.raises(ValueError, match="draws = 0"):
        Dequantised(Exact(), draws=0)
    with pytest.raises(ValueError, match="bins = 1"):
        VariationalDequantisation((), bins=1)
    assert "Masking has not" in Dequantised(ProbabilityFlow()).refuse(un.Masking(3))
