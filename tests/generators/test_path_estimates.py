"""Along simulated paths: means that are 0, 1 and a divergence known in closed form.  Each check is at five standard errors:
it is off by chance once in two million runs."""

from math import log

import torch

import unnoise as un
from unnoise.generators import Generator
from unnoise.generators.path_estimates import (
    Estimate,
    dynkin,
    exponential_martingale,
    log_density_ratio,
    path_divergence,
    simulated,
)
from unnoise.spaces import Euclidean, Finite, Local

PATHS, STEPS = 20_000, 64
TIMES = torch.linspace(0, 1, STEPS + 1).tolist()


def ornstein(pull=1.0, to=0.0):
    return lambda t: Generator(Euclidean((2,)), lambda x: Local(drift=-pull * (x - to), diffusion=torch.ones_like(x)))


def chain(speed=1.0):
    """Three states in a ring, faster one way."""

    def local(x):
        rates = torch.full((*x.shape, 3), 0.3, dtype=torch.float64)
        rates = rates.scatter(-1, ((x + 1) % 3).unsqueeze(-1), speed).scatter(-1, x.unsqueeze(-1), 0.0)
        return Local(log_rates=rates.clamp_min(1e-300).log().clamp_min(-1e30))

    return lambda t: Generator(Finite(3, (2,)), local)


def paths_of(generator):
    space = generator(0.0).space
    x = torch.zeros(PATHS, 2, dtype=torch.int64 if space.enumerable else torch.float64)
    return simulated(generator, x, TIMES, un.NoiseSource(0, PATHS))


def phi(x, t):
    return (1 + t) * (x.double() + 0.5).cos().prod(1)


def within(found: Estimate, wanted: float, slack: float = 0.0) -> bool:
    return abs(found.mean - wanted) < 5 * found.error + slack


def test_dynkin_and_the_mutant_that_forgets_the_derivative_in_time():
    for generator in (ornstein(), chain()):
        paths = paths_of(generator)
        found = dynkin(generator, phi, paths)
        assert within(found, 0.0, 1 / STEPS), found
        frozen = dynkin(generator, lambda x, t: phi(x, t.detach()), paths)
        assert not within(frozen, 0.0, 1 / STEPS), frozen


def test_the_exponential_martingale_and_the_mutant_of_another_generator():
    log_h = lambda x: 0.5 * x.double().sin().sum(1)  # noqa: E731
    for generator, other in ((ornstein(), ornstein(3.0)), (chain(), chain(2.0))):
        paths = paths_of(generator)
        found = exponential_martingale(generator, log_h, paths)
        assert within(found, 1.0, 1 / STEPS), found
        assert not within(exponential_martingale(other, log_h, paths), 1.0, 1 / STEPS)


def test_divergence_of_path_laws_in_two_ways_and_in_closed_form():
    """Ornstein-Uhlenbeck processes with means 0 and m differ by a constant drift: KL = 1/2 m^2 per coordinate and time."""
    by_ratio, by_rate = path_divergence(ornstein(), ornstein(to=0.7), paths_of(ornstein()))
    assert abs(by_rate.mean - 0.49) < 1e-9 and within(by_ratio, 0.49)
    by_ratio, by_rate = path_divergence(chain(), chain(2.0), paths_of(chain()))
    wanted = 2 * (2.0 - 1.0 + 1.0 * log(0.5))  # two coordinates, one edge each
    assert abs(by_rate.mean - wanted) < 1e-9 and within(by_ratio, wanted, 2 / STEPS)


def test_the_density_ratio_integrates_to_one():
    """E_P[dQ/dP] = 1: for the chains of steps, whatever their length."""
    paths = paths_of(ornstein())
    assert within(Estimate.of((-log_density_ratio(ornstein(), ornstein(to=0.7), paths)).exp()), 1.0)
    paths = paths_of(chain())
    assert within(Estimate.of((-log_density_ratio(chain(), chain(2.0), paths)).exp()), 1.0)
