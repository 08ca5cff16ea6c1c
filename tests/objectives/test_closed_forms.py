"""Every fast path is the divergence that it stands for, on random states, times and network values."""

import pytest
import torch

import unnoise as un
from unnoise.generators import divergence
from unnoise.objectives import closed_forms
from unnoise.objectives.closed_forms import rate, score_entropy, score_entropy_constant, squared_error_weight
from unnoise.predictions import ProductPrediction

schedules = un.schedules
F64 = torch.float64
ROWS = 40

GAUSSIAN = {
    "linear": schedules.Linear(),
    "cosine": schedules.Cosine(),
    "polynomial": schedules.Polynomial(2.5),
    "VE": schedules.VE(),
    "EDM": schedules.EDM(),
    "linear-beta": schedules.LinearBeta(),
    "log-snr": schedules.LogSNRLinear(),
}
MIXED = schedules.PerCoordinate([schedules.Linear(), schedules.Cosine(), schedules.Polynomial(2.0)])
NUMBERS = [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow]
FINITE = {
    "masking": lambda: un.Masking(5, 3),
    "masking-scalar": lambda: un.Masking(5, ()),
    "masking-grid": lambda: un.Masking(5, (2, 3), schedules.Polynomial(2.0)),
    "masking-sizes": lambda: un.Masking([2, 5, 3], schedule=schedules.Cosine()),
    "masking-per-coordinate": lambda: un.Masking(5, 3, MIXED),
    "uniform": lambda: un.Uniform(5, 3),
    "uniform-scalar": lambda: un.Uniform(5, ()),
    "uniform-two": lambda: un.Uniform(2, 3, schedules.Cosine()),
    "uniform-grid": lambda: un.Uniform(5, (2, 3), schedules.LinearBeta(0.1, 8.0)),
    "uniform-log-snr": lambda: un.Uniform(5, 3, schedules.LogSNRLinear(4.0, -5.0)),
    "uniform-sizes": lambda: un.Uniform([2, 5, 3], schedule=schedules.Cosine()),
    "uniform-per-coordinate": lambda: un.Uniform(5, 3, MIXED),
    "uniform-all": lambda: un.Uniform([2, 5, 3], schedule=MIXED),
}


def source(seed):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed=0):
    return torch.randn(*shape, dtype=F64, generator=source(seed))


def random_times(seed=0, low=0.02, high=0.98):
    return low + (high - low) * torch.rand(ROWS, dtype=F64, generator=source(seed))


def assert_near(actual, expected, tolerance):
    """To the tolerance, absolute or relative, whichever is larger."""
    assert actual.shape == expected.shape == (ROWS,)
    error = (actual.double() - expected.double()).abs()
    assert (error <= tolerance * expected.double().abs().clamp_min(1.0)).all(), float(error.max())


def finite_case(process, seed=0):
    states = process.space.states()
    x0 = states[torch.randint(len(states), (ROWS,), generator=source(seed))]
    t = random_times(seed)
    x_t = process.marginal(x0, t).draw(un.NoiseSource(seed, ROWS))
    return x0, x_t, t, 2 * randn(*x0.shape, process.space.size, seed=seed + 1)


def gaussian_case(process, seed=0):
    x0, t = randn(ROWS, *process.space.shape, seed=seed), random_times(seed)
    x_t = process.marginal(x0, t).draw(un.NoiseSource(seed, ROWS))
    return x0, x_t, t, randn(*x0.shape, seed=seed + 1)


# -- numbers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("schedule", GAUSSIAN.values(), ids=GAUSSIAN.keys())
@pytest.mark.parametrize("shape", [(), (3,), (2, 3)], ids=str)
def test_squared_errors(schedule, kind, shape):
    process = un.Gaussian(shape, schedule)
    x0, x_t, t, value = gaussian_case(process)
    prediction = kind(value, process, x_t, t)
    assert closed_forms.closed_form.of(un.Gaussian, kind)
    assert_near(rate(prediction, process, x0), divergence(process.reverse(x_t, x0, t), prediction), 1e-10)


