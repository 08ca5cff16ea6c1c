"""A network for a process, in three sizes.

    numbers or counts, one axis or none     MLP; angles, and positions with velocities, of any shape too
    numbers under jump-diffusion            CloudMLP
    positions whose velocities are drawn    VelocityMLP
    numbers in an order, such as in time    SeriesNet
    arrays of two or three axes             SmallUNet
    a sequence of categories of one size    SequenceTransformer
    columns of unlike kinds or sizes        ColumnTransformer

`tiny` learns on a processor within tens of seconds, `small` on one accelerator within minutes, `base` is larger.  What each
is trained to predict is `predictions.default_kind`; an untrained network gives a neutral answer: velocity 0, uniform logits.

Which network suits a process, and what the coordinates of a leaf are as columns, are open functions, `network_for` and
`column`: a process of one's own registers its answer.  A chain has that of the process it restricts.
"""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from torch import nn

from unnoise.extensions import unknown
from unnoise.networks.base import NEEDS, REGISTRY, build, configured, plan
from unnoise.networks.columns import ColumnLeaf
from unnoise.processes import (
    CoxIngersollRoss,
    FiniteProcess,
    FlippingVelocity,
    Gaussian,
    HeatProcess,
    JumpDiffusion,
    Process,
    Product,
    RefreshedVelocity,
    RotationHeat,
    SphereHeat,
    Superposition,
    Thinning,
    WrappedNormal,
    WrightFisher,
)
from unnoise.schedules import Cosine

MOST_COLUMNS = 2048  # tokens of a table; a network for more should know how they lie
LAWS = 8  # of a mixture that a network says
MANY_ROWS = 5000  # series, from which a network for them needs no drop-out
SHORTEST_SIDE = 4  # of an array that convolutions suit
CLOSED_WAVES = 5  # of points of closed spaces: they have no scale of their own that peaks would have been brought to

PRESETS: dict[str, dict[str, dict[str, Any]]] = {
    "tiny": {
        "MLP": {"width": 64, "layers": 2},
        "CloudMLP": {"width": 64, "layers": 2, "clouds": 8},
        "VelocityMLP": {"width": 64, "layers": 2},
        "SmallUNet": {"width": 16, "multipliers": [1, 2], "blocks": 1, "heads": 2},
        "SeriesNet": {"width": 32, "multipliers": [1, 2], "blocks": 1, "heads": 4},
        "SequenceTransformer": {"width": 64, "layers": 2, "heads": 4},
        "ColumnTransformer": {"width": 32, "layers": 2, "heads": 4},
    },
    "small": {
        "MLP": {"width": 256, "layers": 6},
        "CloudMLP": {"width": 256, "layers": 6, "clouds": 16},
        "VelocityMLP": {"width": 256, "layers": 6},
        "SmallUNet": {"width": 64, "multipliers": [1, 2, 2], "blocks": 2, "heads": 4},
        "SeriesNet": {"width": 64, "multipliers": [1, 2, 2], "blocks": 2, "heads": 4},
        "SequenceTransformer": {"width": 512, "layers": 8, "heads": 8},
        "ColumnTransformer": {"width": 256, "layers": 4, "heads": 8},
    },
    "base": {
        "MLP": {"width": 768, "layers": 8},
        "CloudMLP": {"width": 768, "layers": 8, "clouds": 32},
        "VelocityMLP": {"width": 768, "layers": 8},
        "SmallUNet": {"width": 128, "multipliers": [1, 2, 2], "blocks": 3, "heads": 8},
        "SeriesNet": {"width": 128, "multipliers": [1, 2, 4], "blocks": 3, "heads": 8},
        "SequenceTransformer": {"width": 768, "layers": 12, "heads": 12},
        "ColumnTransformer": {"width": 512, "layers": 6, "heads": 8},
    },
}


def default_network(
    process: Process,
    preset: str = "small",
    *,
    name: str | None = None,
    windows: bool = False,
    bin: float = 0.0,
    series: bool = False,
    seed: int | None = None,
    **options: Any,
) -> nn.Module:
    """The network of a process.  `windows` says that sequences are cut anywhere from longer ones, so that a position means
    nothing in itself, `bin` that numbers come in bins of this width, `series` that they lie in an order along
    their last axis, with channels before it if there are any; `options` are fields of the configuration that take the place
    of the preset's.  `name` is that of another registered network."""
    return build(*_chosen(process, preset, name, {"windows": windows, "bin": bin, "series": series}, options), seed)


