"""How likely data is under a model: one small class per method, and what its answer means.

A diffusion model has several densities.  The probability flow has one, the reverse process another, a chain of finitely many
steps a third; they are the same only where the network is exact.  So a likelihood says which one it is, whether it is the
density itself or a bound below it, and how large its error is.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from math import log
from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.noise import NoiseSource
from unnoise.processes import Process
from unnoise.shapes import Float, Tree


@dataclass
class LikelihoodInfo:
    """What a likelihood is, and what it took."""

    density: str  # of what, in words
    bound: bool = False  # whether it lies below the density in expectation, rather than estimates it
    error: Tensor | None = None  # one standard error or error estimate per row, in nats
    calls: int = 0  # of the network
    rows: int = 0  # rows given to it, over all calls
    dimension: int = 1  # coordinates per row
    offset: float = 0.0  # nats per coordinate that units add: log of the width of a bin, for data in bins
    estimated: bool = False  # whether log p carries noise of mean 0: e to its power is then above p on average

    def bits_per_dim(self, log_prob: Float[Tensor, "batch"]) -> Float[Tensor, "batch"]:
        """-(log_prob/dimension + offset)/log 2: of the data in the units that `offset` speaks of."""
        return -(log_prob / self.dimension + self.offset) / log(2)


def joined(parts: Sequence[tuple[Tensor, LikelihoodInfo]]) -> tuple[Tensor, LikelihoodInfo]:
    """Of the rows of all parts, one after another."""
    log_prob, info = parts[0]
    if len(parts) == 1:
        return log_prob, info
    infos = [own for _, own in parts]
    told: dict[str, Any] = {"calls": sum(own.calls for own in infos), "rows": sum(own.rows for own in infos)}
    for field in fields(info):
        values = [getattr(own, field.name) for own in infos]
        if all(isinstance(value, Tensor) for value in values):
            told[field.name] = torch.cat(values)
    return torch.cat([part for part, _ in parts]), replace(info, **told)


class Likelihood(ABC):
    """One method."""

    takes_states = True  # whether its data are points of the process's space, which are checked beforehand

    def refuse(self, process: Process) -> str | None:
        """Why this method does not hold for a process; None where it does."""
        return None

    @abstractmethod
    def log_prob(
        self, denoiser: AnyDenoiser, x0: Tree, noise: NoiseSource, condition: dict[str, Any]
    ) -> tuple[Float[Tensor, "batch"], LikelihoodInfo]:
        """log p(x0) in nats, float64, one number per row; row i depends on row i (and its noise) alone.

        The condition is one that `conditions.checked` has passed for these rows.
        """
