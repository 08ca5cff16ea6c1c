"""A network for a process, in three sizes.

    numbers or counts, one axis or none     MLP
    arrays of two or three axes             SmallUNet
    a sequence of categories of one size    SequenceTransformer
    columns of unlike kinds or sizes        ColumnTransformer

`tiny` learns on a processor within tens of seconds, `small` on one accelerator within minutes, `base` is larger.  What each
is trained to predict is `predictions.default_kind`; an untrained network gives a neutral answer: velocity 0, uniform logits.
"""

from typing import Any

from torch import nn

from unnoise.denoiser import base_process
from unnoise.networks.base import build
from unnoise.networks.columns import ColumnLeaf
from unnoise.processes import FiniteProcess, Gaussian, Masking, Process, Product, Thinning

MOST_COLUMNS = 2048  # tokens of a table; a network for more should know how they lie
SHORTEST_SIDE = 4  # of an array that convolutions suit

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "MLP": {"width": 64, "layers": 2},
        "SmallUNet": {"width": 16, "multipliers": [1, 2], "blocks": 1, "heads": 2},
        "SequenceTransformer": {"width": 64, "layers": 2, "heads": 4},
        "ColumnTransformer": {"width": 32, "layers": 2, "heads": 4},
    },
    "small": {
        "MLP": {"width": 256, "layers": 6},
        "SmallUNet": {"width": 64, "multipliers": [1, 2, 2], "blocks": 2, "heads": 4},
        "SequenceTransformer": {"width": 512, "layers": 8, "heads": 8},
        "ColumnTransformer": {"width": 256, "layers": 4, "heads": 8},
    },
    "base": {
        "MLP": {"width": 768, "layers": 8},
        "SmallUNet": {"width": 128, "multipliers": [1, 2, 2], "blocks": 3, "heads": 8},
        "SequenceTransformer": {"width": 768, "layers": 12, "heads": 12},
        "ColumnTransformer": {"width": 512, "layers": 6, "heads": 8},
    },
}


def default_network(
    process: Process,
    preset: str = "small",
    *,
    windows: bool = False,
    bin: float = 0.0,
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """The network of a process.  `windows` says that sequences are cut anywhere from longer ones, so that a position means
    nothing in itself, `bin` that numbers come in bins of this width; `options` are fields of the configuration that take the
    place of the preset's."""
    if preset not in PRESETS:
        raise ValueError(f"preset = {preset!r}: choose from {', '.join(PRESETS)}")
    name, needed = _fitting(base_process(process), windows, bin)
    return build(name, {**needed, **PRESETS[preset][name], **options}, seed)


def _fitting(process: Process, windows: bool, bin: float) -> tuple[str, dict[str, Any]]:
    """The class that suits a process, and what it must know of it."""
    if isinstance(process, Product):
        leaves = _leaves(process, ())
        count = sum(leaf.columns for leaf in leaves)
        if count > MOST_COLUMNS:
            raise ValueError(
                f"the product has {count} coordinates, more than the {MOST_COLUMNS} columns of a table: "
                f"build a network for it, or leave some out"
            )
        return "ColumnTransformer", {"leaves": leaves}
    if not isinstance(process, Gaussian | Thinning | FiniteProcess):
        raise TypeError(f"no network is known for {type(process).__name__}: build one, with forward(x, t)")
    shape = process.space.shape
    leaf = _leaf(process, ())
    image = len(shape) in (2, 3) and min(shape[-2:]) >= SHORTEST_SIDE
    if isinstance(process, FiniteProcess):
        space, extra = process.space, leaf.extra
        if image:
            return "SmallUNet", {"shape": shape, "kind": "category", "size": space.size, "extra": extra}
        if not shape or space.sizes is not None:
            return "ColumnTransformer", {"leaves": [leaf]}
        return "SequenceTransformer", {
            "size": space.size,
            "extra": extra,
            "length": 0 if windows else space.dimension,
            "time": not isinstance(process, Masking),
        }
    needed = {"shape": shape, "kind": leaf.kind, "entries": leaf.entries}
    if not image:
        return "MLP", needed
    return "SmallUNet", {**needed, "bin": bin if leaf.kind == "number" else 0.0}


def _leaves(process: Process, path: tuple[str, ...]) -> list[ColumnLeaf]:
    if isinstance(process, Product):
        return [leaf for name, part in process.leaves.items() for leaf in _leaves(part, (*path, name))]
    return [_leaf(process, path)]


def _leaf(process: Process, path: tuple[str, ...]) -> ColumnLeaf:
    if isinstance(process, Gaussian):
        return ColumnLeaf(path=path, kind="number", shape=process.space.shape)
    if isinstance(process, Thinning):
        return ColumnLeaf(path=path, kind="count", shape=process.space.shape, entries=1 if process.pure_death else 2)
    if isinstance(process, FiniteProcess):
        space = process.space
        sizes = [space.size] * space.dimension if space.sizes is None else space.sizes.flatten().tolist()
        extra = process.state_space.size - space.size
        return ColumnLeaf(path=path, kind="category", shape=space.shape, sizes=sizes, extra=extra)
    raise TypeError(f"no column is known for the leaf {list(path)}, a {type(process).__name__}: build a network for it")
