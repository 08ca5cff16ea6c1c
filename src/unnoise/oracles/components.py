"""Finite mixtures of simple components: tables, Gaussians, Gaussian mixtures, conditional Gaussians x categories.

The data law is  q(x_0) = sum_c w_c prod_leaves q_c(leaf)  where a component is Gaussian on a Euclidean leaf and independent
categories on a finite one.  A table over K^d states has one component of point masses per state; a Gaussian is one
component; a conditional Gaussian x categorical law has a component per categorical state.  Noised components stay simple,

    Gaussian leaf:  N(alpha mu_c, A Sigma_c A + sigma^2 I),      finite leaf:  sum_a q(x_t^k | a) theta_c^k(a),

so marginals, posteriors over c, E[x_0 | x_t] and the leave-one-out posterior of each coordinate are sums over c.
"""

from abc import ABC, abstractmethod
from math import log, pi

import torch
from torch import Tensor

from unnoise.checks import leaf_time
from unnoise.denoiser import Kinds, base_process
from unnoise.laws import LOG_ZERO, draw_categories, log_of
from unnoise.noise import Noise
from unnoise.oracles.base import Oracle
from unnoise.predictions import Posterior, Prediction, ProductPrediction, Velocity
from unnoise.processes import FiniteProcess, Gaussian, Process, Product
from unnoise.shapes import Float, Int, Tree
from unnoise.spaces import Finite


class Leaf(ABC):
    """The components' laws on one leaf."""

    @abstractmethod
    def log_evidence(self, process: Process, x_t: Tensor, t: Tree) -> Float[Tensor, "batch components"]: ...

    @abstractmethod
    def log_prob(self, x0: Tensor) -> Float[Tensor, "batch components"]: ...

    @abstractmethod
    def draw(self, component: Int[Tensor, "batch"], noise: Noise) -> Tensor: ...

    @abstractmethod
    def predict(self, process, x_t: Tensor, t: Tree, log_others: Float[Tensor, "batch components"]) -> Prediction:
        """The native prediction, given the log-weight of each component from everything but this leaf."""


