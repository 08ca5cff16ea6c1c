"""What a network says of a `Superposition`: a mixture of normal laws of x_0, from which score and jumps both follow.

    p(x_0 | x_t) = sum_k s_k N(x_0; m_k, v_k I) N(x_t; alpha x_0, sigma^2)/N(x_t; alpha m_k, sigma^2 + alpha^2 v_k),

the share s_k of each law given x_t, and within it the evidence of x_t, which is added here.  So at little noise x_0 is near
x_t/alpha whatever the network says, and the bound of any network is finite.  Data that is such a mixture is told exactly.

A network returns 3 numbers for each coordinate and law, [batch, *shape, 3 laws]: of the mean, of log v (averaged over the
coordinates) and of the logit of s_k (summed).  Means are counted from fixed points that are spread like a standard normal
law, so that no two laws of an untrained network are alike.

It is a `Clean` prediction too, E[x_0 | x_t], and so any other of numbers, whose methods are those of the diffusion part.
"""

from typing import Any

import torch
from torch import Tensor

from unnoise.checks import as_times
from unnoise.generators import Local
from unnoise.laws import Law
from unnoise.predictions.base import Kind, OutputReading, Prediction, check_output, refuse
from unnoise.predictions.continuous import Clean, ContinuousPrediction
from unnoise.processes import Process, Superposition
from unnoise.processes.superposition import NormalShares
from unnoise.shapes import Clock, Float

WIDEST = 20.0  # |log v| is cut here


class MixturePosterior(Prediction):
    """`value` as a network returns it; `MixturePosterior.of(means, log_variances, logits, ...)` of the laws themselves."""

    process: Superposition
    x_t: Tensor
    t: Tensor

    def __init__(self, value: Tensor, process: Superposition, x_t: Tensor, t: Clock):
        rows, shape = len(x_t), tuple(x_t.shape[1:])
        if value.ndim != x_t.ndim + 1 or value.shape[:-1] != x_t.shape or not value.shape[-1] or value.shape[-1] % 3:
            raise ValueError(
                f"a value of shape {tuple(value.shape)}; expected {(rows, *shape, '3 laws')}: for each coordinate and law a "
                f"mean, a log-variance and a logit"
            )
        self.value, self.process, self.x_t = value, process, x_t
        self.t = as_times(t, x_t.shape[0], x_t.device)

    @classmethod
    def of(
        cls,
        means: Float[Tensor, "batch laws d"],
        log_variances: Float[Tensor, "batch laws"],
        logits: Float[Tensor, "batch laws"],
        process: Superposition,
        x_t: Tensor,
        t: Clock,
    ) -> "MixturePosterior":
        (rows, laws, d), own = means.shape, means - spread_points(means.shape[1], means.shape[2]).to(means)
        each = [own, log_variances.unsqueeze(2).expand(rows, laws, d), (logits / d).unsqueeze(2).expand(rows, laws, d)]
        return cls(torch.cat(each, 1).mT.reshape(*x_t.shape, 3 * laws), process, x_t, t)

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        return None if isinstance(process, Superposition) else super().misfit(process)

    @classmethod
    def of_output(cls, output: Any, process: Process, x_t: Tensor, t: Tensor, reading: OutputReading) -> "MixturePosterior":
        check_output(output, None)
        return cls(output, process, x_t, t)  # type: ignore[arg-type]

    @property
    def shares(self) -> NormalShares:
        """The laws of x_0 before x_t has its say, and their shares after."""
        laws = self.value.shape[-1] // 3
        value = self.value.double().reshape(len(self.x_t), -1, 3, laws)
        means = value[:, :, 0].mT + spread_points(laws, value.shape[1]).to(value)
        variances = value[:, :, 1].mean(1).clamp(-WIDEST, WIDEST).exp()
        return NormalShares(means, variances, value[:, :, 2].sum(1).log_softmax(1))

    def given(self) -> NormalShares:
        """The laws of alpha x_0 given x_t."""
        schedule = self.process.schedule
        return self.shares.given(self.x_t, schedule.alpha(self.t), schedule.sigma(self.t))

    def clean(self) -> Tensor:
        """E[x_0 | x_t], by the laws' means, each moved towards x_t/alpha by its gain."""
        shares, schedule = self.shares, self.process.schedule
        alpha, sigma = schedule.alpha(self.t).reshape(-1, 1), schedule.sigma(self.t).reshape(-1, 1)
        weight = alpha * shares.variances / (alpha.square() * shares.variances + sigma.square())
        gap = self.x_t.double().reshape(len(self.x_t), 1, -1) - alpha.unsqueeze(2) * shares.means
        mean = (shares.log_share.exp().unsqueeze(2) * (shares.means + weight.unsqueeze(2) * gap)).sum(1)
        return mean.reshape(self.x_t.shape).to(self.x_t.dtype)

    @classmethod
    def tells_clean(cls, process: Process) -> bool:
        return True

    def as_clean(self) -> Clean:
        return Clean(self.clean(), self.process, self.x_t, self.t)

    def flow_velocity(self) -> Tensor:
        return self.as_clean().flow_velocity()

    def flow_step(self, s: Tensor) -> Tensor:
        return self.as_clean().flow_step(s)

    def local(self) -> Local:
        return self.process.shares_local(self.x_t, self.shares, self.t)

    def step(self, s: Clock) -> Law:
        if self.process.weight == 1 and self.process.eta == 1:
            return self.as_clean().step(s)
        raise TypeError("a step with jumps has no kernel in closed form: use FromGenerator()")

    def to(self, kind: type[Kind], **options) -> Kind:
        if kind is type(self):
            return self  # type: ignore[return-value]
        if issubclass(kind, ContinuousPrediction):
            return self.as_clean().to(kind, **options)
        raise refuse(self, kind, "a mixture of laws of numbers says nothing of it")


def spread_points(laws: int, d: int) -> Float[Tensor, "laws d"]:
    """Quantiles of the normal law at points that fill the cube evenly, multiples of r^-1, ..., r^-d: r^(d+1) = r + 1."""
    root = 2.0
    for _ in range(40):
        root = (1 + root) ** (1 / (d + 1))
    step = root ** -torch.arange(1, d + 1, dtype=torch.float64)
    place = (0.5 + torch.arange(laws, dtype=torch.float64).unsqueeze(1) * step).remainder(1.0)
    return torch.special.ndtri(place.clamp(1e-3, 1 - 1e-3))
