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
from unnoise.noise import NoiseSource
from unnoise.oracles import Oracle
from unnoise.processes import FiniteProcess
from unnoise.samplers import Problem, Sampler
from unnoise.shapes import AnyState, Float, Tree
from unnoise.verify.branching import Layout, branches

REACH, DEGREE = 7.0, 40  # numbers beyond REACH have no mass to speak of; degrees of the polynomials


def run_of(sampler: Sampler, denoiser: AnyDenoiser, times: Tensor) -> Callable[[NoiseSource, Tree], Tree]:
    return lambda noise, x: sampler.run(Problem(denoiser, times, noise, {}), x, lambda i, y: None)


# --- numbers


class Units(NoiseSource):
    """Noise with single entries 1: each number that is asked for has a row of its own, kept in `places`."""

    def __init__(self, rows: int, places: dict[tuple, tuple[int, int]], first: int, labels: tuple = ()):
        self.places, self.first, self.labels, self.rows = places, first, labels, torch.arange(rows)

    def at(self, *labels: int | str) -> "Units":
        return Units(len(self.rows), self.places, self.first, self.labels + labels)

    def normal(self, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> Tensor:
        width = torch.Size(shape).numel()
        start, _ = self.places.setdefault(self.labels, (self.end, width))
        out = torch.zeros(len(self.rows), width, dtype=torch.float64)
        if start + width <= len(self.rows):
            out[start : start + width] = torch.eye(width, dtype=torch.float64)
        return out.reshape(-1, *shape)

    @property
    def end(self) -> int:
        """The row after the last that was given out."""
        return max([self.first, *(start + width for start, width in list(self.places.values())[-1:])])


def split(x: Float[Tensor, "rows d"], widths: dict[str, int] | None) -> Tree:
    return x if widths is None else dict(zip(widths, x.split(list(widths.values()), 1), strict=True))


def joined(x: AnyState) -> Float[Tensor, "rows d"]:
    return torch.cat(list(x.values()), 1) if isinstance(x, dict) else x


def moments(
    sampler: Sampler,
    denoiser: AnyDenoiser,
    times: Float[Tensor, "times"],
    mean: Float[Tensor, "d"],
    covariance: Float[Tensor, "d d"],
    widths: dict[str, int] | None = None,
) -> tuple[Tensor, Tensor]:
    """Mean and covariance of the last state of a linear method from a normal first one; `widths` of a product's leaves."""
    d, places = len(mean), dict[tuple, tuple[int, int]]()
    run = run_of(sampler, denoiser, times)

    def last(rows: int) -> Tensor:
        x = torch.zeros(rows, d, dtype=torch.float64)
        x[1 : 1 + d] = torch.eye(d, dtype=torch.float64)
        return joined(run(Units(rows, places, 1 + d), split(x, widths)))

    rows = 1 + d + d * (len(times) - 1)  # of a method that draws once in a step
    y = last(rows)
    needed = Units(0, places, 1 + d).end
    y = last(needed) if needed > rows else y[:needed]
    columns = (y[1:] - y[0]).T
    move, draws = columns[:, :d], columns[:, d:]
    return move @ mean + y[0], move @ covariance @ move.T + draws @ draws.T


# --- categories


def kernel(sampler: Sampler, denoiser: AnyDenoiser, times: Float[Tensor, "times"], layout: Layout) -> Float[Tensor, "n n"]:
    """P[x, y] of a run over these times."""
    process = cast(FiniteProcess, denoiser.process)
    points = cast(Tensor, states(process.state_space))
    out, weight = branches(run_of(sampler, denoiser, times), points, layout)
    n, base = len(points), int(points.max()) + 1
    scale = base ** torch.arange(points[0].numel())
    code = torch.zeros(base ** points[0].numel(), dtype=torch.long)
    code[(points.reshape(n, -1) * scale).sum(1)] = torch.arange(n)
    target = code[(out.reshape(*weight.shape, -1) * scale).sum(-1)]
    return torch.zeros(n, n, dtype=torch.float64).scatter_add(1, target, weight)


def finite_law(
    sampler: Sampler, denoiser: AnyDenoiser, times: Float[Tensor, "times"], law: Float[Tensor, "n"], whole: bool = False
) -> Float[Tensor, "n"]:
    """The law of the last state, step by step; `whole` takes the run in one piece, for a method with a plan of all steps."""
    layout: Layout = {}
    pieces = [times] if whole else [times[i : i + 2] for i in range(len(times) - 1)]
    for piece in pieces:
        law = law @ kernel(sampler, denoiser, piece, layout)
    return law


# --- a number and a category


def expectations(
    sampler: Sampler, oracle: Oracle, times: Float[Tensor, "times"], tests: list[Callable[[np.ndarray, int], np.ndarray]]
) -> np.ndarray:
    """E phi of the last state for functions phi(x, c), from a first state with the law of its time; leaves "x" and "c"."""
    points = REACH * np.cos(np.pi * (np.arange(DEGREE) + 0.5) / DEGREE)
    u = np.stack([[phi(points, c) + 0 * points for c in (0, 1)] for phi in tests])  # [tests, 2, points]
    x, c = (
        leaf.flatten() for leaf in torch.meshgrid(torch.as_tensor(points.copy()), torch.arange(2.0).double(), indexing="ij")
    )
    layout: Layout = {}
    for i in reversed(range(len(times) - 1)):
        run = run_of(sampler, oracle, times[i : i + 2])
        out, weight = branches(run, {"x": x.unsqueeze(1), "c": c.long().unsqueeze(1)}, layout)
        at, which = (out[name].reshape(weight.shape).numpy() for name in ("x", "c"))
        value = polynomials(u, points)(at.clip(-REACH, REACH))  # [tests, 2, states, copies]
        value = np.where(which == 0, value[:, 0], value[:, 1])
        u = (value * weight.numpy()).sum(-1).reshape(len(tests), DEGREE, 2).transpose(0, 2, 1)
    fitted = polynomials(u, points)
    return integrals(oracle, float(times[0]), fitted)


def polynomials(u: np.ndarray, points: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
    coefficients = np.polynomial.chebyshev.chebfit(points / REACH, u.reshape(-1, DEGREE).T, DEGREE - 1)

    def value(x: np.ndarray) -> np.ndarray:
        return np.polynomial.chebyshev.chebval(x / REACH, coefficients).reshape(*u.shape[:-1], *x.shape)

    return value


def integrals(oracle: Oracle, t: float, functions: Callable[[np.ndarray], np.ndarray]) -> np.ndarray:
    """The integral of functions [tests, 2, points] against the marginal law at t."""
    line = torch.linspace(-REACH, REACH, 4001, dtype=torch.float64)
    values, total = functions(line.numpy()), 0.0
    for c in (0, 1):
        state = {"x": line.unsqueeze(1), "c": torch.full((len(line), 1), c)}
        density = oracle.log_marginal(state, t).exp().numpy() * float(line[1] - line[0])
        total = total + (density * values[:, c]).sum(-1)
    return np.asarray(total)
