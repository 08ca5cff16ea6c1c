"""Exact conversions between the kinds of a prediction: round trips, independent formulas, oracles, and refusals."""

import itertools

import pytest
import torch
import torch.nn.functional as F

import unnoise as un
from unnoise.laws import LOG_ZERO
from unnoise.predictions import ProductPrediction

schedules = un.schedules
F64 = torch.float64
ROWS = 12


def source(seed):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=source(seed))


# -- numbers ----------------------------------------------------------------------------------------------------------

SCHEDULES = {
    "linear": schedules.Linear(),
    "cosine": schedules.Cosine(),
    "polynomial": schedules.Polynomial(2.5),
    "VE": schedules.VE(),
    "EDM": schedules.EDM(),
    "linear-beta": schedules.LinearBeta(),
    "log-snr": schedules.LogSNRLinear(),
    "per-coordinate": schedules.PerCoordinate([schedules.Linear(), schedules.EDM()]),
}
NUMBERS = [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow, un.Mean]
every_schedule = pytest.mark.parametrize("schedule", SCHEDULES.values(), ids=SCHEDULES.keys())


def continuous(schedule, seed=0):
    """Process, x0, eps, x_t, s, t and the coefficients at t, with times over most of [0, 1]."""
    process = un.Gaussian((2,), schedule)
    x0, eps = randn(ROWS, 2, seed=seed), randn(ROWS, 2, seed=seed + 1)
    t = torch.linspace(0.05, 0.95, ROWS, dtype=F64)
    law = process.marginal(x0, t)
    return process, x0, eps, law.mean + law.std * eps, 0.6 * t, t


def column(schedule, value):
    return value if schedule.shape else value.unsqueeze(1)


def targets(schedule, x0, eps, x_t, s, t):
    """What each kind means, from the paper's formulas and the schedule's two functions alone."""
    pairs = [torch.func.jvp(f, (t,), (torch.ones_like(t),)) for f in (schedule.alpha, schedule.sigma)]
    (alpha, d_alpha), (sigma, d_sigma) = ([column(schedule, c) for c in pair] for pair in pairs)
    alpha_s, sigma_s = (column(schedule, c) for c in (schedule.alpha(s), schedule.sigma(s)))
    step = alpha / alpha_s
    step_variance = sigma**2 - step**2 * sigma_s**2
    return {
        un.Clean: x0,
        un.Noise: eps,
        un.Score: -eps / sigma,
        un.Velocity: alpha * eps - sigma * x0,
        un.Flow: d_alpha * x0 + d_sigma * eps,
        un.Mean: (step * sigma_s**2 * x_t + alpha_s * step_variance * x0) / sigma**2,
    }


def predict(kind, value, process, x_t, s, t):
    return kind(value, process, x_t, t, s=s) if kind is un.Mean else kind(value, process, x_t, t)


def convert(prediction, kind, s):
    return prediction.to(kind, s=s) if kind is un.Mean else prediction.to(kind)


def assert_near(actual, expected, tolerance=1e-10):
    """To the tolerance, relative to the largest entry of each row."""
    assert actual.shape == expected.shape
    error, scale = (actual - expected).abs(), expected.abs().amax(-1, keepdim=True)
    assert (error <= tolerance * scale + 1e-14).all(), f"relative error {float((error / scale).max()):.3g}"


@every_schedule
def test_every_kind_is_what_the_paper_says(schedule):
    """Told x_0, the prediction converts to eps, -eps/sigma, alpha eps - sigma x_0, alpha' x_0 + sigma' eps, mu(x_t, x_0)."""
    process, x0, eps, x_t, s, t = continuous(schedule)
    expected = targets(schedule, x0, eps, x_t, s, t)
    clean = un.Clean(x0, process, x_t, t)
    for kind in NUMBERS:
        assert_near(convert(clean, kind, s).value, expected[kind])
        if kind is not un.Mean:
            assert_near(kind.target(process, x0, x_t, t), expected[kind])


