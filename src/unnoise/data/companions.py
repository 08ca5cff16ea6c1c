"""What stands in a file beside what is modelled, row by row: columns of a table, and arrays."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.typed_columns import arrow_library


@dataclass(frozen=True, eq=False)
class Companions:
    """`table` has the columns, an entry for each row, `arrays` what has more than one number for each."""

    table: Any = None  # a pyarrow.Table
    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    typed: bool = True  # whether the types of its columns are those of the file: texts may hold numbers

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> "Companions":
        """Arrays of one axis are columns."""
        columns = {name: values for name, values in arrays.items() if values.ndim == 1}
        table = arrow_library().table(columns) if columns else None
        return cls(table, {name: values for name, values in arrays.items() if name not in columns})

    @property
    def names(self) -> list[str]:
        return [*([] if self.table is None else self.table.column_names), *self.arrays]

    def chosen(self, names: Sequence[str], where: str) -> "Companions":
        """Those of the names."""
        for name in names:
            if name not in self.names:
                there = f"what stands beside the data is {', '.join(self.names)}" if self.names else "nothing does"
                raise BadData(f"{where}: --condition {name}: does not stand beside the data of this file: {there}")
        columns = [name for name in names if name not in self.arrays]
        arrays = {name: values for name, values in self.arrays.items() if name in names}
        return Companions(self.table.select(columns) if columns else None, arrays, self.typed)
