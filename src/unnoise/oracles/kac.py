"""Data under the Kac process: mixtures of normal laws with independent coordinates.

A component k is N(m_k, s_k^2) in each coordinate, and p_t(x_i, v_i | k) is that law carried along the telegraph law with a fair
first sign: an atom and an integral over the way e,

    p_t(x, v | k) = 1/2 [ e^{-at} N(x - vt; m_k, s_k^2) + int (same + other)(e) N(x - sign(v) e; m_k, s_k^2) de ],

by a Gauss rule over [-ct, ct].  Ratios of the mixture follow with one coordinate turned at a time.
"""

from math import log, pi

import numpy as np
import torch
from torch import Tensor

from unnoise.laws import Law
from unnoise.noise import NoiseSource
from unnoise.oracles.base import Oracle
from unnoise.predictions import FlipRatios, Prediction
from unnoise.processes import Kac
from unnoise.processes.kac_law import log_densities
from unnoise.shapes import AnyState, Clock, Float


class KacMixture(Oracle):
    """Weights [components], means and stds [components, *shape]; `nodes` of the rule over the ways."""

    process: Kac

    def __init__(self, process: Kac, weights: Tensor, means: Tensor, stds: Tensor, nodes: int = 96):
        super().__init__(process)
        self.log_weights = (weights.double() / weights.double().sum()).log()
        self.means, self.stds = means.double(), stds.double()
        if not bool((self.stds > 0).all()):
            raise ValueError(f"a component has the standard deviation {float(self.stds.min()):g}: pass positive ones")
        x, w = np.polynomial.legendre.leggauss(nodes)
        self.nodes, self.node_weights = torch.from_numpy(x), torch.from_numpy(w)

    def _normal(self, x: Tensor) -> Tensor:
        """log N(x; m_k, s_k^2) of [batch, components, ..., *shape] with extra axes before the coordinates."""
        lead = x.ndim - self.means.ndim - 1
        size = (1, len(self.means), *[1] * lead, *self.means.shape[1:])
        m, s = self.means.reshape(size), self.stds.reshape(size)
        return -0.5 * ((x - m) / s).square() - s.log() - 0.5 * log(2 * pi)

    def _one_by_one(self, x: Tensor, sign: Tensor, t: Tensor) -> Float[Tensor, "batch components *shape"]:
        """log p_t(x_i, v_i | k) of velocities with these signs."""
        a, c, ones = self.process.rate, self.process.speed, [1] * (x.ndim - 1)
        h = t.reshape(-1, *ones)
        e = (c * t).unsqueeze(1) * self.nodes  # [batch, nodes]
        same, other = log_densities(e, t.unsqueeze(1), a, c)
        kernel = torch.logaddexp(same, other) + (self.node_weights * (c * t).unsqueeze(1)).clamp_min(1e-300).log()
        ways = e.reshape(*e.shape, *ones) * sign.unsqueeze(1)
        origin = x.unsqueeze(1) - ways  # [batch, nodes, *shape]
        smooth = (kernel.reshape(len(x), 1, -1, *ones) + self._normal(origin.unsqueeze(1))).logsumexp(2)
        atom = -a * h.unsqueeze(1) + self._normal((x - c * h * sign).unsqueeze(1))
        return torch.logaddexp(atom, smooth) - log(2.0)

    def _tables(self, z: Tensor, t: Clock) -> tuple[Tensor, Tensor]:
        x, sign = z[:, 0].double(), z[:, 1].sign().double()
        clock = torch.as_tensor(t, dtype=torch.float64, device=z.device).expand(len(z))
        return self._one_by_one(x, sign, clock), self._one_by_one(x, -sign, clock)

    def native(self, x_t: AnyState, t: AnyState) -> Prediction:
        here, there = self._tables(x_t, t)
        flat = here.reshape(*here.shape[:2], -1)
        joint = self.log_weights + flat.sum(2)
        change = (there.reshape(flat.shape) - flat).movedim(1, 2)  # [batch, coordinates, components]
        ratio = (joint.unsqueeze(1) + change).logsumexp(2) - joint.logsumexp(1, keepdim=True)
        return FlipRatios(ratio.reshape(x_t[:, 0].shape).to(x_t.dtype), self.process, x_t, t)

    def log_marginal(self, x_t: AnyState, t: Clock) -> Float[Tensor, "batch"]:
        here, _ = self._tables(x_t, t)
        return (self.log_weights + here.reshape(*here.shape[:2], -1).sum(2)).logsumexp(1)

    def log_prob(self, x0: AnyState) -> Float[Tensor, "batch"]:
        each = self._normal(x0.double().unsqueeze(1))
        return (self.log_weights + each.reshape(*each.shape[:2], -1).sum(2)).logsumexp(1)

    def draw(self, noise: NoiseSource) -> Tensor:
        edges = self.log_weights.exp().cumsum(0)
        which = torch.searchsorted(edges, noise.at("which").uniform()).clamp_max(len(edges) - 1)
        return self.means[which] + self.stds[which] * noise.at("place").normal(tuple(self.means.shape[1:]))

    def prior_of(self, rows: int) -> Law:
        """The exact law at t = 1, which `Kac(prior=...)` takes."""
        return KacEnd(self, rows)


class KacEnd(Law):
    """(x_1, v_1) of an oracle's data."""

    def __init__(self, oracle: KacMixture, rows: int):
        self.oracle, self.rows = oracle, rows

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        return self.oracle.log_marginal(x, 1.0)

    def draw(self, noise: NoiseSource) -> Tensor:
        return self.oracle.process.marginal(self.oracle.draw(noise.at("data")), 1.0).draw(noise.at("path"))

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError("the divergence of noised data from a prior has no closed form: use the bound of the paths")
