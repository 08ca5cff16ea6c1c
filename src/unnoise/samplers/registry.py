"""Samplers by name: what the command line can be told, and how others add to it.

    @un.samplers.register_sampler("Mine")
    class Mine(OneStep): ...

A package that is installed can bring samplers along by entry points of the group "unnoise.samplers",

    [project.entry-points."unnoise.samplers"]
    Mine = "my_package.samplers:Mine"

which are looked up only when somebody names a sampler that is not known: `unnoise sample --sampler Mine`.  Names come from
whoever runs the command; no file of a run is asked, and none causes an import.
"""

from collections.abc import Callable
from importlib.metadata import entry_points
from inspect import isabstract, signature
from typing import Any

from unnoise.extensions import refuse_other
from unnoise.samplers.base import Sampler

GROUP = "unnoise.samplers"

_KNOWN: dict[str, type[Sampler]] = {}


def register_sampler(name: Any) -> Callable[[type[Any]], type[Any]]:
    """A decorator that makes a sampler known by a name."""
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is no name: write @register_sampler('Mine') above the class")

    def register(kind: type[Any]) -> type[Any]:
        _put(name, kind)
        return kind

    return register


def _put(name: str, kind: Any) -> None:
    if not (isinstance(kind, type) and issubclass(kind, Sampler)):
        raise TypeError(f"the sampler {name!r} is {kind!r}: register a class derived from un.samplers.Sampler")
    refuse_other("sampler", name, kind, _KNOWN.get(name))
    _KNOWN[name] = kind


def choices() -> dict[str, type[Sampler]]:
    """The samplers that can be named: those that need no argument."""
    return {name: kind for name, kind in _KNOWN.items() if not _asks(kind)}


def _asks(kind: type[Sampler]) -> bool:
    """Whether something is missing: a method, or an argument without a default."""
    needed = [p for p in signature(kind).parameters.values() if p.default is p.empty and p.kind is not p.VAR_KEYWORD]
    return isabstract(kind) or bool(needed)


def _installed(name: str) -> None:
    """What an installed package has under this name becomes known."""
    for entry in entry_points(group=GROUP, name=name):
        try:
            kind = entry.load()
        except Exception as error:  # whatever a foreign module does wrong
            raise ImportError(
                f"an installed package offers the sampler {name!r}, and {entry.value} cannot be imported "
                f"({type(error).__name__}: {error}): repair or remove the package"
            ) from error
        _put(name, kind)


def kind_named(name: str) -> type[Sampler]:
    """The class of a sampler by its name."""
    if name not in _KNOWN:
        _installed(name)
    kind, known = _KNOWN.get(name), choices()
    if kind is None:
        others = sorted(entry.name for entry in entry_points(group=GROUP) if entry.name not in known)
        raise ValueError(f"there is no sampler {name!r}: choose from {', '.join([*known, *others])}")
    return kind


def method_named(name: str) -> Sampler:
    """A sampler by its name, from those that need no argument."""
    kind, known = kind_named(name), choices()
    if name not in known:
        raise ValueError(
            f"the sampler {name} needs arguments: write them, {name}{signature(kind)}, or choose from {', '.join(known)}"
        )
    return kind()
