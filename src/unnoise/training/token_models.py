"""Models of categories by way of vectors under Gaussian noise, a fixed or learned one for each (`codes.codebook`)."""

from typing import Any

from unnoise.codes import Codebook, bits, embeddings, one_hot
from unnoise.processes import FiniteProcess, Gaussian, Process
from unnoise.spaces import Finite
from unnoise.training.models import Modelled, register_model


def categories(process: Process, model: str) -> Finite:
    """The space of data that are categories of one size; anything else is refused."""
    if process.leaves or not isinstance(process.base, FiniteProcess) or process.base.space.sizes is not None:
        kind = "columns of several kinds" if process.leaves else str(process.space)
        raise ValueError(f"--model {model} is for sequences of categories, and this data is {kind}: leave it out")
    return process.base.space


def coded(code: Codebook, again: Any, hints: dict[str, Any]) -> Modelled:
    """The model of a codebook; `again` makes it anew."""
    space = code.space
    length = 0 if hints.get("windows") else space.dimension
    needed = {"size": space.size, "extra": 0, "numbers": code.shape[-1], "length": length, "time": True}
    return Modelled(process=Gaussian(code.shape), code=again, network=("SequenceTransformer", needed))


@register_model("bits")
def _(process: Process, hints: dict[str, Any]) -> Modelled:
    """The digits of categories in base 2, as numbers: analog bits."""
    space = categories(process, "bits")

    def code() -> Codebook:
        return bits(space.size, space.shape)

    return coded(code(), code, hints)


@register_model("one_hot")
def _(process: Process, hints: dict[str, Any], scale: float = 1.0) -> Modelled:
    """One number for each category, high in its own place: diffusion of logits on the simplex."""
    space = categories(process, "one_hot")

    def code() -> Codebook:
        return one_hot(space.size, space.shape, scale)

    return coded(code(), code, hints)


@register_model("embedding")
def _(process: Process, hints: dict[str, Any], width: int = 16) -> Modelled:
    """Vectors of categories that are learned with the network."""
    space = categories(process, "embedding")

    def code() -> Codebook:
        return embeddings(space.size, space.shape, width)

    return coded(code(), code, hints)
