"""The forward equation dp/dtau = R p of a jump process on a few thousand states, by sparse rates.

The scheme is that of `generators.kolmogorov` (fourth order, commutator-free, on a grid graded towards both ends):

    p <- exp(h (b R_1 + a R_2)) exp(h (a R_1 + b R_2)) p,    a, b = 1/4 +- sqrt(3)/6,   R_1, R_2 at the step's Gauss nodes,

but no matrix is formed.  A state has one way out per coordinate and category, and each exponential acts on p by
uniformization: with A = h (a R_1 + b R_2) and no exit rate above m,

    exp(A) p = sum_n e^-m m^n/n!  P^n p,     P = I + A/m,

a sum of positive terms but for the small b < 0, so that unlikely states keep their digits.  Steps are doubled until log p
settles; the last two answers are extrapolated, and what that changes is the estimate of the error.
"""

from collections.abc import Callable
from functools import cache
from math import ceil, exp, isfinite, sqrt
from typing import cast

import torch
from torch import Tensor

from unnoise.generators.generator import beside
from unnoise.generators.kolmogorov import code, states
from unnoise.shapes import Float, Int
from unnoise.spaces import Finite, Space, tree_leaves
from unnoise.tree import Path, pick

Rates = Callable[[Tensor], Tensor]  # times [n] -> rates [n, edges] along the edges of `edges(space)`

MAJOR, MINOR = 0.25 + sqrt(3) / 6, 0.25 - sqrt(3) / 6
LIKELY = 1e-15  # the relative error of less likely states is not waited for
MOST = 1024  # steps
ENTRIES = 2**20  # rates that are held at once
_TERMS = 64.0  # the largest m of one series


def finite_leaves(space: Space) -> list[tuple[Path, Finite]]:
    """The leaves, all of them finite: spaces that are not are refused before they come here."""
    return [(path, cast(Finite, leaf)) for path, leaf in tree_leaves(space)]


@cache
def edges(space: Space) -> tuple[Int[Tensor, "edges"], Int[Tensor, "edges"]]:
    """Destination and source of every jump: leaf by leaf, state, coordinate and category in the order of a leaf's rates.

    An entry that leads nowhere (the state itself) points at its source; those of a category that a coordinate has not are 0.
    """
    points, targets, sources = states(space), [], []
    for path, leaf in tree_leaves(space):
        own = pick(points, path)
        around = leaf.neighbours(own)
        targets.append(code(space, beside(points, path, around)))
        sources.append(torch.arange(len(own)).repeat_interleave(len(around) // len(own)))
    return torch.cat(targets), torch.cat(sources)


class Jumps:
    """Rates on fixed edges, acting on a law."""

    def __init__(self, space: Space, device: torch.device | None = None):
        target, source = edges(space)
        self.moves = target != source
        self.target, self.source = (index[self.moves].to(device) for index in (target, source))
        self.moves = self.moves.to(device)

    def act(self, rates: Float[Tensor, "moves"], p: Float[Tensor, "states"]) -> Float[Tensor, "states"]:
        """exp(A) p, A the matrix with these rates off its diagonal."""
        out = torch.zeros_like(p).index_add_(0, self.source, rates)  # exit rates
        largest = float(out.abs().max())
        if not isfinite(largest):
            raise FloatingPointError(f"an exit rate of the model is {largest}: the network returned a non-finite value")
        parts = max(1, ceil(largest / _TERMS))
        m = max(largest / parts, 1e-300)
        stay, leave = 1 - out / (parts * m), rates / (parts * m)
        for _ in range(parts):
            weight, term = exp(-m), p
            total, n, rest = weight * p, 0, 1 - weight
            while rest > 1e-17 and n < 4 * _TERMS + 40:
                n += 1
                term = (stay * term).index_add_(0, self.target, leave * term[self.source])
                weight *= m / n
                total = total + weight * term
                rest = weight * m / n if n > m else 1.0  # the largest term still to come
            p = total
        return p


def solve(
    space: Space, rates: Rates, p: Float[Tensor, "states"], start: float, end: float, tolerance: float, watched: Tensor
) -> tuple[Float[Tensor, "states"], Float[Tensor, "states"]]:
    """The law at `end` < `start` of a process with law p at `start`, and an estimate of the error of its logarithm.

    `watched` are the states whose law must settle.
    """
    jumps, previous, steps = Jumps(space, p.device), None, 16
    while True:
        current = _integrate(jumps, rates, p, start, end, steps)
        if previous is not None:
            correction = (current - previous) / 15  # the method is of order 4: one step of Richardson's extrapolation
            error = correction.abs() / current.clamp_min(1e-300)
            settled = bool((error[watched][current[watched] > LIKELY] < tolerance).all())
            if settled or 2 * steps > MOST:
                better = current + correction
                return torch.where(better > 0, better, current), error
        previous, steps = current, 2 * steps


def _integrate(jumps: Jumps, rates: Rates, p: Tensor, start: float, end: float, steps: int) -> Tensor:
    h, block = 1 / steps, max(1, ENTRIES // len(jumps.moves))  # steps whose rates are asked for together
    for i in range(0, steps, block):
        left = torch.arange(i, min(i + block, steps), dtype=torch.float64)
        v = torch.stack([(left + 0.5 + side * sqrt(3) / 6) * h for side in (-1, 1)], 1)
        w = torch.minimum(v, 1 - v)
        share = w**4 * (35 - 84 * w + 70 * w**2 - 20 * w**3)  # all derivatives up to the third vanish at both ends
        t = torch.where(v < 0.5, start + (end - start) * share, end + (start - end) * share)
        slope = abs(end - start) * 140 * v**3 * (1 - v) ** 3
        scaled = rates(t.flatten().to(p.device))[:, jumps.moves] * (h * slope).flatten().to(p.device).unsqueeze(1)
        for first, second in scaled.reshape(len(left), 2, -1):
            p = jumps.act(MAJOR * first + MINOR * second, p)
            p = jumps.act(MINOR * first + MAJOR * second, p)
    return p
