"""Noise laws, and the processes that draw from them: log_probs, log_prob and draws are one law.

False alarms: each chi-square below rejects a right law with probability 1e-7.
"""

import pytest
import torch

import unnoise as un
from unnoise import noise_laws, schedules
from unnoise.laws import LOG_ZERO
from unnoise.spaces import Finite

F64, DRAWS, LEVEL = torch.float64, 30_000, 1e-7
CPU = torch.device("cpu")


def chi_square_rejects(observed, probs):
    """Pearson's statistic against its chi-square law."""
    assert int(observed[probs <= 0].sum()) == 0, "an impossible state was drawn"
    expected = probs[probs > 0] * observed.sum()
    statistic = ((observed[probs > 0] - expected).square() / expected).sum()
    freedom = torch.tensor(float((probs > 0).sum() - 1), dtype=F64)
    return bool(freedom > 0) and float(torch.special.gammaincc(freedom / 2, statistic / 2)) < LEVEL


OWN = torch.tensor([[0.6, 0.4, 0.0], [0.1, 0.2, 0.7]], dtype=F64)
LAWS = {
    "mask": (lambda: noise_laws.mask(3), [0, 0, 0, 1]),
    "uniform": (lambda: noise_laws.uniform(3), [1 / 3] * 3),
    "uniform_with_mask": (lambda: noise_laws.uniform_with_mask(3), [1 / 4] * 4),
    "given": (lambda: noise_laws.given(torch.tensor([0.5, 0.2, 0.3], dtype=F64)), [0.5, 0.2, 0.3]),
    "given, with MASK": (lambda: noise_laws.given(torch.tensor([0.1, 0.0, 0.4, 0.5], dtype=F64)), [0.1, 0.0, 0.4, 0.5]),
    "given, per coordinate": (lambda: noise_laws.given(OWN), OWN.tolist()),
    "uniform, own sizes": (lambda: noise_laws.uniform(3).fitted(Finite([2, 3])), [[1 / 2, 1 / 2, 0], [1 / 3] * 3]),
}


@pytest.mark.parametrize("dtype", [torch.float32, F64])
@pytest.mark.parametrize("name", LAWS)
def test_one_state_and_all_states_agree(name, dtype):
    law, exact = LAWS[name][0](), torch.tensor(LAWS[name][1], dtype=F64)
    exact = exact.expand(2, -1)  # two coordinates, each of which may have its own
    log_p = law.log_probs(dtype, CPU).expand(2, -1)
    assert log_p.dtype == dtype and law.states == exact.shape[-1]
    torch.testing.assert_close(log_p.double().exp(), exact, rtol=0, atol=1e-7 if dtype == torch.float32 else 1e-15)
    x = torch.arange(law.states).unsqueeze(1).expand(-1, 2)  # [states, coordinates]
    at = law.log_prob(x, dtype)
    assert at.dtype == dtype and at.shape == x.shape
    torch.testing.assert_close(at, log_p.T, rtol=1e-7, atol=0)  # log 0 is a number, which float32 rounds
    assert bool((at[exact.T == 0] < LOG_ZERO / 2).all())


@pytest.mark.parametrize("name", LAWS)
def test_draws_have_the_law(name):
    law, exact = LAWS[name][0](), torch.tensor(LAWS[name][1], dtype=F64).expand(2, -1)
    like = torch.zeros(DRAWS, 2, dtype=torch.int64)
    x = law.draw(like, un.NoiseSource(1, DRAWS))
    assert x.shape == like.shape and x.dtype == like.dtype
    for k in range(2):
        observed = torch.bincount(x[:, k], minlength=law.states).double()
        assert not chi_square_rejects(observed, exact[k])
        if float(exact[k].max()) < 1:  # the mutant: two states take each other's place, or lose 3 %
            i, j = exact[k].argmax(), torch.where(exact[k] > 0, exact[k], 2).argmin()
            moved = exact[k].clone()
            moved[i], moved[j] = moved[i] + 0.03, moved[j] - 0.03
            assert chi_square_rejects(observed, moved)
    assert not torch.equal(x[:, 0], x[:, 1]) or name == "mask"


class Edge:
    """A source whose uniform numbers are as near 1 as they come, or as near 0."""

    def __init__(self, u):
        self.u = u

    def uniform(self, shape):
        return torch.full((1, *shape), self.u, dtype=F64)


@pytest.mark.parametrize("name", LAWS)
def test_extreme_draws_are_possible_states(name):
    law = LAWS[name][0]()
    for u in (2.0**-53, 1 - 2.0**-53):
        x = law.draw(torch.zeros(1, 2, dtype=torch.int64), Edge(u))
        assert bool((law.log_prob(x, F64) > LOG_ZERO / 2).all())


# -- frequencies ------------------------------------------------------------------------------------------------------

X0 = torch.tensor([[0, 2], [0, 2], [1, 0], [0, 2], [1, 2]])  # of 4 categories; 3 never occurs


