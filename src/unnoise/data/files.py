"""Files as bytes and text, gzipped or not, with one-line errors."""

import gzip
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from unnoise.data.reading import suffix_of
from unnoise.paths import BadData, check_data

__all__ = ["read_bytes", "read_once", "read_text", "separator_of", "suffix_of", "without_blanks", "write_bytes"]

SEPARATORS = (",", ";", "\t")
_QUOTED = re.compile(r'(?:^|(?<=[,;\t]))"(?:[^"]|"")*"')  # a field, and not a quote within one
_BLANK = re.compile(r"(?:[ \t]*[\r\n])*")  # lines before the first that says something


_kept: ContextVar[dict[Path, bytes] | None] = ContextVar("kept", default=None)


@contextmanager
def read_once() -> Iterator[None]:
    """For the length of a `with`, a file is read from the disk once, whoever asks `read_bytes` for it: those who recognise
    it, the format that encodes it, the digest that tells it again."""
    token = _kept.set({})
    try:
        yield
    finally:
        _kept.reset(token)


def read_bytes(path: Path) -> bytes:
    """The file's content, unpacked; never empty."""
    kept = _kept.get()
    if kept is None:
        return _read_bytes(path)
    if path not in kept:
        kept[path] = _read_bytes(path)
    return kept[path]


def _read_bytes(path: Path) -> bytes:
    check_data(path)
    if path.is_dir():
        raise BadData(f"{path}: is a folder; pass a file")
    data = path.read_bytes()
    if data[:2] == b"\x1f\x8b":
        try:
            data = gzip.decompress(data)
        except (EOFError, OSError, zlib.error) as error:
            raise BadData(f"{path}: the gzip file is damaged or cut off ({error}); fetch it again") from error
    if not data:
        raise BadData(f"{path}: the file is empty")
    return data


def read_text(path: Path, encoding: str = "utf-8") -> str:
    """The file as text; binary files and other encodings are named as such."""
    data = read_bytes(path)
    if b"\x00" in data[:4096]:
        raise BadData(f"{path}: byte {data.index(0)} is zero, so this is no text: pass a text file, or an array as .npy")
    try:
        return data.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise BadData(
            f"{path}: byte {error.start} ({data[error.start]:#04x}) is not {encoding}: convert the file to UTF-8, "
            f"or read it as bytes with --text bytes"
        ) from error


def without_blanks(text: str) -> str:
    """The text from its first line that is not blank."""
    return text[_BLANK.match(text).end() :]  # type: ignore[union-attr]


def separator_of(text: str) -> str:
    """What separates the fields of a table, by its header: the commonest outside quotes, a comma where there is none."""
    header = re.split(r"[\r\n]", _QUOTED.sub("", without_blanks(text[: 1 << 20])), maxsplit=1)[0]
    return max(SEPARATORS, key=header.count)


def write_bytes(path: Path, data: bytes) -> None:
    """Whole or not at all: through a neighbour that is renamed."""
    path.parent.mkdir(parents=True, exist_ok=True)
    part = path.with_name(path.name + ".part")
    part.unlink(missing_ok=True)  # a link there is not followed
    part.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    part.replace(path)
