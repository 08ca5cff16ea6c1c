"""Files of arrays: .npy, .npz and the IDX format."""

import io
import struct
import zipfile
import zlib
from math import prod
from pathlib import Path

import numpy as np

from unnoise.data.base import BadData
from unnoise.data.files import read_bytes, suffix_of

IDX_TYPES = {8: ">u1", 9: ">i1", 11: ">i2", 12: ">i4", 13: ">f4", 14: ">f8"}


def load(path: Path) -> np.ndarray:
    """The array of a file, examples first."""
    return named(path)[0]


def named(path: Path, wanted: str | None = None) -> tuple[np.ndarray, str | None, list[str]]:
    """The array of a file, its name in an .npz file, and the others there: the wanted one, else the largest."""
    data, suffix = read_bytes(path), suffix_of(path)
    name, others = None, []
    try:
        if suffix == ".npz":
            archive = np.load(io.BytesIO(data), allow_pickle=False)
            name = wanted if wanted in archive.files else max(archive.files, key=lambda n: np.size(archive[n]))
            values, others = np.asarray(archive[name]), [n for n in archive.files if n != name]
        elif data[:6] == b"\x93NUMPY":
            values = np.load(io.BytesIO(data), allow_pickle=False)
        else:
            values = idx(data)
    except (ValueError, EOFError, KeyError, struct.error, OSError, zipfile.BadZipFile, zlib.error) as error:
        raise BadData(f"{path}: is no array that can be read ({error})") from error
    check_array(values, str(path))
    return values, name, others


def others_in(path: Path, names: list[str]) -> dict[str, np.ndarray]:
    """Arrays of an .npz file by name; of an IDX file of images, as `label`, those of the file of labels that is named as it
    is."""
    if names:
        archive = np.load(io.BytesIO(read_bytes(path)), allow_pickle=False)
        return {name: np.asarray(archive[name]) for name in names}
    beside = path.with_name(path.name.replace("images", "labels").replace("idx3", "idx1"))
    if beside == path or not beside.is_file() or not is_idx(beside):
        return {}
    return {"label": load(beside)}


def packed_all(arrays: dict[str, np.ndarray]) -> bytes:
    """Arrays by name as an .npz file."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, values in arrays.items():
            with archive.open(f"{name}.npy", "w") as member:
                np.save(member, values)  # np.savez takes no array of the name "file"
    return buffer.getvalue()


def check_array(values: np.ndarray, where: str) -> None:
    """That these are numbers, examples first."""
    if values.dtype.kind == "c":
        raise BadData(f"{where}: holds {values.dtype}: pass real and imaginary parts as entries of their own")
    if values.dtype.kind not in "biuf":
        raise BadData(f"{where}: holds {values.dtype}, not numbers")
    if values.ndim == 0 or not values.size:
        raise BadData(f"{where}: the array has shape {values.shape}; expected examples along the first axis")


def is_idx(path: Path) -> bool:
    head = read_bytes(path)[:4]
    return len(head) == 4 and head[:2] == b"\x00\x00" and head[2] in IDX_TYPES and 1 <= head[3] <= 4


def idx(data: bytes) -> np.ndarray:
    zero, code, axes = struct.unpack(">HBB", data[:4])
    if zero or code not in IDX_TYPES:
        raise ValueError("neither .npy nor IDX")
    shape = struct.unpack(f">{axes}I", data[4 : 4 + 4 * axes])
    values = np.frombuffer(data, IDX_TYPES[code], offset=4 + 4 * axes)
    if values.size != prod(shape):
        raise ValueError(f"{values.size} numbers for the shape {shape}")
    return values.reshape(shape).astype(values.dtype.newbyteorder("="))


def idx_code(values: np.ndarray) -> int:
    """The type of an IDX file for these numbers: their own, else the smallest that holds them all."""
    kinds = "f" if values.dtype.kind == "f" else "iu"
    types = {code: np.dtype(name) for code, name in IDX_TYPES.items()}
    own = [code for code, dtype in types.items() if dtype.newbyteorder("=") == values.dtype]
    held = [code for code, dtype in types.items() if dtype.kind in kinds and (values.astype(dtype) == values).all()]
    if not own + held:
        raise BadData(f"an IDX file has no type for {values.min()} ... {values.max()}: write them as .npy")
    return (own + held)[0]


def written_as(path: Path) -> str:
    """The suffix of the form that a name asks for."""
    suffix = ".idx" if path.name.endswith("ubyte") else suffix_of(path).replace(".ubyte", ".idx")
    if suffix not in (".npy", ".npz", ".idx", ".png"):
        raise BadData(f"{path}: an array is written as .npy, .npz, .idx or .ubyte, images also as .png: rename it")
    return suffix


def packed(values: np.ndarray, suffix: str, name: str) -> bytes:
    """An array as a file of this form; `name`: what it is called in an .npz file."""
    if suffix == ".npz":
        return packed_all({name: values})
    buffer = io.BytesIO()
    if suffix == ".idx":
        code = idx_code(values)
        buffer.write(struct.pack(">HBB", 0, code, values.ndim) + struct.pack(f">{values.ndim}I", *values.shape))
        buffer.write(values.astype(IDX_TYPES[code]).tobytes())
    else:
        np.save(buffer, values)
    return buffer.getvalue()
