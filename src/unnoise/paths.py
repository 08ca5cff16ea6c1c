"""What is asked of the paths that a user gives, before anything is read: a file of data, the folder of a run.

Nothing here waits for torch, so that the command answers a wrong path at once.
"""

from pathlib import Path


class BadData(ValueError):
    """A file that cannot be used.  The message is one line: it names the file, the row or column, and what to do."""


class RunError(ValueError):
    """A run on disk that cannot be used.  The message is one line that names the file and what to do."""


def check_data(path: Path) -> None:
    """That there is something at the path."""
    if not path.exists():
        raise BadData(f"{path}: there is no such file")


def check_run(folder: Path) -> None:
    """That the folder is that of a run, by its looks."""
    if not folder.exists():
        raise RunError(f"{folder} does not exist: pass the folder that `unnoise train --out` made")
    if not folder.is_dir() or not (folder / "config.json").is_file():
        raise RunError(f"{folder} is not a run: it must be a folder with a config.json, as `unnoise train --out` makes")
