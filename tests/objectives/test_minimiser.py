"""What training converges to: the minimiser of the bound's integrand is the score, and the posterior.

Numbers: a model that is linear in features which contain the truth, fitted by least squares to exact draws, recovers the
oracle within standard errors.  Categories: one free logit per state and category, fitted to exact expectations, recovers
the oracle to six digits.
"""

import pytest
import torch

import unnoise as un
from unnoise.objectives.closed_forms import rate

schedules = un.schedules
F64 = torch.float64
DRAWS = 100_000


def tensor(*values):
    return torch.tensor(values, dtype=F64)


# -- numbers ----------------------------------------------------------------------------------------------------------

MEAN, COVARIANCE = tensor(0.5, -1.0), torch.tensor([[1.0, 0.6], [0.6, 0.8]], dtype=F64)
WEIGHTS, CENTRES, SPREADS = tensor(0.3, 0.7), tensor(-1.5, 1.0), tensor(0.1, 0.4)


def least_squares(prediction_of, features, process, x0):
    """The coefficients that minimise the mean rate, and the covariance of each output's (robust to unequal noise).

    The rate is quadratic in the value, so two gradients say all: d rate/d value = first + curvature * value.
    """
    gradients = []
    for constant in (0.0, 1.0):
        value = torch.full((DRAWS, x0.shape[1]), constant, dtype=F64, requires_grad=True)
        gradients.append(torch.autograd.grad(rate(prediction_of(value), process, x0).sum(), value)[0])
    first, curvature = gradients[0], gradients[1] - gradients[0]
    fits, covariances = [], []
    for k in range(x0.shape[1]):
        hessian = features.T @ (curvature[:, k : k + 1] * features)
        fit = -torch.linalg.solve(hessian, features.T @ first[:, k])
        surprise = (first[:, k] + curvature[:, k] * (features @ fit)).unsqueeze(1) * features
        inverse = torch.linalg.inv(hessian)
        fits.append(fit)
        covariances.append(inverse @ (surprise.T @ surprise) @ inverse)
    return torch.stack(fits), torch.stack(covariances)


@pytest.mark.parametrize("kind", [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow])
@pytest.mark.parametrize("schedule", [schedules.Linear(), schedules.VE(0.1, 5.0)], ids=["linear", "exploding"])
def test_linear_regression_recovers_the_score_of_gaussian_data(schedule, kind):
    process, t = un.Gaussian((2,), schedule), 0.4
    oracle = un.oracles.normal(process, MEAN, COVARIANCE, kind)
    x0 = oracle.draw(un.NoiseSource(0, DRAWS))
    x_t = process.marginal(x0, t).draw(un.NoiseSource(1, DRAWS))
    features = torch.cat([x_t, torch.ones(DRAWS, 1, dtype=F64)], 1)
    fit, covariance = least_squares(lambda value: kind(value, process, x_t, t), features, process, x0)
    error = covariance.diagonal(dim1=1, dim2=2).sqrt()
    at = torch.cat([torch.eye(2, dtype=F64), torch.zeros(1, 2, dtype=F64)])
    values = oracle(at, t).value
    truth = torch.cat([values[:2] - values[2], values[2:]]).T  # slopes and intercept of each output
    assert ((fit - truth).abs() < 4 * error).all(), (fit - truth) / error
    # the fit could tell: the conditional target's own slope, and the truth at a later time, are far off
    later = oracle(at, t + 0.1).value
    later = torch.cat([later[:2] - later[2], later[2:]]).T
    assert float(((fit - later).abs() / error).max()) > 10
    if kind is un.Score:
        alpha, sigma = schedule.alpha(t), schedule.sigma(t)
        precision = torch.linalg.inv(alpha**2 * COVARIANCE + sigma**2 * torch.eye(2, dtype=F64))
        closed = torch.cat([-precision, (alpha * precision @ MEAN).unsqueeze(1)], 1)
        torch.testing.assert_close(truth, closed, rtol=1e-10, atol=1e-10)
        target = torch.cat([-torch.eye(2, dtype=F64) / sigma**2, torch.zeros(2, 1, dtype=F64)], 1)
        assert float(((fit - target).abs() / error).max()) > 20


