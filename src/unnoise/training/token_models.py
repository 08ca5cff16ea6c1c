"""Models of categories by way of vectors under noise, a fixed or learned one for each (`codes.codebook`).

Under Gaussian noise the positions of a sequence may be noised one after another, `order=left`: at each time the log-SNR of
the first position is `spread` above the middle one's, and that of the last as much below it.  So the way back settles the
left before the right, as text is read.

The learned schedule (`--schedule learned`) warps time for a code as for numbers; it begins where the code's bound does.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from unnoise.codes import Codebook, bits, corners, embeddings, one_hot
from unnoise.objectives import BandTimes
from unnoise.processes import CoxIngersollRoss, FiniteProcess, Gaussian, Process
from unnoise.schedules import Cosine, Staggered
from unnoise.spaces import Finite
from unnoise.training.models import Modelled, register_model

ORDERS = ("none", "left")


def categories(process: Process, model: str) -> Finite:
    """The space of data that are categories of one size; anything else is refused."""
    if process.leaves or not isinstance(process.base, FiniteProcess) or process.base.space.sizes is not None:
        kind = "columns of several kinds" if process.leaves else str(process.space)
        raise ValueError(f"--model {model} is for sequences of categories, and this data is {kind}: leave it out")
    return process.base.space


def coded(
    make: Callable[[], Codebook], hints: dict[str, Any], process: Process, placed: bool = False, **options: Any
) -> Modelled:
    """The model of a codebook under a process; `placed`: whether positions are known by their place."""
    code = make()
    length = 0 if hints.get("windows") and not placed else code.space.dimension
    needed = {"size": code.space.size, "extra": 0, "numbers": code.shape[-1], "length": length, "time": True}
    early = code.earliest(process)
    options = {**({} if early is None else {"cutoff": early}), **options}
    return Modelled(process=process, code=make, network=("SequenceTransformer", needed), options=options)


def gaussian(make: Callable[[], Codebook], hints: dict[str, Any], order: str, spread: float) -> Modelled:
    """The model of a codebook under Gaussian noise, in an order of the positions."""
    if order not in ORDERS:
        raise ValueError(f"order = {order!r}: choose from {', '.join(ORDERS)}")
    if not 0 < spread < 20:
        raise ValueError(f"spread = {spread}: log-SNRs differ by more than 0, and by less than 20")
    code, plain = make(), Cosine()
    if order == "none":
        return coded(make, hints, Gaussian(code.shape, plain))
    shifts = torch.linspace(spread, -spread, code.space.dimension, dtype=torch.float64).reshape(*code.space.shape, 1)
    schedule = Staggered(plain, shifts.expand(code.shape))
    levels, weights = code.band(Gaussian(code.shape, plain))  # type: ignore[misc]
    wide, spread_weights = widened(levels, weights, spread)
    cutoff = float(plain.time_of_log_snr(wide[0]))
    times = BandTimes(plain, wide, spread_weights)
    return coded(make, hints, Gaussian(code.shape, schedule), placed=True, cutoff=cutoff, times=times)


def widened(levels: torch.Tensor, weights: torch.Tensor, by: float) -> tuple[torch.Tensor, torch.Tensor]:
    """The band of positions whose log-SNRs are evenly shifted by up to `by` on either side: a running mean."""
    wide = torch.linspace(float(levels[0]) + by, float(levels[-1]) - by, 2 * len(levels), dtype=torch.float64)
    middles = (wide[1:] + wide[:-1]) / 2
    seen = middles.unsqueeze(1) + torch.linspace(-by, by, 33, dtype=torch.float64)
    place = torch.searchsorted(-levels, -seen) - 1
    inside = (place >= 0) & (place < len(weights))
    return wide, torch.where(inside, weights[place.clamp(0, len(weights) - 1)], 0.0).mean(1)


@register_model("analog-bits")
def _(process: Process, hints: dict[str, Any], order: str = "none", spread: float = 3.0) -> Modelled:
    """The digits of categories in base 2, as numbers."""
    space = categories(process, "analog-bits")
    return gaussian(lambda: bits(space.size, space.shape), hints, order, spread)


@register_model("simplex")
def _(process: Process, hints: dict[str, Any], scale: float = 1.0, order: str = "none", spread: float = 3.0) -> Modelled:
    """One number for each category, high in its own place: diffusion of logits on the simplex."""
    space = categories(process, "simplex")
    return gaussian(lambda: one_hot(space.size, space.shape, scale), hints, order, spread)


@register_model("embedding")
def _(process: Process, hints: dict[str, Any], width: int = 16, order: str = "none", spread: float = 3.0) -> Modelled:
    """Vectors of categories that are learned with the network."""
    space = categories(process, "embedding")
    return gaussian(lambda: embeddings(space.size, space.shape, width), hints, order, spread)


@register_model("cir")
def _(process: Process, hints: dict[str, Any], height: float = 4.0) -> Modelled:
    """One positive number for each category, high in its own place, under Cox-Ingersoll-Ross noise."""
    space = categories(process, "cir")

    def make() -> Codebook:
        return corners(space.size, space.shape, height)

    made = coded(make, hints, CoxIngersollRoss(make().shape, alpha=1.0))
    return replace(made, training={"capture": False})  # its series look at their values on the host
