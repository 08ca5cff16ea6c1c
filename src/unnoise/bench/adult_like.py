"""A mixed table of the shape of UCI Adult: eleven columns of labels and four of numbers, with values drawn at random.

What is measured on it is time, which the values do not change.  Its process is that of any table of more than 20,000 rows.
"""

import csv
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from unnoise.data.base import BadData, Format, Line
from unnoise.processes import Gaussian, Masking, Process, Product
from unnoise.shapes import AnyState, Tree

LABELS = (9, 16, 16, 7, 15, 6, 5, 2, 56, 40, 2)  # how many there are in each column
NUMBERS = ("age", "weight", "gain", "hours")
ROWS = 32_561


@dataclass(kw_only=True)
class AdultLike(Format):
    """So many labels in each column, and the names of the columns of numbers."""

    kind = "adult-like"
    suffix = ".csv"

    labels: tuple[int, ...] = LABELS
    numbers: tuple[str, ...] = NUMBERS

    def lines(self) -> list[Line]:
        return [Line("table", "labels and numbers", f"{len(self.labels)} and {len(self.numbers)}", "masking and Gaussian")]

    def process(self) -> Process:
        return Product(categories=Masking(list(self.labels)), **{name: Gaussian((1,)) for name in self.numbers})

    def training(self, preset: str, on_cpu: bool) -> dict[str, Any]:
        return {"batch_size": 256 if on_cpu else 2048}

    def drawn(self, rows: int) -> dict[str, Tensor]:
        """Rows of any content."""
        labels = torch.stack([torch.randint(size, (rows,)) for size in self.labels], 1)
        return {"categories": labels, **{name: torch.randn(rows, 1) for name in self.numbers}}

    def encode(self, path: Path) -> Tree:
        raise BadData(f"{path}: a table to measure speed is drawn, never read")

    def write(self, x: AnyState, path: Path) -> None:
        columns = [*x["categories"].T.tolist(), *(x[name][:, 0].tolist() for name in self.numbers)]
        with open(path, "w", newline="") as file:
            csv.writer(file).writerows(zip(*columns, strict=True))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "AdultLike":
        return cls(labels=tuple(data["labels"]), numbers=tuple(data["numbers"]))
