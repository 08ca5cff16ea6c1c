"""The components' laws on one leaf: Gaussian on numbers, independent categories on a finite space.

Noised components stay simple (see `components`): a leaf answers their evidence for x_t, and its native prediction given what
the other leaves say of the component.
"""

from abc import ABC, abstractmethod
from math import log, pi

import torch
from torch import Tensor

from unnoise.covariance import Covariance
from unnoise.laws import LOG_ZERO, draw_categories
from unnoise.noise import NoiseSource
from unnoise.predictions import Posterior, Prediction, Velocity
from unnoise.processes import FiniteProcess, Gaussian, Process
from unnoise.shapes import Clock, Float, Int
from unnoise.spaces import Finite


class Leaf(ABC):
    """The components' laws on one leaf."""

    @abstractmethod
    def log_evidence(self, process: Process, x_t: Tensor, t: Clock) -> Float[Tensor, "batch components"]: ...

    @abstractmethod
    def log_prob(self, x0: Tensor) -> Float[Tensor, "batch components"]: ...

    @abstractmethod
    def draw(self, component: Int[Tensor, "batch"], noise: NoiseSource) -> Tensor: ...

    @abstractmethod
    def predict(self, process, x_t: Tensor, t: Clock, log_others: Float[Tensor, "batch components"]) -> Prediction:
        """The native prediction, given the log-weight of each component from everything but this leaf."""


