"""What a step on numbers does to its arrays: linear combinations, made together.

    y_j = sum_k c_jk v_k,      v the inputs, and then y_0, y_1, ... themselves;      to the last y noise is added, scale L z

A step of DDIM is one such sum of (x, value), with noise an ancestral one; DPM-Solver++ makes the clean prediction and the
next state, UniPC the corrected state as well.  As written each term is a pass over memory and a launch.  On an accelerator
all sums of a step, its noise included, are one kernel that reads every input once (`kernels.linear`): the coefficients are
folded on the host, in float64, so that all y are sums of inputs.  Gradients, coefficients for each coordinate and noise of
another kind go the plain way, which is the reference.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from unnoise.covariance import Covariance
from unnoise.kernels import linear as fused
from unnoise.noise import NoiseSource

Coefficient = float | Tensor
Term = tuple[Coefficient, int]  # a coefficient, and of what: input k as k, sum j as ~j


def combine(
    inputs: Sequence[Tensor],
    sums: Sequence[Sequence[Term]],
    scale: Coefficient | None = None,
    noise: NoiseSource | None = None,
    covariance: Covariance | None = None,
) -> list[Tensor]:
    """The sums, each a new array; those of x and noise have the type of the first input."""
    if scale is None or not isinstance(scale, Tensor) and scale == 0:
        noise = None
    matrix = _folded(inputs, sums, scale) if fused.available(inputs[0].device) else None
    if matrix is None:
        return _plain(inputs, sums, scale, noise, covariance)
    if noise is None or _drawn_inside(noise, covariance):
        return fused.combine(inputs, matrix, scale, noise and noise.rows, noise and noise.key)  # type: ignore[arg-type]
    for row in matrix[:-1]:
        row.append(0.0)
    matrix[-1].append(scale)  # type: ignore[arg-type]
    return fused.combine([*inputs, _drawn(inputs[0], noise, covariance)], matrix)


class StepSums:
    """The sums of a step as they are written down, made together at the end."""

    def __init__(self) -> None:
        self.inputs: list[Tensor] = []
        self.sums: list[tuple[Term, ...]] = []

    def given(self, x: Tensor) -> int:
        """The place of an input."""
        self.inputs.append(x)
        return len(self.inputs) - 1

    def of(self, *terms: Term) -> int:
        """The place of a sum."""
        self.sums.append(terms)
        return ~(len(self.sums) - 1)

    def made(
        self, scale: Coefficient | None = None, noise: NoiseSource | None = None, covariance: Covariance | None = None
    ) -> dict[int, Tensor]:
        """Inputs and sums by their places, the last sum with noise."""
        found = dict(enumerate(self.inputs))
        found.update((~j, y) for j, y in enumerate(combine(self.inputs, self.sums, scale, noise, covariance)))
        return found


def _plain(
    inputs: Sequence[Tensor],
    sums: Sequence[Sequence[Term]],
    scale: Coefficient | None,
    noise: NoiseSource | None,
    covariance: Covariance | None,
) -> list[Tensor]:
    made: list[Tensor] = []
    for terms in sums:
        (first, k), *others = terms
        out = scaled(first, inputs[k] if k >= 0 else made[~k])
        for coefficient, k in others:
            out = plus(out, coefficient, inputs[k] if k >= 0 else made[~k])
        made.append(out)
    if noise is not None and scale is not None:
        made[-1] = noised(made[-1], scale, noise, covariance)
    return made


def noised(x: Tensor, scale: Coefficient, noise: NoiseSource, covariance: Covariance | None) -> Tensor:
    """Noise added to x, which is written over: scale L z, or L (scale z) where coordinates have scales of their own."""
    if covariance is None or not isinstance(scale, Tensor):
        return plus(x, scale, _drawn(x, noise, covariance))
    z = noise.normal(tuple(x.shape[1:]), x.dtype)
    return x.add_(covariance.colour((scale.to(x.dtype) * z).expand(x.shape)))


def _drawn(x: Tensor, noise: NoiseSource, covariance: Covariance | None) -> Tensor:
    z = noise.normal(tuple(x.shape[1:]), x.dtype)
    return z if covariance is None else covariance.colour(z)


def scaled(coefficient: Coefficient, x: Tensor) -> Tensor:
    return x * (coefficient.to(x.dtype) if isinstance(coefficient, Tensor) else coefficient)


def plus(x: Tensor, coefficient: Coefficient, y: Tensor) -> Tensor:
    """x + coefficient y, written over x: a tensor of this step's own."""
    return x.addcmul_(y, coefficient.to(x.dtype)) if isinstance(coefficient, Tensor) else x.add_(y, alpha=coefficient)


def _drawn_inside(noise: NoiseSource, covariance: Covariance | None) -> bool:
    """Whether the kernel that adds the noise can draw it as well: keyed by the host, independent over coordinates."""
    return covariance is None and type(noise) is NoiseSource and isinstance(noise.key, int)


def _folded(inputs: Sequence[Tensor], sums: Sequence[Sequence[Term]], scale: Coefficient | None) -> list[list[float]] | None:
    """The coefficients of every sum on the inputs alone; None where the plain way is to be gone."""
    room = len(inputs) < fused.MOST_INPUTS and len(sums) <= fused.MOST_SUMS  # one input may be added, noise
    if not room or torch.is_grad_enabled() or torch.compiler.is_compiling() or isinstance(scale, Tensor):
        return None
    if any(v.shape != inputs[0].shape or v.dtype not in fused.TYPES for v in inputs):
        return None
    matrix: list[list[float]] = []
    for terms in sums:
        row = [0.0] * len(inputs)
        for coefficient, k in terms:
            if isinstance(coefficient, Tensor):
                return None
            if k >= 0:
                row[k] += coefficient
            else:
                row = [own + coefficient * other for own, other in zip(row, matrix[~k], strict=True)]
        matrix.append(row)
    return matrix
