"""What a network says of a jump-diffusion: a mixture of clouds of x_0, from which score and jump ratios both follow.

The reverse process is the mean over x_0 given x_t of the reverse processes conditioned on x_0: so is its score, and so is
the log-ratio of densities that its jumps need,

    grad log q_t(x)   = sum_k c_k grad log q_k(x),          q_t(y)/q_t(x) = sum_k c_k q_k(y)/q_k(x),

q_k the law of x_t for data in the cloud N(m_k, v_k), c_k the cloud's share given x_t.  A network's output is

    [batch, clouds, d + 2]:   d numbers of m_k,   log v_k,   log w_k up to a constant  (`CloudMixture`; any number of clouds)

in one call, wherever the jumps lead; w_k is the cloud's weight beside what x_t says of it, and the library adds that,
c_k ~ w_k q_k(x_t).  A network that ignores x_t and t is then a mixture of normal laws as a model of the data, and the exact
one where the data is such a mixture.  The total rate of the jumps is known, their destinations are drawn exactly, and the
kernel over a step of any length is a mixture of normal laws too.  The bound stays finite for any output, since every cloud
has a density everywhere.
"""

from typing import Any

import torch
from torch import Tensor

from unnoise.checks import as_times
from unnoise.generators import Local
from unnoise.laws import Law
from unnoise.predictions.base import Kind, OutputReading, Prediction, check_output, refuse
from unnoise.processes import JumpDiffusion, Process
from unnoise.processes.jump_diffusion import Clouds
from unnoise.shapes import Clock, Float

WIDEST = 40.0  # |log v| is cut here: e^40 is wider than any data


class CloudMixture(Prediction):
    """Means, log-variances and log-weights of clouds of x_0."""

    process: JumpDiffusion
    x_t: Tensor
    t: Tensor

    def __init__(self, value: Float[Tensor, "batch clouds numbers"], process: JumpDiffusion, x_t: Tensor, t: Clock):
        self.process, self.x_t, self.value = process, x_t, value
        self.t = as_times(t, x_t.shape[0], x_t.device)

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        return None if isinstance(process, JumpDiffusion) else super().misfit(process)

    @classmethod
    def of_output(cls, output: Any, process: Process, x_t: Tensor, t: Tensor, reading: OutputReading) -> "CloudMixture":
        check_output(output, None)
        rows, numbers = len(x_t), process.space.dimension + 2
        if output.ndim != 3 or len(output) != rows or output.shape[2] != numbers or not output.shape[1]:
            raise ValueError(
                f"the network returned shape {tuple(output.shape)}; expected ({rows}, clouds, {numbers}): for each cloud "
                f"the {numbers - 2} numbers of its mean, the log of its variance, and the log of its weight"
            )
        return cls(output, process, x_t, t)  # type: ignore[arg-type]

    @property
    def clouds(self) -> Clouds:
        value = self.value.double()
        parts = value[..., :-2], value[..., -2].clamp(-WIDEST, WIDEST).exp()
        weighted = Clouds(*parts, value[..., -1])
        return Clouds(*parts, (value[..., -1] + self.process.log_evidence(self.x_t, weighted, self.t)).log_softmax(1))

    def score(self) -> Tensor:
        """grad log q_t(x_t)."""
        return self.process.score(self.x_t, self.clouds, self.t)

    def log_ratio(self, y: Tensor) -> Float[Tensor, "batch"]:
        """log q_t(y)/q_t(x_t), for y as many rows as x_t, or each several times over."""
        x = self.x_t if len(y) == len(self.x_t) else self.x_t.repeat_interleave(len(y) // len(self.x_t), 0)
        return self.process.way_back(self.clouds, self.t).log_ratio(x, y)

    def clean(self) -> Tensor:
        """E[x_0 | x_t], the mean of a step down to the data."""
        at_zero = self.process.backwards(self.x_t, self.clouds, torch.zeros_like(self.t), self.t)
        mean = (at_zero.log_weight.exp().unsqueeze(2) * at_zero.mean).sum(1)
        return mean.reshape(self.x_t.shape).to(self.x_t.dtype)

    @classmethod
    def tells_clean(cls, process: Process) -> bool:
        return True

    def local(self) -> Local:
        return self.process.reverse_local(self.x_t, self.clouds, self.t)

    def step(self, s: Clock) -> Law:
        return self.process.backwards(self.x_t, self.clouds, s, self.t)

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        raise refuse(self, kind, "a mixture of clouds is no number for each coordinate")
