"""Kernels and clean laws from ratios, rates and plug-in posteriors: one model in bound, likelihood and samples."""

import pytest
import torch
from torch import nn

import unnoise as un
from unnoise.predictions import ratio_steps
from unnoise.processes import rate_matrices

F64 = torch.float64
LAW = torch.tensor([0.4, 0.05, 0.25, 0.2, 0.1], dtype=F64)
MATRICES = {
    "nearest neighbours": lambda: un.RateMatrix(rate_matrices.nearest_neighbour(5), (1,)),
    "birth and death": lambda: un.BirthDeath(4, (1,)),
}
DENSE = {
    "uniform": lambda shape: un.Uniform(5, shape, un.schedules.LinearBeta()),
    "masking": lambda shape: un.Masking(5, shape),
    "own law": lambda shape: un.Interpolation(5, shape, LAW.flip(0), un.schedules.LinearBeta()),
    "with MASK": lambda shape: un.Interpolation(5, shape, un.noise_laws.uniform_with_mask(5), un.schedules.LinearBeta()),
}


class Said(un.AnyDenoiser):
    """An oracle that speaks by another kind."""

    def __init__(self, oracle, kind):
        super().__init__()
        self.process, self.oracle, self.kind = oracle.process, oracle, kind

    @property
    def kinds(self):
        return self.kind

    def forward(self, x, t, /, **condition):
        return self.oracle(x, t).to(self.kind)


class Table(nn.Module):
    """Logits by state."""

    def __init__(self, rows):
        super().__init__()
        self.rows = nn.Parameter(rows)

    def forward(self, x, t):
        return self.rows[x]


# -- the plug-in kernel -----------------------------------------------------------------------------------------------


def test_a_plugged_in_posterior_is_one_model():
    """Bound, likelihood and samplers speak of the plug-in kernel down to t = 0: .779 and .221, where the raw law at the
    cut-off would give .895 and .105, and a bound of .277 and 1.597 nats, where that gives .329 and 2.800."""
    theta = torch.tensor([[0.95, 0.05], [0.7, 0.3]], dtype=F64)
    process, x = un.Uniform(2, (1,), un.schedules.LinearBeta()), torch.tensor([[0], [1]])
    model = un.Denoiser(Table(theta.log()), process, un.RawPosterior, kernel="plug-in")
    p = un.likelihood(model, x, un.likelihoods.Enumeration())[0].exp()
    chain = un.likelihood(model, x, un.likelihoods.Enumeration(steps=1024))[0].exp()
    torch.testing.assert_close(p, torch.tensor([0.779, 0.221], dtype=F64), atol=5e-4, rtol=0)
    torch.testing.assert_close(p, chain, atol=4e-4, rtol=0)
    bound = un.bound(model, x, exact=True).total
    torch.testing.assert_close(bound, torch.tensor([0.277, 1.597], dtype=F64), atol=1e-3, rtol=0)
    of_chain = un.Denoiser(Table(theta.log()), un.Chain(process, 1024), un.RawPosterior, kernel="plug-in")
    torch.testing.assert_close(bound, un.bound(of_chain, x, exact=True).total, atol=1e-3, rtol=0)
    assert bool((bound >= -p.log()).all())


def test_samples_of_a_plugged_in_posterior_have_its_likelihood():
    """20,000 draws of the reverse jump process; five standard deviations, a false alarm in two million."""
    theta = torch.tensor([[0.95, 0.05], [0.7, 0.3]], dtype=F64)
    model = un.Denoiser(
        Table(theta.log()), un.Uniform(2, (1,), un.schedules.LinearBeta()), un.RawPosterior, kernel="plug-in"
    )
    p = un.likelihood(model, torch.tensor([[1]]), un.likelihoods.Enumeration())[0].exp().item()
    x, _ = un.sample(model, 20000, steps=1, sampler=un.samplers.Gillespie(), seed=0)
    share = x.double().mean().item()
    assert abs(share - p) < 5 * (p * (1 - p) / 20000) ** 0.5
    assert abs(share - 0.105) > 5 * (p * (1 - p) / 20000) ** 0.5  # the law that was said before


# -- decoders that reach all data -------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [un.Ratio, un.Rates])
@pytest.mark.parametrize("name", MATRICES)
def test_the_bound_of_sparse_rates_is_finite_and_one(name, kind):
    """A leap to time 0 reaches neighbours only, and x_eps is two jumps away from x_0 with a probability of order eps^2."""
    process = MATRICES[name]()
    oracle = Said(un.oracles.table(process, LAW), kind)
    states = torch.arange(5).unsqueeze(1)
    gaps = []
    for cutoff in (1e-2, 1e-3, 1e-4):
        bound = un.bound(oracle, states, exact=True, cutoff=cutoff).total
        assert bool(bound.isfinite().all()) and float((-bound).exp().sum()) <= 1 + 1e-9
        gaps.append(float((LAW * (bound + LAW.log())).sum()))
    assert 0 <= gaps[0] < 3e-3 and gaps[2] < gaps[1] / 5 < gaps[0] / 25
    assert bool(un.bound(oracle, states.repeat(400, 1), cutoff=1e-2, seed=0).total.isfinite().all())


@pytest.mark.parametrize("name", MATRICES)
def test_a_clean_law_is_a_law(name):
    """It reaches everything, and its error vanishes with the time that is left."""
    process, x, gaps = MATRICES[name](), torch.arange(5).unsqueeze(1), []
    for t in (1e-2, 1e-3):
        own = un.oracles.table(process, LAW)(x, t)
        probs = own.to(un.Ratio).clean_law().probs
        torch.testing.assert_close(probs.sum(-1), torch.ones(5, 1, dtype=F64), atol=1e-12, rtol=0)
        assert bool((probs > 0).all())
        gaps.append(float((probs - own.to(un.RawPosterior).log_probs().exp()).abs().max()))
    assert gaps[1] < gaps[0] / 5 < 0.01


