"""Whose NaN it is: the network's, or that of a coefficient between its values and the bound."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.predictions import Prediction


def cause_of_nan(denoiser: AnyDenoiser, again: Callable[[], Any]) -> str:
    """What made a number NaN, in words: `again` computes it once more, and every prediction is looked at on the way."""
    finite: list[bool] = []

    def look(module: Any, inputs: Any, prediction: Any) -> None:
        finite.append(not isinstance(prediction, Prediction) or _finite(prediction))

    handle = denoiser.register_forward_hook(look)
    try:
        with torch.no_grad():
            again()
    finally:
        handle.remove()
    if not all(finite):
        return "the network returned a non-finite value"
    return (
        "the network's values are finite, and what is made of them is not: look at the schedule's coefficients and slopes, "
        "at the kind of prediction (one that does not determine x_0 at some time) and at the decoder; unnoise verify "
        "--schedule and --prediction find which"
    )


def _finite(prediction: Any) -> bool:
    """Whether all that the network said is finite."""
    leaves = getattr(prediction, "leaves", None)
    if leaves:
        return all(_finite(leaf) for leaf in leaves.values())
    value = getattr(prediction, "value", None)
    return not isinstance(value, Tensor) or bool(value.isfinite().all())
