"""Finite mixtures of simple components: tables, Gaussians, Gaussian mixtures, conditional Gaussians x categories.

The data law is  q(x_0) = sum_c w_c prod_leaves q_c(leaf)  where a component is Gaussian on a Euclidean leaf and independent
categories on a finite one.  A table over K^d states has one component of point masses per state; a Gaussian is one
component; a conditional Gaussian x categorical law has a component per categorical state.  Noised components stay simple,

    Gaussian leaf:  N(alpha mu_c, A Sigma_c A + sigma^2 C),      finite leaf:  sum_a q(x_t^k | a) theta_c^k(a),

so marginals, posteriors over c, E[x_0 | x_t] and the leave-one-out posterior of each coordinate are sums over c.
"""

from typing import Any, cast

import torch
from torch import Tensor

from unnoise.checks import leaf_time
from unnoise.laws import draw_categories, log_of
from unnoise.noise import NoiseSource
from unnoise.oracles.base import Oracle
from unnoise.oracles.leaves import CategoricalLeaf, GaussianLeaf, Leaf
from unnoise.predictions import Kinds, Prediction, ProductPrediction
from unnoise.processes import FiniteProcess, Gaussian, Process, Product
from unnoise.shapes import AnyState, Clock, Float, Tree
from unnoise.spaces import Finite


class Components(Oracle):
    """A finite mixture with the given weights; `leaves` is one `Leaf`, or a dict that mirrors the product."""

    def __init__(self, process: Process, weights: Float[Tensor, "components"], leaves: Tree[Leaf], predicts: Kinds = None):
        super().__init__(process, predicts)
        weights = torch.as_tensor(weights, dtype=torch.float64)
        if not bool((weights >= 0).all()) or abs(float(weights.sum()) - 1) > 1e-6:
            raise ValueError(
                f"component weights must be probabilities; the least is {float(weights.min()):g} and they sum to "
                f"{float(weights.sum()):g}: divide positive weights by their sum"
            )
        self.log_weights, self.leaves = log_of(weights / weights.sum()), leaves

    def _list(self, process: Process, leaves: Any, x: AnyState, t: Clock) -> list[tuple[Process, Leaf, Tensor, Clock]]:
        if process.leaves:
            return [
                entry
                for name, part in process.leaves.items()
                for entry in self._list(part, leaves[name], x[name], leaf_time(t, name))
            ]
        return [(process, leaves, x, t)]

    def native(self, x_t: AnyState, t: AnyState) -> Prediction:
        process = self.process.base
        entries = self._list(process, self.leaves, x_t, t)
        evidence = [leaf.log_evidence(part, x, time) for part, leaf, x, time in entries]
        predictions = []
        for i, (part, leaf, x, time) in enumerate(entries):
            others = sum((e for j, e in enumerate(evidence) if j != i), self.log_weights.expand_as(evidence[0]))
            predictions.append(leaf.predict(part, x, time, others))
        return self._assemble(process, x_t, t, iter(predictions))

    def _assemble(self, process: Process, x_t: AnyState, t: AnyState, predictions) -> Prediction:
        if process.leaves:
            leaves = {
                name: self._assemble(part, x_t[name], leaf_time(t, name), predictions)
                for name, part in process.leaves.items()
            }
            return ProductPrediction(leaves, process, x_t, t)
        return next(predictions)

    def log_prob(self, x0: Tree) -> Float[Tensor, "batch"]:
        entries = self._list(self.process.base, self.leaves, x0, 0.0)
        return (sum(leaf.log_prob(x) for _, leaf, x, _ in entries) + self.log_weights).logsumexp(-1)

    def log_marginal(self, x_t: Tree, t: Clock) -> Float[Tensor, "batch"]:
        entries = self._list(self.process.base, self.leaves, x_t, t)
        return (sum(leaf.log_evidence(p, x, time) for p, leaf, x, time in entries) + self.log_weights).logsumexp(-1)

    def draw(self, noise: NoiseSource) -> Tree:
        rows = len(noise.rows)
        component = draw_categories(self.log_weights.expand(rows, -1), noise.at("component"))

        def leaf_draw(leaves: Tree[Leaf], source: NoiseSource) -> Tree:
            if isinstance(leaves, dict):
                return {name: leaf_draw(part, source.at(name)) for name, part in leaves.items()}
            return leaves.draw(component, source)

        return leaf_draw(self.leaves, noise.at("leaf"))

    def clean_variance(self, x_t: Tensor, t: Clock) -> Tensor:
        """Var(x_0^k | x_t) of each (whitened) coordinate on a Euclidean space, for the optimal reverse variance."""
        process = self.process.base
        if not isinstance(process, Gaussian):
            raise TypeError("the clean variance is asked for on a single Gaussian leaf")
        leaf = cast(GaussianLeaf, self.leaves)
        evidence, mean, variance = leaf.conditional(process, x_t, t)
        weight = (self.log_weights + evidence).softmax(-1).unsqueeze(-1)
        average = (weight * mean).sum(1)
        total = (weight * (variance + process.whiten(mean - average.unsqueeze(1)).square())).sum(1)
        return total.reshape(x_t.shape).to(x_t.dtype)


def table(process: FiniteProcess, probs: Tensor, predicts: Kinds = None) -> Components:
    """Any law on an enumerable finite space: one probability per state, in the order of `process.space.states()`."""
    space = process.base.space
    if not isinstance(space, Finite):
        raise TypeError(f"a table lists the states of a finite space, and {space} is none: use another oracle")
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
    leaves: dict[str, Tree[Leaf]] = {}
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
