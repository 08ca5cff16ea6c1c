"""The folder of a model: that of its run, with `model.json`, and a copy of it elsewhere."""

import io
import json
import shutil
import tempfile
import zipfile
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file

from unnoise.data.source_file import NAME as SOURCE
from unnoise.data.source_file import SourceFile
from unnoise.model.forms import Form, form_named
from unnoise.shapes import Tree
from unnoise.training import safe_files
from unnoise.training.run import Run
from unnoise.training.safe_files import RunError

NOTE, ROWS = "model.json", "rows.safetensors"
ALONE = ""  # the name of states that are one tensor


def write_note(folder: Path, form: Form, params: dict[str, Any], **more: Any) -> None:
    """What a run does not say of itself: the form of the data, the options, the names of the features."""
    plain = {name: value for name, value in params.items() if _is_json(value)}
    said = {"form": {"name": form.name, "data": form.to_json()}, "params": plain, **more}
    (folder / NOTE).write_text(json.dumps(said, indent=1) + "\n")


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value)
    except TypeError:
        return False
    return True


def read_note(folder: Path) -> dict[str, Any]:
    """The note of a folder; a run of the command has none, and was trained on a file."""
    path = folder / NOTE
    if not path.exists():
        return {"form": {"name": "file", "data": {}}, "params": {}}
    return safe_files.read_json(path)


def form_in(note: dict[str, Any]) -> Form:
    return form_named(note["form"]["name"]).from_json(note["form"]["data"])


def copied(folder: Path, target: Path, rows: Tree | None, overwrite: bool) -> None:
    """The folder elsewhere, with the rows that the model was trained on if these are handed over."""
    if target.exists() and not overwrite and (not target.is_dir() or any(target.iterdir())):
        raise RunError(f"{target} is there already and is not empty: choose another folder, or pass overwrite=True")
    if target.resolve() == folder.resolve():
        raise RunError(f"{target} is where the model is already: choose another folder")
    if overwrite and (target / "config.json").exists():
        shutil.rmtree(target)
    shutil.copytree(folder, target, dirs_exist_ok=True, ignore=shutil.ignore_patterns(safe_files.LOCK, ROWS))
    if rows is not None:
        leaves = rows if isinstance(rows, dict) else {ALONE: rows}
        save_file({name: leaf.contiguous() for name, leaf in leaves.items()}, target / ROWS)  # type: ignore[union-attr]


def kept_rows(run: Run) -> Tree | None:
    """The rows that a model was trained on: from its folder, or from the file if that is where it was."""
    if (run.folder / ROWS).exists():
        leaves = load_file(run.folder / ROWS)
        return leaves[ALONE] if set(leaves) == {ALONE} else dict(leaves)
    if not (run.folder / SOURCE).exists():
        return None
    source = SourceFile.load(run.folder)
    return run.format().encode(source.path) if source.path.exists() and source.still_at(source.path) else None


def packed(folder: Path) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                archive.write(path, path.relative_to(folder))
    return buffer.getvalue()


def unpacked(data: bytes) -> Path:
    folder = fresh_folder()
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        archive.extractall(folder)
    return folder


def fresh_folder() -> Path:
    """A folder of no one else's, for a run."""
    folder = Path(tempfile.mkdtemp(prefix="unnoise-")) / "model"
    folder.mkdir()
    return folder


def remove(folder: Path) -> None:
    """What `fresh_folder` made."""
    shutil.rmtree(folder.parent, ignore_errors=True)