def test_frequencies():
    together = noise_laws.frequencies(X0, 4, smoothing=0.0)
    torch.testing.assert_close(together.log_probs(F64, CPU).exp(), torch.tensor([4, 2, 4, 0], dtype=F64) / 10)
    smoothed = noise_laws.frequencies(X0, 4)
    torch.testing.assert_close(smoothed.log_probs(F64, CPU).exp(), torch.tensor([5, 3, 5, 1], dtype=F64) / 14)
    half = noise_laws.frequencies(X0, 4, smoothing=0.5)
    torch.testing.assert_close(half.log_probs(F64, CPU).exp(), torch.tensor([4.5, 2.5, 4.5, 0.5], dtype=F64) / 12)
    each = noise_laws.frequencies(X0, 4, per_coordinate=True, smoothing=0.0)
    assert each.shape == (2,)
    exact = torch.tensor([[3, 2, 0, 0], [1, 0, 4, 0]], dtype=F64) / 5
    torch.testing.assert_close(each.log_probs(F64, CPU).exp(), exact)
    each = noise_laws.frequencies(X0, 4, per_coordinate=True)
    exact = torch.tensor([[4, 3, 1, 1], [2, 1, 5, 1]], dtype=F64) / 9
    torch.testing.assert_close(each.log_probs(F64, CPU).exp(), exact)


def test_frequencies_of_any_shape():
    x0 = torch.randint(3, (50, 2, 4))
    law = noise_laws.frequencies(x0, 3, per_coordinate=True, smoothing=0.0)
    exact = torch.nn.functional.one_hot(x0, 3).double().mean(0)
    torch.testing.assert_close(law.log_probs(F64, CPU).exp(), exact)
    assert un.Interpolation(3, (2, 4), law).prior(2).probs.shape == (2, 2, 4, 3)


def test_the_noise_starts_from_the_datas_own_marginals():
    """Data whose coordinates are independent with these frequencies is stationary: its marginals stay what they are."""
    law = noise_laws.frequencies(X0, 4, per_coordinate=True)
    process = un.Interpolation(4, (2,), law)
    p = law.log_probs(F64, CPU)
    for t in (0.3, 0.9):
        torch.testing.assert_close(process.push(p.unsqueeze(0), 0.1, t)[0].exp(), p.exp(), rtol=1e-14, atol=1e-15)


# -- the two laws that have classes of their own ------------------------------------------------------------------------

PER_COORDINATE = schedules.PerCoordinate([schedules.Linear(), schedules.Cosine()])
TWINS = {
    "uniform": lambda: (un.Uniform(3, (2,)), un.Interpolation(3, (2,), noise_laws.uniform(3))),
    "uniform, given": lambda: (un.Uniform(3, (2,)), un.Interpolation(3, (2,), torch.full((3,), 1 / 3, dtype=F64))),
    "uniform, LinearBeta": lambda: (
        un.Uniform(3, (2,), schedules.LinearBeta()),
        un.Interpolation(3, (2,), noise_laws.uniform(3), schedules.LinearBeta()),
    ),
    "uniform, sizes": lambda: (un.Uniform([2, 3]), un.Interpolation([2, 3], noise=noise_laws.uniform(3))),
    "uniform, own schedules": lambda: (
        un.Uniform(3, (2,), PER_COORDINATE),
        un.Interpolation(3, (2,), noise_laws.uniform(3), PER_COORDINATE),
    ),
    "mask": lambda: (un.Masking(3, (2,)), un.Interpolation(3, (2,), noise_laws.mask(3))),
    "mask, given": lambda: (
        un.Masking(3, (2,), schedules.Cosine()),
        un.Interpolation(3, (2,), torch.tensor([0.0, 0.0, 0.0, 1.0]), schedules.Cosine()),
    ),
    "mask, sizes": lambda: (un.Masking([2, 3]), un.Interpolation([2, 3], noise=noise_laws.mask(3))),
}


class Table(torch.nn.Module):
    """Arbitrary logits for each coordinate, from the state of both and the time."""

    def __init__(self, size, states):
        super().__init__()
        generator = torch.Generator().manual_seed(4)
        self.table = torch.randn(2, states, states, size, dtype=F64, generator=generator)

    def forward(self, x, t):
        pair = torch.stack([self.table[0, x[:, 0], x[:, 1]], self.table[1, x[:, 0], x[:, 1]]], 1)
        return pair * (1 + t).reshape(-1, 1, 1)


def same(a, b):
    torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", TWINS)
