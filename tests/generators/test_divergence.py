"""The divergence of two reverse processes: per step, per unit time, and how the second is the limit of the first."""

import math

import pytest
import torch

import unnoise as un
from unnoise.generators import Local, divergence, divergence_rate
from unnoise.laws import LOG_ZERO
from unnoise.predictions import ProductPrediction

schedules = un.schedules
F64 = torch.float64
ROWS = 16

PROCESSES = {
    "gaussian-linear": lambda: un.Gaussian((2,), schedules.Linear()),
    "gaussian-exploding": lambda: un.Gaussian((2,), schedules.VE(0.1, 5.0)),
    "gaussian-beta": lambda: un.Gaussian((), schedules.LinearBeta(0.1, 10.0)),
    "masking": lambda: un.Masking(3, 2, schedules.Polynomial(2.0)),
    "masking-sizes": lambda: un.Masking([2, 4], schedule=schedules.Cosine()),
    "uniform": lambda: un.Uniform(3, 2, schedules.Cosine()),
    "uniform-sizes": lambda: un.Uniform([2, 4]),
}
NUMBERS = [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow]
CATEGORIES = [un.Posterior, un.RawPosterior, un.Ratio, un.Rates]
CASES = [
    pytest.param(make, kind, id=f"{name}-{kind.__name__}")
    for name, make in PROCESSES.items()
    for kind in (NUMBERS if name.startswith("gaussian") else CATEGORIES)
]


def source(seed):
    return torch.Generator().manual_seed(seed)


def randn(*shape, seed):
    return torch.randn(*shape, dtype=F64, generator=source(seed))


def random_data(process, rows=ROWS, seed=0):
    if isinstance(process, un.Product):
        return {name: random_data(leaf, rows, seed + i) for i, (name, leaf) in enumerate(process.leaves.items())}
    if isinstance(process, un.Gaussian):
        return randn(rows, *process.space.shape, seed=seed)
    states = process.space.states()
    return states[torch.randint(len(states), (rows,), generator=source(seed))]


def random_prediction(process, kind, x_t, t, seed=0):
    """A prediction with random values: an imperfect network."""
    shape = x_t.shape if issubclass(kind, tuple(NUMBERS)) else (*x_t.shape, process.space.size)
    return kind(randn(*shape, seed=seed), process, x_t, t)


def setting(process, kind, t=0.5, seed=0, rows=ROWS):
    x0 = random_data(process, rows, seed)
    x_t = process.marginal(x0, t).draw(un.NoiseSource(seed, rows))
    return process.reverse(x_t, x0, t), random_prediction(process, kind, x_t, t, seed + 7)


@pytest.mark.parametrize(("make", "kind"), CASES)
def test_the_rate_is_the_limit_of_the_step(make, kind):
    """KL over [s, t] / (t - s) tends to the rate, with an error of first order in t - s."""
    true, model = setting(make(), kind)
    rate = divergence(true, model)
    longest = 0.0025 if kind in (un.Ratio, un.Rates) else 0.02  # above it random ratios belong to no law, and leap
    steps = [longest * 2.0**-i for i in range(6)]
    errors = [float((divergence(true, model, 0.5 - h) / h - rate).norm() / rate.norm()) for h in steps]
    slope = (math.log(errors[0]) - math.log(errors[-1])) / (math.log(steps[0]) - math.log(steps[-1]))
    assert 0.9 < slope < 1.1, errors
    assert errors[-1] < 0.01, errors


@pytest.mark.parametrize(("make", "kind"), CASES)
@pytest.mark.parametrize("t", [0.2, 0.5, 0.97])
def test_never_negative(make, kind, t):
    true, model = setting(make(), kind, t, seed=3, rows=200)
    rate, step = divergence(true, model), divergence(true, model, t / 2)
    assert float(rate.min()) >= -1e-12 * float(rate.max())
    assert float(step.min()) >= -1e-12 * float(step.max())
    assert float(rate.max()) > 0.01 and float(step.max()) > 1e-6


