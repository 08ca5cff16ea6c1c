"""Normal data measured linearly: the posterior, and the law of a run of steps, in closed form."""

from itertools import pairwise

import torch

import unnoise as un

F64 = torch.float64
PLACE = torch.arange(4, dtype=F64)
COVARIANCE = 0.6 ** (PLACE[:, None] - PLACE).abs()
MEAN = torch.tensor([0.5, -0.3, 0.0, 0.2], dtype=F64)
PROCESS = un.Gaussian((4,))
ORACLE = un.oracles.normal(PROCESS, MEAN, COVARIANCE)
OPERATOR = un.guidance.Matrix([[1.0, 1.0, 0.0, 0.0], [0.0, 1.0, -1.0, 0.5]])
A = OPERATOR.matrix
Y, NOISE = torch.tensor([1.5, -1.0], dtype=F64), 0.3


def posterior(mean=MEAN, covariance=COVARIANCE, y=Y):
    """(mean, covariance) of x_0 given y, and log of the density of y."""
    seen = A @ covariance @ A.T + NOISE**2 * torch.eye(2, dtype=F64)
    gain = covariance @ A.T @ torch.linalg.inv(seen)
    log_z = torch.distributions.MultivariateNormal(A @ mean, seen).log_prob(y)
    return mean + gain @ (y - A @ mean), covariance - gain @ A @ covariance, float(log_z)


def law_of_steps(denoiser, steps, step=None, start=1.0):
    """(mean, covariance) of what steps along an even grid draw, of a denoiser that is affine in the state."""
    times = torch.linspace(min(start, denoiser.latest), 0, steps + 1, dtype=F64)
    probe = torch.cat([torch.zeros(1, 4), torch.eye(4)]).double()
    mean, covariance = torch.zeros(4, dtype=F64), float(PROCESS.schedule.sigma(1.0)) ** 2 * torch.eye(4, dtype=F64)
    for t, s in pairwise(times):
        law = (step or kernel)(denoiser(probe, t.expand(5)), t, s)
        slope, shift = (law.mean[1:] - law.mean[0]).T, law.mean[0]
        mean, covariance = slope @ mean + shift, slope @ covariance @ slope.T
        covariance = covariance + torch.diag(law.std.expand(5, 4)[0].square())
    return mean, covariance


def kernel(prediction, t, s):
    return prediction.step(s)


def euler(prediction, t, s):
    from unnoise.generators.path_estimates import step_law

    return step_law(prediction.process.state_space, prediction.local(), prediction.x_t, t - s)


def weighed(info):
    """(mean, covariance) of all particles of all groups by their weights, each group as it is worth."""
    weights = info.particles.log_weight.softmax(1)  # [groups, particles]
    weights = weights * (info.particles.log_normaliser - info.particles.log_normaliser.max()).exp().unsqueeze(1)
    weights = (weights / weights.sum()).T.reshape(-1, 1)
    x = info.particles.states
    mean = (weights * x).sum(0)
    return mean, ((weights * (x - mean)).T @ (x - mean))
