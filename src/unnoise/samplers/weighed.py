"""A denoiser that names the law it is meant for, so that what is drawn by it can be weighed.

The law is that of models p_i with exponents, times a factor that is known at the data,

    p*(x_0)  =  prod_i p_i(x_0)^{g_i} h(x_0) / Z,

and on the way pi_t(x) = prod_i p_{i,t}(x)^{g_i} h_t(x), with any h_t that becomes h at t = 0 (a *twist*).  As a denoiser it
predicts what a sampler without weights would use: plain guidance, whose law nobody wrote down.  `samplers.Particles` draws
by that and weighs.
"""

from abc import abstractmethod
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.predictions import Prediction
from unnoise.processes import Process
from unnoise.shapes import AnyState, Float, Tree
from unnoise.tree import batch_size, first_leaf


@dataclass(frozen=True)
class Said:
    """What a target says at some states."""

    parts: tuple[Prediction, ...]  # of the models, in the order of their exponents
    prediction: Prediction  # what proposes: guidance as it is
    log_twist: Float[Tensor, "batch"] | None = None  # log h_t, up to a constant; None: there is no such factor
    untwisted: Prediction | None = None  # what the models say together, without the factor; None: what proposes is that

    @property
    def own(self) -> Prediction:
        """The target's own prediction, whatever proposes."""
        return self.prediction if self.untwisted is None else self.untwisted


class WeighedDenoiser(AnyDenoiser):
    """`exponents`, `said` and, where there is a factor, `log_factor`."""

    exponents: tuple[float, ...]

    @abstractmethod
    def said(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Said:
        """Everything at once, with one call of each model."""

    def log_factor(self, x0: Tree, condition: dict[str, Any]) -> Float[Tensor, "batch"] | None:
        """log h of data."""
        return None

    def forward(self, x_t: AnyState, t: AnyState, whole: bool = False, /, **condition: Any) -> Any:
        """What proposes, a prediction; with `whole` all that is said."""
        said = self.said(x_t, t, **condition)
        return said if whole else said.prediction

    def begin(
        self, process: Process, rows: int, dtype: torch.dtype | None, device: torch.device, noise: NoiseSource
    ) -> tuple[Tree, Float[Tensor, "batch"]]:
        """First states and their log-weights: all models begin at the prior, so the product at its power S, the sum of
        exponents, which is drawn where that law is known and weighed where it is not."""
        whole, prior = sum(self.exponents), process.prior(rows, dtype, device)
        if abs(whole - 1) < 1e-12:
            x = prior.draw(noise)
            return x, torch.zeros(batch_size(x), dtype=torch.float64, device=first_leaf(x).device)
        powered = prior.powered(whole)
        x = (powered or prior).draw(noise)
        return x, whole * prior.log_prob(x).double() - (powered or prior).log_prob(x).double()


class Plain(WeighedDenoiser):
    """Any denoiser as the target that it is itself."""

    exponents = (1.0,)

    def __init__(self, model: AnyDenoiser):
        super().__init__()
        self.model, self.process = model, model.process

    def said(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Said:
        prediction = self.model(x_t, t, **condition)
        return Said((prediction,), prediction)


def target_of(denoiser: AnyDenoiser) -> WeighedDenoiser:
    return denoiser if isinstance(denoiser, WeighedDenoiser) else Plain(denoiser)