def test_kernels_and_rates_of_a_named_law(name):
    ours, theirs = TWINS[name]()
    assert theirs.state_space.size == ours.state_space.size
    assert getattr(ours, "mask", None) == theirs.mask
    points, data = ours.state_space.states(), ours.space.states()
    n, m = len(points), len(data)
    x_t, x0 = points.repeat_interleave(m, 0), data.repeat(n, 1)
    same(theirs.prior(n).probs, ours.prior(n).probs)
    for s, t in ((0.2, 0.7), (0.0, 1e-5), (0.9, 1.0)):
        same(theirs.marginal(data, t).probs, ours.marginal(data, t).probs)
        same(theirs.transition(points, s, t).probs, ours.transition(points, s, t).probs)
        possible = ours.marginal(x0, t).log_prob(x_t).isfinite()
        same(
            theirs.posterior(x_t[possible], x0[possible], s, t).probs,
            ours.posterior(x_t[possible], x0[possible], s, t).probs,
        )
        same(theirs.prior_kl(data, t), ours.prior_kl(data, t))
        if t < 1:
            same(theirs.local(points, t).rates, ours.local(points, t).rates)
            reverse = [p.reverse(x_t[possible], x0[possible], t).local().rates for p in (theirs, ours)]
            same(*reverse)
            q = theirs.marginal(data, t).probs
            same(theirs.inverse(q, s, t), ours.inverse(q, s, t))
    assert torch.equal(theirs.movable(points), ours.movable(points))


@pytest.mark.parametrize("kind", [un.Posterior, un.RawPosterior])
@pytest.mark.parametrize("name", TWINS)
def test_bound_of_a_named_law(name, kind):
    """The closed forms of Masking and Uniform against the general divergence under the same noise law."""
    ours, theirs = TWINS[name]()
    network = Table(3, ours.state_space.size)
    data = ours.space.states()
    values = [
        un.bound(un.Denoiser(network, p, kind), data, exact=True, times=un.Quadrature(12), cutoff=0.02)
        for p in (theirs, ours)
    ]
    for part in ("prior", "diffusion", "reconstruction"):
        same(getattr(values[0], part), getattr(values[1], part))
    chains = [un.Chain(p, [0.0, 0.2, 0.6, 1.0]) for p in (theirs, ours)]
    same(*[un.bound(un.Denoiser(network, chain, kind), data, exact=True).total for chain in chains])


@pytest.mark.parametrize(
    "make",
    [
        lambda: un.Interpolation(3, (2,), torch.tensor([0.5, 0.0, 0.5])),
        lambda: un.Interpolation(3, (2,), OWN),
        lambda: un.Interpolation(3, (2,), noise_laws.uniform_with_mask(3)),
        lambda: un.Mixture.uniform_and_mask(3, (2,), uniform=0.3),
        lambda: un.Mixture(3, (2,), laws=[OWN, noise_laws.mask(3)], weights=lambda t: torch.stack([1 - t, t], -1)),
    ],
    ids=["given", "per coordinate", "uniform+mask", "mixture", "mixture, per coordinate"],
)
def test_one_entry_of_a_kernel_is_that_of_the_whole(make):
    """log_prob and log_evidence, which ask for one state, against log_probs and the kernel that they belong to."""
    process = make()
    points = process.state_space.states()
    n, size = len(points), process.state_space.size
    x, y = points.repeat_interleave(n, 0), points.repeat(n, 1)
    for law in (process.marginal(x, 0.6), process.transition(x, 0.3, 0.8)):
        exact = law.probs.gather(-1, y.unsqueeze(-1)).squeeze(-1).prod(-1)
        torch.testing.assert_close(law.log_prob(y).exp(), exact, rtol=1e-13, atol=1e-300)
    each = torch.arange(size).unsqueeze(1).expand(-1, 2)
    kernel = process.transition(each, 0.3, 0.8).probs  # [from, coordinate, to]
    same(process.log_evidence(each, 0.3, 0.8).exp(), kernel.permute(2, 1, 0))
    rates, into = process.local(each, 0.6).rates, process.log_rates_into(each, 0.6).exp()
    same(into, rates.permute(2, 1, 0))


def test_another_law_is_another_process():
    """What the twins above would not survive: a law that is off by one part in a million."""
    ours = un.Uniform(3, (2,))
    theirs = un.Interpolation(3, (2,), torch.tensor([1 / 3 + 1e-6, 1 / 3, 1 / 3 - 1e-6], dtype=F64))
    with pytest.raises(AssertionError):
        same(theirs.prior(1).probs, ours.prior(1).probs)
    network, data = Table(3, 3), ours.space.states()
    with pytest.raises(AssertionError):
        same(*[un.bound(un.Denoiser(network, p), data, exact=True, times=un.Quadrature(12)).total for p in (theirs, ours)])


def test_a_state_that_noise_never_draws_gives_the_data_away():
    """p = (1/2, 1/2, 0): a 2 is a 2, whatever the network says, and it never moves."""
    process = un.Interpolation(3, (2,), torch.tensor([0.5, 0.5, 0.0]))
    x_t = torch.tensor([[2, 0], [1, 2]])
    assert process.movable(x_t).tolist() == [[False, True], [True, False]]
    prediction = un.Posterior(torch.randn(2, 2, 3, dtype=F64), process, x_t, 0.6)
    probs = prediction.step(0.1).probs
    assert probs[0, 0].tolist() == [0, 0, 1] and probs[1, 1].tolist() == [0, 0, 1]
    assert float(prediction.local().rates[0, 0].sum()) == 0
    assert float(prediction.local().rates[0, 1].sum()) > 0.1
