"""Two tables of the same rows as one: columns that are modelled, and columns that a network is told."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from unnoise.data.table_cells import CATEGORIES
from unnoise.data.typed_columns import packed_schema, unpacked_schema
from unnoise.shapes import AnyState

if TYPE_CHECKING:
    from unnoise.data.table import Table


def joined(first: "Table", other: "Table", names: list[str]) -> "Table":
    """The table of both, its columns in the order of the names; it is of the kind of file that the first one is."""
    pa_schemas = [unpacked_schema(table.schema) for table in (first, other)]
    types = {field.name: field.type for schema in pa_schemas for field in schema}
    known = {column.name: column for table in (first, other) for column in table.columns}
    return replace(
        first,
        columns=tuple(known[name] for name in names if name in known),
        schema=packed_schema({name: types[name] for name in names if name in types}, pa_schemas[0]),
        dropped=tuple(name for name in first.dropped if name not in types),
        left_out=(*first.left_out, *other.left_out),
        places=None,
    )


def joined_states(whole: "Table", *parts: tuple["Table", AnyState]) -> dict[str, Tensor]:
    """The states of a joined table from those of its parts."""
    found: dict[Any, Tensor] = {}
    for table, x in parts:
        found |= {("state", c.name): x[CATEGORIES][:, i] for i, c in enumerate(table.coordinates)}
        found |= {("score", c.name): x[leaf] for leaf, c in table.leaves.items()}
        found |= {("score", *joint.names): x[leaf] for leaf, joint in table.joints.items()}
    states: dict[str, Tensor] = {}
    if whole.coordinates:
        states[CATEGORIES] = torch.stack([found["state", c.name] for c in whole.coordinates], 1)
    states |= {leaf: found["score", c.name] for leaf, c in whole.leaves.items()}
    return states | {leaf: found["score", *joint.names] for leaf, joint in whole.joints.items()}
