"""Several columns as one leaf of a table: latitude and longitude are a point of the sphere.

    texts  --Column.encode-->  scores [rows, columns]  --JointLeaf.encode-->  x [rows, entries]      and back by `decode`

Each column still reads and writes its own texts, keeps its own coordinate in `categories` where values may be missing, and
has a score map (`Column.scores`) from its numbers to what the leaf takes: radians, shares.  The leaf makes one point of a
row's scores.  What is missing is filled, here and not in the column, since what is left to a missing share depends on the
others; `log_fill` is the density of that filling given what is there, and keeps bounds those of the cells.

A leaf of one's own is a subclass, three entries and one function:

    table_states.JOINT    the kind of its first column: the class
    wishes.JOINT_KINDS    the kinds that people may say in a file for --columns, with `with:` the other columns
    columns.MAPS          the score maps of its columns, by the name under which they are saved
    understanding         a function as `globe_columns.with_globe`, which gives each of its columns `partners`, the names of
                          all of them in the order in which `encode` takes their scores
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar

import numpy as np
from torch import Tensor

from unnoise.noise import NoiseSource
from unnoise.processes import Process
from unnoise.shapes import Bool, Float
from unnoise.spaces import Space

if TYPE_CHECKING:
    from unnoise.data.columns import Column


class JointLeaf(ABC):
    """The leaf of these columns."""

    noun: ClassVar[str]  # "a place is one point": why some of the columns alone cannot be given
    told: ClassVar[str]  # "on the sphere": its process in a table of columns

    def __init__(self, columns: "tuple[Column, ...]") -> None:
        self.columns = columns

    @property
    def names(self) -> list[str]:
        return [column.name for column in self.columns]

    @property
    @abstractmethod
    def space(self) -> Space:
        """Of its points."""

    @abstractmethod
    def process(self) -> Process:
        """By which its points are noised, unless something else is said."""

    @property
    @abstractmethod
    def anywhere(self) -> Float[np.ndarray, "entries"]:
        """A point that stands where none is known."""

    @abstractmethod
    def encode(
        self, scores: Float[np.ndarray, "rows columns"], known: Bool[np.ndarray, "rows columns"], noise: NoiseSource
    ) -> Float[np.ndarray, "rows entries"]:
        """Points.  Scores that are not known say nothing: they are drawn here."""

    @abstractmethod
    def decode(self, x: Float[np.ndarray, "rows entries"]) -> Float[np.ndarray, "rows columns"]:
        """Scores of points."""

    @abstractmethod
    def log_fill(self, x: Float[Tensor, "rows entries"], known: Bool[Tensor, "rows columns"]) -> Float[Tensor, "rows"]:
        """log q(what was drawn by `encode` | what is known), in the measure in which the process has its densities."""
