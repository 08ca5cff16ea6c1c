"""What others add to the library: formats, networks and kinds of prediction of installed packages, and whatever the user's
own modules register.

Whatever is added is registered by the module that defines it, when that is imported.  A package says so in its own
`pyproject.toml`, by an entry point that names the module or something in it:

    [project.entry-points."unnoise.formats"]
    point_sets = "my_package.point_sets"

A command imports all of these when it starts, and the modules that it is told by name.  What a run's folder says plays no
part in it: names there are looked up among what is registered, and never imported.
"""

import os
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterable
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import FrameType

_packages: set[str] = set()  # of the modules that were imported here, by the first word of their names
GROUPS = ("unnoise.formats", "unnoise.networks", "unnoise.predictions")
REMEDY = "install or import the package that registers it (--load MODULE on the command line)"


@cache
def load_installed() -> None:
    """Import the entry points of all installed packages, once; one that fails is named in a warning and left out."""
    for group in GROUPS:
        for point in entry_points(group=group):
            _packages.add(point.module.partition(".")[0])
            try:
                point.load()
            except Exception as error:  # whatever a foreign module does wrong
                warnings.warn(
                    f"{_package(point)} offers {point.name!r} in the group {group}, and {point.value} cannot be imported "
                    f"({type(error).__name__}: {error}): repair or remove the package",
                    stacklevel=2,
                )


def _package(point: EntryPoint) -> str:
    return "an installed package" if point.dist is None else f"the package {point.dist.name}"


def load_modules(names: Iterable[str]) -> None:
    """Import modules by name, those of the current folder too, so that they register what they define."""
    for name in names:
        if os.getcwd() not in sys.path:
            sys.path.insert(0, os.getcwd())
        _packages.add(name.partition(".")[0])
        try:
            import_module(name)
        except ImportError as error:
            raise ImportError(f"--load {name}: {error}: run from the folder that holds the module") from error


def refuse_other(what: str, name: str, new: type, known: type | None, part: str = "name") -> None:
    """A name belongs to one class.  The same may be made again, as in a notebook; another is refused, for what was saved
    under the name would load it."""
    if known is not None and (known.__module__, known.__qualname__) != (new.__module__, new.__qualname__):
        raise ValueError(f"there is a {what} {name!r} already, of {known.__module__}: choose another {part}")


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """In words: a name that nothing is registered under."""
    return f"there is no {what} {name!r}: choose from {', '.join(sorted(known))}, or {REMEDY}"


def place_of(error: BaseException) -> str | None:
    """The file and line of code, neither the library's nor of what it builds on, where an error arose; None: nowhere."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return f"{_short(error.filename)}:{error.lineno}"
    places = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__) if _foreign(frame)]
    return f"{_short(places[-1][0])}:{places[-1][1]}" if places else None


def _foreign(frame: FrameType) -> bool:
    file, package = frame.f_code.co_filename, str(frame.f_globals.get("__name__", "")).partition(".")[0]
    if package in _packages:
        return True
    known = (str(Path(__file__).parent), *map(sysconfig.get_path, ("stdlib", "platstdlib", "purelib", "platlib")))
    return not file.startswith("<") and not any(Path(file).is_relative_to(folder) for folder in known)


def _short(file: str) -> str:
    """As seen from the current folder."""
    path = Path(file)
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