@every_schedule
@pytest.mark.parametrize(("first", "second"), itertools.permutations(NUMBERS, 2))
def test_number_kinds_round_trip(schedule, first, second):
    process, x0, eps, x_t, s, t = continuous(schedule)
    values = targets(schedule, x0, eps, x_t, s, t)
    there = convert(predict(first, values[first], process, x_t, s, t), second, s)
    assert type(there) is second
    assert_near(there.value, values[second])
    assert_near(convert(there, first, s).value, values[first])


@every_schedule
def test_printed_conversions_to_the_score(schedule):
    """eq:ct-x0-to-score, eq:ct-eps-to-score, eq:ct-v-to-score and eq:ct-u-to-score, on arbitrary network values."""
    process, _, _, x_t, _, t = continuous(schedule)
    value = randn(ROWS, 2, seed=9)
    alpha, sigma, drift, g2 = (
        column(schedule, f(t)) for f in (schedule.alpha, schedule.sigma, schedule.drift, schedule.diffusion)
    )
    printed = {
        un.Clean: (alpha * value - x_t) / sigma**2,
        un.Noise: -value / sigma,
        un.Velocity: -(sigma * x_t + alpha * value) / (sigma * (alpha**2 + sigma**2)),
        un.Flow: 2 / g2 * (drift * x_t - value),
    }
    for kind, score in printed.items():
        actual = kind(value, process, x_t, t).to(un.Score).value
        torch.testing.assert_close(actual, score, rtol=1e-10, atol=1e-10)


@every_schedule
def test_all_kinds_are_one_reverse_process(schedule):
    """The generator at x_t and the kernel to s do not depend on the kind that carries them."""
    process, _, _, x_t, s, t = continuous(schedule)
    clean = un.Clean(randn(ROWS, 2, seed=9), process, x_t, t)
    for kind in NUMBERS[1:]:
        other = convert(clean, kind, s)
        assert_near(other.local().drift, clean.local().drift)
        assert_near(other.step(s).mean, clean.step(s).mean)


