"""Files of tensors by name."""

from collections.abc import Mapping
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from unnoise.training.safe_files import Damaged


def line_of(error: Exception) -> str:
    """Its words in one line."""
    return " ".join(str(error).split())[:300]


def read_tensors(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise Damaged(f"{path} cannot be read as tensors: {line_of(error)}") from error


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    own = {name: value.detach().to("cpu", copy=True).contiguous() for name, value in tensors.items()}
    try:
        save_file(own, path)
    except SafetensorError as error:  # such as a full disk
        raise OSError(f"{path} cannot be written: {line_of(error)}") from error
