"""Data under velocities that flip: mixtures of normal laws with independent coordinates.

A component k is N(m_k, s_k^2) in each coordinate, beside a fair sign.  Coordinates that are independent at first stay so
under rates that know of their own x_i and v_i alone, so within a component

    p_t(x, v | k) = prod_i p_t(x_i, v_i | k),        log r_i(z) = log sum_k w_k p_t(R_i z | k) - log sum_k w_k p_t(z | k),

with one coordinate turned at a time.  How one coordinate is carried is for the process: in closed form (`oracles.kac`), or
on a grid (`oracles.flip_grid`).
"""

from abc import abstractmethod

import torch
from torch import Tensor

from unnoise.oracles.flights import FlightMixture
from unnoise.predictions import FlipRatios, Prediction
from unnoise.processes import FlippingVelocity
from unnoise.shapes import AnyState, Clock, Float


class FlipMixture(FlightMixture):
    """The components' coordinates apart."""

    process: FlippingVelocity

    @abstractmethod
    def _coordinates(self, x: Tensor, sign: Tensor, t: Float[Tensor, "batch"]) -> tuple[Tensor, Tensor]:
        """log p_t(x_i, v_i | k) [batch, components, *shape] of velocities with these signs, and with the opposite ones."""

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