@pytest.mark.parametrize("kind", NUMBERS)
def test_squared_errors_with_a_schedule_per_coordinate(kind):
    several = schedules.PerCoordinate([schedules.Linear(), schedules.EDM(), schedules.LinearBeta()])
    process = un.Gaussian((3,), several)
    x0, x_t, t, value = gaussian_case(process)
    prediction = kind(value, process, x_t, t)
    assert_near(rate(prediction, process, x0), divergence(process.reverse(x_t, x0, t), prediction), 1e-10)
    alone = [
        rate(kind(value[:, k], un.Gaussian((), one), x_t[:, k], t), un.Gaussian((), one), x0[:, k])
        for k, one in enumerate(several.schedules)
    ]
    assert_near(rate(prediction, process, x0), torch.stack(alone).sum(0), 1e-12)


@pytest.mark.parametrize("kind", NUMBERS)
def test_squared_errors_in_single_precision(kind):
    """Coefficients are float64 until they meet the data, so float32 costs float32's own rounding."""
    process = un.Gaussian((3,), schedules.Cosine())
    x0, x_t, t, value = gaussian_case(process)
    x0, x_t, value = x0.float(), x_t.float(), value.float()
    exact = rate(kind(value.double(), process, x_t.double(), t), process, x0.double())
    single = kind(value, process, x_t, t)
    assert rate(single, process, x0).dtype == torch.float32
    assert_near(rate(single, process, x0), exact, 1e-5)
    assert_near(rate(single, process, x0, fast=False), exact, 1e-4)  # by way of drifts that nearly cancel


@pytest.mark.parametrize("schedule", GAUSSIAN.values(), ids=GAUSSIAN.keys())
def test_continuous_weights(schedule):
    """x0: -SNR'/2; eps: g^2/(2 sigma^2); score: g^2/2; v: -SNR'/2 sigma^2/(alpha^2 + sigma^2)^2; u: 2/g^2."""
    t = random_times()
    alpha, sigma = schedule.alpha(t), schedule.sigma(t)
    _, slope = torch.func.jvp(lambda v: (schedule.alpha(v) / schedule.sigma(v)) ** 2, (t,), (torch.ones_like(t),))
    _, spread = torch.func.jvp(lambda v: (schedule.sigma(v) / schedule.alpha(v)) ** 2, (t,), (torch.ones_like(t),))
    g2 = alpha**2 * spread
    expected = {
        un.Clean: -slope / 2,
        un.Noise: g2 / (2 * sigma**2),
        un.Score: g2 / 2,
        un.Velocity: -slope / 2 * sigma**2 / (alpha**2 + sigma**2) ** 2,
        un.Flow: 2 / g2,
    }
    for kind, weight in expected.items():
        torch.testing.assert_close(squared_error_weight(kind, schedule, t), weight, rtol=1e-9, atol=0)
    with pytest.raises(TypeError):
        squared_error_weight(un.Mean, schedule, t)


@pytest.mark.parametrize("schedule", GAUSSIAN.values(), ids=GAUSSIAN.keys())
def test_per_step_weights(schedule):
    """A step's KL is 1/2 (SNR_s - SNR_t) |x_0 - x_model|^2, and the same in the error of every other kind."""
    process = un.Gaussian((3,), schedule)
    x0, x_t, t, value = gaussian_case(process)
    s = 0.7 * t
    alpha, sigma, g2 = schedule.alpha(t), schedule.sigma(t), schedule.diffusion(t)
    half = 0.5 * ((schedule.alpha(s) / schedule.sigma(s)) ** 2 - (alpha / sigma) ** 2)
    weights = {
        un.Clean: half,
        un.Noise: half * sigma**2 / alpha**2,
        un.Score: half * sigma**4 / alpha**2,
        un.Velocity: half * sigma**2 / (alpha**2 + sigma**2) ** 2,
        un.Flow: half * 4 * sigma**4 / (alpha**2 * g2**2),
    }
    for kind, weight in weights.items():
        prediction = kind(value, process, x_t, t)
        error = (kind.target(process, x0, x_t, t) - value).square().sum(1)
        step = divergence(process.reverse(x_t, x0, t), prediction, s)
        torch.testing.assert_close(step, weight * error, rtol=1e-9, atol=0)


# -- categories -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", FINITE.values(), ids=FINITE.keys())
def test_posteriors(make):
    process = make()
    assert closed_forms.closed_form.of(type(process), un.Posterior)
    for seed in range(3):
        x0, x_t, t, logits = finite_case(process, seed)
        prediction = un.Posterior(logits, process, x_t, t)
        expected = divergence(process.reverse(x_t, x0, t), prediction)
        assert float(expected.max()) > 0.1
        assert_near(rate(prediction, process, x0), expected, 1e-10)
        assert_near(rate(prediction, process, x0, fast=False), expected, 0.0)


