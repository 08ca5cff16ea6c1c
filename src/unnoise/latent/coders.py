"""Networks to latent states and back, for any data: small ones, in three sizes.

A latent state has *places*, and some numbers at each.  An encoder makes numbers [batch, places, out] of data, a decoder the
numbers of a law of data (`data_laws`) of numbers [batch, places, in]:

    Arrays      [height, width] or [channels, height, width]: convolutions, each side halved `halvings` times
    Sequences   categories of one size in a row: attention, `patch` neighbours to a place
    Columns     anything else, leaf by leaf, columns of tables say: a perceptron; as many places as wanted

Which of them suits a space is the open function `coders_for`, which a space of one's own may register an answer with.
"""

from dataclasses import dataclass
from functools import singledispatch
from math import prod

import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.latent.data_laws import DataLaw
from unnoise.networks.blocks import Block, GatedPerceptron, RMSNorm, rotations
from unnoise.networks.embedding import rms_norm, zeroed
from unnoise.shapes import Float, Tree
from unnoise.spaces import Euclidean, Finite, Space

SHORTEST_SIDE = 4  # of an array that convolutions suit, and of one that is halved once more
GROUPS = 8
SIZES: dict[str, dict[str, int]] = {  # channels of convolutions, width of the rest, blocks of each
    "tiny": {"channels": 16, "width": 64, "blocks": 1},
    "small": {"channels": 64, "width": 256, "blocks": 2},
    "base": {"channels": 128, "width": 512, "blocks": 3},
}


@dataclass(frozen=True, kw_only=True)
class Coders:
    """How data of a law are coded: a subclass says `places`, `encoder` and `decoder`."""

    data: DataLaw
    size: str = "tiny"
    wanted: int = 1  # places, where the data do not say
    patch: int = 2  # neighbours of a sequence at one place

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"preset = {self.size!r}: choose from {', '.join(SIZES)}")
        if self.patch < 1 or self.wanted < 1:
            raise ValueError(f"patch = {self.patch}, places = {self.wanted}: each is at least 1")

    @property
    def places(self) -> tuple[int, ...]:
        """The shape that places lie in; () where there is one."""
        raise NotImplementedError

    def encoder(self, out: int) -> nn.Module:
        raise NotImplementedError

    def decoder(self, given: int) -> nn.Module:
        raise NotImplementedError

    def of_size(self, name: str) -> int:
        return SIZES[self.size][name]


# -- arrays


class _Convolutions(nn.Module):
    def __init__(self, channels: int):
        super().__init__()
        self.first, self.second = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.first_norm, self.second_norm = (nn.GroupNorm(GROUPS, channels) for _ in range(2))

    def forward(self, h: Tensor) -> Tensor:
        out = self.first(F.silu(self.first_norm(h)))
        return h + self.second(F.silu(self.second_norm(out)))