@every_schedule
def test_tweedie(schedule):
    """The oracle's score is the gradient of its log-marginal, and its x_0 is (x_t + sigma^2 score)/alpha."""
    process, x0, _, x_t, _, t = continuous(schedule)
    root = randn(2, 2, 2, seed=4)
    weights, cov = torch.tensor([0.4, 0.6], dtype=F64), root @ root.mT + 0.1 * torch.eye(2, dtype=F64)
    oracle = un.oracles.mixture(process, weights, randn(2, 2, seed=5), cov)
    leaf = x_t.clone().requires_grad_()
    score = torch.autograd.grad(oracle.log_marginal(leaf, t).sum(), leaf)[0]
    torch.testing.assert_close(oracle.predicting(un.Score)(x_t, t).value, score, rtol=1e-9, atol=1e-11)
    alpha, sigma = (column(schedule, f(t)) for f in (schedule.alpha, schedule.sigma))
    torch.testing.assert_close(oracle(x_t, t).to(un.Clean).value, (x_t + sigma**2 * score) / alpha, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("kind", [un.Noise, un.Score])
def test_where_nothing_of_the_data_is_left_noise_says_nothing_of_it(kind):
    process = un.Gaussian((2,), schedules.Cosine())
    prediction = kind(randn(ROWS, 2), process, randn(ROWS, 2, seed=1), 1.0)
    for other in (un.Clean, un.Velocity, un.Flow):
        with pytest.raises(un.InexactConversion, match="alpha_t = 0"):
            prediction.to(other)
    assert prediction.to(un.Noise).to(un.Score).value.isfinite().all()


# -- categories -------------------------------------------------------------------------------------------------------

FINITE = {
    "uniform": lambda: un.Uniform(3, 2),
    "uniform-sizes": lambda: un.Uniform([2, 4], schedule=schedules.Cosine()),
    "uniform-beta": lambda: un.Uniform(3, 2, schedules.LinearBeta(0.1, 8.0)),
    "uniform-log-snr": lambda: un.Uniform(3, 2, schedules.LogSNRLinear(4.0, -5.0)),  # alpha_0 < 1
    "uniform-per-coordinate": lambda: un.Uniform(
        3, 2, schedules.PerCoordinate([schedules.Linear(), schedules.Polynomial(2.0)])
    ),
    "masking": lambda: un.Masking(3, 2),
    "masking-sizes": lambda: un.Masking([2, 4], schedule=schedules.Cosine()),
    "masking-per-coordinate": lambda: un.Masking(
        3, 2, schedules.PerCoordinate([schedules.Linear(), schedules.Polynomial(2.0)])
    ),
}
CATEGORIES = [un.Posterior, un.RawPosterior, un.Ratio, un.Rates]
every_finite = pytest.mark.parametrize("make", FINITE.values(), ids=FINITE.keys())


def finite(make, seed=0):
    """A process, data, a noised state of each row and times over most of [0, 1]."""
    process = make()
    states = process.space.states()
    x0 = states[torch.randint(len(states), (ROWS,), generator=source(seed))]
    t = torch.linspace(0.15, 0.9, ROWS, dtype=F64)
    return process, x0, process.marginal(x0, t).draw(un.NoiseSource(seed, ROWS)), t


def sizes(process):
    return [process.space.size] * 2 if process.space.sizes is None else process.space.sizes.tolist()


def kernel(process, k, s, t):
    """Q_{t|s} of coordinate k as a dense matrix, row = destination; s = None is from the data."""
    schedule = process.schedule.schedules[k] if process.schedule.shape else process.schedule
    keep = float(schedule.alpha(t)) / (1.0 if s is None else float(schedule.alpha(s)))
    size, masking = sizes(process)[k], isinstance(process, un.Masking)
    n = process.space.size + 1 if masking else size
    noise = torch.zeros(n, dtype=F64)
    noise[-1 if masking else slice(None)] = 1.0 if masking else 1 / size
    return keep * torch.eye(n, dtype=F64) + (1 - keep) * noise.unsqueeze(1)


def numbers_of(prediction):
    """What a finite prediction says, where it says anything."""
    if isinstance(prediction, un.Posterior):
        return prediction.log_theta().exp()
    if isinstance(prediction, un.RawPosterior):
        return prediction.log_probs().exp()
    moves = prediction.process.log_rates_into(prediction.x_t, prediction.t) > LOG_ZERO / 2
    return torch.where(
        moves, prediction.log_ratio().exp() if type(prediction) is un.Ratio else prediction.local().rates, 0.0
    )


@every_finite
@pytest.mark.parametrize(("first", "second"), itertools.permutations(CATEGORIES, 2))
def test_category_kinds_round_trip(make, first, second):
    """From a posterior with random logits, so that ratios and rates belong to some law of x_0."""
    process, _, x_t, t = finite(make)
    posterior = un.Posterior(randn(*x_t.shape, process.space.size, seed=2), process, x_t, t)
    start = posterior.to(first)
    there = start.to(second)
    assert type(there) is second
    assert_near(numbers_of(there), numbers_of(posterior.to(second)))
    assert_near(numbers_of(there.to(first)), numbers_of(start))
    assert_near(there.local().rates, posterior.local().rates)


@every_finite
def test_kinds_by_dense_matrices(make):
    """Rates R_t(x_t, y) m(y)/m(x_t), ratios m(y)/m(x_t), raw posterior theta(a) q(x_t|a)/m(x_t), with m = Q_t theta."""
    process, _, x_t, t = finite(make)
    logits = randn(*x_t.shape, process.space.size, seed=2)
    posterior = un.Posterior(logits, process, x_t, t)
    seen = {kind: posterior.to(kind) for kind in CATEGORIES}
    for b, k in itertools.product(range(ROWS), range(2)):
        size, x = sizes(process)[k], int(x_t[b, k])
        q_t = kernel(process, k, None, float(t[b]))
        theta = logits[b, k, :size].softmax(0)
        if isinstance(process, un.Masking) and x != process.mask:
            theta = F.one_hot(x_t[b, k], size).double()
        m = q_t[:, :size] @ theta
        schedule = process.schedule.schedules[k] if process.schedule.shape else process.schedule
        speed = -float(schedule.d_alpha(t[b]) / schedule.alpha(t[b]))
        noise_at_x = (1.0 if x == process.mask else 0.0) if isinstance(process, un.Masking) else 1 / size
        others = [y for y in range(len(m)) if y != x and (y < size or isinstance(process, un.Masking) and y == process.mask)]
        raw = theta * q_t[x, :size] / m[x]
        assert_near(seen[un.RawPosterior].log_probs()[b, k, :size].exp(), raw)
        assert_near(seen[un.Posterior].log_theta()[b, k, :size].exp(), theta)
        if noise_at_x:
            assert_near(seen[un.Ratio].log_ratio()[b, k, others].exp(), m[others] / m[x])
        assert_near(seen[un.Rates].local().rates[b, k, others], speed * noise_at_x * m[others] / m[x])
        assert float(seen[un.Rates].local().rates[b, k, x]) == 0.0


def table_and_joint(process, seed=3):
    probs = randn(process.space.count, seed=seed).softmax(0)
    return un.oracles.table(process, probs), probs


@every_finite
def test_oracle_ratios_are_ratios_of_its_marginals(make):
    """q_t(y)/q_t(x_t) by evaluating the exact marginal at every neighbour (eq:discrete-tweedie)."""
    process, _, x_t, t = finite(make)
    oracle, _ = table_and_joint(process)
    ratio = oracle.predicting(un.Ratio)(x_t, t).log_ratio().exp()
    here, checked = oracle.log_marginal(x_t, t), 0
    for k in range(2):
        for y in range(sizes(process)[k]):
            neighbour = x_t.clone()
            neighbour[:, k] = y
            there = (oracle.log_marginal(neighbour, t) - here).exp()
            rows = process.movable(x_t)[:, k] & (x_t[:, k] != y)
            torch.testing.assert_close(ratio[rows, k, y], there[rows], rtol=1e-10, atol=1e-12)
            checked += int(rows.sum())
    assert checked >= 15


@every_finite
def test_posteriors_by_brute_force(make):
    """q(x_0^k | x_t) and q(x_0^k | the other coordinates of x_t) by summing over every x_0."""
    process, _, x_t, t = finite(make)
    oracle, probs = table_and_joint(process)
    states, posterior, raw = process.space.states(), oracle(x_t, t), oracle.predicting(un.RawPosterior)(x_t, t)
    for b in range(ROWS):
        evidence = [kernel(process, k, None, float(t[b]))[int(x_t[b, k])][states[:, k]] for k in range(2)]
        for k in range(2):
            size = sizes(process)[k]
            hot = F.one_hot(states[:, k], size).double()
            whole = (probs * evidence[0] * evidence[1]) @ hot
            others = (probs * evidence[1 - k]) @ hot
            assert_near(raw.log_probs()[b, k, :size].exp(), whole / whole.sum())
            if process.movable(x_t)[b, k]:
                assert_near(posterior.log_theta()[b, k, :size].exp(), others / others.sum())


@every_finite
def test_marginalised_and_plug_in_kernels(make):
    """The marginalised kernel of a raw posterior is the plug-in kernel of its leave-one-out one; with the raw vector
    plugged in the kernel differs, except under masking (eq:reversal-austin-nn, eq:reversal-x0-cond-disc)."""
    process, _, x_t, t = finite(make)
    s = 0.5 * t
    logits = randn(*x_t.shape, process.space.size, seed=2)
    raw = un.RawPosterior(logits, process, x_t, t)
    plugged = un.RawPosterior(logits, process, x_t, t, kernel="plug-in")
    n = process.state_space.size
    austin, direct = torch.zeros(ROWS, 2, n, dtype=F64), torch.zeros(ROWS, 2, n, dtype=F64)
    for b, k in itertools.product(range(ROWS), range(2)):
        size, x = sizes(process)[k], int(x_t[b, k])
        theta = logits[b, k, :size].softmax(0)
        if isinstance(process, un.Masking) and x != process.mask:
            theta = F.one_hot(x_t[b, k], size).double()
        step, q_s = kernel(process, k, float(s[b]), float(t[b])), kernel(process, k, None, float(s[b]))[:, :size]
        q_t = kernel(process, k, None, float(t[b]))[x, :size]
        weight = torch.where(q_t > 0, theta / q_t.clamp_min(1e-300), 0.0)
        austin[b, k, : len(step)] = step[x] * (q_s @ weight)
        direct[b, k, : len(step)] = step[x] * (q_s @ theta) / (step[x] * (q_s @ theta)).sum()
    assert_near(raw.step(s).probs, austin)
    assert_near(raw.to(un.Posterior).step(s).probs, austin)
    assert_near(plugged.step(s).probs, direct)
    assert_near(raw.local().rates, raw.to(un.Posterior).local().rates)
    gap = float((austin - direct).abs().max())
    rate_gap = float((raw.local().rates - plugged.local().rates).abs().max())
    if isinstance(process, un.Masking):
        assert gap < 1e-12 and rate_gap < 1e-10
    else:
        assert gap > 0.02 and rate_gap > 0.02


@every_finite
def test_the_oracles_kernel_is_the_reverse_of_the_joint_law(make):
    """q(x_s^k | x_t) summed over every x_0 and x_s, against the step of each kind that has an exact one."""
    process, _, x_t, t = finite(make)
    oracle, probs = table_and_joint(process)
    s, states = 0.5 * t, process.space.states()
    for b in range(ROWS):
        for k in range(2):
            j = 1 - k
            q_s, step = kernel(process, k, None, float(s[b])), kernel(process, k, float(s[b]), float(t[b]))
            other = kernel(process, j, None, float(t[b]))[int(x_t[b, j])][states[:, j]]
            law = step[int(x_t[b, k])] * (q_s[:, states[:, k]] @ (probs * other))
            for kind in (un.Posterior, un.RawPosterior):
                probs_s = oracle.predicting(kind)(x_t, t).step(s).probs[b, k, : len(law)]
                assert_near(probs_s, law / law.sum())


@pytest.mark.parametrize("name", ["masking", "masking-sizes"])
def test_carry_over_and_no_mass_on_the_mask(name):
    """An unmasked coordinate is what it is, whatever the network says; a clean law has `size` categories, MASK none."""
    process, _, x_t, t = finite(FINITE[name])
    logits = randn(*x_t.shape, process.space.size, seed=2)
    known, size = x_t != process.mask, process.space.size
    assert known.any() and (~known).any()
    posterior = un.Posterior(logits, process, x_t, t)
    for theta in (posterior.log_theta().exp(), posterior.to(un.RawPosterior).log_probs().exp()):
        assert theta.shape[-1] == size
        torch.testing.assert_close(theta[known], F.one_hot(x_t[known], size).double(), rtol=0, atol=0)
        torch.testing.assert_close(theta.sum(-1), torch.ones(ROWS, 2, dtype=F64))
    for kind in CATEGORIES:
        other = posterior.to(kind)
        assert float(other.local().rates[..., process.mask].max()) == 0.0
        assert float(other.local().rates[known].max()) == 0.0
        moved = other.step(0.5 * t).probs
        torch.testing.assert_close(moved[known], F.one_hot(x_t[known], size + 1).double(), rtol=0, atol=1e-15)
    assert float(posterior.step(0.0).probs[..., process.mask].max()) == 0.0
    on_mask = un.Rates(torch.full((*x_t.shape, size + 1), 5.0, dtype=F64), process, x_t, t)
    assert float(on_mask.local().rates[..., process.mask].max()) == 0.0


@pytest.mark.parametrize("name", ["uniform-sizes", "masking-sizes"])
def test_no_mass_beyond_a_coordinates_own_categories(name):
    process, _, x_t, t = finite(FINITE[name])
    posterior = un.Posterior(randn(*x_t.shape, 4, seed=2) + 5 * torch.arange(4), process, x_t, t)
    for kind in CATEGORIES:
        other = posterior.to(kind)
        assert float(other.local().rates[:, 0, 2:4].max()) == 0.0
        assert float(other.step(0.5 * t).probs[:, 0, 2:4].max()) == 0.0
    assert float(posterior.to(un.RawPosterior).log_probs()[:, 0, 2:].exp().max()) == 0.0
    drawn = torch.stack([posterior.draw(un.NoiseSource(i, ROWS)) for i in range(50)])
    assert int(drawn[..., 0].max()) == 1 and int(drawn[..., 1].max()) == 3


# -- laziness ---------------------------------------------------------------------------------------------------------


class CountingHead(torch.nn.Module):
    """A linear head that remembers how many rows it was given."""

    def __init__(self, width, size):
        super().__init__()
        self.weight = torch.nn.Parameter(randn(width, size, seed=11))
        self.rows = []

    def forward(self, h):
        self.rows.append(h.shape[:-1].numel())
        return h @ self.weight


@every_finite
def test_a_lazy_posterior_is_the_ready_one(make):
    process, x0, x_t, t = finite(make)
    features, head = randn(ROWS, 2, 5, seed=12), CountingHead(5, process.space.size)
    lazy, ready = un.Posterior(features, process, x_t, t, head=head), un.Posterior(head(features), process, x_t, t)
    rows = process.movable(x_t) & (torch.rand(ROWS, 2, generator=source(1)) < 0.6)
    assert 0 < int(rows.sum()) < rows.numel()
    head.rows.clear()
    same = {"rtol": 1e-13, "atol": 1e-13}
    torch.testing.assert_close(lazy.log_prob(x0, rows), ready.log_prob(x0, rows), **same)
    assert head.rows == [int(rows.sum())]
    torch.testing.assert_close(lazy.log_prob(x0, rows), ready.log_theta().gather(-1, x0.unsqueeze(-1)).squeeze(-1)[rows])
    torch.testing.assert_close(lazy.logits, ready.logits, **same)
    torch.testing.assert_close(lazy.log_theta(), ready.log_theta(), **same)
    torch.testing.assert_close(lazy.local().rates, ready.local().rates, **same)
    torch.testing.assert_close(lazy.step(0.5 * t).probs, ready.step(0.5 * t).probs, **same)
    for kind in CATEGORIES[1:]:
        torch.testing.assert_close(numbers_of(lazy.to(kind)), numbers_of(ready.to(kind)), **same)
    assert torch.equal(lazy.draw(un.NoiseSource(0, ROWS)), ready.draw(un.NoiseSource(0, ROWS)))


def test_a_denoiser_uses_features_and_head_where_the_network_has_them():
    process, x0, x_t, t = finite(FINITE["masking"])

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = torch.nn.Parameter(randn(4, 5, seed=1)), CountingHead(5, 3)

        def features(self, x, t):
            return self.table[x] * (1 + t.reshape(-1, 1, 1))

        def forward(self, x, t):
            return self.head(self.features(x, t))

    network = Network()
    prediction = un.Denoiser(network, process)(x_t, t)
    assert network.head.rows == []
    masked = x_t == 3
    value = prediction.log_prob(x0, masked)
    assert network.head.rows == [int(masked.sum())]
    logits = network(x_t, t)
    torch.testing.assert_close(value, logits.log_softmax(-1).gather(-1, x0.unsqueeze(-1)).squeeze(-1)[masked])


# -- refusals ---------------------------------------------------------------------------------------------------------


def test_numbers_do_not_become_categories():
    process, x0, _, x_t, _, t = continuous(SCHEDULES["linear"])
    with pytest.raises(un.InexactConversion, match="Clean does not determine Posterior"):
        un.Clean(x0, process, x_t, t).to(un.Posterior)
    finite_process, _, y, t = finite(FINITE["uniform"])
    with pytest.raises(un.InexactConversion, match="Posterior does not determine Noise"):
        un.Posterior(randn(ROWS, 2, 3), finite_process, y, t).to(un.Noise)


@pytest.mark.parametrize("kind", [un.Posterior, un.RawPosterior, un.Ratio, un.Rates])
@pytest.mark.parametrize("name", ["uniform", "masking"])
def test_a_kernel_of_one_grid_pair_is_nothing_else(name, kind):
    process, _, x_t, t = finite(FINITE[name])
    transition = un.Transition(randn(ROWS, 2, process.state_space.size), process, x_t, t, s=0.5 * t)
    with pytest.raises(un.InexactConversion, match="Transition does not determine"):
        transition.to(kind)
    with pytest.raises(un.InexactConversion):
        transition.local()
    with pytest.raises(un.InexactConversion):
        transition.step(0.4 * t)


@pytest.mark.parametrize("kind", [un.Ratio, un.Rates])
@pytest.mark.parametrize("target", [un.Posterior, un.RawPosterior])
def test_ratios_of_no_clean_law_are_refused(kind, target):
    """Uniform noise bounds the ratios of neighbouring states; a network may exceed them."""
    process, _, x_t, t = finite(FINITE["uniform"])
    wild = kind(10.0 * randn(ROWS, 2, 3, seed=1), process, x_t, t)
    with pytest.raises(un.InexactConversion, match="belong to no law of x_0"):
        wild.to(target)


def test_masked_rates_whose_total_is_not_the_processs_are_refused():
    """Under masking the exit rate is known; rates with another total belong to no posterior."""
    process, _, x_t, t = finite(FINITE["masking"])
    exact = un.Posterior(randn(ROWS, 2, 3, seed=1), process, x_t, t).to(un.Rates)
    exact.to(un.Posterior)
    with pytest.raises(un.InexactConversion):
        un.Rates(exact.value + 0.5, process, x_t, t).to(un.Posterior)


@pytest.mark.parametrize("kind", [un.Mean, un.Transition])
def test_grid_kinds_ask_for_their_pair(kind):
    if kind is un.Mean:
        process, x0, _, x_t, _, t = continuous(SCHEDULES["linear"])
        prediction = un.Clean(x0, process, x_t, t)
    else:
        process, _, x_t, t = finite(FINITE["uniform"])
        prediction = un.Posterior(randn(ROWS, 2, 3), process, x_t, t)
    with pytest.raises((TypeError, ValueError)):
        prediction.to(kind)
    assert prediction.to(kind, s=0.5 * t).step(0.5 * t).log_prob(x_t).isfinite().all()


def test_products_convert_leaf_by_leaf():
    process = un.Product(a=un.Gaussian((2,), schedules.Linear()), b=un.Uniform(3, 2))
    x_t = {"a": randn(ROWS, 2), "b": torch.randint(3, (ROWS, 2), generator=source(0))}
    leaves = {
        "a": un.Clean(randn(ROWS, 2, seed=1), process.leaves["a"], x_t["a"], 0.5),
        "b": un.Posterior(randn(ROWS, 2, 3, seed=2), process.leaves["b"], x_t["b"], 0.5),
    }
    prediction = ProductPrediction(leaves, process, x_t, 0.5)
    other = prediction.to({"a": un.Noise})
    assert other["b"] is leaves["b"]
    torch.testing.assert_close(other["a"].value, (x_t["a"] - 0.5 * leaves["a"].value) / 0.5)
    with pytest.raises(TypeError, match="name the leaf"):
        prediction.to(un.Noise)
