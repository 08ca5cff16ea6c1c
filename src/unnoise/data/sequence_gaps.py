"""Sequences with gaps: what is known of them, and texts with what was drawn in the place of their marks."""

import csv
import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from unnoise.data.base import BadData
from unnoise.data.files import read_bytes, read_text, separator_of, without_blanks, write_bytes
from unnoise.data.filled_text import by_run, by_symbol
from unnoise.data.sequence_files import END
from unnoise.shapes import Bool, Int

if TYPE_CHECKING:
    from unnoise.data.sequences import Sequences


def gaps_of(format: "Sequences", split: list[list[str]], mark: str, path: Path | str) -> tuple[Tensor, Tensor]:
    """The states of sequences with marks, and which of their coordinates are known."""
    for n, size in enumerate(map(len, split), 1):
        if format.padded and size > format.length:
            raise BadData(
                f"{path}: sequence {n} has {size} symbols, the model's have up to {format.length}: cut it, "
                f"or train in windows, --no-padded"
            )
    if format.padded:
        x = format.states(split, path, mark)
        return x, x != len(format.alphabet)
    coded = [torch.tensor(row, dtype=torch.int64) for row in format.coded(split, path, mark)]
    x = torch.nn.utils.rnn.pad_sequence(coded, batch_first=True, padding_value=len(format.alphabet))
    past = torch.arange(x.shape[1]) >= torch.tensor([len(row) for row in coded]).unsqueeze(1)
    return x, (x != len(format.alphabet)) | past


def filled_texts(
    format: "Sequences", x: Int[Tensor, "rows length"], texts: list[str], mark: str | None = None, where: str = "the texts"
) -> list[str]:
    """Strings with what was drawn in the place of their marks."""
    put = putting(format, x, format.gaps_of_texts(texts, mark, where)[1], format.checked_mark(mark))
    if format.symbols != "bytes":
        return [put(text) for text in texts]
    return [put(text.encode().decode("latin-1")).encode("latin-1").decode(errors="replace") for text in texts]


def putting(
    format: "Sequences", x: Int[Tensor, "rows length"], fixed: Bool[Tensor, "rows length"], mark: str
) -> Callable[[str], str]:
    """A function that puts what was drawn in the place of marks, piece after piece of the text."""
    ended = (x == format.alphabet.index(END)).cumsum(1) > 0 if format.padded else torch.zeros_like(fixed)
    if format.symbols == "tokens":
        texts, each = by_run(format.tool(), x, fixed, ended), "+"
    else:
        texts, each = by_symbol(format.alphabet, x, fixed, ended), ""
    pattern = re.compile(re.escape(mark) + each, re.IGNORECASE if format.form == "fasta" else 0)
    return lambda text: pattern.sub(lambda _: next(texts), text)


def write_filled(
    format: "Sequences", x: Int[Tensor, "rows length"], source: Path, path: Path, mark: str | None = None
) -> None:
    """The file `source` with what was drawn in the place of its marks; all else in it stays as it is."""
    _, fixed = format.gaps(source, mark)
    put = putting(format, x, fixed, format.checked_mark(mark))
    if format.symbols == "bytes":
        write_bytes(path, put(read_bytes(source).decode("latin-1")).encode("latin-1"))
        return
    text = read_text(source)
    if format.form == "fasta":
        body = "".join(line if line.lstrip().startswith((">", ";")) else put(line) for line in text.splitlines(True))
    elif format.form == "smiles":
        separator, rest = separator_of(text), without_blanks(text)
        header, *rows = csv.reader(io.StringIO(rest, newline=""), delimiter=separator)
        where = next(i for i, name in enumerate(header) if name.strip().lower() == "smiles")
        table = io.StringIO()
        filled = [[put(cell) if i == where else cell for i, cell in enumerate(row)] for row in rows]
        end = "\r\n" if "\r\n" in text else "\n"
        csv.writer(table, delimiter=separator, lineterminator=end).writerows([header, *filled])
        body = text.removesuffix(rest) + table.getvalue()
    else:
        body = put(text)
    write_bytes(path, body.encode("utf-8"))
