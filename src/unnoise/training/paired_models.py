"""Models of categories with vectors beside them (`hybrids`)."""

from collections.abc import Callable
from typing import Any

from unnoise.codes import Code
from unnoise.hybrids import CoEvolving, Neighbours, Paired, beside
from unnoise.objectives import MixedTimes
from unnoise.processes import Process
from unnoise.training.models import Modelled, register_model
from unnoise.training.token_models import categories

TABLES: dict[str, Callable[..., Paired]] = {
    "learned": Paired.learned,
    "bits": lambda space, width: Paired.bits(space),
    "one_hot": lambda space, width: Paired.one_hot(space),
}


def modelled_beside(code: Callable[[], Code], width: int, answers: int, hints: dict[str, Any], options: Any) -> Modelled:
    """The model of a code with so many numbers beside each token, of which the network says so many."""
    space: Any = code().space
    length = 0 if hints.get("windows") else space.dimension
    needed = {"size": space.size, "extra": 1, "vectors": width, "answers": answers, "length": length, "time": True}
    network = ("SequenceTransformer", needed)
    return Modelled(
        process=beside(space, width), code=code, network=network, options=options, training={"observed": 0.0}
    )


@register_model("cadd")
def _(process: Process, hints: dict[str, Any], width: int = 16, table: str = "learned") -> Modelled:
    """Masked categories that carry a vector each, of a table that is learned, bits or one_hot."""
    space = categories(process, "cadd")
    if table not in TABLES:
        raise ValueError(f"table = {table!r}: choose {', '.join(TABLES)}")

    def code() -> Paired:
        return TABLES[table](space, width)

    return modelled_beside(code, code().width, 0, hints, {"times": MixedTimes(power=1.0)})  # nothing of it grows like 1/t


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

    def code() -> CoEvolving:
        encoder = Neighbours(space.size, width, reach, learned)
        return CoEvolving(space, encoder, width, learned, cutoff=cutoff)

    return modelled_beside(code, width, width, hints, {})
