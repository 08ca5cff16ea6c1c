"""What a network is told beside the state and the time: labels, numbers, vectors, images, each by its name.

Every condition becomes a vector of one width, and their sum joins the embedding of the time, or, where there is none, the
tokens:

    categories   a row of a table for each; the table has one row more, for nothing, -1
    numbers      by waves if they are few, and as they are; each with a mark of its own where it is nothing, NaN; then a
                 small perceptron

All of it is 0 at first, and its weights are drawn aside: an untrained network answers as the same without conditions.
What a network is told nothing of, such as a name left out of the call, is nothing.

A source sequence, `ConditionInput(name="source", size=K, shape=[length], sequence=True)`, is no vector but tokens, that
stand before those of the state and are attended to (`SequenceTransformer`); shorter ones are filled up with nothing, -1.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from unnoise.checks import may_read
from unnoise.networks.base import require
from unnoise.networks.embedding import fourier_of_value, looked_up, zeroed
from unnoise.shapes import Float

WAVES, FEW = 3, 64  # waves of a number, where there are at most so many


@dataclass(kw_only=True)
class ConditionInput:
    """One condition: its name, and what a row of it is."""

    name: str
    size: int = 0  # categories; 0: numbers
    shape: Sequence[int] = ()
    sequence: bool = False  # whether it is tokens of their own beside those of the state

    def __post_init__(self) -> None:
        require(
            not self.sequence or (self.size > 0 and len(self.shape) == 1),
            f"the condition {self.name!r} is a sequence: it has categories along one axis, size=K and shape=[length]",
        )
        require(self.size >= 0, f"size = {self.size} of the condition {self.name!r}: categories are counted, numbers have 0")

    @property
    def entries(self) -> int:
        return prod(self.shape)


def conditions_of(said: Sequence[Any]) -> list[ConditionInput]:
    """Conditions from themselves, or from dicts of their fields, as JSON holds them."""
    own = [ConditionInput(**one) if isinstance(one, Mapping) else one for one in said]
    names = [one.name for one in own]
    require(len(set(names)) == len(names), f"conditions = {names}: each has a name of its own")
    return own


def _check_categories(told: ConditionInput, value: Tensor) -> None:
    if value.dtype.is_floating_point:
        raise TypeError(f"the condition {told.name!r} is of {value.dtype}: categories are whole numbers, and -1 is nothing")
    if may_read(value) and bool((value >= told.size).any()):
        raise ValueError(f"the condition {told.name!r} holds {int(value.max())}: its categories are 0 ... {told.size - 1}")


class _ToldCategories(nn.Module):
    offset: Tensor

    def __init__(self, told: ConditionInput, width: int):
        super().__init__()
        self.told = told
        self.table = nn.Embedding(told.entries * (told.size + 1), width)
        nn.init.zeros_(self.table.weight)
        self.register_buffer("offset", torch.arange(told.entries) * (told.size + 1), persistent=False)

    def nothing(self, rows: int) -> Tensor:
        return torch.full((rows, *self.told.shape), -1, device=self.offset.device)

    def forward(self, value: Tensor) -> Float[Tensor, "batch width"]:
        told = self.told
        _check_categories(told, value)
        index = torch.where(value < 0, told.size, value).reshape(len(value), -1) + self.offset
        return looked_up(self.table, index).sum(1)


class _ToldNumbers(nn.Module):
    def __init__(self, told: ConditionInput, width: int):
        super().__init__()
        self.told, self.waves = told, WAVES if told.entries <= FEW else 0
        self.first = nn.Linear(told.entries * (2 + 2 * self.waves), width)
        self.second = zeroed(nn.Linear(width, width))

    def nothing(self, rows: int) -> Tensor:
        return torch.full((rows, *self.told.shape), float("nan"), device=self.first.weight.device)

    def forward(self, value: Tensor) -> Float[Tensor, "batch width"]:
        if not value.dtype.is_floating_point:
            raise TypeError(f"the condition {self.told.name!r} is of {value.dtype}: it is of numbers, and NaN is nothing")
        flat = value.reshape(len(value), -1).to(self.first.weight.dtype)
        gone = flat.isnan()
        seen = fourier_of_value(torch.where(gone, 0.0, flat), self.waves)
        seen = torch.cat([seen.masked_fill(gone.unsqueeze(-1), 0.0), gone.unsqueeze(-1).to(seen.dtype)], -1)
        return self.second(F.silu(self.first(seen.flatten(1))))


class SourceTokens(nn.Module):
    """`forward(condition, rows)`: the tokens of all source sequences, one after another."""

    def __init__(self, sources: Sequence[ConditionInput], width: int):
        super().__init__()
        self.sources = list(sources)
        self.tables = nn.ModuleList(nn.Embedding(one.size + 1, width) for one in sources)
        self.places = nn.ParameterList(0.5 * torch.randn(one.shape[0], width) for one in sources)
        for table in self.tables:
            nn.init.normal_(table.weight, std=0.5)  # type: ignore[arg-type]

    def forward(self, condition: Mapping[str, Any], rows: int) -> Float[Tensor, "rows tokens width"]:
        found = []
        for one, table, place in zip(self.sources, self.tables, self.places, strict=True):
            expected = (rows, *one.shape)
            value = condition.get(one.name)
            value = torch.full(expected, -1, device=place.device) if value is None else value
            if tuple(value.shape) != expected:
                raise ValueError(f"the condition {one.name!r} has shape {tuple(value.shape)}; this network takes {expected}")
            _check_categories(one, value)
            found.append(looked_up(table, torch.where(value < 0, one.size, value)) + place)  # type: ignore[arg-type]
        return torch.cat(found, 1)


def source_tokens(conditions: Sequence[ConditionInput], width: int) -> SourceTokens | None:
    """None where no condition is a sequence.  Drawn aside, as `told_embedding`."""
    sources = [one for one in conditions if one.sequence]
    if not sources:
        return None
    with torch.random.fork_rng(devices=[]):
        return SourceTokens(sources, width)


class ToldEmbedding(nn.Module):
    """`forward(condition, rows)`: what is told of so many rows as one vector each, the sum of those of all conditions."""

    def __init__(self, conditions: Sequence[ConditionInput], width: int):
        super().__init__()
        kinds = [_ToldCategories if told.size else _ToldNumbers for told in conditions]
        self.names, self.shapes = [told.name for told in conditions], [tuple(told.shape) for told in conditions]
        self.parts = nn.ModuleList(kind(told, width) for kind, told in zip(kinds, conditions, strict=True))

    def forward(self, condition: Mapping[str, Any], rows: int) -> Float[Tensor, "rows width"]:
        refuse_others(condition, self.names)
        found = []
        for name, shape, part in zip(self.names, self.shapes, self.parts, strict=True):
            value = condition[name] if name in condition else part.nothing(rows)  # type: ignore[operator]
            expected = (rows, *shape)
            if tuple(value.shape) != expected:
                raise ValueError(f"the condition {name!r} has shape {tuple(value.shape)}; this network takes {expected}")
            found.append(part(value))
        return torch.stack(found).sum(0)


def told_embedding(conditions: Sequence[ConditionInput], width: int) -> ToldEmbedding | None:
    """None where there are no conditions.  Drawn aside: other weights are what they would be without."""
    if sources := [one.name for one in conditions if one.sequence]:
        raise ValueError(
            f"the condition {sources[0]!r} is a sequence, which SequenceTransformer alone is told: leave sequence out"
        )
    if not conditions:
        return None
    with torch.random.fork_rng(devices=[]):
        return ToldEmbedding(conditions, width)


def hear(embedding: ToldEmbedding | None, condition: Mapping[str, Any], rows: int) -> Float[Tensor, "rows width"] | None:
    """What a network is told, as a vector for each row; of one that takes no conditions, None."""
    if embedding is None:
        refuse_others(condition, [])
        return None
    return embedding(condition, rows)


def refuse_others(condition: Mapping[str, Any], names: Sequence[str]) -> None:
    if others := [name for name in condition if name not in names]:
        takes = f"it is told {', '.join(names)}" if names else "it takes no conditions: build it with conditions=[...]"
        raise ValueError(f"this network is told nothing of the name {others[0]!r}: {takes}")
