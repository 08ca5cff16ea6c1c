"""What a network says of velocities that are drawn afresh: their law p(v | x) at a time, a mixture of normal laws.

With r_refresh(z) = N(v)/p(v | x) and r_bounce(z) = p(R v | x)/p(v | x), both cut off at the cap of the process, the reverse
process gives up v at refresh r_refresh for a draw of p(. | x), and bounces at bounce(R z) r_bounce.  Of a forward jump that
led here, log lambda(before -> here)/u(here -> before) is

    refresh    log N(v) - log r_refresh(z) - log p(v_before | x)
    bounce     - log r_bounce(z)
"""

from math import log, pi
from typing import cast

import torch
from torch import Tensor

from unnoise.generators import Local
from unnoise.laws import LOG_ZERO, Law, draw_categories, log_of
from unnoise.noise import NoiseSource
from unnoise.predictions.base import OutputReading, check_output
from unnoise.predictions.flip_ratios import FlightPrediction
from unnoise.processes import Process
from unnoise.processes.finite_speed import rows_of
from unnoise.processes.refreshed import BOUNCE, REFRESH, RefreshedVelocity, Refreshments, log_normal
from unnoise.shapes import AnyState, Float, Int
from unnoise.spaces.phase import turned


class VelocityMixture(Law):
    """sum_k w_k prod_i N(v_i; m_ki, s_ki^2) from numbers [batch, components, 1 + 2 d]: log w + const, m, log s."""

    def __init__(self, value: Float[Tensor, "batch components numbers"], shape: tuple[int, ...]):
        value, d = value.double(), (value.shape[2] - 1) // 2
        self.log_weights, self.shape = value[:, :, 0].log_softmax(1), shape
        self.means, self.log_stds = value[:, :, 1 : 1 + d], value[:, :, 1 + d :].clamp(-10, 10)

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        """Of a velocity for each row, or of several one after another."""
        times = len(x) // len(self.means)
        w, m, s = (part.repeat_interleave(times, 0) for part in (self.log_weights, self.means, self.log_stds))
        gap = (x.double().reshape(len(x), 1, -1) - m) / s.exp()
        return (w + (-0.5 * (gap.square() + log(2 * pi)) - s).sum(2)).logsumexp(1)

    def draw(self, noise: NoiseSource) -> Tensor:
        which = draw_categories(self.log_weights, noise.at("which"))
        row = torch.arange(len(which), device=which.device)
        v = self.means[row, which] + self.log_stds[row, which].exp() * noise.at("normal").normal((self.means.shape[2],))
        return v.reshape(len(v), *self.shape)

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError("the divergence of two mixtures has no closed form")


class VelocityDensity(FlightPrediction):
    """`value` is the numbers of a `VelocityMixture`, any number of components; `law` another law of v given x."""

    process: RefreshedVelocity

    def __init__(self, value: Tensor, process: Process, x_t: AnyState, t: AnyState, law: Law | None = None):
        self.value, self.process, self.x_t, self.t = value, process, x_t, t  # type: ignore[assignment]
        self.law = VelocityMixture(value, self.process.space.shape) if law is None else law

    @classmethod
    def misfit(cls, process: Process) -> str | None:
        if isinstance(process, RefreshedVelocity):
            return None
        return f"is for velocities that are drawn afresh, and those of {type(process).__name__} are not"

    @classmethod
    def of_output(cls, output, process: Process, x_t: AnyState, t: AnyState, reading: OutputReading) -> "VelocityDensity":
        numbers = 1 + 2 * process.space.dimension
        components = output.shape[1] if isinstance(output, Tensor) and output.ndim == 3 else 8
        check_output(output, [(len(x_t), components, numbers)])
        return cls(output, process, x_t, t)

    def log_ratio_of(self, mark: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
        """log min(r, cap) of that kind of jump."""
        here = self.law.log_prob(self.x_t[:, 1])
        bounced = self.law.log_prob(self.process.bounced(self.x_t)[:, 1]) if self.process.bounces else here
        ratio = torch.where(mark == REFRESH, log_normal(self.x_t[:, 1]), bounced) - here
        return ratio.clamp_max(log(self.process.cap))

    def exit_rate(self) -> Float[Tensor, "batch"]:
        back, total = turned(self.x_t), torch.zeros(len(self.x_t), dtype=torch.float64, device=self.x_t.device)
        for mark in (REFRESH, BOUNCE) if self.process.bounces else (REFRESH,):
            marks = torch.full((len(back),), mark, device=back.device)
            total = total + self.process.rate_of(back, marks) * self.log_ratio_of(marks).exp()
        return total

    def log_ratio(self, before: Tensor, mark: Int[Tensor, "batch"]) -> Float[Tensor, "batch"]:
        fresh = log_normal(self.x_t[:, 1]) - self.law.log_prob(before[:, 1])
        return torch.where(mark == REFRESH, fresh, 0.0) - self.log_ratio_of(mark)

    def thinned(self, mark: Int[Tensor, "batch"], noise: NoiseSource) -> Tensor:
        x_t, log_share = self.x_t, self.log_ratio_of(mark) - log(self.process.cap)
        fresh = torch.stack([x_t[:, 0], cast(Tensor, self.law.draw(noise.at("fresh"))).to(x_t.dtype)], 1)
        there = torch.where(rows_of(mark == REFRESH, x_t), fresh, self.process.bounced(x_t))
        return torch.where(rows_of(noise.at("thin").uniform().log() < log_share, x_t), there, x_t)

    def local(self) -> Local:
        forward = self.process.local(self.x_t, self.t)
        return Local(drift=-forward.drift, jumps=ReverseRefreshments(self))  # type: ignore[operator]


class ReverseRefreshments(Refreshments):
    """The jumps of the reverse process at the states of a prediction: of these rows, or of each several times."""

    def __init__(self, prediction: VelocityDensity):
        super().__init__(prediction.process)
        self.prediction = prediction
        back = turned(prediction.x_t)
        marks = (torch.full((len(back),), mark) for mark in (REFRESH, BOUNCE))
        rates = [log_of(prediction.process.rate_of(back, m)) + prediction.log_ratio_of(m) for m in marks]
        self.log_refresh, self.log_bounce = rates

    def log_rate(self, x: Tensor, y: Tensor) -> Tensor:
        times = len(x) // len(self.log_refresh)
        refresh, bounce = (rate.repeat_interleave(times) for rate in (self.log_refresh, self.log_bounce))
        stays = ((x[:, 0] - y[:, 0]).abs() < 1e-12).reshape(len(x), -1).all(1)
        fresh = refresh + self.prediction.law.log_prob(y[:, 1])
        return torch.where(stays, torch.where(self._bounces(x, y), bounce, fresh), LOG_ZERO)
