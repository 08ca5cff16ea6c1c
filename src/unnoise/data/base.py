"""How a file becomes states, and samples become a file.

A `Format` is what was understood of a file: it encodes files of the same kind as states of a space, says which process
suits them, and writes states back in the form they came in.  It is plain data: `to_json` and `from_json` carry it with a
trained model.

A format also answers for itself wherever a command would have to know its class: which files it recognises, which options
of reading concern it, what training suits it, what must hold of whatever is drawn, how gaps are counted.  All of these have
answers here that work for any data; `data.registry.register_format` makes a format known by its name.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from unnoise.data.reading import Reading, suffix_of
from unnoise.denoiser import Denoiser
from unnoise.paths import BadData
from unnoise.processes import Process
from unnoise.shapes import AnyState, Bool, Float, Tree
from unnoise.tree import batch_size, first_leaf, leaves

if TYPE_CHECKING:
    from unnoise.data.companions import Companions
    from unnoise.data.rule_columns import RuleColumn

NO, BY_CONTENT, BY_NAME, BY_BOTH = range(4)  # how surely a file is recognised, by its first bytes and by its suffix


@dataclass(frozen=True)
class Line:
    """What was understood of one part of the data, for people to read."""

    part: str  # a column, or "text", "pixels", ...
    kind: str  # number, count, ordinal, category, boolean, date, letters, ...
    values: str  # a range, or how many categories and the first of them
    process: str  # the noise chosen for it


@dataclass(frozen=True)
class Bins:
    """Levels that are numbers: level k is the interval of this width that begins at low + k * width."""

    width: float
    low: float


@dataclass(frozen=True)
class Spelling:
    """How a sequence is written: category i as alphabet[i], up to the category `end` if there is one."""

    alphabet: list[str]
    end: int | None = None
    in_bytes: bool = False  # then a symbol is the character of the byte's number

    def rule(self, text: str) -> str:
        """A rule of how sequences are written, in these characters."""
        return text.encode().decode("latin-1") if self.in_bytes else text


class Format(ABC):
    """Base of all formats.  A subclass must say what is abstract here; the rest has answers that hold for any data."""

    kind: ClassVar[str]  # its name in the registry and in saved runs
    suffix: ClassVar[str]  # of the files it writes unless told otherwise, such as ".csv"
    suffixes: ClassVar[tuple[str, ...]] = ()  # of the files that it recognises by name, gzipped or not
    folders: ClassVar[bool] = False  # whether a folder may be of this format: then `recognises` is asked of folders too
    options: ClassVar[Mapping[str, str]] = {}  # the options of reading that it takes, "--noise" or "--option size", each
    # with what of its data it is for

    # a file

    @classmethod
    def recognises(cls, path: Path, how: Reading) -> int:
        """How surely a file is one of this format: NO, BY_CONTENT, BY_NAME or BY_BOTH.  The surest has it."""
        return BY_NAME if suffix_of(path) in cls.suffixes else NO

    @classmethod
    def taken(cls, path: Path, how: Reading) -> tuple[str, tuple[str, ...]]:
        """What to call such a file, and the options of reading that say something of it."""
        return f"of the format {cls.kind}", tuple(cls.options)

    @classmethod
    def read(cls, path: Path, how: Reading) -> tuple["Format", Tree]:
        """The format of a file, and its states."""
        raise BadData(f"{path}: {cls.__name__} does not say how it reads a file: it needs `read(path, how)`")

    @abstractmethod
    def encode(self, path: Path) -> Tree:
        """The states of a file of this format: tensors with one row per example; `BadData` where it does not fit."""

    def encode_nearest(self, path: Path) -> tuple[Tree, list[str]]:
        """The states of a file, values that were never seen moved to the nearest where that can be, and what was moved."""
        return self.encode(path), []

    # the model

    @abstractmethod
    def lines(self) -> list[Line]:
        """What was understood, part by part."""

    def notes(self) -> list[str]:
        """What is unclear about the file, and how it was taken: a line each."""
        return []

    def kinds(self) -> str:
        """What was understood as a file to edit and to read again with --columns."""
        raise BadData(f"--write is for tables, and this data is of the kind {self.kind!r}: leave it out")

    @abstractmethod
    def process(self) -> Process:
        """A forward process on the space of the states."""

    def objective_options(self) -> dict[str, Any]:
        """What suits this data of the options of an `Objective`: a decoder, a cut-off."""
        return {}

    @property
    def bins(self) -> Bins | None:
        """Where numbers are the middles of bins, these: their law is then one of levels."""
        return None

    def network_hints(self) -> dict[str, Any]:
        """What a network should know of the data that the process does not say (see `networks.presets`)."""
        return {}

    def training(self, preset: str, on_cpu: bool) -> dict[str, Any]:
        """Settings of a `TrainConfig` that suit such data, in place of those for any data."""
        return {}

    @property
    def dear(self) -> bool:
        """Whether the bound of a row takes long, as that of an image does: then it is measured less often."""
        return False

    def few_rows_remedy(self) -> str:
        """How to get more examples."""
        return "add rows"

    def log_fill(self, x: AnyState) -> Float[Tensor, "rows"]:
        """log q of what `encode` drew beside the data and nobody reads: with it the bound is one on the data alone."""
        return torch.zeros(batch_size(x), dtype=torch.float64, device=first_leaf(x).device)

    def constrained(self, denoiser: Denoiser) -> Denoiser:
        """The denoiser with what is certain of such data beside what it has learned, for drawing given what is known."""
        return denoiser

    def targets(self) -> list[str]:
        """Columns that can be predicted from the others."""
        return []

    # conditions

    spells_conditions: ClassVar[bool] = False  # whether columns that are told are texts, each told as a sequence

    def companions(self, path: Path) -> "Companions":
        """What stands in a file of this format beside what is modelled, row by row: a network may be told it."""
        raise BadData(f"{path}: nothing is known to stand beside data of the kind {self.kind!r}: leave --condition out")

    def column_names(self, path: Path) -> list[str]:
        """The columns of a file, where it is a table, in their order."""
        return []

    def inputs(self) -> list[dict[str, Any]]:
        """What a network is told of each row, as `networks.ConditionInput` says it."""
        return []

    def told_together(self) -> list[list[str]]:
        """The names of `inputs` in groups of which each is told as a whole or not at all."""
        return [[one["name"]] for one in self.inputs()]

    def apart(self, x: Tree) -> tuple[Tree, dict[str, Tensor]]:
        """Rows of the data as what is modelled, and what a network is told of them."""
        return x, {}

    def put_back(self, rows: Tree, data: Tree) -> Tree:
        """The same rows with other data, and what is told of them."""
        return data

    def joined(self, other: Any, names: list[str]) -> "Format | None":
        """The format of such data with the columns of a `Table` among its own, in the order of the names; None: columns
        have no place in it."""
        return None

    def write_told(self, x: AnyState, beside: "Companions", path: Path) -> None:
        """States as a file, with what was told of them where it has a place for that."""
        self.write(x, path)

    @property
    def written_format(self) -> "Format":
        """That of rows, told parts and all, as people see them."""
        return self

    def as_written(self, x: Tree) -> tuple["Format", Tree]:
        """The `written_format`, and the states that these are in it."""
        return self, x

    # samples

    def check_out(self, path: Path) -> None:
        """That samples can go to a file of this name: asked before they are drawn."""
        if path.is_dir():
            raise BadData(f"{path}: is a folder: name a file to write")
        above = next(folder for folder in path.absolute().parents if folder.exists())
        if not above.is_dir():
            raise BadData(f"{path}: {above.name} is a file, not a folder: name another")

    @abstractmethod
    def write(self, x: AnyState, path: Path) -> None:
        """States as a file, in the form they came in."""

    def out_name(self) -> str:
        """Of the samples that are written into a run's folder, unless told otherwise."""
        return f"samples{self.suffix}"

    def shown_suffix(self) -> str:
        """Of the file that shows samples best: a picture of images, else the data's own form."""
        return self.suffix

    def seen(self, x: AnyState) -> Any:
        """States as code of one's own is shown them: a frame, an array, a list of strings; as they are unless told."""
        return x

    def spelling(self) -> Spelling:
        """How a sequence is written."""
        raise BadData(f"a rule of how sequences are written says nothing of data of the kind {self.kind!r}: leave it out")

    def rule_columns(self) -> dict[str, "RuleColumn"]:
        """Columns by name, as rules speak of them."""
        raise BadData(
            f"--where speaks of the columns of a table, and this run's data is of the kind {self.kind!r}: leave it out"
        )

    def rule_values(self, x: AnyState, names: list[str], given: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """These columns of states, as they are written and as rules read them: `given` values as they were given."""
        raise BadData(f"{type(self).__name__} does not say what it writes of single columns: it needs rule_values")

    # what is known

    def given(self, assignments: dict[str, str]) -> dict[str, tuple[Tensor, Tensor]]:
        """Values by name as {leaf: (values, which of its coordinates they fix)}, each of the shape of one row."""
        raise BadData(
            f"--given names columns of a table, and this run's data is of the kind {self.kind!r}: put what is known "
            f"into a file with gaps, for unnoise infill; or write given(assignments) of {type(self).__name__}"
        )

    def write_given(self, x: AnyState, assignments: dict[str, Any], path: Path) -> None:
        """States that were drawn given values by name, as a file: a text for all rows, or a list of them, row by row."""
        self.write(x, path)

    def gaps(self, path: Path, mark: str | None = None) -> tuple[Tree, Tree]:
        """The states of a file with gaps, and which of their coordinates are known (anything stands in the others)."""
        raise BadData(
            f"{path}: gaps in data of the kind {self.kind!r} cannot be filled yet: write gaps(path, mark) of "
            f"{type(self).__name__}"
        )

    @property
    def window(self) -> int | None:
        """Where examples are windows of longer sequences, their length: then `gaps` may give rows of any length."""
        return None

    def write_filled(self, x: AnyState, source: Path, path: Path, mark: str | None = None) -> None:
        """The file `source` with its gaps filled from the states x: what is known stays as it is."""
        self.write(x, path)

    def blank(self, x: AnyState, fixed: AnyState) -> Bool[Tensor, "rows places"]:
        """Which gaps were filled by no value: their rows are drawn again."""
        return torch.zeros(batch_size(x), 0, dtype=torch.bool)

    def count_gaps(self, fixed: AnyState) -> int:
        """How many gaps there are, as people count them."""
        return sum(int((~leaf).sum()) for leaf in leaves(fixed))

    def gap_parts(self, labels: dict[str, str], fixed: AnyState) -> dict[str, str]:
        """Labels of the leaves that have gaps (the name of a state without leaves is ""), by parts that people know."""
        return labels if isinstance(fixed, dict) else {self.kind: labels.get("", "exact")}

    # on disk

    @abstractmethod
    def to_json(self) -> dict[str, Any]: ...

    @classmethod
    @abstractmethod
    def from_json(cls, data: dict[str, Any]) -> "Format": ...
