"""Predictions on the simplex under the Wright-Fisher diffusion: how log q_t/pi slopes at x_t, pi the stationary law.

    VertexPosterior   data at vertices: logits of the vertices before x_t is looked at; the evidence log R(x_t, e_k) is
    added,
                          w_k prop. to exp(value_k) R(x_t, e_k),       lines  l = sum_k w_k E[L | x_t, e_k]
    SimplexScore      data inside: the slope in units of its own size, in the coordinates sqrt(x):
                          l = u sqrt(x) P value,      P the projection across sqrt(x)

With the true probabilities of the categories as `value` the first is exact.  Both are reverse processes with the drift
1/2 g^2 (alpha - theta x) + g^2 (l - x |l|) (see `processes.wright_fisher`).  The bound's rate is

    1/2 g^2 sum_i (gap of l - x |l|)_i^2/x_i  =  1/2 g^2 u^2 |P (target - value)|^2,

finite for bounded values everywhere, also at the edge.
"""

from typing import Any

from torch import Tensor

from unnoise.checks import as_times
from unnoise.gamma_laws import LEAST
from unnoise.generators import Local
from unnoise.laws import Categorical, Law
from unnoise.predictions.base import Kind, OutputReading, Prediction, check_output, refuse
from unnoise.processes import Process, WrightFisher
from unnoise.shapes import Clock, Float
from unnoise.simplex_laws import vertex_lines


class SimplexPrediction(Prediction):
    """A number for each part of the composition."""

    process: WrightFisher
    x_t: Tensor
    t: Tensor
    of_vertices = False

    def __init__(self, value: Float[Tensor, "batch size"], process: WrightFisher, x_t: Tensor, t: Clock):
        self.value, self.process, self.x_t = value, process, x_t
        self.t = as_times(t, x_t.shape[0], x_t.device)

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        if not isinstance(process, WrightFisher):
            return super().misfit(process)
        if process.vertices != cls.of_vertices:
            return f"is for data {'at vertices' if cls.of_vertices else 'inside'} of the simplex, vertices={cls.of_vertices}"
        return None

    @classmethod
    def shapes(cls, process: Process, x_t: Tensor) -> list[tuple[int, ...]]:
        return [tuple(x_t.shape)]

    @classmethod
    def of_output(cls, output: Any, process: Process, x_t: Tensor, t: Tensor, reading: OutputReading) -> "SimplexPrediction":
        check_output(output, cls.shapes(process, x_t))
        return cls(output, process, x_t, t)  # type: ignore[arg-type]

    def lines(self) -> Float[Tensor, "batch size"]:
        """l_i = x_i d_i log(q_t/pi), up to a multiple of x."""
        raise NotImplementedError

    def flow_velocity(self) -> Tensor:
        """-1/2 g^2 a grad log(q_t/pi), in forward time: drift and noise alone hold pi.  Its sum is 0 off the simplex too."""
        lines = self.lines()
        pull = lines - self.x_t * (lines.sum(-1, keepdim=True) / self.x_t.sum(-1, keepdim=True))
        return (-0.5 * self.process.rate(self.t, self.x_t) * pull).to(self.x_t.dtype)

    def local(self) -> Local:
        return self.process.reverse_local(self.x_t, self.lines(), self.t)

    def step(self, s: Clock) -> Law:
        raise TypeError(
            f"{type(self).__name__} has no kernel but that of a small step: sample by FromGenerator(), and for a "
            f"likelihood take un.bound"
        )

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        raise refuse(self, kind, "a slope on the simplex says this and no more")


class VertexPosterior(SimplexPrediction):
    """Logits of the vertices, to which the library adds the evidence of x_t."""

    of_vertices = True

    def clean_law(self) -> Categorical:
        """The law of the category given x_t."""
        logits = self.value.double() + self.process.log_evidence(self.x_t, self.t)
        return Categorical.normalised(logits.unsqueeze(1))

    def clean(self) -> Tensor:
        return self.clean_law().probs[:, 0].to(self.x_t.dtype)

    @classmethod
    def tells_clean(cls, process: Process) -> bool:
        return True

    def lines(self) -> Tensor:
        x, alpha = self.x_t.double(), self.process.alpha.to(self.x_t.device)
        tau = self.process.tau(self.t, self.x_t).unsqueeze(-1).expand_as(x)
        each = vertex_lines(x.reshape(-1), tau.reshape(-1), alpha.expand_as(x).reshape(-1), self.process.theta)
        return self.clean_law().probs[:, 0] * each.reshape(x.shape)


class SimplexScore(SimplexPrediction):
    """The slope of log q_t/pi in units of its own size, in the coordinates sqrt(x)."""

    @classmethod
    def of_lines(cls, lines: Tensor, process: WrightFisher, x_t: Tensor, t: Clock) -> "SimplexScore":
        root = x_t.double().clamp_min(LEAST).sqrt()
        return cls((lines / (root * process.score_size(t, x_t))).to(x_t.dtype), process, x_t, t)

    @classmethod
    def of_energy(cls, leaf: Any) -> "SimplexScore":
        """log q_t slopes by l/x and what pi does, (alpha - 1)/x."""
        lines = leaf.x.double() * leaf.slope - (leaf.process.alpha - 1)
        return cls.of_lines(lines, leaf.process, leaf.x, leaf.t)

    @classmethod
    def target(cls, process: WrightFisher, x0: Tensor, x_t: Tensor, t: Tensor) -> Tensor:
        """What a perfect regression on x_0 would be trained towards."""
        return cls.of_lines(process.marginal(x0, t).lines(x_t), process, x_t, t).value

    def lines(self) -> Tensor:
        root = self.x_t.double().clamp_min(LEAST).sqrt()
        value = self.value.double()
        across = value - root * (root * value).sum(-1, keepdim=True)
        return self.process.score_size(self.t, self.x_t) * root * across

    def clean(self) -> Tensor:
        """Where the slope points: x + tau a grad log r, brought back into the simplex."""
        lines = self.lines()
        pull = lines - self.x_t * lines.sum(-1, keepdim=True)
        tau = self.process.tau(self.t, self.x_t).unsqueeze(-1)
        return self.process.space.project((self.x_t + tau * pull).clamp_min(LEAST)).to(self.x_t.dtype)


__all__ = ["SimplexPrediction", "SimplexScore", "VertexPosterior"]
