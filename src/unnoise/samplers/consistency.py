"""Multistep sampling of consistency models: to the data in one call, back to the next noise level, and again.

A consistency model's clean prediction f(x_t, t) is the end of the flow through x_t, a draw from the data and not their mean.
So

    x_s = alpha_s f(x_t, t) + sigma_s z,      z standard normal,

has the law of the process at s, for any s, if f is exact; at s = 0 it is f itself.  One step is one call.  More steps help
where f is not exact: each draws anew what f is told.  Of a denoiser, whose clean prediction is a mean, it is no method.
"""

import torch

from unnoise.samplers.coefficients import Coefficients
from unnoise.samplers.linear import LinearMethod


class MultistepConsistency(LinearMethod):
    """Jumps to the data and back, for consistency models."""

    def __init__(self) -> None:
        super().__init__(1)
        self.order, self.draws = None, True  # type: ignore[assignment]

    def row(self, m, i, known):
        return Coefficients(torch.zeros_like(m.alpha[i]), (m.alpha[i + 1],), m.sigma[i + 1])