class GaussianLeaf(Leaf):
    """Gaussian components.  With eigenvalues l_i of Sigma_c the noised variances are alpha^2 l_i + sigma^2 on the same axes.

    Coordinates with schedules of their own have the covariance A Sigma A + diag(sigma^2), factored row by row.  Where the
    noise is correlated, C = L L^T, the same is done in the whitened coordinates L^-1 x, whose components have the means
    L^-1 mu_c and the covariances L^-1 Sigma_c L^-T; densities are divided by |det L|.
    """

    def __init__(self, means: Float[Tensor, "components *shape"], covariances: Float[Tensor, "components d d"]):
        self.shape = tuple(means.shape[1:])
        self.means, self.covariances = means.double().reshape(len(means), -1), covariances.double()
        self.values, self.axes = torch.linalg.eigh(self.covariances)
        if bool((self.values < -1e-12).any()):
            raise ValueError(f"a covariance has the negative eigenvalue {self.values.min().item():g}")
        self._white: dict[Covariance, GaussianLeaf] = {}

    def whitened(self, covariance: Covariance) -> "GaussianLeaf":
        """The components in the coordinates L^-1 x, found once."""
        if covariance not in self._white:
            rows = covariance.whiten(self.covariances)  # L^-1 on one side, then on the other
            self._white[covariance] = GaussianLeaf(covariance.whiten(self.means), covariance.whiten(rows.mT))
        return self._white[covariance]

    def conditional(self, process: Gaussian, x_t: Tensor, t: Clock) -> tuple[Tensor, Tensor, Tensor]:
        """Log-evidence [b, c], E[x_0 | x_t, c] [b, c, d] and the variances of (whitened) x_0 given (x_t, c) [b, c, d]."""
        return self._both(process, x_t, t)[:3]

    def expected_noise(self, process: Gaussian, x_t: Tensor, t: Clock) -> Tensor:
        """E[eps | x_t, c] = sigma C C_t^-1 (x_t - alpha mu), C_t the noised covariance: [b, c, d]."""
        return self._both(process, x_t, t)[3]

    def _both(self, process: Gaussian, x_t: Tensor, t: Clock) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """`conditional` and `expected_noise`, of one solution."""
        covariance = process.covariance
        leaf = self if covariance is None else self.whitened(covariance)
        log_evidence, solved, gain, variance = leaf._solve(process, process.whiten(x_t.double()), t)
        mean = leaf.means + (gain @ solved.unsqueeze(-1)).squeeze(-1)
        noise = self._alpha_sigma(process, x_t, t)[1] * solved
        if covariance is None:
            return log_evidence, mean, variance, noise
        return log_evidence - covariance.log_det_root, covariance.colour(mean), variance, covariance.colour(noise)

    def _alpha_sigma(self, process: Gaussian, x_t: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        t = process.times(t, x_t)
        return tuple(v.reshape(len(t), 1, -1) for v in (process.schedule.alpha(t), process.schedule.sigma(t)))  # type: ignore

    def _solve(self, process: Gaussian, x_t: Tensor, t: Clock) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Under independent noise: log-evidence, C_t^-1 (x_t - alpha mu), the gain Sigma A, and Var(x_0 | x_t, c)."""
        alpha, sigma = self._alpha_sigma(process, x_t, t)
        residual = x_t.double().reshape(len(x_t), 1, -1) - alpha * self.means
        gain = self.covariances * alpha.unsqueeze(-2)
        constant = 0.5 * residual.shape[-1] * log(2 * pi)
        if not process.schedule.shape:
            noised = alpha.square() * self.values + sigma.square()  # [b, c, d], along the axes
            along = (residual.unsqueeze(-2) @ self.axes).squeeze(-2)
            log_evidence = -0.5 * (along.square() / noised + noised.log()).sum(-1) - constant
            variance = (self.axes.square() @ (self.values * sigma.square() / noised).unsqueeze(-1)).squeeze(-1)
            return log_evidence, (self.axes @ (along / noised).unsqueeze(-1)).squeeze(-1), gain, variance
        factor = torch.linalg.cholesky(alpha.unsqueeze(-1) * gain + torch.diag_embed(sigma.square()))
        white = torch.linalg.solve_triangular(factor, residual.unsqueeze(-1), upper=False).squeeze(-1)
        log_det = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        explained = (gain * torch.cholesky_solve(gain.mT, factor).mT).sum(-1)
        solved = torch.cholesky_solve(residual.unsqueeze(-1), factor).squeeze(-1)
        variance = self.covariances.diagonal(dim1=-2, dim2=-1) - explained
        return -0.5 * white.square().sum(-1) - log_det - constant, solved, gain, variance

    def log_evidence(self, process, x_t, t):
        return self.conditional(process, x_t, t)[0]

    def log_prob(self, x0):
        along = ((x0.double().reshape(len(x0), 1, -1) - self.means).unsqueeze(-2) @ self.axes).squeeze(-2)
        return -0.5 * (along.square() / self.values + self.values.log() + log(2 * pi)).sum(-1)

    def draw(self, component, noise):
        z = noise.normal((self.means.shape[1],)) * self.values.clamp_min(0).sqrt()[component]
        return (self.means[component] + (self.axes[component] @ z.unsqueeze(-1)).squeeze(-1)).reshape(-1, *self.shape)

    def predict(self, process, x_t, t, log_others):
        """The velocity v = alpha eps - sigma x_0, from which every kind follows without loss at both ends of time.

        It is a mean over x_0 given x_t, and so is the score that follows (eq:Tweedie-identity-ct).
        """
        evidence, clean, _, noise = self._both(process, x_t, t)
        weight = (log_others + evidence).softmax(-1).unsqueeze(-1)
        alpha, sigma = self._alpha_sigma(process, x_t, t)
        value = (weight * (alpha * noise - sigma * clean)).sum(1)
        return Velocity(value.reshape(x_t.shape).to(x_t.dtype), process, x_t, t)


class CategoricalLeaf(Leaf):
    """Independent categories within a component; `states` where each component is a single state."""

    states: Int[Tensor, "components d"] | None = None

    def __init__(self, log_probs: Float[Tensor, "components *shape size"]):
        self.shape = tuple(log_probs.shape[1:-1])
        self.log_probs = log_probs.double().reshape(len(log_probs), -1, log_probs.shape[-1])

    @classmethod
    def points(cls, space: Finite) -> "CategoricalLeaf":
        """One component per state of the space."""
        states = space.states()
        one_hot = torch.nn.functional.one_hot(states, space.size)
        leaf = cls(torch.where(one_hot > 0, 0.0, LOG_ZERO).double())
        leaf.states = states.reshape(len(states), -1)
        return leaf

    def _each(self, process: FiniteProcess, x_t: Tensor, t: Clock) -> Float[Tensor, "batch components d"]:
        size = self.log_probs.shape[-1]
        evidence = process.log_evidence(x_t, None, process.times(t, x_t))[..., :size]
        evidence = evidence.reshape(len(x_t), -1, size)
        if self.states is not None:  # a component is one state: its evidence is looked up
            return evidence.transpose(1, 2).gather(1, self.states.unsqueeze(0).expand(len(x_t), -1, -1))
        return (evidence.unsqueeze(1) + self.log_probs).logsumexp(-1)

    def log_evidence(self, process, x_t, t):
        return self._each(process, x_t, t).sum(-1)

    def log_prob(self, x0):
        flat = x0.reshape(len(x0), 1, -1, 1).expand(-1, len(self.log_probs), -1, -1)
        return self.log_probs.expand(len(x0), -1, -1, -1).gather(-1, flat).squeeze(-1).sum(-1)

    def draw(self, component, noise):
        return draw_categories(self.log_probs[component], noise).reshape(-1, *self.shape)

    def predict(self, process, x_t, t, log_others):
        each = self._each(process, x_t, t)
        before = each.cumsum(-1).roll(1, -1)
        before[..., 0] = 0
        after = each.flip(-1).cumsum(-1).roll(1, -1)
        after[..., 0] = 0
        rest = log_others.unsqueeze(-1) + before + after.flip(-1)  # [b, c, d]: everything but coordinate k
        log_theta = (rest.unsqueeze(-1) + self.log_probs).logsumexp(1).log_softmax(-1)
        return Posterior(log_theta.reshape(*x_t.shape, -1), process, x_t, t)
