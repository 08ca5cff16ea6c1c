"""Folders that are either whole on disk or not there.

A folder is written under a passing name, its files and itself are forced to the disk, and only then it gets its name, which
is one atomic act.  Its manifest holds the length and SHA-256 of every file, so that a file which was cut short or changed
later is noticed.  Names in a manifest are plain file names of known kinds: nothing leads out of the folder, and nothing is
unpickled.  A file that cannot be read, for want of a permission or of a disk, is not called damaged: it may be whole.
"""

import errno
import hashlib
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from math import isfinite
from pathlib import Path
from typing import Any

from unnoise.paths import RunError

try:
    import fcntl
except ImportError:  # a system without it: nothing is locked
    fcntl = None  # type: ignore[assignment]

MANIFEST = "manifest.json"
PASSING = ".saving-"  # a folder under way: of no worth after a kill
OLD = ".old-"  # a folder on its way out
DAMAGED = "damaged-"  # a folder set aside
LOCK = ".lock"
SUFFIXES = (".safetensors", ".json")


class Damaged(RunError):
    """A file that was cut short or changed: an earlier state may still be whole."""


def safe_name(name: str, where: Path) -> str:
    """A plain file name of a known kind, or an error."""
    if not isinstance(name, str) or name in ("", ".", "..") or name != Path(name).name or "\\" in name or "\0" in name:
        raise RunError(f"{where}: names the file {name!r}, which leads out of its folder; the run is not to be trusted")
    if Path(name).suffix not in SUFFIXES:
        raise RunError(f"{where}: names the file {name!r}; only {' and '.join(SUFFIXES)} files are read, never pickles")
    return name


def sync(path: Path) -> None:
    """Force a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def write_text(path: Path, text: str) -> None:
    """One file, whole or not at all.  A link under either name, as a foreign folder may hold, is replaced, not followed."""
    passing = path.with_name(PASSING + path.name)
    passing.unlink(missing_ok=True)
    with open(passing, "x", encoding="utf-8") as file:
        file.write(text)
    sync(passing)
    os.rename(passing, path)
    sync(path.parent)


def strict_json(value: Any) -> str:
    """One line, with null for numbers that JSON does not have."""

    def strict(part: Any) -> Any:
        if isinstance(part, dict):
            return {name: strict(entry) for name, entry in part.items()}
        if isinstance(part, list | tuple):
            return [strict(entry) for entry in part]
        return None if isinstance(part, float) and not isfinite(part) else part

    return json.dumps(strict(value), allow_nan=False)


def write_json(path: Path, data: Any) -> None:
    write_text(path, json.dumps(data, indent=1) + "\n")


def read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError, RecursionError) as error:
        raise Damaged(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(found, dict):
        raise Damaged(f"{path} is no object with named entries")
    return found


def save_folder(target: Path, fill: Callable[[Path], None], about: dict[str, Any]) -> None:
    """Make a new folder of the files that `fill` writes, with a manifest."""
    passing = target.with_name(PASSING + target.name)
    if passing.exists():
        shutil.rmtree(passing)
    passing.mkdir(parents=True)
    fill(passing)
    files = {}
    for path in sorted(passing.iterdir()):
        safe_name(path.name, passing)
        sync(path)
        files[path.name] = {"bytes": path.stat().st_size, "sha256": digest(path)}
    manifest = passing / MANIFEST
    manifest.write_text(json.dumps({**about, "files": files}, indent=1) + "\n")
    sync(manifest)
    sync(passing)
    os.rename(passing, target)
    sync(target.parent)


def remove_folder(path: Path) -> None:
    """Take a folder away: it loses its name first, so that it is never seen in parts."""
    old = path.with_name(OLD + path.name)
    if old.exists():
        shutil.rmtree(old)
    os.rename(path, old)
    shutil.rmtree(old)


def set_aside(path: Path) -> None:
    """Give a damaged folder another name: nobody takes it for whole, and what is left of it is not lost."""
    aside = path.with_name(DAMAGED + path.name)
    if aside.exists():
        shutil.rmtree(aside)
    os.rename(path, aside)


def sweep(folder: Path) -> None:
    """Remove what a kill left behind."""
    for path in folder.glob(".*"):
        if path.name.startswith((PASSING, OLD)):
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


_held: set[Path] = set()  # by this process, to which the system would grant a lock twice


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Keep other writers out of a folder for the length of a `with`.

    The lock is the process's own, so it ends when the process does, however that happens.  (A lock of the open file would
    live on in the processes that fetch rows.)
    """
    path, busy = folder.resolve() / LOCK, RunError(f"another training is writing to {folder}: wait for it or stop it")
    if path in _held:
        raise busy
    handle = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o666)
    try:
        if fcntl is not None:
            try:
                fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno in (errno.EACCES, errno.EAGAIN):
                    raise busy from error  # any other: a file system without locks
        _held.add(path)
        yield
    finally:
        _held.discard(path)
        os.close(handle)


def verified(folder: Path) -> dict[str, Any]:
    """The manifest of a folder, if every file is as it was written."""
    manifest = read_json(folder / MANIFEST)
    if not isinstance(manifest.get("files"), dict):
        raise Damaged(f"{folder / MANIFEST} is no manifest")
    for name in manifest["files"]:
        safe_name(name, folder / MANIFEST)
    for name, facts in manifest["files"].items():
        path = folder / name
        try:
            found = path.lstat()
        except FileNotFoundError as error:
            raise Damaged(f"{path} is missing") from error
        if not stat.S_ISREG(found.st_mode):
            raise Damaged(f"{path} is no plain file")
        if not isinstance(facts, dict):
            raise Damaged(f"{folder / MANIFEST} does not say how {name} was written")
        if found.st_size != facts.get("bytes") or digest(path) != facts.get("sha256"):
            raise Damaged(f"{path} is not as it was written: it was cut short or changed")
    return manifest
