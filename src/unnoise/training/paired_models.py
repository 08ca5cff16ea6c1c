"""Models of categories with vectors beside them (`hybrids`)."""

from collections.abc import Callable
from typing import Any

from unnoise.hybrids import Beside, Blended, Paired, beside
from unnoise.objectives import MixedTimes
from unnoise.processes import Process
from unnoise.training.models import Modelled, register_model
from unnoise.training.token_models import categories

TABLES: dict[str, Callable[..., Paired]] = {
    "learned": Paired.learned,
    "bits": lambda space, width: Paired.bits(space),
    "one_hot": lambda space, width: Paired.one_hot(space),
}


def modelled_beside(code: Callable[[], Beside], width: int, hints: dict[str, Any]) -> Modelled:
    """The model of a code with so many numbers beside each token, of which the network says logits alone."""
    space = code().space
    length = 0 if hints.get("windows") else space.dimension
    needed = {"size": space.size, "extra": 1, "vectors": width, "length": length, "time": True}
    return Modelled(
        process=beside(space, width),
        code=code,
        network=("SequenceTransformer", needed),
        options={"times": MixedTimes(power=1.0)},  # what is revealed has no rate, so that hardly any of it is near t = 0
        training={"observed": 0.0},
    )


@register_model("cadd")
def _(process: Process, hints: dict[str, Any], width: int = 16, table: str = "learned") -> Modelled:
    """Masked categories that carry a vector each, of a table that is learned, bits or one_hot."""
    space = categories(process, "cadd")
    if table not in TABLES:
        raise ValueError(f"table = {table!r}: choose {', '.join(TABLES)}")

    def code() -> Paired:
        return TABLES[table](space, width)

    return modelled_beside(code, code().width, hints)


@register_model("ccdd")
def _(
    process: Process,
    hints: dict[str, Any],
    width: int = 16,
    reach: int = 1,
    learned: bool = False,
    cutoff: float = 0.01,
) -> Modelled:
    """Masked categories beside vectors that each neighbour within reach adds to."""
    space = categories(process, "ccdd")

    def code() -> Blended:
        return Blended(space, width, reach, learned, cutoff)

    return modelled_beside(code, width, hints)
