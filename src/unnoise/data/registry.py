"""The formats by name: those that a command reads, and that a saved run may name.  Loading a run builds no others."""

from typing import TypeVar

from unnoise.data.base import BadData, Format
from unnoise.extensions import refuse_other, unknown

FORMATS: dict[str, type[Format]] = {}
Class = TypeVar("Class", bound=type[Format])


def register_format(format: Class) -> Class:
    """Decorate a format class; its name is its `kind`."""
    if not isinstance(getattr(format, "kind", None), str):
        raise TypeError(f"{format!r} has no kind, the name that saved runs know a format by: say it, kind = 'my_format'")
    refuse_other("format", format.kind, format, FORMATS.get(format.kind), "kind")
    FORMATS[format.kind] = format
    return format


def format_named(name: str) -> type[Format]:
    if name not in FORMATS:
        raise BadData(unknown("data format", name, FORMATS))
    return FORMATS[name]
