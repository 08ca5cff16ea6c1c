"""What a command loads before it begins: extensions of installed packages, and modules that the user names; and what is
written on the line as name=value."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Annotated, Any

import tyro

from unnoise.extensions import load_installed, load_modules


@dataclass(kw_only=True)
class Extended:
    """A command that knows what installed packages and modules of the user's own register."""

    load: Annotated[tuple[str, ...], tyro.conf.UseAppendAction] = field(default_factory=tuple)
    """A module of your own to import first, such as my_package.formats or a file of this folder without its .py: what it
    registers can be named; may be repeated."""

    def load_extensions(self) -> None:
        load_installed()
        load_modules(self.load)


def pairs(texts: tuple[str, ...], option: str, what: str = "name") -> dict[str, str]:
    """name=value, each once."""
    found: dict[str, str] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{option} {text!r}: write it as {what}=value")
        found[name] = value
    return found


def settings(texts: Iterable[str], option: str = "--set") -> dict[str, Any]:
    """Settings from lines name=value; a value that is no JSON is taken as the text that it is."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals:
            raise ValueError(f"{option} {text}: write it as name=value")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