class GaussianLeaf(Leaf):
    """Gaussian components.  With eigenvalues l_i of Sigma_c the noised variances are alpha^2 l_i + sigma^2 on the same axes.

    Coordinates with schedules of their own have the covariance A Sigma A + diag(sigma^2), factored row by row.
    """

    def __init__(self, means: Float[Tensor, "components *shape"], covariances: Float[Tensor, "components d d"]):
        self.shape = tuple(means.shape[1:])
        self.means, self.covariances = means.double().reshape(len(means), -1), covariances.double()
        self.values, self.axes = torch.linalg.eigh(self.covariances)
        if bool((self.values < -1e-12).any()):
            raise ValueError(f"a covariance has the negative eigenvalue {self.values.min().item():g}")

    def conditional(self, process: Gaussian, x_t: Tensor, t: Tree) -> tuple[Tensor, Tensor, Tensor]:
        """Log-evidence [b, c], E[x_0 | x_t, c] [b, c, d] and the variances of x_0 given (x_t, c) [b, c, d]."""
        log_evidence, solved, gain, explained = self._solve(process, x_t, t)
        mean = self.means + (gain @ solved.unsqueeze(-1)).squeeze(-1)
        return log_evidence, mean, explained

    def expected_noise(self, process: Gaussian, x_t: Tensor, t: Tree) -> Tensor:
        """E[eps | x_t, c] = sigma C^-1 (x_t - alpha mu), C the noised covariance: [b, c, d]."""
        return self._alpha_sigma(process, x_t, t)[1] * self._solve(process, x_t, t)[1]

    def _alpha_sigma(self, process: Gaussian, x_t: Tensor, t: Tree) -> tuple[Tensor, Tensor]:
        t = process.times(t, x_t)
        return tuple(v.reshape(len(t), 1, -1) for v in (process.schedule.alpha(t), process.schedule.sigma(t)))  # type: ignore

    def _solve(self, process: Gaussian, x_t: Tensor, t: Tree) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Log-evidence, C^-1 (x_t - alpha mu), the gain Sigma A, and Var(x_0 | x_t, c)."""
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
        """The velocity v = alpha eps - sigma x_0, from which every kind follows without loss at both ends of time."""
        evidence, clean, _ = self.conditional(process, x_t, t)
        weight = (log_others + evidence).softmax(-1).unsqueeze(-1)
        alpha, sigma = self._alpha_sigma(process, x_t, t)
        value = (weight * (alpha * self.expected_noise(process, x_t, t) - sigma * clean)).sum(1)
        return Velocity(value.reshape(x_t.shape).to(x_t.dtype), process, x_t, t)


class CategoricalLeaf(Leaf):
    def __init__(self, log_probs: Float[Tensor, "components *shape size"]):
        self.shape = tuple(log_probs.shape[1:-1])
        self.log_probs = log_probs.double().reshape(len(log_probs), -1, log_probs.shape[-1])

    @classmethod
    def points(cls, space: Finite) -> "CategoricalLeaf":
        """One component per state of the space."""
        states = space.states()
        one_hot = torch.nn.functional.one_hot(states, space.size)
        return cls(torch.where(one_hot > 0, 0.0, LOG_ZERO).double())

    def _each(self, process: FiniteProcess, x_t: Tensor, t: Tree) -> Float[Tensor, "batch components d"]:
        size = self.log_probs.shape[-1]
        evidence = process.log_evidence(x_t, None, process.times(t, x_t))[..., :size]
        evidence = evidence.reshape(len(x_t), 1, -1, size)
        return (evidence + self.log_probs).logsumexp(-1)

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


class Components(Oracle):
    """A finite mixture with the given weights; `leaves` is one `Leaf`, or a dict that mirrors the product."""

    def __init__(self, process: Process, weights: Float[Tensor, "components"], leaves: Tree, predicts: Kinds = None):
        super().__init__(process, predicts)
        weights = torch.as_tensor(weights, dtype=torch.float64)
        if not bool((weights >= 0).all()) or abs(float(weights.sum()) - 1) > 1e-6:
            raise ValueError(
                f"component weights must be probabilities; the least is {float(weights.min()):g} and they sum to "
                f"{float(weights.sum()):g}: divide positive weights by their sum"
            )
        self.log_weights, self.leaves = log_of(weights / weights.sum()), leaves

    def _list(self, process: Process, leaves: Tree, x: Tree, t: Tree) -> list[tuple[Process, Leaf, Tensor, Tree]]:
        if isinstance(process, Product):
            return [
                entry
                for name, part in process.leaves.items()
                for entry in self._list(part, leaves[name], x[name], leaf_time(t, name))
            ]
        return [(process, leaves, x, t)]

    def native(self, x_t: Tree, t: Tree) -> Prediction:
        process = base_process(self.process)
        entries = self._list(process, self.leaves, x_t, t)
        evidence = [leaf.log_evidence(part, x, time) for part, leaf, x, time in entries]
        predictions = []
        for i, (part, leaf, x, time) in enumerate(entries):
            others = sum((e for j, e in enumerate(evidence) if j != i), self.log_weights.expand_as(evidence[0]))
            predictions.append(leaf.predict(part, x, time, others))
        return self._assemble(process, x_t, t, iter(predictions))

    def _assemble(self, process: Process, x_t: Tree, t: Tree, predictions) -> Prediction:
        if isinstance(process, Product):
            leaves = {
                name: self._assemble(part, x_t[name], leaf_time(t, name), predictions)
                for name, part in process.leaves.items()
            }
            return ProductPrediction(leaves, process, x_t, t)
        return next(predictions)

    def log_prob(self, x0: Tree) -> Float[Tensor, "batch"]:
        entries = self._list(base_process(self.process), self.leaves, x0, 0.0)
        return (sum(leaf.log_prob(x) for _, leaf, x, _ in entries) + self.log_weights).logsumexp(-1)

    def log_marginal(self, x_t: Tree, t: Tree) -> Float[Tensor, "batch"]:
        entries = self._list(base_process(self.process), self.leaves, x_t, t)
        return (sum(leaf.log_evidence(p, x, time) for p, leaf, x, time in entries) + self.log_weights).logsumexp(-1)

    def draw(self, noise: Noise) -> Tree:
        rows = len(noise.rows)
        component = draw_categories(self.log_weights.expand(rows, -1), noise.at("component"))

        def leaf_draw(leaves: Tree, source: Noise) -> Tree:
            if isinstance(leaves, dict):
                return {name: leaf_draw(part, source.at(name)) for name, part in leaves.items()}
            return leaves.draw(component, source)

        return leaf_draw(self.leaves, noise.at("leaf"))

    def clean_variance(self, x_t: Tensor, t: Tree) -> Tensor:
        """Var(x_0^k | x_t) of each coordinate on a Euclidean space, for the optimal reverse variance."""
        process = base_process(self.process)
        if not isinstance(process, Gaussian):
            raise TypeError("the clean variance is asked for on a single Gaussian leaf")
        evidence, mean, variance = self.leaves.conditional(process, x_t, t)
        weight = (self.log_weights + evidence).softmax(-1).unsqueeze(-1)
        average = (weight * mean).sum(1)
        total = (weight * (variance + (mean - average.unsqueeze(1)).square())).sum(1)
        return total.reshape(x_t.shape).to(x_t.dtype)


def table(process: FiniteProcess, probs: Tensor, predicts: Kinds = None) -> Components:
    """Any law on an enumerable finite space: one probability per state, in the order of `process.space.states()`."""
    space = base_process(process).space
    assert isinstance(space, Finite)
    if probs.numel() != space.count:
        raise ValueError(f"{probs.numel()} probabilities for the {space.count} states of {space}")
    return Components(process, probs.flatten(), CategoricalLeaf.points(space), predicts)


def normal(process: Gaussian, mean: Tensor, covariance: Tensor, predicts: Kinds = None) -> Components:
    """A Gaussian data law."""
    return mixture(process, torch.ones(1), mean.unsqueeze(0), covariance.unsqueeze(0), predicts)


def mixture(process: Gaussian, weights: Tensor, means: Tensor, covariances: Tensor, predicts: Kinds = None) -> Components:
    """A Gaussian mixture: means [components, *shape], covariances [components, d, d]."""
    return Components(process, weights, GaussianLeaf(means, covariances), predicts)


def conditional_gaussian(
    process: Product, probs: Tensor, means: Tensor, covariances: Tensor, predicts: Kinds = None
) -> Components:
    """Categories from a table, and numbers that are Gaussian given them: a product of one finite and one Euclidean leaf."""
    leaves: dict[str, Leaf] = {}
    for name, leaf in process.leaves.items():
        if isinstance(leaf, FiniteProcess):
            leaves[name] = CategoricalLeaf.points(leaf.space)
        elif isinstance(leaf, Gaussian):
            leaves[name] = GaussianLeaf(means, covariances)
        else:
            raise TypeError(f"leaf '{name}' is a {type(leaf).__name__}; give the oracle's leaves to Components instead")
    if len(leaves) != 2 or len({type(leaf) for leaf in leaves.values()}) != 2:
        raise ValueError("a conditional Gaussian has one finite and one Euclidean leaf")
    return Components(process, probs.flatten(), leaves, predicts)
