"""Correlated noise: n = L z with z standard normal, so that n ~ N(0, C) with C = L L^T over the flattened coordinates.

A covariance is used through its root alone, which is formed once and then applied:

    colour(z) = L z      whiten(x) = L^-1 x      apply(x) = C x      solve(x) = C^-1 x      log_det_root = log |det L|

on arrays [..., *shape] with as many trailing numbers as C has rows.  Where noise is coloured everything that is said "per
coordinate" (a standard deviation, a reverse variance) is said of the whitened coordinates y = L^-1 x: in them the noise is
independent, with density |det L|^-1 times that of y.

`Covariance(matrix)` takes any positive matrix and applies its Cholesky root in O(d^2).  `Stationary(shape, spectrum)` is the
covariance of a stationary field on a ring or a torus (an image with wrapped edges): C is diagonal in frequency, its root
is symmetric and is applied by fast Fourier transforms in O(d log d).  A covariance of another form subclasses `Covariance`
and answers the same five.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

_ALMOST = 1e-6  # asymmetry that rounding in float32 explains, as a share of the largest entry
_SINGULAR = 1e-7  # smallest pivot of the root, as a share of the largest


class Covariance:
    """A positive matrix C over d coordinates, by its lower Cholesky root (float64; rounded once per dtype and device)."""

    dimension: int
    log_det_root: float
    root: Tensor

    def __init__(self, matrix: Any):
        self.root = _cholesky(torch.as_tensor(matrix).detach().double())
        self.dimension = len(self.root)
        self.log_det_root = float(self.root.diagonal().log().sum())
        self._rounded: dict[tuple[torch.dtype, torch.device], Tensor] = {}

    def colour(self, z: Tensor) -> Tensor:
        """L z."""
        rows, root = self._given(z)
        with torch.autocast(z.device.type, enabled=False):  # whitening would enlarge what is rounded here
            return (rows @ root.mT).reshape(z.shape).to(z.dtype)

    def whiten(self, x: Tensor) -> Tensor:
        """L^-1 x."""
        rows, root = self._given(x)
        return torch.linalg.solve_triangular(root.mT, rows, upper=True, left=False).reshape(x.shape).to(x.dtype)

    def apply(self, x: Tensor) -> Tensor:
        """C x."""
        rows, root = self._given(x)
        with torch.autocast(x.device.type, enabled=False):
            return (rows @ root @ root.mT).reshape(x.shape).to(x.dtype)

    def solve(self, x: Tensor) -> Tensor:
        """C^-1 x."""
        rows, root = self._given(x)
        white = torch.linalg.solve_triangular(root.mT, rows, upper=True, left=False)
        return torch.linalg.solve_triangular(root, white, upper=False, left=False).reshape(x.shape).to(x.dtype)

    def _given(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """The array as rows of coordinates and the root, in one dtype (float32 at least)."""
        root = self._root(torch.promote_types(x.dtype, torch.float32), x.device)
        return x.reshape(-1, self.dimension).to(root.dtype), root

    def _root(self, dtype: torch.dtype, device: torch.device) -> Tensor:
        key = (dtype, device)
        if key not in self._rounded:
            with torch.inference_mode(False):  # what is kept may meet a training step later
                self._rounded[key] = self.root.to(device=device, dtype=dtype)
        return self._rounded[key]

    def __repr__(self) -> str:
        return f"{type(self).__name__}(dimension={self.dimension})"


class Stationary(Covariance):
    """A stationary field on a torus with unit variance: power `spectrum(f)` at frequency f, in cycles per coordinate.

    With the spectrum normalised to mean one over all frequencies, C = F* diag(S) F and L = F* diag(sqrt S) F, real and
    symmetric since S depends on |f| alone.  The last `axes` axes of the shape form the torus (all of them unless told);
    the others, such as an image's channels, hold independent copies.

    `Stationary((3, 32, 32), lambda f: (f + 1 / 32) ** -2, axes=2)` is noise with the spectrum of natural images.
    """

    def __init__(self, shape: int | Sequence[int], spectrum: Callable[[Tensor], Tensor], axes: int | None = None):
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        axes = len(self.shape) if axes is None else axes
        if not 1 <= axes <= len(self.shape):
            raise ValueError(f"axes = {axes}: the torus takes between 1 and all {len(self.shape)} axes of {self.shape}")
        self.torus, self.dimension = self.shape[-axes:], prod(self.shape)
        waves = torch.meshgrid(*[torch.fft.fftfreq(n, dtype=torch.float64) for n in self.torus], indexing="ij")
        frequency = torch.stack(waves).square().sum(0).sqrt()
        power = torch.as_tensor(spectrum(frequency)).detach().double().expand_as(frequency)
        bad = ~((power > 0) & power.isfinite())
        if bool(bad.any()):
            i = tuple(bad.nonzero()[0].tolist())
            raise ValueError(
                f"the spectrum is {power[i].item():g} at frequency {frequency[i].item():g}: it must be positive and finite, "
                f"so add a floor, as in (f + 1 / {max(self.torus)}) ** -2"
            )
        power = power / power.mean()
        self.log_det_root = 0.5 * float(power.log().sum()) * (self.dimension // prod(self.torus))
        self.root = power[..., : self.torus[-1] // 2 + 1].sqrt()  # the half that a real field has
        self._rounded = {}

    def colour(self, z: Tensor) -> Tensor:
        return self._filtered(z, lambda root: root)

    def whiten(self, x: Tensor) -> Tensor:
        return self._filtered(x, lambda root: 1 / root)

    def apply(self, x: Tensor) -> Tensor:
        return self._filtered(x, lambda root: root.square())

    def solve(self, x: Tensor) -> Tensor:
        return self._filtered(x, lambda root: 1 / root.square())

    def _filtered(self, x: Tensor, response: Callable[[Tensor], Tensor]) -> Tensor:
        rows, root = self._given(x)
        dim = tuple(range(-len(self.torus), 0))
        waves = torch.fft.rfftn(rows.reshape(-1, *self.shape), dim=dim) * response(root)
        return torch.fft.irfftn(waves, s=self.torus, dim=dim).reshape(x.shape).to(x.dtype)


def _cholesky(matrix: Tensor) -> Tensor:
    """The root of a matrix that is a covariance; of any other, an error that names what is wrong with it."""
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise ValueError(f"a covariance of shape {tuple(matrix.shape)}: pass a [d, d] matrix over the flattened coordinates")
    if not bool(matrix.isfinite().all()):
        i = (~matrix.isfinite()).nonzero()[0].tolist()
        raise ValueError(f"covariance{i} is {matrix[tuple(i)].item()}: estimate it from finite data")
    gap = (matrix - matrix.mT).abs()
    if bool((gap > _ALMOST * matrix.abs().max()).any()):
        row, column = divmod(int(gap.argmax()), len(gap))
        here, there = matrix[row, column].item(), matrix[column, row].item()
        raise ValueError(
            f"covariance[{row}, {column}] = {here:g} but covariance[{column}, {row}] = {there:g}: "
            f"a covariance is symmetric; pass (C + C.T) / 2, or root @ root.T if this is its root"
        )
    matrix = (matrix + matrix.mT) / 2
    root, failed = torch.linalg.cholesky_ex(matrix)
    pivots = root.diagonal()
    if int(failed) or bool((pivots < _SINGULAR * pivots.max()).any()):
        least = torch.linalg.eigvalsh(matrix)[0].item()
        more = max(-2 * least, 1e-3 * matrix.diagonal().abs().max().item())
        raise ValueError(
            f"the covariance has the eigenvalue {least:g}: noise needs some variance in every direction, or there is no "
            f"score; add to its diagonal, as in C + {more:.2g} * torch.eye({len(matrix)})"
        )
    return root
