"""Independent coordinates as one operator: R = R_1 (+) ... (+) R_d on K_1 ... K_d states, none of which is ever listed.

A law of the whole state is an array with one axis for each coordinate, and

    (R p)[x] = sum_k sum_y R_k[x_k, y] p[.., y, ..]                                        (eq:generator-dimensional-sum)

is one small product along each axis: K_1 + ... + K_d operations for each state, where the dense matrix has K_1 ... K_d.

    exp(t R) p = sum_n e^{-L t} (L t)^n/n! (I + R/L)^n p,      L = sum of the largest exit rates            (uniformization)

has no negative term, so the law stays one; it holds for any operator that is given by its products alone (`uniformised`).
"""

from collections.abc import Callable, Sequence
from math import ceil, inf, prod

import torch
from torch import Tensor

from unnoise.generators.generator import Generator
from unnoise.generators.semigroup import checked_rates, poisson, series
from unnoise.shapes import Float
from unnoise.spaces import Local

DENSE = 4096  # states of a matrix that is written out
PIECE = 256.0  # L t that is summed at once
ROUNDING = 1e-9  # below 0 by more than this share of the largest entry is no rounding


class KroneckerSum:
    """The rate matrix of coordinates that move independently; each is [K, K], rates x -> y in [y, x], columns sum to 0."""

    def __init__(self, factors: Sequence[Float[Tensor, "size size"]]):
        given = [torch.as_tensor(factor) for factor in factors]
        if not given:
            raise ValueError("a sum over no coordinates: pass the rate matrix of each, [K, K]")
        self.factors = [checked_rates(own) if bool(own.any()) else own.double() for own in given]  # a coordinate may rest
        self.sizes = [len(factor) for factor in self.factors]

    @classmethod
    def of(cls, generator: Generator) -> "KroneckerSum":
        """Of a generator on categories, read off a few states; refused where a rate hangs on another coordinate."""
        sizes = getattr(generator.space, "each_size", None)
        if sizes is None:
            raise TypeError(f"a Kronecker sum is of categories, and the generator moves on {generator.space}")
        last, place = torch.tensor(sizes) - 1, torch.arange(len(sizes))
        bases = (0 * last, last, (1 + place) % (1 + last))
        found = [[_factor(generator, sizes, base, k) for k in range(len(sizes))] for base in bases]
        for k, (first, *others) in enumerate(zip(*found, strict=True)):
            if any(not torch.allclose(first, other, rtol=1e-9, atol=1e-12) for other in others):
                raise ValueError(f"the rates of coordinate {k} hang on the others: this is no sum of independent ones")
        return cls(found[0])

    @property
    def count(self) -> int:
        return prod(self.sizes)

    @property
    def fastest(self) -> float:
        """The largest rate at which a state is left."""
        return sum(float(-factor.diagonal().min()) for factor in self.factors)

    def __call__(self, p: Float[Tensor, "*batch count"]) -> Float[Tensor, "*batch count"]:
        """R p, the right-hand side of the master equation."""
        return self._along(p, self.factors)

    def transposed(self, f: Float[Tensor, "*batch count"]) -> Float[Tensor, "*batch count"]:
        """R^T f: the generator on functions of the state."""
        return self._along(f, [factor.T for factor in self.factors])

    def _along(self, p: Tensor, factors: list[Tensor]) -> Tensor:
        if p.shape[-1] != self.count:
            raise ValueError(
                f"a vector of {p.shape[-1]} entries; the {len(self.sizes)} coordinates have {self.count} states"
            )
        array = p.double().reshape(*p.shape[:-1], *self.sizes)
        first, out = p.ndim - 1, torch.zeros_like(array)
        for k, factor in enumerate(factors):
            out += torch.tensordot(array, factor, dims=([first + k], [1])).movedim(-1, first + k)
        return out.reshape(p.shape)

    def evolve(self, p: Float[Tensor, "*batch count"], t: float) -> Float[Tensor, "*batch count"]:
        """The law after a time t."""
        return uniformised(self, self.fastest, p, t)

    def dense(self) -> Float[Tensor, "count count"]:
        if self.count > DENSE:
            raise ValueError(f"{self.count:,} states are too many to write out (at most {DENSE}): use the operator itself")
        return self(torch.eye(self.count, dtype=torch.float64)).T


def uniformised(operator: Callable[[Tensor], Tensor], fastest: float, p: Tensor, t: float) -> Tensor:
    """exp(t R) p from products R p alone; `fastest` is at least the largest exit rate."""
    if not 0 <= t < inf:
        raise ValueError(f"t = {t:g}: a law is carried forward for a finite time, t >= 0")
    if not 0 <= fastest < inf:
        raise ValueError(f"fastest = {fastest:g}: give the largest rate at which a state is left, or more")
    p = p.double()
    positive = bool((p >= 0).all())
    if fastest == 0 or t == 0:
        return p
    pieces = ceil(fastest * t / PIECE)
    mean = torch.tensor(fastest * t / pieces, dtype=torch.float64)
    weights = poisson(mean, int(mean + 9 * mean.sqrt() + 30))
    weights = weights / weights.sum()  # what is left out, less than 1e-17
    for _ in range(pieces):
        p = series(lambda u: u + operator(u) / fastest, p, weights)
    if positive and float(p.min()) < -ROUNDING * float(p.max()):
        raise ValueError(f"the law has become negative: some state is left faster than at fastest = {fastest:g}; give more")
    return p


def _factor(generator: Generator, sizes: list[int], base: Tensor, k: int) -> Tensor:
    """The rates of coordinate k with the others at `base`."""
    x = base.repeat(sizes[k], 1)
    x[:, k] = torch.arange(sizes[k])
    local: Local = generator.local(x.reshape(sizes[k], *generator.space.shape))  # type: ignore
    rates = local.rates.double().reshape(sizes[k], len(sizes), -1)[:, k, : sizes[k]].T.clone()  # [to, from]
    rates.fill_diagonal_(0.0)
    return rates - torch.diag(rates.sum(0))
