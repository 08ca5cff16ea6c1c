"""Data under velocities that flip: mixtures of normal laws with independent coordinates.

A component k is N(m_k, s_k^2) in each coordinate, beside a fair sign.  Coordinates that are independent at first stay so
under rates that know of their own x_i and v_i alone, so within a component

    p_t(x, v | k) = prod_i p_t(x_i, v_i | k),        log r_i(z) = log sum_k w_k p_t(R_i z | k) - log sum_k w_k p_t(z | k),

with one coordinate turned at a time.  How one coordinate is carried is for the process: in closed form (`oracles.kac`), or
on a grid (`oracles.flip_grid`).
"""

from abc import abstractmethod
from math import log, pi

import torch
from torch import Tensor

from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.oracles.base import Oracle
from unnoise.predictions import FlipRatios, Prediction
from unnoise.processes import FlippingVelocity
from unnoise.shapes import AnyState, Clock, Float, Tree


class FlipMixture(Oracle):
    """Weights [components], means and stds [components, *shape]."""

    process: FlippingVelocity
    accuracy: float = 1e-4  # of the bound of a path

    def __init__(self, process: FlippingVelocity, weights: Tensor, means: Tensor, stds: Tensor):
        super().__init__(process)
        self.log_weights = (weights.double() / weights.double().sum()).log()
        self.means, self.stds = means.double(), stds.double()
        if not bool((self.stds > 0).all()):
            raise ValueError(f"a component has the standard deviation {float(self.stds.min()):g}: pass positive ones")

    @abstractmethod
    def _coordinates(self, x: Tensor, sign: Tensor, t: Float[Tensor, "batch"]) -> tuple[Tensor, Tensor]:
        """log p_t(x_i, v_i | k) [batch, components, *shape] of velocities with these signs, and with the opposite ones."""

    def _normal(self, x: Tensor) -> Tensor:
        """log N(x; m_k, s_k^2) of [batch, components, ..., *shape] with extra axes before the coordinates."""
        lead = x.ndim - self.means.ndim - 1
        size = (1, len(self.means), *[1] * lead, *self.means.shape[1:])
        m, s = self.means.reshape(size), self.stds.reshape(size)
        return -0.5 * ((x - m) / s).square() - s.log() - 0.5 * log(2 * pi)

    def _tables(self, z: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        clock = torch.as_tensor(t, dtype=torch.float64, device=z.device).expand(len(z))
        here, there = self._coordinates(z[:, 0].double(), z[:, 1].sign().double(), clock)
        return here.reshape(*here.shape[:2], -1), there.reshape(*there.shape[:2], -1)

    def native(self, x_t: AnyState, t: AnyState) -> Prediction:
        here, there = self._tables(x_t, t)
        joint = self.log_weights + here.sum(2)
        change = (there - here).movedim(1, 2)  # [batch, coordinates, components]
        ratio = (joint.unsqueeze(1) + change).logsumexp(2) - joint.logsumexp(1, keepdim=True)
        return FlipRatios(ratio.reshape(x_t[:, 0].shape).to(x_t.dtype), self.process, x_t, t)

    def log_marginal(self, x_t: AnyState, t: Clock) -> Float[Tensor, "batch"]:
        here, _ = self._tables(x_t, t)
        return (self.log_weights + here.sum(2)).logsumexp(1)

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

    def ending_exactly(self) -> "FlipMixture":
        """The same data under the same process, with the law in which its paths really end as the prior."""
        return self.predicting(process=self.process.with_prior(self.prior_of))


class EndOfPaths(Law):
    """(x_1, v_1) of an oracle's data."""

    def __init__(self, oracle: FlipMixture, rows: int):
        self.oracle, self.rows = oracle, rows

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        return self.oracle.log_marginal(x, 1.0)

    def draw(self, noise: NoiseSource) -> Tree:
        return self.oracle.process.marginal(self.oracle.draw(noise.at("data")), 1.0).draw(noise.at("path"))

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError("the divergence of noised data from a prior has no closed form: use the bound of the paths")
