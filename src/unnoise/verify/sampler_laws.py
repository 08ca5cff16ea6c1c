"""The law of a sampler's last state, computed by running the sampler itself.

    numbers       Gaussian data: the denoiser is affine, so the last state of a linear method is A x + sum_j B_j z_j + c,
                  whatever it remembers.  Rows with a single entry 1 in x or in one z give the matrices, and these the
                  mean A m + c and the covariance A C A^T + sum_j B_j B_j^T
    categories    a step is a matrix P[x, y]: all its outcomes are laid out (`verify.branching`); a law goes through the
                  product of the matrices
    both          a step is an operator on functions u(x, c) of a number and a category, kept as Chebyshev polynomials in x
                  for each c.  Applied from the last step backwards it gives E phi of the last state from every first one

Nothing here knows a method's coefficients.
"""

from collections.abc import Callable
from typing import cast

import numpy as np
import torch
from torch import Tensor

from unnoise.denoiser import AnyDenoiser
from unnoise.generators.kolmogorov import states
from unnoise.noise import Noise
from unnoise.oracles import Oracle
from unnoise.processes import FiniteProcess
from unnoise.samplers import Problem, Sampler
from unnoise.shapes import Float, Tree
from unnoise.verify.branching import Layout, branches

REACH, DEGREE = 7.0, 72  # numbers beyond REACH have no mass to speak of; degrees of the polynomials


def run_of(sampler: Sampler, denoiser: AnyDenoiser, times: Tensor) -> Callable[[Noise, Tree], Tree]:
    return lambda noise, x: sampler.run(Problem(denoiser, times, noise, {}), x, lambda i, y: None)


# --- numbers


class Units(Noise):
    """Noise with a single entry 1 in each row: first to be asked, first laid out.  `asked` is shared by its children."""

    def __init__(self, rows: int, first: int, labels: tuple = (), asked: dict[tuple, int] | None = None):
        self.first, self.labels, self.rows = first, labels, torch.arange(rows)
        self.asked = {} if asked is None else asked

    def at(self, *labels: int | str) -> "Units":
        return Units(len(self.rows), self.first, self.labels + labels, self.asked)

    def normal(self, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> Tensor:
        width = torch.Size(shape).numel()
        start = self.asked.setdefault(self.labels, self.first + sum(self.asked.values()) if False else self._next(width))
        out = torch.zeros(len(self.rows), width, dtype=torch.float64)
        if start + width <= len(self.rows):
            out[start : start + width] = torch.eye(width, dtype=torch.float64)
        return out.reshape(-1, *shape)

    def _next(self, width: int) -> int:
        return self.first + width * len(self.asked)
