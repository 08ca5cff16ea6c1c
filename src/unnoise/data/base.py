"""How a file becomes states, and samples become a file.

A `Format` is what was understood of a file: it encodes files of the same kind as states of a space, says which process
suits them, and writes states back in the form they came in.  It is plain data: `to_json` and `from_json` carry it with a
trained model.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor

from unnoise.processes import Process
from unnoise.shapes import Float, Tree
from unnoise.tree import batch_size, first_leaf


class BadData(ValueError):
    """A file that cannot be used.  The message is one line: it names the file, the row or column, and what to do."""


@dataclass(frozen=True)
class Line:
    """What was understood of one part of the data, for people to read."""

    part: str  # a column, or "text", "pixels", ...
    kind: str  # number, count, ordinal, category, boolean, date, letters, ...
    values: str  # a range, or how many categories and the first of them
    process: str  # the noise chosen for it


class Format(ABC):
    """Base of all formats."""

    kind: ClassVar[str]  # its name in a registry and in saved runs
    suffix: ClassVar[str]  # of the files it writes unless told otherwise, such as ".csv"

    @abstractmethod
    def lines(self) -> list[Line]:
        """What was understood, part by part."""

    @abstractmethod
    def process(self) -> Process:
        """A forward process on the space of the states."""

    def objective_options(self) -> dict[str, Any]:
        """What suits this data of the options of an `Objective`: a decoder, a cut-off."""
        return {}

    @abstractmethod
    def encode(self, path: Path) -> Tree:
        """The states of a file of this format: tensors with one row per example; `BadData` where it does not fit."""

    def log_fill(self, x: Tree) -> Float[Tensor, "rows"]:
        """log q of what `encode` drew beside the data and nobody reads: with it the bound is one on the data alone."""
        return torch.zeros(batch_size(x), dtype=torch.float64, device=first_leaf(x).device)

    def check_out(self, path: Path) -> None:
        """That samples can go to a file of this name: asked before they are drawn."""
        if path.is_dir():
            raise BadData(f"{path}: is a folder: name a file to write")
        above = next(folder for folder in path.absolute().parents if folder.exists())
        if not above.is_dir():
            raise BadData(f"{path}: {above.name} is a file, not a folder: name another")

    @abstractmethod
    def write(self, x: Tree, path: Path) -> None:
        """States as a file, in the form they came in."""

    def write_filled(self, x: Tree, source: Path, path: Path, mark: str | None = None) -> None:
        """The file `source` with its gaps filled from the states x: what is known stays as it is."""
        self.write(x, path)

    def gaps(self, path: Path, mark: str | None = None) -> tuple[Tree, Tree]:
        """The states of a file with gaps, and which of their coordinates are known (anything stands in the others)."""
        raise BadData(f"{path}: gaps in data of the kind {self.kind!r} cannot be filled yet")

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_json(cls, data: dict[str, Any]) -> "Format": ...