@pytest.mark.parametrize("kind", [un.Clean, un.Noise, un.Score, un.Velocity, un.Flow])
def test_regression_recovers_the_score_of_a_mixture(kind):
    """E[x_0 | x_t] is linear in (responsibility, responsibility x_t) of each component, and so is every kind."""
    process, t = un.Gaussian((1,), schedules.Cosine()), 0.35
    oracle = un.oracles.mixture(process, WEIGHTS, CENTRES.unsqueeze(1), SPREADS.reshape(2, 1, 1), kind)
    x0 = oracle.draw(un.NoiseSource(2, DRAWS))
    x_t = process.marginal(x0, t).draw(un.NoiseSource(3, DRAWS))
    alpha, sigma = process.schedule.alpha(t), process.schedule.sigma(t)

    def features_of(x):
        variance = alpha**2 * SPREADS + sigma**2
        share = (WEIGHTS.log() - 0.5 * (x - alpha * CENTRES) ** 2 / variance - 0.5 * variance.log()).softmax(1)
        return torch.cat([share, share * x], 1)

    fit, covariance = least_squares(lambda value: kind(value, process, x_t, t), features_of(x_t), process, x0)
    at = torch.linspace(-2, 2, 9, dtype=F64).unsqueeze(1)
    features = features_of(at)
    error = ((features @ covariance[0]) * features).sum(1).sqrt()
    truth = oracle(at, t).value[:, 0]
    assert ((features @ fit[0] - truth).abs() < 4 * error).all()
    assert float((error / truth.abs().max()).max()) < 0.02


# -- categories -------------------------------------------------------------------------------------------------------

FINITE = {
    "masking": lambda: un.Masking(3, 2, schedules.Cosine()),
    "masking-sizes": lambda: un.Masking([2, 3]),
    "uniform": lambda: un.Uniform(3, 2),
    "uniform-sizes": lambda: un.Uniform([2, 3], schedule=schedules.Cosine()),
}
CASES = [
    *[(kind, un.weightings.Bound()) for kind in (un.Posterior, un.RawPosterior, un.Ratio, un.Rates)],
    *[(kind, un.weightings.CrossEntropy()) for kind in (un.Posterior, un.RawPosterior)],
]


@pytest.mark.parametrize(("kind", "weighting"), CASES, ids=lambda v: getattr(v, "__name__", type(v).__name__))
@pytest.mark.parametrize("make", FINITE.values(), ids=FINITE.keys())
def test_free_logits_converge_to_the_posterior(make, kind, weighting):
    """Every pair (x_0, x_t), weighted by the exact q(x_0 | x_t): the minimiser is the oracle at every state."""
    process, t = make(), 0.5
    generator = torch.Generator().manual_seed(0)
    probs = torch.randn(process.space.count, dtype=F64, generator=generator).softmax(0)
    oracle = un.oracles.table(process, probs)
    data, states = process.space.states(), process.state_space.states()
    states = states[oracle.log_marginal(states, t) > -1e20]
    x0, code = data.repeat(len(states), 1), torch.arange(len(states)).repeat_interleave(len(data))
    weight = oracle.log_decode(x0, states[code], t).exp()
    torch.testing.assert_close(weight.reshape(len(states), -1).sum(1), torch.ones(len(states), dtype=F64))

    possible = weight > 0
    x0, code, weight = x0[possible], code[possible], weight[possible]
    logits = torch.zeros(len(states), 2, process.space.size, dtype=F64, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [logits], max_iter=2000, tolerance_grad=1e-12, tolerance_change=1e-16, line_search_fn="strong_wolfe"
    )

    def closure():
        optimiser.zero_grad()
        loss = (weight * weighting.rate(kind(logits[code], process, states[code], t), process, x0)).sum()
        loss.backward()
        return loss

    optimiser.step(closure)
    fitted, truth = kind(logits.detach(), process, states, t), oracle(states, t)
    torch.testing.assert_close(fitted.local().rates, truth.local().rates, rtol=0, atol=1e-6)
    movable = process.movable(states)
    for target in (un.Posterior, un.RawPosterior):
        a, b = fitted.to(target), truth.to(target)
        a, b = (p.log_theta() if target is un.Posterior else p.log_probs() for p in (a, b))
        torch.testing.assert_close(a.exp()[movable], b.exp()[movable], rtol=0, atol=1e-6)
    flat = torch.full_like(logits[0, 0], 1 / process.space.size)
    assert float((truth.log_theta().exp()[movable] - flat).abs().max()) > 0.1  # where the fit started from
