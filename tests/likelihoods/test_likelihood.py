"""`likelihood`: which method it picks, and what it refuses."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.likelihoods import Dequantised, Enumeration, PathWeighted, ProbabilityFlow, default_method, likelihood


def law_on(count: int) -> torch.Tensor:
    law = torch.rand(count, generator=torch.Generator().manual_seed(3), dtype=torch.float64) + 0.05
    return law / law.sum()


def normal(d=2):
    return un.oracles.normal(un.Gaussian((d,)), torch.full((d,), 0.3).double(), 0.5 * torch.eye(d).double())


def poisson():
    return un.oracles.poisson_mixture(un.Thinning((2,)), torch.ones(1), torch.tensor([[1.5, 4.0]]).double())


def mixed():
    process = un.Product(n=un.Gaussian((1,)), c=un.Uniform(2, ()))
    means, covariances = torch.tensor([[-0.8], [0.6]]).double(), torch.tensor([[[0.3]], [[0.6]]]).double()
    return un.oracles.conditional_gaussian(process, torch.tensor([0.3, 0.7]), means, covariances)


@pytest.mark.parametrize(
    "process, method, trace",
    [
        (un.Gaussian((16,)), ProbabilityFlow, "exact"),
        (un.Gaussian((17,)), ProbabilityFlow, "hutchinson"),
        (un.Product(a=un.Gaussian((1,)), b=un.Gaussian((2,))), ProbabilityFlow, "exact"),
        (un.Chain(un.Gaussian((1,)), 4), PathWeighted, None),
        (un.Uniform(8, (4,)), Enumeration, None),
        (un.Masking(8, (4,)), PathWeighted, None),  # 9^4 states
        (un.Chain(un.Masking(3, (4,)), 4), Enumeration, None),
        (un.Product(a=un.Uniform(64), b=un.Uniform(64)), Enumeration, None),
        (un.Product(a=un.Uniform(64), b=un.Uniform(65)), PathWeighted, None),
        (un.Thinning((1,)), PathWeighted, None),
        (un.Product(a=un.Gaussian((1,)), b=un.Uniform(2)), PathWeighted, None),
    ],
    ids=lambda value: getattr(value, "__name__", None),
)
def test_the_method_fits_the_space(process, method, trace):
    chosen = default_method(process)
    assert type(chosen) is method and getattr(chosen, "trace", None) == trace


@pytest.mark.parametrize(
    "oracle, tolerance", [(normal(), 1e-4), (poisson(), 1e-9), (mixed(), 1.0)], ids=["numbers", "counts", "mixed"]
)
def test_default_answers_are_right(oracle, tolerance):
    """Exact for Poisson counts at any number of steps; the mixed one with its 16 paths is rough, and says so."""
    x = oracle.draw(un.NoiseSource(1, 4))
    log_p, info = likelihood(oracle, x, seed=0)
    gap = (log_p - oracle.log_prob(x)).abs()
    assert float(gap.max()) < tolerance and log_p.dtype == torch.float64
    assert bool((gap < 5 * info.error + 0.3 * tolerance).all())
    assert info.dimension == oracle.process.space.dimension


def test_categories_by_default_and_by_a_method_of_choice():
    oracle = un.oracles.table(un.Masking(3, (2,)), law_on(9))
    x = oracle.process.space.states()
    exact, info = likelihood(oracle, x, seed=0)
    assert torch.allclose(exact, oracle.log_prob(x), atol=1e-8) and not info.bound
    expected = -info.dimension * info.bits_per_dim(exact) * torch.log(torch.tensor(2.0).double())
    assert torch.allclose(expected, exact)
    first, info = likelihood(oracle, x, PathWeighted(4, steps=8), seed=1)
    again, _ = likelihood(oracle, x, PathWeighted(4, steps=8), seed=1)
    other, _ = likelihood(oracle, x, PathWeighted(4, steps=8), seed=2)
    assert info.bound and torch.equal(first, again) and not torch.equal(first, other)


def test_bins_are_not_points_of_the_space():
    """Integers under a density of numbers: the mass of a normal law in each bin, to what 400 draws tell."""
    oracle = normal(1)
    k = torch.tensor([[-1], [0], [1]])
    log_p, info = likelihood(oracle, k, Dequantised(ProbabilityFlow(), width=0.5, draws=400), seed=0)
    law = torch.distributions.Normal(torch.tensor(0.3).double(), torch.tensor(0.5).double().sqrt())
    mass = law.cdf((k + 1) * 0.5) - law.cdf(k * 0.5)
    assert bool(((log_p - mass.log()[:, 0]).abs() < 5 * info.error).all())


class Broken(nn.Module):
    def forward(self, x, t):
        return torch.full((*x.shape, 3), torch.nan)


def test_refusals():
    oracle = un.oracles.table(un.Masking(3, (2,)), law_on(9))
    x = torch.tensor([[0, 1]])
    with pytest.raises(TypeError, match="probability flow of numbers.*Masking has not"):
        likelihood(oracle, x, ProbabilityFlow(), seed=0)
    with pytest.raises(TypeError, match="not finite"):
        likelihood(poisson(), x, Enumeration(), seed=0)
    with pytest.raises(ValueError, match=r"x0\[0, 1\] = 3 is no category of 3"):
        likelihood(oracle, torch.tensor([[0, 3]]), seed=0)
    with pytest.raises(ValueError, match="x0 has no rows"):
        likelihood(oracle, x[:0], seed=0)
    with pytest.raises(FloatingPointError, match="row 0 is NaN: the network"):
        likelihood(un.Denoiser(Broken(), un.Masking(3, (2,))), x, PathWeighted(2, steps=2), seed=0)


class Narrow(un.AnyDenoiser):
    """A denoiser with no memory for more than so many rows."""

    def __init__(self, inner, most):
        super().__init__()
        self.inner, self.process, self.most = inner, inner.process, most

    def forward(self, x, t, /, **condition):
        if un.tree.batch_size(x) > self.most:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.inner(x, t, **condition)


@pytest.mark.parametrize(
    ("oracle", "method", "most"),
    [
        (normal, ProbabilityFlow(rtol=1e-4, atol=1e-4), 4),
        (normal, ProbabilityFlow("hutchinson", 2, rtol=1e-3, atol=1e-3), 4),
        (poisson, PathWeighted(4, 6), 16),
        (mixed, PathWeighted(4, 6), 16),
    ],
)
def test_a_likelihood_without_memory_for_all_rows_goes_on_with_half_of_them(oracle, method, most):
    model = oracle()
    x0 = model.draw(un.NoiseSource(0, 9))
    whole, info = likelihood(model, x0, method, seed=2)
    with pytest.warns(UserWarning, match="memory ran out with 9 rows at a time: going on with 4") as told:
        parts, joined = likelihood(Narrow(model, most), x0, method, seed=2)
    torch.testing.assert_close(parts, whole, rtol=1e-9, atol=1e-9)
    assert len(told) == 1 and joined.density == info.density
    assert (joined.error is None) == (info.error is None)
    if info.error is not None:
        torch.testing.assert_close(joined.error, info.error, rtol=1e-6, atol=1e-6)
