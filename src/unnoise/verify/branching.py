"""Every outcome of a function that draws, with its probability, by running the function itself.

A uniform number u decides something only where it is compared: u < p, or u sorted among bounds.  So let it stay open: a
`Chance` stands for shift + scale u and knows the interval in which u still lies.  A comparison has two outcomes or more,
each an interval; all of them are laid out, one row of the batch for each, and in its row u is cut to that interval.  What
is left of it at the end is the probability of the row.  A normal number is laid out at the nodes of Gauss and Hermite, with
their weights: exact for polynomials, which a step of a smooth function nearly is.

How often each number is asked is found by running: a comparison that was not foreseen is noted, and the run begins again
with a place for it.
"""

from collections.abc import Callable
from itertools import product
from math import ceil, prod
from typing import Any

import numpy as np
import torch
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Float, Tree
from unnoise.tree import batch_size, map_leaves

NODES = 6
Axis = tuple[tuple, int, int]  # the key of a number, its coordinate, how often it was asked before
Layout = dict[Axis, int]  # the number of outcomes on each axis; kept from run to run, so that it is found once


class Number:
    """One array of uniform numbers: the interval of each, and how often it was asked."""

    def __init__(self, ledger: "Ledger", key: tuple, width: int):
        self.ledger, self.key, self.width = ledger, key, width
        shape = (ledger.rows, width)
        self.low, self.high = torch.zeros(shape, dtype=torch.float64), torch.ones(shape, dtype=torch.float64)
        self.asked = torch.zeros(shape, dtype=torch.long)

    def decide(self, ids: Tensor, edges: Float[Tensor, "*shape outcomes"]) -> Tensor:
        """The outcome of each: u lies between edges[c] and edges[c + 1]."""
        row, k, count = ids // self.width, ids % self.width, edges.shape[-1] - 1
        before = self.asked[row, k]
        choice = torch.zeros_like(ids)
        for coordinate, often in product(range(self.width), range(int(before.max()) + 1) if ids.numel() else ()):
            here = (k == coordinate) & (before == often)
            if bool(here.any()):
                choice = torch.where(here, self.ledger.digit((self.key, coordinate, often), count)[row], choice)
        chosen = choice.clamp_max(count - 1).unsqueeze(-1)
        low, high = (edges.gather(-1, chosen + n).squeeze(-1) for n in (0, 1))
        self.low[row, k] = torch.maximum(self.low[row, k], low)
        self.high[row, k] = torch.where(choice < count, torch.minimum(self.high[row, k], high), 0.0)
        self.asked[row, k] += 1
        return chosen.squeeze(-1)

    def weight(self) -> Float[Tensor, "rows"]:
        return (self.high - self.low).clamp_min(0).prod(1)