def planned(
    process: Process,
    preset: str = "small",
    name: str | None = None,
    hints: dict[str, Any] | None = None,
    suited: tuple[str, dict[str, Any]] | None = None,
    **options: Any,
) -> dict[str, Any]:
    """What `build` needs for the network of a process, {"name", "options"} as JSON holds it: nothing is built.

    `suited` is a registered network and what it must know, where another one suits than that of the process."""
    if suited is not None and name in (None, suited[0]):
        name, chosen = suited[0], _sized(*suited, preset, options)
    else:
        name, chosen = _chosen(process, preset, name, hints or {}, options)
    return plan(name, configured(name, chosen))


def _chosen(
    process: Process, preset: str, name: str | None, hints: dict[str, Any], options: dict[str, Any]
) -> tuple[str, dict[str, Any]]:
    name, needed = _needed(process.base, name, hints)
    return name, _sized(name, needed, preset, options)


def _sized(name: str, needed: dict[str, Any], preset: str, options: dict[str, Any]) -> dict[str, Any]:
    if preset not in PRESETS:
        raise ValueError(f"preset = {preset!r}: choose from {', '.join(PRESETS)}")
    return {**needed, **PRESETS[preset].get(name, {}), **options}


def _needed(process: Process, name: str | None, hints: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The network and what it must know: of a name its own `needs`, where it says them."""
    if name is not None and name in NEEDS:
        return name, NEEDS[name](process)
    if name is not None and name not in REGISTRY:
        raise ValueError(unknown("network", name, REGISTRY))
    suited, needed = network_for(process, **hints)
    if name is not None and name != suited:
        raise ValueError(
            f"the network {name} does not say what it needs to know of a process: "
            f"register it with needs=..., a function of the process"
        )
    return suited, needed


@singledispatch
def network_for(process: Process, **hints: Any) -> tuple[str, dict[str, Any]]:
    """The registered network that suits a process, by name, and what it must know of it.

    Open to processes from outside: `@network_for.register(MyProcess)` on a function (process, **hints) -> (name, options);
    the hints are those of `default_network`."""
    kind = type(process).__name__
    raise TypeError(
        f"no network is known for {kind}: build one, with forward(x, t), or register one for all commands by "
        f"unnoise.networks.network_for.register({kind})"
    )


@network_for.register
def _(process: Product, **hints: Any) -> tuple[str, dict[str, Any]]:
    leaves = columns(process)
    count = sum(leaf.columns for leaf in leaves)
    if count > MOST_COLUMNS:
        raise ValueError(
            f"the product has {count} coordinates, more than the {MOST_COLUMNS} columns of a table: "
            f"build a network for it, or leave some out"
        )
    return "ColumnTransformer", {"leaves": leaves}


@network_for.register
def _(process: FiniteProcess, **hints: Any) -> tuple[str, dict[str, Any]]:
    space, leaf = process.space, column(process, ())
    if _image(space.shape):
        return "SmallUNet", {"shape": space.shape, "kind": "category", "size": space.size, "extra": leaf.extra}
    if not space.shape or space.sizes is not None:
        return "ColumnTransformer", {"leaves": [leaf]}
    length = 0 if hints.get("windows") else space.dimension
    return "SequenceTransformer", {
        "size": space.size,
        "extra": leaf.extra,
        "length": length,
        "time": not process.absorbing,
    }


@network_for.register
def _(process: Superposition, **hints: Any) -> tuple[str, dict[str, Any]]:
    return "MLP", {"shape": process.space.shape, "kind": "number", "entries": 3 * LAWS}


@network_for.register(Gaussian)
@network_for.register(Thinning)
def _(process: Gaussian | Thinning, **hints: Any) -> tuple[str, dict[str, Any]]:
    leaf = column(process, ())
    if hints.get("series") and isinstance(process, Gaussian) and len(leaf.shape) in (1, 2):
        return "SeriesNet", _series(process, hints.get("rows", MANY_ROWS))
    needed = {"shape": leaf.shape, "kind": leaf.kind, "entries": leaf.entries}
    if not _image(leaf.shape):
        return "MLP", needed
    return "SmallUNet", {**needed, "bin": hints.get("bin", 0.0) if leaf.kind == "number" else 0.0}


@network_for.register(HeatProcess)
@network_for.register(WrightFisher)
@network_for.register(CoxIngersollRoss)
def _(process: HeatProcess | WrightFisher | CoxIngersollRoss, **hints: Any) -> tuple[str, dict[str, Any]]:
    leaf = column(process, ())
    return "MLP", {"shape": leaf.shape, "kind": leaf.kind, "frequencies": CLOSED_WAVES}


@network_for.register
def _(process: FlippingVelocity, **hints: Any) -> tuple[str, dict[str, Any]]:
    return "MLP", {"shape": process.state_space.shape, "answers": process.space.shape}


@network_for.register
def _(process: JumpDiffusion, **hints: Any) -> tuple[str, dict[str, Any]]:
    return "CloudMLP", {"shape": process.space.shape}


@network_for.register
def _(process: RefreshedVelocity, **hints: Any) -> tuple[str, dict[str, Any]]:
    return "VelocityMLP", {"shape": process.space.shape}


def _series(process: Gaussian, rows: int) -> dict[str, Any]:
    """The fitted law is known under the cosine schedule and independent noise; few rows need more to keep them from being
    learned by heart."""
    plain = isinstance(process.schedule, Cosine) and process.covariance is None
    base = plain and process.space.dimension <= MOST_COLUMNS
    return {
        "shape": process.space.shape,
        "base": base,
        "dropout": 0.0 if rows >= MANY_ROWS else 0.2 if rows >= 1000 else 0.4,
    }


def _image(shape: Sequence[int]) -> bool:
    return len(shape) in (2, 3) and min(shape[-2:]) >= SHORTEST_SIDE


def columns(process: Process, path: tuple[str, ...] = ()) -> list[ColumnLeaf]:
    """The leaves of a process as a `ColumnTransformer` sees them."""
    if process.leaves:
        return [leaf for name, part in process.leaves.items() for leaf in columns(part, (*path, name))]
    return [column(process.base, path)]


@singledispatch
def column(process: Process, path: tuple[str, ...]) -> ColumnLeaf:
    """A leaf's coordinates as columns of numbers, counts or categories.

    Open to processes from outside: `@column.register(MyProcess)` on a function (process, path) -> ColumnLeaf."""
    kind = type(process).__name__
    raise TypeError(
        f"no column is known for the leaf {list(path)}, a {kind}: build a network for it, or say what its coordinates are "
        f"by unnoise.networks.column.register({kind})"
    )


@column.register
def _(process: Gaussian, path: tuple[str, ...]) -> ColumnLeaf:
    return ColumnLeaf(path=path, kind="number", shape=process.space.shape)


@column.register
def _(process: Superposition, path: tuple[str, ...]) -> ColumnLeaf:
    return ColumnLeaf(path=path, kind="number", shape=process.space.shape, entries=3 * LAWS)


@column.register
def _(process: JumpDiffusion, path: tuple[str, ...]) -> ColumnLeaf:
    raise TypeError(
        f"the leaf {list(path)} is a JumpDiffusion, of which clouds of all its numbers are said, and no column each: pass a "
        f"network of your own, that returns [batch, clouds, {process.space.dimension + 2}] for this leaf"
    )


@column.register
def _(process: WrappedNormal, path: tuple[str, ...]) -> ColumnLeaf:
    return ColumnLeaf(path=path, kind="angle", shape=process.space.shape, frequencies=CLOSED_WAVES)


@column.register
def _(process: CoxIngersollRoss, path: tuple[str, ...]) -> ColumnLeaf:
    return ColumnLeaf(path=path, kind="count", shape=process.space.shape)  # positive: seen by log(1 + x)


@column.register(SphereHeat)
@column.register(RotationHeat)
@column.register(WrightFisher)
def _(process: SphereHeat | RotationHeat | WrightFisher, path: tuple[str, ...]) -> ColumnLeaf:
    return ColumnLeaf(path=path, kind="number", shape=process.space.shape, frequencies=CLOSED_WAVES)


@column.register
def _(process: Thinning, path: tuple[str, ...]) -> ColumnLeaf:
    return ColumnLeaf(path=path, kind="count", shape=process.space.shape, entries=1 if process.pure_death else 2)


@column.register
def _(process: FiniteProcess, path: tuple[str, ...]) -> ColumnLeaf:
    space = process.space
    extra = process.state_space.size - space.size
    return ColumnLeaf(path=path, kind="category", shape=space.shape, sizes=space.coordinate_sizes, extra=extra)
