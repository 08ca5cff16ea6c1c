"""Data under jump-diffusion: mixtures of normal laws that are the same in every direction.

A component N(m_c, v_c I) has after t the law sum_n Poisson(n; L_t) N(a m_c, a^2 (v_c + tau + n s^2)): a cloud of
`processes.jump_diffusion`, whose share given x_t is the posterior weight of the component.
"""

import torch
from torch import Tensor

from unnoise.jump_laws import log_normal, squared
from unnoise.oracles.components import Components
from unnoise.oracles.leaves import Leaf
from unnoise.predictions import CloudMixture, Kinds
from unnoise.processes import JumpDiffusion
from unnoise.processes.jump_diffusion import Clouds
from unnoise.shapes import Clock, Float


class CloudLeaf(Leaf):
    """Normal components of the variances v_c around the means m_c."""

    def __init__(self, means: Float[Tensor, "components *shape"], variances: Float[Tensor, "components"]):
        self.shape = tuple(means.shape[1:])
        self.means, self.variances = means.double().reshape(len(means), -1), variances.double()
        if not bool((self.variances > 0).all()):
            raise ValueError(f"a component has the variance {float(self.variances.min()):g}: pass positive ones")

    def clouds(self, log_share: Float[Tensor, "batch components"]) -> Clouds:
        rows = len(log_share)
        return Clouds(self.means.expand(rows, -1, -1), self.variances.expand(rows, -1), log_share)

    def log_evidence(self, process, x_t, t):
        even = torch.zeros(len(x_t), len(self.means), dtype=torch.float64)
        return process.log_evidence(x_t, self.clouds(even), t)

    def log_prob(self, x0):
        square = squared(x0.double().reshape(len(x0), 1, -1) - self.means)
        return log_normal(square, self.variances, self.means.shape[1])

    def draw(self, component, noise):
        z = noise.normal((self.means.shape[1],))
        return (self.means[component] + self.variances[component].sqrt().unsqueeze(1) * z).reshape(-1, *self.shape)

    def predict(self, process: JumpDiffusion, x_t: Tensor, t: Clock, log_others: Float[Tensor, "batch components"]):
        spread = self.variances.log().reshape(1, -1, 1).expand(len(x_t), -1, -1)
        value = torch.cat([self.means.expand(len(x_t), -1, -1), spread, log_others.unsqueeze(2)], 2)
        return CloudMixture(value, process, x_t, t)


def cloud_mixture(
    process: JumpDiffusion, weights: Tensor, means: Tensor, variances: Tensor, predicts: Kinds = None
) -> Components:
    """A mixture of normal laws under jump-diffusion: means [components, *shape], variances [components]."""
    return Components(process, weights, CloudLeaf(torch.as_tensor(means), torch.as_tensor(variances)), predicts)
