"""Prediction kinds by name: those that a saved run may name.  Loading a run builds no others, and imports nothing.

    @un.predictions.register_kind
    class Mine(ContinuousPrediction): ...

A package that is installed brings kinds along by entry points of the group "unnoise.predictions" (see `extensions`).
"""

from typing import TypeVar

from unnoise.extensions import refuse_other, unknown
from unnoise.predictions.base import Prediction

KINDS: dict[str, type[Prediction]] = {}
Class = TypeVar("Class", bound=type)


def register_kind(kind: Class) -> Class:
    """Decorate a kind of prediction; its name is that of its class."""
    if not (isinstance(kind, type) and issubclass(kind, Prediction)):
        raise TypeError(f"{kind!r} is no kind of prediction: register a class derived from un.Prediction")
    refuse_other("prediction kind", kind.__name__, kind, KINDS.get(kind.__name__))
    KINDS[kind.__name__] = kind
    return kind


def kind_named(name: object) -> type[Prediction]:
    if not isinstance(name, str) or name not in KINDS:
        raise ValueError(unknown("prediction type", name, KINDS))
    return KINDS[name]


def name_of_kind(kind: type) -> str:
    """The name that a run is saved with."""
    name = kind.__name__ if isinstance(kind, type) else repr(kind)
    if KINDS.get(name) is not kind:
        raise ValueError(
            f"predicts = {name} cannot be saved with a run, for it is not registered: decorate its class with "
            f"@un.predictions.register_kind, or choose from {', '.join(KINDS)}"
        )
    return name
