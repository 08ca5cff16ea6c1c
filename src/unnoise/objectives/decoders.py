"""The bound's last term: E[-log p(x_0 | x_eps)] at the cut-off.

GaussianDecoder      N(x_0; x_eps/alpha_eps, (sigma_eps/alpha_eps)^2): needs no network, and its mean over x_eps is known;
                     with network=True centred at the model's x_0; with the noise's covariance where it is correlated
DiscretisedGaussian  for data on a grid of levels: the mass that the model's Gaussian puts on the bin of x_0
CategoricalDecoder   the model's law of x_0 given x_eps, coordinate by coordinate (`clean_law` of its prediction)
CountDecoder         the model's kernel from x_eps to the data, coordinate by coordinate
HeatDecoder          on closed spaces the heat kernel around x_eps, of which it is one in x_0 too: needs no network
ThrownDecoder        under jump-diffusion the law of x_eps/alpha less its noise: needs no network
ExactDecoder         the exact joint law of x_0 given x_eps, from an oracle
LeafDecoders         one decoder per leaf of a product
CodeDecoder          of a code that rounds: the law of data, not of x_0, given x_eps
"""

from abc import ABC, abstractmethod
from math import e, log, pi
from typing import Any, Protocol, runtime_checkable

import torch
from torch import Tensor

from unnoise.checks import fits, leaf_time, may_read
from unnoise.codes import Code
from unnoise.laws import Normal, finite_or_inf, sum_coordinates
from unnoise.predictions import (
    Clean,
    CountPrediction,
    FinitePrediction,
    Prediction,
    ProductPrediction,
)
from unnoise.processes import Gaussian, HeatProcess, JumpDiffusion, Process
from unnoise.shapes import AnyState, Float


class Decoder(ABC):
    """-log p(x_0 | x_eps), in nats per row."""

    needs_network = True
    needs_state = True  # False where the mean over x_eps is in closed form

    @abstractmethod
    def nll(
        self, process: Process, prediction: Prediction | None, x0: AnyState, x_eps: AnyState, eps: float
    ) -> Float[Tensor, "batch"]:
        """At the state x_eps; its mean over states where that is known (`needs_state` is False)."""

    def log_prob(
        self, process: Process, prediction: Prediction | None, x0: AnyState, x_eps: AnyState, eps: float
    ) -> Float[Tensor, "batch"]:
        """log p(x_0 | x_eps) at the state x_eps, float64, also of a decoder that knows its mean over states."""
        return -self.nll(process, prediction, x0, x_eps, eps).double()


def _by_leaf(prediction: Prediction | None) -> Prediction | None:
    return None if prediction is None else prediction.by_leaf()


def refuse_decoder(decoder: Decoder, process: Process) -> TypeError:
    return TypeError(f"decoder {type(decoder).__name__} does not fit {type(process).__name__}: leave it out for the default")


def _std(decoder: Decoder, process: Process, x0: Tensor, eps: float) -> Tensor:
    """sigma/alpha at the cut-off, to multiply x_0."""
    if not isinstance(process, Gaussian):
        raise refuse_decoder(decoder, process)
    numbers = process.schedule.numbers(eps)
    if numbers is not None:
        return torch.full((1,) * x0.ndim, numbers[1] / numbers[0], dtype=x0.dtype, device=x0.device)
    t = torch.full((x0.shape[0],), eps, dtype=torch.float64, device=x0.device)
    return process.coefficient(process.schedule.sigma(t) / process.schedule.alpha(t), x0)