class ArrayEncoder(nn.Module):
    def __init__(self, data: DataLaw, out: int, channels: int, blocks: int, halvings: int):
        super().__init__()
        self.planes = 1 if len(data.shape) == 2 else data.shape[0]
        own = max(4, channels // self.planes)
        self.embed, self.inward = data.embed(own), nn.Conv2d(own * self.planes, channels, 3, padding=1)
        body: list[nn.Module] = []
        for i in range(halvings + 1):
            body += [_Convolutions(channels) for _ in range(blocks)]
            if i < halvings:
                body.append(nn.Conv2d(channels, 2 * channels, 3, stride=2, padding=1))
                channels *= 2
        self.body = nn.Sequential(*body, nn.GroupNorm(GROUPS, channels), nn.SiLU())
        self.out = nn.Conv2d(channels, out, 1)

    def forward(self, x: Tensor) -> Float[Tensor, "batch places out"]:
        seen = self.embed(x).reshape(len(x), self.planes, *x.shape[-2:], -1).permute(0, 1, 4, 2, 3).flatten(1, 2)
        return self.out(self.body(self.inward(seen))).flatten(2).transpose(1, 2)


class ArrayDecoder(nn.Module):
    def __init__(self, data: DataLaw, given: int, channels: int, blocks: int, sides: list[tuple[int, int]]):
        """`sides`: of the array and of each halving of it."""
        super().__init__()
        self.data, self.sides = data, sides
        channels *= 2 ** (len(sides) - 1)
        self.inward = nn.Conv2d(given, channels, 3, padding=1)
        parts, joins = nn.ModuleList(), nn.ModuleList()
        for i in range(len(sides)):
            parts.append(nn.Sequential(*[_Convolutions(channels) for _ in range(blocks)]))
            if i + 1 < len(sides):
                joins.append(nn.Conv2d(channels, channels // 2, 3, padding=1))
                channels //= 2
        self.parts, self.joins, self.norm = parts, joins, nn.GroupNorm(GROUPS, channels)
        planes = 1 if len(data.shape) == 2 else data.shape[0]
        self.out = zeroed_convolution(nn.Conv2d(channels, planes * data.entries, 3, padding=1))

    def forward(self, z: Float[Tensor, "batch places given"]) -> Float[Tensor, "batch *shape entries"]:
        h = self.inward(z.transpose(1, 2).reshape(len(z), -1, *self.sides[-1]))
        for i, part in enumerate(self.parts):
            if i:
                height, width = self.sides[-1 - i]
                h = self.joins[i - 1](F.interpolate(h, scale_factor=2, mode="nearest")[..., :height, :width])
            h = part(h)
        out = self.out(F.silu(self.norm(h)))
        return out.reshape(len(z), -1, self.data.entries, *out.shape[-2:]).movedim(2, -1)


def zeroed_convolution(layer: nn.Conv2d) -> nn.Conv2d:
    nn.init.zeros_(layer.weight)
    if layer.bias is not None:
        nn.init.zeros_(layer.bias)
    return layer


@dataclass(frozen=True, kw_only=True)
class ArrayCoders(Coders):
    @property
    def sides(self) -> list[tuple[int, int]]:
        """Of the array and of each halving: twice, as long as `SHORTEST_SIDE` is left."""
        height, width = self.data.shape[-2:]
        found = [(height, width)]
        while len(found) < 3 and min(found[-1]) >= 2 * SHORTEST_SIDE - 1:
            found.append((-(-found[-1][0] // 2), -(-found[-1][1] // 2)))
        return found

    @property
    def places(self) -> tuple[int, ...]:
        return self.sides[-1]

    def encoder(self, out: int) -> nn.Module:
        return ArrayEncoder(self.data, out, self.of_size("channels"), self.of_size("blocks"), len(self.sides) - 1)

    def decoder(self, given: int) -> nn.Module:
        return ArrayDecoder(self.data, given, self.of_size("channels"), self.of_size("blocks"), self.sides)


# -- sequences


class _Attended(nn.Module):
    """Blocks of attention over positions that are rotated."""

    def __init__(self, width: int, blocks: int):
        super().__init__()
        self.heads, self.width = max(2, width // 64), width
        self.blocks = nn.ModuleList(Block(width, self.heads, blocks, reach=2) for _ in range(blocks))
        self.norm = RMSNorm(width)

    def forward(self, h: Float[Tensor, "batch length width"]) -> Float[Tensor, "batch length width"]:
        by = rotations(h.shape[1], self.width // self.heads, h.device)
        by = (by[0].to(h.dtype), by[1].to(h.dtype))
        for block in self.blocks:
            h = block(h, by=by)
        return self.norm(h)


class SequenceEncoder(nn.Module):
    def __init__(self, data: DataLaw, out: int, width: int, blocks: int, patch: int):
        super().__init__()
        self.patch, self.embed, self.body = patch, data.embed(width), _Attended(width, blocks)
        self.out = nn.Linear(patch * width, out)

    def forward(self, x: Tensor) -> Float[Tensor, "batch places out"]:
        h = self.embed(x)
        h = self.body(F.pad(h, (0, 0, 0, -x.shape[1] % self.patch)))  # what is past the end is zero
        return self.out(h.reshape(len(x), -1, self.patch * h.shape[-1]))


class SequenceDecoder(nn.Module):
    def __init__(self, data: DataLaw, given: int, width: int, blocks: int, patch: int):
        super().__init__()
        self.length, self.patch, self.body = data.coordinates, patch, _Attended(width, blocks)
        self.inward, self.out = nn.Linear(given, patch * width), zeroed(nn.Linear(width, data.entries))

    def forward(self, z: Float[Tensor, "batch places given"]) -> Float[Tensor, "batch length entries"]:
        h = self.inward(z)
        return self.out(self.body(h.reshape(len(z), -1, h.shape[-1] // self.patch)))[:, : self.length]


@dataclass(frozen=True, kw_only=True)
class SequenceCoders(Coders):
    @property
    def places(self) -> tuple[int, ...]:
        return (-(-self.data.coordinates // self.patch),)

    def encoder(self, out: int) -> nn.Module:
        return SequenceEncoder(self.data, out, self.of_size("width"), self.of_size("blocks"), self.patch)

    def decoder(self, given: int) -> nn.Module:
        return SequenceDecoder(self.data, given, self.of_size("width"), self.of_size("blocks"), self.patch)


# -- columns


class _Perceptrons(nn.Module):
    def __init__(self, width: int, blocks: int):
        super().__init__()
        self.layers = nn.ModuleList(GatedPerceptron(width) for _ in range(blocks + 1))

    def forward(self, h: Tensor) -> Tensor:
        for layer in self.layers:
            h = h + layer(rms_norm(h))
        return rms_norm(h)


class ColumnEncoder(nn.Module):
    def __init__(self, data: DataLaw, out: int, width: int, blocks: int, places: int, seen: int = 8):
        super().__init__()
        self.places, self.embed = places, data.embed(seen)
        self.inward, self.body = nn.Linear(data.coordinates * seen, width), _Perceptrons(width, blocks)
        self.out = nn.Linear(width, places * out)

    def forward(self, x: Tree) -> Float[Tensor, "batch places out"]:
        h = self.body(self.inward(self.embed(x).flatten(1)))
        return self.out(h).reshape(len(h), self.places, -1)


class ColumnDecoder(nn.Module):
    def __init__(self, data: DataLaw, given: int, width: int, blocks: int, places: int):
        super().__init__()
        self.inward, self.body = nn.Linear(places * given, width), _Perceptrons(width, blocks)
        self.out = zeroed(nn.Linear(width, data.numbers))

    def forward(self, z: Float[Tensor, "batch places given"]) -> Float[Tensor, "batch numbers"]:
        return self.out(self.body(self.inward(z.flatten(1))))


@dataclass(frozen=True, kw_only=True)
class ColumnCoders(Coders):
    @property
    def places(self) -> tuple[int, ...]:
        return () if self.wanted == 1 else (self.wanted,)

    def encoder(self, out: int) -> nn.Module:
        places = prod(self.places)
        return ColumnEncoder(self.data, out, self.of_size("width"), self.of_size("blocks"), places)

    def decoder(self, given: int) -> nn.Module:
        places = prod(self.places)
        return ColumnDecoder(self.data, given, self.of_size("width"), self.of_size("blocks"), places)


def _is_array(shape: tuple[int, ...]) -> bool:
    return len(shape) in (2, 3) and min(shape[-2:]) >= SHORTEST_SIDE


@singledispatch
def coders_for(space: Space) -> type[Coders]:
    """The class of networks that suits a space; open: `@coders_for.register(MySpace)`."""
    return ColumnCoders


@coders_for.register
def _(space: Euclidean) -> type[Coders]:
    return ArrayCoders if _is_array(space.shape) else ColumnCoders


@coders_for.register
def _(space: Finite) -> type[Coders]:
    if _is_array(space.shape):
        return ArrayCoders
    return SequenceCoders if len(space.shape) == 1 and space.sizes is None else ColumnCoders


class ToLatent(nn.Module):
    """An encoder's numbers [batch, places, entries channels] as [batch, *shape, entries], channels first in an array."""

    def __init__(self, encoder: nn.Module, places: tuple[int, ...], channels: int, entries: int):
        super().__init__()
        self.encoder, self.places, self.channels, self.entries = encoder, places, channels, entries

    def forward(self, x: Tree) -> Float[Tensor, "batch *shape entries"]:
        out = self.encoder(x)
        out = out.reshape(len(out), *self.places, self.channels, self.entries)
        return out.movedim(-2, 1) if len(self.places) == 2 else out


class FromLatent(nn.Module):
    """A decoder of numbers [batch, places, channels], asked at [batch, *shape]."""

    def __init__(self, decoder: nn.Module, places: tuple[int, ...]):
        super().__init__()
        self.decoder, self.places = decoder, places

    def forward(self, z: Float[Tensor, "batch *shape"]) -> Tensor:
        z = z.movedim(1, -1) if len(self.places) == 2 else z
        return self.decoder(z.reshape(len(z), prod(self.places), z.shape[-1]))


def latent_shape(places: tuple[int, ...], channels: int) -> tuple[int, ...]:
    return (channels, *places) if len(places) == 2 else (*places, channels)


__all__ = ["SIZES", "Coders", "FromLatent", "ToLatent", "coders_for", "latent_shape"]
