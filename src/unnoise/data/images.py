"""Images in a folder or an archive (.zip, .tar, .tar.gz): an array of levels, and samples as such files again.

Pictures are grey, or all in colours where one of them is; they have one size, or are given one (`--option size=32`).  The
folders that they lie in say nothing to the model, unless it is told them (`--condition label`).
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from torch import Tensor

from unnoise.data.arrays import Array
from unnoise.data.base import BY_CONTENT, BY_NAME, NO, BadData, Bins, Format, Line
from unnoise.data.companions import Companions
from unnoise.data.files import write_bytes
from unnoise.data.image_files import ARCHIVES, has_pictures, members, packed, pictures, png_files, size_of
from unnoise.data.reading import Reading, suffix_of
from unnoise.data.registry import register_format
from unnoise.processes import Process
from unnoise.shapes import AnyState, Tree

FOLDER = "/"  # the suffix of a folder's name


@register_format
@dataclass(kw_only=True)
class Images(Format):
    """What was understood of a folder of images, or of an archive of them."""

    kind = "images"
    suffixes = ARCHIVES
    folders = True
    options: ClassVar[Mapping[str, str]] = {
        "--categories": "arrays",
        "--noise": "the levels of arrays",
        "--option size": "images",
        "--condition": "images",
    }

    array: Array
    size: list[int] | None = None  # width and height that each was scaled and cropped to
    written: str = FOLDER  # the suffix of the file they came in
    classes: list[str] = field(default_factory=list)  # the folders within, which are not read

    @property
    def suffix(self) -> str:  # type: ignore[override]
        return self.written

    @classmethod
    def recognises(cls, path: Path, how: Reading) -> int:
        if path.is_dir():
            return BY_CONTENT if has_pictures(path) else NO
        return BY_NAME if suffix_of(path) in ARCHIVES else NO

    @classmethod
    def taken(cls, path: Path, how: Reading) -> tuple[str, tuple[str, ...]]:
        return "a set of images", tuple(cls.options)

    @classmethod
    def read(cls, path: Path, how: Reading) -> tuple["Images", Tree]:
        size = size_of(how.options["size"]) if "size" in how.options else None
        names = members(path)
        array, x = Array.of_array(pictures(path, size), how.categories, how.noise, str(path), "columns")
        above = sorted({str(name.parent) for name in names} - {"."})
        packed_as = "".join(path.suffixes[-2:]) if path.suffix == ".gz" else path.suffix
        written = FOLDER if path.is_dir() else packed_as.lower()
        own = cls(array=array, size=None if size is None else list(size), written=written)
        own.classes = above if len(above) > 1 and not how.condition else []
        return own, x

    def companions(self, path: Path) -> Companions:
        """As `label`, the folder that a picture lies in."""
        return Companions.of_arrays(
            {"label": np.array([name.parent.relative_to(name.anchor).as_posix() for name in members(path)])}
        )

    def encode(self, path: Path) -> Tree:
        return self.array.states(self._pictures(path), path)

    def _pictures(self, path: Path) -> Any:
        values = pictures(path, None if self.size is None else (self.size[0], self.size[1]), len(self.array.shape) == 3)
        height, width, *_ = self.array.shape
        if values.shape[1:3] != (height, width):
            found = f"{values.shape[2]}x{values.shape[1]}"
            raise BadData(f"{path}: the pictures have {found} pixels; the model was trained on {width}x{height}: scale them")
        return values

    def lines(self) -> list[Line]:
        line = self.array.lines()[0]
        height, width, *colours = self.array.shape
        part = f"images of {width} × {height}, {'colours' if colours else 'grey'}"
        scaled = "" if self.size is None else "; scaled, and cropped around their middle"
        shown = ", ".join(self.classes[:3]) + (" ..." if len(self.classes) > 3 else "")
        ignored = [Line(f"{len(self.classes)} folders", "left out", f"{shown}: their names are not read", "")]
        return [Line(part, line.kind, line.values + scaled, line.process), *(ignored if self.classes else [])]

    def process(self) -> Process:
        return self.array.process()

    def objective_options(self) -> dict[str, Any]:
        return self.array.objective_options()

    @property
    def bins(self) -> Bins | None:
        return self.array.bins

    @property
    def dear(self) -> bool:
        return self.array.dear

    def network_hints(self) -> dict[str, Any]:
        return self.array.network_hints()

    def training(self, preset: str, on_cpu: bool) -> dict[str, Any]:
        return self.array.training(preset, on_cpu)

    def few_rows_remedy(self) -> str:
        return "add images"

    def seen(self, x: AnyState) -> Any:
        return self.values(x)

    def values(self, x: Tree) -> Any:
        """States as levels, [n, height, width] or with colours last."""
        return self.array.values(x)

    def shown_suffix(self) -> str:
        return ".png"

    def out_name(self) -> str:
        """In a run's folder, where `samples` is taken."""
        return f"drawn{self.suffix}".removesuffix(FOLDER)

    def check_out(self, path: Path) -> None:
        if path.is_dir() and any(path.iterdir()):
            raise BadData(f"{path}: is a folder with files in it: name a new one, or an archive such as samples.zip")
        if path.is_dir():
            return
        super().check_out(path)
        if _form(path) == "array":
            self.array.check_out(path)

    def write(self, x: Tree, path: Path) -> None:
        """As a folder of PNG files, an archive of them, one picture of all (.png), or an array (.npy)."""
        self._write(self.values(x), None, path)

    def write_told(self, x: Tree, beside: Companions, path: Path) -> None:
        """Each picture in the folder of its label; one picture of all, or an array, of the pictures alone."""
        self._write(self.values(x), beside.table["label"].to_pylist(), path)

    def _write(self, values: np.ndarray, folders: list[str] | None, path: Path) -> None:
        form = _form(path)
        if form == "array":
            self.array.write_values(values, path)
        elif form == "archive":
            write_bytes(path, packed(values, path, folders))
        else:
            _write_folder(values, path, folders)

    def gaps(self, path: Path, mark: str | None = None) -> tuple[Tree, Tree]:
        """Gaps are the levels that the mark says."""
        return self.array.gaps_of_array(self._pictures(path), mark, str(path))

    def write_filled(self, x: Tree, source: Path, path: Path, mark: str | None = None) -> None:
        filled = self.array.filled_array(x, self._pictures(source), mark, str(source))
        self.write(self.array.states(filled, source), path)

    def count_gaps(self, fixed: Tree) -> int:
        assert isinstance(fixed, Tensor)
        return int((~fixed).sum())

    def to_json(self) -> dict[str, Any]:
        plain = {"size": self.size, "written": self.written, "classes": self.classes}
        return {"array": self.array.to_json(), **plain}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Images":
        return cls(**{**data, "array": Array.from_json(data["array"])})


def _form(path: Path) -> str:
    """What a name asks for."""
    if suffix_of(path) in ARCHIVES:
        return "archive"
    return "array" if suffix_of(path) else "folder"


def _write_folder(values: Any, folder: Path, folders: list[str] | None = None) -> None:
    """Whole or not at all: a neighbour that is renamed."""
    part = folder.with_name(folder.name + ".part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    for name, data in png_files(values, folders):
        (part / name).parent.mkdir(parents=True, exist_ok=True)
        (part / name).write_bytes(data)
    if folder.is_dir():
        folder.rmdir()  # empty, or it would have been refused
    part.replace(folder)