@pytest.mark.parametrize("make", PROCESSES.values(), ids=PROCESSES.keys())
def test_zero_for_the_truth_itself(make):
    """The prediction that says x_0 with certainty is the reverse process conditioned on x_0."""
    process = make()
    true, _ = setting(process, un.Clean if isinstance(process, un.Gaussian) else un.Posterior)
    if isinstance(process, un.Gaussian):
        told = [un.Clean(true.x0, process, true.x_t, 0.5)]
        told += [told[0].to(kind) for kind in NUMBERS[1:]]
    else:
        certain = torch.where(torch.nn.functional.one_hot(true.x0, process.space.size) > 0, 0.0, LOG_ZERO)
        told = [un.Posterior(certain.double(), process, true.x_t, 0.5)]
        told += [told[0].to(kind) for kind in CATEGORIES[1:]]
    for model in told:
        torch.testing.assert_close(divergence(true, model), torch.zeros(ROWS, dtype=F64), rtol=0, atol=1e-12)
        if isinstance(model, un.Ratio | un.Rates):
            continue  # frozen over a step, their kernel is the truth's in the limit only
        torch.testing.assert_close(divergence(true, model, 0.3), torch.zeros(ROWS, dtype=F64), rtol=0, atol=1e-12)


@pytest.mark.parametrize("entry", range(6))
def test_positive_as_soon_as_one_entry_differs(entry):
    """A change of one drift, or of one rate, up or down, is seen in its row and in no other."""
    drift, spread = randn(4, 6, seed=1), randn(4, 6, seed=2).exp()
    rates = randn(4, 2, 3, seed=3)
    numbers, categories = (un.Euclidean((6,)), drift), (un.Finite(3, (2,)), torch.zeros(4, 2, dtype=torch.int64))
    for data, change, place in ((Local(drift, spread), "drift", numbers), (Local(log_rates=rates), "log_rates", categories)):
        space, x = place
        assert float(divergence_rate(space, data, data, x).abs().max()) == 0.0
        for delta in (-1e-3, 1e-3):
            changed = getattr(data, change).clone()
            changed.reshape(4, 6)[1, entry] += delta
            other = Local(changed, spread) if change == "drift" else Local(log_rates=changed)
            value = divergence_rate(space, data, other, x)
            assert float(value[1]) > 1e-8 and float(value[[0, 2, 3]].abs().max()) == 0.0


