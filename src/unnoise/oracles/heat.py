"""Data on closed spaces: mixtures of heat kernels, which stay such mixtures when they are noised.

A component is Brownian motion from a point m_c for a variance w_c, so that after the noise's own it is h_{w_c + v_t}(. ,
m_c); the score of the mixture is the mean of the components' scores under their posterior weights given x_t.
"""

from collections.abc import Callable

import torch
from torch import Tensor

from unnoise.heat_laws import HeatLaw
from unnoise.oracles.components import Components
from unnoise.oracles.leaves import Leaf
from unnoise.predictions import Kinds, TangentScore
from unnoise.processes import HeatProcess
from unnoise.shapes import Clock, Float

Law = Callable[[Tensor, Tensor], HeatLaw]  # of (mean, variance)


class HeatLeaf(Leaf):
    """Heat kernels of the variances w_c around points m_c; `law` makes one, such as a process's own."""

    def __init__(self, law: Law, means: Float[Tensor, "components *shape"], variances: Float[Tensor, "components"]):
        self.law, self.means, self.variances = law, means.double(), variances.double()
        if not bool((self.variances > 0).all()):
            raise ValueError(f"a component has the variance {float(self.variances.min()):g}: pass positive ones")

    def _each(self, noise: Tensor | None, x: Tensor) -> tuple[HeatLaw, Tensor]:
        """The laws of all pairs of a row and a component, and the rows, component by component."""
        rows, count, shape = len(x), len(self.means), self.means.shape[1:]
        ones = [1] * len(shape)
        variance = self.variances.reshape(1, count, *ones)
        if noise is not None:
            variance = variance + noise.unsqueeze(1)
        variance = variance.expand(rows, count, *variance.shape[2:]).flatten(0, 1)
        means = self.means.unsqueeze(0).expand(rows, count, *shape).flatten(0, 1)
        return self.law(means, variance), x.double().repeat_interleave(count, 0)

    def log_evidence(self, process, x_t, t):
        law, x = self._each(process.variance(t, x_t), x_t)
        return law.log_prob(x).reshape(len(x_t), -1)

    def log_prob(self, x0):
        law, x = self._each(None, x0)
        return law.log_prob(x).reshape(len(x0), -1)

    def draw(self, component, noise):
        variance = self.variances[component].reshape(-1, *[1] * (self.means.ndim - 1))
        return self.law(self.means[component], variance).draw(noise)

    def predict(self, process: HeatProcess, x_t: Tensor, t: Clock, log_others: Float[Tensor, "batch components"]):
        law, x = self._each(process.variance(t, x_t), x_t)
        weight = (log_others + law.log_prob(x).reshape(len(x_t), -1)).softmax(-1)
        scores = law.score(x).reshape(len(x_t), -1, *x_t.shape[1:])
        score = (weight.reshape(*weight.shape, *[1] * (x_t.ndim - 1)) * scores).sum(1)
        return TangentScore(score.to(x_t.dtype), process, x_t, t)


def heat_mixture(
    process: HeatProcess, weights: Tensor, means: Tensor, variances: Tensor, predicts: Kinds = None
) -> Components:
    """A mixture of heat kernels: means [components, *shape], variances [components]."""
    means = process.base.space.check(torch.as_tensor(means, dtype=torch.float64), "means")  # type: ignore[assignment]
    leaf = HeatLeaf(process.base.law, means, torch.as_tensor(variances))  # type: ignore[union-attr,operator,arg-type]
    return Components(process, weights, leaf, predicts)
