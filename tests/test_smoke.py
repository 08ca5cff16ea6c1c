"""The shortest paths through the library, on scalar and shaped states."""

import pytest
import torch

import unnoise as un


def law(count):
    weights = torch.rand(count, dtype=torch.float64) + 0.1
    return weights / weights.sum()


@pytest.mark.parametrize("process", [un.Masking(3, 2), un.Masking(4), un.Uniform(3, 2), un.Uniform(4)], ids=str)
def test_exact_bound_of_a_table_is_its_negative_log_likelihood(process):
    oracle = un.oracles.table(process, law(process.space.count))
    x = process.space.states()
    torch.testing.assert_close(un.bound(oracle, x, exact=True).total, -oracle.log_prob(x), atol=1e-10, rtol=0)


def test_a_scalar_leaf_of_a_product():
    process = un.Product(age=un.Gaussian((1,)), job=un.Uniform(size=3))
    oracle = un.oracles.conditional_gaussian(
        process, law(3), torch.tensor([[-1.0], [0.0], [2.0]]), torch.tensor([[[0.3]], [[0.5]], [[0.2]]])
    )
    x = oracle.draw(un.NoiseSource(0, 3))
    bound = un.bound(oracle, x, exact=True, cutoff=0.05, decoder=oracle.decoder)
    torch.testing.assert_close(bound.total, -oracle.log_prob(x), atol=1e-8, rtol=0)


def test_a_bound_says_what_it_is():
    process = un.Masking(3, (4,))
    network = torch.nn.Sequential(torch.nn.Embedding(4, 3))

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table = network

        def forward(self, x, t):
            return self.table(x)

    denoiser = un.Denoiser(Network(), process)
    bound = un.bound(denoiser, torch.randint(3, (5, 4)), seed=0)
    assert bound.total.shape == (5,) and "mean over 5 examples" in repr(bound)
    again = un.bound(denoiser, torch.zeros(5, 4, dtype=torch.long), seed=0)
    assert torch.equal(again.total, un.bound(denoiser, torch.zeros(5, 4, dtype=torch.long), seed=0).total)
