"""Positive data whose noised laws are known: components are Cox-Ingersoll-Ross laws from points m_c after the
times w_c, so that with the noise's own time tau each is that after w_c + tau.
"""

import torch
from torch import Tensor

from unnoise.cir_laws import CIRLaw
from unnoise.oracles.components import Components
from unnoise.oracles.leaves import Leaf
from unnoise.predictions import Kinds, OrthantScore
from unnoise.processes import CoxIngersollRoss
from unnoise.shapes import Float


class OrthantLeaf(Leaf):
    """The diffusion from the points m_c for the times w_c."""

    def __init__(self, process: CoxIngersollRoss, points: Float[Tensor, "components *shape"], ages: Tensor):
        self.process, self.points, self.ages = process, points.double(), ages.double()
        if not bool((self.ages > 0).all()):
            raise ValueError(f"a component has the age {float(self.ages.min()):g}: pass positive ones")

    def _each(self, tau: Tensor | None, x: Tensor) -> tuple[CIRLaw, Tensor]:
        rows, count = len(x), len(self.points)
        age = self.ages.expand(rows, -1)
        age = age if tau is None else age + tau.unsqueeze(-1)
        start = self.points.expand(rows, *self.points.shape).flatten(0, 1)
        return self.process.law(start, age.reshape(-1)), x.double().repeat_interleave(count, 0)

    def log_evidence(self, process, x_t, t):
        law, x = self._each(process.tau(t, x_t), x_t)
        return law.log_prob(x).reshape(len(x_t), -1)

    def log_prob(self, x0):
        law, x = self._each(None, x0)
        return law.log_prob(x).reshape(len(x0), -1)

    def draw(self, component, noise):
        return self.process.law(self.points[component], self.ages[component]).draw(noise)

    def predict(self, process, x_t, t, log_others):
        law, x = self._each(process.tau(t, x_t), x_t)
        weight = (log_others + law.log_prob(x).reshape(len(x_t), -1)).softmax(-1)
        lines = law.lines(x).reshape(len(x_t), -1, *x_t.shape[1:])
        total = (weight.reshape(*weight.shape, *[1] * (x_t.ndim - 1)) * lines).sum(1)
        return OrthantScore.of_lines(total, process, x_t, t)


def orthant_mixture(
    process: CoxIngersollRoss, weights: Tensor, points: Tensor, ages: Tensor, predicts: Kinds = None
) -> Components:
    """A mixture of Cox-Ingersoll-Ross laws: points [components, *shape], ages [components]."""
    points = process.space.check(torch.as_tensor(points, dtype=torch.float64), "points")
    return Components(process, weights, OrthantLeaf(process, points, torch.as_tensor(ages)), predicts)
