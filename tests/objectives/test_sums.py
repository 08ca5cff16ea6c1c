"""Weightings add and scale, in continuous time and on chains."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise import weightings
from unnoise.noise import NoiseSource
from unnoise.objectives.weightings import Bound, CrossEntropy, Simple, Sum

F64 = torch.float64
ROWS = 6
WORDS = torch.arange(ROWS * 3).reshape(ROWS, 3) % 4
NUMBERS = torch.linspace(-1, 1, ROWS, dtype=F64).unsqueeze(1)


class Letters(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Parameter(torch.randn(5, 4, dtype=F64, generator=torch.Generator().manual_seed(1)))

    def forward(self, x, t):
        return self.table[x] * (1 + t.reshape(-1, 1, 1))


class Line(nn.Module):
    def __init__(self):
        super().__init__()
        self.slope = nn.Parameter(torch.tensor(0.4, dtype=F64))

    def forward(self, x, t):
        return self.slope * x


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleDict({"c": Letters(), "x": Line()})

    def forward(self, x, t):
        return {name: part(x[name], t) for name, part in self.parts.items()}


def product():
    return un.Product(c=un.Masking(4, (3,)), x=un.Gaussian((1,)))


CASES = {
    "masking": lambda: (un.Denoiser(Letters(), un.Masking(4, (3,))), WORDS),
    "uniform": lambda: (un.Denoiser(Letters(), un.Uniform(4, (3,))), WORDS),
    "numbers": lambda: (un.Denoiser(Line(), un.Gaussian((1,)), un.Clean), NUMBERS),
    "product": lambda: (un.Denoiser(Both(), product()), {"c": WORDS, "x": NUMBERS}),
}
CHAINS = {
    "masking": lambda: (un.Denoiser(Letters(), un.Chain(un.Masking(4, (3,)), 6)), WORDS),
    "ends early": lambda: (un.Denoiser(Letters(), un.Chain(un.Uniform(4, (3,)), [0.1, 0.4, 1.0])), WORDS),
    "numbers": lambda: (un.Denoiser(Line(), un.Chain(un.Gaussian((1,)), 6), un.Clean), NUMBERS),
    "product": lambda: (un.Denoiser(Both(), un.Chain(product(), 6)), {"c": WORDS, "x": NUMBERS}),
    "matrices": lambda: (un.Denoiser(Letters(), un.MatrixChain(un.d3pm.uniform(4, [0.2, 0.5, 0.9]), (3,))), WORDS),
}
EVERY = [(build, {}) for build in CASES.values()] + [
    (build, options) for build in CHAINS.values() for options in ({}, {"times": un.Grid()})
]
NAMES = [*CASES, *(f"chain: {name}{grid}" for name in CHAINS for grid in ("", ", every step"))]


def loss(build, options, weighting):
    denoiser, x0 = build()
    terms = un.Objective(denoiser, weighting, **options)(x0, NoiseSource(3, ROWS))
    return terms, torch.autograd.grad(terms.loss.mean(), list(denoiser.network.parameters()))


@pytest.mark.parametrize(("build", "options"), EVERY, ids=NAMES)
def test_objectives_add(build, options):
    bound, of_bound = loss(build, options, None)
    other, of_other = loss(build, options, CrossEntropy())
    both, gradients = loss(build, options, Sum(Bound(), 0.25 * CrossEntropy()))
    torch.testing.assert_close(both.loss, bound.total + 0.25 * other.loss, rtol=1e-12, atol=0)
    for ours, a, b in zip(gradients, of_bound, of_other, strict=True):
        torch.testing.assert_close(ours, a + 0.25 * b, rtol=1e-10, atol=1e-14)
    for terms in (other, both):  # and the bound is told beside the loss
        torch.testing.assert_close(terms.total, bound.total, rtol=1e-12, atol=0)
        assert not terms.is_bound


@pytest.mark.parametrize(("build", "options"), EVERY, ids=NAMES)
def test_a_sum_of_the_bound_alone_is_the_bound(build, options):
    bound, of_bound = loss(build, options, None)
    for weighting in (Sum(Bound()), 1.0 * Bound(), Sum(Sum(Bound()))):
        same, gradients = loss(build, options, weighting)
        assert torch.equal(same.loss, bound.loss) and same.is_bound
        assert all(torch.equal(a, b) for a, b in zip(gradients, of_bound, strict=True))
    half, _ = loss(build, options, 0.5 * Bound())
    torch.testing.assert_close(half.loss, 0.5 * bound.total)
    assert not half.is_bound


def test_only_exactly_the_bound_is_a_bound():
    assert Sum(Bound()).is_bound and (1 * Bound()).is_bound
    for weighting in (Bound() + Bound(), 2 * Bound(), Bound() + 0 * Simple(), Sum(Simple()), Simple() * 1):
        assert not weighting.is_bound
    assert (Bound() + 2 * (Bound() + Simple())).bound_share == 3.0
    assert Sum(CrossEntropy()).even and not (CrossEntropy() + Simple()).even


def test_a_chain_weighs_a_step_by_its_length():
    """sum_i (t_i - t_{i-1}) rate(x_{t_i}, t_i), from the definition, for every step that is visited."""
    denoiser, x0 = CHAINS["numbers"]()
    chain = denoiser.process
    terms = un.Objective(denoiser, Simple(), times=un.Grid())(x0, NoiseSource(3, ROWS))
    expected = torch.zeros(ROWS, dtype=F64)
    for i, (s, t) in enumerate(zip(chain.grid[:-1], chain.grid[1:], strict=True)):
        x_t = chain.marginal(x0, t).draw(NoiseSource(3, ROWS).at("state", i))
        gap = (x0 - denoiser(x_t, t).value).square().sum(1)
        expected = expected + (t - s) * chain.process.schedule.log_snr(t).exp() * gap
    torch.testing.assert_close(terms.loss, expected)


def test_a_fine_chain_has_the_integral():
    """The cross-entropy of 400 steps is that of continuous time, up to one over their number."""
    fine = un.Denoiser(Letters(), un.Chain(un.Uniform(4, (1,)), 400))
    free = un.Denoiser(fine.network, un.Uniform(4, (1,)))
    x0 = torch.zeros(2000, 1).long()
    found = [
        un.Objective(d, CrossEntropy(), times=un.Stratified(8))(x0, NoiseSource(1, 2000)).loss.detach() for d in (fine, free)
    ]
    error = float(sum(part.var() / 2000 for part in found) ** 0.5)
    assert abs(float(found[0].mean() - found[1].mean())) < 4 * error + 0.01 and error < 0.03


def test_leaves_that_a_weighting_does_not_concern_keep_their_step():
    denoiser, x0 = CHAINS["product"]()
    noise = NoiseSource(3, ROWS)
    named = weightings.LeafWeightings(x=Simple())
    ours, by_name = (un.Objective(denoiser, w, times=un.Grid())(x0, noise).loss for w in (Simple(), named))
    torch.testing.assert_close(ours, by_name)
    assert not torch.allclose(ours, un.Objective(denoiser, times=un.Grid())(x0, noise).loss)


def test_refusals():
    with pytest.raises(TypeError, match="3 is no weighting"):
        Sum(Bound(), 3)
    with pytest.raises(TypeError, match="a sum of nothing"):
        Sum()
    with pytest.raises(ValueError, match="the factor -1"):
        -1 * CrossEntropy()
