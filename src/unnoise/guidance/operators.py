"""Linear measurements of numbers, y = A x.

    Inpainting(mask)       the entries where a mask is true
    Downsampling(factor)   means over blocks
    Blur(kernel)           a convolution of the last axes, with zeros beyond the edge
    Matrix(matrix)         any A, as a tensor [measurements, *shape of x]

An operator maps batches: x [rows, *shape] to y [rows, *shape(shape)].  One of your own answers `shape`, `__call__` and
`transpose`, with <A x, y> = <x, A^T y>.
"""

from abc import ABC, abstractmethod
from math import prod
from typing import Any

import torch
from torch import Tensor

from unnoise.checks import whole

Shape = tuple[int, ...]


class LinearOperator(ABC):
    @abstractmethod
    def shape(self, shape: Shape) -> Shape:
        """Of y, where x has this shape (both without rows); an error that names the shape where x does not fit."""

    @abstractmethod
    def __call__(self, x: Tensor) -> Tensor:
        """A x of each row."""

    @abstractmethod
    def transpose(self, y: Tensor) -> Tensor:
        """A^T y of each row."""

    def spectrum(self, shape: Shape) -> tuple[Tensor, Tensor | None]:
        """The eigenvalues of A A^T, float64, and its eigenvectors in the columns of a matrix; None where A A^T is c times
        the identity, with the eigenvalue c alone.
        """
        rows = prod(self.shape(shape))
        basis = torch.eye(rows, dtype=torch.float64).reshape(rows, *self.shape(shape))
        gram = self(self.transpose(basis)).reshape(rows, rows)
        values, axes = torch.linalg.eigh((gram + gram.T) / 2)
        return values.clamp_min(0), axes

    def __repr__(self) -> str:
        return type(self).__name__


class Inpainting(LinearOperator):
    """`mask` has the shape of x and is true where it is measured; y lists those entries in order."""

    def __init__(self, mask: Any):
        self.mask = torch.as_tensor(mask)
        if self.mask.dtype != torch.bool:
            raise TypeError(f"the mask has dtype {self.mask.dtype}: pass True where x is measured, as in mask > 0")
        if not bool(self.mask.any()):
            raise ValueError("the mask is true nowhere: nothing is measured")

    def shape(self, shape: Shape) -> Shape:
        if shape != tuple(self.mask.shape):
            raise ValueError(
                f"the mask has shape {tuple(self.mask.shape)}, and the numbers have {shape}: pass one that fits"
            )
        return (int(self.mask.sum()),)

    def __call__(self, x: Tensor) -> Tensor:
        return x[:, self.mask.to(x.device)]

    def transpose(self, y: Tensor) -> Tensor:
        x = y.new_zeros(len(y), *self.mask.shape)
        x[:, self.mask.to(y.device)] = y
        return x

    def spectrum(self, shape: Shape) -> tuple[Tensor, None]:
        return torch.ones(1, dtype=torch.float64), None


class Downsampling(LinearOperator):
    """Means over blocks of `factor` entries a side: of the last two axes, or of the last one of a series (`axes`)."""

    def __init__(self, factor: int, axes: int | None = None):
        self.factor, self.axes = whole(factor, "factor"), axes
        if axes not in (None, 1, 2):
            raise ValueError(f"axes = {axes}: blocks lie along the last axis, 1, or the last two, 2")

    def _axes(self, count: int) -> int:
        return min(2, count) if self.axes is None else self.axes

    def shape(self, shape: Shape) -> Shape:
        axes = self._axes(len(shape))
        if len(shape) < max(axes, 1) or any(n % self.factor for n in shape[-axes:]):
            raise ValueError(
                f"numbers of shape {shape} are not made of blocks of {self.factor}: choose a factor that divides"
            )
        return (*shape[:-axes], *(n // self.factor for n in shape[-axes:]))

    def __call__(self, x: Tensor) -> Tensor:
        axes = self._axes(x.ndim - 1)
        for axis in range(-axes, 0):
            x = x.unflatten(axis, (-1, self.factor)).mean(axis)
        return x

    def transpose(self, y: Tensor) -> Tensor:
        axes = self._axes(y.ndim - 1)
        for axis in range(-axes, 0):
            y = y.repeat_interleave(self.factor, axis)
        return y / self.factor**axes

    def spectrum(self, shape: Shape) -> tuple[Tensor, None]:
        return torch.tensor([float(self.factor) ** -self._axes(len(shape))], dtype=torch.float64), None


class Blur(LinearOperator):
    """`kernel` has one axis for series and two for images, of odd lengths; y has the shape of x."""

    def __init__(self, kernel: Any):
        self.kernel = torch.as_tensor(kernel).double()
        if self.kernel.ndim not in (1, 2) or any(n % 2 == 0 for n in self.kernel.shape):
            raise ValueError(
                f"the kernel has shape {tuple(self.kernel.shape)}: pass one axis (series) or two (images) of odd lengths"
            )

    def shape(self, shape: Shape) -> Shape:
        if len(shape) < self.kernel.ndim:
            raise ValueError(
                f"the kernel has {self.kernel.ndim} axes, and the numbers have shape {shape}: pass one that fits"
            )
        return shape

    def __call__(self, x: Tensor) -> Tensor:
        return self._convolved(x, self.kernel.flip(tuple(range(self.kernel.ndim))))

    def transpose(self, y: Tensor) -> Tensor:
        return self._convolved(y, self.kernel)

    def _convolved(self, x: Tensor, kernel: Tensor) -> Tensor:
        convolve = torch.nn.functional.conv1d if kernel.ndim == 1 else torch.nn.functional.conv2d
        planes = x.reshape(-1, 1, *x.shape[-kernel.ndim :])
        return convolve(planes, kernel.to(x)[None, None], padding=tuple(n // 2 for n in kernel.shape)).reshape(x.shape)


class Matrix(LinearOperator):
    """`Matrix(a)`: y_i = sum over the entries of x of a_i x."""

    def __init__(self, matrix: Any):
        self.matrix = torch.as_tensor(matrix).double()
        if self.matrix.ndim < 1 or not len(self.matrix) or not bool(self.matrix.isfinite().all()):
            raise ValueError(
                f"the matrix has shape {tuple(self.matrix.shape)}: pass finite numbers, [measurements, *shape of x]"
            )

    def shape(self, shape: Shape) -> Shape:
        if tuple(self.matrix.shape[1:]) != shape:
            raise ValueError(
                f"the matrix measures numbers of shape {tuple(self.matrix.shape[1:])}, and these have {shape}: pass "
                f"[measurements, *shape of x]"
            )
        return (len(self.matrix),)

    def __call__(self, x: Tensor) -> Tensor:
        return x.reshape(len(x), -1) @ self.matrix.reshape(len(self.matrix), -1).T.to(x)

    def transpose(self, y: Tensor) -> Tensor:
        return (y @ self.matrix.reshape(len(self.matrix), -1).to(y)).reshape(len(y), *self.matrix.shape[1:])
