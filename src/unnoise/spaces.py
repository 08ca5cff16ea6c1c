"""Where x lives.  A space checks a batch and says its dimension.

`Euclidean(shape)` holds numbers, `Finite(size, shape)` categories (one size for all coordinates, or one per
coordinate), `Counts(shape)` counts 0, 1, 2, ... without end, `Product(a=..., b=...)` a dict of these, nested to any depth.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import log10, prod

import torch
from torch import Tensor

from unnoise.checks import fits, may_read, unread, within
from unnoise.shapes import Bool, Int, Tree
from unnoise.tree import batch_size

ENUMERABLE = 100_000  # states of a space that `states()` agrees to list
LARGEST = torch.finfo(torch.float64).max
INTEGERS = (torch.int64, torch.int32, torch.int16, torch.uint8, torch.int8)


class Space(ABC):
    """A state space.  `check` returns the batch it was given, or raises an error that names value and remedy."""

    @property
    @abstractmethod
    def dimension(self) -> int:
        """How many coordinates a point has."""

    @abstractmethod
    def check(self, x: Tree, name: str = "x") -> Tree: ...


class _Array(Space):
    def __init__(self, shape: int | Sequence[int] = ()):
        self.shape = (shape,) if isinstance(shape, int) else tuple(shape)
        if any(n < 1 for n in self.shape):
            raise ValueError(f"shape {self.shape} has an entry below 1")

    @property
    def dimension(self) -> int:
        return prod(self.shape)

    def _check_shape(self, x: Tree, name: str) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(f"{name} is a {type(x).__name__}, not a tensor: pass torch.as_tensor({name})")
        if tuple(x.shape[1:]) != self.shape or x.ndim != 1 + len(self.shape):
            expected = ", ".join(["batch", *map(str, self.shape)])
            raise ValueError(f"{name} has shape {tuple(x.shape)}; expected ({expected})")
        return x


class Euclidean(_Array):
    """Real numbers in an array of the given shape."""

    def check(self, x: Tree, name: str = "x") -> Tree:
        x = self._check_shape(x, name)
        if not x.dtype.is_floating_point:
            raise TypeError(f"{name} has dtype {x.dtype}, but a Euclidean space holds floats: pass {name}.float()")
        if unread(x, self) and not within(x, -LARGEST, LARGEST):
            i = (~x.isfinite()).nonzero()[0].tolist()
            raise ValueError(f"{name}{i} is {x[tuple(i)].item()}; drop or impute non-finite values first")
        return x

    def __repr__(self) -> str:
        return f"Euclidean({self.shape})"


class Finite(_Array):
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

    def check(self, x: Tree, name: str = "x") -> Tree:
        x = self._check_shape(x, name)
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
    def count(self) -> int:
        """How many points the space has."""
        return self.size**self.dimension if self.sizes is None else prod(self.sizes.flatten().tolist())

    def states(self) -> Int[Tensor, "count *shape"]:
        """Every point, in lexicographic order."""
        if self.count > ENUMERABLE:
            raise ValueError(
                f"{self} has about 10^{log10(self.count):.1f} points, too many to enumerate (at most {ENUMERABLE}): "
                f"draw instead, or use fewer coordinates"
            )
        sizes = [self.size] * self.dimension if self.sizes is None else self.sizes.flatten().tolist()
        if not sizes:
            return torch.arange(self.size)
        columns = torch.cartesian_prod(*[torch.arange(n) for n in sizes])
        return columns.reshape(-1, *self.shape)

    def __repr__(self) -> str:
        size = self.size if self.sizes is None else self.sizes.tolist()
        return f"Finite({size}, {self.shape})"


class Counts(_Array):
    """Whole numbers 0, 1, 2, ... without end, in an array of the given shape."""

    def check(self, x: Tree, name: str = "x") -> Tree:
        x = self._check_shape(x, name)
        if x.dtype not in INTEGERS:
            raise TypeError(f"{name} has dtype {x.dtype}, but counts are whole numbers: pass {name}.round().long()")
        if may_read(x) and bool((x < 0).any()):
            i = (x < 0).nonzero()[0].tolist()
            raise ValueError(f"{name}{i} = {int(x[tuple(i)])} is no count: use 0, 1, 2, ...; shift or drop negative values")
        return x.long()

    def __repr__(self) -> str:
        return f"Counts({self.shape})"


class ProductSpace(Space):
    """A dict of spaces; a point is a dict with one entry per leaf."""

    def __init__(self, **leaves: Space):
        if not leaves:
            raise ValueError("a product needs at least one leaf")
        self.leaves = leaves

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.leaves)

    @property
    def dimension(self) -> int:
        return sum(space.dimension for space in self.leaves.values())

    def check(self, x: Tree, name: str = "x") -> Tree:
        fits(x, self.names, name)
        checked = {key: space.check(x[key], f"{name}['{key}']") for key, space in self.leaves.items()}
        rows = {key: batch_size(value) for key, value in checked.items()}
        if len(set(rows.values())) > 1:
            raise ValueError(f"the leaves of {name} differ in rows: {rows}")
        return checked

    def __repr__(self) -> str:
        return f"Product({', '.join(f'{k}={v}' for k, v in self.leaves.items())})"