@pytest.mark.parametrize("kind", NUMBERS)
@pytest.mark.parametrize("name", ["gaussian-linear", "gaussian-exploding", "gaussian-beta"])
def test_gaussian_rate_is_half_the_squared_score_error(name, kind):
    """1/2 g^2 |s_0 - s|^2, with g^2 = alpha^2 d(sigma^2/alpha^2)/dt taken by autograd."""
    process = PROCESSES[name]()
    true, model = setting(process, kind, 0.35)
    t = torch.tensor(0.35, dtype=F64, requires_grad=True)
    alpha, sigma = process.schedule.alpha(t), process.schedule.sigma(t)
    g2 = alpha.detach() ** 2 * torch.autograd.grad((sigma / alpha) ** 2, t)[0]
    alpha, sigma = alpha.detach(), sigma.detach()
    error = (alpha * true.x0 - true.x_t) / sigma**2 - model.to(un.Score).value
    expected = 0.5 * g2 * error.reshape(ROWS, -1).square().sum(1)
    torch.testing.assert_close(divergence(true, model), expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("kind", CATEGORIES)
@pytest.mark.parametrize("name", ["masking", "uniform", "uniform-sizes"])
def test_jump_rate_summed_state_by_state(name, kind):
    """sum_y [R_m - R_0 + R_0 log(R_0/R_m)] over plain Python numbers, with R_0 from the definition."""
    process = PROCESSES[name]()
    true, model = setting(process, kind, 0.35)
    alpha = float(process.schedule.alpha(0.35))
    speed = -float(process.schedule.d_alpha(0.35)) / alpha
    model_rates, total = model.local().rates, torch.zeros(ROWS, dtype=F64)
    for b in range(ROWS):
        for k in range(2):
            x, x0 = int(true.x_t[b, k]), int(true.x0[b, k])
            size = process.space.size if process.space.sizes is None else int(process.space.sizes[k])
            masking = isinstance(process, un.Masking)
            noise = [0.0] * size + [1.0] if masking else [1 / size] * size
            marginal = [alpha * (y == x0) + (1 - alpha) * noise[y] for y in range(len(noise))]
            for y in range(len(noise)):
                if y == x or noise[x] == 0:  # R_t(x, y) = speed p(x)
                    continue
                r0, rm = speed * noise[x] * marginal[y] / marginal[x], float(model_rates[b, k, y])
                total[b] += rm - r0 + (r0 * math.log(r0 / rm) if r0 > 0 else 0.0)
    assert float(total.max()) > 0.1
    torch.testing.assert_close(divergence(true, model), total, rtol=1e-11, atol=1e-12)


def test_adds_over_the_leaves_of_a_product():
    leaves = {
        "age": un.Gaussian((1,), schedules.Linear()),
        "rest": un.Product(job=un.Uniform([2, 4]), text=un.Masking(3, 2, schedules.Cosine())),
    }
    process = un.Product(**leaves)
    x0 = random_data(process)
    x_t = process.marginal(x0, 0.5).draw(un.NoiseSource(0, ROWS))
    job, text = process.leaves["rest"].leaves.values()
    parts = {
        "age": random_prediction(leaves["age"], un.Noise, x_t["age"], 0.5, 1),
        "job": random_prediction(job, un.Ratio, x_t["rest"]["job"], 0.5, 2),
        "text": random_prediction(text, un.Posterior, x_t["rest"]["text"], 0.5, 3),
    }
    rest = ProductPrediction({"job": parts["job"], "text": parts["text"]}, leaves["rest"], x_t["rest"], 0.5)
    model = ProductPrediction({"age": parts["age"], "rest": rest}, process, x_t, 0.5)
    true = process.reverse(x_t, x0, 0.5)
    trues = {
        "age": leaves["age"].reverse(x_t["age"], x0["age"], 0.5),
        "job": job.reverse(x_t["rest"]["job"], x0["rest"]["job"], 0.5),
        "text": text.reverse(x_t["rest"]["text"], x0["rest"]["text"], 0.5),
    }
    for s in (None, 0.3):
        alone = torch.stack([divergence(trues[name], parts[name], s) for name in parts])
        assert (alone.amax(1) > 0.01).all()
        torch.testing.assert_close(divergence(true, model, s), alone.sum(0), rtol=1e-13, atol=0)
    at_once = {"age": 0.3, "rest": {"job": 0.2, "text": 0.4}}
    alone = divergence(trues["age"], parts["age"], 0.3) + divergence(trues["job"], parts["job"], 0.2)
    alone = alone + divergence(trues["text"], parts["text"], 0.4)
    torch.testing.assert_close(divergence(true, model, at_once), alone, rtol=1e-13, atol=0)


def test_infinite_where_the_model_cannot_follow():
    """A jump that the model forbids, or a drift that differs where nothing diffuses; but 0 log 0 = 0."""
    true = Local(log_rates=torch.tensor([[0.0, LOG_ZERO], [0.0, LOG_ZERO]], dtype=F64))
    model = Local(log_rates=torch.tensor([[LOG_ZERO, 0.0], [0.0, LOG_ZERO]], dtype=F64))
    category, number = torch.zeros(2, dtype=torch.int64), torch.zeros(2, 1, dtype=F64)
    assert divergence_rate(un.Finite(2), true, model, category).tolist() == [math.inf, 0.0]
    still, moving = Local(torch.zeros(2, 1, dtype=F64)), Local(torch.tensor([[1.0], [0.0]], dtype=F64))
    line = un.Euclidean((1,))
    assert divergence_rate(line, still, moving, number).tolist() == [math.inf, 0.0]
    none = torch.zeros(2, 1, dtype=F64)
    assert divergence_rate(line, Local(still.drift, none), Local(moving.drift, none), number).tolist() == [math.inf, 0.0]


def test_infinite_where_the_diffusions_differ():
    """Two diffusions tell themselves apart at once, whatever their drifts; rounding is no difference."""
    line, x, drift = un.Euclidean((2,)), torch.zeros(3, 2, dtype=F64), torch.ones(3, 2, dtype=F64)
    a = torch.full((3, 2), 0.7, dtype=F64)
    other = a.clone()
    other[1, 0] += 1e-3
    assert divergence_rate(line, Local(drift, a), Local(drift, other), x).tolist() == [0.0, math.inf, 0.0]
    assert divergence_rate(line, Local(drift, a), Local(drift), x).tolist() == [math.inf] * 3
    assert divergence_rate(line, Local(drift, a), Local(drift, a * (1 + 1e-15)), x).tolist() == [0.0] * 3
    first, second = (un.Covariance([[1.0, c], [c, 1.0]]) for c in (0.3, 0.4))
    one, same, another = (Local(drift, a, covariance=c) for c in (first, un.Covariance([[1.0, 0.3], [0.3, 1.0]]), second))
    assert divergence_rate(line, one, same, x).tolist() == [0.0] * 3
    assert divergence_rate(line, one, another, x).tolist() == [math.inf] * 3
