"""Data under a superposition: mixtures of normal laws, each the same in every direction, as a `MixturePosterior` says."""

import torch
from torch import Tensor

from unnoise.oracles.components import Components
from unnoise.oracles.leaves import GaussianLeaf
from unnoise.predictions import Kinds, MixturePosterior
from unnoise.processes import Superposition
from unnoise.shapes import Clock, Float


class RoundLeaf(GaussianLeaf):
    """Normal components with the covariances v_c I."""

    def __init__(self, means: Float[Tensor, "components *shape"], variances: Float[Tensor, "components"]):
        d = means[0].numel()
        if not bool((variances > 0).all()):
            raise ValueError(f"a component has the variance {float(variances.min()):g}: pass positive ones")
        super().__init__(means, variances.double().reshape(-1, 1, 1) * torch.eye(d, dtype=torch.float64))
        self.variances = variances.double()

    def predict(self, process: Superposition, x_t: Tensor, t: Clock, log_others: Float[Tensor, "batch components"]):
        rows, logits = len(x_t), log_others + self.log_evidence(process, x_t, t)
        means, spread = self.means.expand(rows, -1, -1), self.variances.log().expand(rows, -1)
        return MixturePosterior.of(means, spread, logits.log_softmax(1), process, x_t, t)


def round_mixture(
    process: Superposition, weights: Tensor, means: Tensor, variances: Tensor, predicts: Kinds = None
) -> Components:
    """A mixture of normal laws, each the same in every direction: means [components, *shape], variances [components]."""
    return Components(process, weights, RoundLeaf(torch.as_tensor(means), torch.as_tensor(variances)), predicts)