class Ledger:
    """The rows of a run: `starts` states, each with a copy for every combination of outcomes."""

    def __init__(self, starts: int, layout: Layout):
        self.layout, self.sizes, self.grown = layout, dict(layout), False
        self.copies = prod(layout.values())
        self.rows = starts * self.copies
        self.copy = torch.arange(self.copies).repeat(starts)
        strides, stride = dict[Axis, int](), 1
        for axis, size in layout.items():
            strides[axis], stride = stride, stride * size
        self.strides = strides
        self.uniforms, self.nodes = dict[tuple, Number](), dict[tuple, Tensor]()
        self.weights = list[Tensor]()

    def digit(self, axis: Axis, size: int) -> Tensor:
        """The outcome that each row has on an axis; one that was not foreseen, or has more outcomes, is noted."""
        if self.sizes.get(axis, 0) < size:
            self.layout[axis], self.grown = size, True
        return (self.copy // self.strides[axis]) % self.sizes[axis] if axis in self.sizes else torch.zeros_like(self.copy)

    def uniform(self, key: tuple, shape: tuple[int, ...]) -> "Chance":
        number = self.uniforms.setdefault(key, Number(self, key, prod(shape)))
        ids = torch.arange(self.rows * number.width).reshape(self.rows, *shape)
        return Chance.of(
            ids, torch.ones(ids.shape, dtype=torch.float64), torch.zeros(ids.shape, dtype=torch.float64), number
        )

    def normal(self, key: tuple, shape: tuple[int, ...]) -> Tensor:
        if key not in self.nodes:
            z, w = (torch.as_tensor(part) for part in np.polynomial.hermite_e.hermegauss(NODES))
            digits = [self.digit((key, k, 0), NODES) for k in range(prod(shape))]
            self.nodes[key] = torch.stack([z[digit] for digit in digits], 1)
            self.weights += [(w / w.sum())[digit] for digit in digits]
        return self.nodes[key].reshape(self.rows, *shape)

    def weight(self) -> Float[Tensor, "rows"]:
        """Of every row; of an axis that a row was not asked on, only the first copy counts."""
        total = torch.ones(self.rows, dtype=torch.float64)
        for part in [*self.weights, *(number.weight() for number in self.uniforms.values())]:
            total = total * part
        for axis in self.layout:
            key, k, often = axis
            asked = self.uniforms[key].asked[:, k] > often if key in self.uniforms else key in self.nodes
            total = torch.where(torch.as_tensor(asked) | (self.digit(axis, 1) == 0), total, 0.0)
        return total


class Branching(NoiseSource):
    """Noise whose numbers are laid out."""

    def __init__(self, ledger: Ledger, labels: tuple = ()):
        self.ledger, self.labels, self.rows = ledger, labels, torch.arange(ledger.rows)

    def at(self, *labels: int | str) -> "Branching":
        return Branching(self.ledger, self.labels + labels)

    def uniform(self, shape: tuple[int, ...] = ()) -> Tensor:
        return self.ledger.uniform(self.labels, shape)

    def normal(self, shape: tuple[int, ...] = (), dtype: torch.dtype = torch.float64) -> Tensor:
        return self.ledger.normal(self.labels, shape)


class NotCompared(ValueError):
    """A number that is drawn is used otherwise than by comparing it: its outcomes cannot be laid out."""


class Chance(Tensor):
    """shift + scale u for uniform numbers u that are still open.  What it holds as a tensor are their places."""

    @staticmethod
    def of(ids: Tensor, scale: Tensor, shift: Tensor, number: Number) -> "Chance":
        out = ids.double().as_subclass(Chance)
        out.parts, out.number = (ids, scale, shift), number  # type: ignore[attr-defined]
        return out

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        name = getattr(func, "__name__", "")
        if name in HANDLERS:
            return HANDLERS[name](*args, **(kwargs or {}))
        if name in ("__get__", "dim", "size", "numel", "__len__"):
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        raise NotCompared(
            f"a number that is drawn goes through torch.{name}, of which branches know nothing: compare it instead"
        )


def reshaped(name: str) -> Callable:
    """An operation that only moves entries about."""

    def apply(u: Any, *args, **kwargs) -> Chance:
        ids, scale, shift = (getattr(part, name)(*args, **kwargs) for part in u.parts)
        return Chance.of(ids, scale, shift, u.number)

    return apply


def affine(u: Any, times: Any = 1.0, plus: Any = 0.0) -> Chance:
    ids, scale, shift = u.parts
    ids, scale, shift = torch.broadcast_tensors(ids, times * scale, times * shift + plus)
    return Chance.of(ids, scale, shift, u.number)


def add(a: Any, b: Any) -> Chance:
    return affine(a, plus=b) if isinstance(a, Chance) else affine(b, plus=a)


def mul(a: Any, b: Any) -> Chance:
    return affine(a, times=b) if isinstance(a, Chance) else affine(b, times=a)


def where(condition: Tensor, u: Any, other: float) -> Chance:
    """u, or a constant: one of scale 0."""
    ids, scale, shift = u.parts
    return Chance.of(ids, torch.where(condition, scale, 0.0), torch.where(condition, shift, other), u.number)


def sort_in(bounds: Float[Tensor, "*shape bounds"], u: Any) -> Tensor:
    """How many of the rising bounds are not above it."""
    ids, scale, shift = u.parts
    gap = bounds - shift.unsqueeze(-1)
    cut = torch.where(scale.unsqueeze(-1) == 0, gap.sign() * torch.inf, gap / scale.unsqueeze(-1)).nan_to_num(nan=-torch.inf)
    cut = cut.clamp(0, 1)
    if bool((cut[..., -1] >= 1 - 1e-12).all()) and cut.shape[-1] > 1:
        cut = cut[..., :-1]  # nothing lies above the last of them
    ends = cut.new_zeros(*cut.shape[:-1], 1), cut.new_ones(*cut.shape[:-1], 1)
    return u.number.decide(ids, torch.cat([ends[0], cut, ends[1]], -1))


def less(u: Any, bound: Any) -> Tensor:
    bound = torch.as_tensor(bound, dtype=torch.float64)
    return sort_in(bound.expand(u.parts[0].shape).unsqueeze(-1), u) == 0


def searchsorted(bounds: Tensor, u: Any, right: bool = False) -> Tensor:
    """Either along the last axis of both, or into one list of bounds."""
    if bounds.ndim == 1:
        return sort_in(bounds.double(), u)
    assert u.parts[0].shape[-1] == 1
    return sort_in(bounds.double(), reshaped("squeeze")(u, -1)).unsqueeze(-1)


def floor(u: Any) -> Tensor:
    top = ceil(float((u.parts[1] + u.parts[2]).max()) - 1e-9)
    return sort_in(torch.arange(1, max(top, 2), dtype=torch.float64), u)


HANDLERS: dict[str, Callable] = {
    **{name: reshaped(name) for name in ("flatten", "reshape", "unsqueeze", "squeeze", "contiguous", "__getitem__")},
    **dict.fromkeys(("add", "__add__", "__radd__"), add),
    **dict.fromkeys(("mul", "__mul__", "__rmul__"), mul),
    **dict.fromkeys(("lt", "__lt__"), less),
    "where": where,
    "clamp_max": lambda u, limit: u,  # a rounding guard: it has no mass
    "searchsorted": searchsorted,
    "bucketize": lambda u, bounds, right=False: sort_in(bounds.double(), u),
    "long": floor,
}


class TooManyBranches(ValueError):
    """There are more outcomes than are agreed to be laid out."""


def branches(
    run: Callable[[NoiseSource, Tree], Tree], x: Tree, layout: Layout, most: int | None = None
) -> tuple[AnyState, Float[Tensor, "states copies"]]:
    """All outcomes of `run(noise, x)`: leaves [states, copies, ...], and their probabilities; at most so many rows."""
    starts = batch_size(x)
    ledger, out = laid_out(run, x, layout)
    while ledger.grown:
        rows = starts * prod(layout.values())
        if most is not None and rows > most:
            raise TooManyBranches(f"{rows} outcomes, more than {most}")
        ledger, out = laid_out(run, x, layout)
    split = map_leaves(lambda leaf: leaf.reshape(starts, ledger.copies, *leaf.shape[1:]), out)
    return split, ledger.weight().reshape(starts, ledger.copies)


def laid_out(run: Callable[[NoiseSource, Tree], Tree], x: Tree, layout: Layout) -> tuple[Ledger, Tree]:
    ledger = Ledger(batch_size(x), layout)
    return ledger, run(Branching(ledger), map_leaves(lambda leaf: leaf.repeat_interleave(ledger.copies, 0), x))
