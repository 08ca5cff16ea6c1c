"""What a network is told while it trains, and while samples are drawn.

In training all conditions of a row are left out with probability `drop`, so that the network also learns the law of the data
by themselves.  Where there are several, in as large a further share of the rows each is left out by a fair coin, and one at
least is told: so some may be given without the others.  Which, is a function of the row's noise.

Samples are drawn under the conditions that are given; where none is, under those of rows that were trained on, each as
likely as any other, so that samples with their conditions have the law of the data.  These are kept with the run.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from unnoise.conditions import Condition, unknown
from unnoise.data.base import BadData, Format
from unnoise.data.conditional import DATA, TOLD, Conditional
from unnoise.data.conditions import COLUMNS
from unnoise.distillation import Distillation
from unnoise.noise import NoiseSource
from unnoise.objectives import Objective, Terms
from unnoise.shapes import Bool, Int, Tree
from unnoise.training.tensor_files import read_tensors, write_tensors
from unnoise.tree import leaves, map_leaves
from unnoise.tree import rows as some_rows

FILE = "conditions.safetensors"  # in the run's folder
MOST_KEPT = 100_000  # rows whose conditions are kept


class ToldObjective(nn.Module):
    """An objective on rows of data with conditions: `forward(rows, noise)`."""

    def __init__(self, objective: Objective | Distillation, format: Format, drop: float = 0.0):
        super().__init__()
        self.objective, self.format, self.drop = objective, format, drop

    @property
    def denoiser(self) -> Any:
        return self.objective.denoiser

    @property
    def phase(self) -> int:
        return cast(int, self.objective.phase)

    def begin(self, done: float) -> None:
        self.objective.begin(done)

    def forward(self, rows: Tree, noise: NoiseSource | None = None, condition: Condition | None = None) -> Terms:
        x0, told = self.format.apart(rows)
        if self.drop and noise is not None:
            told = dropped(told, self.format.told_together(), self.drop, noise)
        return self.objective(x0, noise, told)


def told_objective(objective: Objective | Distillation, format: Format | None, drop: float = 0.0) -> Any:
    """The objective itself, where the format's network is told nothing."""
    return objective if format is None or not format.inputs() else ToldObjective(objective, format, drop)


def dropped(condition: Mapping[str, Tensor], groups: list[list[str]], drop: float, noise: NoiseSource) -> dict[str, Tensor]:
    """The conditions with some left out; those of a group are told together or not at all."""
    gone = left_out(len(groups), drop, noise)
    told = dict(condition)
    for j, names in enumerate(groups):
        for name in names:
            own, nothing = condition[name], unknown({name: condition[name]})[name]
            told[name] = torch.where(gone[:, j].reshape(-1, *[1] * (own.ndim - 1)), nothing, own)
    return told


def left_out(groups: int, drop: float, noise: NoiseSource) -> Bool[Tensor, "rows groups"]:
    u = noise.at("left out").uniform((groups + 2,))
    every, some = u[:, :1] < drop, u[:, :1] < min(1.0, 2 * drop) if groups > 1 else u[:, :1] < 0
    coins = (u[:, 2:] < 0.5).scatter(1, (u[:, 1:2] * groups).long(), False)
    return every | (some & coins)


class Telling:
    """The conditions of samples of a run: `kept` are those of rows that it was trained on."""

    def __init__(self, format: Conditional, kept: Tree, drop: float):
        self.format, self.kept, self.drop = format, kept, drop

    def split(self, given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        """Values by name as those of conditions, and those of what is modelled."""
        names = self.format.told.names
        own = {name: value for name, value in given.items() if name in names}
        rest = {name: value for name, value in given.items() if name not in names}
        known = self.format.names or names
        if strange := [name for name in rest if name not in known]:
            raise BadData(f"given {strange[0]}={rest[strange[0]]}: there is no such column: use one of {known}")
        missing = [name for name in names if name not in own]
        if own and missing and not self.drop:
            raise BadData(
                f"given {', '.join(own)} without {', '.join(missing)}: this model was trained with drop = 0, and knows its "
                f"conditions all together only: give all of them, or train with --drop 0.1"
            )
        return own, rest

    def states(self, numbers: Int[Tensor, "rows"], seed: int, given: Mapping[str, Any]) -> Tree:
        """What is told of the samples of these numbers: the same of all where it is given."""
        if given:
            one = self.format.told.given(given)
            return map_leaves(lambda leaf: leaf.expand(len(numbers), *leaf.shape[1:]), one)  # type: ignore[arg-type]
        count = len(leaves(self.kept)[0])
        chosen = (NoiseSource(seed, numbers).at("conditions").uniform() * count).long()
        return some_rows(self.kept, chosen)

    def condition(self, states: Any) -> dict[str, Tensor]:
        return self.format.told.condition(states)

    def joined(self, x: Tree, seed: int, given: Mapping[str, Any], first: int = 0) -> Tree:
        """Samples of the numbers from `first` on, with what was told of them."""
        return {DATA: x, TOLD: self.states(first + torch.arange(len(leaves(x)[0])), seed, given)}


def keep(folder: Path, told: Tree, seed: int) -> None:
    """Write the conditions of rows that are trained on; of very many, some."""
    count = len(leaves(told)[0])
    if count > MOST_KEPT:
        told = some_rows(told, NoiseSource(seed, count).at("kept").uniform().argsort()[:MOST_KEPT])
    parts: dict[str, Any] = told  # type: ignore[assignment]  # a table's states by leaf, or an array's
    columns = {f"{COLUMNS}.{leaf}": value for leaf, value in parts.get(COLUMNS, {}).items()}
    write_tensors(folder / FILE, columns | {name: part for name, part in parts.items() if name != COLUMNS})


def kept(folder: Path) -> Tree:
    found = read_tensors(folder / FILE)
    columns = {name.removeprefix(f"{COLUMNS}."): value for name, value in found.items() if name.startswith(f"{COLUMNS}.")}
    arrays = {name: value for name, value in found.items() if name.startswith(("array ", "text "))}
    parts: dict[str, Tree] = {COLUMNS: columns} if columns else {}  # type: ignore[dict-item]
    return {**parts, **arrays}
