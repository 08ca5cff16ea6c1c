"""Data on the simplex whose noised laws are known.

Categories: a component is a vertex, and R(x_t, e_k) its evidence.  Inside: a component is where the diffusion from a point
m_c is after a time w_c, so that with the noise's own time tau it is that after w_c + tau; the lines of a mixture are the
mean of its components'.
"""

import torch
from torch import Tensor

from unnoise.oracles.components import Components
from unnoise.oracles.leaves import Leaf
from unnoise.predictions import Kinds, SimplexScore, VertexPosterior
from unnoise.processes import WrightFisher
from unnoise.shapes import Float
from unnoise.simplex_laws import WrightFisherLaw


class VertexLeaf(Leaf):
    """One component per vertex."""

    def __init__(self, size: int):
        self.size = size

    def log_evidence(self, process, x_t, t):
        return process.log_evidence(x_t, t) + process.prior(len(x_t), x_t.dtype, x_t.device).log_prob(x_t).unsqueeze(-1)

    def log_prob(self, x0):
        return torch.where(torch.nn.functional.one_hot(x0.argmax(-1), self.size) > 0, 0.0, -torch.inf).double()

    def draw(self, component, noise):
        return torch.nn.functional.one_hot(component, self.size).double()

    def predict(self, process, x_t, t, log_others):
        return VertexPosterior(log_others, process, x_t, t)


class WrightFisherLeaf(Leaf):
    """The diffusion from the points m_c for the times w_c."""

    def __init__(self, process: WrightFisher, points: Float[Tensor, "components size"], ages: Float[Tensor, "components"]):
        self.process, self.points, self.ages = process, points.double(), ages.double()
        if not bool((self.ages > 0).all()):
            raise ValueError(f"a component has the age {float(self.ages.min()):g}: pass positive ones")

    def _each(self, tau: Tensor | None, x: Tensor) -> tuple[WrightFisherLaw, Tensor]:
        rows, count = len(x), len(self.points)
        age = self.ages.expand(rows, -1)
        age = age if tau is None else age + tau.unsqueeze(-1)
        start = self.points.expand(rows, -1, -1).reshape(rows * count, -1)
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
        weight = (log_others + law.log_prob(x).reshape(len(x_t), -1)).softmax(-1).unsqueeze(-1)
        lines = (weight * law.lines(x).reshape(len(x_t), -1, x_t.shape[-1])).sum(1)
        return SimplexScore.of_lines(lines, process, x_t, t)


def vertex_table(process: WrightFisher, probs: Tensor, predicts: Kinds = None) -> Components:
    """A law of categories as vertices of the simplex: one probability each."""
    if not process.vertices:
        raise ValueError("the process has vertices=False, and its data lie inside: pass WrightFisher(size, vertices=True)")
    return Components(process, probs, VertexLeaf(process.space.size), predicts)


def simplex_mixture(
    process: WrightFisher, weights: Tensor, points: Tensor, ages: Tensor, predicts: Kinds = None
) -> Components:
    """A mixture of Wright-Fisher laws: points [components, size], ages [components]."""
    if process.vertices:
        raise ValueError("the process has vertices=True, and its data are categories: pass vertices=False")
    points = process.space.check(torch.as_tensor(points, dtype=torch.float64), "points")
    return Components(process, weights, WrightFisherLeaf(process, points, torch.as_tensor(ages)), predicts)
