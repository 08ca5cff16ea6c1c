"""Tables of linear methods for rows that are at steps of their own.

A step number is one for all rows, i, or a tensor with one for each.  The coefficients of a table stand on the device in one
piece, float64 as they were computed, and `table[steps]` has those of each row, shaped to multiply its state.  With the same
number in every row they are the same coefficients: nothing is computed anew.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from unnoise.covariance import Covariance
from unnoise.noise import NoiseSource
from unnoise.predictions import Clean, ContinuousPrediction, Prediction
from unnoise.samplers.coefficients import Coefficient, Coefficients, Reader, continuous
from unnoise.samplers.combinations import noised, plus, scaled
from unnoise.shapes import Float, Int


def stacked(steps: list[list[Coefficient]], device: torch.device) -> Float[Tensor, "steps coefficients *shape"]:
    """Step by step, as plain numbers or (with a schedule per coordinate) as tensors of one shape."""
    shape = next((c.shape for step in steps for c in step if isinstance(c, Tensor)), torch.Size())
    if not shape:
        return torch.tensor(steps, dtype=torch.float64).to(device)
    rows = [[torch.as_tensor(c, dtype=torch.float64, device=device).expand(shape) for c in step] for step in steps]
    return torch.stack([torch.stack(row) for row in rows])


class StepCoefficients:
    """Coefficients of all steps, asked for by rows; of states with so many axes beside the batch's."""

    def __init__(self, steps: list[list[Coefficient]], axes: int, device: torch.device):
        self.values, self.axes = stacked(steps, device), axes

    def of(self, steps: Int[Tensor, "rows"]) -> list[Tensor]:
        chosen = self.values[steps]
        shape = chosen.shape[2:] or (1,) * self.axes
        return list(chosen.reshape(*chosen.shape[:2], *shape).unbind(1))


class RowCoefficients:
    """A method's table: `table[steps]` are the coefficients of each row."""

    def __init__(self, table: list[Coefficients], axes: int, device: torch.device):
        self.width = max(len(row.weights) for row in table)
        self.draws = any(row.noise is not None for row in table)
        steps: list[list[Coefficient]] = []
        for row in table:
            weights = [*row.weights, *[0.0] * (self.width - len(row.weights))]
            steps.append([row.keep, *weights, *([0.0 if row.noise is None else row.noise] if self.draws else [])])
        self.steps = StepCoefficients(steps, axes, device)

    def __getitem__(self, steps: Int[Tensor, "rows"]) -> Coefficients:
        keep, *rest = self.steps.of(steps)
        return Coefficients(keep, tuple(rest[: self.width]), rest[self.width] if self.draws else None)


class RowReader:
    """Clean predictions of rows at steps of their own.  The kind that a network predicts is known beforehand, if any is:
    its coefficients are laid out; another kind is converted as it comes."""

    def __init__(self, reader: Reader, kind: type[ContinuousPrediction] | None, count: int):
        self.process, self.change = reader.process, reader.change
        self.kind: type[ContinuousPrediction] | None = None
        if kind is not None and kind is not Clean and issubclass(kind, ContinuousPrediction) and not kind.tied_to_grid:
            on_x, on_value = reader.coefficients(kind, count)
            pairs: list[list[Coefficient]] = [list(pair) for pair in zip(on_x, on_value, strict=True)]
            self.kind, self.steps = kind, StepCoefficients(pairs, len(self.process.space.shape), reader.device)

    def clean(self, prediction: Prediction, x: Tensor, steps: Int[Tensor, "rows"]) -> Tensor:
        if isinstance(prediction, Clean):
            clean = prediction.value
        elif type(prediction) is self.kind:
            on_x, on_value = self.steps.of(steps)
            clean = plus(scaled(on_value, self.kind.to_linear(self.process, prediction.value)), on_x, x)
        else:
            clean = continuous(prediction).to(Clean).value
        return clean if self.change is None else self.change(clean)


@dataclass(frozen=True)
class RowTables:
    """What a linear method reads for rows at steps of their own."""

    table: RowCoefficients
    reader: RowReader
    covariance: Covariance | None = None

    def noised(self, x: Tensor, row: Coefficients, noise: NoiseSource) -> Tensor:
        """A step's noise added to x, which is written over."""
        return x if row.noise is None else noised(x, row.noise, noise, self.covariance)
