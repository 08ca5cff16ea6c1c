"""What `package.module:name` names, for every option of `unnoise verify` that takes a thing of one's own."""

import importlib
import os
import sys
from typing import Any


def named(path: str, option: str) -> Any:
    """The object itself, imported from the folder one is in."""
    module_name, _, name = path.partition(":")
    if not name:
        raise ValueError(f"--{option} {path!r}: write it as package.module:name")
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"--{option} {path!r}: {error}; run from the folder that holds the module") from error
    except Exception as error:
        raise ValueError(f"--{option} {path!r}: importing {module_name} raised {type(error).__name__}: {error}") from error
    try:
        return getattr(module, name)
    except AttributeError:
        raise ValueError(f"--{option} {path!r}: the module {module_name} has no {name!r}") from None


def load(path: str, option: str, wanted: type | tuple[type, ...]) -> Any:
    """A thing of the wanted class (or classes), or what a class or function makes when called without arguments."""
    found = named(path, option)
    try:
        thing = found if isinstance(found, wanted) else found() if callable(found) else found
    except TypeError as error:
        raise ValueError(f"--{option} {path!r} must be callable without arguments: {error}") from error
    except Exception as error:
        raise ValueError(f"--{option} {path!r}: making it raised {type(error).__name__}: {error}") from error
    if not isinstance(thing, wanted):
        name = wanted.__name__ if isinstance(wanted, type) else " or ".join(one.__name__ for one in wanted)
        raise ValueError(f"--{option} {path!r} is a {type(thing).__name__}, not an unnoise {name} or a maker of one")
    return thing


def load_class(path: str, option: str, wanted: type) -> Any:
    """A class itself, such as a kind of prediction."""
    found = named(path, option)
    if not (isinstance(found, type) and issubclass(found, wanted)):
        told = f"the class {found.__name__}" if isinstance(found, type) else f"a {type(found).__name__}"
        raise ValueError(f"--{option} {path!r} is {told}, not a subclass of {wanted.__name__}")
    return found
