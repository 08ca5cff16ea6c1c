"""How the numbers that a decoder returns are a law of data: p(x | z), coordinate by coordinate.

    numbers      N(mean, std^2), both learned, or with a given std; the density
    levels       the mass that such a normal law puts on the bin of a level; the end bins are open
    categories   softmax of one number for each category
    counts       Poisson, its mean learned
    products     leaf by leaf

What suits a space is the open function `likelihood_of`: a space of one's own registers its answer,

    @un.latent.likelihood_of.register(MySpace)
    def _(space):
        return MyLaw(space)

a `DataLaw`, which also says how an encoder sees such data.  Of the learned deviation something is left, `LEAST`, however
sure a decoder is: a density of data that repeat themselves has no upper end, and a bound on it nothing to converge to.
"""

from functools import singledispatch
from math import log, prod

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.count_laws import Thinned
from unnoise.laws import LOG_ZERO, Categorical, Joint, Law, Normal, sum_coordinates
from unnoise.networks.embedding import fourier_of_value
from unnoise.noise import NoiseSource
from unnoise.objectives.decoders import log_mass_of_levels
from unnoise.shapes import AnyState, Float, Tree
from unnoise.spaces import Counts, Euclidean, Finite, Space, Torus
from unnoise.spaces.product import ProductSpace

LEAST = 1e-3  # of a learned standard deviation
WAVES = 3  # of each number that an encoder sees


class DataLaw:
    """`coordinates` of a point, `entries` numbers for each of them, and `embed`, a part of an encoder."""

    shape: tuple[int, ...]
    entries: int

    @property
    def coordinates(self) -> int:
        return prod(self.shape)

    @property
    def numbers(self) -> int:
        """How many numbers a decoder returns for a point."""
        return self.coordinates * self.entries

    def law(self, numbers: Float[Tensor, "batch numbers"]) -> Law:
        raise NotImplementedError(f"{type(self).__name__} does not say which law numbers are: write law(numbers)")

    def embed(self, width: int) -> nn.Module:
        """A module that makes of data [batch, *shape] vectors [batch, *shape, width]."""
        raise NotImplementedError(f"{type(self).__name__} does not say how an encoder sees data: write embed(width)")

    def mean(self, law: Law) -> Tensor | None:
        """The mean of such a law, where data are numbers."""
        return None

    def parted(self, numbers: Tensor) -> Float[Tensor, "batch *shape entries"]:
        return numbers.reshape(len(numbers), *self.shape, self.entries)


