"""Folders as data: their files in the order of their names, without those that systems leave behind."""

import hashlib
from collections.abc import Callable
from pathlib import Path

from unnoise.data.base import BadData

LEFT_BEHIND = ("thumbs.db", "desktop.ini", "__macosx", "_success", "_metadata", "_common_metadata", "_delta_log")


def is_hidden(name: str) -> bool:
    """Whether a part of a path begins with a dot, or is left there by a system."""
    return any(part.startswith(".") or part.lower() in LEFT_BEHIND for part in Path(name).parts)


def files_in(folder: Path) -> list[Path]:
    found = [path for path in folder.rglob("*") if path.is_file() and not is_hidden(str(path.relative_to(folder)))]
    return sorted(found, key=lambda path: path.relative_to(folder).parts)


def refuse_strangers(where: Path, files: list[Path], fits: Callable[[Path], bool], what: str) -> None:
    """Files of another kind than the rest."""
    strange = [file for file in files if not fits(file)]
    if strange:
        more = "" if len(strange) == 1 else f" and {len(strange) - 1} more"
        raise BadData(f"{where}: holds {strange[0].name}{more} beside {what}: move what is none of them elsewhere")


def digest(folder: Path) -> str:
    """Of the names and the contents of all files."""
    whole = hashlib.sha256()
    for file in files_in(folder):
        own = hashlib.sha256(file.read_bytes()).hexdigest()
        whole.update(f"{own} {file.relative_to(folder).as_posix()}\n".encode())
    return whole.hexdigest()
