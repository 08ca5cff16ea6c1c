"""Functions of time, changes of measure and superpositions: identities of operators, by act alone."""

import pytest
import torch

import unnoise as un
from unnoise.generators import Generator
from unnoise.spaces import Euclidean, Finite, Local
from unnoise.spaces.local import LOG_ZERO, AddedJumps, JumpKernel


class GaussianJumps(JumpKernel):
    """Jumps by N(shift, 0.5^2) at a rate, over a fine grid of destinations."""

    def __init__(self, rate=2.0, shift=0.3):
        self.rate, self.shift = rate, shift

    def log_rate(self, x, y):
        z = ((y - x - self.shift) / 0.5).squeeze(-1)
        return torch.log(torch.tensor(self.rate / 0.5 / (2 * torch.pi) ** 0.5)) - 0.5 * z.square()

    def nodes(self, x):
        steps = torch.linspace(-6, 6, 801, dtype=torch.float64)
        return x.unsqueeze(1) + steps.reshape(1, -1, 1), torch.full((len(x), 801), steps[1] - steps[0]).double().log()


def jump_diffusion(x):
    return Local(drift=-x.sin(), diffusion=1 + 0.5 * x.cos(), jumps=GaussianJumps())


NUMBERS = Generator(Euclidean((1,)), jump_diffusion)
torch.manual_seed(0)
TABLE = torch.rand(3, 4, 3).double()


def letters(x):
    """Rates of two coordinates that hang on both."""
    log_rates = torch.stack([TABLE[0][x[:, 1]], TABLE[1][x[:, 0]]], 1)[..., :3].log()
    return Local(log_rates=log_rates.scatter(-1, x.unsqueeze(-1), LOG_ZERO))


LETTERS = Generator(Finite(3, (2,)), letters)
CASES = {
    "numbers": (NUMBERS, torch.randn(5, 1).double()),
    "letters": (LETTERS, torch.cartesian_prod(*[torch.arange(3)] * 2)),
}


def phi(x):
    return (x.double() + 0.3).sin().prod(1)


def log_h(x):
    return 0.4 * (x.double() ** 2 / 4).cos().sum(1)


@pytest.mark.parametrize("name", CASES)
def test_a_tilted_generator_is_the_one_of_the_changed_measure(name):
    """L^h phi = [L(h phi) - phi L h]/h."""
    generator, x = CASES[name]
    h = lambda y: log_h(y).exp()  # noqa: E731
    wanted = (generator.act(lambda y: h(y) * phi(y), x) - phi(x) * generator.act(h, x)) / h(x)
    torch.testing.assert_close(generator.tilted(log_h).act(phi, x), wanted, rtol=1e-10, atol=1e-10)
    assert (generator.act(phi, x) - wanted).abs().max() > 0.01  # it is another one


@pytest.mark.parametrize("name", CASES)
def test_a_function_of_time_changes_by_itself_too(name):
    generator, x = CASES[name]
    moving = lambda y, t: phi(y) * (1 + t) ** 2  # noqa: E731
    wanted = 2 * (1 + 0.3) * phi(x) + (1 + 0.3) ** 2 * generator.act(phi, x)
    torch.testing.assert_close(generator.extended(moving, x, 0.3), wanted)
    torch.testing.assert_close(generator.extended(lambda y, t: phi(y), x, 0.3), generator.act(phi, x))


@pytest.mark.parametrize("name", CASES)
def test_a_superposition_is_the_weighted_sum(name):
    generator, x = CASES[name]
    both = 0.3 * generator + generator.tilted(log_h) * 0.7
    wanted = 0.3 * generator.act(phi, x) + 0.7 * generator.tilted(log_h).act(phi, x)
    torch.testing.assert_close(both.act(phi, x), wanted, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close((0 * generator).act(phi, x), torch.zeros(len(x)).double())
    with pytest.raises(ValueError, match="a generator times -1 is none"):
        (-1 * generator).act(phi, x)


def test_two_kernels_at_once_have_nodes_between_them():
    """Their adjoint, over the nodes of both, is the sum of the two adjoints; their divergence from themselves is 0."""
    first, second = GaussianJumps(2.0, 0.3), GaussianJumps(0.7, -1.5)
    x = torch.randn(4, 1).double()
    q = lambda y: torch.exp(-0.5 * y.square()).squeeze(-1)  # noqa: E731

    def alone(jumps):
        return Generator(Euclidean((1,)), lambda y: Local(jumps=jumps))

    both = alone(AddedJumps(first, second))
    torch.testing.assert_close(
        both.adjoint(q, x), alone(first).adjoint(q, x) + alone(second).adjoint(q, x), rtol=1e-7, atol=0
    )
    data = both.local(x)
    assert float(Euclidean((1,)).divergence(data, data, x).abs().max()) < 1e-12
    other = Local(jumps=AddedJumps(GaussianJumps(3.0, 0.3), second))
    found = Euclidean((1,)).divergence(data, other, x)
    assert 0 < float(found.max()) < 3.0 - 2.0 + 2.0 * float(torch.tensor(2 / 3).log()) + 1e-6  # less than if told apart


def test_a_space_that_does_not_say_how_it_is_tilted_is_named():
    class Bare(un.spaces.Space):
        dimension = 1

        def check(self, x, name="x"):
            return x

    with pytest.raises(un.checks.Unanswered, match="the space Bare does not say the drift and the jumps under a change"):
        Generator(Bare(), lambda x: Local()).tilted(log_h).local(torch.zeros(1, 1))