class GaussianDecoder(Decoder):
    def __init__(self, network: bool = False):
        self.needs_network = self.needs_state = network

    def nll(self, process, prediction, x0, x_eps, eps):
        std = _std(self, process, x0, eps)
        if not self.needs_network:  # E over x_eps of the Gaussian's own surprise
            surprise = sum_coordinates((std.log() + 0.5 * log(2 * pi * e)).expand(-1, *x0.shape[1:])).expand(len(x0))
            return surprise if process.covariance is None else surprise + process.covariance.log_det_root
        return -Normal(prediction.to(Clean).value, std, process.covariance).log_prob(x0)

    def log_prob(self, process, prediction, x0, x_eps, eps):
        """Without a network N(x_0; x_eps/alpha, (sigma/alpha)^2) is q(x_eps | x_0), times alpha for each coordinate, as a
        density of x_0."""
        if self.needs_network:
            return super().log_prob(process, prediction, x0, x_eps, eps)
        if not isinstance(process, Gaussian):
            raise refuse_decoder(self, process)
        alpha = process.coefficient(process.schedule.alpha(process.times(eps, x0)), x0)
        return process.marginal(x0, eps).log_prob(x_eps) + sum_coordinates(alpha.log().expand_as(x0))


class HeatDecoder(Decoder):
    """h_v(x_0, x_eps), v the variance at the cut-off; its mean over x_eps is the entropy of h_v."""

    needs_network = needs_state = False

    def nll(self, process, prediction, x0, x_eps, eps):
        self._check(process)
        return process.space.log_volume - process.information(eps, x0)

    def log_prob(self, process, prediction, x0, x_eps, eps):
        self._check(process)
        return process.marginal(x0, eps).log_prob(x_eps)

    def _check(self, process: Process) -> None:
        if not isinstance(process, HeatProcess):
            raise refuse_decoder(self, process)


class ThrownDecoder(Decoder):
    """q(x_eps | x_0) as a density of x_0: alpha x_0 has it, so that each of d coordinates counts alpha once more."""

    needs_network = False

    def nll(self, process, prediction, x0, x_eps, eps):
        if not isinstance(process, JumpDiffusion):
            raise refuse_decoder(self, process)
        log_alpha = process.schedule.alpha(torch.tensor(eps, dtype=torch.float64)).log().to(x0.device)
        return -process.marginal(x0, eps).log_prob(x_eps) - process.space.dimension * log_alpha


class DiscretisedGaussian(Decoder):
    """Data on `levels` equally spaced values from low to high; the outermost bins reach to infinity."""

    def __init__(self, levels: int = 256, low: float = -1.0, high: float = 1.0):
        if levels < 2 or not low < high:
            raise ValueError(f"levels = {levels}, low = {low}, high = {high}: need two levels and low < high")
        self.levels, self.low, self.high = levels, low, high

    def nll(self, process, prediction, x0, x_eps, eps):
        std = _std(self, process, x0, eps).double()
        if process.covariance is not None:
            raise ValueError(
                f"the mass of a bin under correlated noise ({process.covariance}) has no closed form: "
                f"use decoders.GaussianDecoder(), or noise that is independent over coordinates"
            )
        step = (self.high - self.low) / (self.levels - 1)
        level = ((x0.double() - self.low) / step).round()
        if may_read(x0):
            off = (level * step + self.low - x0.double()).abs() > 1e-3 * step
            off = off | (level < 0) | (level >= self.levels)
            if bool(off.any()):
                i = off.nonzero()[0].tolist()
                raise ValueError(
                    f"x0{i} = {x0[tuple(i)].item():g} is none of {self.levels} levels from {self.low:g} to {self.high:g}: "
                    f"round the data to them, or pass its own levels, low and high"
                )
        mean = prediction.to(Clean).value.double()
        return -sum_coordinates(log_mass_of_levels(level, mean, std, self.levels, self.low, step))


