"""Mixtures of normal laws under the Kac process, in closed form but for a quadrature.

A component N(m, s^2) is carried along the telegraph law with a fair first sign: an atom and an integral over the way e,

    p_t(x, v) = 1/2 [ e^{-at} N(x - vt; m, s^2) + int (same + other)(e) N(x - sign(v) e; m, s^2) de ],

by a Gauss rule over [-ct, ct].
"""

from math import log

import numpy as np
import torch
from torch import Tensor

from unnoise.oracles.flips import FlipMixture
from unnoise.processes import Kac
from unnoise.processes.kac_law import log_densities
from unnoise.shapes import Float


class KacMixture(FlipMixture):
    """Weights [components], means and stds [components, *shape]; `nodes` of the rule over the ways."""

    process: Kac

    def __init__(self, process: Kac, weights: Tensor, means: Tensor, stds: Tensor, nodes: int = 64):
        super().__init__(process, weights, means, stds)
        x, w = np.polynomial.legendre.leggauss(nodes)
        self.nodes, self.node_weights = torch.from_numpy(x), torch.from_numpy(w)

    def _coordinates(self, x: Tensor, sign: Tensor, t: Float[Tensor, "batch"]) -> tuple[Tensor, Tensor]:
        a, c, ones = self.process.rate, self.process.speed, [1] * (x.ndim - 1)
        h = t.reshape(-1, *ones)
        e = (c * t).unsqueeze(1) * self.nodes  # [batch, nodes]
        same, other = log_densities(e, t.unsqueeze(1), a, c)
        kernel = torch.logaddexp(same, other) + (self.node_weights * (c * t).unsqueeze(1)).clamp_min(1e-300).log()
        kernel, ways = kernel.reshape(len(x), 1, -1, *ones), e.reshape(*e.shape, *ones)

        def carried(sign: Tensor) -> Tensor:
            smooth = (kernel + self._normal((x.unsqueeze(1) - ways * sign.unsqueeze(1)).unsqueeze(1))).logsumexp(2)
            atom = -a * h.unsqueeze(1) + self._normal((x - c * h * sign).unsqueeze(1))
            return torch.logaddexp(atom, smooth) - log(2.0)

        return carried(sign), carried(-sign)