class _SeenNumbers(nn.Module):
    def __init__(self, width: int, counts: bool = False):
        super().__init__()
        self.counts, self.inward = counts, nn.Linear(1 + 2 * WAVES, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x.to(self.inward.weight.dtype)
        return self.inward(fourier_of_value(x.log1p() if self.counts else x, WAVES))


def deviation(raw: Tensor) -> Tensor:
    """A learned standard deviation: 1 where the number is 0."""
    return LEAST + (1 - LEAST) * F.softplus(raw + 0.5413248546129181)  # softplus of this is 1


class NumbersLaw(DataLaw):
    def __init__(self, shape: tuple[int, ...], std: float | None = None):
        self.shape, self.std, self.entries = tuple(shape), std, 2 if std is None else 1

    def law(self, numbers: Tensor) -> Law:
        own = self.parted(numbers)
        mean = own[..., 0]
        return Normal(mean, torch.full_like(mean, self.std) if self.std is not None else deviation(own[..., 1]))

    def embed(self, width: int) -> nn.Module:
        return _SeenNumbers(width)

    def mean(self, law: Law) -> Tensor | None:
        return law.mean if isinstance(law, Normal) else None


class LevelsNormal(Law):
    """A normal law rounded to `levels` levels from `low` to `high`, the end bins open: its mass."""

    def __init__(self, mean: Tensor, std: Tensor, levels: int, low: float, high: float):
        self.mean, self.std, self.levels, self.low, self.high = mean, std, levels, low, high
        self.step = (high - low) / (levels - 1)

    def each(self, x: Tensor) -> Tensor:  # type: ignore[override]
        level = ((x.double() - self.low) / self.step).round()
        return log_mass_of_levels(level, self.mean.double(), self.std.double(), self.levels, self.low, self.step)

    def log_prob(self, x: AnyState) -> Float[Tensor, "batch"]:
        assert isinstance(x, Tensor)
        return sum_coordinates(self.each(x))

    def kl(self, other: Law) -> Float[Tensor, "batch"]:
        raise TypeError(f"the divergence of levels from a {type(other).__name__} has no closed form here")

    def draw(self, noise: NoiseSource) -> Tensor:
        drawn = Normal(self.mean, self.std).draw(noise)
        return ((drawn - self.low) / self.step).round().clamp(0, self.levels - 1) * self.step + self.low


class LevelsLaw(DataLaw):
    entries = 2

    def __init__(self, shape: tuple[int, ...], levels: int, low: float, high: float):
        self.shape, self.levels, self.low, self.high = tuple(shape), levels, low, high

    def law(self, numbers: Tensor) -> Law:
        own = self.parted(numbers)
        return LevelsNormal(own[..., 0], deviation(own[..., 1]), self.levels, self.low, self.high)

    def embed(self, width: int) -> nn.Module:
        return _SeenNumbers(width)

    def mean(self, law: Law) -> Tensor | None:
        return law.mean if isinstance(law, LevelsNormal) else None


class CategoriesLaw(DataLaw):
    def __init__(self, space: Finite):
        self.space, self.shape, self.entries = space, space.shape, space.size

    def law(self, numbers: Tensor) -> Law:
        own = self.parted(numbers)
        valid = self.space.valid(own.device)
        return Categorical.normalised(own if valid is None else own.masked_fill(~valid, LOG_ZERO))

    def embed(self, width: int) -> nn.Module:
        return nn.Embedding(self.entries, width)


class CountsLaw(DataLaw):
    entries = 1

    def __init__(self, shape: tuple[int, ...]):
        self.shape = tuple(shape)

    def law(self, numbers: Tensor) -> Law:
        mean = F.softplus(self.parted(numbers)[..., 0].double() + log(torch.e - 1)) + LEAST
        return Thinned(torch.zeros_like(mean, dtype=torch.int64), mean=mean)

    def embed(self, width: int) -> nn.Module:
        return _SeenNumbers(width, counts=True)


class _SeenLeaves(nn.Module):
    def __init__(self, parts: dict[str, nn.Module]):
        super().__init__()
        self.names = list(parts)
        self.parts = nn.ModuleList(parts.values())

    def forward(self, x: Tree) -> Tensor:
        assert isinstance(x, dict)
        seen = [part(x[name]) for name, part in zip(self.names, self.parts, strict=True)]
        return torch.cat([one.reshape(len(one), -1, one.shape[-1]) for one in seen], 1)


class LeavesLaw(DataLaw):
    """Of a product: its coordinates in a row, leaf by leaf."""

    entries = 0  # not one number for all

    def __init__(self, parts: dict[str, DataLaw]):
        self.parts = parts
        self.shape = (sum(part.coordinates for part in parts.values()),)

    @property
    def numbers(self) -> int:
        return sum(part.numbers for part in self.parts.values())

    def law(self, numbers: Tensor) -> Law:
        own = numbers.split([part.numbers for part in self.parts.values()], 1)
        return Joint({name: part.law(piece) for (name, part), piece in zip(self.parts.items(), own, strict=True)})

    def embed(self, width: int) -> nn.Module:
        return _SeenLeaves({name: part.embed(width) for name, part in self.parts.items()})


@singledispatch
def likelihood_of(space: Space) -> DataLaw:
    """The law of data that suits a space."""
    kind = type(space).__name__
    raise TypeError(
        f"no law of data given latent states is known for {kind}: pass law=..., or register one for the class, "
        f"@un.latent.likelihood_of.register({kind})"
    )


@likelihood_of.register
def _(space: Euclidean) -> DataLaw:
    return NumbersLaw(space.shape)


@likelihood_of.register
def _(space: Torus) -> DataLaw:
    raise TypeError(f"{space} closes on itself, and a normal law does not: pass law=..., a law on it")


@likelihood_of.register
def _(space: Finite) -> DataLaw:
    return CategoriesLaw(space)


@likelihood_of.register
def _(space: Counts) -> DataLaw:
    return CountsLaw(space.shape)


@likelihood_of.register
def _(space: ProductSpace) -> DataLaw:
    return LeavesLaw({name: likelihood_of(leaf) for name, leaf in space.leaves.items()})