def log_mass_of_levels(level: Tensor, mean: Tensor, std: Tensor, levels: int, low: float, step: float) -> Tensor:
    """log of the mass of N(mean, std^2) on the bin of each level, `step` wide around low + level step; the end bins are
    open.  In float64, of which all digits count."""
    upper = (low + (level + 0.5) * step - mean) / std
    lower = (low + (level - 0.5) * step - mean) / std
    upper = torch.where(level >= levels - 1, torch.inf, upper)
    lower = torch.where(level <= 0, -torch.inf, lower)
    # work in the tail where both bounds are negative: Phi(b) - Phi(a) = Phi(-a) - Phi(-b)
    flip = lower > 0
    low_side, high_side = torch.where(flip, -upper, lower), torch.where(flip, -lower, upper)
    log_high, log_low = torch.special.log_ndtr(high_side), torch.special.log_ndtr(low_side)
    return log_high + torch.log(-torch.expm1((log_low - log_high).clamp_max(-1e-300)))


class CategoricalDecoder(Decoder):
    def nll(self, process, prediction, x0, x_eps, eps):
        prediction = _by_leaf(prediction)
        if not isinstance(prediction, FinitePrediction):
            raise refuse_decoder(self, process)
        log_probs = prediction.clean_law().log_probs
        return -finite_or_inf(sum_coordinates(log_probs.gather(-1, x0.unsqueeze(-1)).squeeze(-1)))


class CountDecoder(Decoder):
    def nll(self, process, prediction, x0, x_eps, eps):
        prediction = _by_leaf(prediction)
        if not isinstance(prediction, CountPrediction):
            raise refuse_decoder(self, process)
        return -prediction.step(None).log_prob(x0)


@runtime_checkable
class HasDecoder(Protocol):
    def log_decode(self, x0: AnyState, x_eps: AnyState, eps: Any) -> Tensor: ...


class ExactDecoder(Decoder):
    """An oracle's joint law of x_0 given x_eps."""

    needs_network = False

    def __init__(self, oracle: HasDecoder):
        self.oracle = oracle

    def nll(self, process, prediction, x0, x_eps, eps):
        return -self.oracle.log_decode(x0, x_eps, eps)


class CodeDecoder(Decoder):
    """-log p(x | x_eps) by a code that rounds; what it is given as x_0 are data."""

    def __init__(self, code: Code):
        self.code, self.needs_network = code, code.needs_network

    def nll(self, process, prediction, x0, x_eps, eps):
        return -self.code.law(x_eps, eps, process, prediction).log_prob(x0)


class LeafDecoders(Decoder):
    def __init__(self, /, **leaves: Decoder):
        self.leaves = leaves
        self.needs_network = any(decoder.needs_network for decoder in leaves.values())
        self.needs_state = any(decoder.needs_state for decoder in leaves.values())

    def nll(self, process, prediction, x0, x_eps, eps):
        parts = [decoder.nll(*given) for decoder, *given in self._each(process, prediction, x0, x_eps, eps)]
        return torch.stack(parts).sum(0)

    def log_prob(self, process, prediction, x0, x_eps, eps):
        parts = [decoder.log_prob(*given) for decoder, *given in self._each(process, prediction, x0, x_eps, eps)]
        return torch.stack(parts).sum(0)

    def _each(self, process: Process, prediction: Prediction | None, x0: AnyState, x_eps: AnyState, eps: Any) -> list[tuple]:
        """The decoder of every leaf, and what it is asked."""
        if not process.leaves:
            raise refuse_decoder(self, process)
        fits(self.leaves, tuple(process.leaves), "the decoder LeafDecoders(...)")
        prediction, parts = _by_leaf(prediction), []
        for name, leaf in process.leaves.items():
            own = prediction.leaves[name] if isinstance(prediction, ProductPrediction) else None
            state = None if x_eps is None else x_eps[name]
            parts.append((self.leaves[name], leaf, own, x0[name], state, leaf_time(eps, name)))
        return parts


__all__ = [
    "CategoricalDecoder",
    "CodeDecoder",
    "CountDecoder",
    "Decoder",
    "DiscretisedGaussian",
    "ExactDecoder",
    "GaussianDecoder",
    "HeatDecoder",
    "LeafDecoders",
    "ThrownDecoder",
]
