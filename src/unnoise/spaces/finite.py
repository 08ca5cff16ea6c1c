"""Categories: a frozen generator holds, or leaps.

With frozen rates mu(y) to each destination an event sets the coordinate to y at rate mu(y), whatever it was.  After a time h
it has met none with probability exp(-h mu), mu = sum_y mu(y), and otherwise stands where the last one put it:

    hold-then-leap:   stay e^{-h mu},    y with (1 - e^{-h mu}) mu(y)/mu.
"""

from collections.abc import Sequence
from math import log10, prod

import torch
from torch import Tensor

from unnoise.checks import unread
from unnoise.laws import LOG_ZERO, Categorical, Law, log_of, sum_coordinates
from unnoise.noise import NoiseSource
from unnoise.shapes import AnyState, Bool, Float, Int
from unnoise.spaces.base import ENUMERABLE, INTEGERS, Frozen, flat
from unnoise.spaces.jumping import JumpingSpace
from unnoise.spaces.local import Local, without_self

STEEP = 30.0  # of a slope that a step is told by: beyond it, any bounded number does
LOG_HUGE = 200.0  # of a rate that stands for an infinite one
WHOLE = "a frozen jump to anywhere moves all coordinates at once; use rates by coordinate"


class Finite(JumpingSpace):
    """Categories 0 ... size-1 in an array of the given shape; `size` may be one number per coordinate.

    `size` as an attribute is the largest of them: networks return that many logits, and entries beyond a
    coordinate's own size carry no mass.
    """

    def __init__(self, size: int | Sequence[int] | Tensor, shape: int | Sequence[int] | None = None):
        sizes = torch.as_tensor(size, device="cpu")
        if sizes.dtype.is_floating_point:
            raise TypeError(f"size = {size} is not a whole number of categories")
        super().__init__(tuple(sizes.shape) if shape is None else shape)
        if sizes.ndim and tuple(sizes.shape) != self.shape:
            raise ValueError(f"sizes have shape {tuple(sizes.shape)} but coordinates have shape {self.shape}")
        if int(sizes.min()) < 1:
            raise ValueError(f"a coordinate has {int(sizes.min())} categories; every coordinate needs at least one")
        self.size = int(sizes.max())
        self.sizes = None if bool((sizes == self.size).all()) else sizes.long()
        self._valid: dict[torch.device, Tensor] = {}

    @property
    def coordinate_sizes(self) -> list[int]:
        """How many categories each coordinate has, in the order of the flattened array."""
        return [self.size] * self.dimension if self.sizes is None else self.sizes.flatten().tolist()

    def check(self, x: AnyState, name: str = "x") -> Tensor:
        x = self.check_shape(x, name)
        if x.dtype not in INTEGERS:
            raise TypeError(f"{name} has dtype {x.dtype}, but categories are integers: pass {name}.long()")
        if unread(x, self):
            bad = (x < 0) | (x >= (self.size if self.sizes is None else self.sizes))
            if bool(bad.any()):
                i = bad.nonzero()[0].tolist()
                size = self.size if self.sizes is None else int(self.sizes[tuple(i[1:])])
                raise ValueError(
                    f"{name}{i} = {int(x[tuple(i)])} is no category of {size}: use 0 ... {size - 1}, or a larger size"
                )
        return x.long()

    @property
    def entries(self) -> int:
        return self.dimension * self.size

    def valid(self, device: torch.device | None = None) -> Bool[Tensor, "*shape size"] | None:
        """Which of the `size` entries are categories of each coordinate; None where all of them are."""
        if self.sizes is None:
            return None
        device = torch.device("cpu") if device is None else device
        found = self._valid.get(device)
        if found is None:  # moved to a device once: a copy makes the host wait
            found = self._valid[device] = (torch.arange(self.size) < self.sizes.unsqueeze(-1)).to(device)
        return found

    @property
    def each_size(self) -> list[int]:
        """The number of categories of every coordinate."""
        return [self.size] * self.dimension if self.sizes is None else self.sizes.flatten().tolist()

    @property
    def enumerable(self) -> bool:
        return True

    @property
    def count(self) -> int:
        return self.size**self.dimension if self.sizes is None else prod(self.sizes.flatten().tolist())

    def states(self) -> Int[Tensor, "count *shape"]:
        """Every point, in lexicographic order."""
        if self.count > ENUMERABLE:
            raise ValueError(
                f"{self} has about 10^{log10(self.count):.1f} points, too many to enumerate (at most {ENUMERABLE}): "
                f"draw instead, or use fewer coordinates"
            )
        if not self.each_size:
            return torch.arange(self.size)
        columns = torch.cartesian_prod(*[torch.arange(n) for n in self.each_size])
        return columns.reshape(-1, *self.shape)

    def code(self, x: Tensor) -> Int[Tensor, "batch"]:
        index = torch.zeros(len(x), dtype=torch.int64)
        for column, size in zip(flat(x).unbind(1), self.each_size or [self.size], strict=True):
            index = index * size + column
        return index

    def destinations(self, x: Tensor) -> Int[Tensor, "batch d size"]:
        """All categories; where a coordinate has fewer than `size`, its surplus entries repeat its last one."""
        category = torch.arange(self.size, device=x.device)
        if self.sizes is not None:
            category = torch.minimum(category, self.sizes.to(x.device).reshape(-1, 1) - 1)
        return category.expand(*x.shape, self.size)

    def inflow(self, own, x):
        into = own.gather(-1, x[:, :, None, None].expand(-1, -1, own.shape[-1], 1)).squeeze(-1)
        valid = self.valid(x.device)
        if valid is not None:  # nothing comes from the surplus rows
            into = torch.where(valid.flatten(0, -2), into, LOG_ZERO)
        return without_self(into, x)

    def away(self, log_rates, x):
        return without_self(log_rates, x)

    def freeze(self, local: Local, x: Tensor) -> Frozen:
        self.refuse_parts(local, jumps=WHOLE)
        return {"rates": self._rates(local).double().clamp_max(LOG_HUGE).exp()}

    def move(self, frozen: Frozen, local: Local, x: Tensor, h: Tensor, noise: NoiseSource) -> Tensor:
        return leap(x, frozen["rates"], h).draw(noise)

    def step_law(self, local: Local, x: Tensor, h: Tensor) -> Categorical:
        return leap(x, self.freeze(local, x)["rates"], h)

    def along(self, slope: Tensor, law: Law, x: Tensor, y: Tensor) -> Float[Tensor, "batch"]:
        """slope_y - sum_y q(y) slope_y for each coordinate, the slope to x itself being 0."""
        probs: Tensor = law.probs  # type: ignore[attr-defined]  # of `step_law`
        told = slope.clamp(-STEEP, STEEP).scatter(-1, x.unsqueeze(-1), 0.0)
        return sum_coordinates(told.gather(-1, y.unsqueeze(-1)).squeeze(-1) - (probs * told).sum(-1))

    def __repr__(self) -> str:
        size = self.size if self.sizes is None else self.sizes.tolist()
        return f"Finite({size}, {self.shape})"


def leap(x: Tensor, rates: Float[Tensor, "batch *shape size"], h: Tensor) -> Categorical:
    """Hold-then-leap over a time h."""
    rates = rates.scatter(-1, x.unsqueeze(-1), 0.0)  # an event that leads to the state itself changes nothing
    total = rates.sum(-1, keepdim=True)
    events = (h * total).clamp_max(-LOG_ZERO)
    moved = log_of(-torch.expm1(-events)) + log_of(rates) - log_of(total).clamp_min(-1e4)
    return Categorical(moved.clamp_min(LOG_ZERO).scatter(-1, x.unsqueeze(-1), -events))
