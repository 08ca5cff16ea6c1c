"""The forward equation on a grid: laws stay laws, and the error falls like the square of the width."""

from math import log

import pytest
import torch

from unnoise.generators import Generator
from unnoise.generators.fokker_planck import FokkerPlanck, bernoulli
from unnoise.spaces import Euclidean, Finite, Local
from unnoise.spaces.local import JumpKernel


def normal(mean, variance):
    return lambda x: -0.5 * ((x.squeeze(-1) if x.ndim > 1 else x) - mean) ** 2 / variance


def ornstein(t):
    return Generator(Euclidean((1,)), lambda x: Local(drift=-x, diffusion=2 * (1 + t) * torch.ones_like(x)))


def exact(t):
    """Mean and variance of dx = -x dt + sqrt(2 (1 + t)) dW from N(1, 0.25)."""
    return torch.exp(torch.tensor(-t)).item(), 0.25 * torch.exp(torch.tensor(-2 * t)).item() + (
        (1 + t) - 0.5 - 0.5 * torch.exp(torch.tensor(-2 * t)).item()
    )


def error(cells):
    grid = FokkerPlanck(ornstein, [-8], [9], [cells])
    law = grid.solve(grid.law_of(normal(1.0, 0.25)), 0.0, 0.7, cells // 8)
    assert float(law.min()) >= 0 and float(law.sum()) == pytest.approx(1.0, abs=1e-11)
    return float((law - grid.law_of(normal(*exact(0.7)))).abs().sum())


def test_the_law_of_a_linear_equation_with_order_two():
    errors = [error(cells) for cells in (64, 128, 256)]
    orders = [log(a / b, 2) for a, b in zip(errors, errors[1:], strict=False)]
    assert errors[-1] < 2e-3 and all(1.8 < order < 2.3 for order in orders), (errors, orders)


def test_a_diffusion_that_changes_from_place_to_place_rests_in_its_law():
    """a = 1 + x^2 with drift -2 x rests in q ~ (1 + x^2)^-3: the mutant that forgets a' rests elsewhere."""

    def at(t):
        return Generator(Euclidean((1,)), lambda x: Local(drift=-2 * x, diffusion=1 + x.square()))

    grid = FokkerPlanck(at, [-30], [30], [1500])
    rest = grid.law_of(lambda x: -3 * (1 + x.squeeze(-1) ** 2).log())
    flow = torch.sparse.mm(grid.rates(0.0), rest.unsqueeze(1)).squeeze(1)
    assert float(flow.abs().sum()) < 5e-3
    wrong = grid.law_of(lambda x: -2 * (1 + x.squeeze(-1) ** 2).log())
    assert float(torch.sparse.mm(grid.rates(0.0), wrong.unsqueeze(1)).abs().sum()) > 0.2


def test_two_dimensions_are_the_product_where_coordinates_are_independent():
    def at(t):
        speed = torch.tensor([1.0, 3.0], dtype=torch.float64)
        return Generator(Euclidean((2,)), lambda x: Local(drift=-speed * x, diffusion=speed * torch.ones_like(x)))

    def alone(speed):
        return lambda t: Generator(Euclidean((1,)), lambda x: Local(drift=-speed * x, diffusion=speed * torch.ones_like(x)))

    grid = FokkerPlanck(at, [-4, -4], [4, 4], [40, 30])
    start = lambda x: -((x - 0.5) ** 2).sum(1)  # noqa: E731
    law = grid.solve(grid.law_of(start), 0.0, 0.5, 10).reshape(40, 30)
    for axis, speed, cells in ((0, 1.0, 40), (1, 3.0, 30)):
        own = FokkerPlanck(alone(speed), [-4], [4], [cells])
        wanted = own.solve(own.law_of(start), 0.0, 0.5, 10)
        torch.testing.assert_close(law.sum(1 - axis), wanted, rtol=1e-9, atol=1e-12)


class Kicks(JumpKernel):
    """N(0, s^2) kicks at rate 3."""

    def log_rate(self, x, y):
        z = (y - x).squeeze(-1) / 0.7
        return log(3 / 0.7) - 0.5 * log(2 * torch.pi) - 0.5 * z.square()

    def nodes(self, x):
        raise NotImplementedError


def test_jumps_beside_a_diffusion():
    """Given N ~ Poisson(3 t) kicks a Brownian motion is normal with variance t + 0.49 N: the law is their mixture."""

    def at(t):
        return Generator(Euclidean((1,)), lambda x: Local(diffusion=torch.ones_like(x), jumps=Kicks()))

    grid, t = FokkerPlanck(at, [-12], [12], [480]), 0.5
    law = grid.solve(grid.law_of(normal(0.0, 0.2)), 0.0, t, 4)
    x = grid.points.squeeze(1)
    n = torch.arange(25).double()
    weight = (n * log(3 * t) - 3 * t - torch.lgamma(n + 1)).exp()
    variance = 0.2 + t + 0.49 * n
    density = (weight * (-0.5 * x[:, None] ** 2 / variance).exp() / (2 * torch.pi * variance).sqrt()).sum(1)
    assert float((grid.density(law) - density).abs().sum() * grid.volume) < 2e-3
    assert float(law.sum()) == pytest.approx(1.0, abs=1e-11)


def test_without_diffusion_mass_goes_with_the_wind():
    at = lambda t: Generator(Euclidean((1,)), lambda x: Local(drift=torch.ones_like(x)))  # noqa: E731
    grid = FokkerPlanck(at, [-4], [8], [600])
    law = grid.solve(grid.law_of(normal(0.0, 0.5)), 0.0, 2.0, 4)
    assert float((law * grid.points.squeeze(1)).sum()) == pytest.approx(2.0, abs=1e-6)


def test_the_weight_of_a_wall_is_positive_and_smooth():
    z = torch.tensor([-700.0, -1e-3 - 1e-9, -1e-3 + 1e-9, 0.0, 1e-3, 40.0, 800.0]).double()
    found = bernoulli(z)
    assert bool((found >= 0).all()) and float(found[3]) == 1.0
    torch.testing.assert_close(found[1], found[2], rtol=1e-8, atol=0)
    torch.testing.assert_close(bernoulli(-z[5:6]) - bernoulli(z[5:6]), z[5:6])


def test_what_a_grid_cannot_hold_is_refused():
    with pytest.raises(ValueError, match="low < high"):
        FokkerPlanck(ornstein, [1], [0], [10])
    with pytest.raises(ValueError, match="give one or two each"):
        FokkerPlanck(ornstein, [0, 0, 0], [1, 1, 1], [4, 4, 4])
    with pytest.raises(TypeError, match="the grid has 1 axes of numbers, and the generator moves on Finite"):
        FokkerPlanck(lambda t: Generator(Finite(3, (1,)), ornstein), [0], [1], [4]).rates(0.0)
    shrinking = lambda t: Generator(Euclidean((1,)), lambda x: Local(diffusion=-torch.ones_like(x), drift=float("nan") * x))  # noqa: E731
    with pytest.raises(ValueError, match="negative or not finite on the grid"):
        FokkerPlanck(shrinking, [0], [1], [4]).rates(0.0)
