"""Denoisers whose condition is settled: by a value for all rows, or by nothing being known."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from unnoise.conditions import unknown
from unnoise.denoiser import AnyDenoiser
from unnoise.predictions import Prediction
from unnoise.shapes import AnyState
from unnoise.tree import batch_size


class Given(AnyDenoiser):
    """`Given(denoiser, label=3)`: the denoiser told this of every row, so that several of them may be combined.

    Numbers, words and lists are one row's condition; what the run is told under other names is passed on.
    """

    def __init__(self, denoiser: AnyDenoiser, condition: Mapping[str, Any] | None = None, **more: Any):
        super().__init__()
        self.denoiser, self.process = denoiser, denoiser.process
        self.told = {**(condition or {}), **more}

    def forward(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Prediction:
        rows = batch_size(x_t)
        told = {name: _spread(value, rows, self.device) for name, value in self.told.items()}
        return self.denoiser(x_t, t, **{**condition, **told})


class Unconditional(AnyDenoiser):
    """A denoiser that is told nothing of what a run is told: -1 in place of categories, NaN in place of numbers.

    `instead` has other values, by name, for networks that were trained with others for "nothing"; what it holds as None is
    left out of the call.
    """

    def __init__(self, denoiser: AnyDenoiser, instead: Mapping[str, Any] | None = None):
        super().__init__()
        self.denoiser, self.process, self.instead = denoiser, denoiser.process, dict(instead or {})

    def forward(self, x_t: AnyState, t: AnyState, /, **condition: Any) -> Prediction:
        return self.denoiser(x_t, t, **without(condition, self.instead, batch_size(x_t), self.device))


def without(condition: Mapping[str, Any], instead: Mapping[str, Any], rows: int, device: torch.device) -> dict[str, Any]:
    """What a network is told when nothing is."""
    told = {**unknown(condition), **{name: _spread(value, rows, device) for name, value in instead.items()}}
    return {name: value for name, value in told.items() if value is not None}


def _spread(value: Any, rows: int, device: torch.device) -> Any:
    """One row's value for all rows; a dict of them likewise."""
    if isinstance(value, Mapping):
        return {name: _spread(part, rows, device) for name, part in value.items()}
    if isinstance(value, Tensor | int | float | list) and not isinstance(value, bool):
        one = torch.as_tensor(value, device=device)
        return one.expand(rows, *one.shape)
    return value
