"""Data of processes of finite speed: mixtures of normal laws with independent coordinates.

Beside them a velocity is drawn as the process starts it.  The law in which paths really end is known with the marginals,
so that a bound with it as the prior is -log q(x_0) along every path.
"""

from math import log, pi

import torch
from torch import Tensor

from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.oracles.base import Oracle
from unnoise.processes import FiniteSpeed
from unnoise.shapes import AnyState, Float, Tree


class FlightMixture(Oracle):
    """Weights [components], means and stds [components, *shape]."""

    process: FiniteSpeed
    accuracy: float = 1e-4  # of the bound of a path

    def __init__(self, process: FiniteSpeed, weights: Tensor, means: Tensor, stds: Tensor):
        super().__init__(process)
        self.log_weights = (weights.double() / weights.double().sum()).log()
        self.means, self.stds = means.double(), stds.double()
        if not bool((self.stds > 0).all()):
            raise ValueError(f"a component has the standard deviation {float(self.stds.min()):g}: pass positive ones")

    def _normal(self, x: Tensor) -> Tensor:
        """log N(x; m_k, s_k^2) of [batch, components, ..., *shape] with extra axes before the coordinates."""
        lead = x.ndim - self.means.ndim - 1
        size = (1, len(self.means), *[1] * lead, *self.means.shape[1:])
        m, s = self.means.reshape(size), self.stds.reshape(size)
        return -0.5 * ((x - m) / s).square() - s.log() - 0.5 * log(2 * pi)

    def log_prob(self, x0: AnyState) -> Float[Tensor, "batch"]:
        each = self._normal(x0.double().unsqueeze(1))
        return (self.log_weights + each.reshape(*each.shape[:2], -1).sum(2)).logsumexp(1)

    def draw(self, noise: NoiseSource) -> Tensor:
        edges = self.log_weights.exp().cumsum(0)
        which = torch.searchsorted(edges, noise.at("which").uniform()).clamp_max(len(edges) - 1)
        return self.means[which] + self.stds[which] * noise.at("place").normal(tuple(self.means.shape[1:]))

    def prior_of(self, rows: int) -> Law:
        """The exact law of (x_1, v_1), which a process takes as its `prior`."""
        return EndOfPaths(self, rows)

    def ending_exactly(self) -> "FlightMixture":
        """The same data under the same process, with the law in which its paths really end as the prior."""
        return self.predicting(process=self.process.with_prior(self.prior_of))


class EndOfPaths(Law):
    """(x_1, v_1) of an oracle's data."""

    def __init__(self, oracle: FlightMixture, rows: int):
        self.oracle, self.rows = oracle, rows

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        return self.oracle.log_marginal(x, 1.0)

    def draw(self, noise: NoiseSource) -> Tree:
        return self.oracle.process.marginal(self.oracle.draw(noise.at("data")), 1.0).draw(noise.at("path"))

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError("the divergence of noised data from a prior has no closed form: use the bound of the paths")
