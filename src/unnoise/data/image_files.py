"""Pictures from a folder or an archive, by Pillow, as an array of levels; and an array of levels as such files again."""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.files import read_bytes
from unnoise.data.folders import files_in, is_hidden, refuse_strangers
from unnoise.data.reading import suffix_of

PICTURES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
ARCHIVES = (".zip", ".tar", ".tgz")
MOST = 2**31  # bytes of all pictures together


def pillow() -> Any:
    try:
        from PIL import Image
    except ImportError as error:
        raise BadData("pictures need the package Pillow: pip install 'unnoise[all]'") from error
    return Image


def is_picture(path: Path) -> bool:
    return path.suffix.lower() in PICTURES


def has_pictures(path: Path) -> bool:
    return any(map(is_picture, files_in(path)))


def members(path: Path) -> list[Path]:
    """The names of the pictures of a folder or an archive, in order."""
    names = [Path(name) for name, _ in _contents(path)]
    if not names:
        raise BadData(f"{path}: holds no files: it needs pictures")
    if not any(map(is_picture, names)):
        raise BadData(f"{path}: holds no pictures, but {names[0].name}: it needs files that end in {', '.join(PICTURES)}")
    refuse_strangers(path, names, is_picture, "pictures")
    return names


def _contents(path: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents."""
    if path.is_dir():
        for file in files_in(path):
            yield file.relative_to(path).as_posix(), file.read_bytes()
        return
    try:
        data = io.BytesIO(read_bytes(path))  # unpacked, where it is gzipped
        if suffix_of(path) == ".zip":
            with zipfile.ZipFile(data) as archive:
                for name in sorted(archive.namelist(), key=lambda name: Path(name).parts):
                    if not name.endswith("/") and not is_hidden(name):
                        yield name, archive.read(name)
        else:
            with tarfile.open(fileobj=data) as packed_files:
                files = [entry for entry in packed_files.getmembers() if entry.isfile() and not is_hidden(entry.name)]
                for entry in sorted(files, key=lambda entry: Path(entry.name).parts):
                    content = packed_files.extractfile(entry)
                    yield entry.name, b"" if content is None else content.read()
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, NotImplementedError, RuntimeError) as error:
        raise BadData(f"{path}: is no archive that can be read ({error}): pack it again as .zip or .tar") from error


def size_of(text: str) -> tuple[int, int]:
    """(width, height) of a square, 32, or of 48x32."""
    parts = text.lower().split("x")
    if not (len(parts) in (1, 2) and all(part.isdecimal() and 0 < int(part) <= 4096 for part in parts)):
        raise BadData(f"--option size={text}: write it as 32, or as width and height, 48x32")
    return int(parts[0]), int(parts[-1])


def pictures(path: Path, size: tuple[int, int] | None = None, colours: bool | None = None) -> np.ndarray:
    """All pictures, uint8 [n, height, width], or [n, height, width, 3] where one of them has colours (or as told).

    With a size each is scaled until it covers that, and cropped around its middle.
    """
    members(path)
    found = [(name, _opened(data, path, name)) for name, data in _contents(path)]
    first_name, first = found[0]
    if size is None:
        for name, picture in found:
            if picture.size != first.size:
                one, other = (f"{width}x{height}" for width, height in (first.size, picture.size))
                raise BadData(
                    f"{path}: {name} has {other} pixels, and {first_name} {one}: make them alike, "
                    f"or let them be scaled and cropped by --option size=32"
                )
    width, height = size or first.size
    colours = any(picture.mode == "RGB" for _, picture in found) if colours is None else colours
    if len(found) * width * height * (3 if colours else 1) > MOST:
        raise BadData(
            f"{path}: {len(found)} pictures of {width}x{height} pixels are too many to hold: use --option size=64, say"
        )
    return np.stack([np.asarray(_sized(picture, size).convert("RGB" if colours else "L")) for _, picture in found])


def _opened(data: bytes, path: Path, name: str) -> Any:
    """A picture, grey or in colours, upright, on white where it is transparent."""
    pillow()
    from PIL import Image, ImageOps

    try:
        picture: Any = Image.open(io.BytesIO(data))
        picture.load()
        picture = ImageOps.exif_transpose(picture)
    except Exception as error:  # whatever a codec raises
        raise BadData(
            f"{path}: {name} is no picture that can be read ({' '.join(str(error).split())}): remove it"
        ) from error
    if picture.mode.startswith("I;16") or picture.mode == "I":
        return Image.fromarray((np.asarray(picture).astype(np.float64) / 65535 * 255).round().clip(0, 255).astype(np.uint8))
    if picture.mode in ("LA", "PA", "RGBA") or "transparency" in picture.info:
        grey, full = picture.mode == "LA", picture.convert("RGBA")
        picture = Image.alpha_composite(Image.new("RGBA", full.size, "white"), full).convert("L" if grey else "RGB")
    if picture.mode == "P":
        picture = picture.convert("RGB")
        bands = np.asarray(picture)
        return picture.convert("L") if (bands == bands[..., :1]).all() else picture
    return picture.convert("L" if picture.mode in ("1", "L", "F") else "RGB")


def _sized(picture: Any, size: tuple[int, int] | None) -> Any:
    if size is None or picture.size == size:
        return picture
    from PIL import Image, ImageOps

    return ImageOps.fit(picture, size, Image.Resampling.LANCZOS)


def packed(values: np.ndarray, path: Path, folders: list[str] | None = None) -> bytes:
    """An archive of PNG files."""
    out = io.BytesIO()
    if suffix_of(path) == ".zip":
        with zipfile.ZipFile(out, "w") as archive:
            for name, data in png_files(values, folders):
                archive.writestr(zipfile.ZipInfo(name), data)  # of no date: the same pictures, the same bytes
        return out.getvalue()
    with tarfile.open(fileobj=out, mode="w:gz" if path.suffix == ".tgz" else "w") as archive:
        for name, data in png_files(values, folders):
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return out.getvalue()


def png_files(values: np.ndarray, folders: list[str] | None = None) -> Iterator[tuple[str, bytes]]:
    """Names in order, each in its folder, and pictures of levels [n, height, width] or with colours last."""
    image, digits = pillow(), max(3, len(str(len(values))))
    for i, picture in enumerate(values):
        out = io.BytesIO()
        image.fromarray(picture).save(out, "PNG")
        folder = Path("." if folders is None else folders[i])
        yield (folder / f"{i + 1:0{digits}d}.png").as_posix(), out.getvalue()
