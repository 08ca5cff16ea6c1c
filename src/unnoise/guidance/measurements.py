"""What is measured: y = A x_0 + noise eps, eps standard normal, and what it says of numbers around a mean.

With x_0 ~ N(m, r^2 I) the measurement is normal, and Bayes' rule moves the mean,

    log N(y; A m, S),    S = noise^2 I + r^2 A A^T,          m' = m + r^2 A^T S^-1 (y - A m),

by the eigenvectors of A A^T, which are found once.
"""

from copy import copy
from math import isfinite, log, pi
from typing import Any, cast

import torch
from torch import Tensor

from unnoise.checks import instance_of
from unnoise.guidance.ahead import not_numbers
from unnoise.guidance.operators import LinearOperator, Shape
from unnoise.guidance.twists import leaf_at
from unnoise.processes import Process
from unnoise.shapes import Float


class Measurement:
    """Of numbers of one shape.  `y` is a tensor, one for all rows, or the name of a condition that has one for each."""

    def __init__(self, operator: Any, y: Any, noise: float, shape: Shape):
        operator = instance_of(operator, LinearOperator, "operator", "un.guidance.Inpainting(mask)")
        if not (isfinite(noise) and noise > 0):
            raise ValueError(
                f"noise = {noise}: a measurement has a standard deviation above 0; entries that are known without error are "
                f"held by un.samplers.Particles(known=...)"
            )
        self.operator, self.noise, self.shape = operator, float(noise), shape
        self.expected = operator.shape(shape)
        self.name = y if isinstance(y, str) else None
        self.y: Tensor | None = None if isinstance(y, str) else self._one(torch.as_tensor(y))
        self._spectra: dict[torch.device, tuple[Tensor, Tensor | None]] = {}

    @classmethod
    def at_leaf(
        cls, process: Process, operator: Any, y: Any, noise: float, leaf: str | tuple[str, ...] | None
    ) -> tuple["Measurement", tuple[str, ...]]:
        """Of one leaf of a process, with its path; or an error before anything is drawn."""
        path = () if leaf is None else (leaf,) if isinstance(leaf, str) else tuple(leaf)
        own: Any = leaf_at(process, path, "measurement")
        why = not_numbers(own, "measurement")
        if why:
            raise TypeError(why)
        return cls(operator, y, noise, tuple(own.space.shape)), path

    def _one(self, y: Tensor) -> Tensor:
        return self._checked(y, tuple(y.shape))

    def _checked(self, y: Tensor, shape: Shape) -> Tensor:
        """Numbers of which `shape` belongs to one row."""
        if shape != self.expected:
            whose = "y" if self.name is None else f"each row of {self.name!r}"
            rows = self.name is None and shape[1:] == self.expected
            hint = "; for one of each row pass its name, y='y', and condition={'y': y}" if rows else ""
            raise ValueError(
                f"{whose} has shape {shape}, and {self.operator} of numbers of shape {self.shape} has {self.expected}{hint}"
            )
        if not bool(y.isfinite().all()):
            raise ValueError(f"y has {int((~y.isfinite()).sum())} entries that are no numbers: leave them out by a mask")
        return y.double()

    def of_rows(self, condition: dict[str, Any]) -> tuple["Measurement", dict[str, Any]]:
        """With the measurements of these rows, and what else is told of them."""
        if self.name is None:
            return self, condition
        if not isinstance(condition.get(self.name), Tensor):
            raise ValueError(f"the measurements {self.name!r} are not given: pass condition={{{self.name!r}: y}}, a tensor")
        y, own = condition[self.name], copy(self)
        own.y = self._checked(y, tuple(y.shape[1:]))
        return own, {name: value for name, value in condition.items() if name != self.name}

    def residual(self, x0: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch measurements"]:
        """y - A x_0."""
        return (cast(Tensor, self.y).to(x0) - self.operator(x0)).flatten(1)

    def log_prob(self, x0: Float[Tensor, "batch *shape"]) -> Float[Tensor, "batch"]:
        """log N(y; A x_0, noise^2)."""
        z = self.residual(x0.double()) / self.noise
        return -0.5 * (z.square() + log(2 * pi * self.noise**2)).sum(1)

    def around(
        self, mean: Float[Tensor, "batch *shape"], variance: Float[Tensor, "batch"]
    ) -> tuple[Float[Tensor, "batch"], Float[Tensor, "batch *shape"]]:
        """(log N(y; A m, S), A^T S^-1 (y - A m))."""
        values, axes = self._spectrum(mean.device)
        gap = self.residual(mean)
        own = self.noise**2 + variance.unsqueeze(1) * values.to(mean)  # the eigenvalues of S
        seen = gap if axes is None else gap @ axes.to(mean)
        log_density = -0.5 * (seen.square() / own + (2 * pi * own).log()).sum(1)
        solved = seen / own if axes is None else (seen / own) @ axes.to(mean).T
        return log_density, self.back(solved)

    def back(self, seen: Float[Tensor, "batch measurements"]) -> Float[Tensor, "batch *shape"]:
        """A^T of each row."""
        return self.operator.transpose(seen.reshape(len(seen), *self.expected))

    def _spectrum(self, device: torch.device) -> tuple[Tensor, Tensor | None]:
        if device not in self._spectra:
            values, axes = self.operator.spectrum(self.shape)
            self._spectra[device] = values.to(device), None if axes is None else axes.to(device)
        return self._spectra[device]