# -- one coordinate in a step of any length ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [un.Ratio, un.Rates])
@pytest.mark.parametrize("name", DENSE)
@pytest.mark.parametrize("dtype", [torch.float32, F64])
def test_ratios_step_as_their_posterior(name, kind, dtype):
    """From true ratios the kernel of one coordinate is that of the posterior, for short steps and for all the way down."""
    process = DENSE[name]((1,))
    oracle = un.oracles.table(process, LAW)
    x = torch.arange(process.state_space.size).unsqueeze(1)
    for t, s in ((0.9, 0.0), (0.9, 0.3), (0.5, 0.49), (0.2, 0.0)):
        t, s = torch.full((len(x),), t, dtype=dtype), torch.full((len(x),), s, dtype=dtype)
        own = oracle(x, t)
        expected, found = own.step(s).probs, own.to(kind).step(s).probs
        torch.testing.assert_close(found.double(), expected.double(), atol=1e-12 if dtype is F64 else 2e-5, rtol=0)


def test_eight_steps_by_ratios_are_exact_on_one_coordinate():
    """Total variation after 8 steps; a leap has .02 and more."""
    process = un.Uniform(5, (1,), un.schedules.LinearBeta())
    oracle = Said(un.oracles.table(process, LAW), un.Ratio)
    states = torch.arange(5).unsqueeze(1)
    p = un.likelihood(oracle, states, un.likelihoods.Enumeration(steps=8))[0].exp()
    by_posterior = un.likelihood(oracle.oracle, states, un.likelihoods.Enumeration(steps=8))[0].exp()
    assert float((p - by_posterior).abs().sum()) / 2 < 1e-9
    assert float((p - LAW).abs().sum()) / 2 < 1e-4  # what is left of x_0 at t = 1


def test_ratios_of_no_law_leap():
    """Where Q^-1 of a network's ratios has negative entries the coordinate leaps, with a positive chance to get anywhere."""
    torch.manual_seed(0)
    process = un.Uniform(4, (3,), un.schedules.LinearBeta())
    x, t = torch.randint(4, (50, 3)), torch.full((50,), 0.8, dtype=F64)
    prediction = un.Ratio(torch.randn(50, 3, 4, dtype=F64), process, x, t)
    law = prediction.step(0.6)
    holds = process.step_from_ratio(x, prediction.log_ratio(), 0.6, t)[1]
    assert 0 < int(holds.sum()) < holds.numel()
    torch.testing.assert_close(law.probs.sum(-1), torch.ones(50, 3, dtype=F64))
    leap = ratio_steps.hold_then_leap(prediction, 0.6)
    torch.testing.assert_close(law.probs[~holds], leap.probs[~holds])
    assert float((law.probs[holds] - leap.probs[holds]).abs().max()) > 0.05
    assert bool((law.probs > 0).all())


def test_a_masked_ratio_is_told_its_size():
    """The network speaks of probabilities alone, and log alpha/(1 - alpha) is added: what it knows at one time it knows at
    all."""
    process, x = un.Masking(5, (1,)), torch.full((3, 1), 5)
    t = torch.tensor([1e-3, 0.5, 1.0], dtype=F64)
    logits = torch.cat([LAW.log(), torch.zeros(1, dtype=F64)])
    model = un.Denoiser(Table(logits.expand(6, 6).clone()), process, un.Ratio)
    exact = un.oracles.table(process, LAW)(x, t)
    torch.testing.assert_close(model(x, t).local().rates, exact.local().rates, rtol=1e-9, atol=1e-12)
    bound = un.bound(model, torch.arange(5).unsqueeze(1), exact=True).total
    torch.testing.assert_close(bound, -LAW.log(), atol=1e-9, rtol=0)


@pytest.mark.parametrize("kind", [un.Ratio, un.Posterior])
def test_masked_ratios_train_like_posteriors(kind):
    """200 updates on a table of two coordinates leave .01 nats above the entropy of 2.6; a ratio without its scale 2.0."""
    torch.manual_seed(0)
    process = un.Masking(5, (2,))
    law = torch.rand(25, dtype=F64) ** 3
    law = law / law.sum()
    oracle = un.oracles.table(process, law)

    class Network(nn.Module):
        def __init__(self):
            super().__init__()
            out = 6 if kind is un.Ratio else 5
            self.body = nn.Sequential(nn.Linear(13, 64), nn.SiLU(), nn.Linear(64, 2 * out))

        def forward(self, x, t):
            seen = torch.cat([nn.functional.one_hot(x, 6).flatten(1).to(t), t.unsqueeze(1)], 1)
            return self.body(seen).reshape(len(x), 2, -1)

    model = un.Denoiser(Network(), process, kind)
    objective, optimiser = un.Objective(model), torch.optim.Adam(model.parameters(), 1e-2)
    for step in range(200):
        optimiser.zero_grad()
        objective(oracle.draw(un.NoiseSource(step, 256)), un.NoiseSource(1000 + step, 256)).loss.mean().backward()
        optimiser.step()
    with torch.no_grad():
        bound = un.bound(model, process.space.states(), exact=True).total
    gap = float((law * (bound.double() + law.log())).sum())
    assert -1e-6 < gap < 0.05
