"""A sum of independent coordinates against the dense matrix, and a million states that are never listed."""

import pytest
import torch

from unnoise.generators import Generator
from unnoise.generators.kolmogorov import matrix
from unnoise.generators.kronecker import KroneckerSum, uniformised
from unnoise.processes import Uniform
from unnoise.spaces import Finite, Local


def random_rates(size, seed):
    rates = torch.rand(size, size, generator=torch.Generator().manual_seed(seed)).double()
    rates.fill_diagonal_(0.0)
    return rates - torch.diag(rates.sum(0))


SUM = KroneckerSum([random_rates(n, n) for n in (3, 4, 2)])


def test_products_are_those_of_the_dense_matrix():
    eye = torch.eye(4).double()
    three, four, two = SUM.factors
    dense = torch.kron(torch.kron(three, eye), torch.eye(2).double())
    dense += torch.kron(torch.kron(torch.eye(3).double(), four), torch.eye(2).double())
    dense += torch.kron(torch.eye(12).double(), two)
    torch.testing.assert_close(SUM.dense(), dense)
    p = torch.rand(5, 24).double()
    torch.testing.assert_close(SUM(p), p @ dense.T)
    torch.testing.assert_close(SUM.transposed(p), p @ dense)
    for t in (0.0, 0.3, 40.0):
        torch.testing.assert_close(SUM.evolve(p, t), p @ torch.linalg.matrix_exp(t * dense).T, rtol=1e-11, atol=1e-13)


def test_long_times_go_in_pieces_and_keep_the_mass():
    p = torch.zeros(24).double()
    p[5] = 1.0
    far = SUM.evolve(p, 1000.0)
    assert float(far.sum()) == pytest.approx(1.0, abs=1e-12) and float(SUM(far).abs().max()) < 1e-12


def test_a_million_states_by_their_coordinates():
    """exp of a sum is the product of exponentials: each coordinate's own law, to rounding."""
    big = KroneckerSum([random_rates(10, k) for k in range(6)])
    assert big.count == 10**6
    p = torch.zeros(big.count).double()
    p[123456] = 1.0
    law = big.evolve(p, 0.2).reshape([10] * 6)
    for k, digit in enumerate((1, 2, 3, 4, 5, 6)):
        own = law.sum([j for j in range(6) if j != k])
        torch.testing.assert_close(own, torch.linalg.matrix_exp(0.2 * big.factors[k])[:, digit], rtol=1e-10, atol=1e-13)
    with pytest.raises(ValueError, match="1,000,000 states are too many to write out"):
        big.dense()


def test_it_is_read_off_a_generator_of_independent_coordinates():
    process = Uniform(3, (4,))
    generator = Generator(process.state_space, lambda x: process.local(x, torch.full((len(x),), 0.4).double()))
    torch.testing.assert_close(KroneckerSum.of(generator).dense(), matrix(generator))

    def tied(x):
        rates = 1.0 + (x[:, :1] == 0).double().unsqueeze(-1).expand(-1, 2, 3)
        return Local(log_rates=rates.log().scatter(-1, x.unsqueeze(-1), -1e30))

    with pytest.raises(ValueError, match="the rates of coordinate 1 hang on the others"):
        KroneckerSum.of(Generator(Finite(3, (2,)), tied))


def test_a_coordinate_may_rest():
    p = torch.rand(6).double()
    still = KroneckerSum([torch.zeros(3, 3), random_rates(2, 1)]).evolve(p, 0.7).reshape(3, 2)
    torch.testing.assert_close(still.sum(1), p.reshape(3, 2).sum(1))


def test_what_is_no_rate_matrix_is_refused():
    with pytest.raises(ValueError, match="the rate 1 -> 0, entry .0, 1., is -1"):
        KroneckerSum([random_rates(2, 0), torch.tensor([[0.0, -1.0], [0.0, 1.0]])])
    with pytest.raises(ValueError, match="column 0 sums to 2, not 0"):
        KroneckerSum([torch.ones(2, 2)])
    with pytest.raises(ValueError, match="a vector of 3 entries; the 3 coordinates have 24 states"):
        SUM(torch.ones(3))
    with pytest.raises(ValueError, match="t = -1"):
        uniformised(SUM, SUM.fastest, torch.ones(24), -1.0)
