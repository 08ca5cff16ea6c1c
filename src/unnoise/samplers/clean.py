"""What may be done to clean predictions before a method uses them: any function of D, such as these two.

    DDIM(clean=Clip(1.0))                        data in [-1, 1], as of images
    DPMSolverPP(2, clean=Threshold(0.995, 1.0))

Both keep states where the data are when guidance or few steps would drive them out.  Both change what is drawn: the law is
no longer that of the model, and no order is proven for it.
"""

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Clip:
    """D cut off at +-bound."""

    bound: float = 1.0

    def __post_init__(self) -> None:
        if not self.bound > 0:
            raise ValueError(f"bound = {self.bound:g} must be positive")

    def __call__(self, clean: Tensor) -> Tensor:
        return clean.clamp(-self.bound, self.bound)


@dataclass(frozen=True)
class Threshold:
    """Dynamic thresholding: each row is cut at s, a quantile of its own |D|, and divided by s / bound, where s > bound.

    `most` is the largest s.  A row with s <= bound is clipped at the bound.
    """

    quantile: float = 0.995
    bound: float = 1.0
    most: float = float("inf")

    def __post_init__(self) -> None:
        if not (0 < self.quantile <= 1 and 0 < self.bound <= self.most):
            raise ValueError(
                f"quantile = {self.quantile:g}, bound = {self.bound:g}, most = {self.most:g}: a quantile lies in (0, 1], "
                f"and 0 < bound <= most"
            )

    def __call__(self, clean: Tensor) -> Tensor:
        rows = clean.reshape(len(clean), -1)
        wide = rows.abs().to(torch.promote_types(rows.dtype, torch.float32))  # of which quantiles are known
        scale = _quantile(wide, self.quantile).clamp(self.bound, self.most).to(rows.dtype).unsqueeze(1)
        return (rows.clamp(-scale, scale) * (self.bound / scale)).reshape(clean.shape)


def _quantile(rows: Tensor, quantile: float) -> Tensor:
    """Of each row, between its order statistics by a line; of rows of any length."""
    place = quantile * (rows.shape[1] - 1)
    low = int(place)
    ordered = rows.sort(1).values
    return ordered[:, low].lerp(ordered[:, min(low + 1, rows.shape[1] - 1)], place - low)