@pytest.mark.parametrize("make", FINITE.values(), ids=FINITE.keys())
def test_posteriors_in_single_precision(make):
    process = make()
    x0, x_t, t, logits = finite_case(process)
    exact = rate(un.Posterior(logits.float().double(), process, x_t, t), process, x0, fast=False)
    assert_near(rate(un.Posterior(logits.float(), process, x_t, t), process, x0), exact, 1e-5)


@pytest.mark.parametrize("name", ["uniform", "uniform-sizes", "masking", "masking-sizes"])
def test_posteriors_at_little_noise(name):
    """Near t = 0 the rates grow like 1/t: the fast path keeps its digits relative to them."""
    process = FINITE[name]()
    x0, _, _, logits = finite_case(process)
    t = torch.full((ROWS,), 1e-4, dtype=F64)
    x_t = process.marginal(x0, 0.7).draw(un.NoiseSource(0, ROWS))  # states that are possible, if unlikely
    prediction = un.Posterior(logits, process, x_t, t)
    expected = divergence(process.reverse(x_t, x0, t), prediction)
    torch.testing.assert_close(rate(prediction, process, x0), expected, rtol=1e-9, atol=1e-9)


def test_masked_cross_entropy_written_out():
    """-alpha'/(1 - alpha) times the cross-entropy of the masked coordinates (eq:mlm-ELBO)."""
    process = FINITE["masking-grid"]()
    x0, x_t, t, logits = finite_case(process)
    surprise = -logits.log_softmax(-1).gather(-1, x0.unsqueeze(-1)).squeeze(-1)
    expected = (2 / t) * (surprise * (x_t == process.mask)).flatten(1).sum(1)  # alpha = 1 - t^2
    assert_near(rate(un.Posterior(logits, process, x_t, t), process, x0), expected, 1e-12)


def posterior(name, lazy):
    """A process, data, and a prediction of ready logits, or of features and a head."""
    process = FINITE[name]()
    x0, x_t, t, logits = finite_case(process)
    head, features = torch.nn.Linear(4, process.space.size, dtype=F64), randn(*x0.shape, 4, seed=5)
    return process, x0, un.Posterior(features, process, x_t, t, head=head) if lazy else un.Posterior(logits, process, x_t, t)


@pytest.mark.parametrize("name", [name for name in FINITE if name.startswith("masking")])
@pytest.mark.parametrize("lazy", [False, True])
def test_a_head_that_visits_all_gives_the_same(name, lazy, monkeypatch):
    """As on an accelerator, where to list the masked coordinates would make the host wait."""
    process, x0, prediction = posterior(name, lazy)
    with torch.no_grad():
        masked_only = rate(prediction, process, x0)
        monkeypatch.setattr(closed_forms, "visits_all", lambda x0, size: True)
        assert_near(rate(prediction, process, x0), masked_only, 1e-12)


@pytest.mark.parametrize("name", [name for name in FINITE if name.startswith("uniform")])
@pytest.mark.parametrize("lazy", [False, True])
def test_chunks_do_not_matter(name, lazy, monkeypatch):
    """The streamed uniform divergence gives the same numbers for any chunk, from logits or from features and a head."""
    process, x0, prediction = posterior(name, lazy)
    x_t, t = prediction.x_t, prediction.t
    with torch.no_grad():
        whole = rate(prediction, process, x0)
        assert_near(whole, divergence(process.reverse(x_t, x0, t), prediction), 1e-10)
        for chunk in (1, 7 * process.space.size, 23 * process.space.size):
            monkeypatch.setattr(closed_forms, "CHUNK", chunk)
            # a head may round differently for other row counts; the rest is identical
            torch.testing.assert_close(rate(prediction, process, x0), whole, rtol=1e-13 if lazy else 0, atol=0)


def test_chunks_bound_the_rows_a_head_sees(monkeypatch):
    process = FINITE["uniform"]()
    x0, x_t, t, _ = finite_case(process)
    seen, linear = [], torch.nn.Linear(4, 5, dtype=F64)

    def head(h):
        seen.append(len(h))
        return linear(h)

    monkeypatch.setattr(closed_forms, "CHUNK", 7 * 5)
    with torch.no_grad():
        rate(un.Posterior(randn(ROWS, 3, 4), process, x_t, t, head=head), process, x0)
    assert max(seen) == 7 and sum(seen) == ROWS * 3


def test_masked_rows_are_the_only_ones_a_head_sees():
    process = FINITE["masking"]()
    x0, x_t, t, _ = finite_case(process)
    seen, linear = [], torch.nn.Linear(4, 5, dtype=F64)

    def head(h):
        seen.append(len(h))
        return linear(h)

    rate(un.Posterior(randn(ROWS, 3, 4), process, x_t, t, head=head), process, x0)
    assert seen == [int((x_t == process.mask).sum())] and 0 < seen[0] < ROWS * 3


@pytest.mark.parametrize("kind", [un.Posterior, un.RawPosterior, un.Ratio, un.Rates])
@pytest.mark.parametrize("name", [n for n in FINITE if "grid" not in n and "scalar" not in n])
@pytest.mark.parametrize("form", ["rate", "ratio", "posterior"])
def test_score_entropy_and_its_constant_are_the_divergence(name, kind, form):
    process = FINITE[name]()
    x0, x_t, t, value = finite_case(process)
    prediction, other = (kind(v, process, x_t, t) for v in (value, value + randn(*value.shape, seed=9)))
    constant = score_entropy_constant(prediction, x0, form)
    total = score_entropy(prediction, x0, form) + constant
    assert_near(total, divergence(process.reverse(x_t, x0, t), prediction), 1e-10)
    assert torch.equal(constant, score_entropy_constant(other, x0, form))  # free of the network
    assert float(constant.abs().max()) > 0.1  # and not nothing


def test_score_entropy_written_out():
    """eq:seq-elbo and its concrete-score form under uniform noise, entry by entry."""
    process = un.Uniform(3, 1)
    x0, x_t, t, value = finite_case(process)
    ratio = un.Ratio(value, process, x_t, t)
    alpha, into = 1 - t, 1 / (3 * (1 - t))  # R_t(x, y) for y != x
    rate_form, ratio_form = torch.zeros(ROWS, dtype=F64), torch.zeros(ROWS, dtype=F64)
    for b in range(ROWS):
        q = [float(alpha[b]) * (y == int(x0[b, 0])) + float(t[b]) / 3 for y in range(3)]
        for y in range(3):
            if y == int(x_t[b, 0]):
                continue
            score, true = value[b, 0, y].exp(), q[y] / q[int(x_t[b, 0])]
            ratio_form[b] += into[b] * (score - true * score.log())
            rate_form[b] += into[b] * score - into[b] * true * (into[b] * score).log()
    assert_near(score_entropy(ratio, x0, "ratio"), ratio_form, 1e-11)
    assert_near(score_entropy(ratio, x0, "rate"), rate_form, 1e-11)


# -- products ---------------------------------------------------------------------------------------------------------


def test_a_product_adds_its_leaves():
    process = un.Product(
        a=un.Gaussian((3,), schedules.Linear()),
        rest=un.Product(b=un.Uniform([2, 5, 3]), c=un.Masking(5, 3, schedules.Cosine())),
    )
    cases = {
        "a": gaussian_case(process.leaves["a"]),
        **{n: finite_case(p) for n, p in process.leaves["rest"].leaves.items()},
    }
    t = cases["a"][2]
    inner = {n: un.Posterior(cases[n][3], p, cases[n][1], t) for n, p in process.leaves["rest"].leaves.items()}
    x0 = {"a": cases["a"][0], "rest": {n: cases[n][0] for n in inner}}
    x_t = {"a": cases["a"][1], "rest": {n: cases[n][1] for n in inner}}
    leaf = un.Noise(cases["a"][3], process.leaves["a"], x_t["a"], t)
    rest = ProductPrediction(inner, process.leaves["rest"], x_t["rest"], t)
    prediction = ProductPrediction({"a": leaf, "rest": rest}, process, x_t, t)
    expected = divergence(process.reverse(x_t, x0, t), prediction)
    assert_near(rate(prediction, process, x0), expected, 1e-10)
    assert_near(rate(prediction, process, x0, fast=False), expected, 0.0)
